// Above, what the memory holds; in the middle the tree, x is the position in the text and a row is a speaker; below, what each
// request found and what it computed.
export const rate = 1.2;

const EVENT = 22, LABEL = 19, BAR = 24, ROW = LABEL + BAR + 11, LINE = 24;
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const strong = 'font-weight="650"';
const plans = new WeakMap();

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), event = data.events[t];
  svg.innerHTML = defs(tools.colour) + head(data, t, p, tools) + memory(data, event, p, tools) + tree(data, event, p, tools) + requests(data, t, p, tools);
  const over = (block) => { if (block !== tools.local.block) { tools.local.block = block; tools.redraw(); } };
  svg.onpointerover = (e) => over(e.target.closest('[data-b]')?.dataset.b ?? null);
  svg.onpointerleave = () => over(null);
}

export function says(data, t, tools) {
  const { used, idle } = data.events[t], each = counted(data, t), total = (key) => each.reduce((sum, visit) => sum + visit[key], 0);
  return tools.words('says', { event: said(data, t, tools), used, idle, blank: data.blocks - used - idle, hits: total('hits'), read: total('read') });
}

// ---- what happened

function said(data, t, tools) {
  const e = data.events[t], [speaker, prompt] = data.visits[e.visit], called = data.speakers[speaker], words = tools.words;
  const who = tools.lang === 'zh' && /\w$/.test(called) ? `${called} ` : called;   // a space between Latin and Han
  if (e.kind === 'find') {
    const name = (data.visits.slice(0, e.visit).some(([other]) => other === speaker) ? 'again' : 'find') + (e.hits ? '' : '_none');
    return words(name, { who, n: e.visit + 1, prompt, hits: e.hits });
  }
  const lost = e.evicted.length && e.kind === 'read' ? words('lost', { n: e.evicted.length }) : '';
  return words(e.kind, { who, n: e.kind === 'write' ? e.evicted.length : e.visit + 1, read: e.read }) + lost;
}

// What each request that has come so far found and computed.
function counted(data, t) {
  const found = [];
  for (const e of data.events.slice(0, t + 1)) {
    const visit = (found[e.visit] ??= { hits: 0, read: 0 });
    if (e.kind === 'find') visit.hits += e.hits;
    if (e.kind === 'read') visit.read += e.read;
  }
  return found;
}

// ---- the plan

function plan(data, width, tools) {
  const stamp = `${width}/${tools.lang}/${tools.measure('国m', 15)}`;
  if (plans.get(data)?.stamp !== stamp) plans.set(data, { stamp, ...planned(data, width, tools) });
  return plans.get(data);
}

function planned(data, width, tools) {
  const p = { wide: width >= 720 };
  p.name = Math.max(...data.rows.map((name) => tools.measure(name, 14))) + (p.wide ? 16 : 8);
  p.unit = (width - p.name - 2) / data.longest;
  p.memory = EVENT * Math.max(...data.events.map((_, t) => tools.wrap(said(data, t, tools), 16, width).length)) + 14;
  p.tree = p.memory + 68;
  p.keys = keyLines(width, tools);
  p.rows = p.tree + 30 + p.keys.length * 22;
  p.axis = p.rows + data.rows.length * ROW;
  p.bars = p.axis + 34;
  p.first = p.bars + (p.wide ? 34 : 58);
  p.height = p.first + (data.visits.length + 1) * LINE + 6;
  return p;
}

function defs(c) {
  return `<defs><pattern id="pt-gone" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0M-1 1L1 -1M5 7L7 5" stroke="${c('rejected')}" stroke-width="1.1"/></pattern></defs>`;
}

function head(data, t, p, tools) {
  return tools.wrap(said(data, t, tools), 16, tools.width).map((line, i) => text(0, 16 + EVENT * i, tools.esc(line), 'style="font-size:16px" font-weight="600"')).join('');
}

// ---- the memory

