// Above, who gets a token when, on the card or cards of the chosen way; below, a reader's gaps in all three ways, on one scale.
export const rate = 50;   // frames a second at speed ×1; as in __init__.py
const SPACE = 3, NEW = 24, PLOT = 190, FLAT = 108, GAP = 22;
const r = (x) => Math.round(x * 100) / 100;
let built;   // the player asks for the height first, and draws then

export function height(data, width, tools) {
  built = build(data, { ...tools, width });
  return built.height;
}

export function draw(picture, data, t, tools) {
  const now = moment(data, t, tools.steps);
  picture.innerHTML = built.lanes(now) + built.panels(now);
  for (const node of picture.querySelectorAll('[data-mode]')) node.onclick = () => node.dataset.mode !== data.mode && tools.pick('mode', node.dataset.mode);
}

export function label(data, t, tools) { return tools.words('time', { t: clock(data, moment(data, t, tools.steps)), unit: data.unit.name }); }

export function says(data, t, tools) {
  if (t >= tools.steps - 1) return data.says;
  const now = moment(data, t, tools.steps), past = data.tokens.filter((at) => at <= now);
  return tools.words('says', { t: clock(data, now), unit: data.unit.name, n: past.filter((at) => at > 0).length, ago: clock(data, now - (past.at(-1) ?? now)), read: Math.round(100 * share(data, now)) });
}

// ---- time

const moment = (data, t, steps) => (t >= steps - 1 ? data.until : data.since + (t / (steps - 1)) * (data.until - data.since));
const clock = (data, seconds) => (seconds * data.unit.per).toFixed(data.unit.digits).replace('-', '−');
function share(data, now) {   // of the prompt's time of reading that has gone by
  const whole = data.pieces.reduce((sum, [from, to]) => sum + to - from, 0);
  return data.pieces.reduce((sum, [from, to]) => sum + Math.max(0, Math.min(now, to) - from), 0) / whole;
}

