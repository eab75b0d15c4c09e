// Above, the text so far; in the middle, the round: a row a guess, with the line on which u decides; below, what every
// forward has written, and its mean on the way to E.
export const rate = 1.8;

const LINE = 30, PAD = 16, HEAD = 30, HISTORY = 112;
const shown = (piece) => (piece.includes('⟨') ? piece : piece.replace(/\n/g, '⏎').replace(/ /g, '␣')) || '∅';
const words_of = (pieces) => pieces.join('').replace(/\n/g, '⏎').match(/[\u2e80-\uffff]|[^\s\u2e80-\uffff]+\s*|\s+/g) ?? [];
const r = (x) => Math.round(x * 100) / 100;
const three = (x) => (x >= 99.5 ? '> 99' : x >= 10 ? x.toFixed(1) : x >= 0.0995 ? x.toFixed(2) : x >= 0.001 ? x.toFixed(3) : x === 0 ? '0' : '< 0.001');
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const strong = 'font-weight="650"';

function plan(data, width, tools) {
  const wide = width >= 720, row = wide ? 40 : 74;
  const notice = data.waiting ? (tools.measure(tools.words('waiting'), 14) > width - 16 ? 54 : 32) : 0;
  const lines = flow(everything(data), width, tools).lines, written = 26 + lines * LINE + 10;
  const rounds = written + HEAD + (wide ? 22 : 4) + (data.k + 1) * row + 10;
  return { wide, row, notice, lines, written: notice + written, below: notice + rounds, height: notice + rounds + (wide ? 24 : 46) + HISTORY + 26 };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), at = moment(data, t);
  svg.innerHTML = defs(tools.colour) + (p.notice ? notice(p, tools) : '') + sofar(data, at, p, tools) + round(data, at, p, tools) + history(data, at, p, tools);
}

export function says(data, t, tools) {
  const at = moment(data, t), { told } = at, words = tools.words;
  const checks = told.guesses.slice(0, at.seen).map(([piece, p, q, u, ok]) => words('says_check', { piece: shown(piece), p: three(p), q: three(q), u: three(u), verdict: words(ok ? 'accept' : 'reject') })).join('');
  const last = at.ended ? words('says_last', { how: words(kind(told)), piece: shown(told.last) }) : '';
  return (data.waiting ? words('waiting') + ' ' : '') + words('says', { n: at.i + 1, guesses: told.guesses.map(([piece]) => shown(piece)).join(' '), checks, last, mean: three(mean(data, at)), e: three(data.expected) });
}

// ---- where step t stands

function moment(data, t) {
  const [i, event] = data.events[t] ?? [0, 0], told = data.rounds[i], checked = told.guesses.filter((g) => g[4] !== null).length;
  return { i, told, seen: Math.min(event, checked), ended: event > checked, checked };
}
const kind = (told) => (told.guesses.length === 0 ? 'own' : told.bonus ? 'bonus' : 'residual');
const accepted = (told) => told.guesses.filter((g) => g[4]).length;
function mean(data, at) {   // of the rounds that are over; of the first while it runs
  const n = at.ended ? at.i + 1 : Math.max(1, at.i);
  return data.rounds.slice(0, n).reduce((sum, told) => sum + accepted(told) + 1, 0) / n;
}

function everything(data) {
  return [...words_of(data.prompt).map((piece) => ({ piece, role: 'prompt' })), { piece: data.first, role: 'own' }, ...data.rounds.flatMap((told) => pieces(told))];
}
function pieces(told) {
  return [...told.guesses.filter((g) => g[4]).map(([piece]) => ({ piece, role: 'accepted' })), { piece: told.last, role: kind(told) }].slice(0, told.written);
}

function flow(all, width, tools) {
  let x = 0, line = 0;
  const boxes = all.map(({ piece, role }) => {
    const said = role === 'prompt' ? piece : shown(piece), w = tools.measure(said, 16) + (role === 'prompt' ? 0 : 9);
    if (x + w > width && x > 0) { x = 0; line++; }
    const box = { said, role, x, line, w };
    x += w + (role === 'prompt' ? 0 : 3);
    return box;
  });
  return { boxes, lines: line + 1 };
}

const TONE = { accepted: 'accepted', residual: 'residual', bonus: 'target', own: 'target' };

