// A number line for each group: weights above, the grid below, lines between; what shares a grid point piles up under it.
// The outlier can be dragged: every size has been computed, so the picture follows the hand and the server hears of the end.
const HEAD = 34, LEGEND = 20, DROP = { least: 46, most: 116 }, CODES = 24, PITCH = 9, TALLEST = 12, R = 4, MANY = 5, AXIS = 36, GAP = 30, BREAK = 18;
const COLUMNS = { 2: 2, 3: 3, 4: 2, 6: 3 }, WIDE = 720, TALL = 400, NEAR = 22, SETTLED_MS = 300, FAR_TICKS = [4, 8, 12];

function plan(data, width, tools) {
  const n = data.strips.length, columns = width >= WIDE ? COLUMNS[n] ?? (n > 6 ? 4 : 1) : 1, rows = Math.ceil(n / columns);
  const pile = Math.max(...data.strips.map((s) => (data.named ? 24 : Math.min(TALLEST, s.dots.length) * PITCH + (s.dots.length > MANY ? 20 : 4))));
  const head = HEAD + (data.named ? 12 : 0), foot = legend(data, width, tools).height, fixed = rows * (head + CODES + pile + 16) + AXIS + LEGEND + foot;
  const drop = Math.min(DROP.most, Math.max(DROP.least, (TALL - fixed) / rows)), strip = head + drop + CODES + pile + 16;
  const room = (width - (columns - 1) * GAP) / columns, side = data.named ? 0 : Math.max(76, Math.min(220, room * 0.22));
  return { columns, rows, head, drop, strip, room, side, foot: rows * strip + AXIS, height: rows * strip + AXIS + LEGEND + foot };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), { local } = tools;
  if (local.data !== data) Object.assign(local, { data, at: local.moving ? local.at : data.at });   // a hand on the dot comes first
  const strips = data.strips.map((s, i) => (i === data.hit && !data.named ? data.hits[local.at] : s)), at = (i) => [(i % p.columns) * (p.room + GAP), Math.floor(i / p.columns) * p.strip];
  let out = strips.map((s, i) => strip(s, i, ...at(i), data, p, tools)).join('');
  for (let i = 0; i < p.columns; i++) out += axis(i * (p.room + GAP), p.rows * p.strip, data, p, tools);
  svg.innerHTML = out + legend(data, tools.width, tools, p.foot + 8).markup;
  if (!data.named) draggable(svg, strips[data.hit], ...at(data.hit), data, p, tools);
}

const r = (x) => Math.round(x * 100) / 100;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const path = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const place = (w, decimals) => { const said = Math.abs(w).toFixed(decimals); return (w < 0 && +said ? '−' : '') + said; };
const short = (w) => (w < 0 ? '−' : '') + Math.abs(w);
const fallen = (d) => d[1] === 0 && d[0] !== 0;

// Weights up to 1 on an even scale; beyond a break the larger ones, on a compressed one.
function scale(x, data, p) {
  const left = x + 9, right = x + p.room - p.side - 9, middle = (left + right) / 2, arm = (right - left) / 2, most = data.outliers.at(-1), from = right + BREAK, wide = Math.max(0, x + p.room - 10 - from);
  const X = (v) => (v > data.window ? from + ((v - data.window) / (most - data.window)) * wide : middle + (v / data.window) * arm);
  const value = (at) => (at > right ? data.window + (Math.max(0, at - from) / wide) * (most - data.window) : ((at - middle) / arm) * data.window);
  return { left, right, from, end: from + wide, X, value };
}