function build(data, tools) {
  const { colour: c, words, esc, measure } = tools, W = tools.width, narrow = W < 700;
  const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${esc(said)}</text>`;
  const rect = (x, y, w, h, fill, more = '') => (w > 0 ? `<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}" ${more}/>` : '');
  const line = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${c(tone)}" ${more}/>`;
  const wide = (said, px, face = 'sans') => measure(said, px, face) * 1.05;
  const halo = (tone, px = 5) => `paint-order:stroke;stroke:${c(tone)};stroke-width:${px}px;stroke-linejoin:round`;
  const p = plan();
  return { height: p.height, lanes, panels };

  function plan() {
    const names = [data.readers, words('lane_new_one'), words('lane_second')];
    const pitch = data.lanes > 3 ? 12 : 24;   // of the readers' rows
    const left = narrow ? 0 : Math.max(...names.map((name) => wide(name, 14)), wide(data.readers_more, 13)) + 16;
    const told = tools.wrap(data.told, 14, W), head = 26 + 20 * told.length + (narrow ? 22 : 0);
    const arrives = head + 20, readers = arrives + 12 + (narrow ? 22 : 0), under = readers + data.lanes * pitch;
    const fresh = under + (narrow ? 26 : 12), second = data.handed ? fresh + NEW + 36 : null;
    const axis = (second ?? fresh) + NEW + 30, key = axis + 40, lower = key + 24 * keys().lines + 34;
    const y0 = Math.max(...data.y_ticks.map(([, said]) => wide(said, 13, 'figures'))) + 10, between = narrow ? 0 : 22;
    const plot = narrow ? W - y0 - 2 : (W - y0 - 2 * between - 2) / 3, above = 54, below = 40, tall = (narrow ? FLAT : PLOT) + above + below;
    const title = tools.wrap(data.scale, 13, W), boxes = [];
    let y = lower + 40 + 18 * title.length;
    data.panels.forEach((panel, i) => {
      const high = panel.refused ? 44 + 18 * tools.wrap(panel.refused, 13, W - 8).length : tall;
      boxes.push({ panel, x: narrow ? y0 : y0 + i * (plot + between), y, w: plot, end: y + (narrow ? high : tall) });
      if (narrow) y += high + 8;
    });
    return { pitch, left, told, head, arrives, readers, under, fresh, second, axis, key, lower, y0, boxes, above, title, high: narrow ? FLAT : PLOT, height: boxes.at(-1).end };
  }

  function X(seconds) { return p.left + ((seconds - data.since) / (data.until - data.since)) * (W - p.left - 2); }

  // ---- who gets a token when

  function lanes(now) {
    const px = X(data.plain) - X(0), wideCell = Math.max(1, Math.min(7, px * 0.62)), high = data.lanes * p.pitch - SPACE, done = now >= data.until;
    let out = text(0, 18, data.title, 'style="font-size:16px;font-weight:650"');
    out += p.told.map((said, i) => text(0, 40 + 20 * i, said, 'class="muted"')).join('');
    const right = data.longest;
    out += narrow ? text(0, 42 + 20 * p.told.length, right, 'style="font-weight:650"') : text(W - 2, 18, right, 'text-anchor="end" style="font-size:16px;font-weight:650"');
    // the readers' rows: one block of columns, cut into rows
    out += rect(p.left, p.readers, W - p.left - 2, high, c('free'));
    const columns = data.tokens.filter((at) => at <= now).map((at) => { const w = Math.min(wideCell, X(at) - p.left); return `M${r(X(at) - w)} ${p.readers}h${r(w)}v${high}h${r(-w)}z`; }).join('');
    out += `<path d="${columns}" fill="${c('decode')}"/>`;
    for (let i = 1; i < data.lanes; i++) out += rect(p.left - 1, p.readers + i * p.pitch - SPACE, W - p.left, SPACE, c('paper'));
    const name = (at, said, more) => (narrow ? text(0, at - 8, said, 'style="font-weight:600"') + (more ? text(wide(said, 14) * 1.05 + 10, at - 8, more, 'class="small muted"') : '')
      : text(p.left - 14, at + 17, said, 'text-anchor="end" style="font-weight:600"') + (more ? text(p.left - 14, at + 36, more, 'class="small muted" text-anchor="end"') : ''));
    out += name(p.readers, data.readers, data.readers_more);
    out += name(p.fresh, words(data.handed ? 'lane_new_one' : 'lane_new'));
    if (p.second) out += name(p.second, words('lane_second'));
    out += newcomer(now, wideCell) + silence(now, high);
    // the arrival
    const down = narrow ? [[p.readers - 2, p.under], [p.fresh - 2, p.axis]] : [[p.arrives + 6, p.axis]];   // not across the names
    out += line(down.map(([from, to]) => `M${r(X(0))} ${from}V${to}`).join(''), 'ink', 'stroke-width="1.4" stroke-dasharray="4 3"');
    const inside = X(0) + wide(data.arrives, 13) < W - 2;
    out += text(inside ? X(0) - 4 : W - 2, p.arrives, `▾ ${data.arrives}`, `class="small" ${inside ? '' : 'text-anchor="end"'}`);
    if (!done) out += line(`M${r(X(now))} ${p.readers - 6}V${p.axis}`, 'ink', 'stroke-width="1.6"');
    return out + axis(p.axis, p.left, W - 2, X, data.x_ticks) + legend() + text(W - 2, p.key + 11, narrow ? '' : data.pace, 'class="small muted" text-anchor="end"')
      + (narrow ? text(0, p.key + 24 * keys().lines + 8, data.pace, 'class="small muted"') : '');
  }

  function newcomer(now, cell) {
    const at = p.second ?? p.fresh, whole = data.pieces.length === 1;
    let out = rect(p.left, p.fresh, W - p.left - 2, NEW, c('free')) + (p.second ? rect(p.left, p.second, W - p.left - 2, NEW, c('free')) : '');
    const seen = data.pieces.filter(([from]) => from < now), edge = seen.length && X(seen[0][1]) - X(seen[0][0]) > 5 ? 1.2 : 0.5;
    if (seen.length) {
      const from = X(seen[0][0]), to = X(Math.min(now, seen.at(-1)[1]));
      out += rect(from, at, to - from, NEW, c('prefill'));
      out += line(seen.map(([began]) => `M${r(X(began))} ${at}v${NEW}`).join(''), 'paper', `stroke-width="${edge}" stroke-opacity=".85"`);
      out += rect(from, at, to - from, NEW, 'none', `stroke="${c('ink')}" stroke-width="1.4"`);
      const inside = [data.reads, data.reads_short].find((said) => wide(said, 13) + 18 < to - from);
      if (whole && inside) out += text(from + 9, at + 16.5, inside, `class="small" style="fill:${c('paper')};font-weight:600"`);
      if (!whole && wide(data.reads, 13) + wide(data.first_label, 13) + 32 < X(data.first) - from) out += text(from + 8, at + NEW + 18, data.reads, `class="small" style="fill:${c('prefill')};font-weight:600"`);
    }
    const cells = data.writes.filter((time) => time <= now);
    out += `<path d="${cells.map((time) => `M${r(X(time) - Math.min(cell, 7))} ${p.fresh}h${r(Math.min(cell, 7))}v${NEW}h${r(-Math.min(cell, 7))}z`).join('')}" fill="${c('decode')}"/>`;
    if (data.handed && now > data.handed[0]) out += handed(now);
    if (now >= data.first) {
      const y = p.fresh + NEW, x = X(data.first);
      out += line(`M${r(x)} ${y}v6`, 'ink', 'stroke-width="1.2"');
      out += text(Math.min(W - 2, Math.max(p.left + wide(data.first_label, 13), data.handed ? X(data.handed[0]) - 10 : x + 6)), data.handed ? y + 16 : y + 18, data.first_label, `class="small" text-anchor="end" style="font-weight:600;${halo('paper')}"`);
    }
    return out;
  }

  // The KV on its way from the second card to the first: as wide as it takes, or it would not be seen.
  function handed(now) {
    const [from, to] = data.handed, x = X(from), end = Math.max(X(Math.min(now, to)), x + 4), top = p.fresh + NEW, y = p.second;
    let out = `<path d="M${r(x)} ${y}L${r(x)} ${y - 6}L${r(end - 4)} ${top + 2}L${r(end)} ${top + 2}L${r(end)} ${y}z" fill="${c('kv')}"/>`;
    out += `<path d="M${r(end - 7)} ${top + 8}L${r(end - 2)} ${top}L${r(end + 3)} ${top + 8}z" fill="${c('kv')}"/>`;
    const w = wide(data.handed_label, 13), left = x - 8 - w > p.left;
    return out + text(left ? x - 8 : p.left, y + NEW + 17, data.handed_label, `class="small" ${left ? 'text-anchor="end"' : ''} style="fill:${c('kv')};font-weight:600;${halo('paper')}"`);
  }

  // While they play, the time since the last token; in the end, the longest.
  function silence(now, high) {
    if (!data.silence) return '';
    const [from, to, said] = data.silence, end = Math.min(now, to);
    if (now <= from || end - from < 2 * data.plain) return '';
    const x = X(from), w = X(end) - x, over = now >= to, figure = over ? said : `${clock(data, end - from)} ${data.unit.name}`, note = words(over ? 'silence' : 'waiting');
    const mid = x + w / 2, middle = p.readers + high / 2, big = Math.min(34, high * 0.45), small = wide(note, 13), both = `${figure} ${note}`, single = high < 60;
    const need = (single ? wide(both, 13) * 1.06 : Math.max(wide(figure, big, 'figures'), small)) + 24;
    if (need > w) return '';
    let out = '';
    if (single) out += rect(mid - need / 2, middle - 10, need, 20, c('free')) + text(mid, middle + 5, both, 'class="small" text-anchor="middle" style="font-weight:650"');
    else {
      out += rect(mid - need / 2, middle - big * 0.95, need, big + 30, c('free'), 'rx="4"');
      out += text(mid, middle + big * 0.2, figure, `class="figure" text-anchor="middle" style="font-size:${r(big)}px;font-weight:600;letter-spacing:-.02em"`);
      out += text(mid, middle + big * 0.2 + 20, note, 'class="small" text-anchor="middle"');
    }
    const y = middle + (single ? 0 : 2);
    if (w - need > 40) out += line(`M${r(x + 4)} ${y}H${r(mid - need / 2 - 6)}M${r(mid + need / 2 + 6)} ${y}H${r(x + w - 12)}M${r(x + 4)} ${y - 5}v10M${r(x + w - 12)} ${y - 5}v10`, 'ink', 'stroke-width="1.3"');
    return out;
  }

  function axis(y, left, right, at, ticks, most = 12) {
    let out = line(`M${r(left)} ${y}H${r(right)}`, 'muted'), last = -Infinity;
    const every = Math.ceil(ticks.length / most);
    ticks.forEach(([value, said], i) => {
      if (i % every) return;
      const x = at(value), w = wide(said, 13, 'figures');
      out += line(`M${r(x)} ${y}v5`, 'muted');
      const stand = Math.min(x, right - w / 2);
      if (stand - w / 2 > last + 6) { out += text(stand, y + 19, said, 'class="small figure muted" text-anchor="middle"'); last = stand + w / 2; }
    });
    return out;
  }

  function keys() {
    const names = ['token', 'prefill', ...(data.handed ? ['kv'] : [])], found = [];
    let x = 0, at = 0;
    for (const name of names) {
      const w = 22 + wide(words(`legend_${name}`), 13) + 20;
      if (x + w - 20 > W) { x = 0; at++; }
      found.push({ name, x, at });
      x += w;
    }
    return { found, lines: at + 1 };
  }

  function legend() {
    return keys().found.map(({ name, x, at }) => {
      const y = p.key + 24 * at, tone = { token: 'decode', prefill: 'prefill', kv: 'kv' }[name];
      const mark = name === 'token' ? [0, 4, 9].map((d) => rect(x + d * 1.2, y, 3.4, 13, c('decode'))).join('') : rect(x + 0.7, y, 14, 13, c(tone), name === 'prefill' ? `stroke="${c('ink')}" stroke-width="1.4"` : '');
      return mark + text(x + 22, y + 11, words(`legend_${name}`), 'class="small"');
    }).join('');
  }

  // ---- the gaps of a reader

  function panels(now) {
    let out = `<defs><pattern id="stall-over" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="${c('rejected')}" stroke-width="1.3"/></pattern></defs>`;
    out += rect(0, p.lower, W, 1, c('hairline')) + text(0, p.lower + 26, words('gap'), 'style="font-size:16px;font-weight:650"');
    out += p.title.map((said, i) => text(0, p.lower + 46 + 18 * i, said, 'class="small muted"')).join('');
    const free = data.panels.filter(uncovered), named = narrow && free.length ? free : [free.at(-1) ?? data.panels.findLast((panel) => !panel.refused)];
    return out + p.boxes.map((box, i) => panel(box, now, i, named.includes(box.panel))).join('');
  }

  // Whether nothing is under the words that name the target's line.
  function uncovered(panel) {
    const from = data.until - (wide(data.target_label, 13) / p.boxes[0].w) * (data.until - data.since);
    return !panel.refused && !panel.gaps.some(([end, seconds]) => end > from && seconds > data.target);
  }

  function panel({ panel, x, y, w, end }, now, i, named) {
    const chosen = panel.mode === data.mode, left = narrow ? 0 : x, top = y + p.above, floor = top + p.high;
    const at = (seconds) => x + ((seconds - data.since) / (data.until - data.since)) * w;
    const [low, most] = data.y, Y = (seconds) => floor - Math.log(Math.min(most, Math.max(seconds, low)) / low) / Math.log(most / low) * p.high;
    let out = rect(left, y, narrow ? W : w, chosen ? 3 : 1, c(chosen ? 'accent' : 'hairline'));
    out += text(left, y + 23, panel.name, `style="font-weight:${chosen ? 650 : 500}"`);
    if (!panel.refused) {
      const number = wide(panel.longest, 18, 'figures');
      out += text(x + w, y + 25, panel.longest, 'class="figure" text-anchor="end" style="font-size:18px;font-weight:600"');
      out += text(x + w - number - 6, y + 24, words('longest'), 'class="small muted" text-anchor="end"');
      out += text(left, y + 44, panel.over, `class="small" style="fill:${c(panel.late ? 'rejected' : 'accepted')};font-weight:600"`);
    }
    const whole = (drawn) => `<g data-mode="${panel.mode}" style="cursor:${chosen ? 'default' : 'pointer'}">${rect(left, y, narrow ? W : w, end - y - 2, c('paper'), 'fill-opacity="0"')}${drawn}</g>`;
    if (panel.refused) return whole(out + tools.wrap(panel.refused, 13, (narrow ? W : w) - 8).map((said, n) => text(left, y + 50 + 18 * n, said, 'class="small muted"')).join(''));
    for (const [value, said] of data.y_ticks) {
      out += line(`M${r(x)} ${r(Y(value))}H${r(x + w)}`, 'grid');
      if (narrow || !i) out += text(x - 7, Y(value) + 4.5, said, 'class="small figure muted" text-anchor="end"');
    }
    out += curve(panel, now, at, Y, floor);
    out += line(`M${r(at(0))} ${r(top)}V${r(floor)}`, 'ink', 'stroke-width="1" stroke-dasharray="4 3" stroke-opacity=".6"');
    if (now >= panel.first) {
      const px = at(panel.first);
      out += `<path d="M${r(px - 5)} ${r(floor + 1)}l5 -8l5 8z" fill="${c('prefill')}" stroke="${c('paper')}" stroke-width="1"/>`;
      out += text(x + w, floor + 36, panel.first_label, `class="small" text-anchor="end" style="fill:${c('prefill')};font-weight:600"`);
    }
    out += line(`M${r(x)} ${r(Y(data.target))}H${r(x + w)}`, 'ink', 'stroke-width="1.3" stroke-dasharray="7 4"');
    if (named) out += text(x + w - 2, Y(data.target) - 6, data.target_label, `class="small" text-anchor="end" style="${halo('paper', 4)}"`);
    out += axis(floor, x, x + w, at, data.x_ticks, narrow ? 6 : 5);
    return whole(out);
  }

  function curve(panel, now, at, Y, floor) {
    const stairs = (gaps) => gaps.map(([end, seconds], i) => `${i ? 'L' : 'M'}${r(at(Math.max(data.since, end - seconds)))} ${r(Y(seconds))}L${r(at(Math.min(end, data.until)))} ${r(Y(seconds))}`).join('');
    const past = panel.gaps.filter(([end]) => end <= now), last = past.at(-1)?.[0] ?? data.since;
    let out = panel.ghost.length ? line(stairs(panel.ghost.filter(([end, seconds]) => end > data.since && end - seconds < data.until)), 'ghost', 'stroke-width="1.5" stroke-dasharray="3 3"') : '';
    if (past.length) {
      const d = stairs(past), from = at(Math.max(data.since, past[0][0] - past[0][1]));
      out += `<path d="${d}L${r(at(last))} ${r(floor)}L${r(from)} ${r(floor)}Z" fill="${c('decode')}" fill-opacity=".22"/>`;
      for (const [end, seconds] of past) if (seconds > data.target) out += rect(at(end - seconds), Y(seconds), at(end) - at(end - seconds), Y(data.target) - Y(seconds), 'url(#stall-over)', 'fill-opacity=".55" opacity=".5"');
      out += line(d, 'decode', 'stroke-width="2" stroke-linejoin="round"');
    }
    const running = now - last;
    if (now < data.until && running > data.plain) out += rect(at(last), Y(running), at(now) - at(last), floor - Y(running), c('decode'), `fill-opacity=".1" stroke="${c('decode')}" stroke-dasharray="3 2"`);
    return out;
  }
}
