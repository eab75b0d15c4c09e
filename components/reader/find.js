// The field above the glossary. What does not match is hidden by a style rule: the framework redraws the page whenever it
// likes, and a rule survives that. when() and follow() are in lead.js.

function rules(hidden, aimed) {
  let style = document.getElementById("lab-found");
  if (!style) { style = document.createElement("style"); style.id = "lab-found"; document.head.append(style); }
  style.textContent = hidden.map((id) => `#${CSS.escape(id)}{display:none}`).join("")
    + (aimed ? `#${CSS.escape(aimed)} .lab-term-name strong{background:var(--lab-accent-soft)}` : "");
}

// The framework writes the language into an address that lacks it, and forgets what stood behind the #.
function opened() {
  const [entry] = performance.getEntriesByType("navigation");
  const address = entry && new URL(entry.name);
  return address && address.pathname === location.pathname ? address.hash : "";
}

const shown = new WeakMap();

export default function ({ data, parentElement: root }) {
  let view = shown.get(root);
  if (!view) {
    const box = document.createElement("div");
    box.className = "find";
    box.innerHTML = '<label><span></span><input type="search" autocomplete="off" spellcheck="false" maxlength="80"></label><p role="status"></p>';
    root.append(box);
    view = { label: box.querySelector("span"), field: box.querySelector("input"), told: box.querySelector("p"), aimed: "" };
    shown.set(root, view);
  }
  const ids = Object.keys(data.texts);
  const draw = () => {
    const asked = view.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = ids.filter((id) => asked.every((word) => data.texts[id].includes(word)));
    const empty = Object.entries(data.groups).filter(([, of]) => !of.some((id) => found.includes(id))).map(([id]) => id);
    rules([...ids.filter((id) => !found.includes(id)), ...empty], view.aimed);
    view.told.textContent = (found.length ? data.words.found : data.words.found_none)
      .replace("{found}", found.length).replace("{n}", ids.length).replace("{asked}", view.field.value);
  };
  const aim = () => { // an address such as /glossary#kv-cache, or a link between terms
    const id = decodeURIComponent((location.hash || opened()).slice(1));
    if (!ids.includes(id)) return;
    view.aimed = id;
    view.field.value = "";
    draw();
    when(() => document.getElementById(id), (term) => term.scrollIntoView({ block: "start" }));
  };
  view.label.textContent = data.words.find;
  view.field.oninput = () => { view.aimed = ""; draw(); };
  view.field.onkeydown = (e) => { if (e.key === "Escape") { view.field.value = ""; view.field.oninput(); } };
  if (view.aim) window.removeEventListener("hashchange", view.aim); else aim();
  view.aim = aim;
  window.addEventListener("hashchange", aim);
  document.addEventListener("click", follow, true); // the same function: once, however often this is called
  draw();
  return () => { window.removeEventListener("hashchange", view.aim); document.removeEventListener("click", follow, true); rules([], ""); };
}
