// Says that the server cannot be reached, in the reader's language, and takes it back when it can: loaded by the document itself, before
// the framework, whose own dialog is English and makes the page unreadable. Where the framework itself broke and left a white window, loads
// the page again, once: its settings are in the address. The words are attributes of the tag: data-away-zh, data-away-en, data-gone-zh, data-gone-en.
window.__streamlit = { HOST_CONFIG: { blockErrorDialogs: true } };

(() => {
  const LOOK = 500, QUIET = 20000, AGAIN = 2000, PATIENCE = 5000, GRACE = 1500, FIRST = 15000; // ms; a short break is not worth a word, and the first time takes longer
  const GONE = 1500, CALM = 60000, LOADED = 'lab-loaded-again'; // ms without the app; ms in which a page that breaks again is not loaded again
  const tag = document.currentScript;
  let bar = null, answers = true, asked = performance.now(), connected = performance.now(), grace = FIRST, shown = Infinity, broken = '';

  /** A connection that was cut far away looks open from here, so the server is asked as well. */
  async function ask() {
    asked = performance.now();
    try { answers = (await fetch('healthz', { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE) })).ok; } catch { answers = false; }
    look();
  }

  function look() {
    const now = performance.now(), app = document.querySelector('.stApp'), state = app?.dataset.testConnectionState;
    if (app) shown = now;
    else if (!broken && now - shown > GONE) recover();
    if (state === 'CONNECTED') grace = GRACE;
    if (!state || state === 'CONNECTED') connected = now;
    if (!document.hidden && now - asked > (answers ? QUIET : AGAIN)) ask();
    say(broken === 'gone' ? 'gone' : !answers || now - connected > grace ? 'away' : '');
  }

  /** ms of a clock that goes on evenly while the page is open, and across a reload of it. */
  const moment = () => performance.timeOrigin + performance.now();

  /** From a server that answers only, since the browser's own error would stand in the way; and not for ever. */
  async function recover() {
    broken = 'asking';
    await ask();
    broken = answers ? 'gone' : '';
    if (!answers) return;
    try {
      if (moment() - Number(sessionStorage.getItem(LOADED)) < CALM) return;
      sessionStorage.setItem(LOADED, moment());
    } catch { return; } // who cannot remember might do it for ever
    location.reload();
  }

  function say(what) {
    if (!bar && what) {
      bar = document.createElement('div');
      bar.className = 'lab-away';
      bar.setAttribute('role', 'status');
      document.body.append(bar);
    }
    if (!bar) return;
    const text = what && tag.getAttribute(`data-${what}-${document.documentElement.lang.slice(0, 2)}`);
    if (bar.textContent !== text) bar.textContent = text;
  }

  setInterval(look, LOOK);
  for (const event of ['offline', 'online']) addEventListener(event, ask);
})();
