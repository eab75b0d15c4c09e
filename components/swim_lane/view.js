// Two panels, one scale of time. Of each: on the left the last steps as cells, on the right the whole run as bars, the queue below.
export const surface = 'canvas';

const PREFILL = 0, DECODE = 1, STALLED = 2;
const HAIR = 1, FONT = 13;

function plan(data, width, tools) {
  const wide = width >= 720, slots = Math.max(...data.runs.map((run) => run.slots));
  const row = slots <= 8 ? 20 : 16, cells = wide ? 12 : 5, cell = wide ? 12 : 8, now = 30, gap = wide ? 20 : 10;
  const left = cells * cell + now + gap, edge = wide ? 3 : 2, steps = Math.max(1, ...data.runs.map((run) => run.steps), ...(data.before ?? []).map((was) => was.steps));
  const head = wide ? 34 : 52, queue = 30, notice = data.waiting ? 16 + 20 * lines(tools.words('waiting'), width, tools).length : 0;
  const panel = head + slots * row + 8 + queue, first = notice + 24;
  const axis = first + data.runs.length * panel + (data.runs.length - 1) * 20;
  const legend = axis + 44, told = legend + (wide ? 26 : 24 * keys(data, tools, width).at(-1).line + 26);
  // edge: px that a prefill takes at least, where a step has less than one
  return { wide, row, edge, cells, cell, now, left, steps, head, queue, panel, first, axis, legend, told, notice, px: (width - left - 2) / steps, height: told + (wide ? 44 : 72) };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(g, data, t, tools) {
  const p = plan(data, tools.width, tools), local = tools.local;
  if (local.asked !== data.request) { local.asked = data.request; local.pinned = data.request; }
  const pen = brush(g, tools), picked = local.hover || local.pinned;
  if (p.notice) { pen.box(0, 0, 3, p.notice - 12, 'accent'); lines(tools.words('waiting'), tools.width - 12, tools).forEach((line, i) => pen.text(12, 14 + 20 * i, line, 'ink')); }
  pen.text(0, p.first - 8, tools.words('now', { n: p.cells + 1 }), 'muted');
  pen.text(p.left, p.first - 8, tools.words('whole'), 'muted');
  data.runs.forEach((run, i) => panel(pen, run, data.before?.[i], Math.min(t, run.steps - 1), t, p.first + i * (p.panel + 20), picked, p, tools));
  axis(pen, t, p, tools);
  legend(pen, data, p, tools);
  told(pen, data, picked, p, tools);
  listen(g.canvas, data, t, p, tools);
}

export function says(data, t, tools) {
  const runs = data.runs.map((run) => {
    const at = Math.min(t, run.steps - 1), values = { name: run.name, slots: run.slots, busy: busy(run, at), queue: run.queue[at], finished: run.finished[at], used: percent(used(run, at)), n: run.steps };
    return tools.words(t >= run.steps - 1 ? 'says_done' : 'says_run', values);
  }).join('');
  const picked = tools.local?.pinned;
  return tools.words('says', { t: t + 1, runs }) + (picked ? fate(data, picked, tools) : '');
}

export function walk(along, data, t, tools) {
  const all = [...new Set(data.runs.flatMap((run) => Object.keys(run.lives).map(Number)))].sort((a, b) => a - b), local = tools.local;
  const at = all.indexOf(local.pinned || 0);
  local.pinned = all[at < 0 ? (along > 0 ? 0 : all.length - 1) : (at + along + all.length) % all.length];
  return fate(data, local.pinned, tools);
}

// ---- what is known of a run at a step

const known = new WeakMap();   // of a run: its stretches by slot, and busy cells up to each step

function index(run) {
  if (known.has(run)) return known.get(run);
  const lanes = Array.from({ length: run.slots }, () => []), count = new Uint16Array(run.steps + 1);
  for (const stretch of run.segments) {
    lanes[stretch[0]].push(stretch);
    if (stretch[4] !== STALLED) for (let s = stretch[2]; s < stretch[2] + stretch[3]; s++) count[s]++;
  }
  const sum = new Uint32Array(run.steps + 1);
  for (let s = 0; s < run.steps; s++) sum[s + 1] = sum[s] + count[s];
  const made = { lanes, count, sum };
  known.set(run, made);
  return made;
}
const busy = (run, t) => index(run).count[t];
const used = (run, t) => index(run).sum[t + 1] / (run.slots * (t + 1));
const percent = (share) => (100 * share).toFixed(1);
function at(run, lane, step) {   // the stretch of a slot at a step
  const row = index(run).lanes[lane];
  let low = 0, high = row.length - 1;
  while (low <= high) {
    const mid = (low + high) >> 1, [, , from, long] = row[mid];
    if (step < from) high = mid - 1; else if (step >= from + long) low = mid + 1; else return row[mid];
  }
  return null;
}

// ---- drawing

function brush(g, tools) {
  const sans = tools.font('sans'), figures = tools.font('figures'), c = tools.colour;
  const box = (x, y, w, h, tone, alpha = 1) => { g.globalAlpha = alpha; g.fillStyle = c(tone); g.fillRect(x, y, w, h); g.globalAlpha = 1; };
  const frame = (x, y, w, h, tone, line = 1) => { g.strokeStyle = c(tone); g.lineWidth = line; g.strokeRect(x + line / 2, y + line / 2, w - line, h - line); };
  const text = (x, y, words, tone, more = {}) => {
    g.font = `${more.bold ? 650 : 400} ${more.px ?? FONT}px ${more.figures ? figures : sans}`;
    g.textAlign = more.align ?? 'left';
    g.fillStyle = c(tone);
    g.fillText(words, x, y);
  };
  const hatch = (x, y, w, h, tone) => {
    box(x, y, w, h, tone, 0.35);
    g.save(); g.beginPath(); g.rect(x, y, w, h); g.clip(); g.beginPath();
    for (let s = x - h; s < x + w; s += 5) { g.moveTo(s, y + h); g.lineTo(s + h, y); }
    g.strokeStyle = c(tone); g.lineWidth = 1.2; g.stroke(); g.restore();
  };
  const dashed = (x, from, to, tone) => { g.strokeStyle = c(tone); g.lineWidth = 1.5; g.setLineDash([4, 3]); g.beginPath(); g.moveTo(x, from); g.lineTo(x, to); g.stroke(); g.setLineDash([]); };
  return { g, box, frame, text, hatch, dashed };
}

function panel(pen, run, before, last, t, y, picked, p, tools) {
  head(pen, run, before, last, t, y, p, tools);
  const top = y + p.head, x0 = p.left, high = p.row - 2, bottom = top + run.slots * p.row;
  for (let lane = 0; lane < run.slots; lane++) {
    const ly = top + lane * p.row;
    pen.box(x0, ly, (last + 1) * p.px, high, 'free');
    pen.frame(x0, ly, run.steps * p.px, high, 'hairline');
    bars(pen, run, lane, last, x0, ly, high, picked, p, tools);
    closeup(pen, run, lane, last, ly, high, picked, p, tools);
  }
  for (const [step, lane, request] of run.preempted) if (step <= last) cut(pen, x0 + step * p.px, top + lane * p.row, high, picked && picked !== request ? 0.3 : 1);
  queue(pen, run, last, bottom + 8, p, tools);
  if (before && before.steps !== run.steps) {
    const x = x0 + before.steps * p.px, label = tools.words('was', { n: tools.number(before.steps) }), w = tools.measure(label, FONT);
    pen.dashed(x, top - 4, bottom, 'ghost');
    if (before.steps > run.steps + (w + 8) / p.px) pen.text(x - 5, bottom - 5, label, 'muted', { align: 'right' });
  }
  const x = x0 + (last + 1) * p.px;
  pen.box(Math.min(x, tools.width - 1.5), top - 4, 1.5, bottom - top + 6, t >= run.steps - 1 ? 'muted' : 'ink');
  const done = tools.words('done', { n: tools.number(run.steps) });
  if (t >= run.steps - 1 && x + tools.measure(done, 14) + 12 < tools.width) pen.text(x + 8, top + 14, done, 'ink', { px: 14 });
}

function head(pen, run, before, last, t, y, p, tools) {
  const words = tools.words, share = used(run, last);
  pen.text(0, y + 17, run.name, 'ink', { px: 15, bold: true });
  const stats = [
    [words('finished'), `${run.finished[last]}/${run.of}`],
    [words('blocks'), `${run.used[last]}/${run.blocks}`],
  ];
  const barWide = p.wide ? 120 : 64, label = words('used'), shown = `${percent(share)}%`;
  let x = p.wide ? p.left : tools.width - barWide - tools.measure('100.0%', 15, 'figures') - tools.measure(label, FONT) - 14;
  pen.text(x, y + 17, label, 'muted');
  x += tools.measure(label, FONT) + 6;
  pen.box(x, y + 7, barWide, 11, 'free');
  pen.box(x, y + 7, barWide * share, 11, 'ink');
  pen.frame(x, y + 7, barWide, 11, 'muted');
  if (before) pen.box(x + barWide * before.utilisation - 1, y + 4, 2, 17, 'ghost');
  x += barWide + 8;
  pen.text(x, y + 17, shown, 'ink', { px: 15, bold: true, figures: true });
  x = p.wide ? x + tools.measure('100.0%', 15, 'figures') + 24 : 0;
  const line = p.wide ? y + 17 : y + 40;
  for (const [name, value] of stats) {
    pen.text(x, line, name, 'muted');
    x += tools.measure(name, FONT) + 5;
    pen.text(x, line, value, 'ink', { figures: true });
    x += Math.max(tools.measure(value, FONT, 'figures'), tools.measure('88/88', FONT, 'figures')) + (p.wide ? 22 : 10);
  }
}

// The whole run of a slot, as far as it has come.
function bars(pen, run, lane, last, x0, y, high, picked, p, tools) {
  const g = pen.g, row = index(run).lanes[lane];
  let shown = 0;   // the request whose number stands already
  for (const [, request, from, long, kind] of row) {
    if (from > last) break;
    const x = x0 + from * p.px, w = (Math.min(last + 1, from + long) - from) * p.px, alpha = picked && picked !== request ? 0.22 : 1;
    if (kind === STALLED) { g.globalAlpha = alpha; pen.hatch(x, y, w, high, 'reserved'); g.globalAlpha = 1; continue; }
    const over = from + long <= last && at(run, lane, from + long)?.[1] !== request;   // a gap where another follows
    pen.box(x, y, Math.max(0.7, w - (over ? Math.min(1.2, w / 3) : 0)), high, kind === DECODE ? 'decode' : 'prefill', alpha);
  }
  for (const [, request, from, long, kind] of row) {   // over the bars, as they may be wider than their steps
    if (from > last) break;
    const x = x0 + from * p.px, end = x0 + Math.min(last + 1, from + long) * p.px, alpha = picked && picked !== request ? 0.22 : 1;
    if (kind === PREFILL) {
      const w = Math.max(p.edge, end - x);
      pen.box(x, y, w, high, 'prefill', alpha);
      pen.box(x, y, 1, high, 'ink', alpha);
    }
    if (kind === DECODE && request !== shown) {
      const label = String(request), inside = end - x - p.edge, wide = tools.measure(label, FONT, 'figures');
      if (inside > wide + 3) { g.globalAlpha = alpha; pen.text(x + p.edge + 1, y + high / 2 + 4.5, label, 'paper', { figures: true }); g.globalAlpha = 1; shown = request; }
    }
    if (kind !== DECODE && request !== shown) shown = 0;
    if (picked === request) pen.frame(x, y, Math.max(p.edge, end - x), high, 'ink', 1.5);
  }
}

// The last steps of a slot as cells; the newest is wide and says whose it is.
function closeup(pen, run, lane, last, y, high, picked, p, tools) {
  for (let back = p.cells; back >= 0; back--) {
    const step = last - back, wide = back === 0 ? p.now : p.cell, x = (p.cells - back) * p.cell;
    if (step < 0) continue;
    const found = at(run, lane, step);
    if (!found) { pen.box(x, y, wide - 1, high, 'free'); pen.frame(x, y, wide - 1, high, 'hairline'); continue; }
    const [, request, , , kind] = found, alpha = picked && picked !== request ? 0.22 : 1;
    if (kind === STALLED) pen.hatch(x, y, wide - 1, high, 'reserved');
    else pen.box(x, y, wide - 1, high, kind === PREFILL ? 'prefill' : 'decode', alpha);
    if (kind === PREFILL) pen.frame(x, y, wide - 1, high, 'ink', 1.5);
    if (picked === request) pen.frame(x, y, wide - 1, high, 'ink', 1.5);
    if (back === 0) pen.text(x + wide / 2, y + high / 2 + 4.5, String(request), kind === STALLED || alpha < 1 ? 'ink' : 'paper', { figures: true, align: 'center' });
  }
}

function cut(pen, x, y, high, alpha) {   // a request had to leave here
  const g = pen.g;
  pen.box(x - 2, y, 2.5, high, 'rejected', alpha);
  g.globalAlpha = alpha;
  g.beginPath(); g.moveTo(x - 6, y - 3); g.lineTo(x + 5, y - 3); g.lineTo(x - 0.5, y + 5); g.closePath(); g.fill();
  g.globalAlpha = 1;
}

function queue(pen, run, last, y, p, tools) {
  const g = pen.g, most = Math.max(1, run.of), high = p.queue - 4, x0 = p.left;
  pen.text(p.left - (p.wide ? 20 : 10), y + high - 3, `${tools.words('queue')} ${run.queue[last]}`, 'muted', { align: 'right' });
  g.beginPath(); g.moveTo(x0, y + high);
  for (let s = 0; s <= last; s++) { const h = y + high - (high * run.queue[s]) / most; g.lineTo(x0 + s * p.px, h); g.lineTo(x0 + (s + 1) * p.px, h); }
  g.lineTo(x0 + (last + 1) * p.px, y + high); g.closePath();
  g.globalAlpha = 0.4; g.fillStyle = tools.colour('muted'); g.fill(); g.globalAlpha = 1;
  pen.box(x0, y + high, run.steps * p.px, HAIR, 'hairline');
}

function axis(pen, t, p, tools) {
  const y = p.axis + 4, every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find((n) => n * p.px >= (p.wide ? 64 : 48)) ?? 10000;
  pen.box(p.left, y, p.steps * p.px, HAIR, 'muted');
  for (let s = 0; s <= p.steps; s += every) {
    pen.box(p.left + s * p.px, y, HAIR, 5, 'muted');
    const label = tools.number(s), w = tools.measure(label, FONT, 'figures'), x = p.left + s * p.px;
    if (s > 0 && x + w / 2 < tools.width) pen.text(x, y + 19, label, 'muted', { figures: true, align: 'center' });
  }
  pen.text(p.left, y + 19, tools.words('step'), 'muted');
}

function keys(data, tools, width) {
  const has = (kind) => data.runs.some((run) => run.segments.some((stretch) => stretch[4] === kind));
  const names = ['prefill', 'decode', 'idle', ...(has(STALLED) ? ['stalled'] : []), ...(data.runs.some((run) => run.preempted.length) ? ['preempted'] : [])];
  let x = 0, line = 0;
  return names.map((name) => {
    const w = 24 + tools.measure(tools.words(name), FONT) + 22;
    if (x + w - 22 > width) { x = 0; line++; }
    const key = { name, x, line };
    x += w;
    return key;
  });
}

function legend(pen, data, p, tools) {
  for (const { name, x, line } of keys(data, tools, tools.width)) {
    const y = p.legend + 24 * line;
    if (name === 'prefill') { pen.box(x, y, 16, 13, 'prefill'); pen.frame(x, y, 16, 13, 'ink', 1.5); }
    if (name === 'decode') pen.box(x, y, 16, 13, 'decode');
    if (name === 'idle') { pen.box(x, y, 16, 13, 'free'); pen.frame(x, y, 16, 13, 'ghost'); }
    if (name === 'stalled') pen.hatch(x, y, 16, 13, 'reserved');
    if (name === 'preempted') cut(pen, x + 9, y + 2, 11, 1);
    pen.text(x + 22, y + 11.5, tools.words(name), 'ink');
  }
}

// ---- one request

function fate(data, request, tools) {
  const known = data.runs.map((run) => run.lives[request]).find(Boolean);
  if (!known) return '';
  const told = data.runs.map((run) => {
    const life = run.lives[request];
    if (!life) return tools.words('fate_never', { name: run.name });
    const [arrived, admitted, finished, , , times] = life;
    return tools.words(finished === null ? 'fate_open' : 'fate', { name: run.name, waited: tools.number(admitted - arrived), finished: finished === null ? '' : tools.number(finished + 1), times: times ? tools.words('times', { n: times }) : '' });
  });
  return tools.words('picked', { n: request, prompt: known[3], written: known[4] }) + told.join('');
}

function told(pen, data, picked, p, tools) {
  const said = (picked && fate(data, picked, tools)) || tools.words(data.runs.length > 1 ? 'hint' : 'hint_one');
  lines(said, tools.width, tools, 14).forEach((line, i) => pen.text(0, p.told + 14 + 21 * i, line, picked ? 'ink' : 'muted', { px: 14 }));
}

function lines(said, width, tools, px = 14) {
  const found = [''];
  for (const word of said.match(/[\u2e80-\uffff][，。；：、”）]*|[^\s\u2e80-\uffff]+\s*|\s+/g) ?? []) {
    if (found.at(-1) && tools.measure(found.at(-1) + word.trimEnd(), px) > width) found.push('');
    found[found.length - 1] += found.at(-1) ? word : word.trimStart();
  }
  return found;
}

// ---- pointing

function listen(canvas, data, t, p, tools) {
  const local = tools.local, find = (event) => {
    const { left, top } = canvas.getBoundingClientRect(), zoom = canvas.currentCSSZoom || 1, x = (event.clientX - left) / zoom, y = (event.clientY - top) / zoom;
    for (const [i, run] of data.runs.entries()) {
      const lane = Math.floor((y - p.first - i * (p.panel + 20) - p.head) / p.row), last = Math.min(t, run.steps - 1);
      if (lane < 0 || lane >= run.slots) continue;
      const step = x >= p.left ? Math.floor((x - p.left) / p.px) : Math.min(last, last - p.cells + Math.floor(x / p.cell));
      return step <= last ? at(run, lane, step)?.[1] ?? 0 : 0;
    }
    return 0;
  };
  const point = (request) => {
    canvas.style.cursor = request ? 'pointer' : '';
    if ((local.hover ?? 0) !== request) { local.hover = request; tools.redraw(); }
  };
  canvas.onpointermove = (event) => event.pointerType === 'mouse' && point(find(event));
  canvas.onpointerleave = () => point(0);
  canvas.onclick = (event) => { const request = find(event); local.pinned = local.pinned === request ? 0 : request; tools.redraw(); };
}
