// Throughput of the card over the time that each reader waits, with the batch along the curves; beside it both kinds of waiting over the batch.
const SETTLED_MS = 250, ANSWERED_MS = 3000, NEAR = 36, FOOT = 46, HEAD = 30, RING = 10;
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => (w > 0 && h > 0 ? `<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}" ${more}/>` : '');
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const path = (d, tone, more = '') => (d ? `<path d="${d}" fill="none" stroke="${tone}" ${more}/>` : '');
const thread = (points) => points.map(([x, y], i) => `${i ? 'L' : 'M'}${r(x)} ${r(y)}`).join('');
const strong = 'font-weight:650';

// 2,304 · 64.6 · 0.219
function short(v) {
  if (!v) return '0';
  const whole = Math.floor(Math.log10(Math.abs(v))) + 1;
  return whole >= 3 ? Math.round(v).toLocaleString('en-US') : v.toFixed(Math.max(0, 3 - whole));
}
const seconds = (v) => (v < 0.9995 ? `${short(1e3 * v)} ms` : `${short(v)} s`);
const rate = (v) => `${short(v)} token/s`;

function ticks(most, wanted) {
  const rough = most / wanted, power = 10 ** Math.floor(Math.log10(rough)), step = power * [1, 2, 2.5, 5, 10].find((s) => s * power >= rough * 0.999);
  return Array.from({ length: Math.floor(most / step * 1.0001) + 1 }, (_, i) => +(i * step).toPrecision(10));
}

function plan(data, width) {
  const two = width >= 760, gap = 40, side = two ? Math.max(250, width * 0.27) : width, w = two ? width - side - gap : width, h = two ? 540 : 440;
  const panel = two ? (h - 24) / 2 : 190;
  return { two, w, h, side: [0, 1].map((n) => (two ? { x: w + gap, y: n * (panel + 24), w: side, h: panel } : { x: 0, y: h + 20 + n * (panel + 20), w: width, h: panel })), height: two ? h : h + 2 * (panel + 20) + 4 };
}

export const height = (data, width) => plan(data, width).height;

export function draw(svg, data, t, tools) {
  const { local } = tools, last = data.sizes.length - 1, p = plan(data, tools.width);
  if (local.data !== data) {   // a hand on the ring comes first, and what it asked for last before an answer to something earlier
    const late = local.sent && data.asked !== local.sent && performance.now() < local.until;
    Object.assign(local, { data, at: local.moving || late ? local.at : data.at, sent: late ? local.sent : null });
  }
  const at = local.at ?? last, refused = local.at === null, curves = [['ideal', data.ideal], ...(data.real ? [['real', data.real]] : [])];
  const points = Object.fromEntries(curves.map(([name, it]) => [name, it.step.map((s, i) => [s, data.sizes[i] / s])]));
  const main = data.real ? 'real' : 'ideal', it = { data, p, tools, at, refused, curves, points, main, halo: `paint-order:stroke;stroke:${tools.colour('paper')};stroke-width:5px;stroke-linejoin:round` };
  const plane = scale(it);
  svg.innerHTML = defs(tools.colour) + frontier(it, plane) + p.side.map((box, n) => waiting(it, box, n ? 'first' : 'step')).join('');
  hands(svg, it, plane);
}

function defs(c) {
  const lines = (id, tone, d, more) => `<pattern id="${id}" width="7" height="7" patternUnits="userSpaceOnUse">${more}<path d="${d}" stroke="${tone}" stroke-opacity=".38" stroke-width="1"/></pattern>`;
  return `<defs>${lines('frontier-late', c('rejected'), 'M-1 1L1 -1M0 7L7 0M6 8L8 6', `<rect width="7" height="7" fill="${c('rejected')}" fill-opacity=".05"/>`)}${lines('frontier-full', c('muted'), 'M-1 6L1 8M0 0L7 7M6 -1L8 1', `<rect width="7" height="7" fill="${c('reserved')}" fill-opacity=".45"/>`)}</defs>`;
}

// ---- the plane of waiting and throughput

