// The ledger's table. Python sends the rows once (until `has` says that they are here) and, with every answer, what is known
// of them by now; the table asks again while work goes on. Filtering happens here at once and is told to Python after a
// pause, which writes it into the address. Rows are made when they are first seen and filled again, so that focus stays.
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
const LOOK = { running: 700, away: 4000 };   // ms until the next look
const OPEN_FIRST = 1;   // groups that are unfolded when the page opens
const seen = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector('.ledger');
  let self = seen.get(root);
  if (!self) seen.set(root, (self = begin(root)));
  const { data } = component;
  if (data.rows && data.version !== self.has) take(self, data);
  if (!self.rows) return;
  Object.assign(self, { now: data, trigger: component.setTriggerValue });
  for (const row of self.rows) Object.assign(row, NOTHING, row.first, data.outcomes[row.key]);
  if (!self.timer) self.filter = { ...data.filter };   // while somebody types, what is typed counts
  if (!self.timer && self.search.value !== self.filter.text) self.search.value = self.filter.text;
  draw(self);
  clearTimeout(self.look);
  const soon = data.run ? LOOK.running : data.away ? LOOK.away : 0;
  if (soon) self.look = setTimeout(() => self.root.isConnected && ask(self, 'look'), soon);
}

const NOTHING = { reason: '', recomputed: null, recomputedShown: '', difference: '' };
const ask = (self, what, value = null) => self.trigger('ask', { do: what, value, has: self.has });

/** The rows are new: another language, other files, or the first time. */
function take(self, { rows, groups, words, kinds, lang, version }) {
  Object.assign(self, { rows, names: groups, words, kindIds: kinds, lang, has: version });
  for (const row of rows) row.first = { verdict: row.verdict, reason: row.reason ?? '' };
  if (!self.folded) self.folded = new Set(Object.keys(groups).slice(OPEN_FIRST));
  label(self);
}

const W = (self, key, values = {}) => (self.words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => values[name] ?? '');
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
    open: new Set(), folded: null, drawer: '', rows: null, has: '', timer: 0, look: 0,
  };
  self.search.oninput = () => narrow(self, { text: self.search.value });
  root.onclick = (event) => { const b = event.target.closest('button'); if (b && !b.disabled) press(self, b); };
  self.search.onkeydown = (event) => { if (event.key === 'Escape' && self.search.value) { event.stopPropagation(); self.search.value = ''; narrow(self, { text: '' }); } };
  return self;
}

// ---- what never changes in one language
function label(self) {
  const { root } = self;
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
  self.kinds.replaceChildren(...['', ...self.kindIds].map((name) => {
    const b = el('button', 'chip', name ? W(self, `kind.${name}`) : W(self, 'view.all'));
    b.type = 'button';
    Object.assign(b.dataset, { do: 'kind', value: name });
    return b;
  }));
  const head = ['verdict', 'number', 'stored', 'recomputed', 'apart', 'kind'].map((name) => `<th scope="col" class="${name}" role="columnheader">${W(self, `view.${name}`)}</th>`).join('');
  self.table.setAttribute('role', 'table');
  self.table.innerHTML = `<caption>${W(self, 'title')}</caption><thead role="rowgroup"><tr role="row">${head}<td class="do" role="cell"></td></tr></thead>`;
  self.lines = new Map();
  self.groups = new Map();
  drawer(self, self.drawer);
}

// ---- what the rows say now
function draw(self) {
  const { rows, now, filter } = self, running = new Set(now.run?.now), filtered = Boolean(filter.text.trim() || filter.verdict);
  const shown = rows.filter((row) => fits(row, filter)), here = new Set(shown);
  for (const row of rows) {
    if (!self.groups.has(row.group)) self.table.append(group(self, row.group));
    // A row that differs is seen wherever it stands; a search looks into folded groups.
    const seen = here.has(row) && (filtered || row.verdict === 'differs' || !self.folded.has(row.group));
    if (seen && !self.lines.has(row.key)) insert(self, row);
    const parts = self.lines.get(row.key);
    if (!parts) continue;
    parts.tr.hidden = !seen;
    if (parts.more) parts.more.hidden = !seen || !self.open.has(row.key);
    if (seen) fill(self, parts, row, running.has(row.key));
  }
  const byGroup = (list) => { const found = new Map(); for (const row of list) found.set(row.group, [...(found.get(row.group) ?? []), row]); return found; };
  const all = byGroup(rows), some = byGroup(shown);
  for (const [id, tbody] of self.groups) fillGroup(self, id, tbody, some.get(id) ?? [], all.get(id), filtered);
  above(self, shown);
}

/** In its place among those of its group that are there already. */
function insert(self, row) {
  const parts = line(self, row), group = self.rows.filter((each) => each.group === row.group);
  let before = null;
  for (let at = group.indexOf(row) + 1; at < group.length && !before; at++) before = self.lines.get(group[at].key)?.tr;
  self.groups.get(row.group).insertBefore(parts.tr, before);
  self.lines.set(row.key, parts);
}

