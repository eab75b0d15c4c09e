// One ruler of learners, and under it what they need on scales of its own: a machine is full at its dot, and every further one is a tooth.
const BAR = 20, ROW = 74, AXIS = 74, NEAR = 14, TOOTH = 4;   // px; TOOTH: closer teeth are left out
const r = (x) => Math.round(x * 100) / 100;
const line = (d, tone, more = '') => `<path d="${d}" fill="none" stroke="${tone}" ${more}/>`;
const halo = (c) => `paint-order:stroke;stroke:${c('paper')};stroke-width:4px;stroke-linejoin:round`;

export function height(data, width, tools) { return plan(data, width, tools).height; }

export function draw(svg, data, t, tools) {
  const { local } = tools;
  if (local.data !== data) Object.assign(local, { data, at: local.moving ? local.at : data.at });   // an answer to an earlier move comes late
  const p = plan(data, tools.width, tools);
  svg.innerHTML = axis(data, p, tools) + upright(data, p, tools) + data.rows.map((row, i) => scale(row, p.rows[i], data, p, tools)).join('') + cursor(data, p, tools) + legend(data, p, tools);
  const { x0, x1, foot, value, X } = p;
  tools.slide({ field: 'learners', at: data.at, ends: data.domain, value, on: (steps) => value(X(local.at) + steps * (x1 - x0) / 40), takes: (x, y) => x >= x0 - NEAR && x <= x1 + NEAR && y <= foot });
}

function plan(data, W, tools) {
  const wide = W >= 760, x0 = wide ? 296 : 10, x1 = W - (wide ? 176 : 12), [low, high] = data.domain, noted = [];
  let y = AXIS;
  const rows = data.rows.map((row) => {
    const note = tools.wrap(row.note, 13, wide ? x0 - 28 : W), above = wide ? 0 : 24 + 17 * note.length, bar = y + above + (wide ? 22 : 26);
    noted.push(note);
    const it = { y, note, bar };
    y = wide ? y + Math.max(ROW, 30 + 17 * note.length) : bar + BAR + 34;
    return it;
  });
  const marks = ['measured', ...(data.rows.some((row) => row.estimate) ? ['estimate', 'bound'] : []), ...(data.was || data.rows.some((row) => row.was) ? ['before'] : [])];
  const said = tools.wrap(tools.words('tried', { n: data.tried.toLocaleString('en-US') }), 13, W - 32);
  let x = 0, at = y + 16;
  const legend = marks.map((id) => {
    const wide_ = 26 + tools.measure(tools.words(`mark.${id}`), 13) * 1.05 + 22;
    if (x && x + wide_ > W) { x = 0; at += 22; }
    x += wide_;
    return { id, x: x - wide_, y: at };
  });
  const along = (n) => Math.log(n / low) / Math.log(high / low), X = (n) => x0 + Math.min(1, Math.max(0, along(n))) * (x1 - x0);
  const value = (px) => { const n = low * (high / low) ** Math.min(1, Math.max(0, (px - x0) / (x1 - x0))); return Math.min(high, Math.max(low, +n.toPrecision(2))); };
  return { wide, x0, x1, W, X, value, rows, foot: y, legend, said, saidAt: at + 24, height: at + 24 + 17 * said.length };
}

// Three significant digits, as everywhere.
function digits(v) {
  if (!v) return '0';
  const whole = Math.floor(Math.log10(Math.abs(v))) + 1;
  return v.toLocaleString('en-US', { minimumFractionDigits: Math.max(0, 3 - whole), maximumFractionDigits: Math.max(0, 3 - whole) });
}
const prefixed = (v, unit, least = '') => {
  const [name, factor] = [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]].find(([, f]) => v >= 0.9995 * f) ?? [least, 1];
  return [digits(v / factor), name + unit];
};

// What so many learners need on a row: [figure, unit].
function need(row, at) {
  if (row.kind === 'memory') return prefixed(Math.ceil(at / row.web - 1e-9) * row.base + at * row.each, 'B');
  if (row.kind === 'rate') return prefixed(at * row.each, 'bit/s');
  const n = row.full ? at / row.full : 0, count = row.kind === 'whole' && n ? Math.ceil(n - 1e-9) : n;
  return [row.kind === 'whole' ? count.toLocaleString('en-US') : digits(count), row.units[count === 1 ? 0 : 1]];
}

