// A number line for each group: weights above, the grid below, lines between; what shares a grid point piles up under it.
const HEAD = 34, LEGEND = 20, DROP = { least: 46, most: 116 }, CODES = 24, PITCH = 9, TALLEST = 12, R = 4, MANY = 5, AXIS = 36, GAP = 30, COLUMNS = { 2: 2, 3: 3, 4: 2, 6: 3 }, WIDE = 720, TALL = 400;

function plan(data, width, tools) {
  const n = data.strips.length, columns = width >= WIDE ? COLUMNS[n] ?? (n > 6 ? 4 : 1) : 1, rows = Math.ceil(n / columns);
  const pile = Math.max(...data.strips.map((s) => (data.named ? 24 : Math.min(TALLEST, s.dots.length) * PITCH + (s.dots.length > MANY ? 20 : 4))));
  const head = HEAD + (data.named ? 12 : 0), foot = legend(data, width, tools).height, fixed = rows * (head + CODES + pile + 16) + AXIS + LEGEND + foot;
  const drop = Math.min(DROP.most, Math.max(DROP.least, (TALL - fixed) / rows)), strip = head + drop + CODES + pile + 16;
  const room = (width - (columns - 1) * GAP) / columns, side = data.beyond ? (columns === 1 && width >= WIDE ? 90 : 52) : 0;
  return { columns, rows, head, drop, strip, room, side, foot: rows * strip + AXIS, height: rows * strip + AXIS + LEGEND + foot };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools);
  let out = data.strips.map((s, i) => strip(s, (i % p.columns) * (p.room + GAP), Math.floor(i / p.columns) * p.strip, data, p, tools)).join('');
  const last = (p.rows - 1) * p.strip;
  for (let i = 0; i < p.columns; i++) out += axis(i * (p.room + GAP), last + p.strip, data, p, tools);
  svg.innerHTML = out + legend(data, tools.width, tools, p.foot + 8).markup;
}

const r = (x) => Math.round(x * 100) / 100;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const path = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const short = (w) => (w < 0 ? '−' : '') + Math.abs(w);

function scale(x, data, p) {
  const left = x + 9, right = x + p.room - p.side - 9, middle = (left + right) / 2, arm = (right - left) / 2;
  return { left, right, X: (v) => (v > data.window ? x + p.room - p.side / 2 + 4 : middle + (v / data.window) * arm) };
}

function strip(s, x, y, data, p, tools) {
  const c = tools.colour, { left, right, X } = scale(x, data, p), top = y + p.head - 6, line = top + p.drop, under = line + CODES;
  let out = text(x, y + 13, tools.esc(s.name), 'class="small" font-weight="650"'), piles = new Map();
  out += path(`M${r(left)} ${r(top)}H${r(right)}`, c('hairline')) + path(`M${r(left)} ${r(line)}H${r(right)}`, c('ink'), 'stroke-width="1.2"');
  if (data.beyond && s.dots.some((d) => d.w > data.window)) {
    for (const at of [top, line]) out += path(`M${r(right)} ${r(at)}h${r(p.side - 10)}`, c('hairline')) + path(`M${r(right + 4)} ${r(at + 5)}l5 -10M${r(right + 9)} ${r(at + 5)}l5 -10`, c('muted'), 'stroke-width="1.2"');
  }
  out += points(s, line, X, left, right, data, c, tools);
  for (const d of [...s.dots].sort((a, b) => a.zero - b.zero)) {   // what falls to 0 is drawn over the rest
    const tone = c(d.zero ? 'rejected' : 'weights');
    out += path(`M${r(X(d.w))} ${r(top)}L${r(X(d.v))} ${r(line)}`, tone, `stroke-opacity="${d.zero ? 0.75 : 0.45}" stroke-width="1.4" ${d.zero ? 'stroke-dasharray="4 3"' : ''}`);
  }
  for (const d of s.dots) {
    if (d.old !== null) out += `<circle cx="${r(X(d.old))}" cy="${r(line)}" r="${R}" fill="none" stroke="${c('ghost')}" stroke-width="1.5"/>`;
  }
  for (const d of s.dots) piles.set(d.v, [...(piles.get(d.v) ?? []), d]);
  let clear = -Infinity;   // names that would touch stand one above the other
  for (const d of [...s.dots].sort((a, b) => a.w - b.w)) {
    const far = d.w > data.window;
    out += `<circle cx="${r(X(d.w))}" cy="${r(top)}" r="${R + (far ? 1 : 0)}" fill="${c(d.zero ? 'rejected' : 'weights')}" fill-opacity=".85">${tip(d, tools)}</circle>`;
    if (!data.named && !far) continue;
    const half = tools.measure(d.name, 13, 'figures') / 2 + 3, close = X(d.w) - half < clear;
    out += text(X(d.w), top - (close ? 23 : 9), d.name, 'class="small figure" text-anchor="middle" font-weight="600"');
    clear = close ? -Infinity : X(d.w) + half;
  }
  for (const [v, dots] of piles) out += data.named ? landed(dots[0], X(v), line, under, tools) : pile(dots, X(v), under, tools);
  return out;
}