function fits(row, filter) {
  if (filter.kind && row.kind !== filter.kind) return false;
  if (filter.verdict && row.verdict !== filter.verdict) return false;
  const said = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  row.searched ??= [row.key, row.says, row.how, row.unit, ...Object.values(row.source ?? {}), ...(row.with ?? []).flat(), row.reference?.where].join(' ').toLowerCase();
  return said.every((word) => row.searched.includes(word));
}

function group(self, id) {
  const tbody = el('tbody'), tr = el('tr', 'group'), th = el('th');
  tbody.setAttribute('role', 'rowgroup');
  tr.setAttribute('role', 'row');
  Object.assign(th, { scope: 'rowgroup', colSpan: 7 });
  th.setAttribute('role', 'rowheader');
  th.innerHTML = `<button type="button" data-do="fold" data-value="${id}" title="${W(self, 'view.fold')}">${icon('open')}<span class="name"></span><span class="tally"></span></button>`;
  th.querySelector('.name').textContent = self.names[id];
  tr.append(th);
  tbody.append(tr);
  self.groups.set(id, tbody);
  return tbody;
}

function fillGroup(self, id, tbody, shown, all, filtered) {
  tbody.hidden = !shown.length;
  tbody.querySelector('.group button').setAttribute('aria-expanded', String(filtered || !self.folded.has(id)));
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
  cells.what.querySelector('code').append(...row.key.split(/(?<=[._])/).flatMap((part) => [part, document.createElement('wbr')]));
  for (const name of ['stored', 'recomputed', 'apart']) cells[name].dataset.label = W(self, `view.${name}`);
  cells.verdict.innerHTML = '<span class="mark"></span>';
  cells.do.innerHTML = `<button type="button" class="again" data-do="again">${icon('again')}</button>`;
  const again = cells.do.firstChild;
  again.dataset.value = row.key;
  again.title = W(self, 'view.recomputeOne', { key: row.key });
  again.setAttribute('aria-label', again.title);
  return { tr, cells, more: null, row: null };
}

function fill(self, parts, row, running) {
  const { tr, cells } = parts, verdict = running ? 'now' : row.verdict, said = JSON.stringify([row, verdict, self.open.has(row.key), Boolean(self.now.run), self.now.away]);
  if (parts.said === said) return;
  Object.assign(parts, { row, said });
  tr.dataset.verdict = row.verdict;
  tr.dataset.key = row.key;
  const shape = cells.verdict.firstChild;
  if (shape.dataset.verdict !== verdict) { shape.dataset.verdict = verdict; shape.innerHTML = `${mark(verdict)}<span>${W(self, `verdict.${verdict}`)}</span>`; }
  put(cells.what.querySelector('.says'), row.says ?? row.key);
  const exact = row.verdict === 'differs' && row.recomputedShown === row.shown;   // what differs must look different
  two(cells.stored, exact ? whole(row.value) : row.shown ?? '–', row.interval ? W(self, 'view.between', { interval: row.interval }) : '');
  two(cells.recomputed, row.recomputed === null ? '' : exact ? whole(row.recomputed) : row.recomputedShown, '');
  two(cells.apart, row.difference, row.tolerance ?? '');
  put(cells.kind, W(self, `kind.${row.kind}`));
  const again = cells.do.firstChild;
  again.hidden = !row.again;
  again.disabled = Boolean(self.now.run) || self.now.away;
  note(cells.what, 'reason', row.reason);
  note(cells.what, 'reference', row.reference ? `${W(self, 'view.reference')} ${row.reference.shown} · ${row.reference.why}` : '');
  cells.what.querySelector('.open').setAttribute('aria-expanded', String(self.open.has(row.key)));
  if (self.open.has(row.key) || parts.more) details(self, parts);
}

function two(cell, first, second) {
  if (!cell.firstChild) cell.append(el('span'), el('small'));
  put(cell.firstChild, first);
  put(cell.lastChild, second);
}

function note(cell, name, text) {
  let node = cell.querySelector(`.${name}`);
  if (text && !node) cell.append((node = el('span', name)));
  if (node) { put(node, text); node.hidden = !text; }
}

const whole = (value) => (Array.isArray(value) ? `[${value.join(', ')}]` : String(value));

