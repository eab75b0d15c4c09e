// Above, every token as a rectangle of its probability, from its rank to the next on a logarithmic axis: area is mass,
// width is count. Below, on the same axis, what each rule leaves, in the order in which the engine applies them.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;

function plan(data, width, tools) {
  const narrow = width < 620, noticed = data.waiting ? (narrow ? 54 : 32) : 0;
  const left = narrow ? 0 : Math.max(118, ...data.steps.map((s) => tools.measure(s.name, 14) + 46));
  const right = narrow ? 0 : Math.max(...data.steps.map((s) => tools.measure(count(s, tools), 13, 'figures'))) + 22;
  const top = noticed + 76, high = narrow ? 190 : 220, row = narrow ? 48 : 38, flow = top + high + 78;
  return { narrow, left, wide: width - left - right, right, top, high, row, flow, height: flow + data.steps.length * row + 8 };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const p = plan(data, tools.width, tools), c = tools.colour, octaves = Math.log(data.all + 1);
  const px = (rank) => p.left + p.wide * Math.log(rank) / octaves;
  svg.innerHTML = defs(c) + (data.waiting ? notice(p, tools) : '') + prompt(data, p, tools) + areas(data, p, tools, px) + axis(data, p, tools, px) + flow(data, p, tools, px);
}

const count = (s, tools) => `${tools.number(s.count)} · ${s.share}`;

function defs(c) {
  return `<defs><pattern id="cut" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="7" height="7" fill="${c('rejected')}" fill-opacity=".10"/><rect width="1.8" height="7" fill="${c('rejected')}" fill-opacity=".75"/></pattern></defs>`;
}

function notice(p, tools) {
  const words = tools.words('waiting'), two = tools.measure(words, 14) > tools.width - 20, middle = two ? words.indexOf(tools.words('waiting_cut')) : -1;
  const lines = middle > 0 ? [words.slice(0, middle), words.slice(middle).trim()] : [words];
  return rect(0, 2, 3, lines.length * 21 + 2, tools.colour('accent')) + lines.map((l, i) => text(12, 18 + 21 * i, tools.esc(l))).join('');
}

function prompt(data, p, tools) {
  const c = tools.colour, y = p.top - 56;
  let words = data.text.replace(/\s+/g, ' ');
  while (words.length > 1 && tools.measure(words, 16) > tools.width - 60) words = '…' + words.slice(2);
  const x = tools.measure(words, 16) + 8;
  return text(0, y, tools.esc(words), 'style="font-size:16px"') + rect(x, y - 14, 26, 18, 'none', `stroke="${c('target')}" stroke-width="1.5" stroke-dasharray="3 3"`) + text(x + 13, y, '?', `text-anchor="middle" style="fill:${c('target')}"`);
}

// ---- the distribution

function areas(data, p, tools, px) {
  const c = tools.colour, { edges, mass, kept, share } = data, floor = p.top + p.high;
  const density = (m, i) => m / Math.log(edges[i + 1] / edges[i]);
  const before = mass.map(density), after = share ? before.map((d, i) => (edges[i] <= kept ? d / share : 0)) : before;
  const ghost = data.ghost ? data.ghost.mass.map(density) : [];
  const most = Math.max(...before, ...after, ...ghost) || 1, py = (d) => floor - p.high * d / most;
  const stairs = (heights, from, to) => {
    let path = '';
    for (let i = from; i < to; i++) path += `${path ? 'L' : 'M'}${r(px(edges[i]))} ${r(py(heights[i]))}H${r(px(edges[i + 1]))}`;
    return path;
  };
  const area = (heights, from, to) => (to > from ? `${stairs(heights, from, to)}V${r(floor)}H${r(px(edges[from]))}Z` : '');
  const split = edges.findIndex((e) => e > kept), last = edges.length - 1, border = px(kept + 1);
  let out = rect(p.left, floor, p.wide, 1, c('hairline'));
  out += `<path d="${area(before, 0, split)}" fill="${c('accepted')}" fill-opacity=".85"/>`;
  if (split < last) out += `<path d="${area(before, split, last)}" fill="url(#cut)" stroke="${c('rejected')}" stroke-width="1"/>`;
  for (let i = 1; i < Math.min(split, 24); i++) out += rect(px(edges[i]) - 0.5, py(Math.min(before[i], before[i - 1])), 1, floor - py(Math.min(before[i], before[i - 1])), c('paper'), 'opacity=".7"');
  if (data.ghost) {
    const gone = px(data.ghost.kept + 1);
    out += `<path d="${stairs(ghost, 0, last)}" fill="none" stroke="${c('ghost')}" stroke-width="1.5" stroke-dasharray="4 3"/>` + (Math.abs(gone - border) > 1 ? rect(gone - 0.75, p.top - 6, 1.5, p.high + 6, c('ghost')) : '');
  }
  out += `<path d="${stairs(after, 0, split)}V${r(floor)}" fill="none" stroke="${c('target')}" stroke-width="2"/>`;
  out += names(data, p, tools, px, py, before, floor) + borders(data, p, tools, border, floor, split < last);
  const tallest = (x0, x1) => Math.max(0, ...before.map((d, i) => (px(edges[i]) < x1 && px(edges[i + 1]) > x0 ? Math.max(d, after[i]) : 0)));
  return out + key(p, tools, most, data, tallest);
}

// tokens that are wide enough to carry their name
function names(data, p, tools, px, py, before, floor) {
  const c = tools.colour;
  let out = '';
  for (let i = 0; i < data.names.length; i++) {
    const x = px(i + 1), room = px(i + 2) - x, name = data.names[i];
    if (tools.measure(name, 14) > room - 4) continue;
    const tall = floor - py(before[i]) > 24, kept = i < data.kept;
    out += text(x + room / 2, tall ? floor - 8 : py(before[i]) - 6, tools.esc(name), `text-anchor="middle" font-weight="600" style="fill:${tall && kept ? c('paper') : c('ink')}"`);
  }
  return out;
}

