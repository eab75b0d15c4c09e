// Above, the block tables, a row a text; below them every block of the memory; last, what sharing saves. A block keeps its
// number in both places, and lights up in both.
export const rate = 1.6;

const CELL = 24, LABEL = 17, LINE = LABEL + CELL + 6, GAP = 8, NAME = 34, SLOT = 10, SIZE = 14, EVENT = 22, HALF = 30, NAMES = 'ABCDEFGH';
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const shown = (piece) => piece.replace(/\n/g, '⏎').replace(/^ +$/, '␣').replace(/ /g, '\u00a0');
const sum = (values) => values.reduce((a, b) => a + b, 0);
const plans = new WeakMap();

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), now = moment(data, t);
  svg.innerHTML = defs(tools.colour) + events(data, t, p, tools) + tables(data, now, p, tools) + memory(data, now, p, tools) + bars(data, now, p, tools);
  const over = (block) => { if (block !== tools.local.block) { tools.local.block = block; tools.redraw(); } };
  svg.onpointerover = (e) => over(e.target.closest('[data-b]')?.dataset.b ?? null);
  svg.onpointerleave = () => over(null);
}

export function says(data, t, tools) {
  const { frame } = moment(data, t);
  return (data.waiting ? `${tools.words('waiting')} ` : '') + tools.words('says', { event: event(data, t, tools), used: frame.used, apart: frame.apart });
}

function moment(data, t) {
  const frame = data.frames[t], before = data.frames[t - 1] ?? { refs: [], rows: [], filled: [], kind: '', step: -1 };
  return { frame, before, refs: (b) => frame.refs[b] ?? 0, were: (b) => before.refs[b] ?? 0 };
}

// ---- what happened, in words

function event(data, t, tools) {
  const { frame, before, refs, were } = moment(data, t), words = tools.words, list = (rows) => rows.map((i) => NAMES[i]).join(words('list'));
  const where = (fits) => frame.rows.map((row, i) => (row && fits(row, i) ? i : -1)).filter((i) => i >= 0);
  if (frame.kind === 'read') return words('read', { n: data.prompt.length, blocks: frame.used });
  if (frame.kind === 'fork') {
    if (frame.step === 1) return words('fork_first', { n: frame.rows.length });
    return words('fork', { pairs: where((row) => row[3] !== null).map((i) => words('pair', { child: NAMES[i], parent: NAMES[frame.rows[i][3]] })).join(words('list')) });
  }
  if (frame.kind === 'drop') return words('drop', { rows: list(where((row) => row[4])), freed: before.refs.filter((count, b) => count && !refs(b)).length });
  if (frame.kind === 'copy') return words('copy', { who: NAMES[frame.who], source: frame.copy[0], target: frame.copy[1], moved: frame.moved, piece: shown(data.pieces[frame.rows[frame.who][0].at(-1)]).trim() });
  const wrote = where((row, i) => row[1] > (before.rows[i]?.[1] ?? 0)), opened = frame.refs.filter((count, b) => count && !were(b)).length;
  return (before.kind === 'copy' ? words('write_rest', { rows: list(wrote) }) : words('write')) + (opened ? (tools.lang === 'en' ? ' ' : '') + words('opened', { n: opened }) : '');
}

function events(data, t, p, tools) {
  const { step } = data.frames[t], said = tools.wrap(event(data, t, tools), 16, tools.width);
  let out = p.notice.map((line, i) => text(12, 16 + 21 * i, tools.esc(line))).join('');
  if (p.notice.length) out += rect(0, 0, 3, p.notice.length * 21 + 2, tools.colour('accent'));
  out += text(0, p.top + 14, step ? tools.words('step', { n: step }) : tools.words('prompt_step'), 'class="small muted"');
  return out + said.map((line, i) => text(0, p.top + 38 + EVENT * i, tools.esc(line), 'style="font-size:16px" font-weight="600"')).join('');
}

// ---- the plan: nothing moves while it plays, so room is kept for the longest of all steps

