// Three parts: "products", one token's vectors through the three products; "price", loss against numbers kept; "spectrum", energy left out.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const lines = (found, x, y, more = '') => found.map((line, n) => text(x, y + 17 * n, line, more)).join('');
const strong = 'font-weight="650"', small = 'class="small"', TALL = 46, LOST = 18, LINE = 17;
const halo = (c) => `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
const PARTS = { products: [planProducts, products], price: [planPrice, price], spectrum: [planSpectrum, spectrum] };

export const says = (data) => data.says;
export const height = (data, width, tools) => PARTS[data.part][0](data, width, tools).height;
export function draw(svg, data, t, tools) { PARTS[data.part][1](svg, data, PARTS[data.part][0](data, tools.width, tools), tools); }

// ---- one token through three products

function planProducts(data, width, tools) {
  const wide = width >= 700, gap = 36, box = wide ? (width - gap) / 2 : width, chips = [];
  let x = 0, y = 0;
  data.tokens.forEach((token, i) => {
    const shown = token.trim() ? token : '␣', w = tools.measure(shown, 14) * 1.06 + 18;
    if (x && x + w > width) { x = 0; y += 34; }
    chips.push({ i, shown, x, y, w });
    x += w + 6;
  });
  const top = y + 48;
  const label = (key, values, w) => tools.wrap(tools.words(key, values), 13, 0.94 * w);
  const h = label('h', { n: data.shapes.M }, width), c = label('c', { n: data.rank }, width);
  const halves = data.halves.map((half) => label('half', { name: half.name }, box));
  const cTop = top + h.length * LINE + TALL + 40, uTop = cTop + c.length * LINE + TALL + 44;
  const each = Math.max(...halves.map((l) => l.length)) * LINE + TALL + LOST + 34;
  return { wide, box, gap, chips, top, cTop, uTop, each, h, c, halves, height: uTop + each * (wide ? 1 : 2) };
}

function products(svg, data, p, tools) {
  const c = tools.colour, W = tools.width, all = data.all;
  let out = '';
  for (const chip of p.chips) {
    const on = chip.i === data.token;
    out += rect(chip.x + 0.5, chip.y + 0.5, chip.w - 1, 27, c(on ? 'accent' : 'panel'), `rx="4" stroke="${c(on ? 'accent' : 'hairline')}"`)
      + text(chip.x + chip.w / 2, chip.y + 19, tools.esc(chip.shown), `text-anchor="middle" style="fill:${c(on ? 'on-accent' : 'ink')}"`);
  }
  let y = p.top;
  out += lines(p.h, 0, y, small) + strip(data.hidden, 0, y + p.h.length * LINE - 6, W, TALL, c('muted'));
  out += product(12, y + p.h.length * LINE + TALL + 2, tools.words('down', { shape: data.shapes.down }), c);
  y = p.cTop;
  const top = y + p.c.length * LINE - 6, wide = W * data.rank / all;
  out += lines(p.c, 0, y, `${small} ${strong}`) + rect(0.5, top + 0.5, W - 1, TALL - 1, 'none', `stroke="${c('kv')}" stroke-dasharray="4 3" stroke-opacity=".7"`);
  out += rect(0, top, wide, TALL, c('kv'), 'fill-opacity=".13"') + strip(data.c, 0, top, wide, TALL, c('kv'));
  if (data.ghost) out += `<path d="M${r(W * data.ghost / all)} ${top - 3}v${TALL + 6}" stroke="${c('ghost')}" stroke-width="2"/>`;
  const room = W - wide, words = tools.words('all', { n: all }), need = tools.measure(words, 13) * 1.04 + 12;
  if (room > need) out += text(W - 8, top + TALL / 2 + 5, words, 'class="small muted" text-anchor="end"');
  const under = top + TALL + 8;
  p.halves.forEach((label, i) => {
    const half = data.halves[i], x = p.wide ? i * (p.box + p.gap) : 0, at = p.wide ? p.uTop : p.uTop + i * p.each;
    out += product(x + 12, p.wide || i === 0 ? under : at - 34, tools.words('up', { name: i ? 'W_uv' : 'W_uk', shape: data.shapes.up }), c);
    out += lines(label, x, at, small);
    const from = at + label.length * LINE - 6, most = Math.max(...half.values.map(Math.abs), ...half.again.map(Math.abs), 1e-9);
    out += strip(half.again, x, from, p.box, TALL, c('kv'), most) + outline(half.values, x, from, p.box, TALL, c('ink'), most);
    const off = half.values.map((v, n) => Math.abs(v - half.again[n])), step = p.box / off.length;
    out += `<path d="${off.map((v, n) => `M${r(x + (n + 0.5) * step)} ${r(from + TALL + 4)}v${r(Math.min(1, v / most) * LOST)}`).join('')}" stroke="${c('rejected')}" stroke-width="${r(Math.max(0.9, 0.7 * step))}" fill="none"/>`;
    out += text(x + p.box, from + TALL + LOST + 12, tools.words('error', { error: half.error }), `${small} text-anchor="end" style="fill:${c('rejected')};${halo(c)}"`);
  });
  svg.innerHTML = out;
  svg.onclick = (event) => {
    const b = svg.getBoundingClientRect(), x = event.clientX - b.left, y = event.clientY - b.top;
    const hit = p.chips.find((chip) => x >= chip.x && x < chip.x + chip.w && y >= chip.y && y < chip.y + 28);
    if (hit && hit.i !== data.token) tools.pick('token', hit.i);
  };
}

function product(x, y, words, c) {   // an arrow downwards, and the matrix it stands for
  return `<path d="M${x} ${y + 3}v17m-4 -5l4 5l4 -5" fill="none" stroke="${c('weights')}" stroke-width="1.6"/>` + text(x + 14, y + 17, words, `${small} style="fill:${c('weights')}"`);
}

function strip(values, x, y, w, h, tone, most = Math.max(...values.map(Math.abs), 1e-9)) {
  const step = w / values.length, zero = y + h / 2;
  return `<path d="${values.map((v, n) => `M${r(x + (n + 0.5) * step)} ${r(zero)}v${r(-v / most * h / 2)}`).join('')}" stroke="${tone}" stroke-width="${r(Math.max(0.9, 0.72 * step))}" fill="none"/>`
    + `<path d="M${r(x)} ${r(zero)}h${r(w)}" stroke="${tone}" stroke-opacity=".5"/>`;
}

function outline(values, x, y, w, h, tone, most) {
  const step = w / values.length, zero = y + h / 2;
  return `<path d="${values.map((v, n) => `${n ? 'V' : `M${r(x)} `}${r(zero - v / most * h / 2)}h${r(step)}`).join('')}" fill="none" stroke="${tone}" stroke-width="1" stroke-opacity=".8"/>`;
}

// ---- loss against numbers kept

function planPrice(data, width, tools) {
  const title = tools.wrap(tools.words('price'), 14, 0.94 * width), tall = width >= 700 ? 280 : 250;
  return { title, left: 60, top: 24 + 18 * title.length, tall, height: 24 + 18 * title.length + tall + 48 };
}

function price(svg, data, p, tools) {
  const c = tools.colour, W = tools.width, f = (v) => Math.log10(1 + Math.max(0, v) / data.linear), high = f(data.most * 1.3);
  const X = (n) => p.left + 10 + (n / data.end) * (W - p.left - 24), Y = (v) => p.top + p.tall * (1 - f(v) / high);
  let out = lines(p.title, 0, 16, strong) + rect(p.left, Y(data.floor), W - p.left, p.top + p.tall - Y(data.floor), c('accepted'), 'fill-opacity=".11"')
    + `<path d="M${p.left} ${r(Y(data.floor))}H${W}" stroke="${c('accepted')}" stroke-width="1.2" stroke-dasharray="5 4"/>` + text(W - 4, Y(data.floor) + (W < 480 ? 16 : -6), data.floorText, `${small} text-anchor="end" style="fill:${c('accepted')};${halo(c)}"`);
  for (const v of data.ticks) out += rect(p.left, Y(v), W - p.left, 1, c(v ? 'grid' : 'muted')) + text(p.left - 8, Y(v) + 5, v ? `+${v}` : '0', 'class="small figure muted" text-anchor="end"');
  for (const n of [0, 64, 128, 192, 256, 384, 512]) out += text(X(n), p.top + p.tall + 19, n, 'class="small figure muted" text-anchor="middle"');
  out += text(W, p.top + p.tall + 40, tools.words('xprice'), `${small} text-anchor="end"`);
  const at = data.points.find((d) => d.chosen);
  out += `<path d="M${r(X(data.rank))} ${r(at ? Y(at.y) : p.top)}V${p.top + p.tall}" stroke="${c('accent')}" stroke-width="1.4" stroke-dasharray="3 4"/>`;
  const of = (id) => data.points.filter((d) => d.id === id), latent = [...of('latent'), ...of('gqa')];
  out += `<path d="${latent.map((d, i) => `${i ? 'L' : 'M'}${r(X(d.x))} ${r(Y(d.y))}`).join('')}" fill="none" stroke="${c('kv')}" stroke-width="1.6"/>`;
  for (const d of data.points) {
    const x = X(d.x), y = Y(d.y), bar = Y(d.low) - Y(d.high) > 9 ? `<path d="M${r(x)} ${r(Y(d.high))}V${r(Y(d.low))}" stroke="${c('ink')}" stroke-width="1.2"/>` : '';
    const mark = { latent: `<circle cx="${r(x)}" cy="${r(y)}" r="5" fill="${c('kv')}"/>`, weights: `<circle cx="${r(x)}" cy="${r(y)}" r="4.5" fill="${c('paper')}" stroke="${c('kv')}" stroke-width="1.8"/>`,
      mqa: rect(x - 5.5, y - 5.5, 11, 11, c('rejected')), gqa: `<path d="M${r(x)} ${r(y - 7)}l7 7l-7 7l-7 -7z" fill="${c('ink')}"/>`, mha: `<path d="M${r(x)} ${r(y - 6)}l6 11h-12z" fill="${c('ink')}"/>` }[d.id];
    out += (d.chosen ? `<circle cx="${r(x)}" cy="${r(y)}" r="11" fill="${c('accent-soft')}" stroke="${c('accent')}" stroke-width="2"/>` : '') + bar + mark;
  }
  out += named(data, of, X, Y, p, W, tools);
  svg.innerHTML = out;
  svg.onclick = (event) => {
    const b = svg.getBoundingClientRect(), near = data.points.filter((d) => d.pick).map((d) => [Math.hypot(event.clientX - b.left - X(d.x), event.clientY - b.top - Y(d.y)), d.x]).sort((a, z) => a[0] - z[0])[0];
    if (near && near[0] < 18 && near[1] !== data.rank) tools.pick('rank', near[1]);
  };
}

function named(data, of, X, Y, p, W, tools) {
  const c = tools.colour, write = (x, y, words, anchor = 'start', tone = 'ink') => text(x, y, words, `${small} text-anchor="${anchor}" style="fill:${c(tone)};${halo(c)}"`);
  const last = (d, words, y = -12) => { const x = Math.min(X(d.x), W - tools.measure(words, 13) * 1.05 / 2 - 2); return write(x, Y(d.y) + y, words, 'middle'); };
  const mqa = of('mqa')[0], chosen = data.points.find((d) => d.chosen && d.id !== 'gqa'), low = of('latent').find((d) => d.x === 96), plain = of('weights')[0];
  let out = write(X(mqa.x) + 11, Y(mqa.y) + 5, `${tools.words('mqa')} <tspan class="figure">${mqa.text}</tspan>`, 'start', 'rejected');
  out += last(of('gqa')[0], tools.words('gqa'), W < 480 ? -52 : -12) + last(of('mha')[0], tools.words('mha'), W < 480 ? -30 : -12);
  if (low) out += write(X(low.x) + 12, Y(low.y) - 6, tools.words('latent'), 'start', 'kv');
  if (plain) out += write(X(plain.x) + 10, Y(plain.y) - 2, tools.words('weights'), 'start', 'kv');
  if (chosen && chosen.id !== 'mqa') out += write(X(chosen.x) - 14, Y(chosen.y) + 18, `<tspan class="figure" ${strong}>${chosen.text}</tspan>`, 'end');
  return out;
}

// ---- energy left out

function planSpectrum(data, width, tools) {
  const title = tools.wrap(tools.words('spectrum', { layer: data.layer }), 14, 0.94 * width);
  return { title, left: 60, top: 22 + 18 * title.length, tall: 170, height: 22 + 18 * title.length + 170 + 48 };
}

function spectrum(svg, data, p, tools) {
  const c = tools.colour, W = tools.width, low = 1e-4, n = data.left.length, X = (k) => p.left + 10 + (k / n) * (W - p.left - 24), Y = (v) => p.top + p.tall * Math.min(1, Math.log10(Math.max(v, low)) / Math.log10(low));
  let out = lines(p.title, 0, 16, strong);
  for (const [v, label] of [[1, '100%'], [0.1, '10%'], [0.01, '1%'], [0.001, '0.1%'], [1e-4, '0.01%']]) out += rect(p.left, Y(v), W - p.left, 1, c('grid')) + text(p.left - 8, Y(v) + 5, label, 'class="small figure muted" text-anchor="end"');
  for (const k of [0, 64, 128, 192, 256]) out += text(X(k), p.top + p.tall + 19, k, 'class="small figure muted" text-anchor="middle"');
  out += text(W, p.top + p.tall + 40, tools.words('xspectrum'), `${small} text-anchor="end"`);
  const path = data.left.filter((v) => v >= low).map((v, i) => `${i ? 'L' : `M${r(X(0))} ${r(Y(1))}L`}${r(X(i + 1))} ${r(Y(v))}`).join('');
  out += `<path d="${path}V${p.top + p.tall}H${r(X(0))}Z" fill="${c('rejected')}" fill-opacity=".1"/><path d="${path}" fill="none" stroke="${c('rejected')}" stroke-width="2"/>`;
  const x = X(data.rank), y = Y(data.left[data.rank - 1]), words = tools.words('here', { rank: data.rank, text: data.text }), left = x + tools.measure(words, 13) * 1.06 + 14 > W;
  out += `<path d="M${r(x)} ${p.top}V${p.top + p.tall}" stroke="${c('accent')}" stroke-width="1.4" stroke-dasharray="3 4"/><circle cx="${r(x)}" cy="${r(y)}" r="5" fill="${c('rejected')}"/>`;
  svg.innerHTML = out + text(x + (left ? -10 : 10), Math.max(p.top + 14, y - 8), words, `class="small figure" ${strong} text-anchor="${left ? 'end' : 'start'}" style="${halo(c)}"`);
}
