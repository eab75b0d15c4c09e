// A row a candidate, the likeliest above. Left its logit, a dot that stays where it is; right its probability at T.
// Below, all logits of the vocabulary as a histogram, and all tokens without a row as one hatched bar.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const percent = (p) => (p === 0 ? '0' : p === 1 ? '100%' : p < 0.00005 ? '<0.01%' : p >= 0.9995 && p < 1 ? '>99.9%' : `${p >= 0.0995 ? (100 * p).toFixed(1) : p >= 0.00995 ? (100 * p).toFixed(2) : (100 * p).toPrecision(2)}%`);

function plan(data, width, tools) {
  const narrow = width < 560, row = narrow ? 25 : 27, top = (narrow ? 94 : 90) + (data.waiting ? (narrow ? 54 : 34) : 0);
  const names = Math.max(...data.rows.map((d) => tools.measure(d.name, 14)));
  const left = 24 + Math.min(Math.max(names, 30), narrow ? 66 : 130) + 12, gap = narrow ? 16 : 56;
  const logits = (width - left - gap) * (narrow ? 0.36 : 0.42), right = left + logits + gap;
  return { narrow, row, top, left, logits, right, bars: width - right, rows: data.rows.length, below: top + data.rows.length * row + 14, height: top + data.rows.length * row + 14 + 92 };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), c = tools.colour, { low, high } = data.histogram, W = tools.width;
  const px = (z) => p.left + p.logits * (z - low) / (high - low);
  const room = tools.measure('>99.9%', 13, 'figures') + 10, wide = p.bars - room, py = (share) => wide * share;
  const y0 = p.top, foot = y0 + p.rows * p.row;
  let out = defs(c) + (data.waiting ? notice(p, tools) : '') + heads(data, p, tools);
  for (const z of ticks(low, high, p.narrow ? 2 : 5)) out += rect(px(z) - 0.5, y0, 1, foot - y0 + 62, c('grid'));
  for (const share of [0, 0.5, 1]) out += rect(p.right + py(share) - 0.5, y0, 1, p.below + 44 - y0, share ? c('grid') : c('hairline'));
  data.rows.forEach((d, i) => { out += line(d, i, y0 + i * p.row, p, tools, px, py, data); });
  out += histogram(data, p, tools, px, foot) + rest(data, p, tools, py, p.below + 14);
  for (const z of ticks(low, high, p.narrow ? 2 : 5)) out += text(px(z), foot + 78, `${z}`.replace('-', '−'), 'class="small figure muted" text-anchor="middle"');
  for (const share of [0, 0.5, 1]) out += text(p.right + py(share), foot + 78, `${100 * share}%`, `class="small figure muted" text-anchor="${share ? 'middle' : 'start'}"`);
  svg.innerHTML = out;
}

function defs(c) {
  return `<defs><pattern id="rest" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="${c('target')}" fill-opacity=".12"/><rect width="1.6" height="6" fill="${c('target')}"/></pattern></defs>`;
}

function notice(p, tools) {
  const words = tools.words('waiting'), two = tools.measure(words, 14) > tools.width - 20, middle = two ? words.indexOf(tools.words('waiting_cut')) : -1;
  const lines = middle > 0 ? [words.slice(0, middle), words.slice(middle).trim()] : [words];
  return rect(0, 2, 3, lines.length * 21 + 2, tools.colour('accent')) + lines.map((l, i) => text(12, 18 + 21 * i, tools.esc(l))).join('');
}

function heads(data, p, tools) {
  const c = tools.colour, y = p.top - (p.narrow ? 44 : 36), style = 'font-weight="650"';
  const T = tools.words((data.greedy ? 'greedy' : 'at') + (p.narrow ? '_short' : ''), { t: data.t });
  const formula = data.greedy ? tools.words('argmax') : `softmax(z / ${data.t})`;
  let out = prompt(data, p, tools) + text(p.left, y, tools.words('logits'), style) + text(p.left, y + 19, tools.words(p.narrow ? 'still_short' : 'still'), 'class="small muted"');
  out += text(p.right, y, T, `${style} style="fill:${c('target')}"`) + text(p.right, y + 19, formula, 'class="small figure muted"');
  if (!p.narrow && data.plain_too) {
    const words = tools.words('plain'), x = tools.width - tools.measure(words, 13) - 8;
    out += text(tools.width - 1, y + 19, words, 'class="small muted" text-anchor="end"') + rect(x - 6, y + 7, 2, 16, c('ink'));
  }
  if (p.narrow && data.plain_too) out += rect(p.right, y + 24, 2, 16, c('ink')) + text(p.right + 9, y + 36, tools.words('plain'), 'class="small muted"');
  if (data.old_t && p.narrow) out += rect(0, y + 27, 16, 10, 'none', `stroke="${c('ghost')}" stroke-width="1.5"`) + text(22, y + 36, tools.words('old', { t: data.old_t }), 'class="small muted"');
  else if (data.old_t) {
    const words = tools.words('old', { t: data.old_t }), x = tools.width - tools.measure(words, 13) - 8;
    out += text(tools.width - 1, y, words, 'class="small muted" text-anchor="end"') + rect(x - 19, y - 10, 16, 10, 'none', `stroke="${c('ghost')}" stroke-width="1.5"`);
  }
  return out;
}

