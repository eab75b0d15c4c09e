// Two staircases. A row is a forward pass, a square a token whose K and V it needs, the word at its end what it wrote.
// Without a cache all squares of a row are work; with one only the last is. Below, the same two shapes from far away.
export const rate = 1.6;

const HEAD = 86, PROMPT = 26, LEGEND = 30, FAR_TITLE = 30, FAR_GAP = 22, CLOCK = 150;

function plan(data, width, tools) {
  const two = width >= 720, gap = two ? 48 : 0, panel = two ? (width - gap) / 2 : width;
  const rows = data.pieces.length, columns = data.prompt.length + rows - 1;
  const gutter = tools.measure('000', 13, 'figures') + 8;
  const label = Math.min(panel * 0.22, Math.max(...data.pieces.map((p, i) => (i > rows * 0.6 ? tools.measure(shown(p), 14) : 0)), 28) + 12);
  const cell = Math.min(32, (panel - gutter - label) / columns);
  const row = Math.max(3, Math.min(22, (two ? 264 : 216) / Math.min(rows, 12), two ? 330 / rows : 320 / rows));
  const far = two ? 104 : 76, clock = data.milliseconds ? CLOCK : 0, notice = data.waiting ? (tools.measure(tools.words('waiting'), 14) > width - 20 ? 56 : 34) : 0;
  const grid = rows * row, one = HEAD + PROMPT + grid + LEGEND;
  const steps = notice + (two ? one : 2 * one + 12);
  return { two, gap, panel, rows, columns, gutter, cell, row, grid, one, far, clock, notice, steps, height: steps + 14 + FAR_TITLE + far + FAR_GAP + clock };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), c = tools.colour;
  const at = (i) => ({ x: p.two ? i * (p.panel + p.gap) : 0, y: p.notice + (p.two ? 0 : i * (p.one + 12)) });
  svg.innerHTML = `${defs(c, tools)}
    ${p.notice ? notice(p, tools) : ''}
    ${staircase(data, t, p, tools, at(0), 'without')}
    ${staircase(data, t, p, tools, at(1), 'with')}
    ${fromFar(data, p, tools, p.steps + 14)}
    ${p.clock ? clock(data, t, p, tools, p.steps + 14 + FAR_TITLE + p.far + FAR_GAP) : ''}`;
}

export function says(data, t, tools) {
  const suma = sum(data.without, t), sumb = sum(data.with, t);
  return (data.waiting ? tools.words('waiting') + ' ' : '') + tools.words('says', {
    t: t + 1, n: data.pieces.length, piece: shown(data.pieces[t]), a: data.without[t], b: data.with[t],
    suma: tools.number(suma), sumb: tools.number(sumb), times: short(suma / sumb),
  });
}

const sum = (values, t) => values.slice(0, t + 1).reduce((a, b) => a + b, 0);
const short = (x) => (x >= 99.95 ? Math.round(x).toLocaleString('en-US') : x.toPrecision(x >= 9.995 ? 3 : 2));
const shown = (piece) => piece.replace(/\n/g, '⏎').trim() || '␣';
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;

function defs(c, tools) {
  const motion = tools.still ? '' : '<style>@keyframes kv-flash { from { opacity: .15 } 40% { opacity: 1 } 65% { opacity: .35 } } .kv-flash { animation: kv-flash 240ms ease-out }</style>';
  return `<defs>${motion}<pattern id="again" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
    <rect width="5" height="5" fill="${c('compute')}" fill-opacity=".22"/><rect width="2" height="5" fill="${c('compute')}"/></pattern></defs>`;
}

function notice(p, tools) {
  const words = tools.words('waiting'), lines = p.notice > 40 ? halves(words, tools) : [words];
  return rect(0, 2, 3, p.notice - 12, tools.colour('accent')) + lines.map((line, i) => text(12, 19 + 21 * i, tools.esc(line))).join('');
}
function halves(words, tools) {
  const cut = /[。：:.]/g, ends = [...words.matchAll(cut)].map((m) => m.index + 1), middle = words.length / 2;
  const end = ends.filter((e) => e < words.length).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle))[0] ?? Math.round(middle);
  return [words.slice(0, end), words.slice(end).trim()];
}

