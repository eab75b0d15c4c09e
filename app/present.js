// The stage: one step of a page at a time, large, for a room; and the way a class follows it. app/shell.js loads this once somebody
// presents, follows, or opens a link to a step. Steps are shown and hidden by one style sheet, so that no redraw of the framework
// undoes it and no step asks the server for anything. docs/presenting.md describes it from the teacher's side.
const TICK_MS = 120;
const ALIVE_MS = 4000;                              // a sign of life to the room, which waits 20 s
const RETRY_MS = 2000;
const LESSON = { width: 1440, height: 900 };        // the window that sizes are given for; larger ones grow with it
const PROSE = { wanted: 1.6, least: 24 / 17 };      // times the page's 17 px
const INSTRUMENT = { wanted: 24 / 14, least: 24 / 17 };   // times a picture's 14 px; as large as still fits the window
const SHRINK = 0.94;
const SIZES = [0.8, 0.9, 1, 1.15, 1.3, 1.5, 1.75, 2];     // + and −
const HOLD_MS = 450;                                // a key held longer is let go again
const SPOT_STEP = 48;
const COLUMN = '[data-testid="stMainBlockContainer"] > [data-testid="stVerticalBlock"]';
const BLOCK = '[class*="st-key-lab-prose-"], [class*="st-key-lab-instrument-"]';
const NO_STEP = /^(neighbours|strangers|refused-.*|question|questions|tools)$/;
const OWN_ARROWS = '[role=slider], [role=radio], [role=tab], [role=listbox], [role=option], [role=menu], select, input, summary';
const KEYS = ['next', 'previous', 'ends', 'escape', 'reset', 'language', 'spot', 'mark', 'timer', 'code', 'size', 'leave', 'help'];

const S = { mode: '', data: null, words: {}, minutes: {}, steps: [], at: '', coming: null, last: '', size: 1, fit: null, token: '', told: '', toldAt: 0, telling: false, alone: '', seen: null, version: '', spot: null, marking: false, marks: [], part: -1 };
const kept = {
  get(name) { try { return sessionStorage.getItem(`lab-${name}`); } catch { return null; } },
  set(name, value) { try { value === null ? sessionStorage.removeItem(`lab-${name}`) : sessionStorage.setItem(`lab-${name}`, value); } catch { /* switched off: lasts as long as the page */ } },
};
const $ = (selector, from = document) => from.querySelector(selector);
const main = () => $('[data-testid="stMain"]');
const app = () => $('.stApp');
const settled = () => app()?.dataset.testScriptState === 'notRunning';
const fill = (text, values = {}) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
const say = (name, values) => fill(S.words[name] ?? `⟨${name}⟩`, values);
const base = () => new URL('.', document.baseURI).pathname;

// ---- what the shell calls

/** After every run of a page: its language, slug and order. */
export async function page(data) {
  const before = S.data, query = new URLSearchParams(location.search);
  S.data = data;
  if (data.lang !== before?.lang) await speak(data.lang);
  if (S.mode === 'follow' && S.seen?.state === 'on' && S.seen.slug === data.slug && data.slug !== before?.slug) { S.at = S.seen.step; S.coming = null; }
  else if (S.coming && data.slug !== S.coming.from) { S.at = S.coming.at; S.coming = null; }
  else if (before && S.mode === 'stage' && data.slug !== before.slug) S.at = '';
  if (!before) {   // as the address says it
    S.at = query.get('step') || '';
    if (query.get('present') === '1') return start();
    if (data.slug === 'follow' || kept.get('follow') === 'on') return follow();
    if (kept.get('follow') === 'free') free(false);
    if (S.at) { lookAt(S.at); impose(null); }
  } else if (data.slug === 'follow' && !S.mode) return follow();
  if (before && data.lang !== before.lang) {
    if (S.mode === 'follow') news();
    else if (!S.mode && kept.get('follow') === 'free') free(false);
  }
  draw();
}

/** P on a page. */
export async function start() {
  if (S.mode === 'stage' || !S.data) return;
  if (S.mode === 'follow') unfollow();
  kept.set('follow', null);
  S.mode = 'stage';
  S.at ||= nearest();
  S.size = +(kept.get('size') || 1);
  document.documentElement.classList.add('lab-stepped', 'lab-stage');
  begin();
  focus();
  toast(say('welcome'));
  take();
}