function plan(data, width, tools) {
  const stamp = `${width}/${tools.lang}/${tools.measure('国m', 15)}`;
  if (plans.get(data)?.stamp !== stamp) plans.set(data, { stamp, ...planned(data, width, tools) });
  return plans.get(data);
}

function planned(data, width, tools) {
  const p = { width, wide: width >= 720, notice: data.waiting ? tools.wrap(tools.words('waiting'), 16, width - 16) : [] };
  p.top = p.notice.length ? p.notice.length * 21 + 12 : 0;
  const lines = Math.max(...data.frames.map((_, t) => tools.wrap(event(data, t, tools), 16, width).length));
  p.tables = p.top + 38 + EVENT * lines + 12;
  p.lines = Math.max(...data.frames.flatMap((frame, t) => frame.rows.map((row, i) => (row ? laid(data, moment(data, t), i, p, tools).lines : 1))));
  p.memory = p.tables + 26 + data.frames.at(-1).rows.length * (p.lines * LINE + GAP) + 10;
  const compact = data.total > (p.wide ? 125 : 48), size = compact ? 13 : data.total <= 24 && p.wide ? 44 : 36, space = compact ? 3 : 5;
  const columns = Math.max(1, Math.min(data.total, Math.floor((width + space) / (size + space))));
  p.legend = legendLines(p, tools);
  p.grid = { compact, size, space, columns, pitch: compact ? size + space : HALF + 26, y: p.memory + 26 + p.legend.length * 22 + (compact ? 4 : 22) };
  p.bars = p.grid.y + Math.ceil(data.total / columns) * p.grid.pitch + 12;
  p.height = p.bars + 62;
  return p;
}

const cellWidth = (data, token, tools) => Math.max(15, tools.measure(shown(data.pieces[token]), SIZE) + 7);
function blockWidth(data, ids, at, written, tools) {
  let w = 0;
  for (let i = at * data.block; i < (at + 1) * data.block; i++) w += i < written ? cellWidth(data, ids[i], tools) : SLOT;
  return w;
}

// A row's blocks on its lines. What does not fit is left out from the second block on, as the newest ones are what happens.
function laid(data, now, i, p, tools) {
  const row = now.frame.rows[i], [fresh, , , , dropped] = row, ids = [...data.prompt, ...fresh];
  const [written, blocks] = dropped ? [now.before.rows[i][1], now.before.rows[i][2]] : [row[1], row[2]];   // dropped: what it has just given back
  const widths = blocks.map((_, at) => blockWidth(data, ids, at, written, tools)), from = blocks.length > 2 ? 1 : 0;
  const most = p.wide ? 1 : 2, chip = tools.measure(tools.words('elided', { n: 88 }), 13) + 18, all = sum(widths) + 4 * widths.length;
  let hide = 0, left = all;   // no fewer than the widths tell; then as many as the lines need
  while (left > most * (p.width - NAME) && from + hide < blocks.length - 1) { left = all - sum(widths.slice(from, from + ++hide)) - 4 * hide + chip; }
  for (; ; hide++) {
    const found = flow(data, ids, blocks, written, widths, from, hide, p, tools);
    if (found.lines <= most || from + hide >= blocks.length - 1) return { ...found, written };
  }
}

function flow(data, ids, blocks, written, widths, from, hide, p, tools) {
  const room = p.width - NAME, parts = [], end = from + hide;
  let x = 0, line = 0;
  blocks.forEach((block, at) => {
    if (at > from && at < end) return;
    const hidden = hide > 0 && at === from, w = hidden ? tools.measure(tools.words('elided', { n: hide }), 13) + 14 : widths[at];
    if (x > 0 && x + w > room) { x = 0; line++; }
    const open = () => { parts.push({ block, at, x, line, w: 0, cells: [], hidden: hidden ? blocks.slice(from, end) : null, first: parts.at(-1)?.at !== at }); return parts.at(-1); };
    let part = open();
    if (hidden) part.w = w;
    for (let pos = at * data.block; !hidden && pos < (at + 1) * data.block; pos++) {
      const full = pos < written, cell = full ? cellWidth(data, ids[pos], tools) : SLOT;
      if (x + part.w + cell > room && part.cells.length) { x = 0; line++; part = open(); }   // wider than the picture: broken
      part.cells.push({ x: part.x + part.w, w: cell, pos, piece: full ? shown(data.pieces[ids[pos]]) : null });
      part.w += cell;
    }
    x = part.x + part.w + 4;
  });
  if (ids.length === written) return { parts, pending: null, lines: line + 1 };
  const piece = shown(data.pieces[ids.at(-1)]), w = Math.max(15, tools.measure(piece, SIZE) + 10);
  if (x + w + 4 > room) { x = 0; line++; }
  return { parts, pending: { piece, x: x + 4, line, w }, lines: line + 1 };
}

