// Above, a group of bars for each draft: tokens per forward, two predictions, the clock. Below, the clock for every cell,
// and what a forward costs by its width.
const TITLE = 34, BAR = 17, GAP = 22, AXIS = 30, CELL = 34;
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const three = (x) => (x >= 9.995 ? x.toFixed(1) : x >= 0.0995 ? x.toFixed(2) : x.toPrecision(2));
const strong = 'font-weight="650"';

function plan(data, width, tools) {
  const wide = width >= 720, group = 4 * BAR + GAP + (wide ? 0 : 20), top = TITLE + data.rows.length * group + AXIS;
  const table = TITLE + 24 + data.table.length * CELL + 34, lines = data.forwards.length ? 240 : 0;
  return { wide, group, top, table, lines, height: top + 18 + (wide ? Math.max(table, lines) : table + (lines && lines + 12)) + 6 };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), W = tools.width, half = p.wide ? (W - 56) / 2 : W, y = p.top + 18;
  svg.innerHTML = defs(tools.colour) + bars(data, p, tools) + table(data, 0, y, data.forwards.length ? half : W, tools)
    + (data.forwards.length ? forwards(data, p.wide ? half + 56 : 0, p.wide ? y : y + p.table + 12, half, tools) : '');
}

export function says(data, t, tools) {
  const show = (x) => (x === null ? '–' : three(x));
  return tools.words('says', { k: data.k, rows: data.rows.map((row) => tools.words('says_row', { draft: row.draft, tokens: show(row.tokens), parameters: show(row.parameters), time: show(row.time), speedup: show(row.speedup) })).join('') });
}

function defs(c) {
  return `<defs><pattern id="dc-no" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${c('rejected')}" fill-opacity=".25"/><path d="M0 6L6 0" stroke="${c('rejected')}" stroke-width="1.6"/></pattern></defs>`;
}

// ---- three kinds of number

function bars(data, p, tools) {
  const c = tools.colour, W = tools.width, words = tools.words;
  const names = Math.max(...data.rows.map((row) => tools.measure(row.draft, 15))) + 22, left = p.wide ? names : 0;
  const longest = Math.max(...['parameters', 'time', 'measured', 'now'].map((key) => tools.measure(words(key), 13)), tools.measure(words('tokens') + (data.rows.every((row) => row.ran) ? '' : words('formula')), 13)) * 1.05 + 60;
  const most = Math.max(1.2, ...data.rows.flatMap((row) => [row.tokens, row.parameters, row.time, row.speedup, row.ghost].filter((x) => x !== null && x !== undefined)));
  const X = (v) => left + (v / most) * (W - left - longest), end = TITLE + data.rows.length * p.group;
  let out = text(0, 16, words('title', { k: data.k }), strong);
  out += rect(left, TITLE, X(1) - left, end - TITLE - 8, c('rejected'), 'fill-opacity=".06"') + `<path d="M${r(X(1))} ${TITLE - 4}V${end - 4}" stroke="${c('ink')}" stroke-width="1.2" stroke-dasharray="5 4"/>`;
  out += text(X(1), end + 13, words('even'), `class="small" text-anchor="${X(1) < 90 ? 'start' : 'middle'}"`);
  data.rows.forEach((row, n) => {
    let y = TITLE + n * p.group + (p.wide ? 4 : 22);
    const ground = (at, said, size = 13, top = y + 1) => { const w = tools.measure(said, size) * 1.08 + 8; return at - 4 < X(1) && X(1) < at + w ? rect(at - 4, top, w + 8, size + 1, c('paper')) : ''; };   // words do not stand on the line at ×1
    out += (p.wide ? '' : ground(0, row.draft, 15, y - 20)) + text(0, p.wide ? y + 2 * BAR : y - 6, tools.esc(row.draft), `style="font-size:15px" ${row.chosen ? strong : ''}`);
    const label = (x, key, value, tone, bold) => ground(Math.min(X(value), W) + 8, `${x} ${key}`) + text(Math.min(X(value), W) + 8, y + BAR - 5, `<tspan class="figure" ${bold ? strong : ''}>${x}</tspan><tspan dx="7">${key}</tspan>`, `class="small" style="fill:${tone};paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round"`);
    if (row.tokens !== null) out += rect(left + 0.5, y + 0.5, X(row.tokens) - left - 1, BAR - 4, 'none', `stroke="${c('bound')}" stroke-width="1.4" stroke-dasharray="4 3"`) + label(three(row.tokens), words('tokens') + (row.ran ? '' : words('formula')), row.tokens, c('muted'));
    y += BAR;
    for (const [key, value] of [['parameters', row.parameters], ['time', row.time]]) {
      if (value !== null) out += rect(left + 0.5, y + 2.5, X(value) - left - 1, BAR - 9, 'none', `stroke="${c('draft')}" stroke-width="1.3"`) + label('×' + three(value), words(key), value, c('draft'));
      else if (key === 'time') out += text(left + 4, y + BAR - 5, words('lacking', { what: words('time') }), 'class="small muted"');
      y += BAR;
    }
    if (row.ghost !== null && row.ghost !== undefined) out += rect(left + 0.5, y + 0.5, X(row.ghost) - left - 1, BAR - 4, 'none', `stroke="${c('ghost')}" stroke-width="1.3"`);
    if (row.speedup === null) { out += text(left + 4, y + BAR - 4, words('lacking', { what: words('measured') }), 'class="small muted"'); return; }
    const win = row.speedup > 1, tone = c(win ? 'accepted' : 'rejected');
    out += rect(left, y, X(row.speedup) - left, BAR - 3, win ? tone : 'url(#dc-no)', win ? '' : `stroke="${tone}"`);
    if (row.quartiles) out += `<path d="M${r(X(row.quartiles[0]))} ${r(y + BAR / 2 - 1.5)}H${r(X(row.quartiles[1]))}M${r(X(row.quartiles[0]))} ${r(y + 3)}v8M${r(X(row.quartiles[1]))} ${r(y + 3)}v8" stroke="${c('ink')}" stroke-width="1.4"/>`;
    out += label('×' + three(row.speedup), words(row.now ? 'now' : 'measured'), Math.max(row.speedup, row.quartiles ? row.quartiles[1] : 0), tone, true);
  });
  return out;
}

