// Links to lessons go through the sidebar, so that the session lives on, and then to the heading that they name.
const WAIT = 8000, LOOK = 100; // ms: how long a heading may take to appear, how often to look

function when(found, act) {
  const begun = performance.now();
  const look = () => { const it = found(); if (it) act(it); else if (performance.now() - begun < WAIT) setTimeout(look, LOOK); };
  look();
}

const plain = (text) => text.replace(/\s+/g, " ").trim();

// To a lesson, and there to the heading that the link names; without the sidebar's link the browser goes there by itself.
function follow(event) {
  const link = event.target.closest && event.target.closest("a.lab-to-lesson");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const to = new URL(link.href), heading = plain(decodeURIComponent(to.hash.slice(1)));
  const way = [...document.querySelectorAll('[data-testid="stSidebar"] a')].find((a) => new URL(a.href).pathname === to.pathname);
  event.preventDefault();
  if (!way) { location.href = link.href; return; }
  way.click();
  if (heading) when(() => [...document.querySelectorAll('[data-testid="stMain"] :is(h2, h3, h4)')].find((h) => plain(h.textContent) === heading),
    (h) => { h.scrollIntoView({ block: "start" }); setTimeout(() => h.scrollIntoView({ block: "start" }), 600); }); // instruments above it grow
}
