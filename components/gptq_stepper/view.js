// Above, one row on its grid: what was rounded, what is left over, how far that moves the others. Below, all rows, and the output error.
export const rate = 1.2;

const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const path = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const strong = 'font-weight="650"';
const signed = (x, n = 2) => `${x < 0 ? '−' : '+'}${Math.abs(x).toFixed(n)}`;
const minus = (x) => String(x).replace('-', '−');
const percent = (x) => (100 * x).toFixed(x >= 0.0995 ? 1 : 2);

const ARC = 58, FOOT = 40, CELL = 25, CHART = 170;

function plan(data, width, tools) {
  const wide = width >= 760, low = Math.min(...data.stands.flatMap((s) => s[data.row]), -data.levels), high = Math.max(...data.stands.flatMap((s) => s[data.row]), data.levels);
  const left = wide ? 64 : 40, column = (width - left) / data.columns.length;
  const tall = wide ? 250 : 230, top = 34 + ARC, bottom = top + tall, legend = bottom + FOOT + 20;
  const lines = layout(width, tools).lines, below = legend + lines * 24 + 14, gap = 56;
  const panel = wide ? (width - gap) / 2 : width, cells = 56 + data.rows.length * CELL + 28, chart = 40 + CHART + 48;
  return { wide, low: low - 0.45, high: high + 0.45, left, column, tall, top, bottom, legend, below, gap, panel, cells, height: below + (wide ? Math.max(cells, chart) : cells + 22 + chart) };
}

// t = 0: nothing; 2k − 1: column k is rounded; 2k: the others have made up for it.
function at(data, t) {
  const k = Math.ceil(t / 2), rounding = t % 2 === 1, stand = (rounding ? data.stands[k - 1] : data.stands[k]).map((row) => [...row]);
  if (rounding) stand.forEach((row, i) => { row[k - 1] = data.stands[k][i][k - 1]; });
  return { k, rounding, spreading: t > 0 && !rounding, stand, last: data.stands[Math.max(0, k - 1)] };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), now = at(data, t);
  svg.innerHTML = defs(tools.colour) + one(data, now, p, tools) + legend(p, tools) + all(data, now, p, tools) + chart(data, t, p, tools);
  svg.onclick = (event) => { const row = event.target.dataset?.row; if (row) tools.pick('row', +row); };
}

export function says(data, t, tools) {
  const { k, rounding, last } = at(data, t), row = data.rows[data.row], i = data.row, name = { matrix: data.matrix, row, k, channel: data.columns[k - 1], gptq: percent(data.errors[t]), rtn: percent(data.plain_errors[t]) };
  if (!t) return tools.words('says_start', name);
  const before = last[i][k - 1], level = Math.round(data.stands[k][i][k - 1]);
  if (rounding) return tools.words('says_round', { ...name, before: minus(before.toFixed(2)), level: minus(level), error: signed(level - before) });
  const moves = data.columns.map((_, j) => (j >= k ? data.stands[k][i][j] - last[i][j] : 0)), most = moves.reduce((a, v, j) => (Math.abs(v) > Math.abs(moves[a]) ? j : a), 0);
  if (!moves[most]) return tools.words('says_none', name);
  return tools.words('says_spread', { ...name, most: data.columns[most], amount: signed(moves[most]), was: percent(data.errors[t - 1]) });
}

function defs(c) {
  return `<defs><marker id="gptq-end" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 0L8 4L0 8Z" fill="${c('residual')}"/></marker>
    <pattern id="gptq-error" width="5" height="5" patternUnits="userSpaceOnUse"><path d="M0 5L5 0M-1 1L1 -1M4 6L6 4" stroke="${c('rejected')}" stroke-width="1.5"/></pattern></defs>`;
}

// ---- one row