function defs(c) {
  return `<defs><pattern id="rp-no" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${c('rejected')}" fill-opacity=".1"/><path d="M0 6L6 0" stroke="${c('rejected')}" stroke-width="1.1"/></pattern>
    <pattern id="rp-res" width="7" height="7" patternUnits="userSpaceOnUse"><rect width="7" height="7" fill="${c('residual')}" fill-opacity=".14"/><path d="M0 7L7 0M0 0L7 7" stroke="${c('residual')}" stroke-width=".8" stroke-opacity=".7"/></pattern></defs>`;
}

function notice(p, tools) {
  const said = tools.words('waiting'), cut = p.notice > 40 ? split(said, tools) : [said];
  return rect(0, 2, 3, p.notice - 12, tools.colour('accent')) + cut.map((part, i) => text(12, 18 + 21 * i, tools.esc(part))).join('');
}
function split(said, tools) {
  const ends = [...said.matchAll(/[。；，;,.]/g)].map((m) => m.index + 1).filter((e) => e < said.length - 3), middle = said.length / 2;
  const end = ends.sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0] ?? Math.round(middle);
  return [said.slice(0, end), said.slice(end).trim()];
}

// ---- the text so far

function sofar(data, at, p, tools) {
  const c = tools.colour, top = p.notice + 26;
  const before = [...words_of(data.prompt).map((piece) => ({ piece, role: 'prompt' })), { piece: data.first, role: 'own' }, ...data.rounds.slice(0, at.i).flatMap(pieces)];
  const now = pieces(at.told).slice(0, at.ended ? undefined : Math.min(at.seen, accepted(at.told)));
  const { boxes } = flow([...before, ...now], tools.width, tools);
  let out = text(0, p.notice + 14, tools.words('text'), `class="small muted"`);
  boxes.forEach((box, n) => {
    const y = top + box.line * LINE, fresh = n >= before.length;
    if (box.role !== 'prompt') {
      const tone = c(TONE[box.role]), fill = box.role === 'residual' ? 'url(#rp-res)' : tone;
      out += rect(box.x, y, box.w, 25, fill, `rx="2" ${box.role === 'residual' ? '' : `fill-opacity="${fresh ? 0.3 : 0.13}"`}`) + rect(box.x, y + 24, box.w, fresh ? 3 : 2, tone);
    }
    out += text(box.x + (box.role === 'prompt' ? 0 : 4.5), y + 18, tools.esc(box.said), `style="font-size:16px${fresh ? ';font-weight:650' : ''}"`);
  });
  const end = boxes.at(-1);
  return out + rect(end.x + end.w + 3, top + end.line * LINE + 2, 2, 21, c('ink'));
}

// ---- the round

function round(data, at, p, tools) {
  const c = tools.colour, { told } = at, W = tools.width, y0 = p.written, words = tools.words;
  const name = words(told.guesses.length ? 'round' : 'round_none', { n: at.i + 1, k: told.guesses.length, draft: data.drafter });
  let out = rect(0, y0 - 4, W, 1, c('hairline')) + text(0, y0 + 20, tools.esc(name), strong);
  const col = columns(p, W), y1 = y0 + HEAD + (p.wide ? 22 : 4);
  if (p.wide) out += text(col.token, y1 - 8, words('guess'), 'class="small muted"') + text(col.bars, y1 - 8, words('pq'), 'class="small muted"') + text(col.line, y1 - 8, words('line'), 'class="small muted"');
  told.guesses.forEach((guess, n) => { out += row(guess, n, at, y1 + n * p.row, col, p, tools); });
  if (at.ended) out += ending(told, y1 + told.guesses.length * p.row, col, p, tools);
  return out;
}

function columns(p, W) {
  if (!p.wide) return { token: 0, bars: 0, line: 0, lineWidth: W, verdict: W };
  return { token: 0, bars: 190, barWidth: W * 0.2, line: 190 + W * 0.2 + 120, lineWidth: W - (190 + W * 0.2 + 120) - 130, verdict: W };
}

