// Two parts: "recall", likeness against pairs written and, for the chosen number, each pair by age; "bytes", a layer's cache against a layer's state.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const lines = (found, x, y, more = '') => found.map((line, n) => text(x, y + 18 * n, line, more)).join('');
const strong = 'font-weight="650"', small = 'class="small"', muted = 'class="small figure muted"';
const halo = (c) => `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
const LOOK = { additive: ['compute', '2 4'], delta: ['state', ''], softmax: ['kv', '8 4'] };
const PARTS = { recall: [planRecall, recall], bytes: [planBytes, bytes] };

export const says = (data) => data.says;
export const height = (data, width, tools) => PARTS[data.part][0](data, width, tools).height;
export function draw(svg, data, t, tools) { PARTS[data.part][1](svg, data, PARTS[data.part][0](data, tools.width, tools), tools); }

function planRecall(data, width, tools) {
  const wide = width >= 760, gap = 44, left = wide ? (width - gap) * 0.6 : width, right = wide ? (width - gap) * 0.4 : width;
  const one = tools.wrap(tools.words('recall'), 14, 0.94 * left), two = tools.wrap(tools.words('ages', { pairs: data.pairs }), 14, 0.94 * right);
  const top = 34 + 18 * Math.max(one.length, wide ? two.length : 0), tall = 250, first = top + tall + 46;
  return { wide, left, right, x2: wide ? left + gap : 0, one, two, top, tall, y2: wide ? 0 : first + 16, top2: wide ? top : first + 16 + 34 + 18 * two.length, height: wide ? first : first + 16 + 34 + 18 * two.length + 180 + 40 };
}

function recall(svg, data, p, tools) {
  const c = tools.colour, L = 40, last = data.curves[0].points.at(-1)[0], X = (n) => L + 8 + (Math.log2(n) / Math.log2(last)) * (p.left - L - 24), Y = (v) => p.top + p.tall * (1 - Math.max(0, v));
  let out = lines(p.one, 0, 16, strong);
  for (const v of [0, 0.25, 0.5, 0.75, 1]) out += rect(L, Y(v), p.left - L, 1, c(v ? 'grid' : 'muted')) + text(L - 8, Y(v) + 5, v, `${muted} text-anchor="end"`);
  for (const n of [1, 4, 16, 64, 256]) out += text(X(n), p.top + p.tall + 19, n, `${muted} text-anchor="middle"`);
  out += text(p.left, p.top + p.tall + 40, tools.words('xrecall'), `${small} text-anchor="end"`);
  out += `<path d="M${r(X(data.width))} ${p.top - 8}V${p.top + p.tall}" stroke="${c('muted')}" stroke-dasharray="2 3"/>` + text(X(data.width), p.top - 12, tools.words('width', { d: data.width }), `${muted} text-anchor="middle"`);
  out += `<path d="M${r(X(data.pairs))} ${p.top}V${p.top + p.tall}" stroke="${c('accent')}" stroke-width="1.4" stroke-dasharray="3 4"/>`;
  for (const curve of data.curves) {
    const [tone, dash] = LOOK[curve.rule], path = curve.points.map(([n, v], i) => `${i ? 'L' : 'M'}${r(X(n))} ${r(Y(v))}`).join(''), here = curve.points.find(([n]) => n === data.pairs);
    out += `<path d="${path}" fill="none" stroke="${c(tone)}" stroke-width="${curve.chosen ? 3 : 1.8}" stroke-dasharray="${dash}"/>`;
    if (here) out += `<circle cx="${r(X(here[0]))}" cy="${r(Y(here[1]))}" r="${curve.chosen ? 5.5 : 4}" fill="${curve.chosen ? c(tone) : c('paper')}" stroke="${c(tone)}" stroke-width="1.6"/>`;
  }
  out += key(data, X, Y, p, tools) + ages(data, p, tools);
  svg.innerHTML = out;
  svg.onclick = (event) => {
    const b = svg.getBoundingClientRect(), x = event.clientX - b.left, y = event.clientY - b.top;
    if (x > p.left || y < p.top || y > p.top + p.tall) return;
    const near = data.curves[0].points.map(([n]) => n).sort((a, z) => Math.abs(X(a) - x) - Math.abs(X(z) - x))[0];
    if (near !== data.pairs) tools.pick('pairs', near);
  };
}

function key(data, X, Y, p, tools) {   // names at the curves' left, one under the other, where they still lie together
  const c = tools.colour;
  return data.curves.map((curve, i) => {
    const [tone, dash] = LOOK[curve.rule], x = 54, y = p.top + p.tall - 62 + 20 * i;
    return `<path d="M${x} ${y - 5}h26" stroke="${c(tone)}" stroke-width="${curve.chosen ? 3 : 1.8}" stroke-dasharray="${dash}"/>` + text(x + 34, y, tools.words(curve.rule), `${small} ${curve.chosen ? strong : ''} style="fill:${c(tone)};${halo(c)}"`);
  }).join('');
}

function ages(data, p, tools) {
  const c = tools.colour, x = p.x2, w = p.right, tall = p.wide ? p.tall : 180, top = p.top2, step = w / data.ages.length, tone = c(LOOK[data.rule][0]);
  let out = lines(p.two, x, p.y2 + 16, strong);
  for (const v of [0.5, 1]) out += rect(x, top + tall * (1 - v), w, 1, c('grid'));
  data.ages.forEach((v, i) => { out += rect(x + i * step, top + tall * (1 - Math.max(0, v)), Math.max(0.8, step - (step > 4 ? 1 : 0)), tall * Math.max(0, v), tone, 'fill-opacity=".8"'); });
  out += rect(x, top + tall, w, 1, c('muted'));
  return out + text(x, top + tall + 19, tools.words('first'), `${small}`) + text(x + w, top + tall + 19, tools.words('last'), `${small} text-anchor="end"`);
}

function planBytes(data, width, tools) {
  const title = tools.wrap(tools.words('bytes'), 14, 0.94 * width);
  return { title, top: 26 + 18 * title.length, tall: 190, height: 26 + 18 * title.length + 190 + 48 };
}

function bytes(svg, data, p, tools) {
  const c = tools.colour, W = tools.width, L = 58, most = Math.max(data.each * data.end, 2.4 * data.state), X = (n) => L + (n / data.end) * (W - L - 12), Y = (b) => p.top + p.tall * (1 - b / most), mib = 1024 ** 2;
  let out = lines(p.title, 0, 16, strong);
  for (let v = 0; v * mib <= most; v += 4) out += rect(L, Y(v * mib), W - L, 1, c(v ? 'grid' : 'muted')) + text(L - 8, Y(v * mib) + 5, v ? `${v} MiB` : '0', `${muted} text-anchor="end"`);
  for (let n = 0; n <= data.end; n += 1024) out += text(Math.min(X(n), W - 18), p.top + p.tall + 19, n.toLocaleString('en-US'), `${muted} text-anchor="middle"`);
  out += text(W, p.top + p.tall + 40, tools.words('xbytes'), `${small} text-anchor="end"`);
  out += `<path d="M${X(0)} ${r(Y(0))}L${r(X(data.end))} ${r(Y(data.each * data.end))}" stroke="${c('kv')}" stroke-width="2.6"/>`;
  out += `<path d="M${X(0)} ${r(Y(data.state))}H${r(X(data.end))}" stroke="${c('state')}" stroke-width="2.6"/><path d="M${X(0)} ${r(Y(2 * data.state))}H${r(X(data.end))}" stroke="${c('state')}" stroke-width="1.6" stroke-dasharray="2 4"/>`;
  for (const [n, b, words] of [[data.held, data.state, 'held'], [data.moved, 2 * data.state, 'moved']]) {
    const said = tools.words(words, { n: n.toLocaleString('en-US') });
    out += `<circle cx="${r(X(n))}" cy="${r(Y(b))}" r="5" fill="${c('ink')}"/>` + text(X(n) - 8, Y(b) - 10, said, `${small} ${strong} text-anchor="${X(n) - tools.measure(said, 13) * 1.06 < L + 8 ? 'start' : 'end'}" style="${halo(c)}"`).replace(`x="${r(X(n) - 8)}"`, `x="${r(X(n) - tools.measure(said, 13) * 1.06 < L + 8 ? L + 8 : X(n) - 8)}"`);
  }
  out += text(W - 12, Y(data.state) + 18, tools.words('state'), `${small} text-anchor="end" style="fill:${c('state')};${halo(c)}"`) + text(W - 12, Y(2 * data.state) + 18, tools.words('twice'), `${small} text-anchor="end" style="fill:${c('state')};${halo(c)}"`);
  svg.innerHTML = out + text(X(data.end * 0.72) - 8, Y(data.each * data.end * 0.72) - 6, tools.words('full'), `${small} text-anchor="end" style="fill:${c('kv')};${halo(c)}"`);
}
