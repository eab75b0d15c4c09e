// The page itself: the form, the figures, the texts, and when to ask for news. Drawing is in lanes.js and blocks.js.
const LOOK = { sent: 120, mine: 600, running: 1000, idle: 2000, away: 4000, hidden: 15000 };   // ms from an answer to the next question
const UNANSWERED = 6000;   // ms after which a question is asked once more
const SETTLED = 600;       // ms after the last key before the address follows
const REWRITE = 150, RESAY = 5000;   // ms between two figures and sentences to be read, and between two to be heard
const SOON = 3;            // questions that follow quickly when something was sent: a short text is over in a moment
const CARDS = 4;           // own requests that stay on the page when they are over
const ICON = {
  reset: 'M4 10a6 6 0 1 0 2-4.5M4 3v4h4', link: 'M8 12l4-4M7 9l-2 2a3 3 0 0 0 4 4l2-2M13 11l2-2a3 3 0 0 0-4-4l-2 2',
  data: 'M10 3v9M6 9l4 4 4-4M4 17h12', picture: 'M3 5h14v10H3zM3 13l4-4 4 4 2-2 4 3', help: 'M8 8a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M10 14v.2',
};
const FIGURES = ['rate', 'batch', 'waiting', 'memory', 'learners'];
const pages = new WeakMap();

const box = (globalThis.labLiveServer ??= {});   // where news.js leaves what came

export default function (component) {
  const root = component.parentElement.querySelector('.live');
  let self = pages.get(root);
  if (!self) pages.set(root, (self = begin(root)));
  const { lang, words, choices, prompt } = component.data, other = lang !== self.lang;
  Object.assign(self, { lang, words, choices, ownPrompt: prompt });
  if (other) label(self);
  box.read = () => box.data && receive(self, box.data);
  box.read();
  return () => { stop(self); pages.delete(root); delete box.read; };
}

const W = (self, key, values = {}) => (self.words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const show = (node, text) => { put(node, text); node.hidden = !text; };
const icon = (name) => `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICON[name]}"/></svg>`;
function el(tag, className = '', text = null) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  return node;
}

function begin(root) {
  const find = (name) => root.querySelector(name);
  const self = {
    root, h: history(), words: null, lang: '', data: null, presses: [], count: 0, name: Math.random().toString(36).slice(2, 8), timer: 0, soon: 0, typing: 0, raf: 0, before: 0,
    slow: true, back: null, column: 0, cards: new Map(), saidKind: '', saidAt: 0, wroteAt: 0, drawer: '', refusal: null, colours: new Map(),
    lanes: find('.lanes canvas'), memory: find('.memory canvas'), strip: find('.strip'), form: find('.ask'), prompt: find('.prompt'), send: find('.send'), wish: find('.wish'),
    scrub: find('.scrub'), texts: find('.texts'), queue: find('.queue ol'), sentence: find('.says'), aloud: find('.aloud'), still: matchMedia('(prefers-reduced-motion: reduce)'), dark: matchMedia('(prefers-color-scheme: dark)'),
  };
  self.form.onsubmit = (event) => { event.preventDefault(); clearTimeout(self.typing); self.typing = 0; self.soon = SOON; press(self, 'send', asked(self)); draw(self); };
  self.form.oninput = () => { clearTimeout(self.typing); self.typing = setTimeout(() => { self.typing = 0; press(self, 'form', asked(self)); }, SETTLED); };
  root.addEventListener('click', (event) => { const b = event.target.closest('button[data-do]'); if (b && !b.disabled) act(self, b); });
  self.scrub.oninput = () => { self.back = +self.scrub.value >= self.h.steps.length ? null : +self.scrub.value; draw(self); };
  hover(self, self.lanes, lanesTip);
  hover(self, self.memory, blocksTip);
  self.redraw = () => { self.colours.clear(); draw(self); };
  self.wake = () => { if (!document.hidden) ask(self); };
  self.resized = new ResizeObserver(self.redraw);
  for (const canvas of [self.lanes, self.memory]) self.resized.observe(canvas.parentElement);
  self.dark.addEventListener('change', self.redraw);
  document.addEventListener('visibilitychange', self.wake);
  document.fonts?.addEventListener('loadingdone', self.redraw);
  return self;
}

