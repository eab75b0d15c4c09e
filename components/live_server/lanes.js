// The swim lanes: slots over steps, the newest at the right edge. A column is a step, however long it took; the time is under it.
const GUTTER = 34, AXIS = 26, TOP = 2, FONT = 13;
const COLUMN = { wide: 8, narrow: 5, least: 1.5 };   // px of a step
const BREAK = 0.4;                                    // s without a step, from which on the pause is marked
const EDGE = 3;                                       // px that a prefill takes at least

const laneHeight = (slots) => (slots <= 8 ? 30 : slots <= 16 ? 22 : 15);
const lanesHeight = (slots) => TOP + slots * laneHeight(slots) + AXIS;

/** A pen that knows the page's colours by name. resolve(name) → a colour that a canvas understands. */
function pen(g, resolve, fonts) {
  return {
    g,
    box(x, y, w, h, tone, alpha = 1) { g.globalAlpha = alpha; g.fillStyle = resolve(tone); g.fillRect(x, y, w, h); g.globalAlpha = 1; },
    frame(x, y, w, h, tone, line = 1) { g.strokeStyle = resolve(tone); g.lineWidth = line; g.strokeRect(x + line / 2, y + line / 2, Math.max(0, w - line), h - line); },
    text(x, y, words, tone, { bold = false, align = 'left', px = FONT, figures = false } = {}) {
      g.font = `${bold ? 650 : 400} ${px}px ${figures ? fonts.figures : fonts.sans}`;
      g.textAlign = align;
      g.textBaseline = 'middle';
      g.fillStyle = resolve(tone);
      g.fillText(words, x, y);
    },
    width(words, { bold = false, px = FONT, figures = false } = {}) { g.font = `${bold ? 650 : 400} ${px}px ${figures ? fonts.figures : fonts.sans}`; return g.measureText(words).width; },
    line(x, from, to, tone, dash = [], width = 1) { g.strokeStyle = resolve(tone); g.lineWidth = width; g.setLineDash(dash); g.beginPath(); g.moveTo(x, from); g.lineTo(x, to); g.stroke(); g.setLineDash([]); },
    hatch(x, y, w, h, tone, every = 6) {
      g.save(); g.beginPath(); g.rect(x, y, w, h); g.clip(); g.beginPath();
      for (let s = x - h; s < x + w; s += every) { g.moveTo(s, y + h); g.lineTo(s + h, y); }
      g.strokeStyle = resolve(tone); g.lineWidth = 1.2; g.stroke(); g.restore();
    },
  };
}

/** at: how many steps have gone by at the right edge. */
function drawLanes(p, h, at, width, column, W) {
  const slots = h.slots ?? 8, row = laneHeight(slots), bottom = TOP + slots * row, right = width - 2, thick = row - 4;
  const x = (i) => right - (at - i) * column, y = (lane) => TOP + lane * row + 2;
  for (let lane = 0; lane < slots; lane++) {
    p.box(GUTTER, y(lane), right - GUTTER, thick, 'free');
    p.text(GUTTER - 10, y(lane) + thick / 2, String(lane + 1), 'muted', { align: 'right', figures: true });
  }
  const from = Math.max(0, Math.floor(at - (right - GUTTER) / column)), to = Math.min(h.steps.length, Math.ceil(at));
  p.g.save();
  p.g.beginPath();
  p.g.rect(GUTTER, 0, right - GUTTER, bottom + AXIS);
  p.g.clip();
  const stays = [];   // a sequence's stay in a slot: [lane, id, first, end)
  for (let lane = 0; lane < slots; lane++) for (const stay of stretches(h.steps, lane, from, to)) { stays.push(stay); fill(p, stay, x, y(lane), thick, column); }
  if (column >= 4) for (let i = from; i < to; i++) p.box(x(i), TOP, 1, bottom - TOP, 'paper', Math.min(1, (column - 3) / 2));
  ticks(p, h, from, to, x, bottom, W);
  for (const stay of stays) if (!h.mine.has(stay.id)) number(p, stay, called(h, stay.id), x, y(stay.lane), thick);
  for (const stay of stays) if (h.mine.has(stay.id)) mark(p, stay, `${W('view.you')} ${called(h, stay.id)}`, x, y(stay.lane), thick);
  for (let i = Math.max(1, from); i < to; i++) for (const id of h.steps[i].preempted) {
    const lane = h.steps[i - 1].by.findIndex((cell) => cell?.[1] === id);
    if (lane >= 0) p.box(x(i) - 1.5, y(lane) - 1, 3, thick + 2, 'rejected');
  }
  p.g.restore();
  p.line(right + 1, TOP, bottom, 'ink', [], 1.5);
}

/** What a slot did, as stays of one sequence each, and inside them runs of one kind. */
function stretches(steps, lane, from, to) {
  const found = [];
  let stay = null, run = null;
  for (let i = from; i < to; i++) {
    const cell = steps[i].by[lane];
    if (!cell) { run = null; continue; }
    if (!stay || stay.id !== cell[1]) { found.push((stay = { lane, id: cell[1], first: i, end: i, runs: [] })); run = null; }
    if (!run || run.kind !== cell[2]) stay.runs.push((run = { kind: cell[2], first: i, end: i }));
    run.end = stay.end = i + 1;
  }
  return found;
}

