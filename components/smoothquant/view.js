// Left, what every channel reaches: activations up, weights down, before as a dashed outline. Right, the error at every α.
const SIDE = 128, CURVE = 236;

export function height(data, width, tools) { return build(data, { ...tools, width }).height; }

export function draw(svg, data, t, tools) {
  svg.innerHTML = build(data, tools).markup;
  svg.onclick = (event) => { const alpha = event.target.dataset?.alpha; if (alpha !== undefined) tools.pick('alpha', +alpha); };
}

export function says(data, t, tools) {
  const [after, before] = [data.sides[0].median[1], data.sides[0].median[0]];
  return tools.words('says', { matrix: data.matrix, n: data.channels.length, after: level(after), before: level(before), alpha: data.alpha, error: percent(data.errors[data.alphas.indexOf(data.alpha)]), plain: percent(data.plain), best: data.best });
}

const r = (x) => Math.round(x * 100) / 100;
const percent = (x) => (100 * x).toPrecision(3);
const level = (x) => (x < 10 ? x.toFixed(1) : Math.round(x));

function build(data, tools) {
  const { colour: c, words, esc, measure } = tools, W = tools.width, wide = W >= 760, out = [];
  const text = (x, y, said, more = '') => out.push(`<text x="${r(x)}" y="${r(y)}" ${more}>${esc(said)}</text>`);
  const rect = (x, y, w, h, fill, more = '') => h > 0.01 && w > 0 && out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}" ${more}/>`);
  const path = (d, tone, more = '') => out.push(`<path d="${d}" fill="none" stroke="${tone}" ${more}/>`);
  const strong = 'font-weight="650"', halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;

  const left = wide ? Math.round(W * 0.6) : W, bottom = bars(0, left);
  const end = wide ? curve(left + 56, 0, W - left - 56) : curve(0, bottom + 30, W);
  return { height: Math.max(bottom, end), markup: out.join('') };

  // ---- channels

  function bars(y, width) {
    const axis = 34, room = Math.max(40, width - axis), n = data.channels.length, per = Math.ceil(n / (room / 2)), count = Math.ceil(n / per), step = room / count;
    const most = (values) => Array.from({ length: count }, (_, b) => Math.max(...values.slice(b * per, (b + 1) * per)));
    const X = (b) => axis + b * step, top = y + 66, mid = top + SIDE, under = mid + 22, floor = under + SIDE;
    const sides = [['activations', 'compute', mid, -1], ['weights', 'weights', under, 1]];
    text(0, y + 18, words('activations'), `${strong} style="font-size:15px;fill:${c('compute')}"`);
    if (wide) text(measure(words('activations'), 15) * 1.1 + 12, y + 18, words('levels'), 'class="small muted"');
    key(width, y + 18);
    text(0, floor + 28, words('weights'), `${strong} style="font-size:15px;fill:${c('weights')}"`);
    sides.forEach(([, tone, base, sign], i) => {
      const Y = (v) => base + (sign * v * SIDE) / 127, after = most(data.sides[i].after), before = most(data.sides[i].before);
      for (const v of [0, 32, 64, 96, 127]) {
        rect(axis, Y(v) - 0.5, room, 1, c(v ? 'grid' : 'muted'), v ? '' : 'fill-opacity=".6"');
        if (v === 64 || v === 127) text(axis - 7, Y(v) + 4.5, v, 'class="small figure muted" text-anchor="end"');
      }
      after.forEach((v, b) => { const h = Math.abs(Y(v) - base); rect(X(b), sign < 0 ? base - h : base, Math.max(0.8, step - (step > 2.2 ? 0.7 : 0)), h, c(tone), 'fill-opacity=".78"'); });
      path(before.map((v, b) => `${b ? 'L' : 'M'}${r(X(b))} ${r(Y(v))}H${r(X(b) + step)}`).join(''), c('ink'), 'stroke-width="1.1" stroke-dasharray="3 2" stroke-opacity=".8"');
      const [was, is] = data.sides[i].median, said = words('median_both', { after: level(is), before: level(was) });
      path(`M${axis} ${r(Y(is))}H${width}`, c('ink'), 'stroke-width="1.6"');
      const at = sign < 0 ? Math.max(Y(is) - 8, top + 15) : Math.min(Y(is) + 18, floor - 5), w = measure(said, 13) * 1.08 + 10;
      rect(width - w, at - 14, w, 19, c('paper'), 'fill-opacity=".9" rx="2"');
      text(width - 5, at, said, `class="small" text-anchor="end" ${strong}`);
    });
    marked(X, step, per, y + 44, top, width);
    const names = [words(data.sorted ? 'channels_sorted' : 'channels', { n }), ...(per > 1 ? [words('per', { per })] : []), ...(wide ? [] : [words('levels')])], joined = names.join(data.sorted && tools.lang === 'zh' ? '；' : '; ');
    const beside = measure(words('weights'), 15) * 1.1 + 16 + measure(joined, 13) * 1.05 < width;
    if (beside) text(width, floor + 28, joined, 'class="small muted" text-anchor="end"');
    else names.forEach((name, i) => text(0, floor + 50 + 19 * i, name, 'class="small muted"'));
    return floor + (beside ? 36 : 36 + 20 * names.length);
  }

  function key(width, y) {
    const b = words('before'), a = words('after'), wb = measure(b, 13) * 1.05, wa = measure(a, 13) * 1.05;
    let x = width - wb;
    text(x, y, b, 'class="small muted"');
    path(`M${r(x - 26)} ${y - 4.5}h20`, c('ink'), 'stroke-width="1.1" stroke-dasharray="3 2"');
    x -= 26 + 18 + wa;
    text(x, y, a, 'class="small muted"');
    rect(x - 18, y - 10, 12, 11, c('compute'), 'fill-opacity=".78"');
  }

  // The planted channels, or the largest that the model has by itself.
  function marked(X, step, per, y, top, width) {
    const places = data.planted.length ? data.planted : [data.sides[0].before.reduce((best, v, i, all) => (v > all[best] ? i : best), 0)];
    const said = data.planted.length ? words('planted', { factor: data.factor }) : words('largest', { channel: data.channels[places[0]] });
    const xs = places.map((i) => X(Math.floor(i / per)) + step / 2), w = measure(said, 13) * 1.05;
    for (const x of xs) out.push(`<path d="M${r(x - 4.5)} ${y + 7}h9l-4.5 8z" fill="${c('ink')}"/>`);
    const at = Math.min(...xs) + 10, fits = Math.max(...xs) + 10 + w < width;
    text(data.sorted ? Math.max(...xs) + 10 : fits ? Math.max(...xs) + 10 : Math.max(w, Math.min(...xs) - 10), y + 15, said, `class="small" ${data.sorted || fits ? '' : 'text-anchor="end"'} style="${halo}"`);
    return at;
  }

  // ---- the error

  function curve(x, y, width) {
    const worst = Math.max(...data.errors), off = data.plain > 1.6 * worst, most = (off ? worst : Math.max(worst, data.plain)) * 1.12;
    const tick = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05].find((s) => most / s <= 6) ?? 0.1;
    const left = x + 52, right = x + width - 14, top = y + (wide ? 66 : 62), bottom = top + CURVE, X = (a) => left + a * (right - left), Y = (v) => bottom - (v / most) * CURVE;
    text(x, y + 18, words('curve'), `${strong} style="font-size:15px"`);
    for (let v = 0; v <= most; v += tick) {
      rect(left, Y(v) - 0.5, right - left, 1, c(v ? 'grid' : 'muted'), v ? '' : 'fill-opacity=".6"');
      text(left - 8, Y(v) + 4.5, `${r(100 * v)}%`, 'class="small figure muted" text-anchor="end"');
    }
    const best = data.alphas.indexOf(data.best), now = data.alphas.indexOf(data.alpha), least = data.best !== data.alpha && beside(words('best', { value: percent(data.errors[best]) }));
    const [first, last] = data.flat;
    rect(X(first), top, X(last) - X(first), CURVE, c('accepted'), 'fill-opacity=".09"');
    if (off) {
      text(x, top - 22, words('plain_off', { value: percent(data.plain) }), `class="small" ${strong} style="fill:${c('rejected')}"`);
      const at = Math.min(right - 8, x + measure(words('plain_off', { value: percent(data.plain) }), 13) * 1.1 + 12);
      out.push(`<path d="M${r(at)} ${top - 20}v-14m-4.5 5l4.5 -5.5l4.5 5.5" fill="none" stroke="${c('rejected')}" stroke-width="1.8"/>`);
    } else {
      path(`M${left} ${r(Y(data.plain))}H${right}`, c('rejected'), 'stroke-width="1.6" stroke-dasharray="6 4"');
      const said = words('plain', { value: percent(data.plain) }), w = measure(said, 13) * 1.1, level = Y(data.plain);
      const crossed = ([from, y]) => X(data.alpha) > from - 4 && X(data.alpha) < from + w + 4 && y > Y(data.errors[now]);
      const clear = ([from, y]) => Math.min(crossed([from, y]) ? 0 : 99, ...data.errors.map((v, i) => (X(data.alphas[i]) > from - 10 && X(data.alphas[i]) < from + w + 10 ? Math.abs(Y(v) - y + 5) : 99)));
      const spots = [left + 6, right - w].flatMap((from) => [[from, level - 7], [from, level + 18]]), [from, at] = spots.reduce((best, spot) => (clear(spot) > clear(best) + 1 ? spot : best));
      text(from, at, said, `class="small" ${strong} style="fill:${c('rejected')};${halo}"`);
      if (least && from < least.x + least.half + 6 && from + w > least.x - least.half - 6 && Math.abs(at - least.y) < 18) least.y = at + 18;
    }
    path(data.alphas.map((a, i) => `${i ? 'L' : 'M'}${r(X(a))} ${r(Y(data.errors[i]))}`).join(''), c('ink'), 'stroke-width="1.6" stroke-opacity=".55"');
    data.alphas.forEach((a, i) => out.push(`<circle cx="${r(X(a))}" cy="${r(Y(data.errors[i]))}" r="2.6" fill="${c('ink')}"/>`));
    out.push(`<circle cx="${r(X(data.best))}" cy="${r(Y(data.errors[best]))}" r="6" fill="none" stroke="${c('accepted')}" stroke-width="2"/>`);
    if (least) text(least.x, least.y, least.said, `class="small" text-anchor="middle" style="fill:${c('accepted')};${halo}"`);
    if (data.ghost !== null) out.push(`<circle cx="${r(X(data.ghost))}" cy="${r(Y(data.errors[data.alphas.indexOf(data.ghost)]))}" r="6" fill="none" stroke="${c('muted')}" stroke-width="1.6" stroke-dasharray="3 2"/>`);
    path(`M${r(X(data.alpha))} ${r(Y(data.errors[now]))}V${bottom}`, c('accent'), 'stroke-width="1.2" stroke-dasharray="2 3"');
    out.push(`<circle cx="${r(X(data.alpha))}" cy="${r(Y(data.errors[now]))}" r="6" fill="${c('accent')}" stroke="${c('paper')}" stroke-width="1.5"/>`);
    text(X(data.alpha) + (data.alpha > 0.5 ? -9 : 9), bottom - 14, words('chosen', { alpha: data.alpha, value: percent(data.errors[now]) }), `class="small" text-anchor="${data.alpha > 0.5 ? 'end' : 'start'}" style="fill:${c('accent')};${halo}" ${strong}`);
    for (const a of [0, 0.25, 0.5, 0.75, 1]) text(X(a), bottom + 19, a, 'class="small figure muted" text-anchor="middle"');
    text(left, bottom + 38, `← ${words('activations_end')}`, 'class="small muted"');
    text(right, bottom + 38, `${words('weights_end')} →`, 'class="small muted" text-anchor="end"');
    text(X(0.5), bottom + 38, words('alpha'), 'class="small" text-anchor="middle"');
    data.alphas.forEach((a) => rect(X(a) - (right - left) / 40, top, (right - left) / 20, CURVE + 22, 'transparent', `data-alpha="${a}" style="cursor:pointer"`));
    return bottom + 46;

    // Under the best α, on the side of the chosen one's line that has the room.
    function beside(said) {
      const half = measure(said, 13) * 0.53, line = X(data.alpha), rightward = data.best > data.alpha ? line + 8 + 2 * half <= right : line - 8 - 2 * half < left;
      const at = rightward ? Math.max(X(data.best), line + half + 8) : Math.min(X(data.best), line - half - 8);
      return { said, half, x: Math.min(right - half, Math.max(left + half, at)), y: Y(data.errors[best]) + 24 };
    }
  }
}