function defs(c) {
  return `<defs><pattern id="sh-copied" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" stroke="${c('ink')}" stroke-width="1.3"/></pattern></defs>`;
}

// ---- the tables

function tables(data, now, p, tools) {
  const c = tools.colour, { frame, before } = now;
  let y = p.tables + 26, out = rect(0, p.tables - 6, p.width, 1, c('hairline')) + text(0, p.tables + 14, tools.words('tables'), 'font-weight="650"');
  const middle = [];
  frame.rows.forEach((row, i) => {
    middle.push(y + LABEL + CELL / 2);
    if (row) out += table(data, now, i, y, p, tools);
    else out += text(6, y + LABEL + 17, NAMES[i], `class="figure muted" style="font-size:15px"`);
    y += p.lines * LINE + GAP;
  });
  if (frame.kind === 'fork') frame.rows.forEach((row, i) => {
    if (row?.[3] == null) return;
    const from = middle[row[3]], to = middle[i];
    out += `<path d="M20 ${r(from)}C34 ${r(from)} 34 ${r(to)} 23 ${r(to)}" fill="none" stroke="${c('ink')}" stroke-width="1.5"/><path d="M24 ${r(to - 4)}v8l-6 -4z" fill="${c('ink')}"/>`;
  });
  return out;
}

function table(data, now, i, y, p, tools) {
  const c = tools.colour, { frame, before, refs } = now, row = frame.rows[i], dropped = row[4], { parts, pending, written } = laid(data, now, i, p, tools);
  const acts = frame.who === i, had = frame.kind === 'copy' || frame.kind === 'write' ? before.rows[i][1] : written;
  let out = text(6, y + LABEL + 17, NAMES[i], `class="figure" style="font-size:15px;${dropped ? `fill:${c('muted')}` : ''}" font-weight="${acts ? 700 : 500}" ${dropped ? 'text-decoration="line-through"' : ''}`);
  if (acts) out += rect(0, y + LABEL, 3, CELL, c('ink'));
  for (const part of parts) {
    const px = NAME + part.x, py = y + part.line * LINE + LABEL, count = part.hidden ? Math.min(...part.hidden.map(refs)) : refs(part.block), shares = count > 1 && !dropped, lit = `${part.block}` === tools.local.block;
    const target = acts && frame.copy?.[1] === part.block, tone = dropped ? c('muted') : c('kv');
    let inside = '';
    if (part.hidden) {
      inside += rect(px, py, part.w, CELL, dropped ? 'none' : tone, shares ? '' : 'fill-opacity=".14"');
      inside += text(px + part.w / 2, py + 17, tools.words('elided', { n: part.hidden.length }), `class="small" text-anchor="middle" style="fill:${dropped ? c('muted') : shares ? c('paper') : c('ink')}"`);
    }
    for (const cell of part.cells) {
      const cx = NAME + cell.x, full = cell.piece !== null, fresh = full && cell.pos >= had;
      inside += rect(cx, py, cell.w, CELL, full ? (dropped ? 'none' : tone) : c('free'), full && !shares ? 'fill-opacity=".14"' : '');
      if (target && cell.pos < written - 1 && full) inside += rect(cx, py, cell.w, CELL, 'url(#sh-copied)', 'fill-opacity=".38"');
      if (cell.pos % data.block && cell.x > part.x) inside += rect(cx - 0.5, py + (full ? 0 : 4), 1, CELL - (full ? 0 : 8), shares && full ? c('paper') : full ? c('kv') : c('hairline'), full ? 'fill-opacity=".5"' : '');
      if (full) inside += text(cx + cell.w / 2, py + 17, tools.esc(cell.piece), `text-anchor="middle" style="font-size:${SIZE}px;fill:${dropped ? c('muted') : shares ? c('paper') : c('ink')}${fresh ? ';font-weight:700' : ''}" ${dropped ? 'text-decoration="line-through"' : ''}`);
      if (fresh) inside += rect(cx + 1, py + CELL - 3, cell.w - 2, 3, c('ink'));
    }
    inside += rect(px + 0.5, py + 0.5, part.w - 1, CELL - 1, 'none', `stroke="${lit || target ? c('ink') : tone}" stroke-width="${lit || target ? 2.2 : 1}" ${dropped ? 'stroke-dasharray="3 3"' : ''} rx="2"`);
    if (part.first) {
      const number = part.hidden ? `${part.hidden[0]} …` : target ? `${frame.copy[0]} → ${part.block}` : `${part.block}`;
      inside += text(px + 1, py - 4, number + (shares && !part.hidden ? `<tspan dx="5" font-weight="400">×${count}</tspan>` : ''), `class="small figure" font-weight="600" style="fill:${dropped ? c('muted') : c('kv')}"`);
    }
    out += `<g data-b="${part.block}">${inside}</g>`;
  }
  if (pending) {
    const px = NAME + pending.x, py = y + pending.line * LINE + LABEL;
    out += rect(px + 0.5, py + 0.5, pending.w - 1, CELL - 1, 'none', `stroke="${c('muted')}" stroke-dasharray="3 3" rx="2"`) + text(px + pending.w / 2, py + 17, tools.esc(pending.piece), `text-anchor="middle" style="font-size:${SIZE}px;fill:${c('ink')}"`);
  }
  return out;
}

