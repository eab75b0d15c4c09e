// A block for each tokenizer: its tokens as pieces that wrap, and a bar of the characters that a second's tokens come to.
const r = (x) => Math.round(x * 100) / 100;
const strong = 'font-weight="650"', GAP = 2, MOST_LINES = { wide: 6, narrow: 9 }, BAR = 20, PIECE = 15, HEX = 13;
let built;   // the player asks for the height first, and draws then

export const says = (data) => data.says;

export function height(data, width, tools) {
  built = build(data, { ...tools, width });
  return built.height;
}

export function draw(svg) {
  svg.innerHTML = built.markup;
}

// Groups in lines: a group is one token, or the tokens that only together make whole characters and so stay together.
function inLines(row, ids, width, most, measure) {
  const lines = [[]];
  let x = 0, shown = 0;
  for (const [characters, tokens] of row.groups) {
    const bytes = tokens.length > 1, parts = tokens.map(([piece, id, hex]) => {
      const said = bytes ? piece.replace(/[⟨⟩]/g, '') : piece;
      return { said, id, hex, wide: Math.max(18, measure(said, bytes ? HEX : PIECE, bytes ? 'figures' : 'sans') + 10, ids ? measure(`${id}`, 13, 'figures') + 8 : 0) };
    });
    const wide = parts.reduce((sum, part) => sum + part.wide + GAP, 0);
    if (x && x + wide > width) {
      if (lines.length === most) break;
      x = 0;
      lines.push([]);
    }
    lines.at(-1).push({ characters, parts, bytes, x });
    x += wide;
    shown += tokens.length;
  }
  return { lines, rest: row.count - shown };
}

function build(data, tools) {
  const { colour: c, words, esc, measure, wrap, width: W } = tools, wide = W >= 760, out = [], left = wide ? Math.round(W * 0.6) : W;
  const bars = { x: wide ? left + 36 : 0, w: wide ? W - left - 36 : W }, chip = data.ids ? 42 : 26;
  const text = (x, y, said, more = '') => out.push(`<text x="${r(x)}" y="${r(y)}" ${more}>${esc(said)}</text>`);
  const rect = (x, y, w, h, fill, more = '') => out.push(`<rect x="${r(x)}" y="${r(y)}" width="${r(Math.max(0, w))}" height="${r(h)}" fill="${fill}" ${more}/>`);
  const most = Math.max(...data.rows.flatMap((row) => [row.speed, row.ghost ?? 0])) || 1, label = Math.max(...data.rows.map((row) => measure(row.says, 16, 'figures') + measure(row.unit, 13))) + 18;
  const long = (speed) => (speed / most) * (bars.w - label);
  let dark = false;   // neighbours differ

  out.push(`<defs><pattern id="tokenizers-lossy" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${c('paper')}"/><path d="M0 6L6 0" stroke="${c('rejected')}" stroke-opacity=".7" stroke-width="1.2"/></pattern></defs>`);
  text(0, 18, words('cut'), strong);
  const title = wrap(words('speed', { at: data.at }), 14, bars.w - (wide ? 0 : 20));
  if (!wide) rect(0, 27, 13, 13, c('decode'));
  title.forEach((line, n) => text(wide ? bars.x : 20, 18 + 20 * (n + !wide), line, strong));
  let y = 32 + 20 * (title.length - wide);
  for (const row of data.rows) y = block(row, y);
  for (const gone of data.missing) y = missing(gone, y);
  return { height: Math.ceil(y + 4), markup: out.join('') };

  function block(row, top) {
    rect(0, top, W, 1, c('hairline'));
    let at = heading(row, top + 26) + 14;
    const { lines, rest } = inLines(row, data.ids, left, wide ? MOST_LINES.wide : MOST_LINES.narrow, measure);
    for (const line of lines) { line.forEach((group) => pieces(group, at)); at += chip + (line.some((group) => group.bytes) ? 25 : 6); }
    if (rest > 0) { text(0, at + 12, words('more', { n: tools.number(rest) }), 'class="small muted"'); at += 22; }
    for (const line of row.note ? wrap(row.note, 13, left) : []) { text(0, at + 12, line, 'class="small muted"'); at += 19; }
    bar(row, wide ? top + 32 : at + 4);
    return (wide ? Math.max(at, top + 80) : at + BAR + 30) + 10;
  }

  function heading(row, at) {
    const name = measure(row.name, 16) * 1.08 + 12, vocabulary = measure(row.vocabulary, 13) * 1.05, counted = measure(row.counted, 14) * 1.05, one = name + vocabulary + 16 + counted <= left;
    text(0, at, row.name, `${strong} style="font-size:16px"`);
    text(name, at, row.vocabulary, 'class="small muted"');
    text(one ? left : 0, one ? at : at + 23, row.counted, one ? 'text-anchor="end"' : '');
    return one ? at : at + 23;
  }

  function pieces(group, top) {
    let x = group.x;
    for (const { said, id, hex, wide: w } of group.parts) {
      const hint = words('id', { id, bytes: hex }) + (group.bytes ? words('part', { of: group.characters }) : '');
      dark = !dark;
      out.push(`<g><title>${esc(hint)}</title>`);
      rect(x + 0.5, top + 0.5, w - 1, chip - 1, c(group.bytes ? 'paper' : 'decode'), group.bytes ? `rx="3" stroke="${c('decode')}" stroke-dasharray="3 2"` : `rx="3" fill-opacity="${dark ? 0.3 : 0.15}"`);
      text(x + w / 2, top + 18, said, `text-anchor="middle" ${group.bytes ? 'class="small figure"' : `style="font-size:${PIECE}px"`}`);
      if (data.ids) text(x + w / 2, top + 36, id, 'text-anchor="middle" class="small figure"');
      out.push('</g>');
      x += w + GAP;
    }
    if (group.bytes) bracket(group.characters, group.x + 1, x - GAP - 1, top + chip + 3);
  }

  function bracket(characters, from, to, y) {
    const middle = (from + to) / 2, half = measure(characters, 14) / 2 + 4;
    out.push(`<path d="M${r(from)} ${y - 1}v6H${r(Math.max(from, middle - half))}M${r(Math.min(to, middle + half))} ${y + 5}H${r(to)}v-6" fill="none" stroke="${c('muted')}"/>`);
    text(middle, y + 10, characters, 'text-anchor="middle"');
  }

  function bar(row, at) {
    const w = long(row.speed), old = row.ghost === null ? 0 : long(row.ghost);
    rect(bars.x, at, w, BAR, row.lossless ? c('decode') : 'url(#tokenizers-lossy)');
    if (old) rect(bars.x + 0.5, at - 2.5, old - 1, BAR + 5, 'none', `stroke="${c('ghost')}" stroke-width="1.5"`);
    const end = bars.x + Math.max(w, old) + 8;
    text(end, at + 15, row.says, `${strong} class="figure" style="font-size:16px"`);
    text(end + measure(row.says, 16, 'figures') * 1.02 + 5, at + 15, row.unit, 'class="small"');
    text(bars.x, at + BAR + 20, row.less, 'class="small muted"');
  }

  function missing(gone, top) {
    rect(0, top, W, 1, c('hairline'));
    text(0, top + 26, gone.name, `${strong} style="font-size:16px;fill:${c('muted')}"`);
    const lines = wrap(gone.why, 14, left);
    lines.forEach((line, n) => text(0, top + 50 + 20 * n, line, 'class="muted"'));
    return top + 50 + 20 * lines.length;
  }
}