function row([piece, prob, q, u, ok], n, at, y, col, p, tools) {
  const c = tools.colour, words = tools.words, checked = n < at.seen, unused = at.ended && n >= at.checked, dead = unused || (at.seen > 0 && at.told.guesses.slice(0, at.seen).some((g) => !g[4]) && n >= at.seen);
  const tone = checked ? c(ok ? 'accepted' : 'rejected') : c('draft'), size = p.wide ? 30 : 28;
  const said = shown(piece), w = Math.min(tools.measure(said, 16) + 14, p.wide ? 170 : 150);
  let out = rect(col.token + 0.5, y + 0.5, w, size, checked ? (ok ? tone : 'url(#rp-no)') : 'none', `${checked && ok ? 'fill-opacity=".2"' : ''} stroke="${dead ? c('reserved') : tone}" stroke-width="1.3" rx="2" ${dead ? 'stroke-dasharray="3 3"' : ''}`);
  out += text(col.token + 7.5, y + 20, tools.esc(said), `style="font-size:16px;${dead ? `fill:${c('muted')}` : ''}" ${checked && !ok ? 'text-decoration="line-through"' : ''}`);
  const verdict = dead ? 'unused' : checked ? (ok ? 'accept' : 'reject') : 'wait', vy = y + 20;
  out += text(col.verdict, vy, words(verdict), `text-anchor="end" style="fill:${checked ? tone : c('muted')};font-weight:${checked ? 650 : 400}"`);
  if (prob === null || dead) return out;
  if (p.wide) out += bars(prob, q, checked, col.bars, y, col.barWidth, tools);
  if (!checked) return p.wide ? out : out + text(0, y + 46, `q ${three(q)}`, `class="small figure" style="fill:${c('draft')}"`);
  return out + decision(prob, q, u, ok, col.line, p.wide ? y + 8 : y + 35, col.lineWidth, p, tools);
}

// q outlined, p filled, on one scale from 0 to 1
function bars(prob, q, checked, x, y, width, tools) {
  const c = tools.colour;
  let out = rect(x + 0.5, y + 2.5, Math.max(1, q * width), 10, 'none', `stroke="${c('draft')}" stroke-width="1.4"`) + text(x + width + 12, y + 12, `q ${three(q)}`, `class="small figure" style="fill:${c('draft')}"`);
  if (checked) out += rect(x, y + 17, Math.max(1, prob * width), 10, c('target')) + text(x + width + 12, y + 27, `p ${three(prob)}`, `class="small figure" style="fill:${c('target')}"`);
  return out;
}

// The line from 0 to 1: green up to min(1, p/q), hatched beyond; u is where the number fell.
function decision(prob, q, u, ok, x, y, width, p, tools) {
  const c = tools.colour, ratio = prob / q, kept = Math.min(1, ratio) * width, at = x + u * width, h = 12;
  let out = rect(x, y, kept, h, c('accepted'), 'fill-opacity=".45"') + rect(x + kept, y, width - kept, h, 'url(#rp-no)') + rect(x + 0.5, y + 0.5, width - 1, h - 1, 'none', `stroke="${c('muted')}" stroke-width=".7"`);
  const flash = tools.moved ? 'class="rp-in"' : '';
  out += `<g ${flash}>${rect(at - 1, y - 5, 2, h + 10, c('ink'))}<path d="M${r(at - 5)} ${r(y - 7)}h10l-5 7z" fill="${c('ink')}"/></g>`;
  const label = tools.words('u', { u: three(u) }), limit = tools.words('ratio', { ratio: three(ratio) }), wide = tools.measure(label, 13, 'figures'), far = tools.measure(limit, 13, 'figures');
  let lx = Math.min(Math.max(x, at - wide / 2), x + width - wide), rx = Math.min(Math.max(x, x + kept - far / 2), x + width - far);
  if (Math.abs(lx - rx) < (lx < rx ? wide : far) + 10) { if (u * width < kept) { lx = Math.max(x, Math.min(lx, rx - wide - 10)); rx = Math.max(rx, lx + wide + 10); } else { rx = Math.max(x, Math.min(rx, lx - far - 10)); lx = Math.max(lx, rx + far + 10); } }
  if (lx + wide > x + width) { lx = x + width - wide; rx = Math.min(rx, lx - far - 10); }
  if (rx + far > x + width) { rx = x + width - far; lx = Math.min(lx, rx - wide - 10); }
  const ly = y + h + 15;
  return out + text(lx, ly, label, 'class="small figure" font-weight="600"') + text(rx, ly, limit, `class="small figure" style="fill:${c(ok ? 'accepted' : 'rejected')}"`);
}

