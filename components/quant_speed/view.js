// A row for each format: what it costs in loss on the left, what it bought in speed on the right. Below, one token's time taken apart.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const lines = (found, x, y, more = '') => found.map((line, n) => text(x, y + 18 * n, line, more)).join('');
const halo = (c, chosen) => `paint-order:stroke;stroke:${c(chosen ? 'accent-soft' : 'paper')};stroke-width:4px;stroke-linejoin:round`;
// Words that the line at ×1 would cross stand on the row's own ground.
const ground = (x, y, words, row, tools, line, size = 13) => { const w = tools.measure(words, size) * 1.08; return x - 4 < line && line < x + w ? rect(x - 4, y - 14, w + 8, 19, tools.colour(row.chosen ? 'accent-soft' : 'paper')) : ''; };
const strong = 'font-weight="650"', BAR = 20, GAP = 16, PARTS = ['qkv', 'out', 'gate_up', 'down', 'head', 'rest'];
const LOOK = { qkv: ['weights', 1], out: ['weights', 0.72], gate_up: ['weights', 0.5], down: ['weights', 0.32], head: ['prefill', 1], rest: ['reserved', 1] };

export const says = (data) => data.says;

function plan(data, width, tools) {
  const wide = width >= 760, names = Math.max(...data.rows.map((row) => Math.max(tools.measure(row.name, 15), tools.measure(row.bytes, 13)))) * 1.1 + 18;
  const cost = wide ? { x: names, w: (width - names) * 0.36 } : { x: 0, w: width }, gain = wide ? { x: cost.x + cost.w + 28, w: width - cost.x - cost.w - 28 } : { x: 0, w: width };
  const titles = [tools.wrap(tools.words('cost'), 14, 0.94 * cost.w), tools.wrap(tools.words('gain', { base: data.base }), 14, 0.94 * gain.w)], row = wide ? 2 * BAR + GAP : 0;
  const top = 14 + 18 * Math.max(...titles.map((t) => t.length)), narrowRow = 2 * BAR + 22 + GAP, first = wide ? top + data.rows.length * row + 8 : 14 + 18 * titles[1].length + data.rows.length * narrowRow;
  const second = wide ? 0 : 40 + 18 * titles[0].length + data.rows.length * 58;
  const partTitle = tools.wrap(tools.words('parts'), 14, 0.94 * width), key = data.parts.length ? legend(width, tools) : { items: [], height: 0 };
  const parts = data.parts.length ? 30 + 18 * partTitle.length + key.height + data.parts.length * (wide ? 34 : 50) : 0;
  return { wide, names, cost, gain, titles, row, narrowRow, top, first, second, partTitle, key, height: first + second + parts + 8 };
}

function legend(width, tools) {
  const items = [];
  let x = 0, line = 0;
  for (const part of PARTS) {
    const w = tools.measure(tools.words(part), 13) * 1.05 + 34;
    if (x && x + w > width) { x = 0; line++; }
    items.push({ part, x, line });
    x += w;
  }
  return { items, height: 22 * (line + 1) };
}

export const height = (data, width, tools) => plan(data, width, tools).height;

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), W = tools.width, places = [];
  let out = defs(tools.colour) + lines(p.titles[1], p.gain.x, 16, strong), y = p.wide ? p.top : 14 + 18 * p.titles[1].length;
  const gain = scale(data, p, tools);
  if (p.wide) out += lines(p.titles[0], p.cost.x, 16, strong);
  out += `<path d="M${r(gain(1))} ${y}V${p.first - 6}" stroke="${tools.colour('ink')}" stroke-dasharray="5 4"/>`;
  for (const row of data.rows) {
    const h = p.wide ? p.row : p.narrowRow;
    if (row.chosen) out += rect(0, y - 4, W, h - 6, tools.colour('accent-soft'), 'rx="4"');
    if (!p.wide) out += ground(4, y + 14, row.name, row, tools, gain(1), 15);
    out += text(p.wide ? 6 : 4, y + (p.wide ? 20 : 14), tools.esc(row.name), `style="font-size:15px;${halo(tools.colour, row.chosen)}" ${row.chosen ? strong : ''}`);
    out += p.wide ? text(6, y + 38, row.bytes, 'class="small figure muted"') : text(W - 4, y + 14, row.bytes, 'class="small figure muted" text-anchor="end"');
    out += bars(row, gain, p.wide ? y : y + 22, tools);
    if (p.wide) out += loss(row, data, p.cost, y + 20, tools);
    places.push({ id: row.id, from: y - 4, to: y + h - 10, chosen: row.chosen });
    y += h;
  }
  if (!p.wide) {
    out += lines(p.titles[0], 0, y + 26, strong);
    y += 26 + 18 * p.titles[0].length;
    for (const row of data.rows) { out += text(0, y + 6, tools.esc(row.name), 'class="small"') + loss(row, data, { x: 0, w: W }, y + 20, tools); y += 58; }
  }
  svg.innerHTML = out + (data.parts.length ? parts(data, p, p.first + p.second, tools) : '');
  svg.onclick = (event) => { const at = (event.clientY - svg.getBoundingClientRect().top) / (svg.currentCSSZoom || 1), hit = places.find((row) => at >= row.from && at < row.to); if (hit && !hit.chosen) tools.pick('chosen', hit.id); };
}

function defs(c) {
  return `<defs><pattern id="qs-rest" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${c('reserved')}" fill-opacity=".5"/><path d="M0 6L6 0" stroke="${c('muted')}" stroke-width="1"/></pattern></defs>`;
}

