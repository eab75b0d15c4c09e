// A row of weights over the grid points of its blocks, its errors; under them the codes of the whole matrix and a map of its errors.
const HEAD = 26, ROW = 210, ERRORS = 70, FOOT = 44, SMALL = 190, WIDE = 720, GAP = 48, LINES = 2.5, TONES = 24;

const NOTICE = 21;

function notice(data, width, tools) { return data.waiting ? tools.wrap(tools.words('waiting'), 14, width - 14) : []; }

function plan(width) {
  const two = width >= WIDE, panel = two ? (width - GAP) / 2 : width, below = HEAD + ROW + 18 + ERRORS + FOOT + 14, small = HEAD + SMALL + FOOT;
  return { two, panel, below, height: below + (two ? small : 2 * small + 16) };
}

export function height(data, width, tools) { return plan(width).height + above(notice(data, width, tools)); }

const above = (lines) => (lines.length ? NOTICE * lines.length + 16 : 0);

export function draw(svg, data, t, tools) {
  const p = plan(tools.width), x = p.two ? p.panel + GAP : 0, y = p.two ? p.below : p.below + HEAD + SMALL + FOOT + 16;
  const lines = notice(data, tools.width, tools), said = lines.map((line, i) => text(12, 16 + NOTICE * i, tools.esc(line))).join('');
  const mark = lines.length ? `<rect x="0" y="0" width="3" height="${NOTICE * lines.length + 2}" fill="${tools.colour('accent')}"/>` : '';
  svg.innerHTML = `${mark}${said}<g transform="translate(0 ${above(lines)})">` + row(data, reach(data), tools) + codes(data, { x: 0, y: p.below, w: p.panel }, tools) + map(data, { x, y, w: p.panel }, tools) + '</g>';
  svg.onclick = (event) => {   // a line of the map stands for its worst row
    const box = event.target.closest('.map')?.getBoundingClientRect(), n = data.worst.length;
    if (box) tools.pick('row', data.worst[Math.min(n - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * n)))]);
  };
}

const r = (x) => Math.round(x * 10) / 10;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const path = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const short = (v) => (v < 0 ? '−' : '') + String(+Math.abs(v).toPrecision(2));
const percent = (v) => `${+(v * 100).toPrecision(3)}%`;
const head = (x, y, said, tools) => text(x, y + 13, tools.esc(said), 'font-weight="650"');
const steps = (most) => { const raw = most / 2.2, ten = 10 ** Math.floor(Math.log10(raw)); return [1, 2, 5, 10].map((k) => k * ten).find((k) => k >= raw); };

// How far weights and errors go; the errors of the state before count, as they are drawn too.
function reach(data) {
  const most = (...lists) => Math.max(1e-9, ...lists.flat().map(Math.abs)), errors = data.restored.map((v, i) => v - data.weights[i]);
  return { weight: most(data.weights, data.restored) * 1.06, errors, error: most(errors, data.old ?? []) };
}

function row(data, far, tools) {
  const c = tools.colour, W = tools.width, n = data.weights.length, top = HEAD, middle = top + ROW / 2, most = far.weight, LEFT = 12 + Math.max(...[-far.error, -steps(most)].map((v) => tools.measure(short(v), 13, 'figures')));
  const X = (i) => LEFT + ((i + 0.5) / n) * (W - LEFT), Y = (v) => middle - (v / most) * (ROW / 2), size = Math.max(2, Math.min(4.5, (W / n) * 2.4));
  const whole = tools.words('row', data.says), title = tools.measure(whole, 15.5) > W ? tools.words('row', { ...data.says, part: '' }) : whole;   // how much is drawn is said below, too
  let out = head(0, 0, title, tools) + lattice(data, X, Y, most, tools);
  const zero = data.weights.map((w, i) => w !== 0 && data.restored[i] === 0), dots = (of) => data.weights.map((w, i) => (of(i) ? `M${r(X(i))} ${r(Y(w))}h0` : '')).join('');
  out += path(dots((i) => !zero[i]), c('weights'), `stroke-width="${r(size)}" stroke-linecap="round"`) + path(dots((i) => zero[i]), c('rejected'), `stroke-width="${r(size)}" stroke-linecap="round"`);
  for (let v = -steps(most) * 3, s = steps(most); v <= most; v += s) if (v >= -most) out += text(LEFT - 8, Y(v) + 4.5, Math.abs(v) < s / 2 ? 0 : short(v), 'class="small figure muted" text-anchor="end"');
  const said = tools.words('zeroed', { n: tools.number(data.zeroed) }), tight = tools.measure(title, 15.5) + tools.measure(said, 14) + 12 > W;
  if (data.zeroed) out += text(W, tight ? top + 7 : 13, said, `class="small" text-anchor="end" font-weight="650" style="fill:${c('rejected')};paint-order:stroke;stroke:${c('paper')};stroke-width:4px"`);
  return out + errors(data, far, X, LEFT, top + ROW + 18, tools);
}