function memory(data, e, p, tools) {
  const c = tools.colour, y = p.memory + 22, unit = tools.width / data.blocks, blank = data.blocks - e.used - e.idle, W = tools.width;
  let out = rect(0, p.memory - 8, W, 1, c('hairline')) + text(0, p.memory + 13, tools.words('memory', { n: data.blocks }), strong);
  out += rect(0.5, y + 0.5, W - 1, 13, c('free'), `stroke="${c('reserved')}"`);
  out += rect(0, y, e.used * unit, 14, c('kv')) + rect(e.used * unit + 0.5, y + 0.5, e.idle * unit - 1, 13, c('kv'), `fill-opacity=".1" stroke="${c('kv')}"`);
  let x = 0;
  for (const [key, n, tone] of [['used', e.used, 'kv'], ['idle', e.idle, 'kv'], ['blank', blank, 'muted']]) {
    const label = tools.words(key, { n }), at = key === 'used' ? 0 : key === 'idle' ? e.used * unit : (e.used + e.idle) * unit, w = tools.measure(label, 13);
    x = Math.min(Math.max(x, at), W - w);
    if (n) { out += text(x, y + 30, label, `class="small" style="fill:${c(tone)}" ${key === 'used' ? 'font-weight="650"' : ''}`); x += w + 14; }
  }
  return out;
}

// ---- the tree

const KEYS = ['key_used', 'key_idle', 'key_found', 'key_fresh', 'key_evicted'];

function keyLines(width, tools) {
  const lines = [[]];
  let x = 0;
  for (const key of KEYS) {
    const w = 24 + tools.measure(tools.words(key), 13) + 18;
    if (x + w > width && x) { lines.push([]); x = 0; }
    lines.at(-1).push({ key, x });
    x += w;
  }
  return lines;
}

function keys(p, tools) {
  const c = tools.colour;
  const sample = { key_used: ['kv', 1, 'kv'], key_idle: ['kv', 0.1, 'kv'], key_found: ['kv', 0.45, 'ink'], key_fresh: ['prefill', 1, 'prefill'], key_evicted: ['', 1, 'rejected'] };
  return p.keys.map((line, n) => line.map(({ key, x }) => {
    const [fill, opacity, stroke] = sample[key], y = p.tree + 24 + n * 22;
    return rect(x + 0.5, y + 0.5, 17, 13, fill ? c(fill) : 'url(#pt-gone)', `rx="2" fill-opacity="${opacity}" stroke="${c(stroke)}" stroke-width="${key === 'key_found' ? 2 : 1}" ${fill ? '' : 'stroke-dasharray="3 3"'}`) + text(x + 24, y + 12, tools.words(key), 'class="small muted"');
  }).join('')).join('');
}

function tree(data, e, p, tools) {
  const c = tools.colour, X = (position) => p.name + position * p.unit, Y = (row) => p.rows + row * ROW + LABEL, end = (edge) => edge.start + edge.blocks.length * data.block;
  let out = rect(0, p.tree - 8, tools.width, 1, c('hairline')) + text(0, p.tree + 13, tools.words('tree'), strong) + keys(p, tools);
  data.rows.forEach((name, row) => { out += text(0, Y(row) + 17, tools.esc(name), `style="font-size:14px" ${data.visits[e.visit][2] === row ? 'font-weight="700"' : ''}`); });
  for (const edge of e.edges) if (edge.from !== null && edge.from !== edge.row) {   // it leaves another's row
    const x = r(X(edge.start)), top = Math.min(edge.from, edge.row), bottom = Math.max(edge.from, edge.row);
    out += `<path d="M${x} ${Y(top) + BAR}V${Y(bottom) + BAR / 2}" stroke="${c('kv')}" stroke-width="2" fill="none"/>`;
  }
  for (const [row, start] of e.evicted) out += rect(X(start) + 0.5, Y(row) + 0.5, data.block * p.unit - 1, BAR - 1, 'url(#pt-gone)', `rx="2" stroke="${c('rejected')}" stroke-dasharray="3 3"`);
  for (const edge of e.edges) out += blocks(data, e, edge, X, Y(edge.row), p, tools);
  for (const [row, start, written, visit] of e.tails) out += tail(data, start, written, e.kind === 'read' && visit === e.visit ? 'prefill' : 'kv', X, Y(row), p, tools);
  for (const edge of e.edges) {
    const others = e.edges.filter((other) => other.row === edge.row && other.start >= end(edge));
    const room = (others.length ? Math.min(...others.map((other) => X(other.start))) : tools.width) - X(edge.start) - 6;
    const label = fitted(edge.text, room, tools);
    if (label) out += text(X(edge.start) + (edge.start ? 3 : 0), Y(edge.row) - 5, tools.esc(label), `class="small" stroke="${c('paper')}" stroke-width="4" paint-order="stroke" stroke-linejoin="round"`);
  }
  return out + axis(data, X, p, tools);
}

