// Text goes in on the left, a token comes out on the right; on a narrow page from top to bottom. The layers are a stack with a cell
// for each; below lies a bar of the parameters.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const strong = 'font-weight="650"', SMALL = 88, TALL = 164, ROW = 64, BAR = 40;

export const says = (data) => data.says;

const mixing = ['recurrent', 'window', 'attention'];
const parts = (data) => ({ before: data.stages.filter((s) => ['tokenizer', 'embedding'].includes(s.id)), inside: data.stages.filter((s) => s.inside), after: data.stages.filter((s) => ['norm', 'lm_head', 'softmax', 'decoding'].includes(s.id)) });

function plan(data, W, tools) {
  const { before, inside, after } = parts(data), wide = W >= 860, boxes = {}, arrows = [];
  if (wide) {
    const gap = 15, ends = 42, stack = W - 6 * SMALL - 7 * gap - 2 * ends - 8, columns = Math.max(Math.ceil(data.pattern.length / 3), Math.min(16, data.pattern.length)), rows = Math.ceil(data.pattern.length / columns);
    const cell = Math.min(15, (stack - 24) / columns), strip = { x: 0, y: 44, columns, cell };
    const inner = 44 + rows * (cell + 1) + 34, high = 50, lanes = [inside.filter((s) => mixing.includes(s.id)), inside.filter((s) => !mixing.includes(s.id) && s.id !== 'vectors')];
    const least = Math.max(...lanes.map((lane) => lane.length)), bottom = Math.max(TALL + 40, inner + least * (high + 8) + 30 + 12);
    const middle = bottom / 2, top = middle - TALL / 2;
    let x = ends;
    const line = (from) => arrows.push([[from, middle], [from + gap - 2, middle]]);
    arrows.push([[ends - 13, middle], [ends - 2, middle]]);
    for (const s of before) { boxes[s.id] = { x, y: top, w: SMALL, h: TALL }; line(x + SMALL); x += SMALL + gap; }
    const frame = { x, y: 4, w: stack, h: bottom - 8 };
    strip.x = x + 12;
    lanes.forEach((lane, n) => lane.forEach((s, i) => {
      const w = (stack - 24 - 26) / 2, tall = (least * (high + 8) - 8 - (lane.length - 1) * 8) / lane.length;
      boxes[s.id] = { x: x + 12 + n * (w + 26), y: inner + i * (tall + 8), w, h: tall, inner: true };
    }));
    boxes.vectors = { x: x + 12, y: inner + least * (high + 8), w: stack - 24, h: 26, inner: true, flat: true };
    const at = inner + (least * (high + 8) - 8) / 2;
    arrows.push([[x + 12 + (stack - 50) / 2 + 2, at], [x + 12 + (stack - 50) / 2 + 23, at]]);
    x += stack;
    for (const s of after) { line(x); x += gap; boxes[s.id] = { x, y: top, w: SMALL, h: TALL }; x += SMALL; }
    arrows.push([[x, middle], [x + 12, middle]]);
    const bar = bottom + 42;
    return { W, wide, boxes, arrows, frame, strip, bar, texts: { from: [0, middle + 5], to: [x + 15, middle + 5] }, height: bar + BAR + 34 };
  }
  let y = 24;
  const put = (s, indent, h = ROW) => { boxes[s.id] = { x: indent || 1, y, w: W - 2 * (indent || 1), h, row: true, inner: indent > 0 }; y += h; };
  arrows.push([[24, y - 2], [24, y + 12]]);
  y += 15;
  for (const s of before) { put(s, 0); arrows.push([[24, y], [24, y + 13]]); y += 16; }
  const frame = { x: 1, y, w: W - 2 }, columns = data.pattern.length > 40 ? 32 : Math.min(16, data.pattern.length), cell = Math.min(20, (W - 20) / columns), rows = Math.ceil(data.pattern.length / columns);
  const strip = { x: 10, y: y + 50, columns, cell };
  y += 58 + rows * (cell + 1);
  for (const s of inside) { put(s, 10, s.id === 'vectors' ? 52 : ROW); y += 8; }
  frame.h = y + 2 - frame.y;
  y += 2;
  for (const s of after) { arrows.push([[24, y], [24, y + 13]]); y += 16; put(s, 0); }
  arrows.push([[24, y], [24, y + 13]]);
  return { W, wide, boxes, arrows, frame, strip, bar: y + 78, texts: { from: [0, 14], to: [0, y + 30] }, height: y + 78 + BAR + 8 };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const { local } = tools;
  if (local.data !== data) Object.assign(local, { data, at: data.chosen });
  const p = plan(data, tools.width, tools);
  svg.setAttribute('role', 'group');
  svg.innerHTML = markup(data, p, local.at, tools);
  listen(svg, data, tools);
  if (local.focus) svg.querySelector(`.pick[data-id="${local.at}"]`)?.focus({ preventScroll: true });
}