function scale({ data, p, tools, at, points, curves, main }) {
  const end = Math.max(...curves.map(([name, it]) => points[name].at(-1)[0] * (1 + it.error))), alone = points[main][0][0];
  // A curve that goes on for seconds is cut where targets and choice no longer need it.
  let most = Math.min(end * 1.04, Math.max(2.6 * data.tpot, 2.2 * alone, 1.5 * points[main][at][0]));
  if (data.tpot < 1.5 * most) most = Math.max(most, data.tpot * 1.08);
  most *= p.two ? 1.24 : 1.12;
  const inside = curves.flatMap(([name, it]) => points[name].filter(([s]) => s / (1 + it.error) <= most).map(([, v]) => v * (1 + it.error)));
  const high = Math.max(...inside) * 1.14, yTicks = ticks(high, p.two ? 5 : 4);
  const left = 12 + Math.max(...yTicks.map((v) => tools.measure(v.toLocaleString('en-US'), 13, 'figures'))) * 1.04, right = p.w - 2, top = HEAD + 54, floor = p.h - FOOT;
  return { most, high, yTicks, left, right, top, floor, cut: end > most, X: (s) => left + (s / most) * (right - left), Y: (v) => floor - (v / high) * (floor - top) };
}

function frontier(it, plane) {
  const { data, tools, points, curves, main, at, refused, halo, p } = it, c = tools.colour, { X, Y, left, right, top, floor, most, high } = plane;
  const unit = most < 1 ? ['ms', 1e3] : ['s', 1];
  let out = `<clipPath id="frontier-plane"><rect x="${r(left)}" y="${r(top)}" width="${r(Math.max(0, right - left))}" height="${r(Math.max(0, floor - top))}"/></clipPath>`;
  for (const v of plane.yTicks) out += path(`M${r(left)} ${r(Y(v))}H${r(right)}`, c('grid')) + text(left - 8, Y(v) + 4.5, v.toLocaleString('en-US'), 'class="small figure muted" text-anchor="end"');
  for (const v of ticks(most * unit[1], p.two ? 7 : 5)) out += path(`M${r(X(v / unit[1]))} ${r(floor)}v4`, c('muted')) + text(X(v / unit[1]), floor + 19, v.toLocaleString('en-US'), `class="small figure muted" text-anchor="${X(v / unit[1]) > right - 14 ? 'end' : 'middle'}"`);
  out += text(0, 16, tools.words('y'), 'class="small"') + text(right, floor + 40, tools.words('x', { unit: unit[0] }), 'class="small" text-anchor="end"');

  // What is ruled out: beyond memory, batch = time × throughput is too large; right of the target a token takes too long.
  let under = '', over = '';
  const shown = data.tpot <= most;
  if (data.none) under += rect(left, top, right - left, floor - top, 'url(#frontier-late)');
  else if (shown) under += rect(X(data.tpot), top, right - X(data.tpot), floor - top, 'url(#frontier-late)');
  const wall = data.fits ? Array.from({ length: 61 }, (_, i) => data.fits / high * (most * high / data.fits) ** (i / 60)).map((s) => [X(s), Y(data.fits / s)]) : [], walled = data.fits && data.fits / high < most;
  if (walled) under += `<path d="${thread(wall)}L${r(right)} ${top}Z" fill="${c('paper')}"/><path d="${thread(wall)}L${r(right)} ${top}Z" fill="url(#frontier-full)"/>` + path(thread(wall), c('muted'), 'stroke-width="1.5"');

  if (data.ghost) over += path(thread(data.ghost.map(([s, v]) => [X(s), Y(v)])), c('ghost'), 'stroke-width="1.5"');
  for (const i of data.real ? data.marked : []) {   // the same batch on both curves: batch = time × throughput in between
    const [a, b] = [points.ideal[i][0], points.real[i][0]];
    over += path(thread(Array.from({ length: 13 }, (_, k) => a + (b - a) * k / 12).map((s) => [X(s), Y(data.sizes[i] / s)])), c('ghost'), 'stroke-width="1"');
  }
  for (const [name, curve] of curves) {
    const tone = c(name === 'real' ? 'decode' : 'bound'), style = name === 'real' ? 'stroke-width="3" stroke-linejoin="round" stroke-linecap="round"' : 'stroke-width="2" stroke-dasharray="6 4"';
    if (curve.error) {
      const edge = (factor) => points[name].map(([s, v]) => [X(s * factor), Y(v / factor)]);   // the error as a factor, up and down
      over += `<path d="${thread([...edge(1 / (1 + curve.error)), ...edge(1 + curve.error).reverse()])}Z" fill="${tone}" fill-opacity=".15"/>`;
    }
    const good = curve.good.lastIndexOf(true);
    over += path(thread(points[name].slice(Math.max(0, good)).map(([s, v]) => [X(s), Y(v)])), tone, `${style} stroke-opacity=".4"`) + path(thread(points[name].slice(0, good + 1).map(([s, v]) => [X(s), Y(v)])), tone, style);
    for (const i of data.marked) over += `<circle cx="${r(X(points[name][i][0]))}" cy="${r(Y(points[name][i][1]))}" r="${name === 'real' ? 3.5 : 3}" fill="${tone}"/>`;
  }
  if (data.was) over += `<circle cx="${r(X(data.was[0]))}" cy="${r(Y(data.was[1]))}" r="5.5" fill="none" stroke="${c('ghost')}" stroke-width="2"/>`;
  if (shown) over += path(`M${r(X(data.tpot))} ${top}V${floor}`, c('rejected'), 'stroke-width="1.5" stroke-dasharray="2 3"');
  const here = points[main][at];
  if (!refused) over += path(`M${r(left)} ${r(Y(here[1]))}H${r(X(here[0]))}V${floor}`, c('decode'), 'stroke-width="1" stroke-dasharray="2 4"');
  out += `<g clip-path="url(#frontier-plane)">${under}${over}</g>` + path(`M${r(left)} ${top}V${floor}H${r(right)}`, c('hairline'));
  return out + labels(it, plane, walled, shown);
}