function stop(self) {
  cancelAnimationFrame(self.raf);
  clearTimeout(self.timer);
  clearTimeout(self.typing);
  clearTimeout(self.rewriting);
  clearTimeout(self.counting);
  self.resized.disconnect();
  self.dark.removeEventListener('change', self.redraw);
  document.removeEventListener('visibilitychange', self.wake);
  document.fonts?.removeEventListener('loadingdone', self.redraw);
}

// ---- questions and answers

function ask(self) {
  clearTimeout(self.timer);
  if (!self.root.isConnected) return;
  box.ask?.('ask', { since: self.h.next, run: self.h.run, presses: self.presses, at: performance.now() });
  self.timer = setTimeout(() => ask(self), UNANSWERED);
}

function press(self, what, value = null) {
  self.presses.push({ number: `${self.name}.${++self.count}`, do: what, value });
  ask(self);
}

function receive(self, data) {
  self.data = data;
  self.presses = self.presses.filter((each) => !data.done.includes(each.number));
  const [before, model] = self.h.run.split(' ');
  if (data.seen && absorb(self.h, data.seen.run, data.seen, performance.now())) Object.assign(self, { back: null, cards: clear(self), restarted: Boolean(before) && data.seen.run.endsWith(` ${model}`) });
  if (self.still.matches) leap(self.h);
  const refusal = JSON.stringify(data.refused);
  if (refusal !== self.refusal) { self.refusal = refusal; self.refusedAt = performance.now(); }
  if (!self.typing && !self.presses.length) fillForm(self);
  draw(self);
  run(self);
  const pause = pauseNow(self);
  self.h.pause += (pause / 1000 + BEHIND - self.h.pause) * (busy(self) ? 0.3 : 1);
  clearTimeout(self.timer);
  self.timer = setTimeout(() => ask(self), self.presses.length ? 50 : pause);
}

const unfinished = (self) => (self.data?.seen?.texts ?? []).some((text) => !text.finish);
const busy = (self) => self.h.shown < self.h.steps.length;
function pauseNow(self) {
  const seen = self.data.seen, last = self.h.steps.at(-1);
  if (document.hidden) return LOOK.hidden;
  if (!seen) return LOOK.away;
  if (self.soon > 0) { self.soon--; return LOOK.sent; }
  if (unfinished(self)) return LOOK.mine;
  return seen.queue.length || Object.keys(seen.tables).length || (last && seen.now - last.ended < 2) ? LOOK.running : LOOK.idle;
}

// ---- time

function run(self) {
  cancelAnimationFrame(self.raf);
  self.before = performance.now();
  const tick = (time) => {
    const passed = Math.max(0, Math.min(0.25, (time - self.before) / 1000));
    self.before = time;
    const moves = self.still.matches ? false : advance(self.h, passed, time, self.slow), column = self.column;
    zoom(self, self.still.matches ? 1 : passed);
    if (moves || self.moved || Math.abs(column - self.column) > 0.01) drawLive(self);
    self.moved = moves;
    const wakeful = moves || self.data.seen && clock(self.h, time) - self.h.now < 5;   // it stands still soon after the last step
    if (wakeful && self.root.isConnected) self.raf = requestAnimationFrame(tick);
    else drawLive(self);
  };
  self.raf = requestAnimationFrame(tick);
}

