// The player: step t, and everything that moves it. VIEW, below, is the widget's own view.js.
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];
const SETTLED_MS = 250;      // a held arrow key is one gesture: the server hears of it once, when it ends
const LONGEST_FRAME_S = 0.1; // after a stall the run goes on from where it was instead of jumping
const players = new WeakMap();

export default function (component) {
  const root = component.parentElement;   // called again whenever data or theme change
  let player = players.get(root);
  if (!player) players.set(root, (player = new Player(root)));
  player.receive(component);
  return () => { player.stop(); players.delete(root); };
}

class Player {
  constructor(root) {
    const $ = (selector) => root.querySelector(selector);
    Object.assign(this, {
      root, box: $('.player'), frame: $('.picture'), bar: $('.transport'), scrub: $('.scrub'), out: $('output'), speed: $('.speed'), said: $('.said'),
      t: 0, drawn: null, playing: false, own: false, local: {}, measured: new Map(), colours: new Map(), still: matchMedia('(prefers-reduced-motion: reduce)'),
    });
    const canvas = VIEW.surface === 'canvas';
    this.picture = canvas ? document.createElement('canvas') : document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    this.picture.setAttribute('role', 'img');
    this.picture.setAttribute('data-picture', '');
    this.frame.replaceChildren(this.picture);
    this.speed.innerHTML = SPEEDS.map((s) => `<option value="${s}" ${s === 1 ? 'selected' : ''}>×${s}</option>`).join('');
    this.listen();
  }

