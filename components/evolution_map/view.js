// A chain of cards; each says what it solved and on which number it got stuck, and an arrow leads to what that number forced.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const strong = 'font-weight="650"', LINE = 19, PAD = 14;

export const says = (data) => data.says;

function plan(data, W, tools) {
  const columns = W >= 880 ? 3 : W >= 580 ? 2 : 1, gap = columns > 1 ? 44 : 30, inset = columns > 1 ? 0 : 26, boxes = {};
  const chain = data.nodes.filter((n) => !n.of), branches = data.nodes.filter((n) => n.of), edge = 1.5, cw = (W - 2 * edge - (columns - 1) * gap) / columns;
  const lay = (node, w) => {
    const inner = w - 2 * PAD - 20;
    const name = tools.wrap(node.name, 16, w - 2 * PAD - (node.place ? 24 : 0)), solved = tools.wrap(node.solved, 14, inner), stuck = tools.wrap(node.stuck, 14, inner);
    return { name, solved, stuck, w, high: 16 + 21 * name.length + 6 + LINE * solved.length + 5 + LINE * stuck.length + 10 };
  };
  let y = 4;
  if (columns > 1) {
    const row = branches.map((node) => lay(node, cw)), high = Math.max(...row.map((b) => b.high));
    branches.forEach((node, n) => { const at = chain.findIndex((c) => c.id === node.of); boxes[node.id] = { ...row[n], x: edge + (at % columns) * (cw + gap), y, h: high }; });
    y += high + 30;
    for (let from = 0; from < chain.length; from += columns) {
      const part = chain.slice(from, from + columns), laid = part.map((node) => lay(node, cw)), tall = Math.max(...laid.map((b) => b.high));
      part.forEach((node, n) => { boxes[node.id] = { ...laid[n], x: edge + n * (cw + gap), y, h: tall }; });
      y += tall + 40;
    }
    return { W, columns, gap, cw, boxes, chain, branches, thread: columns === 3 ? { x: 2 * (cw + gap), y: 4, h: high, w: cw } : null, height: y - 34 };
  }
  for (const node of chain) {
    const main = lay(node, W - 2 * edge);
    boxes[node.id] = { ...main, x: edge, y, h: main.high };
    y += main.high;
    for (const side of branches.filter((b) => b.of === node.id)) {
      const one = lay(side, W - inset - edge);
      boxes[side.id] = { ...one, x: inset, y: y + 14, h: one.high };
      y += 14 + one.high;
    }
    y += gap;
  }
  return { W, columns, gap, cw, boxes, chain, branches, thread: null, height: y - gap + 4 };
}

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const { local } = tools;
  if (local.data !== data) Object.assign(local, { data, at: data.chosen });
  const p = plan(data, tools.width, tools);
  svg.setAttribute('role', 'group');
  svg.innerHTML = markup(data, p, local.at, tools);
  listen(svg, data, p, tools);
  if (local.focus) svg.querySelector(`.pick[data-id="${local.at}"]`)?.focus({ preventScroll: true });
}

function markup(data, p, at, tools) {
  const { colour: c, words, esc } = tools, out = [], B = p.boxes;
  const arrow = (d, head) => out.push(`<path d="${d}${head}" fill="none" stroke="${c('rejected')}" stroke-width="1.8"/>`);
  p.chain.slice(1).forEach((node, n) => {
    const a = B[p.chain[n].id], b = B[node.id];
    if (p.columns === 1) arrow(`M14 ${r(Math.max(...[p.chain[n], ...p.branches.filter((s) => s.of === p.chain[n].id)].map((s) => B[s.id]).filter((box) => box.x < 10).map((box) => box.y + box.h)))}V${r(b.y - 3)}`, 'm-5 -7l5 7l5 -7');
    else if (a.y === b.y) arrow(`M${r(a.x + a.w)} ${r(a.y + a.h / 2)}H${r(b.x - 3)}`, 'm-7 -5l7 5l-7 5');
    else arrow(`M${r(a.x + a.w / 2)} ${r(a.y + a.h)}V${r(b.y - 20)}H${r(b.x + b.w / 2)}V${r(b.y - 3)}`, 'm-5 -7l5 7l5 -7');
  });
  for (const side of p.branches) {
    const a = B[side.of], b = B[side.id];
    const d = p.columns === 1 ? `M${r(b.x - 12)} ${r(a.y + a.h)}V${r(b.y + 24)}H${r(b.x)}` : `M${r(b.x + b.w / 2)} ${r(b.y + b.h)}V${r(a.y)}`;
    out.push(`<path d="${d}" fill="none" stroke="${c('muted')}" stroke-width="1.4" stroke-dasharray="4 4"/>`);
  }
  for (const node of data.nodes) out.push(card(node, B[node.id], at, tools));
  if (p.thread) {
    const lines = tools.wrap(words('thread'), 17, p.thread.w - 10), from = p.thread.y + p.thread.h / 2 - 13 * (lines.length - 1) + 5;
    lines.forEach((line, n) => out.push(text(p.thread.x + 4, from + 26 * n, esc(line), 'class="muted" style="font-size:17px"')));
  }
  return out.join('');
}