function axis(data, p, tools) {
  const c = tools.colour, [low, high] = data.domain, y = AXIS - 26;
  let out = p.wide ? tools.wrap(tools.words('axis'), 13, p.x0 - 28).map((said, n) => `<text x="0" y="${y + 4 + 17 * n}" class="small muted">${tools.esc(said)}</text>`).join('')
                   : `<text x="0" y="14" class="small muted">${tools.esc(tools.words('axis'))}</text>`;
  out += line(`M${p.x0} ${y}H${p.x1}`, c('muted'));
  out += line(`M${p.x0} ${y}H${r(p.X(data.tried))}`, c('ink'), 'stroke-width="5"');
  let end = -1e9;
  for (let e = low; e <= high; e *= 10) for (const k of [1, 3]) {
    const n = e * k, x = p.X(n);
    if (n > high) continue;
    out += line(`M${r(x)} ${y}v${k === 1 ? 7 : 4}`, c('muted'));
    const said = n.toLocaleString('en-US'), half = tools.measure(said, 13, 'figures') / 2, at = Math.min(Math.max(x, half), p.W - half);
    if ((k === 3 && !p.wide) || at - half < end + 8) continue;
    out += `<text x="${r(at)}" y="${y + 21}" class="small figure muted" text-anchor="middle">${said}</text>`;
    end = at + half;
  }
  for (let e = low; e <= high; e *= 10) out += line(down(p.X(e), p), c('grid'));
  return out;
}

// Down through all rows; where names stand over the bars, through the bars only.
const down = (x, p) => (p.wide ? `M${r(x)} ${AXIS - 26}V${p.foot - 8}` : p.rows.map(({ bar }) => `M${r(x)} ${bar - 6}V${bar + BAR + 6}`).join(''));

function upright(data, p, tools) {
  const c = tools.colour;
  return (data.was ? line(down(p.X(data.was), p), c('ghost'), 'stroke-width="1.5" stroke-dasharray="4 3"') : '') + line(down(p.X(tools.local.at), p), c('ink'), 'stroke-width="1.5"');
}

function scale(row, at, data, p, tools) {
  const c = tools.colour, here = tools.local.at, { X, x0, x1, wide } = p, top = at.bar, middle = top + BAR / 2, [figure, unit] = need(row, here), bold = 'font-weight="650"';
  let out = line(`M0 ${at.y}H${p.W}`, c('hairline'));
  const nameY = wide ? at.y + 26 : at.y + 22;
  out += `<text x="0" y="${nameY}" ${bold}>${tools.esc(row.name)}</text>` + at.note.map((said, n) => `<text x="0" y="${nameY + 19 + 17 * n}" class="small muted">${tools.esc(said)}</text>`).join('');
  const size = wide ? 24 : 20, fy = wide ? middle + 8 : nameY + 2, big = `class="figure" style="font-size:${size}px;font-weight:600;letter-spacing:-.02em"`;
  if (wide) out += `<text x="${x1 + 22}" y="${fy}" ${big}>${figure}</text><text x="${r(x1 + 30 + tools.measure(figure, size, 'figures'))}" y="${fy}" class="small muted">${tools.esc(unit)}</text>`;
  else {
    const room = tools.measure(unit, 13) * 1.04;
    out += `<text x="${r(p.W - room - 7)}" y="${fy}" ${big} text-anchor="end">${figure}</text><text x="${r(p.W - room)}" y="${fy}" class="small muted">${tools.esc(unit)}</text>`;
  }
  out += line(`M${x0} ${top + BAR}H${x1}`, c('muted'));
  let end = -1e9;
  for (const [n, said] of row.scale) {
    if (n < data.domain[0] || n > data.domain[1]) continue;
    const half = tools.measure(said, 13, 'figures') / 2, x = X(n), lx = Math.min(Math.max(x, half), p.W - half);
    out += line(`M${r(x)} ${top + BAR}v6`, c('muted'));
    if (lx - half < end + 10) continue;
    out += `<text x="${r(lx)}" y="${top + BAR + 20}" class="small figure muted" text-anchor="middle" style="${halo(c)}">${said}</text>`;
    end = lx + half;
  }
  if (!row.units) {   // a plain scale: no machine that could be full
    out += `<rect x="${x0}" y="${top + 7}" width="${r(X(here) - x0)}" height="${BAR - 7}" fill="${c('reserved')}"/>`;
    return out;
  }
  if (!row.full) return out;
  const dot = X(row.full), now = X(here), tone = c(row.tone);
  out += `<rect x="${x0}" y="${top}" width="${r(Math.max(0, Math.min(dot, now) - x0))}" height="${BAR}" fill="${tone}" opacity=".22"/>`;
  if (now > dot) {
    out += `<rect x="${r(dot)}" y="${top}" width="${r(now - dot)}" height="${BAR}" fill="${tone}"/>`;
    let teeth = '', before = dot;
    for (let k = 2; row.full * k < here; k++) {
      const x = X(row.full * k);
      if (x - before < TOOTH) break;
      teeth += `M${r(x)} ${top}v${BAR}`;
      before = x;
    }
    if (teeth) out += line(teeth, c('paper'), 'stroke-width="1.2"');
  }
  if (row.was) out += mark(X(row.was), middle, 'before', c);
  if (row.bound) out += mark(X(row.bound), middle, 'bound', c);
  out += mark(dot, middle, row.estimate ? 'estimate' : 'measured', c, tone);
  const edge = row.full < data.domain[0] ? '← ' : row.full > data.domain[1] ? '→ ' : '', said = edge + digits(row.full) + (row.first ? ` ${tools.words('first')}` : '');
  const half = tools.measure(said, 13) * 0.54, lx = Math.min(Math.max(dot, half), p.W - half);
  return out + `<text x="${r(lx)}" y="${top - 6}" class="small" ${row.first ? bold : ''} text-anchor="middle" style="${halo(c)}">${tools.esc(said)}</text>`;
}

