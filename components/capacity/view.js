// The card as one strip; what the weights leave, twice, on one scale; and below, how the counts depend on the real length.
const STRIP = 34, FAN = 30, BAR = 54, CURVE = 230;
let built;   // the player asks for the height first, and draws then

export function height(data, width, tools) {
  built = build(data, { ...tools, width });
  return built.height;
}

export function draw(picture) {
  picture.innerHTML = built.markup;
}

function build(data, tools) {
  const { colour: c, words, esc, measure } = tools, W = tools.width, narrow = W < 700, out = [];
  const r = (x) => Math.round(x * 100) / 100;
  const text = (x, y, said, more = '') => out.push(`<text x="${r(x)}" y="${r(y)}" ${more}>${esc(said)}</text>`);
  const rect = (x, y, w, h, fill, more = '') => w > 0 && out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}" ${more}/>`);
  const path = (d, tone, more = '') => out.push(`<path d="${d}" fill="none" stroke="${c(tone)}" ${more}/>`);
  const wide = (said, px, face = 'sans') => measure(said, px, face) * 1.04;
  const hatch = (id, ground, tone) => `<pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${ground}"/><path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="${tone}" stroke-opacity=".55" stroke-width="1.2"/></pattern>`;
  out.push(`<defs>${hatch('capacity-reserved', c('reserved'), c('muted'))}${hatch('capacity-refused', c('paper'), c('rejected'))}
    <pattern id="capacity-state" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${c('state')}"/><circle cx="3" cy="3" r="1.1" fill="${c('paper')}" fill-opacity=".7"/></pattern></defs>`);

  let y = card(0);
  for (const bar of data.bars) y = requests(bar, y);
  y = legend(y + 4);
  y = plot(y + 22);
  return { height: Math.ceil(y), markup: out.join('') };

  // ---- the card, and what is made larger below

  function card(top) {
    const { card } = data, at = top + 28, cut = card.weights * W;
    text(0, top + 18, card.name, 'style="font-size:16px;font-weight:650"');
    rect(0, at, cut, STRIP, c('weights'));
    rect(cut, at, W - cut, STRIP, c('free'));
    rect(0.5, at + 0.5, W - 1, STRIP - 1, 'none', `stroke="${c('muted')}"`);
    const label = (said, x, room, tone, end) => {
      if (wide(said, 14) + 16 > room) return false;
      text(x + (end ? -8 : 8), at + 22, said, `style="font-weight:600;fill:${c(tone)}" ${end ? 'text-anchor="end"' : ''}`);
      return true;
    };
    const inside = [label(card.weights_label, 0, cut, 'paper'), label(card.free_label, cut, W - cut, 'ink')];
    let below = at + STRIP;
    path(`M${r(cut + 0.5)} ${below}L0.5 ${below + FAN}M${W - 0.5} ${below}V${below + FAN}`, 'ghost');
    out.push(`<path d="M${r(cut)} ${below}L0 ${below + FAN}H${W}V${below}Z" fill="${c('free')}" fill-opacity=".5"/>`);
    const corner = inside[0] ? card.memory_label : `${card.weights_label} · ${card.memory_label}`;
    if (wide(card.name, 16) * 1.06 + wide(corner, 13) + 12 < W) text(W, top + 18, corner, 'class="small muted" text-anchor="end"');
    if (!inside[1]) text(W, below + 20, card.free_label, 'class="small" text-anchor="end" style="font-weight:600"');
    return below + FAN;
  }

  // ---- equal requests side by side

  function requests(bar, top) {
    const tone = bar.n ? 'kv' : 'rejected', name = bar.name, size = 30;
    rect(0, top, W, 1, c('hairline'));
    text(0, top + 26, name, 'style="font-size:16px;font-weight:650"');
    const figure = `class="figure" style="font-size:${size}px;font-weight:600;letter-spacing:-.02em;fill:${c(tone)}"`;
    const facts = `${bar.size} · ${bar.share}`;
    let at = top;
    if (narrow) {
      text(0, top + 47, bar.more, 'class="small muted"');
      text(0, top + 84, bar.count, figure);
      const beside = wide(bar.count, size, 'figures') + 8;
      text(beside, top + 70, bar.unit, 'class="small"');
      text(beside, top + 87, facts, 'class="small muted"');
      at = top + 98;
    } else {
      text(wide(name, 16) * 1.05 + 12, top + 26, bar.more, 'class="small muted"');
      const beside = Math.max(wide(bar.unit, 14), wide(facts, 13)) + 12;
      text(W - beside - 2, top + 36, bar.count, `${figure} text-anchor="end"`);
      text(W - beside + 8, top + 21, bar.unit);
      text(W - beside + 8, top + 39, facts, 'class="small muted"');
      at = top + 52;
    }
    rect(0, at, W, BAR, c('free'));
    const step = bar.each * W, used = bar.n * step;
    if (!bar.n) {
      rect(0, at, W, BAR, 'url(#capacity-refused)');
    } else if (step >= 60) for (let i = 0; i < bar.n; i++) lying(i * step, at, step, bar.parts);
    else standing(at, step, bar);
    rect(0.5, at + 0.5, W - 1, BAR - 1, 'none', `stroke="${c('muted')}"`);
    const room = W - used, under = !bar.n || wide(bar.left, 13) + 18 > room;
    if (under) text(bar.n ? W : 0, at + BAR + 18, bar.left, `class="small" ${bar.n ? 'text-anchor="end"' : ''} style="fill:${c(bar.n ? 'muted' : 'rejected')};font-weight:${bar.n ? 400 : 600}"`);
    else text(used + 10, at + BAR / 2 + 5, bar.left, 'class="small muted"');
    return at + BAR + (under ? 30 : 14);
  }

  // A wide slice: from left to right state, what is written, what is reserved.
  function lying(x, at, w, parts) {
    let from = x;
    for (const [i, part] of parts.entries()) {
      rect(from, at, part * w, BAR, fills()[i]);
      from += part * w;
    }
    rect(x + 0.75, at + 0.75, w - 1.5, BAR - 1.5, 'none', `stroke="${c('kv')}" stroke-width="1.5"`);
  }

  // Many thin ones: the same parts from the bottom up, and a line between two where there is room for it.
  function standing(at, step, bar) {
    const used = bar.n * step;
    let floor = at + BAR;
    for (const [i, part] of bar.parts.entries()) {
      floor -= part * BAR;
      rect(0, floor, used, part * BAR, fills()[i]);
    }
    let d = '';
    if (step >= 4) for (let i = 1; i <= bar.n; i++) d += `M${r(i * step)} ${at}v${BAR}`;
    if (d) path(d, 'paper', `stroke-width="${step > 9 ? 1.5 : 1}"`);
  }

  function fills() { return ['url(#capacity-state)', c('kv'), 'url(#capacity-reserved)']; }

  function legend(top) {
    const entries = [['written', c('kv'), 'kv'], ...(data.has_state ? [['state', 'url(#capacity-state)', 'state']] : []), ['unwritten', 'url(#capacity-reserved)', 'kv'], ['free', c('free'), 'muted']];
    let x = 0, at = top + 14;
    for (const [name, fill, edge] of entries) {
      const said = words(name), w = 20 + wide(said, 13) + 20;
      if (x + w - 20 > W) { x = 0; at += 22; }
      rect(x + 0.5, at - 10.5, 12, 12, fill, `stroke="${c(edge)}"`);
      text(x + 20, at, said, 'class="small muted"');
      x += w;
    }
    return at + 6;
  }

  // ---- against the real length

  function plot(top) {
    const it = data.plot, left = Math.max(...it.y_ticks.map(([, label]) => wide(label, 13, 'figures'))) + 12, right = W - 12, head = top + 78, floor = head + CURVE - 40;
    const along = (v, [low, high]) => (Math.log(v) - Math.log(low)) / (Math.log(high) - Math.log(low));
    const X = (n) => left + along(n, it.x) * (right - left), Y = (n) => floor - along(n, it.y) * (floor - head);
    rect(0, top, W, 1, c('hairline'));
    text(0, top + 26, words('plot'), 'style="font-size:16px;font-weight:650"');
    text(0, top + 46, words('y'), 'class="small muted"');
    for (const [n, label] of it.y_ticks) {
      path(`M${r(left)} ${r(Y(n))}H${r(right)}`, 'grid');
      text(left - 8, Y(n) + 5, label, 'class="small figure muted" text-anchor="end"');
    }
    const every = Math.ceil(it.x_ticks.length / Math.max(2, Math.floor((right - left) / 72)));
    it.x_ticks.forEach(([n, label], i) => {
      if ((it.x_ticks.length - 1 - i) % every) return;
      path(`M${r(X(n))} ${r(floor)}v5`, 'muted');
      text(Math.min(X(n), W - wide(label, 13, 'figures') / 2), floor + 20, label, 'class="small figure muted" text-anchor="middle"');
    });
    path(`M${r(left)} ${r(floor)}H${r(right)}`, 'muted');
    text(right, floor + 42, words('x'), 'class="small muted" text-anchor="end"');
    const line = (points) => points.map(([n, v], i) => `${i ? 'L' : 'M'}${r(X(n))} ${r(Y(v))}`).join('');
    const halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:5px;stroke-linejoin:round`;
    if (it.ghost.length > 1) path(line(it.ghost), 'ghost', 'stroke-width="1.5" stroke-dasharray="4 3"');
    if (it.reserved) {
      path(`M${r(left)} ${r(Y(it.reserved))}H${r(right)}`, 'kv', 'stroke-width="2" stroke-dasharray="7 4"');
      const under = Y(it.reserved) + 24 < floor;   // above it the curve comes down
      text(left + 10, Y(it.reserved) + (under ? 19 : -8), it.reserved_label, `class="small" style="fill:${c('kv')};font-weight:600;${halo}"`);
    }
    if (it.paged.length > 1) path(line(it.paged), 'kv', 'stroke-width="3" stroke-linejoin="round"');
    const free = X(it.here[0]) - left > 30 + wide(it.paged_label, 13) || !it.here[1], named = it.paged[free ? 0 : Math.floor(it.paged.length * 0.6)];
    if (named) text(X(named[0]) + 10, Y(named[1]) - 10, it.paged_label, `class="small" style="fill:${c('kv')};font-weight:600;${halo}"`);
    if (it.was && String(it.was) !== String(it.here)) out.push(`<circle cx="${r(X(it.was[0]))}" cy="${r(Y(it.was[1]))}" r="5" fill="${c('paper')}" stroke="${c('muted')}" stroke-width="1.5" stroke-dasharray="3 2"/>`);
    const [n, v] = it.here;
    if (v) {
      const x = X(n), fits = (said) => x + 14 + wide(said, 14) * 1.05 < right;   // right of the point the falling curve leaves room
      const said = fits(it.here_label) || x > (left + right) / 2 ? it.here_label : it.here_short, end = !fits(said);
      path(`M${r(x)} ${r(floor)}V${r(Y(v))}`, 'kv', 'stroke-width="1.2" stroke-dasharray="2 3"');
      out.push(`<circle cx="${r(x)}" cy="${r(Y(v))}" r="5.5" fill="${c('kv')}" stroke="${c('paper')}" stroke-width="1.5"/>`);
      text(x + (end ? -10 : 10), Y(v) + (end ? 22 : -12), said, `text-anchor="${end ? 'end' : 'start'}" style="font-weight:650;${halo}"`);
    }
    return floor + 50;
  }
}
