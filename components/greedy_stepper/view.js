// The text so far, a row for each of the latest forwards, and the mean after every forward between its two bounds.
export const rate = 1.2;

const LINE = 30, ROW = 36, MOST = 8, HEAD = 54, LEGEND = 34, CHART = 150;
const shown = (piece) => (piece.includes('⟨') ? piece : piece.replace(/\n/g, '⏎').replace(/ /g, '␣')) || '∅';
const words_of = (pieces) => pieces.join('').replace(/\n/g, '⏎').match(/[\u2e80-\uffff]|[^\s\u2e80-\uffff]+\s*|\s+/g) ?? [];
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const strong = 'font-weight="650"';

function plan(data, width, tools) {
  const wide = width >= 720, rows = Math.min(MOST, data.turns.length);
  const notice = data.waiting ? (tools.measure(tools.words('waiting'), 14) > width - 16 ? 54 : 32) : 0;
  const written = 26 + flow(everything(data, data.turns.length - 1), width, tools).lines * LINE + 12;
  const row = wide ? ROW : ROW + 2, grid = HEAD + rows * row + 26 + LEGEND * (wide ? 1 : 2);
  return { wide, rows, row, notice, grid: notice + written, chart: notice + written + grid, height: notice + written + grid + 34 + CHART + (wide ? 34 : 62) };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools);
  svg.innerHTML = defs(tools.colour) + (p.notice ? notice(p, tools) : '') + sofar(data, t, p, tools) + forwards(data, t, p, tools) + ratio(data, t, p, tools);
}

export function says(data, t, tools) {
  const [guesses, a, last, w] = data.turns[t], sum = total(data, t);
  return (data.waiting ? tools.words('waiting') + ' ' : '') + tools.words(w > a ? 'says' : 'says_end', { n: t + 1, all: data.turns.length, k: guesses.length, a, last: shown(last), w, sum, ratio: data.ratios[t].toFixed(2) });
}

const total = (data, t) => data.turns.slice(0, t + 1).reduce((sum, turn) => sum + turn[3], 0);

function everything(data, t) {
  return [...words_of(data.prompt).map((piece) => ({ piece, role: 'prompt' })), ...data.turns.slice(0, t + 1).flatMap(([guesses, a, last, w], i) =>
    [...guesses.slice(0, a).map((piece) => ({ piece, role: 'accepted', i })), { piece: last, role: 'target', i }].slice(0, w))];
}

function flow(all, width, tools) {
  let x = 0, line = 0;
  const boxes = all.map(({ piece, role, i }) => {
    const said = role === 'prompt' ? piece : shown(piece), w = tools.measure(said, 16) + (role === 'prompt' ? 0 : 10);
    if (x + w > width - 6 && x > 0) { x = 0; line++; }
    const box = { said, role, x, line, w, i };
    x += w + (role === 'prompt' ? 0 : 3);
    return box;
  });
  return { boxes, lines: line + 1 };
}

function defs(c) {
  return `<defs><pattern id="gs-no" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${c('rejected')}" fill-opacity=".1"/><path d="M0 6L6 0" stroke="${c('rejected')}" stroke-width="1.1"/></pattern></defs>`;
}

function notice(p, tools) {
  const said = tools.words('waiting'), cut = p.notice > 40 ? split(said) : [said];
  return rect(0, 2, 3, p.notice - 12, tools.colour('accent')) + cut.map((part, i) => text(12, 18 + 21 * i, tools.esc(part))).join('');
}
function split(said) {
  const ends = [...said.matchAll(/[。；，;,.]/g)].map((m) => m.index + 1).filter((e) => e < said.length - 3), middle = said.length / 2;
  const end = ends.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0] ?? Math.round(middle);
  return [said.slice(0, end), said.slice(end).trim()];
}