async function speak(lang) {
  const reply = await fetch(new URL(`present.json?lang=${lang.slice(0, 2)}`, document.baseURI));
  ({ words: S.words, minutes: S.minutes } = await reply.json());
  if (S.root) { S.root.lang = lang; $('.lab-toast', S.root).hidden = true; close(); }
}

function begin() {
  if (!S.root) build();
  S.root.hidden = false;
  clearInterval(S.ticking);
  S.ticking = setInterval(tick, TICK_MS);
  S.fit = null;
  tick();
}

function end() {
  clearInterval(S.ticking);
  S.mode = '';
  close();
  clear();
  document.documentElement.classList.remove('lab-stepped', 'lab-stage', 'lab-following', 'lab-instrument-step');
  document.documentElement.style.removeProperty('--lab-zoom');
  if (S.style) S.style.textContent = '';
}

function leave() {
  const at = S.at;
  end();
  S.root.hidden = true;
  if (S.token) room({ do: 'leave', token: S.token }).catch(() => {});
  impose(null);
  dispatchEvent(new PopStateEvent('popstate'));   // the server forgets the step too
  lookAt(at);
}

function lookAt(name) {
  const step = collect().find((each) => each.name === name) || collect().find((each) => each.name === name.split('.')[0]);
  const element = step?.first || step?.block;
  if (element) setTimeout(() => element.scrollIntoView({ block: 'start' }), 60);
}

/** The step that a reader of the whole page is at. */
function nearest() {
  const above = collect().filter((each) => (each.first || each.block).getBoundingClientRect().top < innerHeight / 3);
  return above.at(-1)?.name || '';
}

// ---- steps

/** Every block of the page in order; prose is cut before headings and before paragraphs that begin in bold, the quiz at its items. */
function collect() {
  const taken = new Map(), steps = [];
  const add = (name, step) => {
    const count = taken.get(name) ?? 0;
    taken.set(name, count + 1);
    steps.push({ name: count ? `${name}.${count}` : name, ...step });
  };
  for (const block of document.querySelectorAll(`${COLUMN} :is(${BLOCK})`)) {
    if (block.parentElement.closest(BLOCK)) continue;
    const key = [...block.classList].find((each) => /^st-key-lab-(prose|instrument)-/.test(each)), [, kind, name] = key.match(/^st-key-lab-(prose|instrument)-(.*)$/);
    if (NO_STEP.test(name) || !block.childElementCount) continue;
    const common = { block, key, kind };
    const items = name === 'quiz' ? [...block.querySelectorAll('[class*="st-key-lab-quiz-"]')] : [];
    if (items.length) for (const first of items) add(name, { ...common, first, show: [...first.classList].find((each) => each.startsWith('st-key-lab-quiz-')) });
    else if (kind === 'prose' && /^\d+$/.test(name)) for (const cut of pieces(block)) add(name, { ...common, ...cut });
    else add(name, common);
  }
  return steps;
}

function pieces(block) {
  const text = [...block.querySelectorAll('[data-testid="stMarkdown"] [data-testid="stMarkdownContainer"]')].find((each) => !each.parentElement.closest('[data-testid="stForm"]'));
  const parts = [...(text?.children ?? [])];
  if (!parts.length) return [{}];
  const heading = (part) => part.matches('h1, h2, h3') || !!part.querySelector(':scope > :is(h1, h2, h3), :scope > div > :is(h1, h2, h3)');
  const starts = [0];
  parts.forEach((part, i) => {
    const bold = part.matches('p') && part.firstChild?.nodeName === 'STRONG';
    if (i && (heading(part) || (bold && !(heading(parts[i - 1]) && starts.at(-1) === i - 1)))) starts.push(i);
  });
  return starts.map((from, i) => ({ first: parts[from], range: [from + 1, starts[i + 1] ?? parts.length] }));
}

/** Where S.at is among the steps there are; a step that is not there (another language, a guess not made yet) has its part's last. */
function index() {
  const { steps } = S;
  if (S.at === 'last') return steps.length - 1;
  const exact = steps.findIndex((each) => each.name === S.at);
  if (exact >= 0) return exact;
  const part = S.at.split('.')[0];
  return Math.max(0, steps.findLastIndex((each) => each.name.split('.')[0] === part));
}