// The most important first; one that would stand on another is left out.
function labels({ data, tools, points, curves, main, at, refused, halo, p }, { X, Y, left, right, top, floor, most, high }, walled, shown) {
  const c = tools.colour, taken = [];
  let out = '';
  const free = (box) => box.x >= left - 1 && box.x + box.w <= right + 1 && box.y >= top - 4 && box.y + box.h <= floor + 2 && !taken.some((o) => box.x < o.x + o.w && o.x < box.x + box.w && box.y < o.y + o.h && o.y < box.y + box.h);
  // lines: [text, style]; the block stands right of x (1), left of it (-1); y is the baseline of the first
  const put = (x, y, lines, side, must = false) => {
    const w = Math.max(...lines.map(([said, style = '']) => tools.measure(said, /13/.test(style) ? 13 : 14) * 1.08)), box = { x: side > 0 ? x - 2 : x - w - 2, y: y - 13, w: w + 4, h: 17 * lines.length };
    if (!must && !free(box)) return false;
    taken.push(box);
    out += lines.map(([said, style = ''], n) => text(x, y + 17 * n, tools.esc(said), `${side < 0 ? 'text-anchor="end"' : ''} style="${style};${halo}"`)).join('');
    return true;
  };
  const either = (...places) => places.some(([x, y, lines, side]) => put(x, y, lines, side)), small = 'font-size:13px';
  const ringed = points[main][at], ring = [X(ringed[0]), Y(ringed[1])];
  taken.push({ x: ring[0] - RING, y: ring[1] - RING, w: 2 * RING, h: 2 * RING }, ...(refused ? [] : [{ x: left, y: ring[1] - 3, w: ring[0] - left, h: 6 }]));
  for (const [name, curve] of curves) if (curve.best !== null && (curve.best !== at || refused || name !== main)) {
    const [x, y] = [X(points[name][curve.best][0]), Y(points[name][curve.best][1])];
    taken.push({ x: x - 7, y: y - 7, w: 14, h: 14 });
    out += star(x, y, c(name === main ? 'accepted' : 'bound'), c('paper'));
  }
  const hint = tools.local.touched ? [] : [[tools.words('drag'), `${small};fill:${c('accent')}`]];

  message();

  // the chosen batch on both curves
  const n = tools.number(data.sizes[at]);
  if (refused) {
    if (hint.length) either([ring[0] + 16, ring[1] + 20, hint, 1], [right - 4, ring[1] + 28, hint, -1]);
  } else {
    const tone = `fill:${c(main === 'real' ? 'decode' : 'ink')}`, said = [[tools.words('together', { n }), strong], [seconds(ringed[0]), `${strong};${tone}`], [rate(ringed[1]), `${strong};${tone}`], ...hint];
    const brief = [[tools.words('together', { n }), strong], [seconds(ringed[0]), `${strong};${tone}`], [rate(ringed[1]), `${strong};${tone}`]];
    either([ring[0] + 16, ring[1] + 2, said, 1], [ring[0] + 14, ring[1] + 24, said, 1], [right - 4, ring[1] + 34, said, -1], [right - 4, ring[1] + 34, brief, -1], [ring[0] + 16, ring[1] - 30, brief, 1], [ring[0] - 16, ring[1] - 40, brief, -1], [ring[0] - 14, ring[1] - 8, brief.slice(0, 1), -1], [ring[0] - 14, ring[1] + 24, brief.slice(0, 1), -1], [ring[0] + 14, ring[1] + 24, brief.slice(0, 1), 1]);
    if (data.real) {
      const [s, v] = points.ideal[at], bound = [[seconds(s), `${small};fill:${c('bound')}`], [rate(v), `${small};fill:${c('bound')}`]];
      if (s <= most) either([X(s) - 16, Y(v) - 4, bound, -1], [X(s) - 16, Y(v) + 14, bound, -1]);
    }
  }
  // the best within the targets, unless it is the chosen one
  const mine = data[main].best;
  if (data.none) put(left + 12, floor - 14, [[tools.words('none'), `font-size:15px;${strong};fill:${c('rejected')}`]], 1);
  else if (mine !== at || refused) {
    const [s, v] = points[main][mine], said = [[tools.words('best', { n: tools.number(data.sizes[mine]), rate: short(v) }), `${strong};fill:${c('accepted')}`]];
    const both = tools.wrap(said[0][0], 14, 150).map((line) => [line, said[0][1]]);
    either(...[said, both].flatMap((lines) => [12, 26, -6, -22].map((dy) => [X(s) + 14, Y(v) + dy, lines, 1])), ...(X(s) > right - 170 ? [[right - 4, Y(v) + 30, both, -1]] : []), [X(s) - 14, Y(v) - 12, both, -1], [X(s) - 14, Y(v) - 30, both, -1]);
  }
  // the wall, the target
  if (walled) {
    const lines = data.wall.flatMap((line, i) => tools.wrap(line, 13, p.two ? 300 : (right - left) * 0.5).map((part) => [part, `${small};${i ? '' : strong}`]));
    put(right - 6, top + 16, lines, -1);
  }
  const target = tools.wrap(data.tpot_label, 13, p.two ? 200 : Math.max(76, right - X(data.tpot) - 12)).map((line) => [line, `${small};${strong};fill:${c('rejected')}`]);
  if (shown) either([X(data.tpot) + 8, floor - 10 - 17 * (target.length - 1), target, 1], [X(data.tpot) - 8, floor - 10 - 17 * (target.length - 1), target, -1]);
  else put(right - 6, floor - 12, [[`${data.tpot_label} ${tools.words('off')}`, `${small};fill:${c('rejected')}`]], -1);
  // sizes along the curve, and names of the curves, where they have room on their open side
  for (const i of data.marked) {
    const [s, v] = points.ideal[i];
    if (s <= most && (i !== at || refused)) put(X(s) - 9, Y(v) + 4, [[tools.number(data.sizes[i]), `${small};fill:${c('muted')};font-family:var(--lab-figures)`]], -1);
  }
  const name = (which, said, tone, ...tries) => {
    const seen = points[which].filter(([s, v]) => s <= most && v <= high), lines = said.split(/(?<=，)|(?<=,) /).flatMap((part) => tools.wrap(part, 13, p.two ? 170 : 92)).map((line) => [line, `${small};${strong};fill:${c(tone)}`]);
    tries.some(([side, shares]) => shares.some((share) => {
      const [s, v] = seen[Math.round(share * (seen.length - 1))];
      return put(X(s) + side * (side < 0 ? 36 : 20), Y(v) + (side < 0 ? 5 : 12), lines, side);
    }));
  };
  const low = [0.2, 0.28, 0.36, 0.12, 0.5, 0.6, 0.7, 0.8, 0.9];
  name('ideal', data.names[0], 'bound', [-1, [0.72, 0.6, 0.84, 0.45, 0.3]], [1, data.real ? low.toReversed() : low]);
  if (data.real) name('real', data.names[1], 'decode', [1, low], [-1, [0.9, 0.7]]);
  return out;

  // More in all, slower for each: both against one alone, above the plane.
  function message() {
    const px = p.two ? 22 : 17, block = (x, figure, said, tone) => {
      out += text(x, 32 + px, figure, `class="figure" style="font-size:${px}px;${strong};letter-spacing:-.02em${tone ? `;fill:${c(tone)}` : ''}"`) + text(x, 49 + px, tools.esc(said), 'class="small muted"');
    };
    if (refused) return block(0, tools.esc(tools.words('refused', { n: tools.number(data.asked) })), data.wall[1], 'rejected');
    const figures = (axis) => pair(curves.map(([name]) => `×${short(points[name][at][axis] / points[name][0][axis])}`), curves, c);
    block(0, figures(1), tools.words('more'));
    block(p.two ? 240 : p.w / 2, figures(0), tools.words('slower'));
  }
}