function sofar(data, t, p, tools) {
  const c = tools.colour, top = p.notice + 26, { boxes } = flow(everything(data, t), tools.width, tools);
  let out = text(0, p.notice + 14, tools.words(data.example ? 'example' : 'text'), 'class="small muted"');
  for (const box of boxes) {
    const y = top + box.line * LINE, fresh = box.i === t;
    if (box.role !== 'prompt') out += rect(box.x, y, box.w, 25, c(box.role), `rx="2" fill-opacity="${fresh ? 0.3 : 0.13}"`) + rect(box.x, y + 24, box.w, fresh ? 3 : 2, c(box.role));
    out += text(box.x + (box.role === 'prompt' ? 0 : 5), y + 18, tools.esc(box.said), `style="font-size:16px${fresh ? ';font-weight:650' : ''}"`);
  }
  const end = boxes.at(-1);
  return out + rect(end.x + end.w + 3, top + end.line * LINE + 2, 2, 21, c('ink'));
}

function forwards(data, t, p, tools) {
  const c = tools.colour, W = tools.width, words = tools.words, y0 = p.grid, first = Math.max(0, t - p.rows + 1);
  const label = p.wide ? 84 : 26, tail = 44, own = p.wide ? 120 : 76, cell = Math.min(150, (W - label - own - tail - 10) / data.k), ox = label + data.k * cell + 10;
  let out = rect(0, y0 - 4, W, 1, c('hairline')) + text(label, y0 + 28, words('guesses'), 'class="small muted"') + text(ox, y0 + 28, words('own'), 'class="small muted"') + text(Math.min(W, ox + own + tail), y0 + 28, words('count'), 'class="small muted" text-anchor="end"');
  if (first) out += text(0, y0 + 46, words('earlier', { n: first }), 'class="small muted"');
  for (let i = first; i <= t; i++) {
    const [guesses, a, last, w] = data.turns[i], y = y0 + HEAD + (i - first) * p.row, now = i === t, h = p.row - 8;
    out += text(0, y + 19, p.wide ? words('forward', { n: i + 1 }) : i + 1, `class="small ${now ? '' : 'muted'}" ${now ? strong : ''}`);
    if (!guesses.length) out += text(label, y + 19, words('none'), 'class="small muted"');
    guesses.forEach((piece, n) => {
      const role = n < a ? 'accepted' : n === a ? 'rejected' : 'unused', tone = role === 'unused' ? c('reserved') : c(role), x = label + n * cell;
      out += rect(x + 0.5, y + 0.5, cell - 5, h, role === 'accepted' ? tone : role === 'rejected' ? 'url(#gs-no)' : 'none', `${role === 'accepted' ? `fill-opacity="${now ? 0.3 : 0.15}"` : ''} stroke="${tone}" stroke-width="${now ? 1.6 : 1}" rx="2" ${role === 'unused' ? 'stroke-dasharray="3 3"' : ''}`);
      out += text(x + (cell - 5) / 2, y + 19, tools.esc(fit(shown(piece), cell - 10, tools)), `text-anchor="middle" style="font-size:15px;${role === 'unused' ? `fill:${c('muted')}` : ''}" ${role === 'rejected' && !data.example ? 'text-decoration="line-through"' : ''}`);
    });
    const written = w > a, edge = c(written ? 'target' : 'reserved');   // the text may end among the guesses
    out += rect(ox + 0.5, y + 0.5, own - 12, h, written ? edge : 'none', `${written ? `fill-opacity="${now ? 0.3 : 0.15}"` : 'stroke-dasharray="3 3"'} stroke="${edge}" stroke-width="${now ? 1.8 : 1}" rx="2"`);
    out += text(ox + (own - 12) / 2, y + 19, tools.esc(fit(shown(last), own - 18, tools)), `text-anchor="middle" style="font-size:15px;${written ? '' : `fill:${c('muted')}`}" ${now && written ? strong : ''}`);
    out += text(Math.min(W, ox + own + tail), y + 20, `+${w}`, `class="figure" text-anchor="end" style="font-size:16px" ${now ? strong : ''}`);
  }
  return out + legend(p, tools, y0 + HEAD + p.rows * p.row + 22);
}
function fit(said, room, tools) {
  if (tools.measure(said, 15) <= room) return said;
  let cut = said;
  while (cut.length > 1 && tools.measure(cut + '…', 15) > room) cut = cut.slice(0, -1);
  return cut + '…';
}