/** Steps that come too fast for their columns to be followed get narrower ones. */
function zoom(self, passed) {
  const width = self.lanes.clientWidth, widest = width >= 640 ? COLUMN.wide : COLUMN.narrow, h = self.h;
  let wanted = widest;
  if (busy(self) && !self.slow) { const took = h.steps[h.shown].took; wanted = Math.max(COLUMN.least, Math.min(widest, (width * took) / 2.5)); }
  self.column = self.column ? self.column + (wanted - self.column) * Math.min(1, passed * 2) : widest;
  if (Math.abs(wanted - self.column) < 0.02) self.column = wanted;
}

// ---- what never changes in one language

function label(self) {
  const { root } = self, find = (name) => root.querySelector(name);
  root.setAttribute('aria-label', W(self, 'title'));
  put(find('.head h2'), W(self, 'title'));
  find('.tools').innerHTML = ['reset', 'link', 'data', 'picture', 'help'].map((id) => `<button type="button" data-do="${id}" title="${W(self, `view.${id}`)}" aria-label="${W(self, `view.${id}`)}">${icon(id)}</button>`).join('');
  put(find('.what span'), W(self, 'view.prompt'));
  put(self.send, W(self, 'view.send'));
  put(find('[data-do=slow]'), W(self, 'view.slow'));
  put(find('[data-do=long]'), W(self, 'view.long'));
  put(find('[data-do=now]'), W(self, 'view.backToNow'));
  self.scrub.setAttribute('aria-label', W(self, 'view.past'));
  put(find('.mine h3'), W(self, 'view.mine'));
  put(find('.queue h3'), W(self, 'view.queue'));
  self.strip.replaceChildren(...FIGURES.map((name) => {
    const div = el('div', 'figure'), dd = el('dd');
    div.dataset.name = name;
    dd.append(el('b', '', '–'), el('small'));
    div.append(el('dt', '', W(self, `figure.${name}`)), dd);
    return div;
  }));
  const keys = (list, names) => list.replaceChildren(...names.map((name) => { const li = el('li'); li.append(el('i', name), W(self, `legend.${name}`)); return li; }));
  keys(find('.lanes .legend'), ['prefill', 'decode', 'own', 'idle']);
  keys(find('.memory .legend'), ['used', 'unwritten', 'shared', 'cached', 'ownBlock', 'free']);
  put(find('.papers summary'), W(self, 'papers.title'));
  wish(self);
  self.cards = clear(self);
  self.saidKind = '';
  drawer(self, self.drawer);
}

/** The sentence in which a learner says how much to write: selects inside words. */
function wish(self) {
  const phrases = W(self, 'view.wish').split('|').filter((phrase) => phrase.match(/\[(\w+)\]/g).every((name) => self.choices[name.slice(1, -1)].length > 1));
  self.wish.firstElementChild.replaceChildren(...phrases.map((phrase) => {
    const span = el('span');
    span.append(...phrase.split(/(\[\w+\])/).map((part) => {
      const name = part.match(/^\[(\w+)\]$/)?.[1];
      if (!name) return part;
      const select = el('select');
      select.name = name;
      select.setAttribute('aria-label', W(self, `view.${name}`));
      for (const choice of self.choices[name]) { const [value, label] = [choice].flat(); select.append(new Option(label ?? value, value)); }
      return select;
    }));
    return span;
  }));
}

function fillForm(self) {
  const { form } = self.data, wanted = form.prompt || self.ownPrompt;
  if (self.prompt.value !== wanted) self.prompt.value = wanted;
  for (const select of self.wish.querySelectorAll('select')) {
    const value = String(form[select.name]);
    if (![...select.options].some((option) => option.value === value)) select.append(new Option(value, value));   // from the address
    if (select.value !== value) select.value = value;
  }
}

function asked(self) {
  const chosen = Object.fromEntries([...self.wish.querySelectorAll('select')].map(({ name, value }) => [name, name === 'model' ? value : +value]));
  return { prompt: self.prompt.value === self.ownPrompt ? '' : self.prompt.value, ...chosen };
}

// ---- what is seen now

