// The framework names its own parts in English only. Puts the page's language in their place, also for what appears later.
const ATTRIBUTES = ['aria-label', 'title', 'placeholder'];
let words = {}, asked = 0, watching = null;

function translate() {
  asked = 0;
  for (const name of ATTRIBUTES) {
    for (const node of document.querySelectorAll(`[${name}]`)) {
      const said = node.getAttribute(name), ours = node.labWords?.[name];
      const theirs = ours && ours.put === said ? ours.theirs : said, put = words[theirs];
      if (!put) { if (ours && said !== theirs) node.setAttribute(name, theirs); continue; }
      (node.labWords ??= {})[name] = { theirs, put };
      if (put !== said) node.setAttribute(name, put);
    }
  }
  const skip = document.querySelector('[data-testid=stSkipToContent]');
  if (skip && words.skip && skip.textContent !== words.skip) skip.textContent = words.skip;
}

export default function ({ data }) {
  words = data;
  translate();
  if (watching) return;
  const later = () => { asked ||= setTimeout(translate, 60); };
  watching = new MutationObserver(later);
  watching.observe(document.body, { childList: true, subtree: true, attributes: true, attributeFilter: ATTRIBUTES });
}
