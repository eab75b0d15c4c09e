// Left, every rate: what is answered in time above, how long one waits below, and between them a handle for the rate that is looked at.
// Right, that rate: how many are in the system over time, and how its waits are spread; beyond the capacity there are none to draw.
const HEAD = 30, UPPER = 190, BETWEEN = 76, LOWER = 176, FOOT = 42, GAP = 48, LEFT = 58, RIGHT = 8, NEAR = 26;
const UNDER = 92;   // what stands between the two pictures on the right

const plan = (width) => {
  const two = width >= 760, w = two ? (width - GAP) / 2 : width, left = HEAD + UPPER + BETWEEN + LOWER + FOOT;
  return { two, w, x: two ? w + GAP : 0, y: two ? 0 : left + 28, spread: HEAD + UPPER + UNDER, end: left, height: two ? left : 2 * left + 28 };
};

export const height = (data, width) => plan(width).height;
export const says = (data) => data.says;

export function draw(svg, data, t, tools) {
  const p = plan(tools.width), { local } = tools;
  if (local.data !== data) {   // an answer to an earlier move may come late
    const moving = !!local.moving && local.data.field === data.field;
    Object.assign(local, { data, moving, at: moving ? local.at : data.x, held: moving && local.held });
  }
  const left = curves(data, p, tools);
  svg.innerHTML = defs(tools.colour) + left.markup + over(data, p, tools) + spread(data, p, tools) + handle(left, data, tools);
  tools.slide(rail(left, data, local));
}