  listen() {
    const act = { start: () => { this.pause(); this.go(0); }, back: () => this.go(this.t - 1), forward: () => this.go(this.t + 1), play: () => (this.playing ? this.pause() : this.play()) };
    this.bar.onclick = (event) => act[event.target.closest('button')?.dataset.do]?.();
    this.scrub.oninput = () => this.go(+this.scrub.value, false);
    this.scrub.onchange = () => this.commit();
    this.box.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target === this.speed) return;
      const along = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (along && VIEW.walk && event.target === this.box) { event.preventDefault(); event.stopPropagation(); this.walk(along); return; }
      if (this.steps < 2) return;
      const on = event.target.tagName === 'BUTTON' && event.key === ' ';   // a focused button presses itself
      const key = { ArrowLeft: act.back, ArrowRight: act.forward, Home: () => this.go(0), End: () => this.go(this.steps - 1), r: act.start, R: act.start, ' ': act.play }[event.key];
      if (!key || on) return;
      event.preventDefault();
      event.stopPropagation();   // the page has shortcuts of its own
      key();
    };
    const redraw = () => { this.measured.clear(); this.draw(true); };
    this.resized = new ResizeObserver(() => this.frame.clientWidth !== this.width && this.draw(true));
    this.resized.observe(this.frame);
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.dark.addEventListener('change', (this.redraw = redraw));
    this.still.addEventListener('change', redraw);
    document.fonts?.addEventListener('loadingdone', redraw);
  }

  stop() {
    cancelAnimationFrame(this.raf);
    clearTimeout(this.settling);
    this.playing = false;
    this.resized.disconnect();
    this.dark.removeEventListener('change', this.redraw);
    this.still.removeEventListener('change', this.redraw);
    document.fonts?.removeEventListener('loadingdone', this.redraw);
  }

  receive(component) {
    const first = !this.data, data = component.data, last = this.steps - 1;
    this.send = component.setStateValue;
    this.tell = component.setTriggerValue;
    this.data = data;
    this.steps = Math.max(1, data.steps);
    if (first || data.placed !== this.placed) this.own = false;   // Python says where; else data.t may be our own word, coming late
    if (!this.own) this.t = this.told = data.t;
    this.placed = data.placed;
    if (!first && this.steps - 1 !== last && this.t === last && data.start === this.steps - 1) this.t = data.start;   // a longer run, seen to its end
    this.t = this.within(this.t);
    const L = data.labels;
    this.bar.hidden = this.steps < 2;
    const keys = [this.steps > 1 && L.keys, VIEW.walk && L.walk].filter(Boolean);
    this.box.tabIndex = keys.length ? 0 : -1;
    this.box.setAttribute('aria-label', [data.name, ...keys].join(data.lang === 'zh' ? '。' : '. '));
    for (const b of this.bar.querySelectorAll('button')) if (b.dataset.do !== 'play') { b.title = L[b.dataset.do]; b.setAttribute('aria-label', L[b.dataset.do]); }
    this.speed.setAttribute('aria-label', L.speed);
    this.scrub.max = this.steps - 1;
    this.scrub.setAttribute('aria-label', data.name);
    this.showPlaying();
    this.draw(true);
  }

  // ---- time

  within(t) { return Math.min(Math.max(0, t), this.steps - 1); }

  go(t, settle = true) {
    this.own = true;
    this.t = this.within(t);
    this.draw();
    if (settle && !this.playing) { clearTimeout(this.settling); this.settling = setTimeout(() => this.commit(), SETTLED_MS); }
  }

  play() {
    clearTimeout(this.settling);
    if (this.t >= this.steps - 1) this.go(0, false);
    const rate = VIEW.rate || Math.max(1.5, this.steps / 20);
    let before = null, owed = 0;
    this.playing = true;
    this.showPlaying();
    const tick = (now) => {
      if (!this.playing) return;
      if (before !== null) owed += Math.min(LONGEST_FRAME_S, (now - before) / 1000) * rate * this.speed.value;
      before = now;
      const whole = Math.floor(owed);
      owed -= whole;
      if (whole) this.go(this.t + whole, false);
      if (this.t >= this.steps - 1) this.pause();
      else this.raf = requestAnimationFrame(tick);
    };
    this.raf = requestAnimationFrame(tick);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.raf);
    this.showPlaying();
    this.commit();
  }

  showPlaying() {
    const button = this.bar.querySelector('.play'), name = this.data.labels[this.playing ? 'pause' : 'play'];
    this.box.toggleAttribute('data-playing', this.playing);
    button.title = name;
    button.setAttribute('aria-label', name);
  }

  commit() {
    clearTimeout(this.settling);
    this.said.textContent = this.saying;   // a screen reader hears the step that was reached, not every one on the way
    if (this.steps < 2 || this.told === this.t) return;
    this.told = this.t;
    this.send('t', this.t);
  }

  walk(along) {   // to the next mark of the picture, as a pointer would
    const said = VIEW.walk(along, this.data.stage, this.t, this.tools(this.t));
    this.draw(true);
    this.said.textContent = said;
  }

  // ---- the picture

  draw(again = false) {
    if (!this.data || (!again && this.drawn === this.t)) return;
    this.width = this.frame.clientWidth;
    if (!this.width) return;   // not laid out: the observer calls when it is
    if (again) this.colours.clear();
    const { data, t } = this, tools = this.tools(t);
    tools.height = Math.round(VIEW.height ? VIEW.height(data.stage, tools.width, tools) : data.height);
    if (VIEW.surface === 'canvas') {
      const ratio = devicePixelRatio || 1, g = this.picture.getContext('2d');
      const [w, h] = [Math.round(tools.width * ratio), Math.round(tools.height * ratio)];
      if (this.picture.width !== w || this.picture.height !== h) Object.assign(this.picture, { width: w, height: h });
      this.picture.style.height = `${tools.height}px`;
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, tools.width, tools.height);
      VIEW.draw(g, data.stage, t, tools);
    } else {
      this.picture.setAttribute('viewBox', `0 0 ${tools.width} ${tools.height}`);
      this.picture.style.height = `${tools.height}px`;
      this.picture.replaceChildren();
      VIEW.draw(this.picture, data.stage, t, tools);
    }
    this.saying = VIEW.says ? VIEW.says(data.stage, t, tools) : data.alt;
    this.picture.setAttribute('aria-label', this.saying);
    this.name();
    const label = VIEW.label ? VIEW.label(data.stage, t, tools) : fill(data.labels.step, { t: t + 1, n: this.steps });
    this.out.textContent = label;
    this.scrub.value = t;
    this.scrub.setAttribute('aria-valuetext', label);
    this.box.dataset.t = t;
    this.drawn = t;
  }

  name() {   // a picture is one image with one sentence; where something in it can be pressed, that is what else there is to it
    const holds = this.picture.querySelector?.('[tabindex]');
    this.picture.setAttribute('role', holds ? 'group' : 'img');
    if (holds) for (const part of this.picture.children) if (!part.matches('[tabindex]') && !part.querySelector('[tabindex]')) part.setAttribute('aria-hidden', 'true');
  }

  tools(t) {
    const canvas = VIEW.surface === 'canvas';
    return {
      width: this.width, lang: this.data.lang, steps: this.steps, local: this.local, redraw: () => this.draw(true),
      pick: (field, value) => this.tell('pick', { field, value }),                // sets a parameter of the widget; a Stage names those it may
      still: this.still.matches,                                                  // no motion at all
      moved: this.drawn !== null && this.drawn !== t && !this.still.matches,      // this drawing is a step: it may flash
      colour: (name) => (canvas ? this.resolved(`var(--lab-${name})`) : `var(--lab-${name})`),
      font: (name) => this.style(`--lab-${name}`) || this.style('--st-font') || 'sans-serif',   // 'sans', 'figures'
      measure: (text, px, name = 'sans') => this.measure(text, px, name),
      wrap: (text, px, width) => wrap(text, width, (line) => 1.08 * this.measure(line, px)),   // as wide as bold letters
      words: (key, values) => fill(this.data.words[`view.${key}`] ?? `⟨${key}⟩`, values),
      slide: (rail) => slide(this.picture, rail, this.tools(t)),
      el, number, esc,
    };
  }

  style(name) { return getComputedStyle(this.box).getPropertyValue(name).trim(); }

  resolved(colour) {   // a canvas knows no custom properties; forgotten with every redraw, so that a new theme counts
    if (!this.colours.has(colour)) {
      this.frame.style.color = colour;
      this.colours.set(colour, getComputedStyle(this.frame).color);
      this.frame.style.color = '';
    }
    return this.colours.get(colour);
  }

  measure(text, px, name) {
    const key = `${name}/${px}/${text}`;
    if (!this.measured.has(key)) {
      const g = (this.ruler ??= document.createElement('canvas').getContext('2d'));
      g.font = `${px}px ${this.style(`--lab-${name}`) || this.style('--st-font') || 'sans-serif'}`;
      this.measured.set(key, g.measureText(text).width);
    }
    return this.measured.get(key);
  }
}

