// Above, the request's tokens. Below, the way in, and the circle that writes one token a turn; side roads are dashed.
export const rate = 1;
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const strong = 'font-weight="650"', CHIP = 46, CELL = 58, ROAD = 36, LINE = 24;

export function says(data, t, tools) { return data.moments[t].says + (data.road ? (tools.lang === 'zh' ? '' : ' ') + data.road : ''); }
export function label(data, t) { return data.cells[data.moments[t].cell].name; }

// Everything that does not depend on the step, so that nothing jumps while it plays.
function plan(data, W, tools) {
  const wide = W >= 720, chips = layChips(data, W, tools), boxes = {}, roads = {}, top = chips.height + 18;
  const lines = (w) => Math.max(...data.moments.map((m) => tools.wrap(m.says, 16, w).length));
  if (wide) {
    const gap = 30, edge = 11, cw = (W - 2 * edge - 3 * gap) / 4, x = [0, 1, 2, 3].map((n) => edge + n * (cw + gap)), a = top, s = a + CELL + 24, b = s + ROAD + 50, c = b + CELL + 66, d = c + CELL + 34;
    const put = (id, col, y) => { boxes[id] = { x: x[col], y, w: cw, h: CELL }; };
    ['tokenize', 'queue', 'blocks', 'prefill'].forEach((id, n) => put(id, n, a));
    ['weights', 'cache', 'logits'].forEach((id, n) => put(id, n, b));
    ['stop', 'append', 'sample'].forEach((id, n) => put(id, n, c));
    put('leave', 0, d);
    const road = (id, col, y, w) => { roads[id] = { x: x[col], y, w, h: ROAD }; };
    road('quantized', 0, s, cw);
    road('preempted', 1, s, cw);
    road('prefix', 2, s, cw);
    road('draft', 3, b + CELL + 33 - ROAD / 2, cw - 40);
    const panel = { x: x[1], y: d, w: W - x[1] - edge }, high = 40 + LINE * lines(panel.w - 20);
    return { W, wide, chips, boxes, roads, x, cw, gap, a, s, b, c, d, panel, height: d + Math.max(CELL, high) + 8 };
  }
  const side = 14, gap = 22, cw = (W - 2 * side - gap) / 2, x = [side, side + cw + gap], panel = { x: 0, y: top, w: W }, high = 40 + LINE * lines(W - 16);
  const a = top + high + 18, step = CELL + 24, b = a + 2 * step + 34, d = b + 3 * step, e = d + CELL + 40;
  const put = (id, col, y) => { boxes[id] = { x: x[col], y, w: cw, h: CELL }; };
  put('tokenize', 0, a); put('queue', 1, a); put('blocks', 0, a + step); put('prefill', 1, a + step);
  put('weights', 0, b); put('cache', 1, b); put('stop', 0, b + step); put('logits', 1, b + step); put('append', 0, b + 2 * step); put('sample', 1, b + 2 * step);
  put('leave', 0, d);
  data.roads.forEach((road, n) => { roads[road.id] = { x: x[n % 2], y: e + Math.floor(n / 2) * (ROAD + 10), w: cw, h: ROAD }; });
  return { W, wide, chips, boxes, roads, x, cw, gap, a, b, d, e, step, panel, height: e + 2 * (ROAD + 10) + 6 };
}

function layChips(data, W, tools) {
  const all = [], put = (kind, words, under, writes) => all.push({ kind, words, under, writes });
  if (data.prefix) put('prefix', tools.words('before', { n: data.prefix }), '', 0);
  for (const [piece, id] of data.tokens) put('prompt', piece, id, 0);
  data.writes.forEach((writes, n) => {
    if (n && writes > data.writes[n - 1] + 1) put('gap', '…', '', writes - 1);
    put('answer', n ? tools.words('nth', { k: data.later[n - 1] }) : data.answer[0], n ? '' : data.answer[1], writes);
  });
  let x = 0, y = 0;
  for (const chip of all) {
    chip.w = chip.kind === 'gap' ? 18 : Math.max(tools.measure(chip.words, 15), tools.measure(chip.under, 13, 'figures')) * 1.05 + 20;
    if (x && x + chip.w > W) { x = 0; y += CHIP + 8; }
    Object.assign(chip, { x, y });
    x += chip.w + 8;
  }
  return { all, height: y + CHIP };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), inside = tools.local.focus;
  svg.setAttribute('role', 'group');
  svg.innerHTML = markup(data, t, p, tools);
  listen(svg, data, t, tools);
  if (inside) svg.querySelector(inside === 'cell' ? '[aria-current]' : `[data-road="${inside}"]`)?.focus({ preventScroll: true });
}

