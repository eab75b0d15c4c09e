// What the browser keeps of the engine: the newest steps, who is in them, and the moment that is shown. News comes about once
// a second, so the moment shown lies a little behind the latest news, and moves on evenly.
const KEPT = 6000;                  // steps
const BEHIND = 0.35;                // s behind the news that is due, so that it is there when it is needed
const SLOW = 24;                    // steps a second that an eye can follow: slow motion shows no more
const CATCH_UP = 10;                // s in which slow motion would show all that it still owes
const LOST = { slow: 25, true: 4 }; // s behind, from which on it jumps
const QUIET = 1;                    // s without a step: nothing runs
const RATE_WINDOW = 2;              // s of steps that the tokens per second are counted over, as the service does

const history = () => ({ run: '', steps: [], next: 0, lives: new Map(), mine: new Set(), snaps: [], now: 0, heard: 0, pause: 1, at: 0, shown: 0, speed: 1, out: new Set(), written: new Map(), counted: 0, together: 0, texts: new Map(), wall: 0, peak: 0 });

/** Takes an answer in. True when it is of another run of the service, and all begins anew. */
function absorb(h, run, seen, heard) {
  const anew = run !== h.run || seen.next < h.next || seen.now < h.now;
  if (anew) Object.assign(h, history(), { run, wall: Date.now() / 1000 - seen.now });
  const rows = seen.steps.filter((row) => row[0] >= h.next);
  if (rows.length && rows[0][0] > h.next) Object.assign(h, { steps: [], at: 0, shown: 0, counted: 0 });   // nobody kept the steps between
  for (const row of rows) h.steps.push(step(row, seen.slots));
  h.next = seen.next;
  for (const life of seen.sequences) {
    h.lives.set(life.id, life);
    const texts = h.texts.get(life.request) ?? [];
    if (!texts.includes(life.id)) h.texts.set(life.request, [...texts, life.id].sort((a, b) => a - b));
  }
  for (const id of seen.mine) h.mine.add(id);
  Object.assign(h, { slots: seen.slots, blocks: seen.blocks, blockSize: seen.block_size, model: seen.model, policy: seen.policy, now: seen.now, heard });
  h.wall = Math.min(h.wall, Date.now() / 1000 - seen.now);   // the quickest answer knows best
  h.snaps.push({ ...seen, blockOf: new Map(seen.used.map(([block, owners, cells]) => [block, { owners, cells }])) });
  if (anew) {   // what was before one came is not played
    while (h.shown < h.steps.length && h.steps[h.shown].ended <= h.now - h.pause) pass(h);
    Object.assign(h, { peak: 0, counted: h.shown });
  }
  h.at = Math.max(h.at, h.shown);
  forget(h);
  return anew;
}

function step([index, ended, took, lanes, waiting, running, used, preempted, finished], slots) {
  const by = Array(slots).fill(null);
  for (const lane of lanes) by[lane[0]] = lane;
  return { index, ended, took, began: ended - took, lanes, by, waiting, running, used, preempted, finished, wrote: lanes.reduce((sum, lane) => sum + lane[4], 0) };
}

function forget(h) {
  const gone = h.steps.length - KEPT;
  if (gone < KEPT / 4) return;
  h.steps.splice(0, gone);
  h.at = Math.max(0, h.at - gone);
  h.shown = Math.max(0, h.shown - gone);
  h.counted = Math.max(0, h.counted - gone);
  for (const [id, life] of h.lives) if (life.finished !== null && life.finished < h.steps[0].began) { h.lives.delete(id); h.mine.delete(id); h.texts.delete(life.request); }
}

/** One step more has been shown. */
function pass(h) {
  const s = h.steps[h.shown++];
  for (const id of s.preempted) h.out.add(id);
  for (const [, id, , , wrote] of s.lanes) {
    h.out.delete(id);
    if (h.mine.has(id)) h.written.set(id, (h.written.get(id) ?? 0) + wrote);
  }
  h.peak = Math.max(h.peak, s.lanes.length);
}

/** The service's clock at a time of the browser's, ms. */
const clock = (h, time) => h.now + (time - h.heard) / 1000;