// A dot where one is full: measured solid, estimated as a ring, the ideal bound grey and dashed, the state before hollow.
function mark(x, y, id, c, tone = c('ink')) {
  const look = {
    measured: `fill="${tone}" stroke="${c('paper')}" stroke-width="2"`,
    estimate: `fill="${c('paper')}" stroke="${tone}" stroke-width="3.5"`,
    bound: `fill="${c('paper')}" stroke="${c('bound')}" stroke-width="2" stroke-dasharray="3 2"`,
    before: `fill="${c('paper')}" fill-opacity=".6" stroke="${c('ghost')}" stroke-width="1.5"`,
  }[id];
  const ground = id === 'estimate' ? `<circle cx="${r(x)}" cy="${r(y)}" r="10" fill="${c('paper')}"/>` : '';   // a bar of its own colour may be behind it
  return `${ground}<circle cx="${r(x)}" cy="${r(y)}" r="${id === 'before' ? 5 : id === 'estimate' ? 6 : 7}" ${look}/>`;
}

function legend(data, p, tools) {
  const c = tools.colour;
  const sign = (id, x, y) => (id === 'before' && data.was ? line(`M${r(x)} ${y - 8}v16`, c('ghost'), 'stroke-width="1.5" stroke-dasharray="4 3"') : mark(x, y, id, c));
  return p.legend.map(({ id, x, y }) => sign(id, x + 9, y - 4) + `<text x="${r(x + 24)}" y="${y}" class="small muted">${tools.esc(tools.words(`mark.${id}`))}</text>`).join('')
    + line(`M2 ${p.saidAt - 4}h14`, c('ink'), 'stroke-width="5"') + p.said.map((said, n) => `<text x="24" y="${p.saidAt + 17 * n}" class="small muted">${tools.esc(said)}</text>`).join('');
}

// ---- the class

function cursor(data, p, tools) {
  const { local, colour: c } = tools, x = p.X(local.at), y = AXIS - 26, said = tools.words('here', { n: local.at.toLocaleString('en-US') });
  const hint = local.used ? '' : `← ${tools.words('drag')} →`, half = tools.measure(said, 14) * 0.56 + tools.measure(hint, 13) / 2 + 6, lx = Math.min(Math.max(x, half + 2), p.W - half - 2);
  const out = `<text x="${r(lx)}" y="${y - 15}" font-weight="650" text-anchor="middle" style="${halo(c)}">${tools.esc(said)}<tspan class="small" font-weight="400" dx="10" fill="${c('accent')}">${tools.esc(hint)}</tspan></text>`;
  return out + `<circle class="handle" cx="${r(x)}" cy="${y}" r="9" fill="${c('accent')}" stroke="${c('paper')}" stroke-width="2" style="cursor:ew-resize" tabindex="0" role="slider"
    aria-valuemin="${data.domain[0]}" aria-valuemax="${data.domain[1]}" aria-valuenow="${local.at}" aria-valuetext="${tools.esc(said)}" aria-label="${tools.esc(tools.words('axis'))}"/>`;
}