// The points of every block: lines, or a band where they would touch.
function lattice(data, X, Y, most, tools) {
  const c = tools.colour, half = (X(1) - X(0)) / 2 || 1;
  let fine = '', lines = '', between = '';
  for (const [start, end, low, step] of data.blocks) {
    const left = X(start) - half, right = X(end - 1) + half, high = low + step * (data.levels - 1), gap = Math.abs(Y(step) - Y(0));
    if (start) between += `M${r(left)} ${r(Y(most))}V${r(Y(-most))}`;
    if (gap < LINES) fine += `M${r(left)} ${r(Y(Math.min(most, high)))}H${r(right)}V${r(Y(Math.max(-most, low)))}H${r(left)}Z`;
    else for (let i = 0; i < data.levels; i++) { const v = low + i * step; if (Math.abs(v) <= most) lines += `M${r(left)} ${r(Y(v))}H${r(right)}`; }
  }
  return path(between, c('hairline')) + `<path d="${fine}" fill="${c('muted')}" fill-opacity=".2"/>` + path(lines, c('muted'), 'stroke-opacity=".55" stroke-width=".8"');
}

function errors(data, far, X, LEFT, top, tools) {
  const c = tools.colour, W = tools.width, most = far.error * 1.05;
  const middle = top + ERRORS / 2, Y = (v) => middle - (v / most) * (ERRORS / 2), wide = Math.max(0.7, (X(1) - X(0)) * 0.62), bars = (values) => values.map((v, i) => (v ? `M${r(X(i))} ${r(middle)}V${r(Y(v))}` : '')).join('');
  let out = path(`M${LEFT} ${r(middle)}H${W}`, c('hairline'));
  if (data.old) out += path(bars(data.old), c('ghost'), `stroke-width="${r(Math.max(0.7, wide * 0.8))}" stroke-opacity=".55"`);
  out += path(bars(far.errors), c('rejected'), `stroke-width="${r(wide)}" stroke-opacity=".85"`);
  for (const v of [-far.error, far.error]) out += text(LEFT - 8, Y(v) + (v > 0 ? 10 : 0), short(v), 'class="small figure muted" text-anchor="end"');
  const n = data.weights.length, step = [8, 16, 32, 64, 128, 256].find((s) => (s / n) * (W - LEFT) > 56) ?? 512, foot = top + ERRORS + 17;
  for (let i = 0; i < n; i += step) out += text(X(i), foot, tools.number(i), `class="small figure muted" text-anchor="${i ? 'middle' : 'start'}"`);
  const named = LEFT + tools.measure(tools.words('error'), 13) * 1.08;
  if (data.old) out += `<rect x="${r(named + 14)}" y="${r(foot + 8)}" width="10" height="10" fill="${c('ghost')}"/>` + text(named + 29, foot + 18, tools.words('before'), 'class="small muted"');
  return out + text(LEFT, foot + 18, tools.words('error'), `class="small" style="fill:${c('rejected')};font-weight:600"`) + text(W, foot + 18, tools.words('column'), 'class="small" text-anchor="end"');
}

// ---- the whole matrix

