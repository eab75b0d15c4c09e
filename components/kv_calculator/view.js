// Left: what one token leaves behind, one bar a way of building the layers. Right: the card's memory as the length grows.

export function height(data, width, tools) {
  return paint(document.createElementNS('http://www.w3.org/2000/svg', 'svg'), data, { ...tools, width });
}

export function draw(picture, data, t, tools) {
  paint(picture, data, tools);
}

// Draws everything and returns the height it took.
function paint(svg, data, tools) {
  const { el } = tools;
  const W = tools.width, stacked = W < 760;
  const colour = tools.colour, fill = (tone, more = '') => `fill:${colour(tone)};${more}`;
  const stroke = (tone, width = 1, more = '') => `fill:none;stroke:${colour(tone)};stroke-width:${width};${more}`;
  const around = (tone) => `paint-order:stroke;stroke:${colour(tone)};stroke-width:4px;stroke-linejoin:round;`, halo = around('paper');
  const wide = (text, px = 13) => tools.measure(text, px) * 1.04;
  const write = (parent, x, y, text, px, tone, more = '', anchor = 'start') =>
    el(parent, 'text', { x, y, 'text-anchor': anchor, style: `${fill(tone)}font-size:${px}px;font-variant-numeric:tabular-nums;${more}` }, text);
  const defs = el(svg, 'defs');
  tile('kv-calculator-dots', (p) => el(p, 'circle', { cx: 3, cy: 3, r: 1.2, style: fill('paper', 'opacity:.7') }));
  tile('kv-calculator-hatch', (p) => el(p, 'path', { d: 'M0 6L6 0', style: stroke('rejected', 1.2) }));

  const barsWidth = stacked ? W : Math.round(W * 0.35);
  const bottom = bars(0, 0, barsWidth);
  if (stacked) return plot(0, bottom + 26, W, 300);
  return Math.max(bottom, plot(barsWidth + 48, 0, W - barsWidth - 48, 330));

  function tile(id, mark) {
    mark(el(defs, 'pattern', { id, width: 6, height: 6, patternUnits: 'userSpaceOnUse' }));
  }

  function heading(x, y, width, title, about) {
    const lines = wrap(title, 16, width);
    lines.forEach((line, i) => write(svg, x, y + 18 + 22 * i, line, 16, 'ink', 'font-weight:650'));
    const last = y + 18 + 22 * (lines.length - 1), beside = wide(lines.at(-1), 16) * 1.06 + 12;
    if (!about) return last + 12;
    const fits = beside + wide(about) < width;
    write(svg, fits ? x + beside : x, fits ? last : last + 20, about, 13, 'muted');
    return last + (fits ? 12 : 30);
  }

  // ---- one token

  function bars(x, y, width) {
    y = heading(x, y, width, data.bars.title, data.side) + 6;
    for (const row of data.bars.rows) {
      write(svg, x, y + 15, row.name, 15, 'ink', `font-weight:${row.own ? 700 : 500}`);
      write(svg, x + wide(row.name, 15) * 1.08 + 8, y + 15, row.what, 13, 'muted');
      const amount = el(svg, 'text', { x: x + width, y: y + 15, 'text-anchor': 'end', style: fill('ink', 'font-size:15px;font-variant-numeric:tabular-nums') });
      if (row.times) el(amount, 'tspan', { style: fill('muted', 'font-size:13px') }, `${row.times}  `);
      el(amount, 'tspan', { style: `font-weight:${row.own ? 700 : 500}` }, row.amount);
      const w = Math.max(row.length * width, 1.5), top = y + 23, tall = 20;
      const g = el(svg, 'g');
      el(g, 'title', {}, `${row.name}, ${row.what}: ${row.amount}`);
      el(g, 'rect', { x, y: top, width: w, height: tall, style: row.own ? fill('kv') : `${fill('kv')}fill-opacity:.14` });
      if (row.cells > 1 && w / row.cells > 3) {
        const d = Array.from({ length: row.cells - 1 }, (_, i) => `M${x + (w * (i + 1)) / row.cells} ${top}v${tall}`).join('');
        el(g, 'path', { d, style: stroke(row.own ? 'paper' : 'kv', 1, row.own ? '' : 'stroke-opacity:.55') });
      }
      if (!row.own) el(g, 'rect', { x: x + 0.5, y: top + 0.5, width: Math.max(w - 1, 1), height: tall - 1, style: stroke('kv', 1) });
      if (row.own && data.bars.ghost != null) el(g, 'rect', { x: x + 0.5, y: top - 2.5, width: data.bars.ghost * width - 1, height: tall + 5, style: stroke('muted', 1.5, 'stroke-dasharray:4 3') });
      y = top + tall + 14;
    }
    for (const note of data.bars.notes) {
      el(svg, 'rect', { x, y: y + 5, width: 12, height: 12, rx: note.tone === 'state' ? 6 : 1, style: fill(note.tone) });
      const lines = [...wrap(note.text, 14, width - 20).map((text) => [text, 'ink', 14]), ...wrap(note.more, 13, width - 20).map((text) => [text, 'muted', 13])];
      for (const [text, tone, px] of lines) write(svg, x + 20, (y += 19) - 3, text, px, tone);
      y += 12;
    }
    return y;
  }

  // ---- a card

  function plot(x, y, width, tall) {
    const it = data.plot;
    y = heading(x, y, width, it.title, '');
    if (it.refused) y = banner(x, y + 2, width, it.refused);
    const left = x + Math.max(...[...it.y.ticks.map((tick) => tick.label), it.ceiling?.tick ?? ''].map((label) => wide(label))) + 14, right = x + width - 4, top = y + 8, bottom = top + tall;
    const X = (u) => left + u * (right - left), Y = (v) => bottom - v * tall;
    const id = 'kv-calculator-frame', ceiling = it.ceiling ? Y(it.ceiling.y) : top;
    el(el(defs, 'clipPath', { id }), 'rect', { x: left, y: it.weights || it.ceiling ? ceiling : top, width: right - left, height: bottom - ceiling + 1 });

    if (it.ceiling) write(svg, left - 8, ceiling + 5, it.ceiling.tick, 13, 'ink', 'font-weight:650', 'end');
    for (const tick of it.y.ticks) {
      if (it.ceiling && Math.abs(Y(tick.at) - ceiling) < 18) continue;
      el(svg, 'path', { d: `M${left} ${Y(tick.at)}H${right}`, style: stroke('grid') });
      write(svg, left - 8, Y(tick.at) + 5, tick.label, 13, 'muted', '', 'end');
    }
    if (it.weights) el(svg, 'rect', { x: left, y: Y(it.weights.y), width: right - left, height: bottom - Y(it.weights.y), style: fill('weights') });
    const own = it.curves.find((curve) => curve.own), inside = el(svg, 'g', { 'clip-path': `url(#${id})` });
    const path = (points) => points.map(([u, v], i) => `${i ? 'L' : 'M'}${X(u).toFixed(1)} ${Y(v).toFixed(1)}`).join('');
    const floor = it.weights ? Y(it.weights.y) : bottom;
    el(inside, 'path', { d: `${path(own.points)}V${floor}H${X(own.points[0][0])}Z`, style: `${fill('kv')}fill-opacity:.16` });
    if (it.state && Y(it.state.y0) - Y(it.state.y1) > 0.6) {
      const box = { x: left, y: Y(it.state.y1), width: right - left, height: Y(it.state.y0) - Y(it.state.y1) };
      el(inside, 'rect', { ...box, style: fill('state') });
      if (box.height > 5) el(inside, 'rect', { ...box, style: 'fill:url(#kv-calculator-dots)' });
    }
    if (it.ghost) el(inside, 'path', { d: path(it.ghost), style: stroke('muted', 1.5, 'stroke-dasharray:4 3') });
    for (const curve of it.curves) {
      if (!curve.own) el(inside, 'path', { d: path(curve.points), style: stroke('kv', 1.5, 'stroke-dasharray:7 4') });
    }
    el(inside, 'path', { d: path(own.points), style: stroke('kv', 3.5) });
    if (it.maximum && it.maximum.x > 0.04) limit(it);
    if (it.weights && bottom - Y(it.weights.y) > 20) write(svg, left + 10, (Y(it.weights.y) + bottom) / 2 + 5, it.weights.label, 14, 'paper', `font-weight:600;${around('weights')}`);
    if (it.state && Y(it.state.y0) - Y(it.state.y1) > 19) write(svg, left + 10, (Y(it.state.y0) + Y(it.state.y1)) / 2 + 5, it.state.label, 13, 'paper', `font-weight:600;${around('state')}`);
    if (it.ceiling) el(svg, 'path', { d: `M${left} ${ceiling}H${right}`, style: stroke('ink', 1.5) });
    names(it);
    el(svg, 'path', { d: `M${left} ${bottom}H${right}`, style: stroke('muted') });
    const room = Math.max(2, Math.floor((right - left) / 58)), every = Math.ceil(it.x.ticks.length / room);
    it.x.ticks.filter((_, i) => i % every === 0).forEach((tick) => {
      el(svg, 'path', { d: `M${X(tick.at)} ${bottom}v5`, style: stroke('muted') });
      write(svg, X(tick.at), bottom + 20, tick.label, 13, 'muted', '', tick.at > 0.97 ? 'end' : 'middle');
    });
    let under = bottom + 42;
    if (it.here) under += here(it.here, under) + wide(it.x.title) + 20 > right ? 21 : 0;
    write(svg, right, under, it.x.title, 13, 'ink', '', 'end');
    return under + 10;

    function limit({ maximum }) {
      const at = X(maximum.x), end = maximum.x > 0.5;
      const deep = it.weights && bottom - Y(it.weights.y) > 52;
      el(svg, 'path', { d: `M${at} ${bottom}V${ceiling}`, style: stroke('bound', 1.2, 'stroke-dasharray:2 3') });
      if (deep) el(svg, 'path', { d: `M${at} ${bottom}V${Y(it.weights.y)}`, style: stroke('paper', 1.2, 'stroke-dasharray:2 3') });
      write(svg, at + (end ? -6 : 6), (deep ? bottom : floor) - 9, maximum.label, 13, deep ? 'paper' : 'muted', deep ? '' : halo, end ? 'end' : 'start');
    }

    // Names: above the ceiling where a curve meets it, at the right end of those that do not.
    function names(it) {
      const rows = [ceiling - 9, ceiling - 26, ceiling - 43].filter((y) => y > top - 14), ends = rows.map(() => left - 20);
      const met = it.curves.filter((curve) => curve.cross).sort((a, b) => a.cross.x - b.cross.x);
      for (const curve of met) {
        const at = X(curve.cross.x), text = `${curve.name} ${right - left < 420 ? curve.cross.tokens : curve.cross.label}`, w = wide(text) * (curve.own ? 1.1 : 1);
        const start = Math.max(Math.min(Math.max(at - w / 2, left), right - w), left - 20);
        const free = ends.findIndex((end) => start > end + 8), row = free < 0 ? ends.indexOf(Math.min(...ends)) : free;
        ends[row] = start + w;
        write(svg, start, rows[row], text, 13, 'kv', `${halo}font-weight:${curve.own ? 700 : 500}`);
        el(svg, 'circle', { cx: at, cy: ceiling, r: curve.own ? 5.5 : 4, style: curve.own ? fill('kv', `stroke:${colour('paper')};stroke-width:1.5`) : `${fill('paper')}stroke:${colour('kv')};stroke-width:1.5` });
      }
      if (it.ceiling?.label) write(svg, left + 8, ceiling + 18, it.ceiling.label, 13, 'ink', `${halo}font-weight:600`);
      let last = bottom + 12;
      const free = it.curves.filter((curve) => !curve.cross).sort((a, b) => a.points.at(-1)[1] - b.points.at(-1)[1]), end = (curve) => Y(Math.min(curve.points.at(-1)[1], 1));
      free.forEach((curve, i) => {
        const tight = i === 0 && free[1] && end(curve) - end(free[1]) < 26 && end(curve) + 28 < bottom;   // no room between the two lowest: under the lowest
        const y = tight ? end(curve) + 24 : Math.min(end(curve) - 7, last - 17);
        last = y;
        write(svg, right - 4, Math.max(y, top + 12), curve.name, 13, 'kv', `${halo}font-weight:${curve.own ? 700 : 500}`, 'end');
      });
    }

    // The chosen length: a mark on the axis and a dot on the model's own curve.
    function here(mark, y) {
      const at = X(mark.x), tone = mark.fits ? 'kv' : 'rejected', right_ = wide(mark.label, 13) + at + 14 > right;
      if (mark.fits) el(svg, 'circle', { cx: at, cy: Math.max(Y(mark.y), ceiling), r: 5, style: `${fill('paper')}stroke:${colour(tone)};stroke-width:2` });
      else el(svg, 'path', { d: `M${at - 5} ${ceiling - 5}l10 10m0 -10l-10 10`, style: stroke(tone, 2.5) });
      el(svg, 'path', { d: `M${at} ${bottom + 2}l5 9h-10z`, style: fill(tone) });
      write(svg, right_ ? Math.min(at + 6, right) : Math.max(at - 6, left), y, mark.label, 13, tone, 'font-weight:600', right_ ? 'end' : 'start');
      return right_ ? Math.min(at + 6, right) : Math.max(at - 6, left) + wide(mark.label) * 1.08;
    }
  }

  function banner(x, y, width, text) {
    const lines = wrap(text, 14, width - 34), tall = lines.length * 21 + 14;
    el(svg, 'rect', { x, y, width, height: tall, style: fill('panel') });
    el(svg, 'rect', { x, y, width: 12, height: tall, style: 'fill:url(#kv-calculator-hatch)' });
    lines.forEach((line, i) => write(svg, x + 24, y + 22 + 21 * i, line, 14, 'rejected', 'font-weight:600'));
    return y + tall + 8;
  }

  function wrap(text, px, width) {   // at spaces, and anywhere between Han characters, never before closing punctuation
    const pieces = text.match(/[\u2e80-\uffef][，。；：、）？！”]*|[^\s\u2e80-\uffef]+[，。；：、）？！”]*\s*|\s+/g) || [], lines = [''];
    for (const piece of pieces) {
      if (wide(lines.at(-1) + piece.trimEnd(), px) * 1.05 > width && lines.at(-1)) lines.push('');
      lines[lines.length - 1] += piece;
    }
    return lines.map((line) => line.trim());
  }
}
