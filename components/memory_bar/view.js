// The same memory twice, cell under cell: spans above, blocks below. Everything comes from data.moments[t]; the request
// whose table is open is the learner's own choice and lives in tools.local.
export const rate = 1.4;

let built;   // the player asks for the height first, and draws then

export function height(data, width, tools) {
  built = { data, width, plan: plan(data, width, tools) };
  return built.plan.height;
}

export function draw(svg, data, t, tools) {
  const p = built?.data === data && built.width === tools.width ? built.plan : plan(data, tools.width, tools);
  svg.innerHTML = markup(data, t, p, tools);
  listen(svg, tools);
  if (tools.local.byKey) svg.querySelector(`.pick[data-request="${tools.local.request}"]`)?.focus();   // the one that had the focus is gone
  tools.local.byKey = false;
}

export function says(data, t) { return data.moments[t].says; }

const r = (x) => Math.round(x * 100) / 100;
const BIG = 28, LANE = 42, TABLE_ROW = 26, TABLE_HEAD = 44;

// Everything that does not depend on the step, so that nothing jumps while it plays.
function plan(data, W, tools) {
  const narrow = W < 700, dense = data.dense, least = dense ? 5.5 : 14;
  let columns = Math.min(data.cells, 128);
  while (W / columns < least && columns % 2 === 0) columns /= 2;
  const pitch = Math.min(W / columns, 26), cell = dense ? 17 : narrow ? 34 : 40, under = dense ? 2 : 24;
  const rows = Math.ceil(data.cells / columns), bar = rows * (cell + under);
  const waits = { a: data.moments.some((m) => m.a.waiting), b: data.moments.some((m) => m.b.waiting) };
  const lane = (side) => (waits[side] ? (dense ? 24 : LANE) + (narrow ? 20 : 0) : 4);
  const said = 24 * Math.max(...data.moments.map((m) => tools.wrap(m.says, 16, W).length)), head = narrow ? 90 : 52;
  const shown = Math.min(Math.max(...data.moments.map((m) => m.b.held.length)), 12);   // requests to choose from
  const chip = 36, perRow = narrow ? Math.floor((W + 6) / (chip + 6)) : 6, chips = Math.ceil(shown / perRow) * 38;
  const left = narrow ? 0 : perRow * (chip + 6) + 30;   // the table stands beside its buttons where there is room
  const label = left + Math.max(...['logical', 'physical', 'filled'].map((key) => tools.measure(tools.words(key), 13))) + 16;
  const column = 46, fits = Math.floor((W - label) / column);
  const blocks = Math.max(1, ...data.moments.flatMap((m) => m.b.held.map((h) => h[2].length))), tiers = Math.min(Math.ceil(blocks / fits), 2);
  const y = { a: said + 14 };
  y.aBar = y.a + head + lane('a');
  y.b = y.aBar + bar + 22;
  y.bBar = y.b + head + lane('b');
  y.legend = y.bBar + bar + 12;
  const legend = narrow ? 44 : 22;
  y.table = y.legend + legend + 22;
  y.blocks = y.table + (narrow ? TABLE_HEAD + chips : 12);
  const height = Math.ceil(Math.max(y.blocks + tiers * (3 * TABLE_ROW + 12), y.table + TABLE_HEAD + chips) + 4);
  return { W, narrow, dense, columns, pitch, cell, under, rows, waits, y, chip, perRow, shown, left, label, column, fits, tiers, height };
}

