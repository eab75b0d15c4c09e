// Above, a row for each request over time. Below, every request between the two targets, and how TTFT and the gaps between chunks are spread.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const lines = (found, x, y, more = '') => found.map((line, n) => text(x, y + 19 * n, line, more)).join('');
const path = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const strong = 'font-weight="650"';
const ROWS = 312, PLOT = 176, AXIS = 44, MARK = 14, PALE = 0.6;

function plan(data, width, tools) {
  const wide = width >= 820, row = clamp(ROWS / data.n, 2, 16), left = Math.max(26, tools.measure(String(data.n), 13, 'figures') + 12);
  const title = tools.wrap(tools.words('timeline'), 15, 0.96 * width), key = legend(data, width, tools), top = 12 + 19 * title.length + 22 * key.height + 8;
  const bottom = top + data.n * row, hint = bottom + AXIS + 22, below = hint + (wide ? 34 : 58);
  const gap = 40, box = wide ? (width - 2 * gap) / 3 : width, names = ['scatter', 'ttft', 'gap'].map((name) => tools.wrap(tools.words(name, data), 15, 0.96 * box));
  const head = 30 + 19 * Math.max(...names.map((n) => n.length)), tall = head + PLOT + AXIS;
  const boxes = names.map((said, i) => ({ said, x: wide ? i * (box + gap) : 0, y: below + (wide ? 0 : i * (tall + 22)), w: box, head: wide ? head : 30 + 19 * said.length }));
  const last = boxes[2];
  return { wide, row, left, title, key, top, bottom, hint, boxes, height: last.y + last.head + PLOT + AXIS + 8 };
}

export const height = (data, width, tools) => plan(data, width, tools).height;

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), W = tools.width, places = new Map();
  svg.innerHTML = lines(p.title, 0, 16, `style="font-size:15px" ${strong}`) + legendDrawn(p, tools) + timeline(data, p, places, tools)
    + scatter(data, p.boxes[0], places, tools) + curve(data, 0, p.boxes[1], tools) + curve(data, 1, p.boxes[2], tools);
  follow(svg, data, p, places, tools);
}

export function walk(along, data, t, tools) {
  const all = data.rows.map((row) => row[0]), at = all.indexOf(tools.local.at), next = at < 0 ? (along > 0 ? 0 : all.length - 1) : (at + along + all.length) % all.length;
  tools.local.at = all[next] ?? null;
  return all.length ? data.rows[next][6] : tools.words('none');
}

// ---- scales

function nice(v) {   // the next round number
  const ten = 10 ** Math.floor(Math.log10(v));
  return ten * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((s) => s * ten >= v * (1 - 1e-9));
}

function ticks(high, room) {
  const least = high / Math.max(1, room), ten = 10 ** Math.floor(Math.log10(least)), step = ten * [1, 2, 5, 10].find((s) => s * ten >= least * (1 - 1e-9));
  return Array.from({ length: Math.floor(high / step + 1e-6) + 1 }, (_, i) => i * step);
}

const unit = (high) => (high < 1 ? { name: 'ms', scale: 1e3 } : { name: 's', scale: 1 });
const figure = (v) => String(+v.toPrecision(6));

// As far as there is something, and the target where it is near enough to be worth the room.
function reach(values, target) {
  const most = Math.max(...values, 0);
  return (target <= 3 * most || !most ? Math.max(most, target) : most) * 1.1;
}

// ---- requests over time

function verdict(kind, x, y, size, c) {
  if (kind === 'good') return `<circle cx="${r(x)}" cy="${r(y)}" r="${r(size)}" fill="${c('accepted')}"/>`;
  if (kind === 'missed') return `<circle cx="${r(x)}" cy="${r(y)}" r="${r(size - 0.7)}" fill="${c('paper')}" stroke="${c('rejected')}" stroke-width="1.6"/>`;
  return path(`M${r(x - size)} ${r(y - size)}l${r(2 * size)} ${r(2 * size)}M${r(x + size)} ${r(y - size)}l${r(-2 * size)} ${r(2 * size)}`, c('rejected'), 'stroke-width="2"');
}

function legend(data, width, tools) {
  const kinds = new Set(data.rows.map((row) => row[4])), items = [];
  let x = 0, line = 0;
  for (const name of ['wait', 'write', 'running', 'good', 'missed', 'failed']) {
    if ((name === 'failed' || name === 'running') && !kinds.has(name)) continue;
    const w = tools.measure(tools.words(name), 13) * 1.06 + 44;
    if (x && x + w - 22 > width) { x = 0; line++; }
    items.push({ name, x, line });
    x += w;
  }
  return { items, height: line + 1 };
}