function draw(self) {
  const { root, data } = self;
  if (!data) return;
  const mark = root.querySelector('.head .mark'), state = data.seen ? 'live' : data.away ? 'away' : 'wait';
  mark.dataset.mark = state;
  put(mark, data.seen ? `${W(self, 'mark.live')} · ${data.seen.model}` : W(self, `mark.${state}`));
  root.dataset.state = state;
  show(root.querySelector('.away'), data.away);
  sayRefused(self);
  const complaints = root.querySelector('.complaints'), said = data.complaints.join('\n');
  if (complaints.dataset.said !== said) { complaints.dataset.said = said; complaints.replaceChildren(...data.complaints.map((text) => { const p = el('p', '', text); p.setAttribute('role', 'alert'); return p; })); }
  self.send.disabled = !data.seen;
  self.send.dataset.sent = String(self.presses.some((each) => each.do === 'send'));
  papers(self);
  texts(self);
  drawLive(self);
}

/** What was refused, with the seconds that are left; it is said aloud once. */
function sayRefused(self) {
  const { refused } = self.data, node = self.form.querySelector('.refused');
  clearTimeout(self.counting);
  node.hidden = !refused;
  if (!refused) return put(node.firstChild, '');
  const left = refused.seconds ? Math.ceil(refused.seconds - (performance.now() - self.refusedAt) / 1000) : 0;
  put(node.firstChild, refused.waiting === null ? refused.says : W(self, 'view.full', refused));
  put(node.lastChild, !refused.seconds ? '' : left > 0 ? W(self, 'view.left', { n: left }) : W(self, 'view.again'));
  if (left > 0) self.counting = setTimeout(() => self.root.isConnected && sayRefused(self), 1000);
}

/** All that moves with the moment shown. */
function drawLive(self) {
  const { h } = self;
  if (!self.data) return;
  lanes(self);
  memory(self);
  const time = performance.now();
  clearTimeout(self.rewriting);
  if (time - self.wroteAt < REWRITE) { self.rewriting = setTimeout(() => rewrite(self), REWRITE); return; }
  rewrite(self);
}

/** Figures and words all at once, and not so often that nobody could read them. */
function rewrite(self) {
  if (!self.root.isConnected) return;
  self.wroteAt = performance.now();
  const now = present(self.h, self.wroteAt);
  figures(self, now);
  queue(self, now);
  reveal(self, now);
  say(self, now);
}

function figures(self, now) {
  const { h, data } = self, known = Boolean(data.seen);
  const set = (name, value, note = '') => { const dd = self.strip.querySelector(`[data-name=${name}] dd`); put(dd.firstChild, known || name === 'none' ? value : '–'); put(dd.lastChild, known ? note : ''); };
  const batch = now.runs ? now.last.lanes.length : 0;
  set('rate', now.rate ? digits(now.rate) : '0', W(self, 'figure.rateUnit'));
  set('batch', String(batch), W(self, 'figure.batchUnit', { slots: h.slots }));
  set('waiting', String(now.waiting.length), W(self, 'figure.waitingUnit'));
  set('memory', h.blocks ? `${Math.round((100 * now.used) / h.blocks)}%` : '0%', W(self, 'figure.memoryUnit', { used: now.used, blocks: h.blocks }));
  set('learners', String(data.seen?.learners ?? 0), W(self, 'figure.learnersUnit'));
  const pace = self.root.querySelector('.pace output');
  put(pace, busy(self) && self.slow && h.speed < 0.8 ? W(self, 'view.pace', { times: digits(1 / h.speed) }) : '');
}

function canvas(self, node, height) {
  const width = node.parentElement.clientWidth, ratio = devicePixelRatio || 1, g = node.getContext('2d');
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (node.width !== w || node.height !== h) Object.assign(node, { width: w, height: h });
  if (node.style.height !== `${height}px`) node.style.height = `${height}px`;
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  const style = getComputedStyle(self.root), font = (name) => style.getPropertyValue(`--lab-${name}`).trim() || 'sans-serif';
  self.fonts ??= { sans: font('sans'), figures: font('figures') };
  return [pen(g, (name) => resolve(self, name), self.fonts), width];
}

