// A random name for this browser, so that whoever wrote a note can find and delete it without an account.
const NAME = "inference-lab-browser";

function own() {
  const ours = /^[0-9a-f]{32}$/;
  let kept = window.__labBrowser || "";
  try { kept = localStorage.getItem(NAME) || kept; } catch { /* storage switched off */ }
  if (!ours.test(kept)) kept = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
  window.__labBrowser = kept; // without storage it lasts as long as the page
  try { localStorage.setItem(NAME, kept); } catch { /* as above */ }
  return kept;
}

export default function ({ data, setStateValue }) {
  const name = own();
  if (data.known !== name) setTimeout(() => setStateValue("id", name), 0); // what is sent while mounting can be lost
}