// ---- one way of generating

function staircase(data, t, p, tools, { x, y }, way) {
  const cached = way === 'with', x0 = x + p.gutter, y0 = y + HEAD + PROMPT, done = sum(data[way], t);
  let out = head(data, t, p, tools, x, y, way, done);
  out += promptWords(data, p, tools, x0, y0);
  if (t < p.rows - 1) out += toCome(data, t, p, tools, x0, y0);
  for (let i = 0; i <= t; i++) out += forward(data, i, i === t, p, tools, x0, y0 + i * p.row, cached);
  return out + legend(p, tools, x0, y0 + p.grid + 21, cached);
}

function head(data, t, p, tools, x, y, way, done) {
  const c = tools.colour, figure = tools.number(done), big = p.panel < 420 ? 30 : 34;
  const title = text(x, y + 16, `<tspan font-weight="650">${tools.words(way)}</tspan><tspan dx="10" style="fill:${c('muted')}">${tools.words(`${way}_more`)}</tspan>`);
  const style = `font-size:${big}px;font-weight:600;letter-spacing:-.02em`;
  const wide = tools.measure(figure, big, 'figures') * 1.04;
  const terms = addends(data[way], t, tools, p.panel - wide - 24 - (way === 'with' ? 96 : 0));
  let out = title + text(x, y + 58, figure, `class="figure" style="${style};fill:${c('compute')}"`);
  out += text(x + wide + 8, y + 42, `${tools.words('unit')} · ${tools.words('computed')}`, 'class="small muted"');
  out += text(x + wide + 8, y + 60, terms, 'class="small figure muted"');
  if (way === 'with') {
    const times = short(sum(data.without, t) / done);
    out += text(x + p.panel, y + 58, `${times}`, `class="figure" text-anchor="end" style="${style};fill:${c('ink')}"`);
    out += text(x + p.panel, y + 78, tools.words('less'), 'class="small muted" text-anchor="end"');
  }
  return out;
}

// "4 + 5 + 6 + … + 15", as many terms as fit
function addends(values, t, tools, room) {
  const all = values.slice(0, t + 1), join = (terms) => terms.join(' + ');
  if (all.length === 1) return '';
  if (tools.measure(join(all), 13, 'figures') <= room) return join(all);
  for (let n = Math.min(6, all.length - 1); n >= 1; n--) {
    const terms = join([...all.slice(0, n), '…', all.at(-1)]);
    if (tools.measure(terms, 13, 'figures') <= room) return terms;
  }
  return '';
}

function promptWords(data, p, tools, x0, y0) {
  const pieces = data.prompt.map(shown), fits = pieces.every((piece) => tools.measure(piece, 13) < p.cell - 2);
  if (fits) return pieces.map((piece, i) => text(x0 + (i + 0.5) * p.cell, y0 - 8, tools.esc(piece), 'class="small" text-anchor="middle"')).join('');
  const room = p.panel - p.gutter - 4;
  let line = data.text.replace(/\s+/g, ' ').trim();   // tokens may be parts of a character
  while (tools.measure(line, 14) > room) line = line.slice(0, -2) + '…';
  return text(x0, y0 - 10, tools.esc(line)) + `<path d="M${r(x0 + 0.5)} ${r(y0 - 1)}v-4H${r(x0 + data.prompt.length * p.cell - 1)}v4" fill="none" stroke="${tools.colour('muted')}"/>`;
}

// where the staircase will go
function toCome(data, t, p, tools, x, y) {
  let path = `M${r(x)} ${r(y + (t + 1) * p.row)}`;
  for (let i = t + 1; i < p.rows; i++) path += `H${r(x + (data.prompt.length + i) * p.cell)}V${r(y + (i + 1) * p.row - 1)}`;
  return `<path d="${path}H${r(x)}Z" fill="${tools.colour('grid')}" fill-opacity=".5" stroke="${tools.colour('hairline')}"/>`;
}

