// The instrument's header: name, state mark, and what a learner can take away (link, data, picture; take_away.js stands before this).
const ICON = {
  reset: 'M4 10a6 6 0 1 0 2-4.5M4 3v4h4', link: 'M8 12l4-4M7 9l-2 2a3 3 0 0 0 4 4l2-2M13 11l2-2a3 3 0 0 0-4-4l-2 2',
  data: 'M4 5h12M4 10h12M4 15h12M8 5v10', picture: 'M3 5h14v10H3zM3 13l4-4 4 4 2-2 4 3', help: 'M8 8a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M10 14v.2',
};
const MARK = {
  live: '<circle cx="6" cy="6" r="4.5" fill="currentColor"/>', replay: '<path d="M3 1.5l7 4.5-7 4.5z" fill="currentColor"/>',
  precomputed: '<rect x="2" y="2" width="8" height="8" fill="currentColor"/>', computed: '<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6"/>',
  refused: '<path d="M2 2l8 8M10 2l-8 8" stroke="currentColor" stroke-width="1.8"/>',
};
const ANNOUNCE_MS = 700;   // a control that is dragged through ten values speaks once, of the last
const seen = new WeakMap();

export default function (component) {
  const { parentElement: root } = component;
  let self = seen.get(root);
  if (!self) { seen.set(root, (self = { open: '', root, el: root.querySelector('.head') })); build(self, component.data); }
  Object.assign(self, { data: component.data, trigger: component.setTriggerValue });
  update(self);
  announce(self);
  return () => { clearTimeout(self.waiting); clearTimeout(self.clearing); seen.delete(root); };
}

// Built once and then changed in place: who stands on a button with the keyboard stays there, and a screen reader's live
// region speaks only when it was there before its text.
function build(self, data) {
  const { el } = self, button = (id, extra = '') => `<button type="button" data-id="${id}" ${extra}><svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICON[id]}"/></svg></button>`;
  const drawer = `aria-expanded="false" aria-controls="drawer"`;
  el.innerHTML = `<h4></h4><span class="mark"><svg viewBox="0 0 12 12" aria-hidden="true"></svg><span></span></span>
    <span class="tools" role="group">${button('reset')}${button('link')}${button('data', drawer)}${button('picture')}${button('help', drawer)}</span>
    <div class="drawer" id="drawer" role="region" hidden></div><span class="said" role="status"></span><span class="aloud" role="status" aria-atomic="true"></span>`;
  const $ = (selector) => el.querySelector(selector);
  Object.assign(self, { title: $('h4'), mark: $('.mark'), tools: $('.tools'), drawer: $('.drawer'), said: $('.said'), aloud: $('.aloud'), says: data.says });
  el.onclick = (event) => { const b = event.target.closest('button'); if (b) act(self, b.dataset.id); };
  el.onkeydown = (event) => { if (event.key === 'Escape' && self.open) { const id = self.open; toggle(self, id); el.querySelector(`[data-id=${id}]`).focus(); } };
}

function put(node, text) { if (node.textContent !== text) node.textContent = text; }

function update(self) {
  const { data, el, drawer } = self, L = data.labels, level = document.querySelector('.stApp h2') ? 3 : 2;
  put(self.title, data.name);
  self.title.setAttribute('aria-level', level);   // under the section's heading, or the page's where there is no section
  self.mark.dataset.mark = data.mark;
  self.mark.querySelector('svg').innerHTML = MARK[data.mark] || MARK.computed;
  put(self.mark.querySelector('span'), data.markText);
  self.tools.setAttribute('aria-label', data.name);
  for (const b of self.tools.children) {
    const id = b.dataset.id;
    b.title = L[id];
    b.setAttribute('aria-label', L[id]);
    b.hidden = (id === 'data' && !data.rows.length) || (id === 'picture' && !data.picture);
    if (b.hasAttribute('aria-expanded')) b.setAttribute('aria-expanded', String(self.open === id));
  }
  drawer.hidden = !self.open;
  if (self.open) drawer.setAttribute('aria-label', L[self.open]);
  const holds = self.open === 'data' ? `data ${L.csv} ${L.json}` : self.open === 'help' ? `help ${data.help}` : '';
  if (self.holds === holds) return;
  self.holds = holds;
  if (self.open === 'data') drawer.innerHTML = `<button type="button" data-id="csv">${L.csv}</button> <button type="button" data-id="json">${L.json}</button>`;
  else drawer.textContent = self.open === 'help' ? data.help : '';
}

