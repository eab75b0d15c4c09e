// A column is a token, a row an expert, a block of rows a layer; beside each row what the expert gets of a whole text. Below, one router's
// probabilities, and how many experts a step reads.
const NOTICE = 21, HEAD = 26, FOOT = 30, WIDE = 720, GAP = 48, BELOW = 206, ROUND = 3;

const r = (x) => Math.round(x * 10) / 10;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const path = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const percent = (v) => `${(v * 100).toFixed(1)}%`;
const strong = 'font-weight="650"';
const halo = (c) => `paint-order:stroke;stroke:${c('paper')};stroke-width:4px`;

function plan(data, width, tools) {
  const two = width >= WIDE, layers = data.load.length, experts = data.load[0].length, notice = data.waiting ? tools.wrap(tools.words('waiting'), 14, width - 14) : [];
  const left = 24, gap = two ? 28 : 16, space = width - left - (two ? 210 : 86) - gap, row = two ? 16 : 15;
  const least = two ? 20 : 15, most = 64, shown = Math.min(data.pieces.length, Math.floor(space / least)), cell = Math.min(most, space / shown), room = shown * cell + gap - 18, bars = width - left - room - 18;
  const from = Math.max(0, Math.min(data.pieces.length - shown, data.token - Math.floor(shown / 2)));   // long texts: the part around the chosen token
  const widest = Math.max(...data.pieces.slice(from, from + shown).map((p) => tools.measure(cut(p), 13))), level = widest <= cell - 2;
  const names = level ? 24 : Math.min(74, widest * 0.87 + 16), top = notice.length * NOTICE + (notice.length ? 14 : 0) + names, block = HEAD + experts * row + 8;
  const grid = top + layers * block, part = shown < data.pieces.length ? 22 : 0, legend = grid + 18 + part, below = legend + FOOT, small = HEAD + BELOW + 44;
  return { two, layers, experts, notice, left, bars, room, row, shown, cell, from, level, names, top, block, grid, part, legend, below, height: below + (two ? small : 2 * small) };
}
const cut = (piece) => ([...piece].length > 9 ? [...piece].slice(0, 8).join('') + '…' : piece);

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), W = tools.width, c = tools.colour, w = p.two ? (W - GAP) / 2 : W;
  const said = p.notice.map((line, i) => text(12, 16 + NOTICE * i, tools.esc(line))).join('') + (p.notice.length ? rect(0, 2, 3, NOTICE * p.notice.length, c('accent')) : '');
  const x2 = p.two ? w + GAP : 0, y2 = p.two ? p.below : p.below + HEAD + BELOW + 44;
  svg.innerHTML = said + names(data, p, tools) + data.load.map((_, layer) => block(data, layer, p, tools)).join('') + chosen(data, p, tools) + legend(data, p, tools)
    + router(data, { x: 0, y: p.below, w }, tools) + reads(data, { x: x2, y: y2, w }, tools);
  svg.onclick = (event) => {
    const hit = event.target.closest('[data-pick]'), box = hit?.getBoundingClientRect();
    if (!hit) return;
    if (hit.dataset.pick === 'layer') tools.pick('layer', +hit.dataset.value);
    else tools.pick('token', p.from + 1 + Math.min(p.shown - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * p.shown))));
  };
}

export function says(data, t, tools) {
  const [first, second] = data.experts[data.layer][data.token], [a, b] = data.shares[data.layer][data.token];
  return (data.waiting ? tools.words('waiting') + ' ' : '') + tools.words('says', { piece: data.pieces[data.token], layer: data.layer + 1, first: first + 1, second: second + 1, a: percent(a), b: percent(b) });
}

const X = (p, i) => p.left + i * p.cell;
const Y = (p, layer, expert) => p.top + layer * p.block + HEAD + expert * p.row;

function names(data, p, tools) {
  let out = '';
  for (let i = 0; i < p.shown; i++) {
    const at = p.from + i, mine = at === data.token, x = X(p, i) + p.cell / 2, y = p.top - 6, word = tools.esc(cut(data.pieces[at]));
    const look = `class="small" ${mine ? strong : ''} ${mine ? `style="fill:${tools.colour('accent')}"` : ''}`;
    out += p.level ? text(x, y, word, `${look} text-anchor="middle"`) : `<text transform="translate(${r(x + 4)} ${r(y)}) rotate(-60)" ${look}>${word}</text>`;
  }
  return out;
}