function resolve(self, name) {   // a canvas knows no custom properties; forgotten when the theme changes
  if (!self.colours.has(name)) {
    const probe = (self.probe ??= self.root.appendChild(el('i', 'probe')));
    probe.style.color = `var(--lab-${name})`;
    self.colours.set(name, getComputedStyle(probe).color);
  }
  return self.colours.get(name);
}

function lanes(self) {
  const { h } = self, slots = h.slots ?? 8, at = self.back ?? h.at, [p, width] = canvas(self, self.lanes, lanesHeight(slots));
  if (!width) return;
  if (!self.column) zoom(self, 1);
  drawLanes(p, h, at, width, self.column, (key, values) => W(self, key, values));
  const last = h.steps[Math.ceil(at) - 1];
  Object.assign(self.lanes.dataset, { steps: h.steps.length, at: at.toFixed(1), lanes: last ? last.lanes.length : 0, shared: shared(h) });
  show(self.root.querySelector('.invite'), h.steps.length || !self.data.seen ? '' : W(self, 'view.invite'));
  const most = h.steps.length;
  if (+self.scrub.max !== most) self.scrub.max = most;
  self.scrub.value = String(self.back ?? most);
  self.scrub.parentElement.hidden = most < 20;
  self.root.querySelector('[data-do=now]').hidden = self.back === null;
  self.scrub.setAttribute('aria-valuetext', self.back === null ? W(self, 'view.now') : wallTime(h.wall + moment(h, at), 0.1));
}

/** The most sequences, others' included, that one step with one of one's own in it had: what "together" came to. */
function shared(h) {
  for (; h.counted < h.shown; h.counted++) {
    const { lanes } = h.steps[h.counted];
    if (lanes.some((lane) => h.mine.has(lane[1]))) h.together = Math.max(h.together, lanes.length);
  }
  return h.together;
}

const owned = (seen) => new Set(seen.mine.flatMap((id) => seen.tables[id] ?? []));

function memory(self) {
  const seen = self.h.snaps[0], section = self.root.querySelector('.memory');
  section.hidden = !seen;
  if (!seen || self.drawnSeen === seen && self.drawnWidth === self.memory.parentElement.clientWidth && self.colours.size) return;
  const [p, width] = canvas(self, self.memory, grid(seen.blocks, self.memory.parentElement.clientWidth || 300).height);
  if (!width) return;
  drawBlocks(p, seen, owned(seen), width);
  Object.assign(self, { drawnSeen: seen, drawnWidth: width });
  const used = seen.used.length, shares = seen.used.filter(([, owners]) => owners > 1).length;
  put(section.querySelector('h3'), W(self, 'view.memory', { blocks: seen.blocks.toLocaleString('en'), size: seen.block_size }));
  self.memory.setAttribute('aria-label', W(self, 'view.memorySays', { used, blocks: seen.blocks, shared: shares, cached: seen.cached.length, mine: owned(seen).size }));
  tables(self, seen);
}

/** The block tables of one's own texts: logical → physical, and how far each block is filled. */
function tables(self, seen) {
  const mine = seen.mine.filter((id) => seen.tables[id]), node = self.root.querySelector('.tables');
  if (mine.length) self.lastTables = mine.slice(-2).map((id) => ({ id, blocks: seen.tables[id], held: seen.tables[id].map((block) => seen.blockOf.get(block) ?? NOBODY), size: seen.block_size }));
  const shown = self.lastTables ?? [], said = JSON.stringify([shown, mine.length, self.lang]);
  if (node.dataset.said === said) return;
  node.dataset.said = said;
  node.replaceChildren(...shown.map(({ id, blocks, held, size }) => {
    const div = el('div', 'table'), list = el('ol');
    div.append(el('p', '', W(self, mine.includes(id) ? 'view.table' : 'view.tableGone', { id: called(self.h, id) })), list);
    blocks.forEach((block, at) => {
      const li = el('li'), bar = el('i'), { owners, cells } = held[at];
      bar.style.setProperty('--full', `${(100 * cells) / size}%`);
      li.append(el('span', '', String(at)), el('b', '', `→ ${block}`), bar, el('small', '', `${cells}/${size}${owners > 1 ? ` ×${owners}` : ''}`));
      list.append(li);
    });
    return div;
  }));
}