function draw() {
  if (!S.mode) return;
  S.steps = collect();
  const step = S.steps[index()];
  const together = S.mode === 'stage' || (S.seen?.state === 'on' && (S.coming || S.seen.slug === S.data.slug));
  document.documentElement.classList.toggle('lab-stepped', together && !!step);
  document.documentElement.classList.toggle('lab-instrument-step', step?.kind === 'instrument');
  if (!step) return;
  S.style ??= document.head.appendChild(document.createElement('style'));
  const css = rules(step);
  if (S.style.textContent !== css) {
    const moved = S.shown !== `${S.data.slug}/${step.name}`;
    S.shown = `${S.data.slug}/${step.name}`;
    S.style.textContent = css;
    if (moved) { main().scrollTop = 0; clear(); S.fit = null; if (S.mode === 'follow') announce(step); }
  }
  if (settled() && !S.coming && S.at !== step.name) S.at = step.name;
  zoom(step);
  bar(step);
}

function rules(step) {
  const here = `.${CSS.escape(step.key)}`, off = '{ position: absolute !important; visibility: hidden !important; height: 0 !important; min-height: 0 !important; overflow: hidden !important; margin: 0 !important; padding: 0 !important; border: 0 !important; }';
  let css = `html.lab-stepped ${COLUMN} > :not(:is(${here}, :has(${here}))) ${off}\n`;
  css += `html.lab-stepped ${COLUMN} :is(${BLOCK}):not(:is(${here}, ${here} *, :has(${here}))) ${off}\n`;   // an instrument and its prose may share a place
  if (step.range) {
    const text = `html.lab-stepped ${here} [data-testid="stMarkdown"] [data-testid="stMarkdownContainer"] >`, [from, to] = step.range;
    css += `${text} :nth-child(-n+${from - 1}), ${text} :nth-child(n+${to + 1}) { display: none !important; }\n${text} :nth-child(${from}) :is(h1, h2, h3), ${text} :is(h1, h2, h3):nth-child(${from}) { margin-top: 0; }\n`;
  }
  if (step.show) css += `html.lab-stepped ${here} [class*="st-key-lab-quiz-"]:not(.${CSS.escape(step.show)}) { display: none !important; }\n`;
  return css;
}

function zoom(step) {
  if (S.mode !== 'stage') return;
  const grown = Math.min(innerWidth / LESSON.width, innerHeight / LESSON.height), limits = step.kind === 'instrument' ? INSTRUMENT : PROSE;
  const most = Math.max(limits.least, limits.wanted * grown) * S.size, least = Math.max(limits.least, limits.least * grown) * Math.max(S.size, 1);
  if (S.fit === null || S.window !== `${innerWidth}×${innerHeight}`) { S.fit = most; S.window = `${innerWidth}×${innerHeight}`; }
  else if (step.kind === 'instrument' && beyond() > 4 && S.fit > least) S.fit = Math.max(least, S.fit * SHRINK);
  const value = S.fit.toFixed(3);
  if (document.documentElement.style.getPropertyValue('--lab-zoom') !== value) document.documentElement.style.setProperty('--lab-zoom', value);
}

/** Pixels of the page below the window, and above it. */
const beyond = () => { const m = main(); return m.scrollHeight - m.scrollTop - m.clientHeight; };

function tick() {
  if (!S.data) return;
  draw();
  if (S.mode === 'stage') { impose(S.at); publish(); clock(); }
}

/** The step is in the address, so that reload, back and a copied link find it; the rest of the address stays as it was written. */
function impose(step) {
  const others = location.search.slice(1).split('&').filter((each) => each && !/^(step|present)=/.test(each));
  const ours = step === null ? [] : ['present=1', ...(step && step !== S.steps[0]?.name && step !== 'last' ? [`step=${step}`] : [])];
  const search = [...others, ...ours].join('&'), wanted = location.pathname + (search ? `?${search}` : '') + location.hash;
  if (wanted !== location.pathname + location.search + location.hash) history.replaceState(history.state, '', wanted);
}