function markup(data, t, p, tools) {
  const { colour: c, words, esc, measure } = tools, now = data.moments[t], before = t ? data.moments[t - 1] : null, { y, W } = p;
  const out = [], number = tools.number;
  const text = (x, at, said, more = '') => out.push(`<text x="${r(x)}" y="${r(at)}" ${more}>${esc(said)}</text>`);
  const rect = (x, at, w, h, fill, more = '') => out.push(`<rect x="${r(x)}" y="${r(at)}" width="${r(Math.max(w, 0))}" height="${r(h)}" fill="${fill}" ${more}/>`);
  const bold = (px, tone = 'ink') => `style="font-size:${px}px;font-weight:650;fill:${c(tone)}"`;

  out.push(`<defs>${hatch('memory-bar-reserved', c('reserved'), c('muted'), 0.55)}${hatch('memory-bar-refused', 'none', c('rejected'), 1)}</defs>`);
  tools.wrap(now.says, 16, W).forEach((line, i) => text(0, 18 + 24 * i, line, bold(16)));

  const chosen = choose(now, tools.local);
  section('a', now.a, before?.a);
  section('b', now.b, before?.b);
  legend();
  table(now.b, chosen);
  return out.join('');

  // ---- a bar

  function section(id, side, was) {
    const top = y[id], paged = id === 'b', name = words(paged ? 'paged' : 'reserved'), more = words(paged ? 'paged_more' : 'reserved_more', { block: data.block });
    rect(0, top, W, 1, c('hairline'));
    text(0, top + 25, name, bold(16));
    const used = words('used', { written: number(side.written), total: number(data.cells) }), taken = words('taken', { taken: number(side.taken), share: side.of_taken });
    const figure = `class="figure" style="font-size:${BIG}px;font-weight:600;letter-spacing:-.02em;fill:${c('kv')}"`, wide = measure('58.3%', BIG, 'figures') * 1.06;
    if (p.narrow) {
      text(0, top + 46, more, 'class="small muted"');
      text(0, top + 80, side.of_all, figure);
      text(wide + 10, top + 66, used, 'class="small"');
      text(wide + 10, top + 84, taken, 'class="small muted"');
    } else {
      text(measure(name, 16) * 1.08 + 12, top + 25, more, 'class="small muted"');
      const beside = Math.max(measure(used, 13), measure(taken, 13)) * 1.04 + 14;
      text(W - beside - 4, top + 33, side.of_all, `${figure} text-anchor="end"`);
      text(W - beside + 10, top + 20, used, 'class="small"');
      text(W - beside + 10, top + 38, taken, 'class="small muted"');
    }
    const at = y[`${id}Bar`];
    if (side.waiting) lane(side, at);
    free(at);
    const owned = side.held.map((h) => ({ number: h[0], written: h[1], pieces: pieces(h, paged) }));
    const earlier = new Map((was?.held ?? []).map((h) => [h[0], h[1]]));
    for (const one of owned) request(one, at, paged, earlier.has(one.number) ? earlier.get(one.number) : t ? 0 : one.written);
    if (was) for (const h of was.held) if (side.left.includes(h[0]) && !p.dense) gone(pieces(h, paged), at);
    if (!paged && !p.dense) holes(owned, at);
    if (paged && !p.dense) numbers(at);
  }

  // One piece a block, or one for a span: cells [from, from + length), the first `written` of them written.
  function pieces(h, paged) {
    if (!paged) return [{ from: h[2], length: h[3], written: h[1] }];
    return h[2].map((block, i) => ({ block, logical: i, from: block * data.block, length: data.block, written: Math.min(data.block, Math.max(0, h[1] - i * data.block)) }));
  }

  // Where cells [from, from + length) lie: a stretch a row.
  function stretches(from, length, top) {
    const found = [];
    for (let at = from; at < from + length; ) {
      const row = Math.floor(at / p.columns), end = Math.min(from + length, (row + 1) * p.columns);
      found.push({ from: at, n: end - at, x: (at - row * p.columns) * p.pitch, y: top + row * (p.cell + p.under), w: (end - at) * p.pitch });
      at = end;
    }
    return found;
  }

  function free(top) {
    for (const s of stretches(0, data.cells, top)) {
      rect(s.x, s.y, s.w, p.cell, c('free'));
      lines(s, c('hairline'));
      rect(s.x + 0.5, s.y + 0.5, s.w - 1, p.cell - 1, 'none', `stroke="${c('ghost')}" stroke-width="1"`);
    }
  }

  function lines(s, tone) {
    if (p.pitch < 7) return;
    let d = '';
    for (let i = 1; i < s.n; i++) d += `M${r(s.x + i * p.pitch)} ${r(s.y)}v${p.cell}`;
    if (d) out.push(`<path d="${d}" stroke="${tone}" stroke-width="1" fill="none" pointer-events="none"/>`);
  }

  function request(one, top, paged, earlier) {
    const lit = chosen === one.number, edge = lit ? `stroke="${c('ink')}" stroke-width="2"` : `stroke="${c('kv')}" stroke-width="1"`;
    let seen = 0;
    for (const piece of one.pieces) {
      const about = paged ? words('block_title', { n: one.number, logical: piece.logical, physical: piece.block, filled: piece.written, block: data.block })
                          : words('span_title', { n: one.number, start: piece.from, length: piece.length, written: piece.written });
      out.push(`<g data-request="${one.number}" ${paged ? `data-block="${piece.block}"` : ''}>${p.dense && data.block < 4 ? '' : `<title>${esc(about)}</title>`}`);
      const inset = paged && p.pitch * data.block > 8 ? 1.5 : 0.5;
      for (const [i, s] of stretches(piece.from, piece.length, top).entries()) {
        const n = Math.min(s.n, Math.max(0, piece.written - (s.from - piece.from))), last = s.from + s.n === piece.from + piece.length;
        const x = s.x + (i ? 0 : inset), w = s.w - (i ? 0 : inset) - (last ? inset : 0), full = Math.min(n * p.pitch - (i ? 0 : inset), w);
        const frame = (fill) => out.push(`<rect class="edge" x="${r(x + 0.5)}" y="${r(s.y + 0.5)}" width="${r(Math.max(w - 1, 0.5))}" height="${p.cell - 1}" fill="${fill}" ${edge}/>`);
        if (n === s.n) frame(c('kv'));   // one mark for a full block: there may be a thousand
        else rect(x, s.y, w, p.cell, 'url(#memory-bar-reserved)');
        if (n && n < s.n) rect(x, s.y, full, p.cell, c('kv'));
        const fresh = Math.min(n, seen + n - Math.min(earlier, seen + n));   // of these, written by this step
        if (fresh > 0 && tools.moved) rect(x + full - Math.min(fresh * p.pitch, full), s.y, Math.min(fresh * p.pitch, full), p.cell, c('paper'), 'class="new" opacity="0"');
        lines(s, c('paper'));
        if (n < s.n) frame('none');
        const label = String(one.number), size = p.dense ? 13 : 15, room = p.dense ? w : p.pitch;
        if (!i && n && measure(label, size, 'figures') < room - 2) {
          const middle = p.dense ? x + 4 : x + Math.min(p.pitch, w) / 2;
          out.push(`<text class="figure" x="${r(middle)}" y="${r(s.y + p.cell / 2 + size * 0.36)}" text-anchor="${p.dense ? 'start' : 'middle'}" pointer-events="none" style="font-size:${size}px;font-weight:650;fill:${c('paper')};paint-order:stroke;stroke:${c('kv')};stroke-width:3px">${label}</text>`);
        }
        seen += n;
      }
      out.push('</g>');
    }
    if (!paged && !p.dense) bracket(one.pieces[0], top, [words('span', { n: one.number, written: one.written, length: one.pieces[0].length }), words('span_short', { written: one.written, length: one.pieces[0].length })], lit ? 'ink' : 'muted');
  }

  // Under a stretch: a bracket, and the longest of the names that fits.
  function bracket(piece, top, names, tone) {
    const s = stretches(piece.from, piece.length, top).sort((one, other) => other.w - one.w)[0], at = s.y + p.cell + 3;
    const name = names.find((each) => measure(each, 13) * 1.04 < s.w - 2);
    out.push(`<path d="M${r(s.x + 2)} ${at}v3H${r(s.x + s.w - 2)}v-3" fill="none" stroke="${c(tone === 'ink' ? 'ink' : 'ghost')}"/>`);
    if (name) text(s.x + s.w / 2, at + 17, name, `class="small" text-anchor="middle" style="fill:${c(tone)}"`);
  }

  function holes(owned, top) {
    let at = 0;
    for (const one of [...owned.map((o) => o.pieces[0]), { from: data.cells, length: 0 }].sort((one, other) => one.from - other.from)) {
      if (one.from > at) bracket({ from: at, length: one.from - at }, top, [words('hole', { n: one.from - at }), String(one.from - at)], 'muted');
      at = one.from + one.length;
    }
  }

  function gone(list, top) {
    for (const piece of list)
      for (const s of stretches(piece.from, piece.length, top))
        rect(s.x + 3, s.y + 3, s.w - 6, p.cell - 6, 'none', `stroke="${c('muted')}" stroke-width="1.5" stroke-dasharray="4 3" pointer-events="none"`);
  }

  function numbers(top) {
    const total = Math.floor(data.cells / data.block), every = Math.ceil(26 / (p.pitch * data.block));
    for (let block = 0; block < total; block += every) {
      const s = stretches(block * data.block, data.block, top)[0];
      text(s.x + s.w / 2, s.y + p.cell + 18, block, 'class="small figure muted" text-anchor="middle"');
    }
  }

  // The request that waits, as long as it is, over the hole that is too short for it.
  function lane(side, top) {
    const [n, wanted, many] = side.waiting, holes = wanted <= side.free;
    const said = p.dense && many > 1 ? words('waits_many', { more: many, wanted, free: side.free }) : words(holes ? 'waits' : 'waits_full', { n, wanted, free: side.free, longest: side.longest });
    const rows = tools.wrap(said, 13, W), base = top - (p.dense ? 8 : 28) - 18 * (rows.length - 1);
    rows.forEach((line, i) => text(0, base + 18 * i, line, `class="small" style="font-weight:600;fill:${c('rejected')}"`));
    if (p.dense || wanted > p.columns) return;
    const owned = side.held.map((h) => [h[2], h[3]]).sort((one, other) => one[0] - other[0]);
    let start = 0, from = 0;
    for (const [first, length] of [...owned, [data.cells, 0]]) { if (first - from >= side.longest && side.longest) { start = from; break; } from = first + length; }
    const column = Math.min(start % p.columns, p.columns - wanted), x = column * p.pitch, fits = Math.min(side.longest, wanted) * p.pitch, w = wanted * p.pitch;
    rect(x, top - 20, w, 14, c('free'));
    rect(x + fits, top - 20, w - fits, 14, 'url(#memory-bar-refused)');
    rect(x + 0.75, top - 19.25, w - 1.5, 12.5, 'none', `stroke="${c('rejected')}" stroke-width="1.5"`);
  }

  function legend() {
    let x = 0, at = y.legend + 12;
    const entry = (name, fill, edge) => {
      const said = words(name), w = 20 + measure(said, 13) * 1.04 + 20;
      rect(x, at - 11, 13, 13, c('paper'));
      rect(x + 0.5, at - 10.5, 12, 12, fill, `stroke="${edge}"`);
      text(x + 20, at, said, 'class="small muted"');
      x += w;
    };
    entry('legend_written', c('kv'), c('kv'));
    entry('legend_reserved', 'url(#memory-bar-reserved)', c('kv'));
    entry('legend_free', c('free'), c('ghost'));
    const said = words(p.dense ? 'legend_number_dense' : 'legend_number');
    if (p.narrow) { x = 0; at += 22; }
    text(x, at, said, 'class="small muted"');
  }

  // ---- the block table of one request

  function table(side, chosen) {
    const top = y.table, one = side.held.find((h) => h[0] === chosen);
    rect(0, top, W, 1, c('hairline'));
    text(0, top + 25, words('table'), bold(16));
    text(measure(words('table'), 16) * 1.08 + 12, top + 25, side.held.length ? words('pick') : words('nobody'), 'class="small muted"');
    const list = side.held.slice(0, p.shown);
    if (one && !list.includes(one)) list[list.length - 1] = one;
    list.forEach((h, i) => {
      const x = (i % p.perRow) * (p.chip + 6), at = top + TABLE_HEAD - 6 + Math.floor(i / p.perRow) * 38, on = h[0] === chosen;
      out.push(`<g class="pick" role="button" tabindex="0" aria-pressed="${on}" aria-label="${esc(words('request', { n: h[0] }))}" data-request="${h[0]}">`);
      rect(x + 0.5, at + 0.5, p.chip - 1, 31, on ? c('accent') : c('paper'), `class="key" rx="4" stroke="${c('accent')}"`);
      text(x + p.chip / 2, at + 21, h[0], `class="figure" text-anchor="middle" style="fill:${c(on ? 'on-accent' : 'accent')};font-weight:600"`);
      out.push('</g>');
    });
    if (!one) return;
    const [, written, blocks] = one, most = p.fits * p.tiers, room = Math.ceil((measure(words('more', { n: 999 }), 13) * 1.06) / p.column);
    const shown = blocks.length > most ? blocks.slice(0, most - room) : blocks;
    for (let tier = 0; tier * p.fits < Math.max(shown.length, 1); tier++) {
      const at = y.blocks + tier * (3 * TABLE_ROW + 12);
      ['logical', 'physical', 'filled'].forEach((key, i) => text(p.left, at + 18 + i * TABLE_ROW, words(key), 'class="small muted"'));
      rect(p.left, at + TABLE_ROW, p.label - p.left + Math.min(shown.length - tier * p.fits, p.fits) * p.column, 1, c('hairline'));
      shown.slice(tier * p.fits, (tier + 1) * p.fits).forEach((block, i) => {
        const logical = tier * p.fits + i, x = p.label + i * p.column, filled = Math.min(data.block, written - logical * data.block), middle = x + p.column / 2 - 3;
        out.push(`<g data-block="${block}" data-request="${chosen}">`);
        out.push(`<rect class="edge" x="${r(x + 0.5)}" y="${r(at + 1.5)}" width="${p.column - 7}" height="${3 * TABLE_ROW - 2}" rx="4" fill="${c('paper')}" fill-opacity="0" stroke="none" style="pointer-events:all"/>`);
        text(middle, at + 18, logical, 'class="figure" text-anchor="middle"');
        text(middle, at + 18 + TABLE_ROW, block, 'class="figure" text-anchor="middle" style="font-weight:650"');
        const wide = p.column - 15, left = x + 4;
        rect(left, at + 7 + 2 * TABLE_ROW, wide, 14, c('paper'));
        rect(left, at + 7 + 2 * TABLE_ROW, wide, 14, 'url(#memory-bar-reserved)');
        rect(left, at + 7 + 2 * TABLE_ROW, (wide * filled) / data.block, 14, c('kv'));
        if (data.block <= 8) for (let k = 1; k < data.block; k++) rect(left + (wide * k) / data.block - 0.5, at + 7 + 2 * TABLE_ROW, 1, 14, c('paper'));
        rect(left + 0.5, at + 7.5 + 2 * TABLE_ROW, wide - 1, 13, 'none', `stroke="${c('kv')}"`);
        out.push('</g>');
      });
    }
    if (shown.length < blocks.length) text(p.label + (shown.length % p.fits) * p.column, y.blocks + (p.tiers - 1) * (3 * TABLE_ROW + 12) + 18, words('more', { n: blocks.length - shown.length }), 'class="small muted"');
  }
}