/** One line, whatever its length: the first, one's own wherever they stand, and how many there are besides. */
function queue(self, now) {
  const room = Math.max(4, Math.floor(self.queue.clientWidth / 44) - 3), own = (life) => self.h.mine.has(life.id);
  const far = now.waiting.filter((life, at) => at >= room && own(life)).slice(0, 2);
  const first = [...now.waiting.slice(0, room - far.length), ...far];
  const said = `${self.lang} ${first.map((life) => `${life.id}${own(life) ? '!' : ''}`).join(' ')} ${now.waiting.length}`;
  if (self.queue.dataset.said === said) return;
  self.queue.dataset.said = said;
  const chips = first.map((life) => {
    const li = el('li', own(life) ? 'own' : '', `${own(life) ? `${W(self, 'view.you')} ` : ''}${life.request + 1}`);
    li.title = W(self, 'view.queued', { n: life.prompt });
    return li;
  });
  const rest = now.waiting.length - first.length;
  self.queue.replaceChildren(...chips, ...(!chips.length ? [el('li', 'nobody', W(self, 'view.nobody'))] : rest ? [el('li', 'nobody', `+${rest}`)] : []));
}

// ---- one's own texts

function clear(self) { self.texts.replaceChildren(); self.lastTables = null; return new Map(); }

function texts(self) {
  const seen = self.data.seen;
  if (!seen) return;
  const byRequest = new Map();
  for (const text of seen.texts) byRequest.set(text.request, [...(byRequest.get(text.request) ?? []), text]);
  const newest = [...byRequest.keys()].sort((a, b) => b - a), ids = newest.filter((id, at) => at < CARDS || byRequest.get(id).some((text) => !text.finish || (busy(self) && (self.h.written.get(text.sequences[0]) ?? 0) < text.tokens)));
  for (const [id, card] of self.cards) if (!ids.includes(id)) { card.node.remove(); self.cards.delete(id); }
  ids.toReversed().forEach((id) => {
    if (!self.cards.has(id)) { const card = cardOf(self, id); self.cards.set(id, card); self.texts.prepend(card.node); }
    const card = self.cards.get(id);
    card.texts = byRequest.get(id).sort((a, b) => a.index - b.index);
    card.open = card.texts.some((text) => !text.finish);
  });
  let none = self.texts.querySelector('.none');
  if (!ids.length && !none) self.texts.append((none = el('p', 'none', W(self, 'view.none'))));
  if (ids.length) none?.remove();
}

function cardOf(self, request) {
  const node = el('article'), head = el('header'), stop = el('button', 'quiet', W(self, 'view.cancel'));
  Object.assign(stop, { type: 'button' });
  Object.assign(stop.dataset, { do: 'cancel', value: request });
  node.dataset.request = request;
  head.append(el('b'), el('span', 'state'), stop);
  node.append(head);
  return { node, head, stop, parts: [], texts: [] };
}