function turn(by) {
  const m = main(), room = m.clientHeight * 0.8;
  if (by > 0 && beyond() > 8) return m.scrollBy(0, room);
  if (by < 0 && m.scrollTop > 8) return m.scrollBy(0, -room);
  const to = index() + by;
  if (S.coming) return;
  if (to in S.steps) return show(S.steps[to].name);
  const link = $(by > 0 ? '.st-key-lab-next a' : '.st-key-lab-previous a') || (by > 0 && !S.data.slug && $('[class*="st-key-lab-entry-"] a'));
  if (!link) return toast(say(by > 0 ? 'at_end' : 'at_start'));
  come(by > 0 ? '' : 'last', decodeURIComponent(new URL(link.href).pathname).slice(base().length));
  link.click();
  publish();
}

/** Another page is on its way; until it is there, this one stays as it is. */
function come(at, to) {
  const coming = (S.coming = { from: S.data.slug, at, to });
  setTimeout(() => S.coming === coming && (S.coming = null), 10_000);
}

function show(name) {
  S.at = name;
  draw();
  impose(S.at);
  focus();
  announce(S.steps[index()]);
  publish();
}

function focus() {
  const block = S.steps[index()]?.block;
  if (!block) return;
  block.tabIndex = -1;
  block.focus({ preventScroll: true });
}

// ---- keys

function typing(target) {
  return target.isContentEditable || /^(TEXTAREA|SELECT)$/.test(target.tagName) || (target.tagName === 'INPUT' && !/^(checkbox|radio|range|button|submit)$/.test(target.type));
}