function scale(data, p, tools) {
  const labels = Math.max(...data.rows.map((row) => tools.measure(`×0.00 ${tools.words('clock')} · ${row.speed}`, 13))) * 1.06 + 14;
  const most = Math.max(...data.rows.flatMap((row) => [row.predicted, row.measured ?? 0, row.quartiles?.[1] ?? 0]));
  return (v) => p.gain.x + (v / most) * Math.max(60, p.gain.w - labels);
}

function bars(row, X, y, tools) {
  const c = tools.colour, from = X(0), tone = c(row.measured > 1.005 ? 'accepted' : 'bound');
  let out = rect(from + 0.7, y + 3, X(row.predicted) - from - 1.4, BAR - 6, 'none', `stroke="${c('bound')}" stroke-width="1.4" stroke-dasharray="4 3"`)
    + ground(X(row.predicted) + 8, y + 15, `×${row.predicted.toFixed(2)} ${tools.words('bytes')}`, row, tools, X(1))
    + text(X(row.predicted) + 8, y + 15, `<tspan class="figure">×${row.predicted.toFixed(2)}</tspan> ${tools.words('bytes')}`, `class="small muted" style="${halo(c, row.chosen)}"`);
  y += BAR;
  if (row.measured === null) return out + text(from + 4, y + 14, tools.words('untimed'), 'class="small muted"');
  if (row.ghost !== null) out += rect(from + 0.5, y + 1, X(Math.min(row.ghost, 99)) - from, BAR - 4, 'none', `stroke="${c('ghost')}"`);
  out += rect(from, y + 1, X(row.measured) - from, BAR - 4, tone);
  if (row.quartiles) out += `<path d="M${r(X(row.quartiles[0]))} ${y + 9}H${r(X(row.quartiles[1]))}M${r(X(row.quartiles[0]))} ${y + 5}v8M${r(X(row.quartiles[1]))} ${y + 5}v8" stroke="${c('ink')}" stroke-width="1.4"/>`;
  const at = Math.max(X(row.measured), row.quartiles ? X(row.quartiles[1]) : 0) + 8;
  return out + ground(at, y + 14, `×${row.measured.toFixed(2)} ${tools.words('clock')} · ${row.speed}`, row, tools, X(1)) + text(at, y + 14, `<tspan class="figure" ${strong}>×${row.measured.toFixed(2)}</tspan> ${tools.words('clock')} · ${row.speed}`, `class="small" style="${halo(c, row.chosen)}"`);
}

function loss(row, data, box, y, tools) {   // a dot with its interval, and the figures under it
  const c = tools.colour, known = data.rows.filter((o) => o.change), most = Math.max(1e-4, ...known.map((o) => o.change[2])), least = Math.min(0, ...known.map((o) => o.change[1]));
  const X = (v) => box.x + 10 + ((v - least) / (most - least)) * (box.w - 30);
  let out = known.length ? `<path d="M${r(X(0))} ${y - (box.x ? 16 : 11)}V${y + 18}" stroke="${c('ink')}" stroke-opacity=".5"/>` : '';
  const none = row.change && row.change[1] <= 0 && row.change[2] >= 0, tone = c(none ? 'accepted' : 'rejected');   // no difference measured: an empty dot
  if (row.change) out += `<path d="M${r(X(row.change[1]))} ${y - 6}H${r(X(row.change[2]))}M${r(X(row.change[1]))} ${y - 11}v10M${r(X(row.change[2]))} ${y - 11}v10" stroke="${tone}" stroke-width="1.5"/><circle cx="${r(X(row.change[0]))}" cy="${y - 6}" r="${none ? 4.2 : 5}" fill="${none ? c('paper') : tone}" stroke="${tone}" stroke-width="${none ? 1.6 : 0}"/>`;
  const w = tools.measure(row.says, 13, row.change ? 'figures' : 'sans') * 1.05, middle = row.change ? X(row.change[0]) : 0, right = box.x + box.w;
  const [at, anchor] = middle + w / 2 > right ? [right, 'end'] : middle - w / 2 < X(0) + 6 ? [X(0) + 6, 'start'] : [middle, 'middle'];
  return out + text(at, y + 16, tools.esc(row.says), `class="small ${row.change ? 'figure' : 'muted'}" text-anchor="${anchor}" style="${halo(c, box.x && row.chosen)}"`);
}

function parts(data, p, y, tools) {
  const c = tools.colour, W = tools.width, most = Math.max(...data.parts.map((bar) => bar.parts.reduce((a, b) => a + b, 0))), left = p.wide ? p.names : 0, step = p.wide ? 34 : 50;
  const fill = (part) => (part === 'rest' ? 'url(#qs-rest)' : c(LOOK[part][0]));
  let out = rect(0, y + 4, W, 1, c('hairline')) + lines(p.partTitle, 0, y + 26, strong);
  y += 14 + 18 * p.partTitle.length;
  for (const item of p.key.items) out += rect(item.x, y + item.line * 22 + 4, 13, 13, fill(item.part), `fill-opacity="${LOOK[item.part][1]}"`) + text(item.x + 19, y + item.line * 22 + 15, tools.words(item.part), 'class="small"');
  y += p.key.height + 10;
  for (const bar of data.parts) {
    const total = bar.parts.reduce((a, b) => a + b, 0), top = p.wide ? y : y + 16, end = tools.measure('000.0', 13, 'figures') + 16;
    out += text(p.wide ? 6 : 0, p.wide ? y + 16 : y + 8, tools.esc(bar.name), `style="font-size:14px" ${bar.chosen ? strong : ''}`);
    let x = left;
    bar.parts.forEach((ms, n) => { const w = (ms / most) * (W - left - end); out += rect(x, top, Math.max(0, w - 1), 22, fill(PARTS[n]), `fill-opacity="${LOOK[PARTS[n]][1]}"`); x += w; });
    out += text(x + 8, top + 16, total.toFixed(1), 'class="small figure"');
    y += step;
  }
  return out;
}