function block(data, layer, p, tools) {
  const c = tools.colour, mine = layer === data.layer, x0 = p.left, y0 = Y(p, layer, 0), high = p.experts * p.row, wide = p.shown * p.cell;
  let out = text(0, y0 - 8, tools.words('layer', { n: layer + 1 }), `class="small" ${mine ? strong : ''} ${mine ? `style="fill:${c('accent')}"` : ''}`);
  out += rect(x0, y0, wide, high, mine ? c('panel') : 'none', `stroke="${c(mine ? 'accent' : 'hairline')}"`);
  for (let e = 0; e < p.experts; e++) {
    out += text(x0 - 6, y0 + e * p.row + p.row - 4, e + 1, 'class="small figure muted" text-anchor="end"');
    if (e) out += path(`M${r(x0)} ${r(y0 + e * p.row)}H${r(x0 + wide)}`, c('grid'));
  }
  for (let i = 0; i < p.shown; i++) {
    data.experts[layer][p.from + i].forEach((expert, place) => {
      const side = Math.min(p.cell - 3, 40), x = X(p, i) + (p.cell - side) / 2, y = y0 + expert * p.row + 1.5, h = p.row - 3;
      out += rect(x, y, side, h, place ? c(mine ? 'panel' : 'paper') : c('weights'), `rx="${ROUND}" ${place ? `stroke="${c('weights')}" stroke-width="1.5"` : ''}`);
      if (side >= 12) out += text(x + side / 2, y + h - 2, expert + 1, `class="figure" text-anchor="middle" style="font-size:11.5px;font-weight:600;fill:${c(place ? 'weights' : 'paper')}"`);
    });
  }
  return out + bars(data, layer, p, tools);
}

// What each expert gets of the whole validation text; the dashed line is the even share.
function bars(data, layer, p, tools) {
  const c = tools.colour, mine = layer === data.layer, x = p.left + p.room + 18, y0 = Y(p, layer, 0), high = p.experts * p.row, most = Math.max(...data.load.flat()) * 1.02, number = p.two ? 44 : 0;
  const at = (v) => x + (v / most) * (p.bars - number), even = at(1 / p.experts);
  let out = text(x, y0 - 8, p.two ? tools.words('balance', { value: data.balance[layer] }) : data.balance[layer], 'class="small muted"');
  data.load[layer].forEach((v, e) => {
    const y = y0 + e * p.row;
    out += rect(x, y + 3, at(v) - x, p.row - 6, c('weights'), `fill-opacity="${mine ? 0.9 : 0.55}"`);
    if (p.two) out += text(x + p.bars, y + p.row - 4, percent(v), 'class="small figure muted" text-anchor="end"');
  });
  out += path(`M${r(even)} ${r(y0 - 2)}V${r(y0 + high + 2)}`, c('ink'), 'stroke-dasharray="3 3"');
  if (layer === 0) out += text(even + 4, y0 - 24 > 12 ? y0 - 24 : 12, tools.words('even'), 'class="small figure"');
  return out + rect(x - 4, y0, p.bars + 4, high, 'transparent', `data-pick="layer" data-value="${layer + 1}" style="cursor:pointer"`);
}

// The chosen column, and what takes clicks.
function chosen(data, p, tools) {
  const i = data.token - p.from, top = Y(p, 0, 0), high = Y(p, p.layers - 1, p.experts) - top;
  return rect(X(p, i), top - 3, p.cell, high + 6, 'none', `stroke="${tools.colour('accent')}" stroke-width="2" rx="${ROUND}"`)
    + rect(p.left, top - p.names, p.shown * p.cell, high + p.names, 'transparent', `data-pick="token" style="cursor:pointer"`);
}

function legend(data, p, tools) {
  const c = tools.colour, words = tools.words, y = p.legend, x2 = 24 + tools.measure(words('first'), 13) * 1.05 + 18, bar = p.left + p.room + 18;
  let out = rect(0, y - 11, 16, 13, c('weights'), `rx="${ROUND}"`) + text(22, y, words('first'), 'class="small"');
  out += rect(x2, y - 11, 16, 13, 'none', `rx="${ROUND}" stroke="${c('weights')}" stroke-width="1.5"`) + text(x2 + 22, y, words('second'), 'class="small"');
  out += p.two ? text(bar, y, words('load', { tokens: data.tokens }), 'class="small muted"') : text(bar, y, words('load_short'), 'class="small muted"');
  if (p.part) out += text(0, y - 22, words('part', { from: p.from + 1, to: p.from + p.shown, of: data.pieces.length }), 'class="small muted"');
  return out;
}

// ---- one router on one token