function card(node, b, at, tools) {
  const { colour: c, esc } = tools, on = node.id === at, left = b.x + PAD;
  let y = b.y + 26, out = rect(b.x, b.y, b.w, b.h, c(on ? 'accent-soft' : 'paper'), `class="edge" rx="3" stroke="${on ? c('ink') : c('muted')}" stroke-width="${on ? 2.5 : 1.1}" ${node.of && !on ? 'stroke-dasharray="5 4"' : ''}`);
  if (node.place) out += text(left, y, node.place, `class="figure" style="font-size:16px;fill:${c('muted')}"`);
  b.name.forEach((line, n) => { out += text(left + (node.place ? 24 : 0), y + 21 * n, esc(line), `${strong} style="font-size:16px"`); });
  y += 21 * (b.name.length - 1) + 27;
  for (const [mark, lines, tone] of [['✓', b.solved, 'accepted'], ['✕', b.stuck, 'rejected']]) {
    out += text(left, y, mark, `style="font-size:15px;font-weight:700;fill:${c(tone)}"`);
    lines.forEach((line, n) => { out += text(left + 20, y + LINE * n, esc(line), 'style="font-size:14px"'); });
    y += LINE * lines.length + 5;
  }
  return `<g class="pick" data-id="${node.id}" role="button" tabindex="${on ? 0 : -1}" aria-pressed="${on}" aria-label="${esc(`${node.name}: ✓ ${node.solved}; ✕ ${node.stuck}`)}">${out}</g>`;
}

function listen(svg, data, p, tools) {
  const { local } = tools, order = data.nodes.map((n) => n.id);
  const choose = (id, focus) => {
    if (!id) return;
    Object.assign(local, { at: id, focus });
    tools.redraw();
    clearTimeout(local.settling);
    if (id !== data.chosen) local.settling = setTimeout(() => tools.pick('node', id), focus ? 220 : 0);
  };
  const nearest = (id, down) => {   // the card above or below
    const middle = (b) => [b.x + b.w / 2, b.y + b.h / 2], [x, y] = middle(p.boxes[id]);
    const far = (other) => { const [ox, oy] = middle(p.boxes[other]); return (oy - y) * (down ? 1 : -1) > 8 ? Math.abs(oy - y) + Math.abs(ox - x) / 2 : Infinity; };
    const best = order.reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(best) < Infinity ? best : id;
  };
  svg.onclick = (event) => choose(event.target.closest?.('.pick')?.dataset.id, false);
  if (!local.heard) {   // once: the <svg> outlives its contents
    local.heard = true;
    svg.addEventListener('focusin', () => { local.focus = true; });
    svg.addEventListener('focusout', () => setTimeout(() => { if (svg.isConnected && !svg.contains(svg.getRootNode().activeElement)) local.focus = false; }));
  }
  svg.onkeydown = (event) => {
    const id = event.target.closest?.('.pick')?.dataset.id ?? local.at, here = order.indexOf(id), last = order.length - 1;
    const to = { ArrowRight: order[Math.min(last, here + 1)], ArrowLeft: order[Math.max(0, here - 1)], ArrowDown: nearest(id, true), ArrowUp: nearest(id, false), Home: order[0], End: order[last], Enter: id, ' ': id }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    choose(to, true);
  };
}