function legendDrawn(p, tools) {
  const c = tools.colour, y0 = 12 + 19 * p.title.length + 10;
  return p.key.items.map(({ name, x, line }) => {
    const y = y0 + 22 * line, said = text(x + 22, y + 4.5, tools.words(name), 'class="small"');
    if (name === 'wait') return rect(x + 0.75, y - 5.25, 14, 10.5, c('prefill'), `stroke="${c('ink')}" stroke-opacity=".55" stroke-width="1"`) + said;
    if (name === 'running') return rect(x, y - 6, 7.5, 12, c('prefill'), `fill-opacity="${PALE}"`) + rect(x + 7.5, y - 6, 7.5, 12, c('decode'), `fill-opacity="${PALE}"`) + said;
    if (name === 'write') return rect(x, y - 6, 15, 12, c('decode')) + path(`M${x + 5} ${y - 6}v12M${x + 10} ${y - 6}v12`, c('paper'), 'stroke-width="1.4"') + said;
    return verdict(name, x + 8, y, 5, c) + said;
  }).join('');
}

function timeline(data, p, places, tools) {
  const c = tools.colour, W = tools.width, end = data.running ? nice(Math.max(data.seconds, 0.2) * 1.04) : Math.max(data.seconds, 1e-3), X = (s) => p.left + (s / end) * (W - p.left - MARK);
  const tall = p.row - (p.row >= 6 ? 2.5 : p.row >= 3 ? 1 : 0), size = clamp(p.row / 2 - 1, 2, 4.2);
  let out = '', cuts = '';
  for (const s of ticks(end, (W - p.left) / 72)) {
    out += path(`M${r(X(s))} ${p.top - 4}V${r(p.bottom + 4)}`, c('grid')) + text(X(s), p.bottom + 20, figure(s), `class="small figure muted" text-anchor="${X(s) > W - 20 ? 'end' : 'middle'}"`);
  }
  out += text(W, p.bottom + 40, tools.words('seconds'), 'class="small" text-anchor="end"');
  const every = [1, 2, 5, 10, 20, 50, 100].find((step) => step * p.row >= 20) ?? 100;
  for (let n = 1; n <= data.n; n++) {
    if (n !== 1 && (n % every || (n - 1) * p.row < 18)) continue;
    out += text(p.left - 8, p.top + (n - 0.5) * p.row + 4.5, n, 'class="small figure muted" text-anchor="end"');
  }
  for (const [n, sent, first, last, kind, chunks] of data.rows) {
    const y = p.top + (n - 1) * p.row + (p.row - tall) / 2, stop = last ?? data.seconds, begins = first ?? stop, more = kind === 'running' ? `fill-opacity="${PALE}"` : '';
    if (kind === 'failed') {
      out += path(`M${r(X(sent))} ${r(y + tall / 2)}H${r(X(stop))}`, c('rejected'), 'stroke-width="1.4" stroke-dasharray="3 3"') + verdict(kind, X(stop) + size + 2, y + tall / 2, size * 0.9, c);
      continue;
    }
    out += rect(X(sent), y, X(begins) - X(sent), tall, c('prefill'), more);
    if (first !== null) out += rect(X(first), y, X(stop) - X(first), tall, c('decode'), more);
    if (tall >= 5) {
      let before = X(begins);
      for (const at of chunks) if (X(at) - before >= 3) { before = X(at); cuts += `M${r(before)} ${r(y)}v${r(tall)}`; }
    }
    if (kind !== 'running') out += verdict(kind, X(stop) + size + 2.5, y + tall / 2, size, c);
    places.set(n, { row: [X(sent), y - 1.5, X(stop) - X(sent), tall + 3] });
  }
  return out + path(cuts, c('paper'), 'stroke-width="1" stroke-opacity=".8"');
}

// ---- what lies under it

function frame(box, tools, X, high, u, name, count) {
  const c = tools.colour, top = box.y + box.head, bottom = top + PLOT;
  let out = lines(box.said, box.x, box.y + 14, `style="font-size:15px" ${strong}`);
  for (const v of ticks(high, count)) {
    const said = figure(v * u.scale), last = X(v) + tools.measure(said, 13, 'figures') / 2 > box.x + box.w;
    out += path(`M${r(X(v))} ${top}V${bottom + 4}`, c('grid')) + text(last ? box.x + box.w : X(v), bottom + 18, said, `class="small figure muted" text-anchor="${last ? 'end' : 'middle'}"`);
  }
  return out + text(box.x + box.w, bottom + 38, `${tools.words(name, { unit: u.name })} →`, 'class="small" text-anchor="end"');
}

