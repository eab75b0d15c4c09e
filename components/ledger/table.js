// The ledger's table. Python sends all rows with every change; filtering happens here at once and is told to Python after
// a pause, which writes it into the address. Rows are made once and filled again, so that focus and open rows stay.
const MARK = {
  agrees: '<path d="M2.5 8.5l3.5 3.5 7.5-8" class="line"/>', differs: '<path d="M3 3l10 10M13 3L3 13" class="line"/>',
  unchecked: '<path d="M8 1.5L14.5 8 8 14.5 1.5 8z"/><path d="M8 5.5v3M8 10.6v.4"/>', waiting: '<circle cx="8" cy="8" r="5.2"/>',
  shown: '<path d="M4 8h8"/>', now: '<path d="M8 2.8a5.2 5.2 0 1 1-5.2 5.2"/>',
};
const ICON = {
  reset: 'M4 10a6 6 0 1 0 2-4.5M4 3v4h4', link: 'M8 12l4-4M7 9l-2 2a3 3 0 0 0 4 4l2-2M13 11l2-2a3 3 0 0 0-4-4l-2 2',
  data: 'M4 5h12M4 10h12M4 15h12M8 5v10', help: 'M8 8a2 2 0 1 1 3 1.7c-.7.4-1 .8-1 1.6M10 14v.2',
  again: 'M15.5 10a5.5 5.5 0 1 1-1.8-4.1M15.5 2.8v3.6h-3.6', open: 'M7 5l5 5-5 5',
};
const JUDGED = ['agrees', 'differs', 'unchecked', 'waiting'];
const EXPORTED = ['key', 'kind', 'says', 'value', 'unit', 'interval', 'n', 'how', 'with', 'source', 'recomputed', 'difference', 'tolerance', 'verdict', 'reason', 'reference'];
const PAUSE = 400;   // ms after the last key before the address follows
const seen = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector('.ledger');
  let self = seen.get(root);
  if (!self) seen.set(root, (self = begin(root)));
  const fresh = self.data?.lang !== component.data.lang || !self.rows;
  Object.assign(self, { data: component.data, trigger: component.setTriggerValue });
  if (!self.timer) self.filter = { ...component.data.filter };   // while somebody types, what is typed counts
  if (fresh) label(self);
  if (!self.timer && self.search.value !== self.filter.text) self.search.value = self.filter.text;
  draw(self);
}

const W = (self, key, values = {}) => (self.data.words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
const icon = (name) => `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICON[name]}"/></svg>`;
const mark = (name) => `<svg viewBox="0 0 16 16" aria-hidden="true">${MARK[name]}</svg>`;
function el(tag, className = '', text = null) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== null) node.textContent = text;
  return node;
}
const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };

function begin(root) {
  const find = (name) => root.querySelector(name);
  const self = {
    root, head: find('.head'), counts: find('.counts'), summary: find('.summary'), search: find('.search'), kinds: find('.kinds'),
    actions: find('.actions'), progress: find('.progress'), away: find('.away'), table: find('table'), complaints: find('.complaints'),
    open: new Set(), folded: new Set(), drawer: '', rows: null, timer: 0,
  };
  self.search.oninput = () => narrow(self, { text: self.search.value });
  root.onclick = (event) => { const b = event.target.closest('button'); if (b && !b.disabled) press(self, b); };
  self.search.onkeydown = (event) => { if (event.key === 'Escape' && self.search.value) { event.stopPropagation(); self.search.value = ''; narrow(self, { text: '' }); } };
  return self;
}

// ---- what never changes in one language
function label(self) {
  const { data, root } = self;
  root.setAttribute('aria-label', W(self, 'title'));
  root.querySelector('h2').textContent = W(self, 'title');
  self.search.placeholder = W(self, 'view.search');
  self.search.setAttribute('aria-label', W(self, 'view.search'));
  const tool = (id, words) => `<button type="button" data-do="${id}" title="${W(self, words)}" aria-label="${W(self, words)}">${icon(id)}</button>`;
  self.head.querySelector('.tools').innerHTML = tool('reset', 'view.reset') + tool('link', 'view.link') + tool('data', 'view.data') + tool('help', 'view.helpButton');
  self.counts.setAttribute('aria-label', W(self, 'view.verdict'));
  self.counts.replaceChildren(...JUDGED.map((name) => {
    const b = el('button', 'count');
    b.type = 'button';
    Object.assign(b.dataset, { do: 'verdict', value: name });
    b.innerHTML = `<span class="mark" data-verdict="${name}">${mark(name)}<span></span></span><b></b>`;
    b.querySelector('.mark span').textContent = W(self, `verdict.${name}`);
    return b;
  }));
  self.kinds.setAttribute('aria-label', W(self, 'view.kind'));
  self.kinds.replaceChildren(...['', ...data.kinds].map((name) => {
    const b = el('button', 'kind', name ? W(self, `kind.${name}`) : W(self, 'view.all'));
    b.type = 'button';
    Object.assign(b.dataset, { do: 'kind', value: name });
    return b;
  }));
  const head = ['verdict', 'number', 'stored', 'recomputed', 'apart', 'kind'].map((name) => `<th scope="col" class="${name}" role="columnheader">${W(self, `view.${name}`)}</th>`).join('');
  self.table.setAttribute('role', 'table');
  self.table.innerHTML = `<caption>${W(self, 'title')}</caption><thead role="rowgroup"><tr role="row">${head}<td class="do" role="cell"></td></tr></thead>`;
  self.rows = new Map();
  self.groups = new Map();
}

