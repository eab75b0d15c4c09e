// Progress marks, kept in this browser only: which lessons were opened, which quizzes were passed.
const STORE = "inference-lab-progress";

function progress() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORE) || "{}");
    const list = (found) => (Array.isArray(found) ? found : []);
    return { visited: list(kept.visited), passed: list(kept.passed) };
  } catch { // storage switched off, or written by something else
    return { visited: [], passed: [] };
  }
}

function keep(marks) {
  try { localStorage.setItem(STORE, JSON.stringify(marks)); } catch { /* private mode: marks last as long as the page */ }
  return marks;
}
