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
const seen = new WeakMap();

export default function (component) {
  const { parentElement: root } = component;
  let self = seen.get(root);
  if (!self) seen.set(root, (self = { open: '' }));
  Object.assign(self, { data: component.data, trigger: component.setTriggerValue });
  draw(root.querySelector('.head'), self, root);
}

function draw(el, self, root) {
  const { data } = self, L = data.labels;
  const button = (id, extra = '') => `<button type="button" data-id="${id}" title="${L[id]}" aria-label="${L[id]}" ${extra}><svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICON[id]}"/></svg></button>`;
  el.innerHTML = `<h4></h4><span class="mark" data-mark="${data.mark}"><svg viewBox="0 0 12 12" aria-hidden="true">${MARK[data.mark] || MARK.computed}</svg><span></span></span>
    <span class="tools">${button('reset')}${button('link')}${button('data', `aria-expanded="${self.open === 'data'}"`)}${button('picture')}${button('help', `aria-expanded="${self.open === 'help'}"`)}</span>
    <div class="drawer" role="region" ${self.open ? '' : 'hidden'}></div><span class="said" role="status"></span>`;
  el.querySelector('h4').textContent = data.name;
  el.querySelector('.mark span').textContent = data.markText;
  const drawer = el.querySelector('.drawer'), said = el.querySelector('.said');
  if (self.open === 'help') drawer.textContent = data.help;
  if (self.open === 'data') {
    drawer.innerHTML = `<button type="button" data-id="csv">${L.csv}</button> <button type="button" data-id="json">${L.json}</button>`;
  }
  el.onclick = (event) => {
    const b = event.target.closest('button');
    if (!b) return;
    const id = b.dataset.id;
    if (id === 'reset') self.trigger('reset', true);
    if (id === 'help' || id === 'data') { self.open = self.open === id ? '' : id; draw(el, self, root); el.querySelector(`[data-id=${id}]`).focus(); }
    if (id === 'link') copy(location.href).then(() => { said.textContent = L.copied; setTimeout(() => (said.textContent = ''), 1500); });
    if (id === 'csv') save(`${data.file}.csv`, 'text/csv', '\ufeff' + csv(data.rows));
    if (id === 'json') save(`${data.file}.json`, 'application/json', JSON.stringify(data.rows, null, 1));
    if (id === 'picture') picture(root, data.file);
  };
}

// The picture stands beside the header, in the page (Vega's svg.marks) or in a shadow root of its own.
function* inside(node) {
  yield node;
  for (const child of node.children || []) yield* inside(child);
  if (node.shadowRoot) yield* inside(node.shadowRoot);
}
function picture(root, name) {
  const host = root.getRootNode().host || root;
  const frame = host.closest('[class*="st-key-instrument-"]');
  for (const node of inside(frame)) {
    if (node === host || !node.matches?.('canvas, svg[data-picture], svg.marks')) continue;
    return node.tagName === 'CANVAS' ? canvasPng(node, name) : svgFile(node, name);
  }
}
function ground(node) {
  for (let n = node; n; n = n.parentElement || n.getRootNode().host) {
    const c = getComputedStyle(n).backgroundColor;
    if (c && c !== 'transparent' && !/, 0\)$/.test(c)) return c;
  }
  return 'white';
}
function canvasPng(canvas, name) {
  const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
  const g = copy.getContext('2d');
  g.fillStyle = ground(canvas); g.fillRect(0, 0, copy.width, copy.height); g.drawImage(canvas, 0, 0);
  copy.toBlob((blob) => save(`${name}.png`, 'image/png', blob));
}
const STYLES = ['fill', 'stroke', 'stroke-width', 'stroke-dasharray', 'opacity', 'font-family', 'font-size', 'font-weight', 'text-anchor', 'fill-opacity'];
function svgFile(svg, name) {
  const copy = svg.cloneNode(true), from = svg.querySelectorAll('*'), to = copy.querySelectorAll('*');
  from.forEach((node, i) => { const c = getComputedStyle(node); for (const s of STYLES) to[i].style.setProperty(s, c.getPropertyValue(s)); });
  const box = svg.viewBox.baseVal;
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  copy.setAttribute('width', box.width); copy.setAttribute('height', box.height); copy.style.background = ground(svg);
  save(`${name}.svg`, 'image/svg+xml', new XMLSerializer().serializeToString(copy));
}