function one(data, now, p, tools) {
  const c = tools.colour, W = tools.width, i = data.row, n = data.columns.length, words = tools.words;
  const X = (j) => p.left + (j + 0.5) * p.column, Y = (v) => p.bottom - ((v - p.low) / (p.high - p.low)) * (p.tall - 18);   // amounts stand above
  const halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`, size = p.wide ? 11 : 9;
  let out = text(0, 18, words('row', { matrix: data.matrix, row: data.rows[i] }), `style="font-size:16px" ${strong}`);
  if (now.k) out += text(W, 18, words('turn', { k: now.k, n }), 'class="muted" text-anchor="end"');
  if (now.k) out += rect(p.left + (now.k - 1) * p.column, p.top - 2, p.column, p.tall + FOOT, c('panel')) + rect(p.left + (now.k - 1) * p.column, p.bottom + FOOT - 4, p.column, 2, c('ink'));
  const every = data.levels > 4 && p.tall / (2 * data.levels + 1) < 18 ? 2 : 1;
  for (let v = -data.levels; v <= data.levels; v++) {
    out += rect(p.left, Y(v) - 0.5, W - p.left, 1, c(v ? 'hairline' : 'ghost'));
    if (v % every === 0 || v === 0) out += text(p.left - 8, Y(v) + 4.5, minus(v), 'class="small figure muted" text-anchor="end"');
  }
  out += text(0, p.bottom + 19, words('channel'), `class="small muted" ${p.wide ? '' : 'display="none"'}`);
  data.columns.forEach((channel, j) => {
    const x = X(j), came = data.stands[0][i][j], stood = now.last[i][j], value = now.stand[i][j], done = j < now.k, current = j === now.k - 1, moved = Math.abs((done ? data.stands[j][i][j] : value) - came) > 0.004;
    if (p.column > 24) out += text(x, p.bottom + (p.wide ? 19 : 17 + 15 * (j % 2)), channel, `class="small figure ${current ? '' : 'muted'}" text-anchor="middle" ${current ? strong : ''}`);
    const reached = done ? data.stands[j][i][j] : value;   // where it stood when its turn came, or stands now
    if (moved) out += path(`M${r(x)} ${r(Y(came))}V${r(Y(reached))}`, c('residual'), `stroke-width="1.5" ${done ? 'stroke-opacity=".55"' : ''}`);
    if (done && Math.abs(reached - value) > 0.004) {
      const [a, b] = [Y(reached), Y(value)];
      out += current ? rect(x - 4, Math.min(a, b), 8, Math.abs(a - b), 'url(#gptq-error)') + rect(x - 4, Math.min(a, b), 8, Math.abs(a - b), 'none', `stroke="${c('rejected')}"`) : path(`M${r(x)} ${r(a)}V${r(b)}`, c('rejected'), 'stroke-width="1.5" stroke-opacity=".6"');
    }
    const near = Y(data.plain[i][j]), s = size / 2 + 2.5;
    if (done) out += rect(x - size / 2, Y(value) - size / 2, size, size, c('weights'), 'rx="1"');
    if (done && Math.round(value) !== data.plain[i][j]) out += path(`M${r(x - s)} ${r(near - s)}L${r(x + s)} ${r(near + s)}M${r(x - s)} ${r(near + s)}L${r(x + s)} ${r(near - s)}`, c('muted'), 'stroke-width="1.8"');
    out += `<circle cx="${r(x)}" cy="${r(Y(came))}" r="4.5" fill="${c('paper')}" stroke="${c('weights')}" stroke-width="1.6" ${done ? 'stroke-opacity=".75"' : ''}/>`;
    if (!done && !(now.spreading && Math.abs(value - stood) > 0.02)) out += moved ? `<circle cx="${r(x)}" cy="${r(Y(value))}" r="4.5" fill="${c('residual')}"/>` : `<circle cx="${r(x)}" cy="${r(Y(came))}" r="2" fill="${c('weights')}"/>`;
    if (done && moved && !current) out += `<circle cx="${r(x)}" cy="${r(Y(reached))}" r="2.5" fill="${c('residual')}"/>`;
    if (current && Math.abs(value - reached) > 0.004) out += text(Math.min(x, W - 20), p.top + 10, signed(value - reached), `class="small figure" ${strong} text-anchor="middle" style="fill:${c('rejected')};${halo}"`);
  });
  return out + (now.spreading ? spread(data, now, p, tools, X, Y, halo) : '') + text(0, p.top - 12, words('axis'), 'class="small muted"');
}

function spread(data, now, p, tools, X, Y, halo) {
  const c = tools.colour, i = data.row, from = X(now.k - 1), base = p.top - 4;
  const moves = data.columns.map((_, j) => (j >= now.k ? now.stand[i][j] - now.last[i][j] : 0)), most = Math.max(0.02, ...moves.map(Math.abs));
  let out = '';
  moves.forEach((move, j) => {
    if (Math.abs(move) < 0.005) return;
    const x = X(j), share = Math.abs(move) / most, deep = Math.min(ARC - 14, 12 + (j - now.k + 1) * 5), a = Y(now.last[i][j]), b = Y(now.stand[i][j]), far = Math.abs(a - b) > 9;
    out += path(`M${r(from)} ${base}C${r(from)} ${base - deep * 1.3} ${r(x)} ${base - deep * 1.3} ${r(x)} ${base}`, c('residual'), `stroke-width="${r(0.6 + 3.4 * share)}" stroke-opacity="${r(0.3 + 0.6 * share)}"`);
    if (far) out += path(`M${r(x)} ${r(a)}V${r(b)}`, c('residual'), 'stroke-width="2.6" marker-end="url(#gptq-end)"');
    else if (Math.abs(move) > 0.02) out += `<circle cx="${r(x)}" cy="${r(b)}" r="4.5" fill="${c('residual')}"/>`;
    if (p.wide || share > 0.999) out += text(x, base + 14, signed(move), `class="small figure" text-anchor="middle" style="fill:${c('residual')};${halo}" ${share > 0.5 ? strong : ''}`);
  });
  return out;
}

// ---- what the marks are

function marks(c) {
  return [
    ['came', `<circle cx="6" cy="-5" r="4.5" fill="none" stroke="${c('weights')}" stroke-width="1.6"/>`], ['moved', `<path d="M6 2V-11" stroke="${c('residual')}" stroke-width="2"/><circle cx="6" cy="-10" r="4" fill="${c('residual')}"/>`],
    ['error', `<rect x="2" y="-12" width="8" height="13" fill="url(#gptq-error)" stroke="${c('rejected')}"/>`], ['level', `<rect x="1" y="-10" width="11" height="11" rx="1" fill="${c('weights')}"/>`],
    ['nearest', `<path d="M1 -10l10 10m0 -10l-10 10" stroke="${c('muted')}" stroke-width="1.8"/>`],
  ];
}

function layout(width, tools) {
  let x = 0, lines = 1;
  const placed = marks(tools.colour).map(([name, mark]) => {
    const said = tools.words(name), w = 20 + tools.measure(said, 13) * 1.05 + 22;
    if (x + w > width + 20) { x = 0; lines++; }
    const box = { said, mark, x, line: lines - 1 };
    x += w;
    return box;
  });
  return { placed, lines };
}

function legend(p, tools) {
  return layout(tools.width, tools).placed.map((b) => `<g transform="translate(${r(b.x)} ${p.legend + 12 + 24 * b.line})">${b.mark}${text(20, 0, b.said, 'class="small muted"')}</g>`).join('');
}

// ---- all rows

function all(data, now, p, tools) {
  const c = tools.colour, y0 = p.below + 20, left = 52, cw = (p.panel - left) / data.columns.length, top = y0 + 34;
  const most = Math.max(1, ...data.stands.flatMap((stand) => stand.flatMap((row, i) => row.map((v, j) => Math.abs(v - data.stands[0][i][j])))));
  let out = rect(0, p.below - 4, p.wide ? p.panel : tools.width, 1, c('hairline')) + text(0, y0 + 6, tools.words('matrix'), strong);
  data.rows.forEach((row, i) => {
    const y = top + i * CELL, own = i === data.row;
    out += text(left - 10, y + 17, row, `class="small figure ${own ? '' : 'muted'}" text-anchor="end" ${own ? strong : ''}`);
    data.columns.forEach((_, j) => {
      const x = left + j * cw, done = j < now.k, current = j === now.k - 1, move = now.stand[i][j] - data.stands[0][i][j], tall = (Math.abs(move) / most) * (CELL / 2 - 2), mid = y + CELL / 2;
      out += rect(x + 1, y + 1, cw - 2, CELL - 2, c('free'));
      if (Math.abs(move) > 0.004) out += rect(x + 1, y + 1, cw - 2, CELL - 2, c(done ? 'weights' : 'residual'), `fill-opacity="${r(0.08 + 0.4 * (Math.abs(move) / most))}"`) + rect(x + cw * 0.28, move > 0 ? mid - tall : mid, cw * 0.44, Math.max(1, tall), c(done ? 'weights' : 'residual'));
      out += rect(x + 1, mid - 0.5, cw - 2, 1, c('paper'));
      if (current) out += rect(x + 0.75, y + 0.75, cw - 1.5, CELL - 1.5, 'none', `stroke="${c('ink')}" stroke-width="1.2"`);
    });
    if (own) out += rect(left - 1, y - 1, p.panel - left + 2, CELL + 2, 'none', `stroke="${c('accent')}" stroke-width="1.6" rx="2"`);
    out += rect(0, y, p.panel, CELL, 'transparent', `data-row="${i + 1}" style="cursor:pointer"`);
  });
  return out + text(left, top + data.rows.length * CELL + 19, tools.words('pick'), 'class="small muted"');
}

// ---- the output error

function chart(data, t, p, tools) {
  const c = tools.colour, x0 = p.wide ? p.panel + p.gap : 0, y0 = p.wide ? p.below : p.below + p.cells + 22, n = data.columns.length, last = data.errors.length - 1;
  const most = Math.max(...data.errors, ...data.plain_errors), left = x0 + 48, right = x0 + p.panel - (p.wide ? 128 : 12), top = y0 + 44, bottom = top + CHART;
  const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find((s) => most / s <= 5) ?? 1;
  const X = (s) => left + (Math.min(s / 2, n) / n) * (right - left), Y = (v) => bottom - (v / most) * CHART;
  const halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
  let out = rect(x0, y0 - 4, p.panel, 1, c('hairline')) + text(x0, y0 + 26, tools.words('chart'), strong);
  for (let v = 0; v <= most * 1.001; v += step) out += rect(left, Y(v), right - left, 1, c(v ? 'grid' : 'muted'), v ? '' : 'fill-opacity=".6"') + text(left - 8, Y(v) + 4.5, `${r(100 * v)}%`, 'class="small figure muted" text-anchor="end"');
  for (let k = 0; k <= n; k += 2) out += text(left + (k / n) * (right - left), bottom + 19, k, 'class="small figure muted" text-anchor="middle"');
  out += text(right, bottom + 38, tools.words('columns'), 'class="small muted" text-anchor="end"');
  const line = (values, upto) => values.slice(0, upto + 1).map((v, s) => `${s ? 'L' : 'M'}${r(X(s === last ? 2 * n : s))} ${r(Y(v))}`).join('');
  out += path(line(data.plain_errors, last), c('ghost'), 'stroke-width="1" stroke-dasharray="2 3"') + path(line(data.errors, last), c('ghost'), 'stroke-width="1" stroke-dasharray="2 3"');
  out += path(line(data.plain_errors, t), c('muted'), 'stroke-width="2" stroke-dasharray="6 3"') + path(line(data.errors, t), c('weights'), 'stroke-width="2.4" stroke-linejoin="round"');
  const ends = [[data.plain_errors[t], 'muted', tools.words('rounding')], [data.errors[t], 'weights', 'GPTQ']], at = X(t === last ? 2 * n : t);
  const gap = 18, apart = Y(ends[1][0]) - Y(ends[0][0]), mid = (Y(ends[0][0]) + Y(ends[1][0])) / 2, near = Math.abs(apart) < gap;
  ends.forEach(([v, tone, name], i) => {
    const above = (i === 0) === (apart >= 0), y = near ? mid + (above ? -gap / 2 : gap / 2) : Y(v), flip = !p.wide && at > x0 + p.panel * 0.6;
    out += `<circle cx="${r(at)}" cy="${r(Y(v))}" r="4.5" fill="${c(tone)}"/>`;
    if (t) out += text(at + (flip ? -10 : 10), Math.min(y, bottom - 6) + (flip ? (above ? -8 : 26) : 5), `${name} ${percent(v)}%`, `class="small figure" text-anchor="${flip ? 'end' : 'start'}" style="fill:${c(tone)};${halo}" ${strong}`);
  });
  return out;
}