function router(data, { x, y, w }, tools) {
  const c = tools.colour, n = data.p.length, top = y + HEAD + 8, row = BELOW / n, left = x + 24, right = x + w - tools.measure(`88.8% → ${tools.words('share', { value: '88.8%' })}`, 13, 'figures') * 1.08 - 10, ranked = data.experts[data.layer][data.token], shares = data.shares[data.layer][data.token];
  const most = Math.max(...data.p, ...(data.old ?? []), 0.2), at = (v) => left + (v / most) * (right - left);
  let out = text(x, y + 13, tools.esc(tools.words('router', { layer: data.layer + 1, piece: data.pieces[data.token] })), strong);
  data.p.forEach((v, e) => {
    const place = ranked.indexOf(e), mine = place >= 0, tone = c(mine ? 'weights' : 'muted'), high = row - 8, yy = top + e * row + 2;
    out += text(left - 8, yy + high / 2 + 5, e + 1, `class="small figure ${mine ? '' : 'muted'}" text-anchor="end" ${mine ? strong : ''}`);
    out += rect(left, yy, at(v) - left, high, place === 0 ? tone : place === 1 ? 'none' : c('reserved'), place === 1 ? `stroke="${tone}" stroke-width="1.5"` : '');
    if (data.old) out += path(`M${r(at(data.old[e]))} ${r(yy - 2)}V${r(yy + high + 2)}`, c('ghost'), 'stroke-width="2.5" stroke-dasharray="3 2"');
    const said = percent(v) + (mine ? ` → ${tools.words('share', { value: percent(shares[place]) })}` : '');
    out += text(at(v) + 8, yy + high / 2 + 5, said, `class="small figure ${mine ? '' : 'muted'}" ${mine ? strong : ''} style="${halo(c)}"`);
  });
  if (data.old) out += path(`M${r(left)} ${r(top + BELOW + 14)}h0 m4 -8v12`, c('ghost'), 'stroke-width="2.5" stroke-dasharray="3 2"') + text(left + 14, top + BELOW + 19, tools.words('old'), 'class="small muted"');
  return out + path(`M${r(left)} ${r(top)}V${r(top + BELOW)}`, c('muted'));
}

// ---- what a step reads

function reads(data, { x, y, w }, tools) {
  const c = tools.colour, words = tools.words, n = data.batches.length, most = data.load[0].length, left = x + 30, right = x + w - 12, top = y + HEAD + 8, high = BELOW - 16;
  const px = (i) => left + (i / (n - 1)) * (right - left), py = (v) => top + high * (1 - v / most), line = (values) => values.map((v, i) => `${i ? 'L' : 'M'}${r(px(i))} ${r(py(v))}`).join('');
  let out = text(x, y + 13, words('reads'), strong);
  for (let v = 0; v <= most; v += 2) out += path(`M${r(left)} ${r(py(v))}H${r(right)}`, c(v ? 'grid' : 'muted')) + text(left - 8, py(v) + 4.5, v, 'class="small figure muted" text-anchor="end"');
  data.batches.forEach((b, i) => { out += text(px(i), top + high + 18, b, `class="small figure ${b === data.batch ? '' : 'muted'}" text-anchor="middle" ${b === data.batch ? strong : ''}`); });
  const now = data.batches.indexOf(data.batch);
  out += path(`M${r(px(now))} ${r(top)}V${r(top + high)}`, c('accent'), 'stroke-width="1.5"');
  out += path(line(data.even), c('bound'), 'stroke-width="2" stroke-dasharray="6 4"') + path(line(data.mixed), c('weights'), 'stroke-width="2"') + path(line(data.run), c('compute'), 'stroke-width="2"');
  data.batches.forEach((_, i) => { out += `<circle cx="${r(px(i))}" cy="${r(py(data.mixed[i]))}" r="4" fill="${c('weights')}"/><rect x="${r(px(i) - 3.5)}" y="${r(py(data.run[i]) - 3.5)}" width="7" height="7" fill="${c('paper')}" stroke="${c('compute')}" stroke-width="2"/>`; });
  const late = now > 1, side = late ? 'end' : 'start';   // on the side where the curves leave room
  out += text(px(now) + (late ? -10 : 10), Math.max(top + 14, py(data.mixed[now]) + (late ? -10 : 24)), (+data.mixed[now].toPrecision(3)).toString(), `class="figure" text-anchor="${side}" style="font-size:18px;font-weight:650;fill:${c('weights')};${halo(c)}"`);
  const keys = [['mixed', 'weights', ''], ['run', 'compute', ''], ['formula', 'bound', 'stroke-dasharray="6 4"']], foot = top + high - 12;
  keys.forEach(([key, tone, dash], i) => {
    const yy = foot - (keys.length - 1 - i) * 19, wide = tools.measure(words(key), 13) * 1.05, xx = right - wide - 34;
    out += rect(xx - 4, yy - 14, wide + 40, 19, c('paper'), 'fill-opacity=".85"') + path(`M${r(xx)} ${r(yy - 4)}h24`, c(tone), `stroke-width="2" ${dash}`) + text(xx + 32, yy, words(key), 'class="small"');
    if (i === 0) out += `<circle cx="${r(xx + 12)}" cy="${r(yy - 4)}" r="4" fill="${c(tone)}"/>`;
    if (i === 1) out += `<rect x="${r(xx + 8.5)}" y="${r(yy - 7.5)}" width="7" height="7" fill="${c('paper')}" stroke="${c(tone)}" stroke-width="2"/>`;
  });
  return out + text((left + right) / 2, top + high + 38, words('batch'), 'class="small muted" text-anchor="middle"');
}
