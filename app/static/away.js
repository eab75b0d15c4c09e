// Says that the server cannot be reached, in the reader's language, and takes it back when it can: loaded by the document itself, before
// the framework, whose own dialog is English and makes the page unreadable. Its words are attributes of its tag, data-zh and data-en.
window.__streamlit = { HOST_CONFIG: { blockErrorDialogs: true } };

(() => {
  const LOOK = 500, QUIET = 20000, AGAIN = 2000, PATIENCE = 5000, GRACE = 1500, FIRST = 15000; // ms; a short break is not worth a word, and the first time takes longer
  const words = document.currentScript.dataset;
  let bar = null, answers = true, asked = performance.now(), connected = performance.now(), grace = FIRST;

  /** A connection that was cut far away looks open from here, so the server is asked as well. */
  async function ask() {
    asked = performance.now();
    try { answers = (await fetch('healthz', { cache: 'no-store', signal: AbortSignal.timeout(PATIENCE) })).ok; } catch { answers = false; }
    look();
  }

  function look() {
    const now = performance.now(), state = document.querySelector('.stApp')?.dataset.testConnectionState;
    if (state === 'CONNECTED') grace = GRACE;
    if (!state || state === 'CONNECTED') connected = now;
    if (!document.hidden && now - asked > (answers ? QUIET : AGAIN)) ask();
    say(!answers || now - connected > grace);
  }

  function say(away) {
    if (!bar && away) {
      bar = document.createElement('div');
      bar.className = 'lab-away';
      bar.setAttribute('role', 'status');
      document.body.append(bar);
    }
    if (!bar) return;
    const text = away ? words[document.documentElement.lang.slice(0, 2)] : '';
    if (bar.textContent !== text) bar.textContent = text;
  }

  setInterval(look, LOOK);
  for (const event of ['offline', 'online']) addEventListener(event, ask);
})();