function markup(data, p, at, tools) {
  const { colour: c, words, esc, measure } = tools, out = [], W = p.W;
  out.push(`<defs><pattern id="pm-state" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="${c('state')}" fill-opacity=".22"/><circle cx="2.5" cy="2.5" r="1.1" fill="${c('state')}"/></pattern>
    <pattern id="pm-window" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="${c('kv')}" fill-opacity=".25"/><path d="M0 5L5 0" stroke="${c('kv')}" stroke-width="1.2"/></pattern></defs>`);
  const fill = (s) => ({ recurrent: 'url(#pm-state)', window: 'url(#pm-window)', attention: c('kv') })[s];
  out.push(text(...p.texts.from, words('text'), 'class="small"'));
  tools.wrap(words('next'), 13, p.wide ? 46 : W).forEach((line, i, all) => out.push(text(p.texts.to[0], p.texts.to[1] + 17 * (i - (all.length - 1) / 2), line, 'class="small"')));

  // the stack: a sheet behind the sheet, and a cell for each layer
  const f = p.frame, s = p.strip;
  for (const d of [6, 3]) out.push(rect(f.x + (p.wide ? d : 2 * d), f.y - d, f.w - (p.wide ? 0 : 4 * d), f.h, c('paper'), `stroke="${c('hairline')}"`));
  out.push(rect(f.x, f.y, f.w, f.h, c('panel'), `stroke="${c('muted')}" stroke-width="1.2"`));
  out.push(text(f.x + 12, f.y + 20, words('stack', { n: data.pattern.length }), strong));
  if (!p.wide) out.push(text(f.x + 12, f.y + 40, esc(data.kinds), 'class="small muted"'));
  data.pattern.forEach((kind, i) => {
    const x = s.x + (i % s.columns) * s.cell, y = s.y - (p.wide ? 10 : 0) + Math.floor(i / s.columns) * (s.cell + 1);
    out.push(rect(x, y, s.cell - 1.5, s.cell - 1, fill(kind), kind === 'attention' ? '' : `stroke="${c(kind === 'recurrent' ? 'state' : 'kv')}" stroke-width=".6"`));
  });
  if (p.wide) out.push(text(s.x, s.y - 10 + Math.ceil(data.pattern.length / s.columns) * (s.cell + 1) + 17, esc(data.kinds), 'class="small muted"'));

  for (const [[x1, y1], [x2, y2]] of p.arrows) out.push(`<path d="M${r(x1)} ${r(y1)}L${r(x2)} ${r(y2)}m${x1 === x2 ? '-4 -6l4 6l4 -6' : '-6 -4l6 4l-6 4'}" fill="none" stroke="${c('muted')}" stroke-width="1.4"/>`);
  out.push(beam(data, p, at, tools));
  for (const stage of data.stages) out.push(box(stage, p, at, tools));
  out.push(bar(data, p, at, tools));
  return out.join('');
}

function box(stage, p, at, tools) {
  const { colour: c, words, esc } = tools, b = p.boxes[stage.id], on = stage.id === at, tone = stage.tone ? c(stage.tone) : c('muted');
  const said = stage.parameters || (stage.shared ? words('same') : words('nothing')), figure = stage.parameters ? `class="figure" style="fill:${tone};font-size:${b.flat || b.row ? 14 : 16}px;font-weight:600"` : 'class="small muted"';
  const label = `${stage.name}${tools.lang === 'zh' ? '：' : ': '}${said}, → ${stage.out}`;
  let out = rect(b.x, b.y, b.w, b.h, c(on ? 'accent-soft' : 'paper'), `class="edge" rx="3" stroke="${on ? c('ink') : stage.tone ? tone : c('hairline')}" stroke-width="${on ? 2.5 : 1.2}" ${stage.tone || on ? '' : 'stroke-dasharray="4 3"'}`);
  if (b.flat) {
    out += text(b.x + 10, b.y + 18, esc(stage.name), 'class="small"') + text(b.x + b.w - 10, b.y + 18, esc(said), `${figure} text-anchor="end"`);
  } else if (b.row) {
    out += text(b.x + 12, b.y + 22, esc(stage.name), `${on ? strong : ''} style="font-size:15px"`) + text(b.x + b.w - 12, b.y + 22, esc(said), `${figure} text-anchor="end"`);
    out += text(b.x + 12, b.y + 42, `→ ${esc(stage.out)}`, 'class="small figure muted"') + (stage.times ? text(b.x + b.w - 12, b.y + 42, esc(stage.times), 'class="small muted" text-anchor="end"') : '');
    out += rect(b.x + 1, b.y + b.h - 6, b.w - 2, 5, c('grid')) + (stage.share ? rect(b.x + 1, b.y + b.h - 6, (b.w - 2) * stage.share, 5, tone) : '');
  } else {
    const pad = b.inner ? 10 : 8, w = b.w - 2 * pad, size = b.inner ? 15 : 14, lines = tools.wrap(stage.name, size, w);
    let y = b.y + (b.inner ? 21 : 26);
    lines.forEach((line, i) => { out += text(b.x + pad, y + 18 * i, esc(line), `${strong} style="font-size:${size}px"`); });
    y += 18 * (lines.length - 1);
    if (b.inner) {
      out += text(b.x + 10, y + 20, esc(said), figure) + text(b.x + b.w - 10, y + 20, `× ${stage.layers}`, 'class="small figure muted" text-anchor="end"');
      const below = shape(stage.out, w, tools);
      if (b.h > 70 + 18 * below.length) below.forEach((line, i) => { out += text(b.x + 10, b.y + b.h - 12 - 18 * (below.length - 1 - i), esc(line), 'class="small figure muted"'); });
    } else {
      tools.wrap(said, 13, w).forEach((line, i) => { out += text(b.x + pad, y + 24 + 18 * i, esc(line), figure); });
      if (stage.share >= 0.0005) out += text(b.x + pad, y + 43, esc(stage.percent), 'class="small muted"');
      const out_ = shape(stage.out, w, tools);
      out_.forEach((line, i) => { out += text(b.x + pad, b.y + b.h - 12 - 18 * (out_.length - 1 - i), esc(line), 'class="small figure muted"'); });
    }
  }
  return `<g class="pick" data-id="${stage.id}" role="button" tabindex="${on ? 0 : -1}" aria-pressed="${on}" aria-label="${esc(label)}">${out}</g>`;
}