function fitted(said, room, tools) {
  if (tools.measure(said, 13) <= room) return said;
  let n = said.length;
  while (n > 1 && tools.measure(said.slice(0, n) + '…', 13) > room) n--;
  return n > 1 ? said.slice(0, n).trimEnd() + '…' : '';
}

// Cells of one edge. A number stands in each cell where it fits, else once for a run of cells with the same state.
function blocks(data, e, edge, X, y, p, tools) {
  const c = tools.colour, w = data.block * p.unit;
  let out = '', runs = [];
  edge.blocks.forEach(([block, refs, rank], i) => {
    const x = X(edge.start + i * data.block), found = e.found.includes(block), fresh = e.fresh.includes(block), lit = `${block}` === tools.local.block;
    const look = fresh ? 'fresh' : refs ? 'used' : found ? 'found' : 'idle';
    const fill = fresh ? ['prefill', 1] : refs ? ['kv', 1] : found ? ['kv', 0.45] : ['kv', 0.1];
    out += `<g data-b="${block}">` + rect(x + 0.5, y + 0.5, w - 1.5, BAR - 1, c(fill[0]), `rx="2" fill-opacity="${fill[1]}" stroke="${c(found || lit ? 'ink' : fresh ? 'prefill' : 'kv')}" stroke-width="${found || lit ? 2 : 1}"`) + '</g>';
    const value = refs || rank + 1, last = runs.at(-1);
    if (last?.look === look && (look === 'idle' || look === 'found' ? Math.abs(last.values.at(-1) - value) === 1 : last.values[0] === value)) last.values.push(value);
    else runs.push({ look, values: [value], x });
  });
  for (const { look, values, x } of runs) {
    const ranked = look === 'idle' || look === 'found', tone = ranked ? (look === 'found' ? 'ink' : 'kv') : 'paper';
    const name = (value) => (ranked ? `${value}` : `×${value}`), style = `class="small figure" text-anchor="middle" pointer-events="none" style="fill:${c(tone)}"`;
    if (!ranked && values[0] < 2) continue;   // alone: the solid cell says it
    if (values.every((value) => tools.measure(name(value), 13, 'figures') < w - 4)) {
      values.forEach((value, i) => { out += text(x + (i + 0.5) * w, y + 17, name(value), style); });
      continue;
    }
    const low = Math.min(...values), high = Math.max(...values), once = low === high ? name(low) : `${low}–${high}`;
    const wide = tools.measure(once, 13, 'figures') + 6, middle = x + values.length * w / 2;
    if (wide < values.length * w - 2) out += rect(middle - wide / 2, y + 3, wide, BAR - 6, c(look === 'fresh' ? 'prefill' : ranked ? 'paper' : 'kv'), 'rx="3" pointer-events="none"') + text(middle, y + 17, once, style);
  }
  return out;
}

