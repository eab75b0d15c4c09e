// One line on the contents page: how far this browser's reader is, and the marks as a file.
const FORMAT = "inference-lab-progress-1", LARGEST = 65536, MOST = 500;
const slugs = (list) => Array.isArray(list) && list.length <= MOST && list.every((s) => typeof s === "string" && /^[a-z][a-z0-9-]{0,79}$/.test(s));

// The marks in a file, or the word that says what is wrong with it.
function read(text) {
  let found;
  try { found = JSON.parse(text); } catch { return "import.not_json"; }
  if (!found || found.format !== FORMAT || !slugs(found.visited) || !slugs(found.passed)) return "import.not_ours";
  return { visited: found.visited, passed: found.passed };
}

const shown = new WeakMap();

export default function ({ data, parentElement: root }) {
  let view = shown.get(root);
  if (!view) {
    const line = document.createElement("div");
    line.className = "progress";
    line.innerHTML = '<p class="far"></p><p class="actions"><button type="button" class="out"></button><button type="button" class="in"></button>'
      + '<input type="file" accept=".json,application/json" hidden tabindex="-1"></p><p class="told" role="status"></p>';
    root.append(line);
    view = Object.fromEntries(["far", "out", "in", "told"].map((name) => [name, line.querySelector(`.${name}`)]));
    view.file = line.querySelector("input");
    shown.set(root, view);
  }
  const say = (key, values = {}) => (data.words[key] || key).replace(/\{(\w+)\}/g, (_, name) => values[name]);
  const draw = () => {
    const { visited, passed } = progress();
    const left = data.lessons.filter((each) => !passed.includes(each.slug));
    const values = { n: data.lessons.length, passed: data.lessons.length - left.length,
      read: data.lessons.filter((each) => visited.includes(each.slug) || passed.includes(each.slug)).length,
      minutes: left.reduce((sum, each) => sum + each.minutes, 0) };
    view.far.textContent = say(left.length ? "progress" : "progress_all", values);
  };
  view.out.textContent = say("export");
  view.in.textContent = say("import");
  view.file.setAttribute("aria-label", say("import"));
  view.out.onclick = () => {
    save("inference-lab-progress.json", "application/json", JSON.stringify({ format: FORMAT, ...progress() }, null, 1) + "\n");
    view.told.textContent = say("exported");
  };
  view.in.onclick = () => view.file.click();
  view.file.onchange = async () => {
    const [file] = view.file.files;
    if (!file) return;
    const found = file.size > LARGEST ? "import.not_ours" : read(await file.text().catch(() => ""));
    view.file.value = ""; // the same file can be chosen again
    view.told.classList.toggle("wrong", typeof found === "string");
    if (typeof found === "string") { view.told.textContent = say(found, { name: file.name }); return; }
    const now = progress(), both = (name) => [...new Set([...now[name], ...found[name]])];
    keep({ visited: both("visited"), passed: both("passed") });
    const known = data.lessons.map((each) => each.slug);
    view.told.textContent = say("imported", { passed: found.passed.filter((s) => known.includes(s)).length, read: found.visited.filter((s) => known.includes(s)).length });
    window.dispatchEvent(new Event("lab-progress")); // the shell draws its marks again
  };
  if (view.listener) window.removeEventListener("lab-progress", view.listener);
  view.listener = draw;
  window.addEventListener("lab-progress", draw);
  draw();
  return () => window.removeEventListener("lab-progress", view.listener);
}
