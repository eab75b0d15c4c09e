// Four small tables side by side: a row an option, its measured figure as a bar; the chosen one is marked, a click chooses.
const r = (x) => Math.round(x * 100) / 100;
const rect = (x, y, w, h, fill, more = '') => `<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(Math.max(0, h))}" fill="${fill}" ${more}/>`;
const text = (x, y, words, more = '') => `<text x="${r(x)}" y="${r(y)}" ${more}>${words}</text>`;
const WIDE = 28, TALL = 46, HEAD = 66, GAP = 36, BETWEEN = 32, MARK = { met: '✓', not_met: '✗', unchecked: '?' };

export const says = (data) => data.says;

function plan(data, width, tools) {
  const wide = width >= 820, w = wide ? (width - BETWEEN) / 2 : width, ROW = w < 430 ? TALL : WIDE, tall = (panel) => HEAD + panel.rows.length * ROW + (panel.lineText ? 22 : 0);
  const columns = wide ? [[0, 1], [2, 3]] : [[0, 1, 2, 3]], places = [];
  columns.forEach((column, n) => {
    let y = 6;
    for (const at of column) { const panel = data.panels[at]; places.push({ panel, x: n * (w + BETWEEN), y, w, h: tall(panel) }); y += tall(panel) + GAP; }
  });
  return { places, height: Math.max(...places.map((p) => p.y + p.h)) + 8 };
}

export const height = (data, width, tools) => plan(data, width, tools).height;

export function draw(svg, data, t, tools) {
  const { places } = plan(data, tools.width, tools), hits = [];
  svg.innerHTML = defs(tools.colour) + places.map((place) => panel(place, tools, hits)).join('');
  svg.onclick = (event) => {
    const box = svg.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, hit = hits.find((h) => x >= h.x && x < h.x + h.w && y >= h.y && y < h.y + h.h);
    if (hit) tools.pick(hit.field, hit.chosen ? 'open' : hit.id);
  };
}

const defs = (c) => `<defs><pattern id="dec-fails" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="${c('rejected')}" stroke-width="1.6"/></pattern></defs>`;

function panel({ panel: p, x, y, w, h }, tools, hits) {
  const c = tools.colour, low = w < 430, ROW = low ? TALL : WIDE, names = low ? 24 : Math.min(w * 0.46, Math.max(...p.rows.map((row) => tools.measure(row.name, 14))) * 1.08 + 34);
  const figures = Math.max(...p.rows.map((row) => tools.measure(row.text, 13))) * 1.08 + 30, left = x + names, room = Math.max(24, w - names - figures);
  const X = (v) => left + Math.min(1, v / p.most) * room, tone = { met: 'accepted', not_met: 'rejected' }[p.verdict] ?? 'muted';
  let out = rect(x, y, w, 1.5, c('ink')) + text(x, y + 24, tools.esc(p.title), 'style="font-size:16px" font-weight="650"')
    + text(x + w, y + 24, `${MARK[p.verdict] ?? ''} ${tools.esc(p.state)}`, `text-anchor="end" fill="${c(tone)}" style="font-size:14px" font-weight="600"`)
    + text(x, y + 46, tools.esc(p.axis), 'class="small muted"');
  const top = y + HEAD - 8, bottom = top + p.rows.length * ROW;
  // Under each other, names stand over the bars, and band and line keep to the bars.
  const strips = low ? p.rows.map((_, n) => [top + n * ROW + 23, top + n * ROW + 43]) : [[top, bottom + 4]];
  if (p.band) for (const [from, to] of strips) out += rect(left, from, X(p.line) - left, Math.min(to, bottom) - from, c('accepted'), 'fill-opacity="0.12"');
  p.rows.forEach((row, n) => {
    const at = top + n * ROW, line = low ? at + 14 : at + ROW / 2, middle = low ? at + 33 : line;
    hits.push({ field: p.field, id: row.id, chosen: row.chosen, x, y: at, w, h: ROW });
    if (row.chosen) out += rect(x, at + 1, w, ROW - 2, c('accent-soft'), 'rx="4"');
    out += `<circle cx="${r(x + 11)}" cy="${line}" r="5.5" fill="${row.chosen ? c('accent') : 'none'}" stroke="${c(row.chosen ? 'accent' : 'muted')}" stroke-width="1.4"/>`
      + text(x + 24, line + 5, tools.esc(fit(row.name, low ? w - 30 : names - 30, tools)), `style="font-size:14px" ${row.chosen ? 'font-weight="650"' : ''}`);
    if (row.value !== null) {
      const over = row.value > p.most;
      out += rect(left, middle - 7, X(row.value) - left, 14, row.fails ? 'url(#dec-fails)' : c(p.tone), row.fails ? `stroke="${c('rejected')}"` : `fill-opacity="${row.chosen ? 1 : 0.55}"`);
      if (over) out += `<path d="M${r(X(p.most) - 12)} ${middle - 9}l-4 18M${r(X(p.most) - 7)} ${middle - 9}l-4 18" stroke="${c('paper')}" stroke-width="3"/>`;
    }
    out += text(x + w - 4, middle + 5, tools.esc(row.text), `class="small figure" text-anchor="end" style="paint-order:stroke;stroke:${c(row.chosen ? 'accent-soft' : 'paper')};stroke-width:3px"`);
  });
  if (p.line !== null) {
    for (const [from, to] of strips) out += `<path d="M${r(X(p.line))} ${from}V${to}" stroke="${c('ink')}" stroke-dasharray="5 4"/>`;
    const wide = tools.measure(p.lineText, 13) * 1.06, at = Math.min(Math.max(X(p.line) - wide / 2, x), x + w - wide);
    out += text(at, bottom + 18, tools.esc(p.lineText), 'class="small muted"');
  }
  return out;
}

function fit(name, width, tools) {
  if (tools.measure(name, 14) * 1.06 <= width) return name;
  let short = name;
  while (short.length > 3 && tools.measure(`${short}…`, 14) * 1.06 > width) short = short.slice(0, -1);
  return `${short}…`;
}
