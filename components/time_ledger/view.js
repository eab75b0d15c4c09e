// Four bars on one linear time axis: decode above, prefill below. A magnifier opens under a bar that is only a hair.

export function height(data, width, tools) {
  return paint(document.createElementNS('http://www.w3.org/2000/svg', 'svg'), data, { ...tools, width });
}

export function draw(picture, data, t, tools) {
  paint(picture, data, tools);
}

// Draws everything and returns the height it took.
function paint(svg, data, tools) {
  const { el } = tools;
  const W = tools.width, narrow = W < 560, size = narrow ? 14 : 15;
  const left = narrow ? 1 : 84, full = W - left - 12;
  const bar = narrow ? 32 : 40, between = narrow ? 12 : 6;
  const fill = (tone, more = '') => `fill:${tools.colour(tone)};${more}`;
  const wide = (text, px) => tools.measure(text, px) * 1.03;
  const write = (parent, x, y, text, px, tone, more = '', anchor = 'start') =>
    el(parent, 'text', { x, y, 'text-anchor': anchor, style: `${fill(tone)}font-size:${px}px;font-variant-numeric:tabular-nums;${more}` }, text);
  patterns(svg, tools);
  const ground = el(svg, 'g'), marks = el(svg, 'g');

  let y = 4;
  data.panels.forEach((panel, i) => {
    if (i) y += narrow ? 20 : 26;
    el(marks, 'rect', { x: 0, y: y + 3, width: 3, height: 20, style: fill(panel.id) });
    y = heading(panel, y);
    const top = y;
    y = row(panel.move, y, panel.bound === 'memory', stack);
    y = row(panel.compute, y + between, panel.bound === 'compute', solid);
    gridlines(top, y);
    if (panel.lens) y = lens(panel.lens, y);
  });
  return axis(y + 12);

  function heading(panel, y) {
    const px = narrow ? 16 : 18;
    write(marks, 12, y + 19, panel.title, px, 'ink', 'font-weight:650');
    const after = 12 + wide(panel.title, px) * 1.05 + 14, below = after + wide(panel.about, 13) > W;
    write(marks, below ? 12 : after, y + (below ? 38 : 18), panel.about, 13, 'muted');
    return y + (below ? 48 : 34);
  }

  // A bar with its name and label; `decides` marks the longer one, which is the time of the phase.
  function row(item, y, decides, bars) {
    if (narrow) write(marks, 0, y + 13, item.name, 14, 'ink', decides ? 'font-weight:650' : '');
    else write(marks, left - 12, y + bar / 2 + 5, item.name, 15, 'ink', decides ? 'font-weight:650' : '', 'end');
    if (narrow) y += 21;
    const group = el(marks, 'g');
    el(group, 'title', {}, `${item.name}: ${item.what}, ${item.seconds}`);
    bars(group, item, y);
    if (item.ghost != null) ghost(item.ghost, y);
    label(item, y, decides);
    return y + bar;
  }

  function solid(g, item, y) {
    el(g, 'rect', { x: left, y, width: Math.max(item.length * full, 1), height: bar, style: fill('compute') });
  }

  function stack(g, item, y) {
    let x = left;
    const widest = { w: 0 };
    for (const part of item.parts) {
      const w = part.length * full, one = el(g, 'g');
      el(one, 'title', {}, `${part.name}: ${part.amount}`);
      el(one, 'rect', { x, y, width: Math.max(w, 0.5), height: bar, style: fill(part.tone) });
      if (part.tone !== 'weights' && w > 5) el(one, 'rect', { x, y, width: w, height: bar, fill: `url(#time-ledger-${part.tone})` });
      if (x > left && w > 3) el(one, 'line', { x1: x, x2: x, y1: y, y2: y + bar, style: `stroke:${tools.colour('paper')};stroke-width:1` });
      if (w > widest.w) Object.assign(widest, { tone: part.tone, x, w });
      x += w;
    }
    const name = data.legend[widest.tone], w = wide(name, 13), labelled = item.length * full + 220 > full;   // the label may lie inside
    if (w + 20 < widest.w && !labelled) write(g, widest.x + (widest.w - w) / 2, y + bar / 2 + 5, name, 13, 'paper', 'pointer-events:none');
  }

  function ghost(length, y) {
    const w = Math.min(length * full, full + 10);
    el(marks, 'rect', { x: left + 0.5, y: y - 2.5, width: Math.max(w, 2), height: bar + 5, style: `fill:none;stroke:${tools.colour('muted')};stroke-width:1.5;stroke-dasharray:4 3` });
  }

  function label(item, y, decides) {
    const w = item.length * full, time = decides ? size + 1 : size, room = wide(item.seconds, time) * 1.08 + wide(item.what, 13) + 30;
    const inside = left + w + room > W, after = item.ghost ? Math.max(w, Math.min(item.ghost * full, full - room)) : w;
    const x = inside ? left + w - 12 : left + after + 12;
    const text = el(marks, 'text', { x, y: y + bar / 2 + 5, 'text-anchor': inside ? 'end' : 'start', style: `${fill(inside ? 'paper' : 'ink')}font-size:${time}px;font-variant-numeric:tabular-nums;pointer-events:none` });
    el(text, 'tspan', { style: `font-weight:${decides ? 700 : 500}` }, item.seconds);
    el(text, 'tspan', { dx: 8, style: `font-size:13px;${inside ? '' : fill('muted')}` }, item.what);
  }

  // The first sliver of the axis, stretched over its whole width.
  function lens(it, y) {
    const top = y + (narrow ? 16 : 20), tall = 28, bottom = top + tall + 32, right = left + full;
    const sliver = Math.max(full / it.factor, 1), line = `stroke:${tools.colour('muted')};stroke-width:1`;
    el(ground, 'path', { d: `M${left} ${y}V${bottom}H${right}V${top}L${left + sliver} ${y}Z`, style: fill('panel') });
    el(marks, 'path', { d: `M${left + sliver} ${y}L${right} ${top}V${bottom}`, style: `fill:none;${line};stroke-dasharray:2 3` });
    el(marks, 'path', { d: `M${left} ${y}V${bottom}H${right}`, style: `fill:none;${line}` });
    const w = it.length * full, inside = wide(it.label, 14) + 20 < w;
    el(marks, 'rect', { x: left, y: top + 6, width: w, height: tall, style: fill('compute') });
    write(marks, inside ? left + w - 10 : left + w + 8, top + 25, it.label, 14, inside ? 'paper' : 'ink', 'font-weight:600', inside ? 'end' : 'start');
    const space = full - w - (inside ? 0 : wide(it.label, 14) + 16) - 22, both = wide(it.beyond, 13) < space;
    write(marks, right - 10, top + (both ? 17 : 25), it.title, 13, 'ink', 'font-weight:600', 'end');
    if (both) write(marks, right - 10, top + 34, it.beyond, 13, 'muted', '', 'end');
    for (const tick of thin(it.ticks, it.unit)) {
      const x = left + tick.at * full;
      el(marks, 'path', { d: `M${x} ${bottom}v-5`, style: line });
      write(marks, tick.at ? x : x + 4, bottom - 8, tick.label, 13, 'muted', '', tick.at === 0 ? 'start' : tick.at > 0.93 ? 'end' : 'middle');
    }
    if (both) return bottom;
    write(marks, left, bottom + 18, it.beyond, 13, 'muted');
    return bottom + 20;
  }

  function gridlines(top, bottom) {
    for (const tick of data.axis.ticks) {
      const x = left + tick.at * full;
      el(ground, 'path', { d: `M${x} ${top - 4}V${bottom + 4}`, style: `stroke:${tools.colour(tick.at ? 'grid' : 'muted')}` });
    }
  }

  function axis(y) {
    el(ground, 'path', { d: `M${left} ${y}H${left + full}`, style: `stroke:${tools.colour('muted')}` });
    for (const tick of thin(data.axis.ticks, data.axis.unit)) {
      const x = left + tick.at * full;
      el(ground, 'path', { d: `M${x} ${y}v5`, style: `stroke:${tools.colour('muted')}` });
      write(ground, x, y + 20, tick.label, 13, 'muted', '', tick.at === 0 ? 'start' : tick.at > 0.95 ? 'end' : 'middle');
    }
    const entries = [...data.shown.map((tone) => [tone, data.legend[tone]]), ...(data.ghost ? [['ghost', data.ghost]] : [])];
    let x = left, line = y + 44;
    write(ground, narrow ? left : left + full, narrow ? line : line, data.axis.title, 13, 'ink', '', narrow ? 'start' : 'end');
    if (narrow) line += 22;
    for (const [tone, words] of entries) {
      if (x > left && x + 18 + wide(words, 13) > W) { x = left; line += 22; }
      el(ground, 'rect', { x: x + 0.5, y: line - 10.5, width: 11, height: 11, rx: tone === 'state' ? 5.5 : 1, style: tone === 'ghost' ? `fill:none;stroke:${tools.colour('muted')};stroke-dasharray:3 2` : fill(tone) });
      write(ground, x + 18, line, words, 13, 'muted');
      x += 18 + wide(words, 13) + 16;
    }
    return line + 8;
  }

  function thin(ticks, unit) {   // every tick, or every second, third … one; the last one shown carries the unit
    const every = Math.ceil(ticks.length / Math.max(2, Math.floor(full / 64)));
    const shown = ticks.filter((_, i) => i % every === 0);
    return shown.map((tick, i) => (i === shown.length - 1 ? { ...tick, label: `${tick.label} ${unit}` } : tick));
  }
}

function patterns(svg, tools) {
  const { el } = tools;
  const defs = el(svg, 'defs'), paper = tools.colour('paper');
  const tile = (id) => el(defs, 'pattern', { id, width: 6, height: 6, patternUnits: 'userSpaceOnUse' });
  el(tile('time-ledger-kv'), 'path', { d: 'M6 0V6M0 6H6', style: `fill:none;stroke:${paper};stroke-width:1;opacity:.55` });
  el(tile('time-ledger-state'), 'circle', { cx: 3, cy: 3, r: 1.3, style: `fill:${paper};opacity:.75` });
}