// What changed is said once, after it came to rest. A step of the player is said by the player.
function announce(self) {
  const { says, of, t, lang } = self.data, before = self.about;
  self.about = { of, t, lang };
  if (says === null || says === self.says) return;   // null: a guess is awaited, or a run is under way
  self.says = says;
  if (!before || before.lang !== lang || (before.of === of && before.t !== t)) return;   // the page opens, or the player says it
  clearTimeout(self.waiting);
  self.waiting = setTimeout(() => { self.aloud.textContent = says; }, ANNOUNCE_MS);
}

function toggle(self, id) { self.open = self.open === id ? '' : id; update(self); }

function act(self, id) {
  const { data } = self, L = data.labels;
  const tell = (text) => { self.said.textContent = text; clearTimeout(self.clearing); self.clearing = setTimeout(() => (self.said.textContent = ''), 2500); };
  if (id === 'reset') { self.trigger('reset', true); tell(L.wasReset); }
  if (id === 'help' || id === 'data') toggle(self, id);
  if (id === 'link') copy(location.href).then(() => tell(L.copied));
  if (id === 'csv') save(`${data.file}.csv`, 'text/csv', '\ufeff' + csv(data.rows));
  if (id === 'json') save(`${data.file}.json`, 'application/json', JSON.stringify(data.rows, null, 1));
  if (id === 'picture' && !picture(self.root, data)) tell(L.noPicture);
}

// Pictures stand beside the header, in the page (Vega's svg.marks) or in a shadow root of its own. Several become one file.
function* inside(node) {
  yield node;
  for (const child of node.children || []) yield* inside(child);
  if (node.shadowRoot) yield* inside(node.shadowRoot);
}
function picture(root, { file, name, says }) {
  const host = root.getRootNode().host || root, frame = host.closest('[class*="st-key-instrument-"]');
  const found = [...inside(frame)].filter((node) => node !== host && node.matches?.('canvas, svg[data-picture], svg.marks') && node.getBoundingClientRect().width);
  if (!found.length) return false;
  if (found.length === 1 && found[0].tagName === 'CANVAS') canvasCopy(found[0]).toBlob((blob) => save(`${file}.png`, 'image/png', blob));
  else save(`${file}.svg`, 'image/svg+xml', svgFile(found, name, says));
  return true;
}
const STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'stroke-opacity', 'stroke-linecap', 'stroke-linejoin', 'paint-order', 'opacity', 'fill-opacity',
  'font-family', 'font-size', 'font-weight', 'font-style', 'text-anchor', 'dominant-baseline', 'visibility', 'display'];
const SVG = 'http://www.w3.org/2000/svg', GAP = 16;
function svgCopy(svg) {   // a stylesheet does not travel with the file
  const copy = svg.cloneNode(true), from = svg.querySelectorAll('*'), to = copy.querySelectorAll('*');
  from.forEach((node, i) => { const c = getComputedStyle(node); for (const s of STYLES) to[i].style.setProperty(s, c.getPropertyValue(s)); });
  for (const name of ['class', 'style', 'role', 'aria-label', 'data-picture']) copy.removeAttribute(name);
  return copy;
}
function svgFile(pictures, name, says) {
  const file = document.createElementNS(SVG, 'svg');
  for (const [tag, text] of [['title', name], ['desc', says]]) if (text) file.append(Object.assign(document.createElementNS(SVG, tag), { textContent: text }));
  let [width, y] = [0, 0];
  for (const picture of pictures) {
    const canvas = picture.tagName === 'CANVAS', box = picture.viewBox?.baseVal, shown = picture.getBoundingClientRect();
    const [w, h] = canvas || !box?.width ? [shown.width, shown.height] : [box.width, box.height];
    const part = canvas ? document.createElementNS(SVG, 'image') : svgCopy(picture);
    if (canvas) part.setAttribute('href', canvasCopy(picture).toDataURL('image/png'));
    for (const [key, value] of Object.entries({ x: 0, y, width: w, height: h })) part.setAttribute(key, value);
    file.append(part);
    [width, y] = [Math.max(width, w), y + h + GAP];
  }
  const height = y - GAP;
  for (const [key, value] of Object.entries({ xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` })) file.setAttribute(key, value);
  file.style.background = ground(pictures[0]);
  return new XMLSerializer().serializeToString(file);
}