// The request whose table is open: the learner's choice while it runs, else the one with the longest table.
function choose(now, local) {
  const { held } = now.b, most = Math.max(...held.map((h) => h[2].length));
  return (held.find((h) => h[0] === local.request) ?? held.find((h) => h[2].length === most))?.[0] ?? null;
}

function hatch(id, ground, tone, opacity) {
  return `<pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${ground}"/><path d="M-1 1L1 -1M0 6L6 0M5 7L7 5" stroke="${tone}" stroke-opacity="${opacity}" stroke-width="1.2"/></pattern>`;
}

function listen(svg, tools) {
  const of = (event) => event.target.closest?.('[data-request]')?.dataset.request;
  const pick = (event) => { const n = of(event); if (n && tools.local.request !== +n) { tools.local.request = +n; tools.redraw(); } };
  svg.onclick = pick;
  svg.onkeydown = (event) => {
    if (!event.target.closest?.('.pick') || (event.key !== 'Enter' && event.key !== ' ')) return;
    event.preventDefault();
    event.stopPropagation();   // the player would play
    tools.local.byKey = true;
    pick(event);
  };
  const light = (block) => svg.querySelectorAll('[data-block]').forEach((each) => each.classList.toggle('lit', block != null && each.dataset.block === block));
  svg.onpointermove = (event) => light(event.target.closest?.('[data-block]')?.dataset.block);
  svg.onpointerleave = () => light(null);
}
