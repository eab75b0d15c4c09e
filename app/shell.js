// What the server cannot do in the browser: the document's language, progress marks (kept in this browser only, no
// account; progress() and keep() are in components/reader/keep.js), and where the card of a number opens. One instance a
// page; called again whenever its data changes.
const GAP = 8;

function remember(data) {
  const kept = progress();
  if (data.slug && !kept.visited.includes(data.slug)) kept.visited.push(data.slug);
  if (data.passed && !kept.passed.includes(data.slug)) kept.passed.push(data.slug);
  return keep(kept);
}

// Marks are style rules, not attributes: the framework redraws the links whenever it likes, a rule survives that.
function mark(kept, data) {
  let style = document.getElementById("lab-progress");
  if (!style) { style = document.createElement("style"); style.id = "lab-progress"; document.head.append(style); }
  const rule = (slug, glyph, word) => // the whole class: "-lab" is a part of every one of them
    `:is(${["chapter", "chapter-here", "branch", "branch-here"].map((kind) => `.st-key-lab-nav-${kind}-${slug}`)}) a::after{content:"${glyph}" / "${word}";}`;
  style.textContent = data.order.map((slug) =>
    kept.passed.includes(slug) ? rule(slug, "●", data.words.passed)
      : kept.visited.includes(slug) ? rule(slug, "○", data.words.visited) : "").join("\n");
}

function place(number) {
  const card = number.querySelector(".lab-card");
  if (!card) return;
  const at = number.getBoundingClientRect(), width = card.offsetWidth, height = card.offsetHeight;
  const zoom = number.currentCSSZoom || 1; // on the stage the page is enlarged
  const left = Math.max(GAP, Math.min(at.left / zoom, innerWidth / zoom - width - GAP));
  const below = at.bottom / zoom + GAP + height <= innerHeight / zoom || at.top / zoom < height + GAP;
  card.style.setProperty("--lab-x", `${left}px`);
  card.style.setProperty("--lab-y", `${below ? at.bottom / zoom : at.top / zoom - height}px`);
  card.classList.toggle("lab-above", !below);
}

function listen() {
  if (window.__labCards) return;
  window.__labCards = true;
  window.addEventListener("lab-progress", () => window.__labMark()); // marks were read from a file
  const open = () => document.querySelector(".lab-n:hover, .lab-n:focus-within");
  for (const event of ["pointerover", "focusin"])
    document.addEventListener(event, (e) => {
      const number = e.target.closest && e.target.closest(".lab-n");
      if (!number) return;
      if (!e.target.closest(".lab-card")) { number.classList.remove("lab-dismissed"); place(number); }
    });
  document.addEventListener("pointerout", (e) => {
    const number = e.target.closest && e.target.closest(".lab-n");
    if (number && !number.contains(e.relatedTarget)) number.classList.remove("lab-dismissed");
  });
  document.addEventListener("keydown", (e) => { // a card goes away without moving the pointer or the focus
    if (e.key === "Escape") document.querySelectorAll(".lab-n:hover, .lab-n:focus-within").forEach((n) => n.classList.add("lab-dismissed"));
    if (e.key === "Enter" && e.target.classList && e.target.classList.contains("lab-n")) { e.target.classList.toggle("lab-dismissed"); place(e.target); }
  });
  document.addEventListener("click", (e) => { // a link to another page of ours: here and in this session, not in a new tab
    const link = e.target.closest && e.target.closest('[data-testid="stMarkdownContainer"] a[href^="/"]');
    if (!link || e.defaultPrevented || e.button || e.ctrlKey || e.metaKey || e.shiftKey || e.altKey) return;
    const same = !link.hash && [...document.querySelectorAll('[data-testid="stSidebar"] a')].find((a) => new URL(a.href).pathname === new URL(link.href).pathname);
    e.preventDefault();
    if (same) same.click(); else location.assign(link.href);
  }, true);
  document.addEventListener("scroll", () => { const number = open(); if (number) place(number); }, { capture: true, passive: true });
}

// Presenting, following, a link to a step (app/present.js): nothing of it is loaded before it is asked for.
const stage = () => (window.__labStage ??= import(new URL("present.js", document.baseURI)));
function perform(data) {
  window.__labPage = data;
  if (!window.__labPresentKey) {
    window.__labPresentKey = true;
    document.addEventListener("keydown", (e) => {
      const at = e.composedPath()[0];
      if (e.key.toLowerCase() !== "p" || e.ctrlKey || e.metaKey || e.altKey || e.repeat || at.isContentEditable) return;
      if (/^(TEXTAREA|SELECT)$/.test(at.tagName) || (at.tagName === "INPUT" && !/^(checkbox|radio|range)$/.test(at.type))) return;
      stage().then(async (it) => { await it.page(window.__labPage); it.start(); });
    });
  }
  let follows = null;
  try { follows = sessionStorage.getItem("lab-follow"); } catch { /* storage switched off */ }
  if (window.__labStage || follows || data.slug === "follow" || /[?&](present=1|step=)/.test(location.search)) stage().then((it) => it.page(data));
}

export default function ({ data }) {
  document.documentElement.lang = data.lang;
  mark(remember(data), data);
  window.__labMark = () => mark(progress(), data);
  listen();
  perform(data);
}