// One figure for each curve, in its colour.
const pair = (figures, curves, c) => figures.map((figure, i) => `<tspan style="fill:${c(curves[i][0] === 'real' ? 'decode' : 'bound')}">${figure}</tspan>`).join(' | ');

const star = (x, y, fill, edge) => `<path d="M${r(x)} ${r(y - 8.5)}l2.5 5.5 6 .6 -4.5 4 1.3 5.9 -5.3 -3.1 -5.3 3.1 1.3 -5.9 -4.5 -4 6 -.6z" fill="${fill}" stroke="${edge}" stroke-width="1.2"/>`;

// ---- both kinds of waiting over the batch

function across(data, box) {
  const log = data.sizes.at(-1) > 128, last = data.sizes.at(-1), to = (n) => (last === 1 ? 0.5 : log ? Math.log(n) / Math.log(last) : (n - 1) / (last - 1)), left = box.x + 44, right = box.x + box.w - 14;
  return { log, left, right, X: (n) => left + to(n) * (right - left) };
}

function waiting({ data, tools, curves, main, at, refused, halo }, box, what) {
  const c = tools.colour, { X, left, right, log } = across(data, box), top = box.y + HEAD, floor = box.y + box.h - FOOT + 2, target = what === 'step' ? data.tpot : data.ttft, off = (curve) => (what === 'step' ? curve.error : curve.first_error);
  const highest = Math.max(...curves.map(([, curve]) => curve[what].at(-1) * (1 + off(curve)))), low = Math.max(...curves.map(([, curve]) => curve[what][at]));
  let most = Math.min(highest, Math.max(3 * target, 1.5 * low)) * 1.08;
  most = target < 2.2 * most ? Math.max(most, target * 1.25) : most * 1.2;   // room for its name above
  const unit = most < 1 ? ['ms', 1e3] : ['s', 1], Y = (v) => floor - (v / most) * (floor - top), id = `frontier-${what}`;
  let out = `<clipPath id="${id}"><rect x="${r(left)}" y="${r(top)}" width="${r(Math.max(0, right - left))}" height="${r(Math.max(0, floor - top))}"/></clipPath>` + text(box.x, box.y + 16, tools.words(what), `style="font-size:14px;${strong}"`);
  for (const v of ticks(most * unit[1], 4)) out += path(`M${r(left)} ${r(Y(v / unit[1]))}H${r(right)}`, c('grid')) + text(left - 7, Y(v / unit[1]) + 4.5, v.toLocaleString('en-US'), 'class="small figure muted" text-anchor="end"');
  const last = data.sizes.at(-1), named = log ? [1, 10, 100, 1000, 10000].filter((n) => n <= last) : [1, ...ticks(last, 4).filter((n) => n > 1 && n < last * 0.9 && Number.isInteger(n)), last];
  for (const n of named) out += text(X(n), floor + 18, tools.number(n), `class="small figure muted" text-anchor="middle"`);
  out += text(right, floor + 38, tools.words(log ? 'batch_log' : 'batch'), 'class="small muted" text-anchor="end"');
  let inside = target <= most ? rect(left, top, right - left, Y(target) - top, 'url(#frontier-late)') + path(`M${r(left)} ${r(Y(target))}H${r(right)}`, c('rejected'), 'stroke-width="1.5" stroke-dasharray="2 3"') : '';
  for (const [name, curve] of curves) {
    const tone = c(name === 'real' ? 'decode' : 'bound'), line = (factor) => curve[what].map((v, i) => [X(data.sizes[i]), Y(v * factor)]), e = off(curve);
    if (e) inside += `<path d="${thread([...line(1 / (1 + e)), ...line(1 + e).reverse()])}Z" fill="${tone}" fill-opacity=".15"/>`;
    inside += path(thread(line(1)), tone, name === 'real' ? 'stroke-width="2.5" stroke-linejoin="round"' : 'stroke-width="1.8" stroke-dasharray="6 4"');
  }
  if (!refused) {
    inside += path(`M${r(X(data.sizes[at]))} ${floor}V${top}`, c('decode'), 'stroke-width="1" stroke-dasharray="2 4"');
  }
  out += `<g clip-path="url(#${id})">${inside}</g>` + path(`M${r(left)} ${r(floor)}H${r(right)}`, c('hairline'));
  const said = what === 'step' ? data.tpot_label : data.ttft_label, style = (tone) => `style="fill:${c(tone)};font-weight:600;${halo}"`;
  if (target > most) out += text(right, top + 11, `${tools.esc(said)} ↑`, `class="small" text-anchor="end" ${style('rejected')}`);
  else {   // on the target's line or above it, where no curve comes
    const w = tools.measure(said, 13) * 1.08, clear = ([x, y]) => y - 13 > top - 3 && y < floor && curves.every(([, curve]) => !curve[what].some((v, i) => X(data.sizes[i]) > x - 4 && X(data.sizes[i]) < x + w + 4 && Y(v) > y - 18 && Y(v) < y + 8));
    const near = Y(target), places = [[left + 6, top + 15], [right - w, top + 15], [left + 6, near - 6], [right - w, near - 6], [right - w, near + 16], [left + 6, near + 16]].filter(([, y]) => y < near - 4 || y > near + 12);
    const [x, y] = places.find(clear) ?? places[0];
    out += text(x, y, tools.esc(said), `class="small" ${style('rejected')}`);
  }
  if (refused) return out;
  for (const [name, curve] of curves) if (Y(curve[what][at]) >= top) out += `<circle cx="${r(X(data.sizes[at]))}" cy="${r(Y(curve[what][at]))}" r="${name === main ? 5 : 3.5}" fill="${c(name === 'real' ? 'decode' : 'bound')}" stroke="${c('paper')}" stroke-width="1.5"/>`;
  const shown = pair(curves.map(([, curve]) => short(curve[what][at] * unit[1])), curves, c);
  out += text(box.x + box.w - 2, box.y + 16, `${shown} ${unit[0]}`, `class="figure" text-anchor="end" style="font-size:14px;${strong}"`);
  return out;
}