function key(event) {
  if (S.mode !== 'stage' || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const path = event.composedPath(), target = path[0], name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const done = (act) => { event.preventDefault(); event.stopImmediatePropagation(); act(); };
  if (name === 'Escape') return escape(event, target, path, done);
  if (typing(target)) return;
  const dialog = $('dialog[open]', S.root);
  if (name === 'PageDown' || name === 'PageUp') return dialog ? done(close) : done(() => turn(name === 'PageDown' ? 1 : -1));
  if (S.spot && event.shiftKey && name.startsWith('Arrow')) return done(() => moveSpot(name));
  if (S.marking && (name === 'ArrowUp' || name === 'ArrowDown')) return done(() => markPart(name === 'ArrowDown' ? 1 : -1));
  const owned = path.some((each) => each.matches?.(OWN_ARROWS) || (each.matches?.('.player') && each.tabIndex === 0));
  if (!owned && !event.shiftKey) {
    if (name === 'ArrowRight') return done(() => turn(1));
    if (name === 'ArrowLeft') return done(() => turn(-1));
    if (name === 'Home') return done(() => show(S.steps[0].name));
    if (name === 'End') return done(() => show(S.steps.at(-1).name));
  }
  const act = { p: leave, h: () => help(), '?': () => help(), r: reset, l: language, s: () => spot(event), d: mark, t: timer, q: code, '+': () => resize(1), '=': () => resize(1), '-': () => resize(-1) }[name];
  if (act && !(event.repeat && 'sdtqhlp'.includes(name))) done(act);
  else if (act) done(() => {});
}

function escape(event, target, path, done) {
  if ($('dialog[open]', S.root)) return done(close);
  if ($('[data-baseweb="popover"]') || $('.lab-n:is(:hover, :focus-within):not(.lab-dismissed)')) return;   // what is open closes itself
  if (S.marking || S.marks.length) return done(() => { S.marking = false; clear(); });
  if (S.spot) return done(() => spot());
  const block = S.steps[index()]?.block;
  if (target !== document.body && target !== block && target !== document.documentElement) return done(() => focus());   // arrows turn steps again
  done(leave);
}

function released(event) {
  if (event.key.toLowerCase() === 's' && S.spot && performance.now() - S.spot.since > HOLD_MS && S.spot.held) spot();
  if (event.key.toLowerCase() === 's' && S.spot) S.spot.held = false;
}

function reset() {
  const block = S.steps[index()]?.block, button = block && deep(block, 'button[data-id="reset"]');
  if (!button) return toast(say('nothing_to_reset'));
  button.click();
  toast(say('was_reset'));
}

/** Also inside the shadow roots of components. */
function deep(node, selector) {
  const found = node.querySelector(selector);
  if (found) return found;
  for (const each of node.querySelectorAll('*')) {
    const inner = each.shadowRoot && deep(each.shadowRoot, selector);
    if (inner) return inner;
  }
  return null;
}

function language() {
  [...document.querySelectorAll('.st-key-lab-language [role="radio"]')].find((each) => each.getAttribute('aria-checked') !== 'true')?.click();
}

function resize(by) {
  const at = SIZES.indexOf(S.size);
  S.size = SIZES[Math.min(Math.max(at + by, 0), SIZES.length - 1)];
  S.fit = null;
  kept.set('size', S.size);
  draw();
}

// ---- pointing

function spot(event) {
  if (S.spot) { S.spot = null; S.root.querySelector('.lab-spot').hidden = true; return; }
  const at = S.pointer || { x: innerWidth / 2, y: innerHeight / 3 };
  S.spot = { ...at, since: performance.now(), held: !!event };
  placeSpot();
}

function placeSpot() {
  const veil = S.root.querySelector('.lab-spot');
  veil.hidden = false;
  veil.style.setProperty('--lab-x', `${S.spot.x}px`);
  veil.style.setProperty('--lab-y', `${S.spot.y}px`);
}

function moveSpot(name) {
  S.spot.x = Math.min(Math.max(S.spot.x + { ArrowLeft: -SPOT_STEP, ArrowRight: SPOT_STEP }[name] || S.spot.x, 0), innerWidth);
  S.spot.y = Math.min(Math.max(S.spot.y + { ArrowUp: -SPOT_STEP, ArrowDown: SPOT_STEP }[name] || S.spot.y, 0), innerHeight);
  placeSpot();
}

function mark() {
  S.marking = !S.marking;
  clear(S.marking);
  if (S.marking) toast(say('marking'));
}

/** Forget the marks; marking itself goes on when it was on. */
function clear(keep = false) {
  S.marks = [];
  S.part = -1;
  if (!keep) S.marking = false;
  if (S.root) showMarks();
}

function markAt(event) {
  const layer = S.root.querySelector('.lab-marks');
  layer.hidden = true;
  let found = document.elementFromPoint(event.clientX, event.clientY);
  while (found?.shadowRoot?.elementFromPoint(event.clientX, event.clientY) && found.shadowRoot.elementFromPoint(event.clientX, event.clientY) !== found)
    found = found.shadowRoot.elementFromPoint(event.clientX, event.clientY);
  layer.hidden = false;
  const box = found?.getBoundingClientRect(), small = box && box.width * box.height < 0.12 * innerWidth * innerHeight && found.tagName !== 'svg' && found.tagName !== 'CANVAS';
  const put = small ? { x: box.left, y: box.top, w: box.width, h: box.height } : { x: event.clientX - 34, y: event.clientY - 34, w: 68, h: 68, round: true };
  const scrolled = main().scrollTop, inside = (each) => Math.abs(each.x + each.w / 2 - put.x - put.w / 2) < 12 && Math.abs(each.y - scrolled + each.h / 2 - put.y - put.h / 2) < 12;
  const again = S.marks.findIndex(inside);
  if (again >= 0) S.marks.splice(again, 1);
  else S.marks.push({ ...put, y: put.y + scrolled });
  showMarks();
}

/** With the keys: the parts of the step one after the other. */
function markPart(by) {
  const { block } = S.steps[index()];
  const parts = [...block.querySelectorAll('[data-testid="stMarkdownContainer"] > *, [data-testid="stVegaLiteChart"] svg.marks, [data-testid="stBidiComponentRegular"], [data-testid="stBidiComponentIsolated"], .lab-figure, .lab-says, [class*="st-key-controls-"], h1, .lab-hero, .lab-takeaway')]
    .filter((each) => each.checkVisibility({ visibilityProperty: true }) && each.getBoundingClientRect().height > 8);
  if (!parts.length) return;
  S.part = Math.min(Math.max(S.part + by, 0), parts.length - 1);
  parts[S.part].scrollIntoView({ block: 'nearest' });
  const box = parts[S.part].getBoundingClientRect();
  S.marks = [{ x: box.left, y: box.top + main().scrollTop, w: box.width, h: box.height }];
  showMarks();
}

function showMarks() {
  const layer = S.root.querySelector('.lab-marks'), top = main().scrollTop;
  layer.hidden = !S.marking && !S.marks.length;
  layer.toggleAttribute('data-marking', S.marking);
  layer.replaceChildren(...S.marks.map(({ x, y, w, h, round }) => {
    const frame = document.createElement('div');
    Object.assign(frame.style, { left: `${x - 8}px`, top: `${y - top - 8}px`, width: `${w + 16}px`, height: `${h + 16}px` });
    frame.className = round ? 'lab-mark lab-round' : 'lab-mark';
    return frame;
  }));
}

// ---- bar, timer, overlays

function build() {
  const root = document.createElement('div');
  root.id = 'lab-stage';
  root.innerHTML = `<div class="lab-spot" hidden></div><div class="lab-marks" hidden></div>
    <footer class="lab-bar"><span class="lab-count"></span><span class="lab-where"></span><span class="lab-room" role="status"></span><span class="lab-clock"></span><span class="lab-hint"></span></footer>
    <p class="lab-toast" role="status" hidden></p><p class="lab-spoken" role="status"></p><dialog class="lab-sheet"></dialog>`;
  root.lang = S.data.lang;
  document.body.append(root);
  S.root = root;
  addEventListener('keydown', key, true);
  addEventListener('keyup', released, true);
  addEventListener('pointermove', (event) => {
    S.pointer = { x: event.clientX, y: event.clientY };
    if (S.spot) { Object.assign(S.spot, S.pointer); placeSpot(); }
  }, { passive: true });
  addEventListener('scroll', () => S.marks.length && showMarks(), { capture: true, passive: true });
  addEventListener('popstate', (event) => { if (event.isTrusted && S.mode === 'stage') S.at = new URLSearchParams(location.search).get('step') || ''; });
  root.querySelector('.lab-marks').onclick = markAt;
  root.querySelector('dialog').addEventListener('cancel', (event) => event.preventDefault());   // Escape is handled with the other keys
}

function put(selector, text) {
  const node = S.root.querySelector(selector);
  if (node.textContent !== text) node.textContent = text;
}

function bar(step) {
  const shown = document.documentElement.classList.contains('lab-stepped');   // else a follower reads that there is nothing to follow
  put('.lab-count', shown ? say('step', { n: index() + 1, of: S.steps.length }) : '');
  put('.lab-where', shown ? document.title.split(' · ')[0] : '');
  if (S.mode === 'stage') { put('.lab-hint', say('hint')); put('.lab-room', S.token ? say('class', { n: S.followers ?? 0 }) : S.alone); }
}

function announce(step) {
  if (!step) return;
  const heading = (step.first?.textContent || step.block.querySelector('h1, h2, h3, h4')?.textContent || '').trim().slice(0, 80);
  put('.lab-spoken', `${say('step', { n: index() + 1, of: S.steps.length })}. ${heading}`);
}

function toast(text) {
  const node = S.root.querySelector('.lab-toast');
  node.textContent = text;
  node.hidden = false;
  clearTimeout(S.toasting);
  S.toasting = setTimeout(() => (node.hidden = true), 4000);
}

/** ms of a clock that goes on evenly while the page is open, whoever sets the machine's, and goes on across a reload. */
const moment = () => performance.timeOrigin + performance.now();

function timer() {
  const now = moment(), held = JSON.parse(kept.get('timer') || 'null');
  const next = !held ? { since: now, spent: 0 } : held.since ? { since: 0, spent: held.spent + now - held.since } : null;   // start, stop, hide
  kept.set('timer', next && JSON.stringify(next));
  clock();
}

function clock() {
  const held = JSON.parse(kept.get('timer') || 'null');
  if (!held) return put('.lab-clock', '');
  const seconds = Math.floor((held.spent + (held.since ? Math.max(0, moment() - held.since) : 0)) / 1000), minutes = S.minutes[S.data.slug];
  const passed = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
  put('.lab-clock', minutes ? say('timer', { passed, minutes }) : passed);
  S.root.querySelector('.lab-clock').toggleAttribute('data-over', !!minutes && seconds > 60 * minutes);
  S.root.querySelector('.lab-clock').toggleAttribute('data-stopped', !held.since);
}

function sheet(name) {
  const dialog = S.root.querySelector('dialog');
  if (dialog.open && dialog.dataset.name === name) { close(); return null; }
  close();
  dialog.dataset.name = name;
  dialog.replaceChildren();
  dialog.showModal();
  return dialog;
}

function close() {
  const dialog = S.root?.querySelector('dialog');
  if (dialog?.open) { dialog.close(); if (S.mode === 'stage') focus(); }
}

function element(name, text, attributes = {}) {
  const node = Object.assign(document.createElement(name), attributes);
  if (text != null) node.textContent = text;
  return node;
}

function help() {
  const dialog = sheet('help');
  if (!dialog) return;
  const list = element('dl');
  for (const each of KEYS) list.append(element('dt', say(`key.${each}`)), element('dd', say(`does.${each}`)));
  dialog.append(element('h2', say('help')), list);
  dialog.setAttribute('aria-label', say('help'));
}

async function code() {
  const dialog = sheet('code');
  if (!dialog) return;
  dialog.setAttribute('aria-label', say('code'));
  dialog.append(element('p', say('code_wait')));
  let made;
  try { made = await post('present/link', { ...place(), lang: S.data.lang.slice(0, 2) }); } catch { made = null; }
  if (!dialog.open || dialog.dataset.name !== 'code') return;
  if (!made?.address) return dialog.replaceChildren(element('p', say('code_failed')));
  const card = (title, address, drawing) => {
    const box = element('figure');
    box.innerHTML = drawing;   // an SVG that our own server drew
    box.querySelector('svg').setAttribute('aria-hidden', 'true');
    box.append(element('figcaption'));
    box.lastChild.append(element('b', title), element('code', address.replace(/^https?:\/\//, '')));
    return box;
  };
  const cards = element('div', null, { className: 'lab-codes' });
  cards.append(card(say('code'), made.address, made.code));
  if (S.token) cards.append(card(say('code_follow'), made.follow, made.follow_code));
  dialog.replaceChildren(cards);
  if (!made.reachable) dialog.append(element('p', say('code_unreachable'), { className: 'lab-warning' }));
}

// ---- the teacher's side of the room

async function post(path, said) {
  const reply = await fetch(new URL(path, document.baseURI), { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(said), keepalive: true });
  return reply.json();
}
const room = (said) => post('room', said);

/** What a class may know: page, step, settings. */
function place() {
  const parameters = {};
  for (const [name, value] of new URLSearchParams(location.search)) if (name.includes('.')) parameters[name] = value;
  return { slug: S.data.slug, step: S.steps[index()]?.name || 'top', parameters };
}

async function take(password) {
  let said;
  try { said = await room({ do: 'take', token: kept.get('token') || '', ...(password ? { password } : {}) }); } catch { said = { refused: 'away' }; }
  if (S.mode !== 'stage') return;
  if ($('dialog[open]', S.root)?.dataset.name === 'password') close();   // and no other sheet that was opened meanwhile
  if (said.token) {
    S.token = said.token;
    S.told = S.alone = '';
    kept.set('token', said.token);
    return publish();
  }
  S.token = '';
  if ((said.refused === 'password' && !kept.get('alone')) || said.refused === 'wrong') return ask(said.refused === 'wrong');
  S.alone = say(said.refused === 'busy' ? 'alone_busy' : 'alone');
  if (said.refused === 'busy') toast(say('busy'));
}

function ask(wrong) {
  const dialog = sheet('password'), form = element('form'), field = element('input', null, { type: 'password', autocomplete: 'current-password', required: true, maxLength: 200 });
  const label = element('label', say('password')), only = element('button', say('only_me'), { type: 'button' });
  dialog.setAttribute('aria-label', say('password_title'));
  label.append(field);
  form.append(element('h2', say('password_title')), label, ...(wrong ? [element('p', say('password_wrong'), { className: 'lab-warning' })] : []), element('button', say('password_go'), { type: 'submit' }), only);
  form.onsubmit = (event) => { event.preventDefault(); take(field.value); };
  only.onclick = () => { kept.set('alone', '1'); S.alone = say('alone'); close(); };
  dialog.append(form);
  field.focus();
}

async function publish() {
  if (!S.token || S.telling || !(S.coming || arrived(S.data.slug))) return;
  const { coming } = S;   // the class sets out with the teacher, not after
  const here = JSON.stringify(coming ? { slug: coming.to, step: coming.at || 'top', parameters: {} } : place()), now = performance.now();
  if (here === S.told && now - S.toldAt < ALIVE_MS) return;
  S.telling = true;
  try {
    const said = await room({ do: 'show', token: S.token, ...JSON.parse(here) });
    if (said.refused === 'lost') { S.token = ''; take(); }
    else if (!said.refused || said.refused === 'place') { S.told = here; S.toldAt = now; S.followers = said.followers ?? S.followers; }
  } catch { S.toldAt = now - ALIVE_MS + RETRY_MS; S.told = here; } finally { S.telling = false; }
}

/** The address is that of the page which was drawn last. */
const arrived = (slug) => location.pathname === base() + slug;

// ---- the learner's side

function follow() {
  kept.set('follow', 'on');
  S.mode = 'follow';
  document.documentElement.classList.add('lab-following');
  begin();
  if (!S.listening) listen();
}

async function listen() {
  const mine = (S.listening = {});
  S.version = '';
  news();
  while (S.listening === mine) {
    const asked = performance.now();
    let seen = null;
    try {
      const reply = await fetch(new URL(`room?since=${S.version}`, document.baseURI), { cache: 'no-store' });
      if (reply.ok) seen = await reply.json();
    } catch { /* the server is away: said below, and asked again */ }
    if (S.listening !== mine) return;
    const again = seen && seen.version === S.version;
    S.seen = seen || { ...S.seen, state: 'lost' };
    S.version = seen?.version || '';
    news();
    if (seen?.state === 'on') go(seen);
    else draw();
    if (!seen || (again && performance.now() - asked < 1000)) await new Promise((wake) => setTimeout(wake, RETRY_MS));
  }
}

/** To where the teacher is: a step alone is only shown; another page or setting is another address, as if by the back button. */
function go(seen) {
  if (seen.slug === S.data.slug) { S.coming = null; S.at = seen.step; }
  else come(seen.step, seen.slug);
  const here = new URLSearchParams(location.search), same = arrived(seen.slug), wanted = new URLSearchParams({ lang: here.get('lang') || S.data.lang.slice(0, 2) });
  for (const [name, value] of Object.entries(seen.parameters)) {
    const own = name.endsWith('.guess') && same && here.get(name);   // a learner's own guess stays the learner's
    wanted.set(name, own || value);
  }
  if (same) for (const [name, value] of here) if (name.endsWith('.guess') && !wanted.has(name)) wanted.set(name, value);
  const sorted = (query) => JSON.stringify([...query].filter(([name]) => name.includes('.')).sort());
  if (!same || sorted(here) !== sorted(wanted)) {
    history[same ? 'replaceState' : 'pushState']({}, '', `${base()}${seen.slug}?${wanted}`);
    dispatchEvent(new PopStateEvent('popstate'));
  }
  draw();
}

function news() {
  const state = S.seen?.state, line = S.root.querySelector('.lab-room');
  const text = say({ on: 'following', stopped: 'stopped', lost: 'lost' }[state] || 'waiting');
  if (line.dataset.text !== text) {
    line.dataset.text = text;
    line.replaceChildren(element('span', text));
    const button = element('button', say('let_go'), { type: 'button', className: 'lab-let-go' });
    button.onclick = () => free(true);
    line.append(button);
  }
  put('.lab-hint', '');
}

/** On one's own from here: same page, same settings, everything to be seen. */
function free(moving) {
  const at = S.at;
  if (moving) { unfollow(); lookAt(at); }
  if (!S.root) build();
  S.root.hidden = false;
  kept.set('follow', 'free');
  document.documentElement.classList.add('lab-free');
  for (const name of ['.lab-count', '.lab-where', '.lab-hint', '.lab-clock']) put(name, '');
  const line = S.root.querySelector('.lab-room'), again = element('button', say('follow_again'), { type: 'button' }), away = element('button', say('follow_end'), { type: 'button' });
  line.dataset.text = '';
  line.replaceChildren(element('span', say('on_your_own')), again, away);
  again.onclick = () => { document.documentElement.classList.remove('lab-free'); follow(); S.root.querySelector('button')?.focus(); };
  away.onclick = () => { kept.set('follow', null); document.documentElement.classList.remove('lab-free'); S.root.hidden = true; };
  if (moving) again.focus();
}

function unfollow() {
  S.listening = S.coming = S.seen = null;
  S.root.querySelector('.lab-room').dataset.text = '';
  end();
}
