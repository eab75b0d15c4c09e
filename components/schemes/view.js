// Two parts: "chart", loss against bits with a column for each kind of scheme that has no place on the axis; "domains", the chosen
// scheme on each kind of text.
const TONE = { float: 'bound', rtn: 'weights', gptq: 'residual', awq: 'draft', fp8: 'state', fp4: 'decode', w8a8: 'compute', kv: 'kv' };
const FORM = {   // outlines around 0, 0 of about equal area; a second cue beside the colour
  float: 'M-6 -1.8H-1.8V-6H1.8V-1.8H6V1.8H1.8V6H-1.8V1.8H-6Z', rtn: 'M5 0A5 5 0 1 1 -5 0A5 5 0 1 1 5 0Z', gptq: 'M-4.6 -4.6H4.6V4.6H-4.6Z',
  awq: 'M0 -6L5.6 4.4H-5.6Z', fp8: 'M0 -6.2L6.2 0L0 6.2L-6.2 0Z', fp4: 'M0 -5.8L5.5 -1.8L3.4 4.8H-3.4L-5.5 -1.8Z',
  w8a8: 'M-5.6 -4.4H5.6L0 6Z', kv: 'M-5.4 -3.1L0 -6.2L5.4 -3.1V3.1L0 6.2L-5.4 3.1Z',
};
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const tick = (v) => (v === 0 ? '0' : `${v > 0 ? '+' : '−'}${+Math.abs(v).toPrecision(3)}`);
const lines = (found, x, y, anchor = 'start', more = '') => found.map((line, n) => text(x, y + n * 17, line, `class="small${more}" text-anchor="${anchor}"`)).join('');
const strong = 'font-weight="650"';
const LEFT = 58, LANE = { float: 76, w8a8: 152, kv: 128 }, LINE = 17, ROW = 34, TALL = 44, NEAR = 24;

export const says = (data) => data.says;

export function height(data, width, tools) { 
  if (data.part === 'chart') return plan(data, width, tools).height;
  const p = rows(data, width, tools);
  return p.end + 24 + p.foot.length * LINE + 6;
}

export function draw(svg, data, t, tools) {
  if (data.part === 'chart') chart(svg, data, tools);
  else domains(svg, data, tools);
}

// ---- where things stand

function plan(data, width, tools) {
  const wide = width >= 700, key = legend(data, width, tools), lanes = data.lanes.reduce((sum, lane) => sum + LANE[lane], 0);
  const above = tools.wrap(tools.words(`yaxis_${data.scale.kind}`), 13, width), below = tools.wrap(tools.words('xaxis'), 13, width - LEFT);
  const top = key.height + above.length * LINE + 18, foot = 26 + below.length * LINE;
  const main = { x: LEFT, y: top, w: wide ? width - LEFT - lanes - 4 : width - LEFT - 6, h: wide ? 400 : 340 };
  const boxes = [];
  let x = wide ? main.x + main.w : LEFT;
  const scale = wide ? 1 : (width - LEFT - 6) / Math.max(1, lanes), y = wide ? top : top + main.h + foot + 16;
  for (const lane of data.lanes) { boxes.push({ lane, x, y, w: LANE[lane] * scale, h: wide ? main.h : 220 }); x += LANE[lane] * scale; }
  const names = Math.max(0, ...boxes.map((box) => (box.name = tools.wrap(tools.words(`lane_${box.lane}`), 13, box.w - 6)).length));
  return { wide, key, above, below, main, boxes, height: top + main.h + Math.max(foot, wide ? 6 + names * LINE : 0) + (wide || !boxes.length ? 0 : 16 + 220 + 6 + names * LINE) + 4 };
}

function vertical(scale, box) {   // nats → px
  const f = scale.kind === 'symlog' ? (v) => Math.sign(v) * Math.log10(1 + Math.abs(v) / scale.linear) : (v) => v;
  const low = f(scale.low), high = f(scale.high);
  return (v) => box.y + box.h * (1 - (f(Math.min(Math.max(v, scale.low), scale.high)) - low) / (high - low));
}

function legend(data, width, tools) {
  const items = [];
  let x = 0, line = 0;
  for (const family of data.families) {
    const name = tools.words(`family_${family}`), w = tools.measure(name, 13) * 1.04 + 36;
    if (x && x + w > width) { x = 0; line++; }
    items.push({ family, name, x, line });
    x += w;
  }
  const best = { name: tools.words('pareto'), x, line };
  if (x && x + tools.measure(best.name, 13) * 1.04 + 40 > width) Object.assign(best, { x: 0, line: ++line });
  return { items, best, height: (line + 1) * 22 };
}

// ---- loss against bits