// A target as a line with its name over the plot; one that is far out as an arrow.
function goal(target, label, X, high, box, tools) {
  const c = tools.colour, top = box.y + box.head, said = target <= high ? label : `${label} →`, w = tools.measure(said, 13) * 1.05, x = target <= high ? X(target) : box.x + box.w;
  const at = clamp(x - w / 2, box.x, box.x + box.w - w);
  return (target <= high ? path(`M${r(x)} ${top - 4}V${top + PLOT}`, c('ink'), 'stroke-width="1.5"') : '') + text(at, top - 11, said, 'class="small"');
}

function scatter(data, box, places, tools) {
  const c = tools.colour, top = box.y + box.head, bottom = top + PLOT, [ttft, tpot] = data.targets, xs = data.dots.map((d) => d[1]), ys = data.dots.map((d) => d[2]);
  if (!data.dots.length) return empty(box, tools);
  const wide = reach(xs, ttft), tall = reach(ys, tpot), ux = unit(wide), uy = unit(tall), marks = ticks(tall, 4);
  const left = box.x + Math.max(...marks.map((v) => tools.measure(figure(v * uy.scale), 13, 'figures'))) + 12, X = (v) => left + (v / wide) * (box.x + box.w - left - 6), Y = (v) => bottom - (v / tall) * PLOT;
  let out = frame(box, tools, X, wide, ux, 'scatter_x', (box.w - 40) / 64);
  out += rect(X(0), Y(Math.min(tall, tpot)), X(Math.min(wide, ttft)) - X(0), bottom - Y(Math.min(tall, tpot)), c('accepted'), 'fill-opacity=".1"');
  for (const v of marks) out += path(`M${r(left)} ${r(Y(v))}H${r(box.x + box.w)}`, c('grid')) + text(left - 8, Y(v) + 4.5, figure(v * uy.scale), 'class="small figure muted" text-anchor="end"');
  if (data.ghost) {
    if (data.ghost[0] <= wide) out += path(`M${r(X(data.ghost[0]))} ${top}V${bottom}`, c('ghost'), 'stroke-width="1.5" stroke-dasharray="4 4"');
    if (data.ghost[1] <= tall) out += path(`M${r(left)} ${r(Y(data.ghost[1]))}H${r(box.x + box.w)}`, c('ghost'), 'stroke-width="1.5" stroke-dasharray="4 4"');
  }
  const halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`, high = tpot <= tall, said = tools.words('tpot_target', { label: data.labels[1] });
  if (high) out += path(`M${r(left)} ${r(Y(tpot))}H${r(box.x + box.w)}`, c('ink'), 'stroke-width="1.5"');
  for (const [n, x, y, good] of data.dots) {
    out += verdict(good ? 'good' : 'missed', X(x), Y(y), 4.6, c);
    places.set(n, { ...places.get(n), dot: [X(x), Y(y)] });
  }
  const [x, y, anchor] = place(data.dots.map((d) => [X(d[1]), Y(d[2])]), high ? Y(tpot) : top - 2, ttft <= wide ? X(ttft) : null, left, box.x + box.w, top, bottom, tools.measure(said, 13) * 1.05 + (high ? 0 : 14));
  out += text(x, y, high ? said : `${said} ↑`, `class="small" text-anchor="${anchor}" style="${halo}"`);
  return out + text(box.x, bottom + 38, `${tools.words('scatter_y', { unit: uy.name })} ↑`, 'class="small"') + goal(ttft, tools.words('ttft_target', { label: data.labels[0] }), X, wide, box, tools);
}

// Where the name of a level line hides least: at either end, over or under it.
function place(dots, level, upright, left, right, top, bottom, w) {
  const spots = [[right, 'end'], [left + 6, 'start']].flatMap(([x, anchor]) => [-6, 17].map((off) => ({ x, y: level + off, anchor, from: anchor === 'end' ? x - w : x })));
  for (const spot of spots) {
    spot.hides = dots.filter(([x, y]) => x > spot.from - 6 && x < spot.from + w + 6 && y > spot.y - 17 && y < spot.y + 8).length + (upright !== null && upright > spot.from - 4 && upright < spot.from + w + 4 ? 0.5 : 0);
    if (spot.y - 12 < top || spot.y > bottom) spot.hides += 1000;
  }
  const best = spots.reduce((a, b) => (b.hides < a.hides ? b : a));
  return [best.x, best.y, best.anchor];
}

function curve(data, which, box, tools) {
  const c = tools.colour, { points, marks, n } = data.curves[which], top = box.y + box.head, bottom = top + PLOT, tone = c(which ? 'decode' : 'prefill'), target = data.targets[which], name = which ? 'gap' : 'ttft';
  if (!n) return empty(box, tools);
  const most = points.at(-1)[0], cut = marks.find(([name]) => name === 'p99')?.[2] * 1.4, long = cut < most / 1.4;   // a few very long ones would squeeze the others into a corner
  const high = reach([long ? cut : most], target), u = unit(high), left = box.x + 46, X = (v) => left + (v / high) * (box.x + box.w - left - 6), Y = (share) => bottom - share * PLOT;
  let out = frame(box, tools, X, high, u, `${name}_x`, (box.w - 46) / 64), d = `M${r(X(0))} ${r(bottom)}`;
  for (const share of [0, 0.5, 0.9, 1]) out += path(`M${r(left)} ${r(Y(share))}H${r(box.x + box.w)}`, c('grid')) + (share ? text(left - 8, Y(share) + 4.5, `${100 * share}%`, 'class="small figure muted" text-anchor="end"') : '');
  for (const [i, [v, share]] of points.entries()) {
    if (v > high) {
      const [v0, s0] = points[i - 1];
      d += `L${r(X(high))} ${r(Y(s0 + ((share - s0) * (high - v0)) / (v - v0)))}`;
      break;
    }
    d += `L${r(X(v))} ${r(Y(share))}`;
  }
  d += `H${r(box.x + box.w)}`;
  out += `<path d="${d}V${r(bottom)}Z" fill="${tone}" fill-opacity=".1"/>` + path(d, tone, 'stroke-width="2" stroke-linejoin="round"');
  out += goal(target, tools.words(which ? 'tpot_target' : 'ttft_target', { label: data.labels[which] }), X, high, box, tools);
  for (const [, share, v] of marks) out += `<circle cx="${r(X(v))}" cy="${r(Y(share))}" r="4.2" fill="${tone}" stroke="${c('paper')}" stroke-width="1.5"/>`;
  const halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`, w = Math.max(...marks.map((m) => tools.measure(m[3], 13, 'figures'))) * 1.05 + 36;
  const median = X(marks[0][2]), right = box.x + box.w - 8 - median > w + 40, x = right ? box.x + box.w - 8 - w : left + 10, y = right ? bottom - 14 - 20 * (marks.length - 1) : top + 30;
  out += rect(x - 6, y - 16, w + 12, 20 * marks.length + 4, c('paper'), 'fill-opacity=".82" rx="3"');
  if (most > high) out += text(box.x + box.w, top + 36, tools.words('longest', { value: data.curves[which].longest }), `class="small muted" text-anchor="end" style="${halo}"`);
  marks.forEach(([p, , , said], i) => { out += text(x, y + 20 * i, p, `class="small figure muted" style="${halo}"`) + text(x + w, y + 20 * i, said, `class="small figure" text-anchor="end" style="font-weight:600;${halo}"`); });
  return out;
}