// ---- the ring, by hand or arrow keys: the picture shows each batch at once, and the parameter is set when it comes to rest

function hands(svg, { data, p, tools, at, refused, points, main }, plane) {
  const { local } = tools, c = tools.colour, { X, Y } = plane, last = data.sizes.length - 1, place = points[main][at], dot = [Math.min(X(place[0]), plane.right), Math.max(Y(place[1]), plane.top)];
  const said = refused ? tools.words('refused', { n: tools.number(data.asked) }) : `${tools.words('together', { n: tools.number(data.sizes[at]) })}: ${seconds(place[0])}, ${rate(place[1])}`;
  const core = refused ? `<circle cx="${r(dot[0])}" cy="${r(dot[1])}" r="6" fill="${c('paper')}" stroke="${c('rejected')}" stroke-width="2" pointer-events="none"/>` : `<circle cx="${r(dot[0])}" cy="${r(dot[1])}" r="6" fill="${c(main === 'real' ? 'decode' : 'ink')}" stroke="${c('paper')}" stroke-width="1.5" pointer-events="none"/>`;
  svg.insertAdjacentHTML('beforeend', `${core}<circle class="handle" cx="${r(dot[0])}" cy="${r(dot[1])}" r="${RING}" fill="transparent" stroke="${c('accent')}" stroke-width="2" style="cursor:grab" tabindex="0" role="slider" aria-valuemin="1" aria-valuemax="${data.sizes[last]}" aria-valuenow="${data.sizes[at]}" aria-valuetext="${tools.esc(said)}" aria-label="${tools.esc(said)}"/>`);
  svg.style.touchAction = 'pan-y';
  const handle = svg.querySelector('.handle'), spot = (event) => { const box = svg.getBoundingClientRect(); return [(event.clientX - box.left) * (tools.width / box.width), (event.clientY - box.top) * (tools.height / box.height)]; };
  const least = (distance) => data.sizes.reduce((best, _, i) => (distance(i) < distance(best) ? i : best), 0);
  const onCurve = ([x, y]) => least((i) => Math.hypot(X(points[main][i][0]) - x, Y(points[main][i][1]) - y));
  const found = ([x, y]) => {   // the batch that a spot stands for, null outside of the pictures
    if (x >= plane.left && x <= p.w && y >= 0 && y <= plane.floor + 6) return onCurve([x, y]);
    const box = p.side.find((one) => x >= one.x && x <= one.x + one.w && y >= one.y + HEAD && y <= one.y + one.h - FOOT + 8);
    return box ? least((i) => Math.abs(across(data, box).X(data.sizes[i]) - x)) : null;
  };
  const show = (i) => { if (i !== local.at) { local.at = i; local.touched = true; tools.redraw(); } };
  const settle = () => {
    const size = data.sizes[local.at];
    local.moving = false;
    if (local.at === null || size === (local.sent ?? local.data.asked)) return;
    Object.assign(local, { sent: size, until: performance.now() + ANSWERED_MS });
    tools.pick('batch', size);
  };

  if (local.focus) handle.focus({ preventScroll: true });   // each drawing makes a new one
  handle.onfocus = () => { local.focus = true; };
  handle.onblur = () => setTimeout(() => { if (handle.isConnected) local.focus = false; });
  handle.onkeydown = (event) => {
    const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, PageUp: at + 10, PageDown: at - 10, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    local.moving = true;
    clearTimeout(local.settling);
    local.settling = setTimeout(settle, SETTLED_MS);
    show(Math.min(last, Math.max(0, to)));
  };
  svg.onpointerdown = (event) => {
    const at = spot(event), i = found(at);
    if (i === null) return;
    local.from = { at: local.at, far: Math.hypot(at[0] - dot[0], at[1] - dot[1]) > NEAR && event.pointerType !== 'mouse' };   // a finger that begins elsewhere may want to scroll
    local.held = local.moving = true;
    svg.setPointerCapture(event.pointerId);
    if (local.from.far) return;
    event.preventDefault();
    show(i);
  };
  svg.onpointermove = (event) => { if (local.held && !local.from.far) { const i = found(spot(event)); if (i !== null) show(i); } };
  svg.onpointerup = (event) => {
    if (!local.held) return;
    const i = found(spot(event));
    local.held = false;
    if (i !== null) show(i);
    settle();
  };
  svg.onpointercancel = () => { if (local.held) { local.held = local.moving = false; show(local.from.at); } };
}