/** As much of each text as the steps shown have written. */
function reveal(self, now) {
  const { h } = self;
  for (const card of self.cards.values()) {
    card.stop.hidden = !card.open || !self.data.seen;
    put(card.head.querySelector('b'), `${W(self, 'view.you')} ${card.texts[0].request + 1}`);
    card.texts.forEach((text, i) => {
      const part = (card.parts[i] ??= paragraph(card)), id = text.sequences[0], life = h.lives.get(id);
      const written = h.written.get(id) ?? 0, all = self.still.matches || !busy(self) || written >= text.tokens || (life && life.finished !== null && life.finished < (h.steps[0]?.began ?? 0));
      put(part.prompt, text.prompt);
      put(part.written, all ? text.text : text.text.slice(0, Math.floor((text.text.length * written) / Math.max(1, text.tokens))));
      part.p.classList.toggle('writing', Boolean(self.data.seen) && !(all && text.finish));
      const begun = life && life.admitted !== null && life.admitted <= moment(h);
      const state = stateOf(self, text, all, written, begun, now.waiting.findIndex((each) => each.request === text.request));
      put(part.facts, [state, ...(all && text.finish && text.tokens ? facts(self, text) : written ? [W(self, 'view.tokensSoFar', { n: all ? text.tokens : written })] : [])].join(' · '));
      part.p.parentElement.dataset.finish = all ? text.finish : '';
    });
  }
}

function paragraph(card) {
  const div = el('div', 'piece'), p = el('p', 'text'), prompt = el('span', 'given'), written = el('span', 'written'), small = el('p', 'facts');
  p.append(prompt, written);
  div.append(p, small);
  card.node.append(div);
  return { p, prompt, written, facts: small };
}

function stateOf(self, text, all, written, begun, place) {
  if (!self.data.seen && !text.finish) return W(self, 'state.lost');
  if (text.error) return text.error.message?.[self.lang] ?? W(self, 'state.error');
  if (all && text.finish) return W(self, `state.${text.finish}`);
  if (written) return W(self, 'state.writing');
  if (place >= 0) return W(self, 'state.queued', { place: place + 1 });
  return W(self, begun ? 'state.reading' : 'state.sent');
}

function facts(self, text) {
  const found = [W(self, 'view.tokens_', { n: text.tokens })];
  if (text.ttft !== null) {
    found.push(W(self, 'view.ttft', { time: seconds(text.ttft) }));
    if (text.tokens > 1 && text.seconds > text.ttft) found.push(W(self, 'view.rate', { rate: digits((text.tokens - 1) / (text.seconds - text.ttft)) }));
  }
  return found;
}

// ---- in words

function say(self, now) {
  const { h } = self, own = now.last ? now.last.lanes.filter((lane) => h.mine.has(lane[1])) : [], mineWaits = now.waiting.findIndex((life) => h.mine.has(life.id));
  const kind = !self.data.seen ? 'away' : now.runs ? (own.length ? 'own' : 'others') : now.waiting.length ? 'starting' : h.steps.length ? (h.peak ? 'stands' : 'before') : self.restarted ? 'restarted' : 'idle';
  const time = performance.now();
  const alone = now.last?.lanes.length === 1 ? 'One' : '';
  const values = {
    batch: now.last?.lanes.length ?? 0, slots: h.slots ?? 0, waiting: now.waiting.length, rate: digits(now.rate || 0), lane: own.map((lane) => lane[0] + 1).join(W(self, 'says.comma')),
    written: own.reduce((sum, lane) => sum + (h.written.get(lane[1]) ?? 0), 0), peak: h.peak, used: now.used, blocks: h.blocks ?? 0, together: shared(h),
  };
  let words = W(self, `says.${kind}${kind === 'own' || kind === 'others' ? alone : ''}`, values);
  if (kind === 'stands' && shared(h) > 1) words += W(self, 'says.together', values);
  if (kind !== 'away' && now.runs && now.waiting.length) words += W(self, mineWaits >= 0 ? 'says.queueOwn' : 'says.queue', { ...values, place: mineWaits + 1 });
  put(self.sentence, words);
  if (kind !== self.saidKind || time - self.saidAt > RESAY) { put(self.aloud, words); self.lanes.setAttribute('aria-label', words); self.saidAt = time; }
  self.saidKind = kind;
}