function ending(told, y, col, p, tools) {
  const c = tools.colour, what = kind(told), tone = c(TONE[what]), said = shown(told.last), w = Math.min(tools.measure(said, 16) + 14, 170);
  const fill = what === 'residual' ? 'url(#rp-res)' : tone;
  let out = rect(col.token + 0.5, y + 0.5, w, p.wide ? 30 : 28, fill, `${what === 'residual' ? '' : 'fill-opacity=".22"'} stroke="${tone}" stroke-width="1.8" rx="2"`);
  out += text(col.token + 7.5, y + 20, tools.esc(said), `style="font-size:16px;font-weight:650"`);
  out += text(col.token + w + 14, y + 20, tools.words(what), `style="fill:${tone};font-weight:600"`);
  return out;
}

// ---- every forward so far

function history(data, at, p, tools) {
  const c = tools.colour, W = tools.width, y0 = p.below, n = data.rounds.length, left = 26, right = p.wide ? 150 : 8, top = y0 + (p.wide ? 46 : 66), high = HISTORY - 34;
  const step = Math.min(56, (W - left - right) / n), unit = high / (data.k + 1), Y = (v) => top + high - v * unit;
  let out = rect(0, y0 + 4, W, 1, c('hairline')) + text(0, y0 + 28, tools.words('history'), strong);
  for (const v of new Set([0, 1, Math.ceil((data.k + 1) / 2), data.k + 1])) out += rect(left, Y(v), n * step, 1, c('grid')) + text(left - 8, Y(v) + 4.5, v, 'class="small figure muted" text-anchor="end"');
  data.rounds.forEach((told, i) => {
    if (i > at.i) return;
    const a = i < at.i || at.ended ? accepted(told) : Math.min(at.seen, accepted(told)), x = left + i * step + 1, w = Math.max(2, step - 3);
    for (let v = 0; v < a; v++) out += rect(x, Y(v + 1) + 1, w, unit - 2, c('accepted'), `fill-opacity="${i === at.i ? 0.95 : 0.6}"`);
    if (i < at.i || at.ended) out += rect(x + 0.5, Y(a + 1) + 1.5, w - 1, unit - 3, kind(told) === 'residual' ? 'url(#rp-res)' : c('target'), `fill-opacity="${i === at.i ? 1 : 0.7}" stroke="${c(TONE[kind(told)])}"`);
  });
  const ex = Y(data.expected), now = mean(data, at), my = Y(now), end = left + n * step;
  out += `<path d="M${left} ${r(ex)}H${r(end)}" stroke="${c('bound')}" stroke-width="1.5" stroke-dasharray="6 4"/>`;
  let sum = 0, d = '';
  for (let i = 0; i <= at.i - (at.ended ? 0 : 1); i++) { sum += accepted(data.rounds[i]) + 1; d += `${i ? 'L' : 'M'}${r(left + (i + 0.5) * step)} ${r(Y(sum / (i + 1)))}`; }
  out += d && `<path d="${d}" fill="none" stroke="${c('ink')}" stroke-width="2" stroke-linejoin="round"/>`;
  const head = left + (Math.max(0, at.i - (at.ended ? 0 : 1)) + 0.5) * step;
  out += `<circle cx="${r(head)}" cy="${r(my)}" r="4" fill="${c('ink')}"/>`;
  const m = tools.words('mean', { mean: three(now) }), e = tools.words('expected', { e: three(data.expected) });
  if (p.wide) {
    const gap = Math.abs(my - ex) < 17 ? 8.5 * (my <= ex ? -1 : 1) : 0, mid = gap ? (my + ex) / 2 : 0;
    out += text(end + 10, (gap ? mid + gap : my) + 5, m, 'class="small" font-weight="650"') + text(end + 10, (gap ? mid - gap : ex) + 5, e, 'class="small muted"');
  } else out += text(0, y0 + 49, `${m} · ${e}`, 'class="small"');
  for (let i = 0; i < n; i += n > 20 ? 5 : n > 10 ? 2 : 1) out += text(left + (i + 0.5) * step, top + high + 17, i + 1, 'class="small figure muted" text-anchor="middle"');
  return out + text(end + (p.wide ? 10 : 0), top + high + (p.wide ? 17 : 32), tools.words('rounds'), `class="small muted" ${p.wide ? '' : 'text-anchor="end"'}`);
}