function forward(data, i, now, p, tools, x, y, cached) {
  const c = tools.colour, seen = data.prompt.length + i, fresh = i === 0 ? seen : 1, old = seen - fresh;
  const gap = p.cell > 6 ? 1.5 : 0, h = p.row - (p.row > 6 ? 2 : 0.4), flash = now && tools.moved ? 'class="kv-flash"' : '';
  const roomy = p.row >= 12.5 || now;
  let out = '';
  if (cached) {
    if (old && p.cell > 7) {
      const side = Math.min(p.cell, p.row) * 0.42;
      for (let k = 0; k < old; k++) out += rect(x + (k + 0.5) * p.cell - side / 2, y + h / 2 - side / 2, side, side, c('kv'), `opacity="${now ? 1 : 0.55}"`);
    } else if (old) out += rect(x, y + h / 2 - 0.6, old * p.cell, 1.2, c('kv'), `opacity="${now ? 1 : 0.55}"`);
  } else if (old) {
    if (gap) for (let k = 0; k < old; k++) out += rect(x + k * p.cell, y, p.cell - gap, h, 'url(#again)', `${flash} opacity="${now ? 1 : 0.62}"`);
    else out += rect(x, y, old * p.cell, h, 'url(#again)', `${flash} opacity="${now ? 1 : 0.7}"`);
  }
  for (let k = old; k < seen; k++) out += rect(x + k * p.cell, y, p.cell - gap, h, c('compute'), cached ? flash : '');
  if (roomy) out += text(x - 8, y + h / 2 + 4.5, cached ? fresh : seen, `class="small figure ${now ? '' : 'muted'}" text-anchor="end" ${now ? 'font-weight="600"' : ''}`);
  if (roomy) out += text(x + seen * p.cell + 5, y + h / 2 + 5, tools.esc(shown(data.pieces[i])), now ? 'font-weight="650"' : `class="${p.row < 15 ? 'small' : ''}"`);
  return out;
}

function legend(p, tools, x, y, cached) {
  const c = tools.colour, size = 11;
  const first = rect(x, y - 10, size, size, c('compute')) + text(x + 17, y, tools.words('first'), 'class="small muted"');
  const x2 = x + 17 + tools.measure(tools.words('first'), 13) + 22;
  const second = cached ? rect(x2 + 2.5, y - 7.5, 6, 6, c('kv')) : rect(x2, y - 10, size, size, 'url(#again)');
  return first + second + text(x2 + 17, y, tools.words(cached ? 'kept' : 'again'), 'class="small muted"');
}

// ---- the same for any length

function fromFar(data, p, tools, y) {
  const c = tools.colour, { account, ghost } = data, W = tools.width;
  const title = tools.words('far', { prompt: tools.number(account.prompt), new: tools.number(account.new) });
  let out = rect(0, y, W, 1, c('hairline')) + text(0, y + 22, title, 'font-weight="650"');
  const top = y + FAR_TITLE + 4, gap = p.two ? p.gap : 20, wide = (W - gap) / 2;
  for (const [i, way] of ['without', 'with'].entries()) out += shape(account, ghost, way, i * (wide + gap), top, wide, p.far, tools);
  return out;
}