function legend(p, tools, y) {
  const c = tools.colour, marks = [['accepted', c('accepted'), 'fill-opacity=".3"'], ['rejected', 'url(#gs-no)', ''], ['unused', 'none', 'stroke-dasharray="3 3"'], ['target', c('target'), 'fill-opacity=".3"']];
  let x = 0, out = '';
  for (const [name, fill, more] of marks) {
    const w = 18 + tools.measure(tools.words(name), 13) * 1.08 + 20;
    if (x + w > tools.width + 18) { x = 0; y += 24; }
    out += rect(x + 0.5, y - 10.5, 12, 12, fill, `${more} stroke="${c(name === 'unused' ? 'reserved' : name)}" rx="1"`) + text(x + 19, y, tools.words(name), 'class="small muted"');
    x += w;
  }
  return out;
}

function ratio(data, t, p, tools) {
  const c = tools.colour, W = tools.width, y0 = p.chart, n = data.turns.length, now = data.ratios[t];
  const sums = `${total(data, t)} / ${t + 1} =`, big = now.toFixed(2), left = 26, top = y0 + 60, high = CHART - 28, right = p.wide ? 130 : 10;
  const X = (i) => left + (n === 1 ? 0.5 : i / (n - 1)) * (W - left - right - 12) + 6, Y = (v) => top + high * (1 - (v - 0.5) / (data.k + 1 - 0.5));
  let out = rect(0, y0, W, 1, c('hairline')) + text(0, y0 + 26, tools.words('ratio'), strong);
  const wb = tools.measure(big, 28, 'figures');
  out += text(W, y0 + 34, big, `class="figure" text-anchor="end" style="font-size:28px;font-weight:600;fill:${c('target')}"`) + text(W - wb - 12, y0 + 33, sums, 'class="small figure muted" text-anchor="end"');
  for (let v = 1; v <= data.k + 1; v++) if (v === 1 || v === data.k + 1 || data.k <= 4) out += rect(left, Y(v), W - left - right, 1, c(v === 1 || v === data.k + 1 ? 'bound' : 'grid'), v === 1 || v === data.k + 1 ? 'fill-opacity=".7"' : '') + text(left - 8, Y(v) + 4.5, v, 'class="small figure muted" text-anchor="end"');
  const wx = p.wide ? W - right + 10 : W - right, anchor = p.wide ? '' : 'text-anchor="end"';
  out += text(wx, Y(1) + (p.wide ? 5 : 17), tools.words('worst'), `class="small muted" ${anchor}`) + text(wx, Y(data.k + 1) + (p.wide ? 5 : -6), tools.words('best', { most: data.k + 1 }), `class="small muted" ${anchor}`);
  out += `<path d="${data.ratios.slice(0, t + 1).map((v, i) => `${i ? 'L' : 'M'}${r(X(i))} ${r(Y(v))}`).join('')}" fill="none" stroke="${c('target')}" stroke-width="2" stroke-linejoin="round"/>`;
  data.ratios.slice(0, t + 1).forEach((v, i) => {
    out += `<circle cx="${r(X(i))}" cy="${r(Y(v))}" r="${i === t ? 5 : 3}" fill="${c('target')}"/>`;
    if (n <= 6 || i === t) out += text(X(i), Y(v) - 11, v.toFixed(2), `class="small figure" text-anchor="${i === 0 ? 'start' : i === n - 1 ? 'end' : 'middle'}" style="fill:${c('target')};paint-order:stroke;stroke:${c('paper')};stroke-width:4px" ${i === t ? strong : ''}`);
  });
  for (let i = 0; i < n; i += n > 20 ? 5 : n > 10 ? 2 : 1) out += text(X(i), top + high + (p.wide ? 22 : 36), i + 1, 'class="small figure muted" text-anchor="middle"');
  return out + text(p.wide ? wx : W, top + high + (p.wide ? 22 : 53), tools.words('axis'), `class="small muted" ${anchor}`);
}