function papers(self) {
  const { seen } = self.data, list = self.root.querySelector('.papers dl');
  if (!seen) return;
  const values = { model: seen.model, policy: W(self, `policy.${seen.policy}`), slots: seen.slots, blocks: seen.blocks, size: seen.block_size, ...seen.conditions };
  const said = JSON.stringify([values, self.lang]);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(...['conditions', ...FIGURES, 'lanes', 'blocks', 'texts', 'trace'].flatMap((name) => [el('dt', '', name === 'conditions' ? W(self, 'papers.conditionsName') : W(self, `papers.name.${name}`)), el('dd', '', W(self, `papers.${name}`, values))]));
}

// ---- what is pressed and pointed at

function act(self, b) {
  const stamp = () => `live-server-${wallTime(Date.now() / 1000, 1).replaceAll(':', '')}`;
  const does = {
    slow: () => { self.slow = !self.slow; b.setAttribute('aria-pressed', String(self.slow)); run(self); },
    now: () => { self.back = null; draw(self); },
    long: () => { self.prompt.value = W(self, 'view.longPrompt'); self.form.oninput(); self.prompt.focus(); },
    cancel: () => { b.disabled = true; press(self, 'cancel', +b.dataset.value); },
    reset: () => { Object.assign(self, { back: null, slow: true }); self.root.querySelector('[data-do=slow]').setAttribute('aria-pressed', 'true'); press(self, 'reset'); },
    link: () => copy(location.href).then(() => note(self, W(self, 'view.copied'))),
    data: () => save(`${stamp()}.json`, 'application/json', JSON.stringify(taken(self.h))),
    picture: () => canvasCopy(self.lanes).toBlob((blob) => save(`${stamp()}.png`, 'image/png', blob)),
    help: () => drawer(self, self.drawer ? '' : 'help'),
  };
  does[b.dataset.do]();
}

function drawer(self, open) {
  const node = self.root.querySelector('.drawer');
  self.drawer = open;
  node.hidden = !open;
  self.root.querySelector('[data-do=help]').setAttribute('aria-expanded', String(Boolean(open)));
  node.textContent = open ? W(self, 'help') : '';
}

function note(self, text) {
  const said = self.root.querySelector('.said');
  said.textContent = text;
  setTimeout(() => (said.textContent = ''), 1500);
}

function hover(self, node, tip) {
  const box = node.parentElement.querySelector('.tip');
  node.onpointermove = (event) => {
    const at = node.getBoundingClientRect(), x = event.clientX - at.left, y = event.clientY - at.top, words = self.data ? tip(self, x, y, at.width) : '';
    show(box, words);
    box.style.left = `${Math.max(0, Math.min(x + 12, at.width - box.offsetWidth))}px`;
    box.style.top = `${y + 18}px`;
  };
  node.onpointerleave = () => (box.hidden = true);
}

function lanesTip(self, x, y, width) {
  const found = cellAt(self.h, self.back ?? self.h.at, x, y, width, self.column);
  if (!found) return '';
  const { step, lane, cell } = found, values = { step: step.index + 1, time: seconds(step.took), lane: lane + 1, batch: step.lanes.length };
  if (!cell) return W(self, 'tip.idle', values);
  const who = `${self.h.mine.has(cell[1]) ? `${W(self, 'view.you')} ` : ''}${called(self.h, cell[1])}`;
  return W(self, `tip.${cell[2]}`, { ...values, who, read: cell[3], wrote: cell[4] });
}

function blocksTip(self, x, y, width) {
  const seen = self.h.snaps[0], block = seen ? blockAt(seen, x, y, width) : null;
  if (block === null) return '';
  const { owners, cells } = seen.blockOf.get(block) ?? NOBODY, values = { block, owners, filled: cells, size: seen.block_size };
  return W(self, owners > 1 ? 'tip.blockShared' : owners ? 'tip.blockUsed' : seen.cached.includes(block) ? 'tip.blockCached' : 'tip.blockFree', values);
}