// A handle on a line, `.handle` of the picture: dragged, clicked, or moved by keys; drawn at once, and the parameter set when it comes to rest.
function slide(svg, rail, { local, width, redraw, pick }) {
  const dot = svg.querySelector('.handle');
  local.rail = rail;   // who comes to rest is compared with the last answer, not with the one at which it began to move
  svg.style.touchAction = 'pan-y';
  const where = (event) => { const box = svg.getBoundingClientRect(); return [(event.clientX - box.left) * (width / box.width), (event.clientY - box.top) * (width / box.width)]; };
  const show = (at) => { if (at !== local.at) { Object.assign(local, { at, used: true }); redraw(); } };
  const settle = () => { local.moving = false; if (local.at !== local.rail.at) pick(local.rail.field, local.at); };
  if (local.focus) dot.focus({ preventScroll: true });   // each drawing makes a new one
  dot.onfocus = () => { local.focus = true; };
  dot.onblur = () => setTimeout(() => { if (dot.isConnected) local.focus = false; });
  dot.onkeydown = (event) => {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 5, PageDown: -5 }[event.key], end = { Home: 0, End: 1 }[event.key];
    if (steps === undefined && end === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    clearTimeout(local.settling);
    local.moving = true;
    local.settling = setTimeout(settle, SETTLED_MS);
    show(steps ? rail.on(steps) : rail.ends[end]);
  };
  svg.onpointerdown = (event) => {
    const [x, y] = where(event);
    if (!rail.takes(x, y)) return;
    local.held = local.moving = true;
    svg.setPointerCapture(event.pointerId);
    if (event.pointerType === 'mouse') event.preventDefault();
    show(rail.value(x));
  };
  svg.onpointermove = (event) => { if (local.held) show(rail.value(where(event)[0])); };
  svg.onpointerup = svg.onpointercancel = (event) => {
    if (!local.held) return;
    local.held = false;
    const scrolled = event.type === 'pointercancel';   // the finger was not meant for it
    if (scrolled) Object.assign(local, { at: local.rail.at, moving: false });
    redraw();
    if (!scrolled) settle();
  };
}

// Lines no wider than `width`: broken at spaces and anywhere between Han characters, never before closing punctuation.
function wrap(text, width, measure) {
  const pieces = text.match(/[\u2e80-\uffef][，。；：、）？！”]*|[^\s\u2e80-\uffef]+[，。；：、）？！”]*\s*|\s+/g) || [], lines = [''];
  for (const piece of pieces) {
    if (lines.at(-1) && measure(lines.at(-1) + piece.trimEnd()) > width) lines.push('');
    lines[lines.length - 1] += piece;
  }
  return lines.map((line) => line.trim());
}

const fill = (text, values = {}) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
const number = (value) => value.toLocaleString('en-US');   // 503,500 in both languages
// A new SVG element at the end of `parent`; attributes without a value are left out.
function el(parent, name, attributes = {}, text) {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) node.setAttribute(key, value);
  if (text != null) node.textContent = text;
  parent.append(node);
  return node;
}

const esc = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