// ---- the memory

const KEYS = ['shared', 'own', 'copied', 'free', 'pending'];

function legendLines(p, tools) {
  const lines = [[]];
  let x = 0;
  for (const key of KEYS) {
    const w = 24 + tools.measure(tools.words(key), 13) + 20;
    if (x + w > p.width && x) { lines.push([]); x = 0; }
    lines.at(-1).push({ key, x });
    x += w;
  }
  return lines;
}

function legend(p, tools) {
  const c = tools.colour, fill = { shared: c('kv'), own: c('kv'), copied: c('kv'), free: c('free'), pending: 'none' };
  return p.legend.map((line, n) => line.map(({ key, x }) => {
    const y = p.memory + 26 + n * 22;
    return rect(x + 0.5, y + 0.5, 17, 13, fill[key], `rx="2" fill-opacity="${key === 'own' || key === 'copied' ? 0.14 : 1}"`) + (key === 'copied' ? rect(x + 0.5, y + 0.5, 17, 13, 'url(#sh-copied)', 'fill-opacity=".38"') : '')
      + rect(x + 0.5, y + 0.5, 17, 13, 'none', `rx="2" stroke="${c(key === 'free' ? 'reserved' : key === 'pending' ? 'muted' : 'kv')}" ${key === 'pending' ? 'stroke-dasharray="3 3"' : ''}`) + text(x + 24, y + 12, tools.words(key), 'class="small muted"');
  }).join('')).join('');
}

function memory(data, now, p, tools) {
  const c = tools.colour, { frame, refs, were } = now, g = p.grid;
  const place = (b) => [(b % g.columns) * (g.size + g.space), g.y + Math.floor(b / g.columns) * g.pitch];
  let out = rect(0, p.memory - 8, p.width, 1, c('hairline')) + text(0, p.memory + 14, tools.words('memory'), 'font-weight="650"') + legend(p, tools);
  for (let b = 0; b < data.total; b++) out += `<g data-b="${b}">${g.compact ? square(b, place(b), now, g, tools) : block(data, b, place(b), now, g, tools)}</g>`;
  if (frame.copy && !g.compact) {
    const [[x0, y0], [x1, y1]] = frame.copy.map(place), from = x0 + g.size / 2, to = x1 + g.size / 2, up = Math.min(y0, y1) - 22;
    out += `<path d="M${r(from)} ${r(y0 - 3)}C${r(from)} ${r(up)} ${r(to)} ${r(up)} ${r(to)} ${r(y1 - 8)}" fill="none" stroke="${c('ink')}" stroke-width="1.8"/><path d="M${r(to - 5)} ${r(y1 - 10)}h10l-5 8z" fill="${c('ink')}"/>`;
  }
  return out;
}