function fill(p, stay, x, y, thick, column) {
  const gap = column >= 3 ? 0 : 0.5, from = x(stay.first), to = x(stay.end);
  const worked = stay.runs.reduce((sum, run) => sum + run.end - run.first, 0);
  if (worked < stay.end - stay.first) { p.box(from, y, to - from, thick, 'reserved', 0.5); p.hatch(from, y, to - from, thick, 'muted'); }   // held the slot and got no share
  for (const run of stay.runs) {
    const left = x(run.first), wide = (run.end - run.first) * column - gap;
    if (run.kind === 'decode') p.box(left, y, wide, thick, 'decode');
    else { p.box(left, y, Math.max(wide, EDGE), thick, 'prefill'); p.frame(left, y, Math.max(wide, EDGE), thick, 'ink', 2); }
  }
}

function number(p, stay, words, x, y, thick) {
  const left = after(stay, x), room = x(stay.end) - left - 4;
  if (p.width(words, { figures: true }) <= room) chip(p, left, y, thick, words, 'muted', false);
}

function mark(p, stay, words, x, y, thick) {
  const left = x(stay.first), end = x(stay.end);
  p.frame(left - 2, y - 2, end - left + 4, thick + 4, 'paper', 1);
  p.frame(left - 1, y - 1, end - left + 2, thick + 2, 'ink', 3);
  chip(p, after(stay, x), y, thick, words, 'ink', true);
}

/** Where the name of a stay begins: the prompt that was read first stays in sight. */
const after = (stay, x) => Math.max(GUTTER, stay.runs[0].kind === 'prefill' ? Math.max(x(stay.runs[0].end), x(stay.first) + EDGE) : x(stay.first)) + 6;

function chip(p, left, y, thick, words, tone, bold) {
  const wide = p.width(words, { bold, figures: !bold }) + 8, high = Math.min(18, thick - 2), top = y + (thick - high) / 2;
  p.box(left - 4, top, wide, high, 'paper', 0.94);
  p.text(left, y + thick / 2 + 0.5, words, tone, { bold, figures: !bold });
}

// ---- the time under the steps

const UNITS = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60];

function ticks(p, h, from, to, x, bottom, W) {
  if (to - from < 2) return;
  let taken = -Infinity;   // px up to which there is a label
  const spoken = [];
  for (let i = from + 1; i < to; i++) {
    const pause = h.steps[i].began - h.steps[i - 1].ended;
    if (pause < BREAK) continue;
    const words = W('view.paused', { time: seconds(pause) }), half = p.width(words) / 2, middle = Math.max(GUTTER + half, Math.min(x(to) - half, x(i)));
    p.line(x(i), TOP, bottom + 4, 'muted', [4, 3]);
    if (spoken.some(([a, b]) => middle + half > a && middle - half < b)) continue;
    p.text(middle, bottom + 15, words, 'muted', { align: 'center' });
    spoken.push([middle - half - 10, middle + half + 10]);
  }
  const whole = h.steps.slice(from, to), mean = whole.reduce((sum, s) => sum + s.took, 0) / whole.length, unit = UNITS.find((u) => (u / mean) * (x(1) - x(0)) >= 110) ?? 60;
  for (let i = Math.max(1, from); i < to; i++) {
    const mark = Math.floor((h.wall + h.steps[i].ended) / unit);
    if (mark === Math.floor((h.wall + h.steps[i - 1].ended) / unit) || h.steps[i].began - h.steps[i - 1].ended >= BREAK) continue;
    const words = wallTime(mark * unit, unit), half = p.width(words, { figures: true }) / 2, at = x(i);
    if (at - half < Math.max(GUTTER, taken) || at + half > x(to) || spoken.some(([a, b]) => at + half > a && at - half < b)) continue;
    p.line(at, bottom + 1, bottom + 5, 'muted');
    p.text(at, bottom + 15, words, 'muted', { align: 'center', figures: true });
    taken = at + half + 16;
  }
}

function wallTime(time, unit) {
  const date = new Date(Math.round(time * 1000)), two = (n) => String(n).padStart(2, '0');
  const part = unit >= 1 ? '' : `.${String(date.getMilliseconds()).padStart(3, '0').slice(0, unit >= 0.1 ? 1 : 2)}`;
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${part}`;
}

const digits = (value) => Number(value.toPrecision(3)).toLocaleString('en-US');
const seconds = (s) => (s < 0.9995 ? `${digits(s * 1000)} ms` : s < 90 ? `${digits(s)} s` : `${Math.round(s / 60)} min`);

/** The cell under the pointer: its step, slot and what was done there. */
function cellAt(h, at, px, py, width, column) {
  const slots = h.slots ?? 0, lane = Math.floor((py - TOP) / laneHeight(slots)), i = Math.floor(at - (width - 2 - px) / column);
  return lane >= 0 && lane < slots && px >= GUTTER && i >= 0 && i < Math.min(h.steps.length, Math.ceil(at)) ? { step: h.steps[i], lane, cell: h.steps[i].by[lane] } : null;
}
