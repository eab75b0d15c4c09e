// A candidate a row; from left to right what happens to it: guessed and checked, drawn again, both together, and counted.
const LABEL = 13, BAR = 0.62, LEAST = { one: 120, two: 108, three: 104 }, TICKS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1];

let built;   // the player asks for the height first, and draws then

export function height(data, width, tools) {
  built = build(data, { ...tools, width });
  return built.height;
}

export function draw(picture) {
  picture.innerHTML = built.markup;
}

function build(data, tools) {
  const { colour, measure, words } = tools, W = tools.width, narrow = W < 760;
  const r = (x) => Math.round(x * 100) / 100, row = narrow ? 19 : 20, gap = narrow ? 16 : 28;
  const out = [], text = (x, y, said, more = '') => out.push(`<text x="${r(x)}" y="${r(y)}" ${more}>${tools.esc(said)}</text>`);
  const rect = (x, y, w, h, fill, more = '') => w > 0.05 && out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(w)}" height="${r(h)}" fill="${fill}" ${more}/>`);
  const path = (d, tone, more = '') => out.push(`<path d="${d}" fill="none" stroke="${tone}" ${more}/>`);
  const rows = data.rows, n = rows.length, deep = n * row + 6;   // the rest stands a little apart
  const top = (i) => i * row + (rows[i].rest ? 6 : 0);

  const most = { one: peak((o) => Math.max(o.p, o.q)), two: peak((o) => o.second), three: peak((o) => Math.max(o.p, o.output, ...(o.old ? [o.old.p] : []))) };
  const longest = narrow ? 78 : 120, label = Math.min(longest, Math.max(...rows.map((o) => measure(o.name, LABEL) * 1.05))) + 10;
  let wide, scale;
  if (narrow) {
    scale = fit(['one', 'two'], W - label - gap);
    scale = Math.min(scale, (W - label - gap - 120) / most.three);
    wide = { one: W - label - gap - Math.max(LEAST.two, scale * most.two), two: Math.max(LEAST.two, scale * most.two), three: Math.max(LEAST.three, scale * most.three) };
    wide.four = W - label - gap - wide.three;
  } else {
    const four = Math.round(W * 0.26);
    scale = fit(['one', 'two', 'three'], W - label - four - 3 * gap);
    wide = Object.fromEntries(['one', 'two', 'three'].map((id) => [id, Math.max(LEAST[id], scale * most[id])]));
    wide.four = W - label - 3 * gap - wide.one - wide.two - wide.three;
  }
  const step = TICKS.find((s) => s * scale >= 46) ?? 1;

  let y = data.waiting ? notice(0) : 0;
  y = narrow ? block(['three', 'four'], block(['one', 'two'], y) + 26) : block(['one', 'two', 'three', 'four'], y);
  return { height: y, markup: defs() + out.join('') };

  function peak(of) { return Math.max(0.01, ...rows.map(of)) * 1.02; }

  // Pixels per unit of probability, the same in all columns; a column too narrow for its heading gets its least width.
  function fit(ids, room) {
    let free = ids;
    for (;;) {
      const fixed = ids.filter((id) => !free.includes(id)), s = (room - fixed.reduce((a, id) => a + LEAST[id], 0)) / free.reduce((a, id) => a + most[id], 0);
      const small = free.filter((id) => most[id] * s < LEAST[id]);
      if (!small.length || small.length === free.length) return s;
      free = free.filter((id) => !small.includes(id));
    }
  }

  function notice(y) {
    const lines = wrap(words('waiting'), 14, W - 14);
    rect(0, y + 2, 3, 21 * lines.length + 4, colour('accent'));
    lines.forEach((line, i) => text(12, y + 18 + 21 * i, line));
    return y + 21 * lines.length + 18;
  }

  function block(ids, y) {
    const at = {};
    let x = label;
    for (const id of ids) { at[id] = x; x += wide[id] + gap; }
    const heads = ids.map((id) => head(id, at[id], y)), first = Math.max(...heads) + 8;
    rows.forEach((o, i) => text(label - 8, first + top(i) + row / 2 + 4.5, cut(o.name, label - 8), `class="small ${o.rest ? 'muted' : ''}" text-anchor="end"`));
    for (const id of ids) (id === 'four' ? counted : bars)(id, at[id], first);
    rows.forEach((o, i) => out.push(`<rect class="overlay-row" x="0" y="${r(first + top(i))}" width="${W}" height="${row}"><title>${tools.esc(o.tip)}</title></rect>`));
    return first + deep + 44;
  }

  function head(id, x, y) {
    const room = wide[id] + (id === 'four' ? 0 : gap - 8), s = data.says, lines = wrap(words(id, s), 14.6, room);
    lines.forEach((line, i) => text(x, y + 16 + 19 * i, line, 'font-weight="650"'));
    y += 16 + 19 * lines.length;
    const note = (said, tone, weight = 600) => { for (const line of wrap(said, 13.6, room)) { text(x, y, line, `class="small" style="fill:${colour(tone)};font-weight:${weight}"`); y += 18; } };
    if (id === 'one') y = shares(x, y + 4, room, s);
    if (id === 'two') note(data.never ? words('never') : words(`second_${data.rule}`), 'residual');
    if (id === 'three') note(data.rule === 'resample-from-p' && !data.never ? words('off', s) : words('exact'), data.rule === 'resample-from-p' && !data.never ? 'rejected' : 'accepted');
    if (id === 'four') { note(s.verdict, s.agrees ? 'accepted' : 'rejected', 700); note(words('band'), 'target', 500); }
    return y - 8;
  }

  // What the areas add up to: green, and hatched. Returns where it ends.
  function shares(x, y, room, s) {
    const both = [['kept', 'accepted'], ['refused', 'rejected']], size = (what) => measure(words(what), 14.6) + measure(s[what], 19, 'figures') * 1.05 + 28, two = size('kept') + size('refused') > room;
    for (const [i, [what, tone]] of both.entries()) {
      const at = two ? [x, y + 22 * i] : [x + i * size('kept'), y];
      out.push(`<text x="${r(at[0])}" y="${r(at[1])}" style="fill:${colour(tone)};font-weight:650">${tools.esc(words(what))}<tspan class="figure" dx="6" style="font-size:19px">${s[what]}</tspan></text>`);
    }
    return y + (two ? 40 : 18);
  }

  function bars(id, x, y) {
    const bar = row * BAR, inset = (row - bar) / 2, end = x + wide[id];
    for (let v = 0; v * scale <= wide[id] + 0.5; v += step) {
      path(`M${r(x + v * scale)} ${y}v${deep}`, colour(v ? 'grid' : 'muted'));
      const name = v === 0 ? '0' : `${+(v * 100).toPrecision(3)}%`;
      if (v === 0 || x + v * scale + measure(name, 13) / 2 < end + gap / 2) text(x + v * scale, y + deep + 17, name, `class="small figure muted" text-anchor="middle"`);
    }
    text(x, y + deep + 35, words('axis'), 'class="small"');
    rows.forEach((o, i) => {
      const v = y + top(i) + inset;
      if (id === 'two') { rect(x, v, o.second * scale, bar, 'url(#overlay-again)'); rect(x, v, o.second * scale, bar, 'none', `stroke="${colour('residual')}"`); return; }
      rect(x, v, o.kept * scale, bar, colour('accepted'));
      if (id === 'one') {
        rect(x + o.kept * scale, v, (o.q - o.kept) * scale, bar, 'url(#overlay-refused)');
        rect(x, v, o.q * scale, bar, 'none', `stroke="${colour('draft')}" stroke-width="1.6"`);
      } else {
        rect(x + o.kept * scale, v, (o.output - o.kept) * scale, bar, 'url(#overlay-again)');
        rect(x + o.kept * scale, v, (o.output - o.kept) * scale, bar, 'none', `stroke="${colour('residual')}"`);
      }
    });
    if (id === 'two') return;
    const line = (of) => rows.map((o, i) => `${i && !o.rest ? 'L' : 'M'}${r(x + of(o) * scale)} ${r(y + top(i))}v${row}`).join('');
    if (id === 'one' && data.ghost && rows.some((o) => o.old && Math.abs(o.old.p - o.p) > 1e-9)) path(line((o) => o.old?.p ?? o.p), colour('ghost'), 'stroke-width="1.5" stroke-dasharray="3 3"');
    path(line((o) => o.p), colour('target'), 'stroke-width="2.5" stroke-linejoin="round"');
    if (id === 'one') names(x, y);
  }

  // p is named at the top of its line, q at the end of the draft's longest bar.
  function names(x, y) {
    const p = words('p', data.says), q = words('q', data.says), halo = `paint-order:stroke;stroke:${colour('paper')};stroke-width:4px;stroke-linejoin:round;font-weight:650`;
    const i = rows.reduce((best, o, k) => (o.rest || o.q <= rows[best].q ? best : k), 0), room = x + wide.one + gap - 6, ends = [Math.max(rows[0].p, rows[0].q), rows[i].q].map((v) => x + v * scale);
    const fits = [p, q].map((name, k) => ends[k] + 7 + measure(name, 13.8) < room), under = i + 1 < n && ends[1] - measure(q, 13.8) > x + Math.max(rows[i + 1].p, rows[i + 1].q) * scale + 4;
    const say = (at, line, name, tone, anchor) => text(at, y + line, name, `class="small" text-anchor="${anchor}" style="fill:${colour(tone)};${halo}"`);
    if (fits[0]) say(ends[0] + 7, row / 2 + 4.5, p, 'target', 'start');
    else say(x + rows[0].p * scale - 6, 1.5 * row + 4.5, p, 'target', 'end');
    const below = i === 0 ? (fits[0] ? row : 2 * row) + row / 2 + 4.5 : under ? top(i) + row + 11 : top(i) - 2;
    if (i && fits[1]) say(ends[1] + 7, top(i) + row / 2 + 4.5, q, 'draft', 'start');
    else say(ends[1], below, q, 'draft', 'end');
  }

  function counted(id, x, y) {
    const reach = Math.asinh(Math.max(data.farthest, data.band * 1.6) * 1.15 / 2), middle = x + wide.four / 2, arm = wide.four / 2 - 7;
    const X = (z) => middle + arm * Math.max(-1, Math.min(1, Math.asinh(z / 2) / reach));
    rect(X(-data.band), y, X(data.band) - X(-data.band), deep, colour('target'), 'fill-opacity=".16"');
    for (const z of [-data.band, data.band]) path(`M${r(X(z))} ${y}v${deep}`, colour('target'), 'stroke-opacity=".55"');
    const ticks = [0, 3, 10, 30, 100, 300, 1000].filter((z) => Math.asinh(z / 2) < reach * 0.98);
    let free = Infinity;   // the outermost tick has its number first: that is where a bias lies
    for (const z of ticks.reverse()) {
      const at = X(z), half = measure(`+${z}`, 13, 'figures') / 2, said = z === 0 || (at + half < free && at - half > middle + 12);
      for (const side of z ? [-1, 1] : [1]) {
        path(`M${r(X(side * z))} ${y}v${deep}`, colour(z ? 'grid' : 'muted'));
        if (said) text(X(side * z), y + deep + 17, z ? `${side < 0 ? '−' : '+'}${z}` : '0', 'class="small figure muted" text-anchor="middle"');
      }
      if (said) free = at - half - 6;
    }
    text(x + wide.four, y + deep + 35, words('errors'), 'class="small" text-anchor="end"');
    rows.forEach((o, i) => {
      const v = y + top(i) + row / 2;
      if (data.ghost && o.old && o.old.z !== null && o.z !== null && Math.abs(o.old.z - o.z) > 1e-9) out.push(`<circle cx="${r(X(o.old.z))}" cy="${r(v)}" r="4" fill="none" stroke="${colour('ghost')}" stroke-width="1.5"/>`);
      if (o.z === null) { out.push(`<circle cx="${r(middle)}" cy="${r(v)}" r="2.5" fill="none" stroke="${colour('muted')}"/>`); return; }
      const at = X(o.z);
      if (Math.abs(o.z) <= data.band) { out.push(`<circle cx="${r(at)}" cy="${r(v)}" r="4.5" fill="${colour('accepted')}" stroke="${colour('paper')}"/>`); return; }
      path(`M${r(X(Math.sign(o.z) * data.band))} ${r(v)}H${r(at)}`, colour('rejected'), 'stroke-width="1.5"');
      out.push(`<path d="M${r(at)} ${r(v - 6)}l6 6l-6 6l-6 -6z" fill="${colour('rejected')}" stroke="${colour('paper')}"/>`);
    });
  }

  function defs() {
    const hatch = (id, tone, lines) => `<pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${colour(tone)}" fill-opacity=".13"/><path d="${lines}" stroke="${colour(tone)}" stroke-width="1.3"/></pattern>`;
    return `<defs><style>.overlay-row { fill: transparent } .overlay-row:hover { fill: ${colour('ink')}; fill-opacity: .06 }</style>
      ${hatch('overlay-refused', 'rejected', 'M-1 7L7 -1M-1 1L1 -1M5 7L7 5')}${hatch('overlay-again', 'residual', 'M0 0L6 6M0 6L6 0')}</defs>`;
  }

  function cut(name, room) {
    while (name.length > 1 && measure(name, LABEL) > room) name = name.replace(/…$/, '').slice(0, -1) + '…';
    return name;
  }

  function wrap(said, px, room) {   // at spaces, and anywhere between Han characters, never before closing punctuation
    const pieces = said.match(/[\u2e80-\uffef][，。；：、）？！”]*|[^\s\u2e80-\uffef]+[，。；：、）？！”]*\s*|\s+/g) || [], lines = [''];
    for (const piece of pieces) {
      if (measure(lines.at(-1) + piece.trimEnd(), px) * 1.07 > room && lines.at(-1)) lines.push('');
      lines[lines.length - 1] += piece;
    }
    return lines.map((line) => line.trim());
  }
}