function markup(data, t, p, tools) {
  const { colour: c, words, esc } = tools, now = data.moments[t], out = [];
  for (const chip of p.chips.all) {
    const there = chip.kind !== 'answer' && chip.kind !== 'gap' ? true : now.written >= chip.writes, tone = c(chip.kind === 'answer' ? 'decode' : 'prefill');
    if (chip.kind === 'gap') { out.push(text(chip.x + 9, chip.y + 28, '…', `text-anchor="middle" ${there ? '' : `style="fill:${c('ghost')}"`}`)); continue; }
    out.push(rect(chip.x + 0.5, chip.y + 0.5, chip.w - 1, CHIP - 1, there ? c('panel') : 'none', `rx="3" stroke="${there ? tone : c('ghost')}" stroke-width="${there ? 1.4 : 1}" ${there ? '' : 'stroke-dasharray="3 3"'}`));
    out.push(text(chip.x + chip.w / 2, chip.y + (chip.under ? 20 : 28), esc(chip.words), `text-anchor="middle" style="font-size:15px;${there ? '' : `fill:${c('muted')}`}"`));
    if (chip.under) out.push(text(chip.x + chip.w / 2, chip.y + 38, chip.under, 'class="small figure muted" text-anchor="middle"'));
  }
  out.push(ways(data, p, tools));
  if (p.wide) {
    out.push(rect(0.5, p.b - 16, p.x[2] + p.cw + 10, p.c + CELL - p.b + 32, 'none', `rx="6" stroke="${c('hairline')}"`));
    const x = p.x[1] + p.cw / 2, y = p.b + CELL + 28;
    out.push(text(x, y, words('written', { k: tools.number(now.written), new: data.new }), `text-anchor="middle" ${strong}`), text(x, y + 20, words('clock', { clock: now.clock }), 'class="small muted" text-anchor="middle"'));
    out.push(text(p.x[2] + p.cw + 10, p.b - 24, words('circle'), 'class="small muted" text-anchor="end"'));
  } else {
    const y = p.b - 24;
    out.push(text(p.x[0], y, words('written', { k: tools.number(now.written), new: data.new }), strong), text(p.x[1] + p.cw, y, words('clock', { clock: now.clock }), 'class="small muted" text-anchor="end"'));
    out.push(text(p.x[0], p.e - 12, words('roads'), 'class="small muted"'));
  }
  for (const [id, cell] of Object.entries(data.cells)) out.push(box(id, cell, p.boxes[id], now, tools));
  for (const road of data.roads) out.push(side(road, p.roads[road.id], data.side === road.id, tools));
  const b = p.panel, tone = c(data.cells[now.cell].tone);
  out.push(rect(b.x, b.y, 3, p.wide ? p.height - b.y - 8 : 40 + LINE * tools.wrap(now.says, 16, b.w - 16).length - 8, tone), text(b.x + 14, b.y + 18, esc(now.label), strong));
  tools.wrap(now.says, 16, b.w - 20).forEach((line, n) => out.push(text(b.x + 14, b.y + 44 + LINE * n, esc(line), 'style="font-size:16px"')));
  return out.join('');
}

function box(id, cell, b, now, tools) {
  const { colour: c, esc } = tools, here = now.cell === id, tone = c(cell.tone), figure = now.figures[id] ?? cell.figure;
  return `<g class="pick ${here && tools.moved ? 'here' : ''}" data-cell="${id}" role="button" tabindex="${here ? 0 : -1}" ${here ? 'aria-current="step"' : ''} aria-label="${esc(`${cell.name}, ${figure}`)}">`
    + rect(b.x, b.y, b.w, b.h, c(here ? 'accent-soft' : 'paper'), `class="edge" rx="3" stroke="${here ? c('ink') : c('muted')}" stroke-width="${here ? 2.5 : 1}"`) + rect(b.x + 2, b.y + 2, 4, b.h - 4, tone)
    + text(b.x + 16, b.y + 24, esc(cell.name), `style="font-size:15px" ${strong}`) + text(b.x + 16, b.y + 46, esc(figure), `class="figure" style="font-size:${tools.measure(figure, 14, 'figures') > b.w - 24 ? 13 : 14}px;fill:${tone}"`) + '</g>';
}

function side(road, b, open, tools) {
  const { colour: c, esc } = tools, tone = c(road.tone);
  return `<g class="pick" data-road="${road.id}" role="button" tabindex="0" aria-pressed="${open}" aria-label="${esc(road.name)}">`
    + rect(b.x, b.y, b.w, b.h, c(open ? 'accent-soft' : 'paper'), `class="edge" rx="18" stroke="${tone}" stroke-width="${open ? 2.5 : 1.3}" ${open ? '' : 'stroke-dasharray="5 4"'}`)
    + text(b.x + b.w / 2, b.y + 23, esc(road.name), `text-anchor="middle" style="font-size:14px" ${open ? strong : ''}`) + '</g>';
}