// What a running request has written beyond its blocks in the tree: the block that is not full yet.
function tail(data, start, written, tone, X, y, p, tools) {
  const c = tools.colour, w = data.block * p.unit;
  let out = '';
  for (let at = start; at < written; at += data.block) {
    const x = X(at), full = Math.min(written - at, data.block) * p.unit;
    out += rect(x + 0.5, y + 0.5, w - 1.5, BAR - 1, c('free'), `rx="2" stroke="${c(tone)}"`) + rect(x + 1, y + 1, Math.max(1, full - 2), BAR - 2, c(tone));
  }
  return out;
}

function axis(data, X, p, tools) {
  const step = p.wide ? 20 : 40, y = p.axis + 4, label = tools.words('axis'), end = tools.width - tools.measure(label, 13) - 16;
  let out = text(tools.width, y + 15, label, 'class="small muted" text-anchor="end"');
  for (let at = 0; at <= data.longest; at += step) {
    out += rect(X(at), y - 4, 1, 5, tools.colour('muted'));
    if (X(at) + 12 < end) out += text(X(at), y + 15, at, `class="small figure muted" text-anchor="${at ? 'middle' : 'start'}"`);
  }
  return out;
}

// ---- what it costs

function requests(data, t, p, tools) {
  const c = tools.colour, each = counted(data, t), top = p.first, all = { hits: 0, read: 0 };
  for (const visit of each) if (visit) { all.hits += visit.hits; all.read += visit.read; }
  const most = Math.max(...data.visits.map(([, prompt]) => prompt)), whole = data.visits.reduce((sum, [, prompt]) => sum + prompt, 0);
  const number = (n) => tools.measure(`${n}`, 13, 'figures'), right = number(999) + 8, left = p.name + number(8) + 10;
  let out = rect(0, p.bars - 8, tools.width, 1, c('hairline')) + text(0, p.bars + 13, tools.words('bars'), strong);
  const hit = tools.words('hit', { n: all.hits }), computed = tools.words('computed', { n: all.read }), w = tools.measure(computed, 14) + 8;
  const x0 = p.wide ? Math.max(left, tools.measure(tools.words('bars'), 14.6) + 28) : 0, y0 = p.bars + (p.wide ? 2 : 26);
  out += rect(x0, y0, 13, 13, c('prefill')) + text(x0 + 19, y0 + 11, computed) + rect(x0 + 27 + w, y0 + 0.5, 13, 12, c('kv'), `fill-opacity=".3" stroke="${c('kv')}"`) + text(x0 + 46 + w, y0 + 11, hit);
  const line = (i, name, visit, unit, bold) => {
    const y = top + i * LINE, read = visit.read * unit, hits = visit.hits * unit;
    let row = text(0, y + 13, name, bold ? strong : '') + rect(left, y, read, 16, c('prefill')) + rect(left + read + 0.5, y + 0.5, hits - 1, 15, c('kv'), `fill-opacity=".3" stroke="${c('kv')}"`);
    const inside = (n, x, long, tone) => (number(n) + 6 < long ? text(x + long / 2, y + 13, n, `class="small figure" text-anchor="middle" style="fill:${c(tone)}" ${bold ? 'font-weight="700"' : ''}`) : '');
    return row + (visit.read ? inside(visit.read, left, read, 'paper') : '') + (visit.hits ? inside(visit.hits, left + read, hits, 'ink') : '');
  };
  data.visits.forEach(([speaker, prompt], i) => {
    const name = `${tools.esc(data.speakers[speaker])} <tspan x="${r(p.name)}" class="figure" style="fill:${c('muted')}">${i + 1}</tspan>`;
    if (each[i]) out += line(i, name, each[i], (tools.width - left - right) / most, i === data.events[t].visit);
    else out += `<g opacity=".55">${text(0, top + i * LINE + 13, name, 'class="muted"')}${rect(left, top + i * LINE + 7.5, (prompt / most) * (tools.width - left - right), 1, c('reserved'))}</g>`;
  });
  const y = data.visits.length;
  return out + rect(0, top + y * LINE - 4, tools.width, 1, c('hairline')) + line(y + 0.15, tools.words('total'), all, (tools.width - left - right) / Math.max(whole, all.hits + all.read), true);
}