function codes(data, { x, y, w }, tools) {
  const c = tools.colour, { first, shares, old, zero } = data.codes, n = shares.length, left = x + 46, room = w - 46, top = y + HEAD, foot = top + SMALL, most = Math.max(...shares, ...(old ?? [])) * 1.1, step = steps(most);
  const X = (i) => left + (i / n) * room, Y = (v) => foot - (v / most) * SMALL, gap = room / n > 6 ? 1.5 : 0;
  let out = head(x, y, tools.words('codes'), tools), marks = '', ghost = '';
  for (let v = 0; v <= most; v += step) out += path(`M${left} ${r(Y(v))}H${r(x + w)}`, c(v ? 'grid' : 'muted')) + text(left - 8, Y(v) + 4.5, percent(v), 'class="small figure muted" text-anchor="end"');
  const bar = (i, v) => `M${r(X(i) + gap)} ${foot}V${r(Y(v))}H${r(X(i + 1) - gap)}V${foot}Z`;
  shares.forEach((v, i) => { if (i + first !== zero) marks += bar(i, v); });
  out += `<path d="${marks}" fill="${c('weights')}"/>`;
  if (zero !== null) out += `<path d="${bar(zero - first, shares[zero - first])}" fill="${c('rejected')}"/>`;
  if (old) { old.forEach((v, i) => { ghost += `M${r(X(i) + gap)} ${foot}V${r(Y(v))}H${r(X(i + 1) - gap)}V${foot}`; }); out += path(ghost, c('ghost'), `stroke-width="${gap ? 1.5 : 0.8}"`); }
  if (zero !== null) {
    const at = (X(zero - first) + X(zero - first + 1)) / 2, high = Y(shares[zero - first]);
    out += text(Math.max(at, high > top + 20 ? 0 : at + 14), Math.max(high - 7, top + 12), tools.words('zero', data.says), `class="small" text-anchor="${high > top + 20 ? 'middle' : 'start'}" style="fill:${c('rejected')};font-weight:650;paint-order:stroke;stroke:${c('paper')};stroke-width:4px"`);
  }
  const stride = [1, 2, 4, 8, 16, 32, 64].find((k) => (k * room) / n > 30), from = zero ?? first;
  shares.forEach((_, i) => { if ((i + first - from) % stride === 0) out += text((X(i) + X(i + 1)) / 2, foot + 17, short(i + first), 'class="small figure muted" text-anchor="middle"'); });
  return out + text(left, foot + 36, tools.words('code'), 'class="small"');
}

// Cells by the darkness of their error: one path a tone. Twice the usual error is dark at least, so that an even map looks even.
function map(data, { x, y, w }, tools) {
  const c = tools.colour, up = data.errors.length, across = data.errors[0].length, top = y + HEAD, side = tools.measure(tools.words('here', data.says), 13) * 1.06 + 20, room = Math.floor(w - side);
  const all = data.errors.flat().sort((a, b) => a - b), most = Math.max(2 * all[all.length >> 1], all.at(-1), 1e-6), levels = Array.from({ length: TONES }, () => '');
  const X = (i) => Math.round(x + (i / across) * room), Y = (j) => Math.round(top + (j / up) * SMALL);
  data.errors.forEach((line, j) => line.forEach((v, i) => { levels[Math.min(TONES - 1, Math.floor((v / most) * TONES))] += `M${X(i)} ${Y(j)}H${X(i + 1)}V${Y(j + 1)}H${X(i)}Z`; }));
  const fill = (k) => `fill="${c('rejected')}" fill-opacity="${((k + 0.5) / TONES).toFixed(3)}" shape-rendering="crispEdges"`;
  let out = head(x, y, tools.words('map'), tools) + levels.map((d, k) => `<path d="${d}" ${fill(k)}/>`).join('');
  out += `<rect class="map" x="${r(x)}" y="${r(top)}" width="${room}" height="${SMALL}" fill="transparent" stroke="${c('hairline')}" style="cursor:pointer"><title>${tools.words('choose')}</title></rect>`;
  const at = top + data.place * SMALL, key = top + SMALL + 10, long = Math.min(room, 260), step = steps(most);
  out += `<path d="M${r(x + room + 2)} ${r(at)}l8 -5v10z" fill="${c('ink')}"/>` + text(x + room + 14, Math.min(Math.max(at + 4.5, top + 10), top + SMALL), tools.words('here', data.says), 'class="small" font-weight="600"');
  for (let k = 0; k < TONES; k++) out += `<path d="M${Math.round(x + (k / TONES) * long)} ${r(key)}H${Math.round(x + ((k + 1) / TONES) * long)}v8H${Math.round(x + (k / TONES) * long)}z" ${fill(k)}/>`;
  for (let v = 0; v <= most * 1.0001; v += step) out += text(x + (v / most) * long, key + 25, percent(v), `class="small figure muted" text-anchor="${v ? 'middle' : 'start'}"`);
  return out + text(x + long + 12, key + 9, tools.words('scale'), 'class="small muted"');
}