// ---- what the rows say now
function draw(self) {
  const { data } = self, shown = data.rows.filter((row) => fits(row, self.filter));
  const now = new Set(data.run?.now);
  for (const row of data.rows) {
    if (!self.groups.has(row.group)) self.table.append(group(self, row.group));
    if (!self.rows.has(row.key)) self.groups.get(row.group).append(line(self, row));
    fill(self, self.rows.get(row.key), row, now.has(row.key));
  }
  const here = new Set(shown.map((row) => row.key)), known = new Set(data.rows.map((row) => row.key));
  for (const [key, parts] of self.rows) {
    if (!known.has(key)) { parts.tr.remove(); parts.more?.remove(); self.rows.delete(key); continue; }
    const hidden = !here.has(key) || self.folded.has(parts.group);
    parts.tr.hidden = hidden;
    if (parts.more) parts.more.hidden = hidden || !self.open.has(key);
  }
  for (const [id, tbody] of self.groups) fillGroup(self, id, tbody, shown.filter((row) => row.group === id), data.rows.filter((row) => row.group === id));
  above(self, shown);
}

function fits(row, filter) {
  if (filter.kind && row.kind !== filter.kind) return false;
  if (filter.verdict && row.verdict !== filter.verdict) return false;
  const said = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  row.searched ??= [row.key, row.says, row.how, row.unit, row.source && Object.values(row.source).join(' '), row.with.flat().join(' '), row.reference?.where].join(' ').toLowerCase();
  return said.every((word) => row.searched.includes(word));
}

function group(self, id) {
  const tbody = el('tbody'), tr = el('tr', 'group'), th = el('th');
  tbody.setAttribute('role', 'rowgroup');
  tr.setAttribute('role', 'row');
  Object.assign(th, { scope: 'rowgroup', colSpan: 7 });
  th.setAttribute('role', 'rowheader');
  th.innerHTML = `<button type="button" data-do="fold" data-value="${id}" title="${W(self, 'view.fold')}">${icon('open')}<span class="name"></span><span class="tally"></span></button>`;
  th.querySelector('.name').textContent = self.data.groups[id];
  tr.append(th);
  tbody.append(tr);
  self.groups.set(id, tbody);
  return tbody;
}

function fillGroup(self, id, tbody, shown, all) {
  tbody.hidden = !shown.length;
  tbody.querySelector('.group button').setAttribute('aria-expanded', String(!self.folded.has(id)));
  const tally = JUDGED.map((name) => [name, all.filter((row) => row.verdict === name).length]).filter(([name, n]) => n && name !== 'waiting');
  const said = `${shown.length < all.length ? `${shown.length} / ` : ''}${all.length}`;
  const html = `<b>${said}</b>` + tally.map(([name, n]) => `<span class="mark" data-verdict="${name}">${mark(name)}${n} ${W(self, `verdict.${name}`)}</span>`).join('');
  const node = tbody.querySelector('.tally');
  if (node.innerHTML !== html) node.innerHTML = html;
}

function line(self, row) {
  const tr = el('tr', 'number'), cells = {};
  tr.setAttribute('role', 'row');
  for (const name of ['verdict', 'what', 'stored', 'recomputed', 'apart', 'kind', 'do']) {
    tr.append((cells[name] = el('td', name)));
    cells[name].setAttribute('role', 'cell');
  }
  cells.what.innerHTML = `<button type="button" class="open" data-do="open" data-value="" aria-expanded="false">${icon('open')}<span class="says"></span></button><code></code>`;
  cells.what.querySelector('button').dataset.value = row.key;
  for (const name of ['stored', 'recomputed', 'apart']) cells[name].dataset.label = W(self, `view.${name}`);
  cells.verdict.innerHTML = '<span class="mark"></span>';
  cells.do.innerHTML = `<button type="button" class="again" data-do="again">${icon('again')}</button>`;
  const again = cells.do.firstChild;
  again.dataset.value = row.key;
  again.title = W(self, 'view.recomputeOne', { key: row.key });
  again.setAttribute('aria-label', again.title);
  self.rows.set(row.key, { tr, cells, group: row.group, more: null });
  return tr;
}