const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const line = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const through = (points) => points.map(([x, y], n) => `${n ? 'L' : 'M'}${r(x)} ${r(y)}`).join('');
const strong = 'font-weight="650"';
const halo = (c) => `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
const seconds = (v) => (v >= 0.9995 ? `${+v.toPrecision(3)} s` : v >= 0.0009995 ? `${+(v * 1e3).toPrecision(3)} ms` : `${+(v * 1e6).toPrecision(3)} µs`);
const plain = (v) => (+v.toPrecision(3)).toLocaleString('en-US');

function defs(c) {
  const hatch = (id, tone, gap, wide, ground) => `<pattern id="${id}" width="${gap}" height="${gap}" patternUnits="userSpaceOnUse">${ground}<path d="M-1 1L1 -1M0 ${gap}L${gap} 0M${gap - 1} ${gap + 1}L${gap + 1} ${gap - 1}" stroke="${tone}" stroke-width="${wide}"/></pattern>`;
  const over = rect(0, 0, 9, 9, c('rejected'), 'fill-opacity=".06"');
  return `<defs>${hatch('lab-over', c('rejected'), 9, 0.7, over)}${hatch('lab-late', c('rejected'), 5, 1.2, rect(0, 0, 5, 5, c('rejected'), 'fill-opacity=".16"'))}${hatch('lab-queue', c('muted'), 6, 1.1, rect(0, 0, 6, 6, c('reserved'), 'fill-opacity=".45"'))}</defs>`;
}

function steps(most, count = 5) {   // of a linear axis from zero
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 2.5, 5, 10].find((s) => s * power >= rough) * power, found = [];
  for (let n = 0; n * step <= most * (1 + 1e-9); n++) found.push(+(n * step).toPrecision(6));
  return found;
}

function decades(low, high, most = 6) {   // of a logarithmic one: 1, 3, 10; closer where the range is small
  for (const parts of [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], [1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4, 4.5, 5, 6, 7, 8, 9]].reverse()) {
    const found = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) for (const part of parts) if (part * 10 ** k >= low * 0.999 && part * 10 ** k <= high * 1.001) found.push(+(part * 10 ** k).toPrecision(3));
    if (found.length <= most) return found;
  }
  return [];
}

// ---- every rate

function curves(data, p, tools) {
  const c = tools.colour, x0 = LEFT, x1 = p.w - RIGHT, top = HEAD, base = HEAD + UPPER, head = base + BETWEEN, foot = head + LOWER;
  const most = data.top, X = (v) => x0 + (Math.min(v, most) / most) * (x1 - x0), value = (px) => ((px - x0) / (x1 - x0)) * most;
  const full = X(data.capacity), queue = data.mode !== 'service', L = data.labels;
  let out = `<clipPath id="lab-upper"><rect x="${x0}" y="${top}" width="${r(x1 - x0)}" height="${UPPER}"/></clipPath><clipPath id="lab-lower"><rect x="${x0}" y="${head}" width="${r(x1 - x0)}" height="${LOWER}"/></clipPath>`;
  out += text(0, 16, L.upper, strong) + text(0, head - 14, L.lower, strong);
  for (const [y, h] of [[top, UPPER], [head, LOWER]]) out += rect(full, y, x1 - full, h, 'url(#lab-over)');

  // goodput, or the number in a queue with one server
  const { upper } = data, high = queue ? Math.max(...upper.points.map(([, v]) => v), ...upper.formula.filter(([x]) => x <= 0.905).map(([, v]) => v), upper.mine?.[0] ?? 0) * 1.12 : data.capacity * 1.08, Y = (v) => base - (v / high) * UPPER;
  for (const v of steps(high, 4)) out += line(`M${x0} ${r(Y(v))}H${r(x1)}`, c('grid')) + text(x0 - 8, Y(v) + 4.5, plain(v), 'class="small figure muted" text-anchor="end"');
  const dots = upper.points.map(([x, y]) => [X(x), Y(y)]), tone = queue ? c('decode') : c('accepted');
  let inside = '';
  if (!queue) {
    const whole = [[X(0), Y(0)], ...dots];
    inside += `<path d="${through([...whole, ...upper.points.map(([x]) => [X(x), Y(x)]).reverse()])}Z" fill="url(#lab-late)"/>`;
    inside += line(`M${X(0)} ${Y(0)}L${full} ${r(Y(data.capacity))}`, c('bound'), 'stroke-width="1.5" stroke-dasharray="6 4"');
    if (upper.ghost.length) inside += line(through([[X(0), Y(0)], ...upper.ghost.filter(([x]) => x <= most).map(([x, y]) => [X(x), Y(y)])]), c('ghost'), 'stroke-width="1.6" stroke-dasharray="3 3"');
    inside += line(through(whole), tone, 'stroke-width="2.5" stroke-linejoin="round"');
  } else inside += line(through(upper.formula.map(([x, y]) => [X(x), Y(y)])), c('bound'), 'stroke-width="2" stroke-dasharray="6 4"');
  inside += upper.points.map(([x, y, low, up]) => (low === null ? '' : line(`M${r(X(x))} ${r(Y(low))}V${r(Y(up))}`, tone, 'stroke-width="1.2" stroke-opacity=".7"')) + `<circle cx="${r(X(x))}" cy="${r(Y(y))}" r="3" fill="${tone}"/>`).join('');
  out += `<g clip-path="url(#lab-upper)">${inside}</g>`;
  if (!queue) out += along(data, X, Y, c, tools);

  out += waits(data, { x0, x1, top: head, base: foot, X, full }, tools);

  // capacity, and what lies beyond
  const centre = (full + x1) / 2, tag = tools.measure(L.capacity, 13) * 1.06;
  for (const [y, h] of [[top, UPPER], [head, LOWER]]) out += line(`M${r(full)} ${y}v${h}`, c('rejected'), 'stroke-width="1.6"');
  const turned = (y, said, more) => `<text transform="translate(${r(centre + 5)} ${r(y)}) rotate(-90)" text-anchor="middle" ${more}>${said}</text>`;
  out += turned(top + UPPER / 2, tools.words('overload'), `${strong} style="fill:${c('rejected')};${halo(c)}"`);
  out += turned(head + LOWER / 2, `${tools.words('overload')} · ${tools.words('no_latency')}`, `class="small" style="fill:${c('rejected')};font-weight:650;${halo(c)}"`);
  out += text(Math.min(full, x1 - tag / 2), top - 4 + 0, L.capacity, `class="small" text-anchor="middle" style="fill:${c('rejected')};${halo(c)}"`);

  for (const [y] of [[base], [foot]]) out += line(`M${x0} ${y}H${r(x1)}`, c('hairline'));
  for (const v of steps(most, p.w < 420 ? 4 : 6)) out += line(`M${r(X(v))} ${foot}v4`, c('muted')) + text(X(v), foot + 18, plain(v), 'class="small figure muted" text-anchor="middle"');
  out += text(x0, foot + 37, L.x, 'class="small"');
  if (tools.measure(L.x, 13) + tools.measure(L.clock, 13) < (x1 - x0) * 0.88) out += text(x1, foot + 37, L.clock, 'class="small muted" text-anchor="end"');

  // the chosen one
  const at = tools.local.at, here = X(at), moved = at !== data.x, track = base + 24;
  out += line(`M${x0} ${track}H${r(x1)}`, c('hairline'), 'stroke-width="3" stroke-linecap="round"');
  if (data.old !== null) out += `<circle cx="${r(X(data.old))}" cy="${track}" r="6" fill="${c('paper')}" stroke="${c('ghost')}" stroke-width="1.6"/>`;
  out += line(`M${r(here)} ${top}V${foot}`, c('accent'), 'stroke-width="1.4"');
  if (!moved && upper.mine) out += spot(here, Y(upper.mine[0]), tone, c);
  if (!moved) for (const one of data.lower.lines) if (one.mine && one.mine[0] !== null) out += spot(here, scale(data, head, foot)(one.mine[0]), c(TONES[one.id]), c);
  if (data.knee) out += knee(data, X, Y, { x0, x1, base, head, foot, full }, here, c, tools);
  const name = moved ? `${queue ? 'ρ' : 'λ'} = ${plain(at)}${at > most ? ' →' : ''}` : L.handle, wide = tools.measure(name, 14) * 1.08, onLeft = here + 18 + wide > x1;
  out += text(onLeft ? here - 15 : here + 15, track + 5, name, `text-anchor="${onLeft ? 'end' : 'start'}" style="fill:${c('accent')};font-weight:650;${halo(c)}"`);
  return { markup: out, here, track, x0, x1, top, foot, value, name };
}

const spot = (x, y, tone, c) => `<circle cx="${r(x)}" cy="${r(y)}" r="5.5" fill="${c('paper')}" stroke="${tone}" stroke-width="2.5"/>`;

// Names along the dashed line and in the hatched field, where there is room for them.
function along(data, X, Y, c, tools) {
  const at = data.capacity * 0.62, said = tools.words('all'), dx = X(1) - X(0), dy = Y(1) - Y(0), turn = (Math.atan2(dy, dx) * 180) / Math.PI;
  let out = `<text transform="translate(${r(X(at))} ${r(Y(at))}) rotate(${r(turn)})" y="-7" text-anchor="middle" class="small muted" style="${halo(c)}">${said}</text>`;
  const seat = data.upper.points.at(-2), near = (v) => Math.abs(X(v) - X(seat[0])) < 56;
  if (Y(seat[1]) - Y(seat[0]) > 30 && !near(data.x) && !(data.knee && near(data.knee[0]))) {
    out += text(X(seat[0]), (Y(seat[0]) + Y(seat[1])) / 2 + 6, tools.words('late'), `class="small" text-anchor="middle" style="fill:${c('rejected')};font-weight:600;${halo(c)}"`);
  }
  return out;
}

function knee(data, X, Y, box, here, c, tools) {
  const [x, y] = data.knee, px = X(x), py = Y(y), said = data.labels.knee, wide = tools.measure(said, 14) * 1.08;
  const start = px - wide - 12 > box.x0 + 4 ? px - wide - 12 : px + 12, side = start < px ? start : Math.min(start, box.full - wide - 4);
  const up = py - 12 < HEAD + 14 ? py + 24 : py - 10;
  return line(`M${r(px)} ${r(py)}V${box.base}M${r(px)} ${box.head}V${box.foot}`, c('ink'), 'stroke-width="1.2" stroke-dasharray="2 4"')
    + `<path d="M${r(px)} ${r(py - 7)}l7 7l-7 7l-7 -7Z" fill="${c('ink')}" stroke="${c('paper')}" stroke-width="1.5"/>` + text(side, up, said, `style="font-weight:650;${halo(c)}"`);
}

// ---- how long one waits

const TONES = { p50: 'prefill', p90: 'prefill', p99: 'prefill', mean: 'decode' };
const WIDTHS = { p50: 'stroke-width="2.6"', p90: 'stroke-width="1.8"', p99: 'stroke-width="1.8" stroke-dasharray="7 3"', mean: 'stroke-width="2.6"' };

function scale(data, top, base) {
  const { lower } = data, seen = [lower.target, ...lower.lines.flatMap((one) => [...one.points.flatMap(([, v, low, high]) => [v, low, high]), ...(one.mine ?? [])])].filter((v) => v > 0);
  const low = Math.min(...seen) / 1.35, high = Math.max(...seen) * 1.35, Y = (v) => base - (Math.log(v / low) / Math.log(high / low)) * (base - top);
  return Object.assign(Y, { low, high });
}

function waits(data, box, tools) {
  const c = tools.colour, { lower } = data, queue = data.mode !== 'service', Y = scale(data, box.top, box.base), { X, x0, x1 } = box;
  let out = '', inside = '';
  for (const v of decades(Y.low, Y.high, 5)) out += line(`M${x0} ${r(Y(v))}H${r(x1)}`, c('grid')) + text(x0 - 8, Y(v) + 4.5, queue ? plain(v) : seconds(v).replace(' ', '\u2009'), 'class="small figure muted" text-anchor="end"');
  if (lower.target) inside += line(`M${x0} ${r(Y(lower.target))}H${r(box.full)}`, c('ink'), 'stroke-width="1.3" stroke-dasharray="2 3"');
  const taken = [];
  const label = (x, y, said, tone, anchor = 'start') => {
    const wide = tools.measure(said, 13) * 1.06, start = anchor === 'start' ? x : x - wide;
    for (const move of [0, -14, 14, -28, 28]) {
      if (taken.some((t) => start < t.end && t.start < start + wide && Math.abs(t.y - y - move) < 13) || y + move < box.top + 10 || y + move > box.base - 3) continue;
      taken.push({ start, end: start + wide, y: y + move });
      return text(x, y + move, said, `class="small" text-anchor="${anchor}" style="fill:${tone};font-weight:600;${halo(c)}"`);
    }
    return '';
  };
  let names = '';
  for (const one of lower.lines) {
    const tone = c(TONES[one.id]), points = one.points.map(([x, v]) => [X(x), Y(v)]);
    if (one.formula) inside += line(through(one.formula.map(([x, v]) => [X(x), Y(v)])), c('bound'), `stroke-width="2" ${one.id === 'p99' ? 'stroke-dasharray="2 3"' : 'stroke-dasharray="6 4"'}`);
    else inside += line(through(points), tone, `${WIDTHS[one.id]} stroke-linejoin="round"`);
    if (one.id === 'p99' || one.formula) inside += one.points.map(([x, v, low, high]) => (low === null ? '' : bar(X(x), Y(low), high === null ? null : Y(high), Y(v), tone))).join('');
    inside += points.map(([x, y]) => `<circle cx="${r(x)}" cy="${r(y)}" r="2.6" fill="${tone}"/>`).join('');
    const first = points[0];
    if (first) names += label(first[0] + 5, first[1] + (one.id === 'p50' ? 17 : -7), tools.words(one.id), tone);
  }
  if (lower.target) {   // at the end where the lines keep farther away
    const near = (n) => Math.min(...lower.lines.filter((one) => one.points.length).map((one) => Math.abs(Y(one.points.at(n)[1]) - Y(lower.target))), 1e9), left = near(0) > near(-1);
    names += label(left ? x0 + 6 : box.full - 6, Y(lower.target) - 6, tools.words('target', { value: lower.target_says }), c('ink'), left ? 'start' : 'end');
  }
  return out + `<g clip-path="url(#lab-lower)">${inside}</g>${names}`;
}

// An interval; without an upper end it is an arrow.
function bar(x, low, high, at, tone) {
  const end = high ?? at - 16;
  return line(`M${r(x)} ${r(low)}V${r(end)}${high === null ? `m-3 4l3 -4l3 4` : ''}`, tone, 'stroke-width="1.2" stroke-opacity=".75"');
}

// ---- the chosen rate over time

function over(data, p, tools) {
  const c = tools.colour, { time } = data, queue = data.mode !== 'service', x0 = p.x + LEFT, x1 = p.x + p.w - RIGHT, top = p.y + HEAD, base = top + UPPER;
  const crowd = Math.max(...time.inside, 1), high = (!queue && crowd > 0.55 * time.slots ? Math.max(crowd, time.slots) : crowd) * 1.12, X = (v) => x0 + (v / time.until) * (x1 - x0), Y = (v) => base - (v / high) * UPPER;
  let out = text(p.x, p.y + 16, tools.words('queue'), strong);
  for (const v of steps(high, 4)) out += line(`M${r(x0)} ${r(Y(v))}H${r(x1)}`, c('grid')) + text(x0 - 8, Y(v) + 4.5, plain(v), 'class="small figure muted" text-anchor="end"');
  const running = time.at.map((at, n) => [X(at), Y(time.inside[n] - time.waiting[n])]), all = time.at.map((at, n) => [X(at), Y(time.inside[n])]);
  out += `<path d="${through([[X(time.at[0]), base], ...running, [running.at(-1)[0], base]])}Z" fill="${c('decode')}" fill-opacity=".8"/>`;
  out += `<path d="${through([...all, ...[...running].reverse()])}Z" fill="url(#lab-queue)"/>` + line(through(all), c('ink'), 'stroke-width="1.1" stroke-opacity=".7"');
  if (!queue && time.slots <= high) {
    out += line(`M${r(x0)} ${r(Y(time.slots))}H${r(x1)}`, c('ink'), 'stroke-width="1.2" stroke-dasharray="4 3"') + text(X(time.since) + 6, Y(time.slots) - 5, tools.words('slots', { n: time.slots }), `class="small" style="${halo(c)}"`);
  }
  const early = X(time.since);
  if (early - x0 > 3) out += rect(x0, top, early - x0, UPPER, c('paper'), 'fill-opacity=".6"') + line(`M${r(early)} ${top}V${base}`, c('muted'), 'stroke-dasharray="2 3"') + text(early + 4, top + 12, tools.words('short'), `class="small muted" ${early - x0 > 90 ? `text-anchor="end" dx="-8"` : ''} style="${halo(c)}"`);
  if (data.overload && time.slope === null) out += text(x1 - 4, top + 32, time.slope_says, `class="small" text-anchor="end" style="fill:${c('rejected')};font-weight:600;${halo(c)}"`);
  else if (data.overload) {
    const late = time.at.map((at, n) => [at, time.inside[n]]).filter(([at]) => at >= (time.since + time.until) / 2), mean = (k) => late.reduce((sum, one) => sum + one[k], 0) / late.length, [mx, my] = [mean(0), mean(1)];
    const from = Math.max(0, mx - my / Math.max(time.slope, 1e-9)), at = (v) => my + time.slope * (v - mx), said = time.slope_says;
    out += line(`M${r(X(from))} ${r(Y(at(from)))}L${r(x1)} ${r(Y(at(time.until)))}`, c('rejected'), 'stroke-width="2.2"');
    out += text(X(mx) - 10, Math.max(top + 30, Y(at(mx)) - 12), said, `text-anchor="end" style="fill:${c('rejected')};font-weight:650;${halo(c)}"`);
  }
  out += line(`M${r(x0)} ${base}H${r(x1)}`, c('hairline'));
  for (const v of steps(time.until, p.w < 420 ? 4 : 5)) out += line(`M${r(X(v))} ${base}v4`, c('muted')) + text(X(v), base + 18, plain(v), `class="small figure muted" text-anchor="${X(v) > x1 - 14 ? 'end' : 'middle'}"`);
  out += text(x0, base + 36, tools.words(queue ? 'services' : 'seconds'), 'class="small"');
  out += time.little ? text(p.x, base + 58, time.little, 'class="small muted"') : '';
  // the key, at the right of the title
  let x = x1;
  for (const [id, fill, edge] of [['waiting', 'url(#lab-queue)', c('muted')], ['running', c('decode'), c('decode')]]) {
    const said = tools.words(id), wide = tools.measure(said, 13) * 1.06;
    out += text(x - wide, p.y + 16, said, 'class="small"') + rect(x - wide - 18, p.y + 5, 12, 12, fill, `stroke="${edge}"`);
    x -= wide + 34;
  }
  return out;
}

// ---- how the waits are spread

function spread(data, p, tools) {
  const c = tools.colour, y = p.y + p.spread, base = p.y + p.end - FOOT;
  if (data.overload) return none(data, p.x, y - 6, p.w - RIGHT, base - y + 20, tools);
  if (data.mode !== 'service') return tail(data, p, y, base, tools);
  const gap = 26, each = (p.w - RIGHT - gap) / 2;
  return data.spread.map((one, n) => bars(one, p.x + n * (each + gap), y, each, base, tools)).join('');
}

// What there is to say of a queue that only grows.
function none(data, x, y, w, h, tools) {
  const c = tools.colour, said = tools.wrap(data.refused.says, 14, w - 48), each = (w - 48) / 3, below = y + 64 + said.length * 21;
  return rect(x, y, w, h, c('panel')) + rect(x, y, 3, h, c('rejected')) + text(x + 24, y + 36, tools.words('overload'), `style="font-size:20px;fill:${c('rejected')};font-weight:650"`)
    + said.map((words, n) => text(x + 24, y + 62 + n * 21, words)).join('')
    + data.refused.later.map(([when, more], n) => text(x + 24 + n * each, below + 18, when, 'class="small muted"') + text(x + 24 + n * each, below + 44, more, 'class="figure" style="font-size:20px;font-weight:600"')).join('');
}

function bars(one, x, y, w, base, tools) {
  const c = tools.colour, tone = c(one.id === 'ttft' ? 'prefill' : 'decode'), { edges } = one, low = Math.min(edges[0], one.target) / 1.08, high = Math.max(edges.at(-1), one.target) * 1.08;
  const X = (v) => x + (Math.log(Math.min(Math.max(v, low), high) / low) / Math.log(high / low)) * w, top = y + 44, most = Math.max(...one.counts), Y = (n) => base - (n / most) * (base - top);
  let out = text(x, y + 4, tools.words(one.id), strong) + text(x, y + 22, one.says, 'class="small muted"');
  one.counts.forEach((count, n) => {
    if (!count) return;
    const from = X(edges[n]), to = X(edges[n + 1]), space = to - from > 3 ? 0.6 : 0, cut = Math.min(Math.max(X(one.target), from), to), h = base - Y(count);
    out += rect(from, Y(count), cut - from - (cut === to ? space : 0), h, tone, 'fill-opacity=".85"') + (cut < to ? rect(cut, Y(count), to - cut - space, h, 'url(#lab-late)', `stroke="${c('rejected')}" stroke-width=".8"`) : '');
  });
  out += line(`M${r(x)} ${base}h${r(w)}`, c('hairline')) + line(`M${r(X(one.target))} ${top - 6}V${base}`, c('ink'), 'stroke-width="1.4" stroke-dasharray="2 3"');
  let end = -1e9;
  for (const v of decades(low, high, 4)) {
    const said = seconds(v), wide = tools.measure(said, 13, 'figures') * 1.05, at = Math.min(Math.max(X(v), x + wide / 2), x + w - wide / 2);
    out += line(`M${r(X(v))} ${base}v4`, c('muted'));
    if (at - wide / 2 < end + 6) continue;
    out += text(at, base + 18, said, 'class="small figure muted" text-anchor="middle"');
    end = at + wide / 2;
  }
  const marks = one.marks.filter(([, v]) => v !== null), wide = tools.measure('p50', 13), full = (v) => X(v) + 8 + wide > x + w;
  const close = marks.length === 2 && X(marks[1][1]) - X(marks[0][1]) < (full(marks[1][1]) ? 2 * wide + 26 : wide + 22);
  marks.forEach(([name, v], n) => {
    const left = (n === 0 && close) || full(v);
    out += `<path d="M${r(X(v))} ${base + 22}l5 9h-10Z" fill="${c('ink')}"/>` + text(X(v) + (left ? -8 : 8), base + 33, name, `class="small" text-anchor="${left ? 'end' : 'start'}"`);
  });
  return out;
}

// The share that stays longer than t: on a logarithmic axis the formula of M/M/1 is a straight line.
function tail(data, p, y, base, tools) {
  const c = tools.colour, { tail: it } = data, x0 = p.x + LEFT, x1 = p.x + p.w - RIGHT, said = tools.wrap(it.says, 13, p.w - RIGHT), top = y + 14 + said.length * 18;
  const most = Math.max(it.exact[0][1], ...it.points.flatMap((one) => one.slice(1))) * 1.14, least = 0.6, X = (v) => x0 + (v / most) * (x1 - x0), Y = (share) => base - (Math.log(share / least) / Math.log(100 / least)) * (base - top);
  let out = said.map((words, n) => text(p.x, y + 4 + n * 18, words, n ? 'class="small"' : 'class="small"')).join(''), inside = '';
  for (const share of [1, 3, 10, 30, 100]) out += line(`M${r(x0)} ${r(Y(share))}H${r(x1)}`, c('grid')) + text(x0 - 8, Y(share) + 4.5, `${share}%`, 'class="small figure muted" text-anchor="end"');
  if (it.rate) inside += line(`M${r(X(0))} ${r(Y(100))}L${r(X(most))} ${r(Y(100 * Math.exp(-it.rate * most)))}`, c('bound'), 'stroke-width="2" stroke-dasharray="6 4"');
  else inside += it.exact.map(([share, v]) => `<path d="M${r(X(v))} ${r(Y(share) - 6)}l6 6l-6 6l-6 -6Z" fill="${c('paper')}" stroke="${c('bound')}" stroke-width="2"/>`).join('');
  for (const [share, v, low, high] of it.points) {
    if (v === null) continue;
    const to = high === null ? X(v) + 18 : X(high);
    inside += line(`M${r(X(low))} ${r(Y(share))}H${r(to)}${high === null ? 'm-4 -3l4 3l-4 3' : ''}`, c('prefill'), 'stroke-width="1.4" stroke-opacity=".8"') + `<circle cx="${r(X(v))}" cy="${r(Y(share))}" r="4.5" fill="${c('prefill')}" stroke="${c('paper')}" stroke-width="1.2"/>`;
    inside += text(X(v) + 8, Y(share) - 7, `p${100 - share}`, `class="small" style="${halo(c)}"`);
  }
  out += `<clipPath id="lab-tail"><rect x="${r(x0)}" y="${r(top - 8)}" width="${r(Math.max(0, x1 - x0))}" height="${r(base - top + 8)}"/></clipPath><g clip-path="url(#lab-tail)">${inside}</g>` + line(`M${r(x0)} ${base}H${r(x1)}`, c('hairline'));
  for (const v of steps(most, 5)) out += text(X(v), base + 18, plain(v), `class="small figure muted" text-anchor="${X(v) > x1 - 12 ? 'end' : 'middle'}"`);
  return out + text(x0, base + 36, tools.words('stay'), 'class="small"');
}

// ---- the handle

function handle(left, data, tools) {
  const { local } = tools, c = tools.colour, { here, track } = left;
  const hint = local.held || local.focus || local.used ? '' : text(here, track + 22, `← ${tools.words('drag')} →`, `class="small" text-anchor="middle" style="fill:${c('accent')};${halo(c)}"`);
  return `<circle class="handle" cx="${r(here)}" cy="${track}" r="9" fill="${c('accent')}" stroke="${c('paper')}" stroke-width="2" style="cursor:ew-resize" tabindex="0" role="slider" aria-valuemin="0" aria-valuemax="${r(data.top)}" aria-valuenow="${local.at}" aria-valuetext="${tools.esc(left.name)}" aria-label="${tools.esc(data.labels.x)}"/>${hint}`;
}

function rail({ x0, x1, top, foot, value }, data, local) {
  const queue = data.field === 'rho', least = data.capacity * 0.02, step = data.top / 50;
  const tidy = (v) => Math.max(queue ? 0.02 : +least.toPrecision(2), queue ? Math.round(v * 100) / 100 : +v.toPrecision(3)), within = (v) => tidy(Math.min(v, data.top));
  return {
    field: data.field, at: data.x, ends: [within(least), within(data.top)], value: (x) => within(value(x)), on: (steps) => within(local.at + steps * step),
    takes: (x, y) => x >= x0 - NEAR && x <= x1 + NEAR && y >= top && y <= foot,
  };
}
