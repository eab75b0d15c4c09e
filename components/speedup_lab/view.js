// Above, one clock for two ways of writing; below, the mean of the rounds closing in on the formula, and every other k.
const TOP = 26, LANE = 30, LANES = 4.9 * LANE, LEGEND = 26, HEAD = 34, CHART = 178, FOOT = 46;

function plan(width, tools) {
  const two = width >= 720, gap = 48, panel = two ? (width - gap) / 2 : width, below = TOP + LANES + 40 + LEGEND * (two ? 1 : 2.4) + 10;
  const chart = HEAD + CHART + FOOT;
  return { two, gap, panel, below, chart, height: below + (two ? chart : 2 * chart + 12) };
}

export function height(data, width, tools) { return plan(width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(tools.width, tools);
  svg.innerHTML = defs(tools.colour) + clock(data, t, p, tools) + mean(data, t, { x: 0, y: p.below, w: p.panel }, tools)
    + curve(data, { x: p.two ? p.panel + p.gap : 0, y: p.two ? p.below : p.below + p.chart + 12, w: p.panel }, tools);
}

export function says(data, t, tools) {
  const n = t + 1, time = n * (1 + data.c * data.k), sum = written(data, t);
  return tools.words('says', { n: tools.number(n), a: data.accepted[t], b: data.accepted[t] + 1, time: short(time), sum: tools.number(sum), alone: tools.number(Math.floor(time + 1e-9)), mean: short(sum / n), e: short(data.expected) });
}

const r = (x) => Math.round(x * 100) / 100;
const short = (x) => (x >= 99.95 ? Math.round(x).toLocaleString('en-US') : x.toPrecision(x < 1 ? 2 : 3));
const written = (data, t) => data.accepted.slice(0, t + 1).reduce((a, b) => a + b + 1, 0);
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, said, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${said}</text>`;
const line = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const strong = 'font-weight="650"';

function defs(c) {
  return `<defs><pattern id="lab-rejected" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="${c('rejected')}" fill-opacity=".15"/><path d="M0 5L5 0" stroke="${c('rejected')}" stroke-width="1.3"/></pattern></defs>`;
}

// ---- the clock

function clock(data, t, p, tools) {
  const c = tools.colour, { k } = data, round = 1 + data.c * k, end = (t + 1) * round, W = tools.width;
  const unit = Math.max(26, Math.min(110, W / (round * (p.two ? 6.6 : 3.2)))), span = W / unit, from = Math.max(0, end - span * 0.94), X = (time) => (time - from) * unit;
  const y1 = TOP, y2 = TOP + LANE * 2.45, done = Math.floor(end + 1e-9), sum = written(data, t);
  let out = `<clipPath id="lab-clock"><rect x="0" y="0" width="${W}" height="${p.below}"/></clipPath>`, inside = '', grid = '';
  const halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
  const head = (y, name, n) => text(0, y - 7, `<tspan ${strong}>${tools.words(name, { k })}</tspan><tspan dx="14" style="fill:${c('muted')}">${tools.words('wrote', { n: tools.number(n) })}</tspan>`, `style="${halo}"`);
  for (let j = Math.floor(from); j < Math.min(done + 1, from + span); j++) {
    const part = Math.min(1, end - j);
    if (part <= 1e-9) break;
    inside += rect(X(j) + 1, y1, part * unit - 2, LANE - 8, c('target'), `fill-opacity="${part < 1 ? 0.25 : 0.85}"`);
    if (part === 1) inside += square(X(j) + 1, y1 + LANE - 4, 13, c('target'), c('target'));
  }
  for (let i = Math.max(0, Math.floor(from / round)); i <= t; i++) {
    const start = i * round, a = data.accepted[i];
    for (let g = 0; g < k && data.c > 0; g++) {
      const w = data.c * unit;
      inside += rect(X(start + g * data.c) + (w > 4 ? 0.75 : 0), y2, w - (w > 4 ? 1.5 : 0), LANE - 8, c('draft'), 'fill-opacity=".25"') + rect(X(start + g * data.c) + (w > 4 ? 0.75 : 0.25), y2 + 0.5, Math.max(0.5, w - (w > 4 ? 1.5 : 0.5)), LANE - 9, 'none', `stroke="${c('draft')}"`);
    }
    inside += rect(X(start + data.c * k) + 1, y2, unit - 2, LANE - 8, c('target'), 'fill-opacity=".85"');
    inside += tokens(data, a, X(start), y2 + LANE - 4, round * unit, c);
  }
  const axis = y2 + LANE + 34, step = [1, 2, 5, 10, 20].find((s) => s * unit >= 34);
  for (let v = Math.ceil(from / step) * step; v <= from + span; v += step) {
    grid += line(`M${r(X(v))} ${y1 - 2}V${axis}`, c('grid')) + text(X(v), axis + 15, v, `class="small figure muted" text-anchor="${X(v) < 8 ? 'start' : X(v) > W - 12 ? 'end' : 'middle'}"`);
  }
  inside += line(`M${r(X(end))} ${y1 - 2}V${axis}`, c('ink'), 'stroke-width="1.5"');
  out += `<g clip-path="url(#lab-clock)">${grid}${inside}</g>` + head(y1, 'alone', done) + head(y2, 'together', sum) + text(0, axis + 33, tools.words('time'), 'class="small"');
  return out + legend(p, tools, axis + 33);
}

// What a round leaves: accepted guesses, the first wrong one, those never looked at, and the target's own token.
function tokens(data, a, x, y, width, c) {
  const { k } = data, size = Math.min(13, width / (k + 1) - 1.5);
  let out = '';
  for (let i = 0; i < k; i++) {
    const at = x + 1 + i * (size + 1.5);
    out += i < a ? square(at, y, size, c('accepted'), c('accepted')) : i === a ? square(at, y, size, 'url(#lab-rejected)', c('rejected')) : square(at, y, size, 'none', c('reserved'));
  }
  return out + square(x + 1 + k * (size + 1.5), y, size, c('target'), c('target'));
}
const square = (x, y, size, fill, edge) => rect(x + 0.5, y + 0.5, size - 1, size - 1, fill, `stroke="${edge}"`);

function legend(p, tools, y) {
  const c = tools.colour, marks = [['accepted', c('accepted'), c('accepted')], ['rejected', 'url(#lab-rejected)', c('rejected')], ['unused', 'none', c('reserved')], ['own', c('target'), c('target')]];
  const wide = marks.map(([name]) => 18 + tools.measure(tools.words(name), 13) * 1.1 + 18), total = wide.reduce((a, b) => a + b, 0) - 18;
  let x = p.two ? tools.width - total : 0, out = '';
  if (!p.two) y += 24;
  marks.forEach(([name, fill, edge], i) => {
    if (!p.two && x + wide[i] - 18 > tools.width) { x = 0; y += 22; }
    out += square(x, y - 11, 12, fill, edge) + text(x + 18, y, tools.words(name), 'class="small muted"');
    x += wide[i];
  });
  return out;
}

// ---- the mean so far

function mean(data, t, { x, y, w }, tools) {
  const c = tools.colour, n = data.accepted.length, left = x + 34, right = x + w - 8, top = y + HEAD, high = data.k + 1, low = 1;
  const X = (i) => left + (Math.log10(i) / Math.log10(n)) * (right - left), Y = (v) => top + CHART * (1 - (Math.min(high, Math.max(low, v)) - low) / (high - low) * 0.94 - 0.03);
  let out = text(x, y + 16, tools.words('mean'), strong);
  for (let v = low, step = Math.ceil(data.k / 4); v <= high; v += step) out += line(`M${left} ${r(Y(v))}H${right}`, c('grid')) + text(left - 8, Y(v) + 4.5, v, 'class="small figure muted" text-anchor="end"');
  for (const i of [1, 3, 10, 30, 100, 300, 1000]) out += text(X(i), top + CHART + 17, tools.number(i), `class="small figure muted" text-anchor="${i === n ? 'end' : 'middle'}"`);
  out += text(x, top + CHART + 36, tools.words('rounds'), 'class="small"');
  const at = Array.from({ length: 61 }, (_, i) => n ** (i / 60)), half = (i) => 1.96 * data.spread / Math.sqrt(i);
  const funnel = [...at.map((i) => [i, data.expected + half(i)]), ...at.reverse().map((i) => [i, data.expected - half(i)])];
  out += `<path d="M${funnel.map(([i, v]) => `${r(X(i))} ${r(Y(v))}`).join('L')}Z" fill="${c('target')}" fill-opacity=".13"/>`;
  out += line(`M${left} ${r(Y(data.expected))}H${right}`, c('bound'), 'stroke-width="1.5" stroke-dasharray="6 4"');
  let sum = 0, d = '';
  for (let i = 0; i <= t; i++) { sum += data.accepted[i] + 1; d += `${i ? 'L' : 'M'}${r(X(i + 1))} ${r(Y(sum / (i + 1)))}`; }
  out += line(d, c('target'), 'stroke-width="2" stroke-linejoin="round"') + `<circle cx="${r(X(t + 1))}" cy="${r(Y(sum / (t + 1)))}" r="4.5" fill="${c('target')}" stroke="${c('paper')}" stroke-width="1.5"/>`;
  const near = Y(sum / (t + 1)), late = t > 300, beside = late ? near + (near < Y(data.expected) ? -11 : 21) : near + 5, halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
  out += text(X(t + 1) + (late ? 0 : 10), beside, short(sum / (t + 1)), `class="figure" ${late ? 'text-anchor="end"' : ''} style="fill:${c('target')};font-weight:650;${halo}"`);
  out += text(right, Y(data.expected) + (near < Y(data.expected) ? 18 : -7), tools.words('formula', { e: short(data.expected) }), `class="small" text-anchor="end" style="fill:${c('ink')};font-weight:600;${halo}"`);
  return out + text(right, top + 10, tools.words('funnel'), `class="small" text-anchor="end" style="fill:${c('target')};${halo}"`);
}

// ---- every other k

function curve(data, { x, y, w }, tools) {
  const c = tools.colour, most = data.curve.length - 1, left = x + 34, right = x + w - 10, top = y + HEAD;
  const all = [...data.curve, 1, ...(data.ghost ? data.ghost.curve : []), ...data.drafts.map((d) => d.speedup)], peak = Math.max(...all) * 1.16, step = [0.25, 0.5, 1, 2, 5].find((s) => peak / s <= 5);
  const X = (k) => left + (k / most) * (right - left), Y = (v) => top + CHART * (1 - v / peak), halo = `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;
  let out = text(x, y + 16, tools.words('curve'), strong);
  for (let v = 0; v <= peak; v += step) out += line(`M${left} ${r(Y(v))}H${right}`, c('grid')) + text(left - 8, Y(v) + 4.5, +v.toFixed(2), 'class="small figure muted" text-anchor="end"');
  for (let k = 0; k <= most; k += 4) out += text(X(k), top + CHART + 17, k, 'class="small figure muted" text-anchor="middle"');
  out += text(x, top + CHART + 36, tools.words('k'), 'class="small"');
  out += rect(left, Y(1), right - left, Y(0) - Y(1), c('rejected'), 'fill-opacity=".07"') + line(`M${left} ${r(Y(1))}H${right}`, c('bound'), 'stroke-width="1.5" stroke-dasharray="6 4"');
  const path = (points) => points.map((v, k) => `${k ? 'L' : 'M'}${r(X(k))} ${r(Y(v))}`).join('');
  if (data.ghost) out += line(path(data.ghost.curve), c('ghost'), 'stroke-width="1.5" stroke-dasharray="3 3"') + `<circle cx="${r(X(data.ghost.k))}" cy="${r(Y(data.ghost.curve[data.ghost.k]))}" r="5" fill="none" stroke="${c('ghost')}" stroke-width="1.5"/>`;
  out += line(path(data.curve), c('target'), 'stroke-width="2"') + data.curve.map((v, k) => `<circle cx="${r(X(k))}" cy="${r(Y(v))}" r="2.5" fill="${c('target')}"/>`).join('');
  out += measured(data.drafts, X, Y, right, c, tools, halo);
  const { best, k } = data, say = (at, key, tone, up) => {
    const v = data.curve[at], said = tools.words(key, { k: at, s: short(v) }), wide = tools.measure(said, 14.5), away = up ? X(at) - wide / 2 : at < best ? X(at) + 6 : X(at) - 6 - wide, start = Math.min(Math.max(away, left), right - wide);   // under the curve, on its open side
    return text(start, Y(v) + (up ? -12 : 24), said, `style="fill:${c(tone)};font-weight:650;${halo}"`);
  };
  const under = Y(data.curve[k]) + 19, free = Math.abs(under - Y(1)) > 16 && under < Y(0) - 4;   // neither on the line of 1 nor on the axis
  if (best !== k) out += say(k, 'here', 'ink', !free);
  if (best) out += say(best, 'best', 'accepted', true) + `<path d="M${r(X(best))} ${r(Y(data.curve[best]) - 7)}l2.1 4.6 5 .5 -3.8 3.3 1.1 4.9 -4.4 -2.6 -4.4 2.6 1.1 -4.9 -3.8 -3.3 5 -.5z" fill="${c('accepted')}" stroke="${c('paper')}"/>`;
  if (best !== k) out += `<circle cx="${r(X(k))}" cy="${r(Y(data.curve[k]))}" r="5.5" fill="${c('paper')}" stroke="${c('ink')}" stroke-width="2"/>`;
  return out + text(right, Y(1) + 17, tools.words('even'), `class="small muted" text-anchor="end" style="${halo}"`);
}

// Drafts that were timed: squares with their intervals. They crowd near 1, so one label stands for all; each tells its name when pointed at.
function measured(drafts, X, Y, right, c, tools, halo) {
  let out = '';
  for (const d of drafts) {
    const x = X(d.k), square = rect(x - 4, Y(d.speedup) - 4, 8, 8, c('draft'), `stroke="${c('paper')}"`);
    if (d.interval) out += line(`M${r(x)} ${r(Y(d.interval[0]))}V${r(Y(d.interval[1]))}`, c('draft'), 'stroke-width="1.5"');
    out += `<g><title>${tools.esc(tools.words('draft', { name: d.name, k: d.k, s: short(d.speedup) }))}</title>${square}</g>`;
  }
  if (!drafts.length) return out;
  const last = drafts.reduce((a, b) => (b.k > a.k ? b : a)), said = tools.words('drafts'), wide = tools.measure(said, 13.5), x = X(last.k);
  return out + text(x + 9 + wide > right ? x - 9 - wide : x + 9, Y(last.speedup) + 4.5, said, `class="small" style="fill:${c('draft')};${halo}"`);
}