// what the model read, and the place of the token that is wanted
function prompt(data, p, tools) {
  const c = tools.colour, y = p.top - (p.narrow ? 76 : 70);
  let words = data.text.replace(/\s+/g, ' ');
  while (words.length > 1 && tools.measure(words, 16) > tools.width - 60) words = '…' + words.slice(2);
  const x = tools.measure(words, 16) + 8;
  return text(0, y, tools.esc(words), 'style="font-size:16px"') + rect(x, y - 14, 26, 18, 'none', `stroke="${c('target')}" stroke-width="1.5" stroke-dasharray="3 3"`) + text(x + 13, y, '?', `text-anchor="middle" style="fill:${c('target')}"`);
}

function line(d, i, y, p, tools, px, py, data) {
  const c = tools.colour, middle = y + p.row / 2, bar = p.row - 11;
  let name = d.name;
  while (name.length > 1 && tools.measure(name, 14) > p.left - 34) name = name.slice(0, -2) + '…';
  let out = text(18, middle + 5, i + 1, 'class="small figure muted" text-anchor="end"') + text(26, middle + 5, tools.esc(name), i ? '' : 'font-weight="650"');
  out += rect(p.left, middle - 0.75, px(d.z) - p.left, 1.5, c('ghost')) + `<circle cx="${r(px(d.z))}" cy="${r(middle)}" r="4.5" fill="${c('ink')}"><title>z = ${d.z.toFixed(3)}</title></circle>`;
  if (d.old !== null && data.old_t) out += rect(p.right, middle - bar / 2 - 2.5, py(d.old), bar + 5, 'none', `stroke="${c('ghost')}" stroke-width="1.5"`);
  out += rect(p.right, middle - bar / 2, py(d.p), bar, c('target'), 'rx="1"');
  if (data.plain_too) out += rect(p.right + py(d.plain) - 1, middle - bar / 2 - 3, 2, bar + 6, c('ink'));
  const end = Math.max(py(d.p), data.plain_too ? py(d.plain) + 2 : 0, d.old !== null && data.old_t ? py(d.old) + 1 : 0);
  return out + text(p.right + end + 7, middle + 5, percent(d.p), `class="small figure" ${d.p ? '' : `style="fill:${c('muted')}"`}`);
}

function histogram(data, p, tools, px, y) {
  const { counts, low, high } = data.histogram, c = tools.colour, most = Math.max(...counts), wide = p.logits / counts.length;
  let out = '';
  counts.forEach((n, i) => { if (n) { const h = Math.max(1.5, 44 * n / most); out += rect(p.left + i * wide + 0.5, y + 62 - h, wide - 1, h, c('ghost')); } });
  return out + rect(p.left, y + 62, p.logits, 1, c('hairline')) + (p.narrow ? '' : text(p.left + p.logits, y + 36, tools.words('all', { all: data.all }), 'class="small muted" text-anchor="end"'));
}

function rest(data, p, tools, py, y) {
  const c = tools.colour, d = data.rest;
  let out = text(p.right, y - 2, p.narrow ? d.short : d.name, 'class="small muted"');
  if (d.old !== null && data.old_t) out += rect(p.right, y + 3.5, py(d.old), 21, 'none', `stroke="${c('ghost')}" stroke-width="1.5"`);
  out += rect(p.right, y + 6, py(d.p), 16, 'url(#rest)');
  if (data.plain_too) out += rect(p.right + py(d.plain) - 1, y + 3, 2, 22, c('ink'));
  const end = Math.max(py(d.p), data.plain_too ? py(d.plain) + 2 : 0, d.old !== null && data.old_t ? py(d.old) + 1 : 0);
  return out + text(p.right + end + 7, y + 19, percent(d.p), 'class="small figure"');
}

function ticks(low, high, about) {
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].find((k) => k * power >= raw) * power, found = [];
  for (let z = Math.ceil(low / step) * step; z <= high; z += step) found.push(Math.round(z / step) * step);
  return found;
}