function details(self, parts) {
  const { row } = parts;
  if (!parts.more) {
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
  add(W(self, 'view.with'), (row.with ?? []).map(([name, value]) => { const p = el('span', 'pair'); if (name) p.append(el('span', 'muted', `${name} `)); p.append(value); return p; }));
  add(W(self, 'view.samples'), row.n ? row.n.toLocaleString('en') : '');
  add(W(self, 'view.interval'), row.interval);
  if (row.value !== undefined) add(W(self, 'view.exactly'), `${whole(row.value)} ${row.unit ?? ''}`, 'code');
  if (row.recomputed !== null) add(W(self, 'view.recomputed'), `${whole(row.recomputed)} ${row.unit ?? ''}`, 'code');
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
  const { rows, now, filter } = self, count = (test) => rows.filter(test).length;
  const filtered = Boolean(filter.text.trim() || filter.kind || filter.verdict);
  for (const b of self.counts.children) {
    const n = count((row) => row.verdict === b.dataset.value);
    put(b.querySelector('b'), n.toLocaleString('en'));
    b.setAttribute('aria-pressed', String(filter.verdict === b.dataset.value));
    b.classList.toggle('nothing', !n);
  }
  for (const b of self.kinds.children) b.setAttribute('aria-pressed', String(filter.kind === b.dataset.value));
  const numbers = Object.fromEntries([...self.kindIds.map((k) => [k, count((r) => r.kind === k)]), ...JUDGED.map((v) => [v, count((r) => r.verdict === v)])].map(([name, n]) => [name, n.toLocaleString('en')]));
  const some = filtered ? (shown.length ? W(self, 'view.some', { n: shown.length.toLocaleString('en') }) : W(self, 'view.none')) : '';
  self.summary.setAttribute('aria-live', now.run ? 'off' : 'polite');   // a run is told by its bar, and in one sentence when it is over
  if (self.ran && !now.run) self.summary.textContent = '';
  self.ran = Boolean(now.run);
  put(self.summary, `${W(self, 'view.summary', { total: rows.length.toLocaleString('en'), ...numbers })}${self.lang === 'zh' ? '' : ' '}${some}`.trim());
  const can = shown.filter((row) => row.again);
  const button = (id, text, more = '') => `<button type="button" data-do="${id}" ${more}>${text}</button>`;
  const html = (filtered ? button('clear', W(self, 'view.clear'), 'class="quiet"') : '')
    + (now.run ? button('cancel', W(self, 'view.cancel'), 'class="main"')
      : button('all', W(self, !can.length ? 'view.recomputeNone' : filtered ? 'view.recomputeThese' : 'view.recomputeAll', { n: can.length }), `class="main" ${can.length && !now.away ? '' : 'disabled'}`));
  if (self.actions.dataset.html !== html) {
    const focused = self.actions.contains(self.root.getRootNode().activeElement);
    self.actions.dataset.html = html;
    self.actions.innerHTML = html;
    if (focused) self.actions.lastElementChild.focus();
  }
  self.progress.hidden = !now.run;
  self.progress.firstElementChild.setAttribute('aria-label', W(self, 'title'));
  if (now.run) {
    const running = now.run.now.length, done = now.run.done + Math.floor(now.run.fraction * running);
    self.progress.firstElementChild.value = (now.run.done + now.run.fraction * running) / Math.max(1, now.run.total);
    put(self.progress.lastElementChild, W(self, 'view.running', { done, total: now.run.total, key: now.run.now[0] ?? '' }));
  }
  self.away.hidden = !now.away;
  put(self.away, now.away ? W(self, 'view.away') : '');
  const complaints = now.complaints.join('\n');
  if (self.complaints.dataset.said !== complaints) {
    self.complaints.dataset.said = complaints;
    self.complaints.replaceChildren(...now.complaints.map((text) => { const p = el('p', '', text); p.setAttribute('role', 'alert'); return p; }));
  }
}

// ---- what is pressed
function press(self, b) {
  const { do: what, value } = b.dataset, { filter } = self;
  const flip = (set) => (set.has(value) ? set.delete(value) : set.add(value));
  const here = () => self.rows.filter((row) => fits(row, filter));
  const taken = () => here().map((row) => Object.fromEntries(EXPORTED.map((name) => [name, name === 'with' ? Object.fromEntries(row.with ?? []) : row[name] ?? null])));
  const does = {
    open: () => { flip(self.open); draw(self); },
    fold: () => { flip(self.folded); draw(self); },
    verdict: () => narrow(self, { verdict: filter.verdict === value ? '' : value }, 0),
    kind: () => narrow(self, { kind: value }, 0),
    clear: () => { self.search.value = ''; narrow(self, { text: '', kind: '', verdict: '' }, 0); },
    again: () => ask(self, 'recompute', [value]),
    all: () => ask(self, 'recompute', here().filter((row) => row.again).map((row) => row.key)),
    cancel: () => ask(self, 'cancel'),
    reset: () => { self.open.clear(); self.folded = new Set(Object.keys(self.names).slice(OPEN_FIRST)); clearTimeout(self.timer); self.timer = 0; ask(self, 'reset'); },
    link: () => copy(location.href).then(() => say(self, W(self, 'view.copied'))),
    data: () => drawer(self, self.drawer === what ? '' : what),
    help: () => drawer(self, self.drawer === what ? '' : what),
    csv: () => save('ledger.csv', 'text/csv', '\ufeff' + csv(taken())),
    json: () => save('ledger.json', 'application/json', JSON.stringify(taken(), null, 1)),
  };
  does[what]();
}

function narrow(self, change, pause = PAUSE) {
  Object.assign(self.filter, change);
  clearTimeout(self.timer);
  self.timer = setTimeout(() => { self.timer = 0; ask(self, 'filter', { ...self.filter, text: self.filter.text.trim() }); }, pause);
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