function chart(svg, data, tools) {
  const c = tools.colour, p = plan(data, tools.width, tools), { main } = p;
  const low = 2, most = Math.max(8.6, ...data.points.filter((d) => !d.lane).map((d) => d.x + 0.3)), X = (bits) => main.x + 18 + ((bits - low) / (most - low)) * (main.w - 30);
  let out = key(p.key, data, c);
  out += lines(p.above, 0, p.key.height + 18);
  for (const box of [main, ...p.boxes]) out += ground(box, data, vertical(data.scale, box), box === main || !p.wide && box === p.boxes[0], tools);
  out += bits(main, low, most, X, tools) + lines(p.below, main.x + main.w / 2, main.y + main.h + 38, 'middle');
  for (const box of p.boxes) {
    out += `<path d="M${r(box.x)} ${r(box.y)}v${box.h}" stroke="${c('hairline')}"/>` + lines(box.name, box.x + box.w / 2, box.y + box.h + 18, 'middle');
  }
  const placed = place(data, X, p);
  out += pareto(placed, main, c) + marks(placed, data, tools) + labels(placed, p, data, tools);
  svg.innerHTML = out;
  listen(svg, placed, tools);
}

function key(at, data, c) {
  const y = at.best.line * 22 + 11, best = `<path d="M${at.best.x + 2} ${y - 5}h10v9h14" fill="none" stroke="${c('ink')}" stroke-opacity=".55" stroke-width="1.4"/>` + text(at.best.x + 32, y + 5, at.best.name, 'class="small"');
  return best + at.items.map((i) => mark(i.family, i.x + 9, i.line * 22 + 11, c(TONE[i.family]), c) + text(i.x + 21, i.line * 22 + 16, i.name, 'class="small"')).join('');
}

function mark(family, x, y, tone, c, more = '', size = 1) {
  return `<path d="${FORM[family]}" transform="translate(${r(x)} ${r(y)}) scale(${size})" fill="${tone}" stroke="${c('paper')}" stroke-width="1.2" ${more}/>`;
}

function ground(box, data, Y, axis, tools) {   // band, grid, zero
  const c = tools.colour;
  let out = data.floor ? rect(box.x, Y(data.floor), box.w, Y(-data.floor) - Y(data.floor), c('accepted'), 'fill-opacity=".11"') : '';
  if (data.floorHigh > data.floor) out += rect(box.x, Y(data.floorHigh), box.w, Y(data.floor) - Y(data.floorHigh), c('accepted'), 'fill-opacity=".045"');   // how far the floor itself is known
  for (const v of data.scale.ticks) {
    if (v !== 0) out += rect(box.x, Y(v), box.w, 1, c('grid'));
    if (axis) out += text(box.x - 8, Y(v) + 4.5, tick(v), 'class="small figure muted" text-anchor="end"');
  }
  out += `<path d="M${r(box.x)} ${r(Y(0))}h${r(box.w)}" stroke="${c('ink')}" stroke-width="1.2"/>`;
  if (data.floor) out += `<path d="M${r(box.x)} ${r(Y(data.floor))}h${r(box.w)}" stroke="${c('accepted')}" stroke-width="1.2" stroke-dasharray="5 4"/>`;
  return out;
}

function bits(box, low, most, X, tools) {
  let out = rect(box.x, box.y + box.h, box.w, 1, tools.colour('hairline'));
  for (let b = low; b <= most; b++) out += `<path d="M${r(X(b))} ${r(box.y + box.h)}v4" stroke="${tools.colour('muted')}"/>` + text(X(b), box.y + box.h + 18, b, 'class="small figure muted" text-anchor="middle"');
  return out;
}

function place(data, X, p) {
  const slot = {};
  return data.points.map((d) => {
    const box = d.lane ? p.boxes.find((b) => b.lane === d.lane) : p.main, Y = vertical(data.scale, box);
    const n = (slot[d.lane] = (slot[d.lane] ?? -1) + 1), count = data.points.filter((o) => o.lane === d.lane).length;
    const x = d.lane ? box.x + box.w * (n + 0.5) / count : X(d.x);
    return { ...d, box, px: x, py: d.y > data.scale.high ? box.y + 5 : Y(d.y), top: Y(d.high), bottom: Y(d.low), out: d.y > data.scale.high };
  });
}

function pareto(placed, main, c) {
  const best = placed.filter((d) => d.pareto && !d.out).sort((a, b) => a.px - b.px);
  if (best.length < 2) return '';
  const path = best.map((d, i) => (i ? `H${r(d.px)}V${r(d.py)}` : `M${r(d.px)} ${r(main.y)}V${r(d.py)}`)).join('') + `H${r(main.x + main.w)}`;
  return `<path d="${path}" fill="none" stroke="${c('ink')}" stroke-opacity=".55" stroke-width="1.4" stroke-linejoin="round"/>`;
}