function shape(account, ghost, way, x, y, wide, high, tools) {
  const c = tools.colour, cached = way === 'with';
  const columns = Math.max(account.prompt + account.new, ghost ? ghost.prompt + ghost.new : 0), rows = Math.max(account.new, ghost ? ghost.new : 0);
  const room = Math.min(wide * 0.72, wide - 90), sx = room / columns, sy = high / rows;
  const outline = (a) => `M${r(x)} ${r(y)}H${r(x + a.prompt * sx)}L${r(x + (a.prompt + a.new) * sx)} ${r(y + a.new * sy)}H${r(x)}Z`;
  let out = '';
  if (cached) {
    out += `<path d="${outline(account)}" fill="${c('kv')}" fill-opacity=".16"/>`;
    out += `<path d="M${r(x)} ${r(y)}H${r(x + account.prompt * sx)}L${r(x + (account.prompt + account.new) * sx)} ${r(y + account.new * sy)}" fill="none" stroke="${c('compute')}" stroke-width="2"/>`;
  } else {
    out += `<path d="${outline(account)}" fill="url(#again)"/>`;
  }
  if (ghost) out += `<path d="${outline(ghost)}" fill="none" stroke="${c('ghost')}" stroke-width="1.5" stroke-dasharray="4 3"/>`;
  const size = wide < 220 ? 18 : 24;
  return out + text(x + wide, y + size * 0.8, tools.number(account[way]), `class="figure" text-anchor="end" style="font-size:${size}px;font-weight:600;fill:${c('compute')}"`);
}

// ---- what the steps took on this machine

function clock(data, t, p, tools, y) {
  const c = tools.colour, { milliseconds } = data, n = data.pieces.length, ways = ['without', 'with'], left = 44, top = y + 44, high = CLOCK - 70;
  const right = 14 + Math.max(...ways.map((way) => tools.measure(tools.words(way), 13)));
  const all = [...milliseconds.without, ...milliseconds.with].sort((a, b) => a - b), usual = all[Math.floor(all.length * 0.9)];
  const nice = niceAbove(all.at(-1) > 3 * usual ? 2 * usual : all.at(-1));   // one hiccup of the machine must not flatten the rest
  const px = (i) => left + (n === 1 ? 0.5 : i / (n - 1)) * (tools.width - left - right), py = (ms) => top + high * (1 - Math.min(ms, nice) / nice);
  let out = rect(0, y, tools.width, 1, c('hairline')) + text(0, y + 22, tools.words('milliseconds'), 'font-weight="650"');
  for (const ms of [0, nice / 2, nice]) out += rect(left, py(ms), tools.width - left - right, 1, c('grid')) + text(left - 8, py(ms) + 4.5, short2(ms), 'class="small figure muted" text-anchor="end"');
  const ends = ways.map((way) => py(milliseconds[way].at(-1)));
  if (Math.abs(ends[0] - ends[1]) < 17) { const middle = (ends[0] + ends[1]) / 2, up = ends[0] <= ends[1] ? -1 : 1; ends[0] = middle + 8.5 * up; ends[1] = middle - 8.5 * up; }
  for (const [k, way] of ways.entries()) {
    const line = milliseconds[way], tone = c(k ? 'kv' : 'compute');
    out += `<polyline points="${line.map((ms, i) => `${r(px(i))},${r(py(ms))}`).join(' ')}" fill="none" stroke="${tone}" stroke-width="2" stroke-linejoin="round" ${k ? '' : 'stroke-dasharray="6 3"'}/>`;
    line.forEach((ms, i) => { if (ms > nice) out += `<path d="M${r(px(i) - 5)} ${top}l5 -7l5 7z" fill="${tone}"/>` + text(px(i) + 8, top - 1, Math.round(ms), `class="small figure" style="fill:${tone}"`); });
    out += `<circle cx="${r(px(t))}" cy="${r(py(line[t]))}" r="4" fill="${tone}"/>` + text(px(n - 1) + 10, ends[k] + 5, tools.words(way), `class="small" style="fill:${tone}"`);
  }
  out += text(px(0), top + high + 18, '1', 'class="small figure muted" text-anchor="middle"') + text(px(n - 1), top + high + 18, n, 'class="small figure muted" text-anchor="middle"');
  return out + text((px(0) + px(n - 1)) / 2, top + high + 18, tools.words('step'), 'class="small muted" text-anchor="middle"');
}
const short2 = (x) => (x === 0 ? '0' : x >= 10 ? x.toFixed(0) : x >= 1 ? x.toFixed(1).replace(/\.0$/, '') : x.toPrecision(1));
function niceAbove(x) {
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 2, 4, 6, 8, 10].find((k) => k * power >= x) * power;
}