// Arrows between the cells, and dashed ones to the side roads.
function ways(data, p, tools) {
  const { colour: c } = tools, B = p.boxes, out = [];
  const heads = { r: 'm-6 -4l6 4l-6 4', l: 'm6 -4l-6 4l6 4', d: 'm-4 -6l4 6l4 -6', u: 'm-4 6l4 -6l4 6' };
  const arrow = (d, way, more = '') => out.push(`<path d="${d}${heads[way]}" fill="none" stroke="${c('muted')}" stroke-width="1.5" ${more}/>`);
  const mid = (id) => B[id].y + CELL / 2, cx = (id) => B[id].x + B[id].w / 2;
  const right = (from, to) => arrow(`M${r(B[from].x + B[from].w)} ${r(mid(from))}H${r(B[to].x - 2)}`, 'r');
  const left = (from, to) => arrow(`M${r(B[from].x)} ${r(mid(from))}H${r(B[to].x + B[to].w + 2)}`, 'l');
  const down = (from, to) => arrow(`M${r(cx(from))} ${r(B[from].y + CELL)}V${r(B[to].y - 2)}`, 'd');
  const up = (from, to) => arrow(`M${r(cx(from))} ${r(B[from].y)}V${r(B[to].y + CELL + 2)}`, 'u');
  right('tokenize', 'queue'); right('blocks', 'prefill'); right('weights', 'cache');
  if (p.wide) {
    right('queue', 'blocks'); right('cache', 'logits'); down('logits', 'sample'); left('sample', 'append'); left('append', 'stop'); up('stop', 'weights'); down('stop', 'leave');
    const x = p.x[3] + p.cw - 14;
    arrow(`M${r(x)} ${r(B.prefill.y + CELL)}V${r(mid('sample'))}H${r(B.sample.x + B.sample.w + 2)}`, 'l');
    const dash = (x1, y1, x2, y2, tone) => out.push(`<path d="M${r(x1)} ${r(y1)}L${r(x2)} ${r(y2)}" stroke="${c(tone)}" stroke-width="1.3" stroke-dasharray="4 4" fill="none"/>`);
    const R = p.roads;
    dash(cx('weights') - 30, R.quantized.y + ROAD, cx('weights') - 30, B.weights.y, 'weights');
    dash(cx('queue'), B.queue.y + CELL, cx('queue'), R.preempted.y, 'rejected');
    dash(cx('cache'), R.preempted.y + ROAD, cx('cache'), B.cache.y, 'rejected');
    dash(cx('blocks'), B.blocks.y + CELL, cx('blocks'), R.prefix.y, 'kv');
    dash(R.prefix.x + R.prefix.w, R.prefix.y + ROAD / 2, B.prefill.x + 40, B.prefill.y + CELL, 'kv');
    dash(cx('logits'), R.draft.y + ROAD / 2, R.draft.x, R.draft.y + ROAD / 2, 'draft');
  } else {
    arrow(`M${r(cx('queue'))} ${r(B.queue.y + CELL)}V${r(B.queue.y + CELL + 12)}H${r(cx('blocks'))}V${r(B.blocks.y - 2)}`, 'd');
    down('cache', 'logits'); down('logits', 'sample'); left('sample', 'append'); up('append', 'stop'); up('stop', 'weights');
    arrow(`M${r(B.prefill.x + B.prefill.w)} ${r(mid('prefill'))}H${r(p.W - 3)}V${r(mid('sample'))}H${r(B.sample.x + B.sample.w + 2)}`, 'l');
    arrow(`M${r(B.stop.x)} ${r(mid('stop'))}H3V${r(mid('leave'))}H${r(B.leave.x - 2)}`, 'r');
  }
  return out.join('');
}

function listen(svg, data, t, tools) {
  const { local } = tools;
  const go = (to) => {   // by the player's own slider, so that its keys, its clock and the address know
    const scrub = svg.getRootNode().querySelector('.scrub');
    scrub.value = to;
    scrub.oninput();
    scrub.onchange();
  };
  const press = (event) => {
    const spot = event.target.closest?.('.pick');
    if (!spot) return false;
    if (spot.dataset.road) { tools.pick('side', data.side === spot.dataset.road ? 'none' : spot.dataset.road); return true; }
    const here = data.moments.findIndex((m, i) => m.cell === spot.dataset.cell && m.turn === data.moments[t].turn);
    const next = data.moments.findIndex((m, i) => i >= t && m.cell === spot.dataset.cell);
    go([here, next, data.moments.findIndex((m) => m.cell === spot.dataset.cell)].find((i) => i >= 0));
    return true;
  };
  svg.onclick = press;
  if (!local.heard) {   // once: the <svg> outlives its contents
    local.heard = true;
    svg.addEventListener('focusin', (event) => { local.focus = event.target.dataset?.road ?? 'cell'; });
    svg.addEventListener('focusout', () => setTimeout(() => { if (svg.isConnected && !svg.contains(svg.getRootNode().activeElement)) local.focus = ''; }));
  }
  svg.onkeydown = (event) => {
    if ((event.key !== 'Enter' && event.key !== ' ') || !event.target.closest?.('.pick')) return;
    if (event.target.closest('[aria-current]') && event.key === ' ') return;   // the player's own key, on the cell it stands on
    event.preventDefault();
    event.stopPropagation();
    press(event);
  };
}