function fill(self, parts, row, now) {
  const { tr, cells } = parts, verdict = now ? 'now' : row.verdict, before = parts.row;
  parts.row = row;
  tr.dataset.verdict = row.verdict;
  tr.dataset.key = row.key;
  const said = cells.verdict.firstChild;
  if (said.dataset.verdict !== verdict) { said.dataset.verdict = verdict; said.innerHTML = `${mark(verdict)}<span>${W(self, `verdict.${verdict}`)}</span>`; }
  put(cells.what.querySelector('.says'), row.says || row.key);
  put(cells.what.querySelector('code'), row.key);
  const same = row.recomputedShown === row.shown, exact = row.verdict === 'differs' && same;   // what differs must look different
  put(cells.stored, exact ? whole(row.value) : row.shown || '–');
  put(cells.recomputed, row.recomputed === null ? '' : exact ? whole(row.recomputed) : row.recomputedShown);
  put(cells.apart, row.difference ?? '');
  cells.apart.title = row.tolerance;
  put(cells.kind, W(self, `kind.${row.kind}`));
  const again = cells.do.firstChild;
  again.hidden = !row.again;
  again.disabled = Boolean(self.data.run) || self.data.away;
  let reason = cells.what.querySelector('.reason');
  if (row.reason && !reason) cells.what.append((reason = el('span', 'reason')));
  if (reason) { put(reason, row.reason); reason.hidden = !row.reason; }
  if (parts.more && JSON.stringify(before) !== JSON.stringify(row)) details(self, parts);
  cells.what.querySelector('.open').setAttribute('aria-expanded', String(self.open.has(row.key)));
}

const whole = (value) => (Array.isArray(value) ? `[${value.join(', ')}]` : String(value));

function details(self, parts) {
  const { row } = parts, fresh = !parts.more;
  if (fresh) {
    parts.more = el('tr', 'more');
    parts.more.setAttribute('role', 'row');
    const td = el('td');
    td.colSpan = 7;
    td.setAttribute('role', 'cell');
    parts.more.append(td);
    parts.tr.after(parts.more);
  }
  const list = el('dl');
  const add = (name, body, className = '') => {
    if (!body || (body.length === 0 && typeof body !== 'string')) return;
    const dd = el('dd', className);
    dd.append(...(Array.isArray(body) ? body : [body]));
    list.append(el('dt', '', name), dd);
  };
  if (row.reference) {
    add(W(self, 'view.reference'), [el('b', 'figure', row.reference.shown), el('span', 'muted', `  ${row.reference.where}`)], 'reference');
    add(W(self, 'view.why'), row.reference.why);
  }
  add(W(self, row.kind === 'computed' ? 'view.formula' : 'view.how'), row.how, 'code');
  add(W(self, 'view.source'), row.source && source(self, row.source));
  add(W(self, 'view.with'), row.with.map(([name, value]) => { const p = el('span', 'pair'); if (name) p.append(el('span', 'muted', `${name} `)); p.append(value); return p; }));
  add(W(self, 'view.samples'), row.n ? row.n.toLocaleString('en') : '');
  add(W(self, 'view.interval'), row.interval);
  if (row.value !== null) add(W(self, 'view.exactly'), `${whole(row.value)} ${row.unit}`, 'code');
  if (row.recomputed !== null) add(W(self, 'view.recomputed'), `${whole(row.recomputed)} ${row.unit}`, 'code');
  add(W(self, 'view.tolerance'), row.tolerance);
  if (row.again) add(W(self, 'view.by'), `python -m compute verify --only ${row.key}`, 'code');
  parts.more.firstChild.replaceChildren(list);
}

function source(self, from) {
  const web = /^https?:\/\//.test(from.url), title = el(web ? 'a' : 'span', '', from.title);
  if (web) Object.assign(title, { href: from.url, target: '_blank', rel: 'noopener noreferrer' });
  return [title, ...[from.where, from.read_on && `${W(self, 'view.read')} ${from.read_on}`, from.note].filter(Boolean).map((text) => el('span', 'pair', text))];
}