function strip(s, i, x, y, data, p, tools) {
  const c = tools.colour, { left, right, from, end, X } = scale(x, data, p), top = y + p.head - 6, line = top + p.drop, under = line + CODES, piles = new Map();
  const name = tools.words(data.strips.length === 1 ? 'one' : 'of', { n: i + 1, count: s.dots.length, scale: s.scale }), far = (d) => d[0] > data.window, tone = (d) => c(fallen(d) ? 'rejected' : 'weights');
  let out = text(x, y + 13, name, 'class="small" font-weight="650"') + path(`M${r(left)} ${r(top)}H${r(right)}`, c('hairline')) + path(`M${r(left)} ${r(line)}H${r(right)}`, c('ink'), 'stroke-width="1.2"');
  if (s.dots.some(far)) {
    for (const [at, shade] of [[top, 'hairline'], [line, 'muted']]) out += path(`M${r(from)} ${r(at)}H${r(end + 4)}`, c(shade)) + path(`M${r(right + 3)} ${r(at + 5)}l5 -10M${r(right + 8)} ${r(at + 5)}l5 -10`, c('muted'), 'stroke-width="1.2"');
  }
  out += points(s, line, X, data, c, tools);
  for (const d of [...s.dots].sort((a, b) => fallen(a) - fallen(b))) {   // what falls to 0 is drawn over the rest
    out += path(`M${r(X(d[0]))} ${r(top)}L${r(X(d[1]))} ${r(line)}`, tone(d), `stroke-opacity="${fallen(d) ? 0.75 : 0.45}" stroke-width="1.4" ${fallen(d) ? 'stroke-dasharray="4 3"' : ''}`);
  }
  for (const d of s.dots) if (d[3] !== null) out += `<circle cx="${r(X(d[3]))}" cy="${r(line)}" r="${R}" fill="none" stroke="${c('ghost')}" stroke-width="1.5"/>`;
  for (const d of s.dots) piles.set(d[1], [...(piles.get(d[1]) ?? []), d]);
  let clear = -Infinity;   // names that would touch stand one above the other
  for (const d of [...s.dots].sort((a, b) => a[0] - b[0])) {
    out += `<circle cx="${r(X(d[0]))}" cy="${r(top)}" r="${R}" fill="${tone(d)}" fill-opacity=".85">${tip(d, tools)}</circle>`;
    if (!data.named && !far(d)) continue;
    const said = data.named ? place(d[0], 2) : short(d[0]), half = tools.measure(said, 13, 'figures') / 2 + 3, close = X(d[0]) - half < clear;
    out += text(X(d[0]), top - (close ? 23 : data.named ? 9 : 12), said, 'class="small figure" text-anchor="middle" font-weight="600"');
    clear = close ? -Infinity : X(d[0]) + half;
  }
  for (const [v, dots] of piles) out += data.named ? landed(dots[0], X(v), line, under, tools) : pile(dots, X(v), under, tools);
  return out;
}

const tip = (d, tools) => `<title>${tools.words('tip', { w: place(d[0], 2), q: d[2], v: place(d[1], 3), error: place(d[1] - d[0], 3) })}</title>`;

function landed(d, x, line, under, tools) {
  const tone = tools.colour(fallen(d) ? 'rejected' : 'weights');
  return `<circle cx="${r(x)}" cy="${r(line)}" r="${R}" fill="${tone}">${tip(d, tools)}</circle>` + text(x, under + 16, d[2], `class="figure" text-anchor="middle" font-weight="650" style="font-size:17px;fill:${tone}"`);
}

// All on one grid point, in two columns where they are many, with their number under them.
function pile(dots, x, under, tools) {
  const two = dots.length > TALLEST, deep = Math.ceil(dots.length / (two ? 2 : 1)), c = tools.colour;
  const marks = dots.map((d, i) => {
    const at = [x + (two ? (i < deep ? -0.5 : 0.5) * (PITCH + 1) : 0), under + 6 + (i % deep) * PITCH];
    return fallen(d) ? path(`M${r(at[0] - 3)} ${r(at[1] - 3)}l6 6m0 -6l-6 6`, c('rejected'), 'stroke-width="1.8"').replace('/>', `>${tip(d, tools)}</path>`) : `<circle cx="${r(at[0])}" cy="${r(at[1])}" r="${R}" fill="${c('weights')}">${tip(d, tools)}</circle>`;
  });
  const many = dots.length > MANY ? text(x, under + 8 + deep * PITCH + 10, dots.length, `class="small figure" text-anchor="middle" font-weight="650" style="fill:${c(dots.some(fallen) ? 'rejected' : 'weights')}"`) : '';
  return marks.join('') + many;
}

// The grid: a tick a point, and as many of their codes as there is room for, 0 first.
function points(s, line, X, data, c, tools) {
  const [first, step, count, code] = s.even ?? [], largest = Math.max(data.window, ...s.dots.map((d) => d[0])) * 1.04;
  const all = s.points ?? Array.from({ length: count }, (_, i) => [first + i * step, short(code + i)]), seen = all.filter(([v]) => v >= -data.window - 1e-9 && v <= largest);
  const close = (i) => Math.min(i ? X(seen[i][0]) - X(seen[i - 1][0]) : 99, i + 1 < seen.length ? X(seen[i + 1][0]) - X(seen[i][0]) : 99), bold = [[], []];
  seen.forEach(([v], i) => bold[close(i) < 5 ? 0 : 1].push(`M${r(X(v))} ${r(line - 5)}v10`));
  const out = path(bold[1].join(''), c('ink'), 'stroke-width="1.2"') + path(bold[0].join(''), c('ink'), 'stroke-width=".6" stroke-opacity=".55"');
  if (data.named) return out;
  const inside = seen.filter(([v]) => v <= data.window), gap = inside.length > 1 ? (X(inside.at(-1)[0]) - X(inside[0][0])) / (inside.length - 1) : 99, stride = [1, 2, 4, 8, 16, 32, 64].find((k) => k * gap > 24) ?? 128;
  const taken = [], zero = seen.findIndex(([v]) => Math.abs(v) < 1e-9), order = seen.map((_, i) => i).sort((a, b) => Math.abs(a - zero) - Math.abs(b - zero));
  if (seen.at(-1)[0] > data.window) order.unshift(seen.length - 1);
  return out + order.map((i) => {
    const [v, label] = seen[i], half = tools.measure(label, 13, 'figures') / 2 + 3, at = X(v), beyond = v > data.window;
    if ((!beyond && (i - zero) % stride) || taken.some(([a, b]) => at - half < b && a < at + half)) return '';
    taken.push([at - half, at + half]);
    return text(at, line + 18, label, 'class="small figure muted" text-anchor="middle"');
  }).join('');
}