function marks(placed, data, tools) {
  const c = tools.colour, chosen = placed.find((d) => d.chosen), ghost = placed.find((d) => d.id === data.ghost);
  let out = ghost ? `<circle cx="${r(ghost.px)}" cy="${r(ghost.py)}" r="11" fill="none" stroke="${c('ghost')}" stroke-width="1.6"/>` : '';
  for (const d of [...placed.filter((o) => !o.chosen), ...(chosen ? [chosen] : [])]) {
    const tone = c(TONE[d.family]);
    if (d.chosen) out += `<circle cx="${r(d.px)}" cy="${r(d.py)}" r="11" fill="${c('accent-soft')}" stroke="${c('accent')}" stroke-width="2"/>`;
    if (!d.out && d.bottom - d.top > 12) out += `<path d="M${r(d.px)} ${r(d.top)}V${r(d.bottom)}M${r(d.px - 3)} ${r(d.top)}h6M${r(d.px - 3)} ${r(d.bottom)}h6" stroke="${tone}" stroke-width="1.3"/>`;
    out += d.out ? `<path d="M${r(d.px)} ${r(d.py - 4)}l5 8h-10z" fill="none" stroke="${tone}" stroke-width="1.5"/>` : mark(d.family, d.px, d.py, tone, c, d.planted ? `style="fill:${c('paper')};stroke:${tone};stroke-width:1.8"` : '');
  }
  return out;
}

function fresh(now, d, scale, c, tools, taken) {   // measured just now, beside the stored one
  const Y = vertical(scale, d.box), x = d.px + 11, y = Y(now.y), w = tools.measure(tools.words('fresh'), 13) * 1.12;
  taken.push({ x: x - 5, y: y - 10, w: w + 14, h: 18 });
  return `<path d="M${r(d.px)} ${r(d.py)}L${r(x)} ${r(y)}" stroke="${c('accent')}" stroke-dasharray="2 2"/><path d="M${r(x)} ${r(Y(now.high))}V${r(Y(now.low))}M${r(x - 4)} ${r(y)}h8" stroke="${c('accent')}" stroke-width="2.4"/>`
    + halo(x + 8, y + 4.5, tools.words('fresh'), c, `style="fill:${c('accent')}" ${strong}`);
}

// ---- labels: the chosen one's, then the pointer's, the best, the known ones, wherever there is room

function labels(placed, p, data, tools) {
  const c = tools.colour, taken = placed.map((d) => ({ x: d.px - 6, y: d.py - 6, w: 12, h: 12, of: d }));
  const rank = (d) => (d.chosen ? 0 : d.id === tools.local.over ? 1 : d.pareto && p.wide ? 2 : d.named ? 3 : 9);
  let out = '';
  if (data.floorText) {
    const box = p.main, y = vertical(data.scale, box)(data.floor), w = tools.measure(data.floorText, 13) * 1.05;
    out += halo(box.x + box.w - 8, y - 6, data.floorText, c, `text-anchor="end" style="fill:${c('accepted')}"`);
    taken.push({ x: box.x + box.w - 8 - w, y: y - 20, w, h: 18 });
  }
  const now = data.fresh && placed.find((d) => d.id === data.fresh.id);
  if (now) out += fresh(data.fresh, now, data.scale, c, tools, taken);
  const above = placed.filter((d) => d.out && !d.lane).length;
  if (above) { const w = tools.words('above', { n: above }); out += halo(p.main.x + p.main.w - 8, p.main.y + 12, w, c, 'text-anchor="end"'); taken.push({ x: p.main.x + p.main.w - 160, y: p.main.y, w: 160, h: 16 }); }
  for (const d of placed.filter((o) => rank(o) < 9 || o.lane).sort((a, b) => rank(a) - rank(b))) {
    const name = d.lane ? short(d) : d.id, w = tools.measure(name, 13) * (d.chosen ? 1.12 : 1.05), box = d.box;
    const at = [[11, 4.5], [-11 - w, 4.5], [-w / 2, -13], [-w / 2, 22], [9, -9], [9, 17], [-9 - w, -9], [-9 - w, 17], [14, -20], [14, 28], [-14 - w, -20], [-14 - w, 28]].map(([dx, dy]) => ({ x: d.px + dx, y: d.py + dy - 12, w, h: 15 }));
    const fits = at.slice(0, d.lane ? 8 : 12).find((b) => b.x >= box.x + 2 && b.x + b.w <= (d.lane ? tools.width : p.main.x + p.main.w) + 2 && b.y >= box.y - 4 && b.y + b.h <= box.y + box.h + 2
      && !taken.some((o) => o.of !== d && b.x < o.x + o.w && o.x < b.x + b.w && b.y < o.y + o.h && o.y < b.y + b.h));
    if (!fits && rank(d) > 1) continue;
    const b = fits ?? { ...at[0], x: Math.min(Math.max(at[0].x, box.x), box.x + box.w - w) };
    taken.push(b);
    out += halo(b.x, b.y + 12, tools.esc(name), c, `${d.chosen ? strong : ''} style="fill:${c(d.chosen ? 'ink' : TONE[d.family])}"`);
  }
  return out;
}
const short = (d) => d.id.replace('w8a8-', '');
function halo(x, y, words, c, more) {
  return text(x, y, words, `class="small" stroke="${c('paper')}" stroke-width="4" stroke-linejoin="round" aria-hidden="true" ${more.replace(/style="/, 'style="stroke-opacity:.85;')}`) + text(x, y, words, `class="small" ${more}`);
}