/** Moves the moment shown on by `seconds`. True while there is something to move. */
function advance(h, seconds, time, slow) {
  const due = Math.min(clock(h, time) - h.pause, h.now);
  let left = seconds;
  const lag = h.shown < h.steps.length ? due - moment(h) : 0;
  if (lag > (slow ? LOST.slow : LOST.true)) {
    while (h.shown < h.steps.length && h.steps[h.shown].ended <= due) pass(h);
    h.at = h.shown;
  }
  const most = slow ? Math.max(SLOW, (h.steps.length - h.shown) / CATCH_UP) : Infinity;
  while (left > 0 && h.shown < h.steps.length) {
    const next = h.steps[h.shown], owed = due - moment(h);
    if (due < next.began) break;
    const pace = Math.min(Math.max(0.5, Math.min(3, 1 + owed)) / next.took, most), need = (h.shown + 1 - h.at) / pace;
    h.speed += ((pace * next.took < 0.8 ? pace * next.took : 1) - h.speed) * Math.min(1, left * 4);
    if (need > left) { h.at += left * pace; break; }
    left -= need;
    pass(h);
    h.at = h.shown;
  }
  while (h.snaps.length > 1 && (h.shown >= h.steps.length || h.snaps[1].now <= moment(h))) h.snaps.shift();
  return h.shown < h.steps.length;
}

/** Everything that is known, at once: for readers who want no motion. */
function leap(h) {
  while (h.shown < h.steps.length) pass(h);
  h.at = h.shown;
  h.snaps.splice(0, h.snaps.length - 1);
}

/** The moment shown, on the service's clock. */
function moment(h, at = h.at) {
  const s = h.steps[Math.min(Math.floor(at), h.steps.length - 1)];
  return !s ? h.now : at >= h.steps.length ? s.ended : s.began + (at - Math.floor(at)) * s.took;
}

/** What stands at the moment shown: the last step that began, and whether anything runs. */
function present(h, time) {
  const last = h.steps[Math.ceil(h.at) - 1] ?? null;
  const runs = Boolean(last) && (h.shown < h.steps.length && h.at > 0 && h.steps[h.shown].began - last.ended < QUIET || clock(h, time) - h.pause - last.ended < QUIET);
  return { last, runs, rate: runs ? rate(h) : 0, waiting: waiting(h), used: h.shown < h.steps.length && last ? last.used : h.snaps[0]?.used.length ?? 0 };
}

/** Tokens written per second of steps. */
function rate(h) {
  let wrote = 0, took = 0;
  for (let i = Math.ceil(h.at) - 1; i >= 0 && took < RATE_WINDOW; i--) { wrote += h.steps[i].wrote; took += h.steps[i].took; }
  return took ? wrote / took : 0;
}

/** Who waits at the moment shown, in order of arrival: a request for several texts once, and whoever had to give way. */
function waiting(h) {
  const then = h.shown < h.steps.length ? moment(h) : Infinity, found = [];
  for (const life of h.lives.values()) {
    const over = life.finished !== null && life.finished <= then, first = h.texts.get(life.request)[0] === life.id;
    if (!over && (h.out.has(life.id) || (first && life.arrived <= then && (life.admitted === null || life.admitted > then)))) found.push(life);
  }
  return found.sort((a, b) => a.id - b.id);
}

/** What a sequence is called: by its request, counted from one as in the lesson's player; several texts of one request apart. */
function called(h, id) {
  const life = h.lives.get(id), texts = h.texts.get(life?.request) ?? [id];
  return `${(life?.request ?? id) + 1}${texts.length > 1 ? `.${texts.indexOf(id) + 1}` : ''}`;
}

/** The trace as compute/trace.py writes it. */
function taken(h) {
  const steps = h.steps.map((s) => ({ ended: s.ended, took: s.took, lanes: s.lanes, waiting: s.waiting, running: s.running, used: s.used, preempted: s.preempted, finished: s.finished }));
  const there = new Set(h.steps.flatMap((s) => s.lanes.map((lane) => lane[1])));
  const sequences = [...h.lives.values()].filter((life) => there.has(life.id) || life.finished === null);
  return { version: 1, policy: h.policy, slots: h.slots, blocks: h.blocks, block_size: h.blockSize, sequences, steps, clock: 'second', first: h.steps[0]?.index ?? 0 };
}