function axis(x, y, data, p, tools) {
  const c = tools.colour, { left, right, from, end, X } = scale(x, data, p), far = data.named ? [] : FAR_TICKS.filter((v) => p.side > 120 || v === FAR_TICKS.at(-1));
  let out = path(`M${r(left)} ${y}H${r(right)}${far.length ? `M${r(from)} ${y}H${r(end)}` : ''}`, c('hairline'));
  if (far.length) out += path(`M${r(right + 3)} ${y + 5}l5 -10M${r(right + 8)} ${y + 5}l5 -10`, c('muted'));
  for (const v of [-1, -0.5, 0, 0.5, 1, ...far]) out += path(`M${r(X(v))} ${y}v4`, c('muted')) + text(X(v), y + 19, short(v), 'class="small figure muted" text-anchor="middle"');
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

// The ringed dot, by hand or arrow keys: the picture shows each size at once, and the parameter is set when it comes to rest.
function draggable(svg, s, x, y, data, p, tools) {
  const { local } = tools, { X, value } = scale(x, data, p), top = y + p.head - 6, at = X(s.dots[data.place][0]), c = tools.colour, last = data.outliers.length - 1;
  const said = tools.words('outlier', { value: data.outliers[local.at] }), hint = local.held || local.focus ? '' : text(at, top + 24, `← ${tools.words('drag')} →`, `class="small" text-anchor="middle" style="fill:${c('accent')};paint-order:stroke;stroke:${c('paper')};stroke-width:4px"`);
  svg.insertAdjacentHTML('beforeend', `<circle class="handle" cx="${r(at)}" cy="${r(top)}" r="${R + 4}" fill="transparent" stroke="${c('accent')}" stroke-width="2" style="cursor:ew-resize" tabindex="0" role="slider" aria-valuemin="0" aria-valuemax="${data.outliers[last]}" aria-valuenow="${data.outliers[local.at]}" aria-label="${said}"/>${hint}`);
  svg.style.touchAction = 'pan-y';
  const handle = svg.querySelector('.handle'), spot = (event) => { const box = svg.getBoundingClientRect(); return [(event.clientX - box.left) * (tools.width / box.width), (event.clientY - box.top) * (tools.width / box.width)]; };
  const nearest = (v) => data.outliers.reduce((best, o, i) => (Math.abs(o - v) < Math.abs(data.outliers[best] - v) ? i : best), 0);
  const show = (i) => { if (i !== local.at) { local.at = i; tools.redraw(); } };
  const settle = () => { local.moving = false; if (local.at !== local.data.at) tools.pick('outlier', data.outliers[local.at]); };

  if (local.focus) handle.focus({ preventScroll: true });   // each drawing makes a new one
  handle.onfocus = () => { local.focus = true; };
  handle.onblur = () => setTimeout(() => { if (handle.isConnected) local.focus = false; });
  handle.onkeydown = (event) => {
    const to = { ArrowRight: local.at + 1, ArrowUp: local.at + 1, ArrowLeft: local.at - 1, ArrowDown: local.at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    local.moving = true;
    clearTimeout(local.settling);
    local.settling = setTimeout(settle, SETTLED_MS);
    show(Math.min(last, Math.max(0, to)));
  };
  svg.onpointerdown = (event) => {
    const [px, py] = spot(event);
    if (Math.abs(px - at) > NEAR || Math.abs(py - top) > NEAR) return;
    local.held = local.moving = true;
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
  };
  svg.onpointermove = (event) => { if (local.held) show(nearest(value(spot(event)[0]))); };
  svg.onpointerup = svg.onpointercancel = () => {
    if (!local.held) return;
    local.held = false;
    tools.redraw();
    settle();
  };
}
