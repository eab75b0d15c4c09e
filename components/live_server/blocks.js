// KV memory: a square for each block. Filled as far as it holds tokens; what is only cached is a frame; own blocks have a thick one.
const SQUARE = { most: 18, least: 5, height: 260, gap: 2 };
const NOBODY = { owners: 0, cells: 0 };

function grid(blocks, width) {
  for (let size = SQUARE.most; ; size--) {
    const columns = Math.max(1, Math.floor(width / (size + SQUARE.gap))), even = columns >= 32 ? columns - (columns % 16) : columns;
    const rows = Math.ceil(blocks / even);
    if (size <= SQUARE.least || rows * (size + SQUARE.gap) <= SQUARE.height) return { size, columns: even, rows, height: rows * (size + SQUARE.gap) };
  }
}

function drawBlocks(p, seen, own, width) {
  const { size, columns } = grid(seen.blocks, width), cached = new Set(seen.cached), pitch = size + SQUARE.gap;
  for (let block = 0; block < seen.blocks; block++) {
    const x = (block % columns) * pitch, y = Math.floor(block / columns) * pitch, { owners, cells } = seen.blockOf.get(block) ?? NOBODY, mine = own.has(block);
    p.box(x, y, size, size, 'free');
    if (owners) {
      const full = Math.round((size * cells) / seen.block_size);
      if (full < size) p.hatch(x, y, size, size - full, 'ghost', 4);
      p.box(x, y + size - full, size, full, 'kv');
      if (owners > 1) several(p, x, y, size, owners);
    } else if (cached.has(block)) {
      p.frame(x, y, size, size, 'kv', size > 9 ? 1.5 : 1);
      if (size > 9) p.box(x + size / 2 - 1.5, y + size / 2 - 1.5, 3, 3, 'kv');
    }
    if (mine) p.frame(x - 1, y - 1, size + 2, size + 2, 'ink', size > 9 ? 2.5 : 2);
  }
}

function several(p, x, y, size, owners) {
  if (size < 13) return p.box(x + size / 2 - 1, y + size / 2 - 1, 2.5, 2.5, 'paper');
  p.text(x + size / 2, y + size / 2 + 0.5, String(owners), 'paper', { align: 'center', bold: true, px: 13, figures: true });
}

function blockAt(seen, px, py, width) {
  const { size, columns } = grid(seen.blocks, width), pitch = size + SQUARE.gap, column = Math.floor(px / pitch), block = Math.floor(py / pitch) * columns + column;
  return column < columns && block >= 0 && block < seen.blocks ? block : null;
}