function listen(svg, placed, tools) {
  const near = (event) => {
    const from = svg.getBoundingClientRect(), zoom = svg.currentCSSZoom || 1, x = (event.clientX - from.left) / zoom, y = (event.clientY - from.top) / zoom;
    let best = null, least = NEAR ** 2;
    for (const d of placed) { const far = (d.px - x) ** 2 + (d.py - y) ** 2; if (far < least) { least = far; best = d; } }
    return best;
  };
  svg.onclick = (event) => { const d = near(event); if (d && !d.chosen) tools.pick('chosen', d.id); };
  svg.onpointermove = (event) => {
    if (event.pointerType !== 'mouse') return;
    const d = near(event);
    svg.style.cursor = d ? 'pointer' : '';
    if ((tools.local.over ?? null) !== (d?.id ?? null)) { tools.local.over = d?.id ?? null; tools.redraw(); }
  };
  svg.onpointerleave = () => { if (tools.local.over) { tools.local.over = null; tools.redraw(); } };
}

// ---- the chosen scheme on each kind of text

function rows(data, width, tools) {
  const wide = width >= 620, names = wide ? Math.max(...data.rows.map((row) => tools.measure(row.name, 14))) * 1.1 + 18 : 0;
  const values = Math.max(...data.rows.map((row) => tools.measure(row.text, 13, 'figures'))) * 1.1 + 14, left = names, right = width - values, step = wide ? ROW : TALL;
  const foot = tools.wrap(tools.words('domain_axis') + (data.rows.some((row) => row.floor) ? tools.words('band') : ''), 13, width - left);
  return { wide, left, right, step, top: 34, end: 34 + data.rows.length * step + 6, foot, X: (v) => left + ((v - data.low) / (data.high - data.low)) * (right - left) };
}

function domains(svg, data, tools) {
  const c = tools.colour, W = tools.width, { wide, left, right, step, top, end, foot, X } = rows(data, W, tools);
  let out = rect(0, 0, W, 1, c('hairline')) + text(0, 22, tools.esc(data.title), strong);
  data.rows.forEach((row, n) => {
    const y = top + n * step + (wide ? 17 : 31), from = X(Math.max(-row.floor, data.low)), to = X(Math.min(row.floor, data.high));
    if (row.floor) out += rect(from, y - 8, to - from, 16, c('accepted'), 'fill-opacity=".14"');
    out += text(0, wide ? y + 5 : y - 14, tools.esc(row.name), `style="font-size:${wide ? 14 : 13}px" ${row.chosen ? strong : ''}`);
    out += `<path d="M${r(X(row.low))} ${y}H${r(X(row.high))}M${r(X(row.low))} ${y - 5}v10M${r(X(row.high))} ${y - 5}v10" stroke="${c('ink')}" stroke-width="1.5"/><circle cx="${r(X(row.value))}" cy="${y}" r="4.5" fill="${c('ink')}"/>`;
    out += text(W, y + 5, row.text, 'class="small figure" text-anchor="end"');
  });
  out += `<path d="M${r(X(0))} ${top}V${end}" stroke="${c('ink')}" stroke-width="1.2"/>`;
  for (const v of spread(data.low, data.high)) out += text(X(v), end + 16, tick(v), `class="small figure muted" text-anchor="${X(v) < 24 ? 'start' : 'middle'}"`);
  svg.innerHTML = out + lines(foot, left, end + 36, 'start', ' muted');
}

function spread(low, high) {
  const power = 10 ** Math.floor(Math.log10(high)), step = [0.2, 0.25, 0.5, 1, 2, 5].map((k) => k * power).find((s) => (high - low) / s <= 6);
  return Array.from({ length: Math.floor(high / step) - Math.ceil(low / step) + 1 }, (_, k) => (k + Math.ceil(low / step)) * step);
}