const tip = (d, tools) => `<title>${tools.esc(d.tip)}</title>`;

function landed(d, x, line, under, tools) {
  const tone = tools.colour(d.zero ? 'rejected' : 'weights');
  return `<circle cx="${r(x)}" cy="${r(line)}" r="${R}" fill="${tone}">${tip(d, tools)}</circle>` + text(x, under + 16, d.code, `class="figure" text-anchor="middle" font-weight="650" style="font-size:17px;fill:${tone}"`);
}

// All on one grid point, in two columns where they are many, with their number under them.
function pile(dots, x, under, tools) {
  const two = dots.length > TALLEST, deep = Math.ceil(dots.length / (two ? 2 : 1)), c = tools.colour;
  const marks = dots.map((d, i) => {
    const at = [x + (two ? (i < deep ? -0.5 : 0.5) * (PITCH + 1) : 0), under + 6 + (i % deep) * PITCH];
    return d.zero ? path(`M${r(at[0] - 3)} ${r(at[1] - 3)}l6 6m0 -6l-6 6`, c('rejected'), 'stroke-width="1.8"').replace('/>', `>${tip(d, tools)}</path>`) : `<circle cx="${r(at[0])}" cy="${r(at[1])}" r="${R}" fill="${c('weights')}">${tip(d, tools)}</circle>`;
  });
  const many = dots.length > MANY ? text(x, under + 8 + deep * PITCH + 10, dots.length, `class="small figure" text-anchor="middle" font-weight="650" style="fill:${c(dots.some((d) => d.zero) ? 'rejected' : 'weights')}"`) : '';
  return marks.join('') + many;
}

// The grid: a tick a point, and as many of their codes as there is room for, 0 first.
function points(s, line, X, left, right, data, c, tools) {
  const size = 13, taken = [], seen = s.points.map((v, i) => [v, s.labels[i]]).filter(([v]) => Math.abs(v) <= data.window + 1e-9);
  const d = seen.map(([v]) => `M${r(X(v))} ${r(line - 5)}v10`).join(''), gap = seen.length > 1 ? (X(seen.at(-1)[0]) - X(seen[0][0])) / (seen.length - 1) : 99;
  let out = path(d, c('ink'), `stroke-width="${gap < 5 ? 0.6 : 1.2}" stroke-opacity="${gap < 5 ? 0.55 : 1}"`);
  if (data.named) return out;
  const stride = [1, 2, 4, 8, 16, 32, 64].find((k) => k * gap > 24) ?? 128, zero = seen.findIndex(([v]) => v === 0);
  seen.forEach(([v, label], i) => {
    const half = tools.measure(label, size, 'figures') / 2 + 3, at = X(v);
    if ((i - zero) % stride || taken.some(([a, b]) => at - half < b && a < at + half)) return;
    taken.push([at - half, at + half]);
    out += text(at, line + 18, label, 'class="small figure muted" text-anchor="middle"');
  });
  const far = s.dots.find((o) => o.w > data.window);
  if (far) out += path(`M${r(X(far.v))} ${r(line - 5)}v10`, c('ink'), 'stroke-width="1.2"') + text(X(far.v), line + 18, far.code, 'class="small figure muted" text-anchor="middle"');
  return out;
}

function axis(x, y, data, p, tools) {
  const c = tools.colour, { left, right, X } = scale(x, data, p);
  let out = path(`M${r(left)} ${y}H${r(right)}`, c('hairline'));
  for (const v of [-1, -0.5, 0, 0.5, 1]) out += path(`M${r(X(v))} ${y}v4`, c('muted')) + text(X(v), y + 19, short(v), 'class="small figure muted" text-anchor="middle"');
  return out;
}

function legend(data, width, tools, y = 0) {
  const c = tools.colour, marks = [['weights', 'dot'], ['zero', 'cross'], ...(data.ghost ? [['before', 'ring']] : []), ...(data.named ? [] : [[data.codes, 'tick']])];
  let x = 6, out = '';
  const top = y;
  for (const [name, mark] of marks) {
    const said = tools.words(name), wide = 16 + tools.measure(said, 13) * 1.06;
    if (x > 6 && x + wide > width) { x = 6; y += 22; }
    const tone = c({ dot: 'weights', cross: 'rejected', ring: 'ghost', tick: 'ink' }[mark]), at = y + 8;
    if (mark === 'dot') out += `<circle cx="${r(x)}" cy="${at}" r="${R}" fill="${tone}"/>`;
    if (mark === 'ring') out += `<circle cx="${r(x)}" cy="${at}" r="${R}" fill="none" stroke="${tone}" stroke-width="1.5"/>`;
    if (mark === 'cross') out += path(`M${r(x - 3)} ${at - 3}l6 6m0 -6l-6 6`, tone, 'stroke-width="1.8"');
    if (mark === 'tick') out += path(`M${r(x)} ${at - 5}v10`, tone, 'stroke-width="1.2"');
    out += text(x + 10, at + 4.5, said, 'class="small muted"');
    x += wide + 18;
  }
  return { markup: out, height: y - top + 26 };
}