// "1 × 4 × 5120", on as many lines as it takes; the first begins with an arrow.
function shape(said, w, tools) {
  const whole = `→ ${said}`;
  if (tools.measure(whole, 13, 'figures') <= w || !said.includes(' × ')) return tools.wrap(whole, 13, w);
  const [first, ...rest] = said.split(' × ');
  const lines = [`→ ${first}`];
  for (const n of rest) {
    if (tools.measure(`${lines.at(-1)} × ${n}`, 13, 'figures') <= w) lines[lines.length - 1] += ` × ${n}`;
    else lines.push(`× ${n}`);
  }
  return lines;
}

// From the chosen box to its piece of the bar, behind everything.
function beam(data, p, at, tools) {
  let x = 0;
  for (const s of data.stages) {
    const w = s.share * p.W, b = p.boxes[s.id];
    if (s.id === at && s.share && p.wide) return `<path d="M${r(b.x)} ${r(b.y + b.h)}H${r(b.x + b.w)}L${r(x + w)} ${p.bar}H${r(x)}Z" fill="${tools.colour(s.tone)}" fill-opacity=".14"/>`;
    x += w;
  }
  return '';
}

function bar(data, p, at, tools) {
  const { colour: c, words, esc, measure } = tools, y = p.bar;
  let out = text(0, y - 12, words('bar', { total: data.total }), strong), x = 0;
  for (const s of data.stages.filter((each) => each.share > 0)) {
    const w = s.share * p.W, on = s.id === at, tone = c(s.tone);
    const texture = s.tone === 'state' ? 'url(#pm-state)' : s.id === 'window' ? 'url(#pm-window)' : tone;
    out += `<g class="pick" data-id="${s.id}">${rect(x, y, Math.max(w, 1), BAR, texture, `class="edge" fill-opacity="${s.tone === 'state' || s.id === 'window' ? 1 : on ? 0.42 : 0.24}" stroke="${on ? c('ink') : tone}" stroke-width="${on ? 2.5 : 1}"`)}`;
    const label = `${esc(s.name)} ${s.percent}`, halo = `style="paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round"`;
    if (measure(label, 13) * 1.05 + 14 < w) out += text(x + 8, y + BAR / 2 + 5, label, `class="small" ${s.tone === 'state' ? halo : ''}`);
    else if (measure(s.percent, 13) + 10 < w) out += text(x + w / 2, y + BAR / 2 + 5, s.percent, `class="small" text-anchor="middle" ${s.tone === 'state' ? halo : ''}`);
    out += '</g>';
    if (p.wide && w > 34 && measure(label, 13) * 1.05 + 14 >= w) out += text(Math.min(Math.max(x + w / 2, measure(s.name, 13) / 2), p.W - measure(s.name, 13) / 2 - 2), y + BAR + 18, esc(s.name), 'class="small muted" text-anchor="middle"');
    x += w;
  }
  return out;
}

function listen(svg, data, tools) {
  const { local } = tools, order = data.stages.map((s) => s.id);
  const choose = (id, focus) => {
    if (!id) return;
    Object.assign(local, { at: id, focus });
    tools.redraw();
    clearTimeout(local.settling);
    if (id !== data.chosen) local.settling = setTimeout(() => tools.pick('stage', id), focus ? 220 : 0);
  };
  svg.onclick = (event) => choose(event.target.closest?.('.pick')?.dataset.id, false);
  if (!local.heard) {   // once: the <svg> outlives its contents
    local.heard = true;
    svg.addEventListener('focusin', () => { local.focus = true; });
    svg.addEventListener('focusout', () => setTimeout(() => { if (svg.isConnected && !svg.contains(svg.getRootNode().activeElement)) local.focus = false; }));
  }
  svg.onkeydown = (event) => {
    const here = order.indexOf(event.target.closest?.('.pick')?.dataset.id ?? local.at), last = order.length - 1;
    const to = { ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1, Home: 0, End: last, Enter: here, ' ': here }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    choose(order[Math.min(last, Math.max(0, to))], true);
  };
}