function block(data, b, [x, y], { frame, refs, were }, g, tools) {
  const c = tools.colour, count = refs(b), filled = frame.filled[b] ?? 0, each = g.size / data.block, changed = count !== were(b), lit = `${b}` === tools.local.block, target = frame.copy?.[1] === b;
  let out = rect(x, y, g.size, HALF, c('free'), 'rx="2"');
  if (count) out += rect(x, y, filled * each, HALF, c('kv'), count > 1 ? '' : 'fill-opacity=".22"');
  if (target) out += rect(x, y, frame.moved * each, HALF, 'url(#sh-copied)', 'fill-opacity=".38"');
  for (let k = 1; k < data.block; k++) out += rect(x + k * each - 0.5, y, 1, HALF, c('paper'), 'fill-opacity=".55"');
  const strong = lit || (changed && count > 0);
  out += rect(x + 0.5, y + 0.5, g.size - 1, HALF - 1, 'none', `rx="2" stroke="${strong ? c('ink') : count ? c('kv') : changed ? c('muted') : c('reserved')}" stroke-width="${strong ? 2.2 : 1}" ${!count && changed ? 'stroke-dasharray="3 3"' : ''}`);
  const said = changed && were(b) ? `${were(b)}→${count}` : count > 1 ? `×${count}` : '';
  if (said) {   // the count stands on paper, as its cells may be half filled
    const w = tools.measure(said, 13, 'figures') + 6;
    out += rect(x + g.size / 2 - w / 2, y + 6, w, 18, c('paper'), 'rx="3" fill-opacity=".94"') + text(x + g.size / 2, y + 20, said, `class="small figure" font-weight="600" text-anchor="middle" style="fill:${count ? c('kv') : c('muted')}"`);
  }
  return out + text(x + g.size / 2, y + HALF + 14, b, `class="small figure ${count ? '' : 'muted'}" text-anchor="middle"`);
}

function square(b, [x, y], { refs, were, frame }, g, tools) {
  const c = tools.colour, count = refs(b), changed = count !== were(b) && count > 0, lit = `${b}` === tools.local.block || frame.copy?.[1] === b;
  return rect(x + 0.5, y + 0.5, g.size - 1, g.size - 1, count ? c('kv') : c('free'), `rx="1.5" fill-opacity="${count === 1 ? 0.22 : 1}" stroke="${changed || lit ? c('ink') : count ? c('kv') : c('reserved')}" stroke-width="${changed || lit ? 2 : 1}"`);
}

// ---- what it comes to

function bars(data, { frame }, p, tools) {
  const c = tools.colour, y = p.bars, left = Math.max(tools.measure(tools.words('used'), 14), tools.measure(tools.words('apart'), 14)) + 12;
  const said = (n) => tools.words('blocks', { n }), right = tools.measure(said(888), 14, 'figures') + 14, unit = (p.width - left - right) / data.total;
  const line = (name, n, at, fill, more) => text(0, at + 13, tools.words(name)) + rect(left + 0.5, at + 0.5, Math.max(0, n * unit - 1), 16, fill, more) + text(left + n * unit + 8, at + 13, said(n), 'class="figure" font-weight="600"');
  const share = frame.apart > frame.used ? text(left + frame.used * unit + 14 + tools.measure(said(frame.used), 14.6, 'figures'), y + 13, tools.words('less', { share: `${Math.round(100 * (1 - frame.used / frame.apart))}%` }), 'class="muted"') : '';
  return share + line('used', frame.used, y, c('kv'), '') + line('apart', frame.apart, y + 25, 'none', `stroke="${c('muted')}" stroke-width="1.3" stroke-dasharray="4 3"`);
}
