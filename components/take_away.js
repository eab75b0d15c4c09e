// What a learner takes away from an instrument: its address, its data, its picture.
async function copy(text) {
  try { await navigator.clipboard.writeText(text); } catch {   // plain http on a LAN has no clipboard API
    const area = document.createElement('textarea');
    area.value = text; document.body.append(area); area.select(); document.execCommand('copy'); area.remove();
  }
}

const cell = (v) => { const s = v == null ? '' : typeof v === 'object' ? JSON.stringify(v) : String(v); return /[",\n]/.test(s) ? `"${s.replace(/"/g, '""')}"` : s; };
function csv(rows) {
  const names = [...new Set(rows.flatMap((r) => Object.keys(r)))];
  return [names.join(','), ...rows.map((r) => names.map((n) => cell(r[n])).join(','))].join('\n') + '\n';
}

function save(name, type, content) {
  const a = document.createElement('a');
  a.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  a.download = name; a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

// A canvas as it looks on the page: on its ground, which it does not have by itself.
function ground(node) {
  for (let n = node; n; n = n.parentElement || n.getRootNode().host) {
    const c = getComputedStyle(n).backgroundColor;
    if (c && c !== 'transparent' && !/, 0\)$/.test(c)) return c;
  }
  return 'white';
}
function canvasCopy(canvas) {
  const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
  const g = copy.getContext('2d');
  g.fillStyle = ground(canvas); g.fillRect(0, 0, copy.width, copy.height); g.drawImage(canvas, 0, 0);
  return copy;
}