// ---- above the table
function above(self, shown) {
  const { data, filter } = self, count = (test) => data.rows.filter(test).length;
  const filtered = Boolean(filter.text.trim() || filter.kind || filter.verdict);
  for (const b of self.counts.children) {
    const n = count((row) => row.verdict === b.dataset.value);
    put(b.querySelector('b'), n.toLocaleString('en'));
    b.setAttribute('aria-pressed', String(filter.verdict === b.dataset.value));
    b.classList.toggle('nothing', !n);
  }
  for (const b of self.kinds.children) b.setAttribute('aria-pressed', String(filter.kind === b.dataset.value));
  const numbers = { total: data.rows.length, ...Object.fromEntries([...data.kinds.map((k) => [k, count((r) => r.kind === k)]), ...JUDGED.map((v) => [v, count((r) => r.verdict === v)])]) };
  const some = filtered ? ` ${shown.length ? W(self, 'view.some', { n: shown.length }) : W(self, 'view.none')}` : '';
  put(self.summary, W(self, 'view.summary', numbers) + (data.lang === 'zh' ? some.trim() : some));
  const can = shown.filter((row) => row.again);
  const button = (id, text, more = '') => `<button type="button" data-do="${id}" ${more}>${text}</button>`;
  const html = (filtered ? button('clear', W(self, 'view.clear'), 'class="quiet"') : '')
    + (data.run ? button('cancel', W(self, 'view.cancel'), 'class="main"')
      : button('all', W(self, !can.length ? 'view.recomputeNone' : filtered ? 'view.recomputeThese' : 'view.recomputeAll', { n: can.length }), `class="main" ${can.length && !data.away ? '' : 'disabled'}`));
  if (self.actions.dataset.html !== html) {
    const focused = self.actions.contains(self.root.getRootNode().activeElement);
    self.actions.dataset.html = html;
    self.actions.innerHTML = html;
    if (focused) self.actions.lastElementChild.focus();
  }
  self.progress.hidden = !data.run;
  if (data.run) {
    const now = data.run.now.length, done = data.run.done + Math.floor(data.run.fraction * now);
    self.progress.firstElementChild.value = (data.run.done + data.run.fraction * now) / Math.max(1, data.run.total);
    put(self.progress.lastElementChild, W(self, 'view.running', { done, total: data.run.total, key: data.run.now[0] ?? '' }));
  }
  self.away.hidden = !data.away;
  put(self.away, data.away ? W(self, 'view.away') : '');
  const complaints = data.complaints.join('\n');
  if (self.complaints.dataset.said !== complaints) {
    self.complaints.dataset.said = complaints;
    self.complaints.replaceChildren(...data.complaints.map((text) => { const p = el('p', '', text); p.setAttribute('role', 'alert'); return p; }));
  }
}

// ---- what is pressed
function press(self, b) {
  const { do: what, value } = b.dataset, { filter, data } = self;
  const flip = (set) => (set.has(value) ? set.delete(value) : set.add(value));
  const here = () => data.rows.filter((row) => fits(row, filter));
  if (what === 'open') { flip(self.open); if (!self.rows.get(value).more) details(self, self.rows.get(value)); b.setAttribute('aria-expanded', String(self.open.has(value))); draw(self); }
  if (what === 'fold') { flip(self.folded); draw(self); }
  if (what === 'verdict') narrow(self, { verdict: filter.verdict === value ? '' : value }, 0);
  if (what === 'kind') narrow(self, { kind: value }, 0);
  if (what === 'clear') { self.search.value = ''; narrow(self, { text: '', kind: '', verdict: '' }, 0); }
  if (what === 'again') self.trigger('recompute', [value]);
  if (what === 'all') self.trigger('recompute', here().filter((row) => row.again).map((row) => row.key));
  if (what === 'cancel') self.trigger('cancel', true);
  if (what === 'reset') { self.open.clear(); self.folded.clear(); clearTimeout(self.timer); self.timer = 0; self.trigger('reset', true); }
  if (what === 'link') copy(location.href).then(() => say(self, W(self, 'view.copied')));
  if (what === 'data' || what === 'help') drawer(self, self.drawer === what ? '' : what);
  const taken = () => here().map((row) => Object.fromEntries(EXPORTED.map((name) => [name, name === 'with' ? Object.fromEntries(row.with) : row[name]])));
  if (what === 'csv') save('ledger.csv', 'text/csv', '\ufeff' + csv(taken()));
  if (what === 'json') save('ledger.json', 'application/json', JSON.stringify(taken(), null, 1));
}

function narrow(self, change, pause = PAUSE) {
  Object.assign(self.filter, change);
  clearTimeout(self.timer);
  self.timer = setTimeout(() => { self.timer = 0; self.trigger('filter', { ...self.filter, text: self.filter.text.trim() }); }, pause);
  draw(self);
}

function drawer(self, open) {
  const node = self.head.querySelector('.drawer');
  self.drawer = open;
  node.hidden = !open;
  for (const id of ['data', 'help']) self.head.querySelector(`[data-do=${id}]`).setAttribute('aria-expanded', String(open === id));
  if (open === 'help') node.textContent = W(self, 'help');
  if (open === 'data') node.innerHTML = ['csv', 'json'].map((id) => `<button type="button" data-do="${id}">${W(self, `view.${id}`)}</button>`).join(' ');
}

function say(self, text) {
  const said = self.head.querySelector('.said');
  said.textContent = text;
  setTimeout(() => (said.textContent = ''), 1500);
}