// ---- the clock, for every cell

function table(data, x, y, w, tools) {
  const c = tools.colour, words = tools.words, timed = data.table.some((line) => line.cells.some((cell) => cell[1] !== null));
  const left = Math.max(...data.table.map((line) => tools.measure(line.draft, 14))) + 12, cell = Math.min(64, (w - left) / 8);
  let out = rect(x, y - 8, w, 1, c('hairline')) + text(x, y + 16, words('table'), strong) + text(x, y + TITLE + 12, 'k', 'class="small muted"');
  for (let k = 1; k <= 8; k++) out += text(x + left + (k - 0.5) * cell, y + TITLE + 12, k, `class="small figure ${k === data.k ? '' : 'muted'}" text-anchor="middle" ${k === data.k ? strong : ''}`);
  data.table.forEach((line, n) => {
    const top = y + TITLE + 24 + n * CELL;
    out += text(x, top + 20, tools.esc(line.draft), 'style="font-size:14px"');
    line.cells.forEach(([k, value, chosen, best]) => {
      const at = x + left + (k - 1) * cell, win = value > 1, tone = value === null ? c('reserved') : c(win ? 'accepted' : 'rejected');
      const depth = value === null ? 0 : Math.min(0.55, 0.08 + Math.abs(Math.log2(value)) * 0.4);
      out += rect(at + 1.5, top + 1.5, cell - 3, CELL - 5, value === null ? 'none' : tone, `fill-opacity="${r(depth)}" rx="2" ${value === null ? `stroke="${tone}" stroke-dasharray="3 3"` : ''}`);
      if (chosen) out += rect(at + 1.5, top + 1.5, cell - 3, CELL - 5, 'none', `stroke="${c('accent')}" stroke-width="2" rx="2"`);
      if (value !== null) out += text(at + cell / 2, top + 20, three(value), `class="small figure" text-anchor="middle" ${best ? strong : ''}`);
      if (best) out += star(at + cell - 7, top + 3, c('ink'));
    });
  });
  const foot = y + TITLE + 24 + data.table.length * CELL + 19;
  return out + (timed ? star(x + 6, foot - 4, c('ink')) + text(x + 18, foot, words(data.wins ? 'best' : 'best_loss'), 'class="small muted"') : text(x, foot, words('none'), 'class="small muted"'));
}
const star = (x, y, fill) => `<path d="M${r(x)} ${r(y - 6)}l1.8 4 4.3 .4 -3.3 2.9 1 4.2 -3.8 -2.2 -3.8 2.2 1 -4.2 -3.3 -2.9 4.3 -.4z" fill="${fill}"/>`;

// ---- what a forward costs by its width

function forwards(data, x, y, w, tools) {
  const c = tools.colour, words = tools.words, names = Math.max(...data.forwards.map((f) => tools.measure(f.name, 13))) * 1.05 + 14;
  const left = x + 40, right = x + w - names, top = y + TITLE + 6, high = 148, most = nice(Math.max(...data.forwards.flatMap((f) => f.ms)));
  const X = (m) => left + ((m - 1) / 8) * (right - left), Y = (ms) => top + high * (1 - ms / most);
  let out = rect(x, y - 8, w, 1, c('hairline')) + text(x, y + 16, words('forwards'), strong);
  for (const v of [0, most / 2, most]) out += rect(left, Y(v), right - left, 1, c('grid')) + text(left - 8, Y(v) + 4.5, +v.toPrecision(3), 'class="small figure muted" text-anchor="end"');
  const ends = data.forwards.map((f) => Y(f.ms.at(-1))), order = ends.map((_, i) => i).sort((a, b) => ends[a] - ends[b]);
  for (let i = 1; i < order.length; i++) ends[order[i]] = Math.max(ends[order[i]], ends[order[i - 1]] + 17);
  data.forwards.forEach((f, n) => {
    const tone = c(f.target ? 'target' : 'draft');
    out += `<path d="${f.ms.map((ms, i) => `${i ? 'L' : 'M'}${r(X(i + 1))} ${r(Y(ms))}`).join('')}" fill="none" stroke="${tone}" stroke-width="2" ${n > 1 ? 'stroke-dasharray="6 3"' : ''} stroke-linejoin="round"/>`;
    out += f.ms.map((ms, i) => `<circle cx="${r(X(i + 1))}" cy="${r(Y(ms))}" r="${(f.target ? i === 0 || i === data.k : i === 0) ? 5 : 2.5}" fill="${tone}"/>`).join('');
    out += text(right + 10, ends[n] + 5, tools.esc(f.name), `class="small" style="fill:${tone}"`);
  });
  for (let m = 1; m <= 9; m += 2) out += text(X(m), top + high + 18, m, 'class="small figure muted" text-anchor="middle"');
  return out + text((left + right) / 2, top + high + 38, words('width'), 'class="small muted" text-anchor="middle"');
}
function nice(v) {
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 1.5, 2, 3, 4, 6, 8, 10].find((k) => k * power >= v) * power;
}