function empty(box, tools) {
  const c = tools.colour, top = box.y + box.head;
  return lines(box.said, box.x, box.y + 14, `style="font-size:15px" ${strong}`) + rect(box.x + 0.5, top + 0.5, box.w - 1, PLOT - 1, 'none', `stroke="${c('hairline')}"`) + text(box.x + box.w / 2, top + PLOT / 2 + 5, tools.words('none'), 'class="small muted" text-anchor="middle"');
}

// ---- the request that is pointed at, in both pictures

function follow(svg, data, p, places, tools) {
  const tips = new Map(data.rows.map((row) => [row[0], row[6]])), said = tools.el(svg, 'g'), ring = tools.el(svg, 'g', { 'pointer-events': 'none' });
  const show = (n) => {
    tools.local.at = n;
    said.innerHTML = tools.wrap(tips.get(n) ?? tools.words('hint'), 13, tools.width).slice(0, p.wide ? 2 : 3).map((line, i) => text(0, p.hint + 18 * i, tools.esc(line), `class="small ${tips.has(n) ? '' : 'muted'}"`)).join('');
    const place = places.get(n), c = tools.colour;
    ring.innerHTML = !place ? '' : rect(...place.row, 'none', `stroke="${c('ink')}" stroke-width="1.5"`) + (place.dot ? `<circle cx="${r(place.dot[0])}" cy="${r(place.dot[1])}" r="8" fill="none" stroke="${c('ink')}" stroke-width="1.5"/>` : '');
  };
  const find = (event) => {
    const box = svg.getBoundingClientRect(), zoom = svg.currentCSSZoom || 1, x = (event.clientX - box.left) / zoom, y = (event.clientY - box.top) / zoom;
    if (y >= p.top && y < p.bottom) return Math.floor((y - p.top) / p.row) + 1;
    const near = [...places].filter(([, at]) => at.dot).map(([n, at]) => [Math.hypot(at.dot[0] - x, at.dot[1] - y), n]).sort((a, b) => a[0] - b[0])[0];
    return near && near[0] < 14 ? near[1] : null;
  };
  svg.onpointermove = svg.onpointerdown = (event) => { const n = find(event); if (n !== null && n !== tools.local.at) show(n); };
  svg.onpointerleave = () => show(null);
  show(tips.has(tools.local.at) ? tools.local.at : null);
}