function borders(data, p, tools, border, floor, some) {
  const c = tools.colour, y = p.top - 14, end = p.left + p.wide;
  const kept = data.kept_says, cut = data.cut_says, wk = tools.measure(kept, 14) * 1.04, wc = tools.measure(cut, 14) * 1.04;
  let out = some ? rect(border - 1, p.top - 8, 2, p.high + 8, c('ink')) : '';
  const xk = Math.max(p.left, Math.min(border - 10 - wk, end - wk)), room = end - border > wc + 12, meets = xk + wk > (room ? border - 4 : end - wc - 8);
  out += text(xk, meets && some ? y - 18 : y, tools.esc(kept), `font-weight="650" style="fill:${c('accepted')}"`);
  if (some) out += text(room ? border + 10 : end, y, tools.esc(cut), `font-weight="650" style="fill:${c('rejected')}" ${room ? '' : 'text-anchor="end"'}`);
  return out;
}

// how large five percent are; on a phone where the bars are lowest
function key(p, tools, most, data, tallest) {
  const c = tools.colour, share = [0.2, 0.1, 0.05, 0.02, 0.01].find((s) => size(s, p, most, data) < 46) ?? 0.01, side = size(share, p, most, data);
  const words = tools.words('key', { share: `${100 * share}%` }), wide = side + 12 + tools.measure(words, 13), places = [p.left, p.left + p.wide - wide];
  const x = p.narrow ? (tallest(places[0], places[0] + wide) <= tallest(places[1], places[1] + wide) ? places[0] : places[1]) : 0, y = p.narrow ? p.top + 10 : p.top + 22;
  let out = rect(x + 0.5, y + 0.5, side - 1, side - 1, 'none', `stroke="${c('ink')}"`);
  out += text(x + side + 8, y + side / 2 + 5, words, `class="small muted" style="paint-order:stroke;stroke:${c('paper')};stroke-width:4px"`);
  if (!p.narrow) {
    out += text(0, p.top + 8, tools.words('area'), 'class="small" font-weight="600"');
    out += rect(0, y + 60, 22, 2, c('target')) + wrap(tools.words('after'), 14, p.left - 22, tools).map((line, i) => text(28, y + 65 + 17 * i, line, 'class="small muted"')).join('');
  }
  return out;
}
// the side of a square that holds this share of the area
const size = (share, p, most, data) => Math.sqrt(share * p.high / most * p.wide / Math.log(data.all + 1));

function wrap(words, px, room, tools) {
  const parts = words.includes(' ') && !/[一-鿿]/.test(words) ? words.split(/(?<= )/) : [...words], lines = [''];
  for (const part of parts) {
    if (tools.measure((lines.at(-1) + part).trim(), px - 1) > room - 28 && lines.at(-1)) lines.push('');
    lines[lines.length - 1] += part;
  }
  return lines.map((l) => tools.esc(l.trim()));
}

function axis(data, p, tools, px) {
  const c = tools.colour, y = p.top + p.high;
  let out = '', free = -1;
  for (const rank of [1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 30000]) {
    if (rank > data.all) break;
    const label = tools.number(rank), x = px(rank), w = tools.measure(label, 13, 'figures');
    out += rect(x - 0.5, y, 1, 5, c('hairline'));
    if (x - w / 2 > free && x + w / 2 <= p.left + p.wide + p.right) { out += text(Math.max(x, p.left + w / 2), y + 20, label, 'class="small figure muted" text-anchor="middle"'); free = x + w / 2 + 8; }
  }
  return out + text(p.left + p.wide / 2, y + 40, tools.words('rank', { all: tools.number(data.all) }), 'class="small muted" text-anchor="middle"');
}

// ---- the rules, one after another

function flow(data, p, tools, px) {
  const c = tools.colour, end = px(data.all + 1), bar = p.narrow ? 14 : 16;
  let out = text(0, p.flow - 12, tools.words('flow', { order: data.order }), 'font-weight="650"'), was = data.all;
  data.steps.forEach((s, i) => {
    const y = p.flow + i * p.row, top = p.narrow ? y + 24 : y + 9, x0 = px(1), x1 = px(s.count + 1);
    const style = s.works || s.rule === 'temperature' ? '' : `style="fill:${c('muted')}"`;
    out += text(0, y + (p.narrow ? 15 : 22), `${i + 1}`, 'class="small figure muted"') + text(16, y + (p.narrow ? 15 : 22), tools.esc(s.name), `${style} ${s.works ? 'font-weight="600"' : ''}`);
    out += rect(x0, top, x1 - x0, bar, c('accepted'), `fill-opacity="${s.count === data.kept ? 0.85 : 0.45}"`);
    if (s.count < was) out += rect(x1, top, px(was + 1) - x1, bar, 'url(#cut)', `stroke="${c('rejected')}" stroke-width="1"`);
    if (was < data.all) out += rect(px(was + 1), top + bar / 2 - 0.5, end - px(was + 1), 1, c('hairline'));
    if (s.old != null && s.old !== s.count) out += `<path d="M${r(px(s.old + 1))} ${r(top - 4)}v${bar + 8}" stroke="${c('ghost')}" stroke-width="2" stroke-dasharray="3 2"/>`;
    const says = count(s, tools);
    out += text(tools.width - 2, p.narrow ? y + 15 : y + 22, says, `class="small figure" text-anchor="end" ${i === data.steps.length - 1 ? 'font-weight="600"' : ''}`);
    was = s.count;
  });
  return out;
}
