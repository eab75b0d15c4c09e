"""Markup planted wherever a learner, an operator or a foreign server can put a text, in a real Chromium: it stays text."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import outbound, visit, wait_idle
from tests.meter import fake
from tests.security.conftest import MARKUP

SECONDS = 60_000
TEXT = f"{MARKUP}</script></svg><svg onload=alert(2)>[x](javascript:alert(3))![y](http://evil.example/y.png){{{{7*7}}}}"
PROMPTS = ["kv-stepper.text", "tokenizers.text", "temperature.text", "truncation-explorer.text", "overlay.text", "replay.text", "greedy-stepper.text", "sharing.text",
           "low-rank.text", "moe-router.sentence"]  # fmt: skip
WATCH = """() => { window.violations = []; addEventListener('securitypolicyviolation', (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`)); }"""
FOUND = """() => {
  const found = [], look = (root) => {
    for (const node of root.querySelectorAll('*')) {
      if (node.shadowRoot) look(node.shadowRoot);
      for (const { name, value } of node.attributes) {
        if (/^on/i.test(name) && /alert/.test(value) || /^(href|src|action|xlink:href)$/i.test(name) && /^\\s*javascript:|evil\\.example|^x$/i.test(value)) found.push(node.outerHTML.slice(0, 120));
      }
    }
  };
  look(document);
  return found;
}"""


@pytest.fixture
def page(chromium, lab):
    """page(path): opened at `lab`; .dialogs is what popped up."""
    pages = []

    def opened(path: str):
        page = visit(chromium, lab.url, path, lang="en")
        page.dialogs = []
        page.on("dialog", lambda dialog: (page.dialogs.append(dialog.message), dialog.dismiss()))
        page.evaluate(WATCH)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.context.close()


def harmless(page) -> None:
    wait_idle(page)
    assert page.evaluate(FOUND) == []
    assert not page.dialogs and page.evaluate("() => violations") == [] and not outbound(page)
    assert not [line for line in page.problems if "Content Security Policy" in line], page.problems
    assert not re.search(r"Traceback|File \"", page.locator("body").inner_text())


@pytest.fixture
def hostile(lab):
    """An endpoint of the operator's list that lists a model and answers nothing but markup."""

    async def answer(request):
        if request.path.endswith("/models"):
            yield fake.plain(200, {"data": [{"id": TEXT}]})
        else:
            yield fake.plain(400, {"error": {"message": TEXT}})

    with fake.Fake(answer) as server:
        lab.endpoints.write_text(f'["{MARKUP}"]\nurl = "{server.url}"\n', encoding="utf-8")
        yield server
        lab.endpoints.write_text("", encoding="utf-8")


def test_what_a_learner_types_and_an_endpoint_says_stays_text(page, lab, hostile):
    """Catches: a text that becomes an element, an attribute, a link or a picture of another host: in a drawing, a sentence, Markdown."""
    said = {name: TEXT[:200 if name != "low-rank.text" else 100] for name in PROMPTS} | {f"<b>{MARKUP}": MARKUP, "endpoint-meter.endpoint": MARKUP, "endpoint-meter.requests": "4"}
    seen = page("/planted?" + "&".join(f"{quote(name)}={quote(text)}" for name, text in said.items()))
    harmless(seen)
    assert seen.get_by_text(MARKUP).count() >= 3, "the text is nowhere to be seen, so nothing was tried"

    seen.locator(".st-key-endpoint-meter-run button").click()
    expect(seen.locator(".st-key-instrument-endpoint-meter .lab-ledger, .st-key-instrument-endpoint-meter .lab-complaint").first).to_be_visible(timeout=SECONDS)

    seen.locator(".st-key-lab-prose-question textarea").fill(TEXT)
    seen.locator("[class*='st-key-question-keep'] button").click()
    expect(seen.locator(".lab-note").first).to_contain_text(MARKUP, timeout=SECONDS)
    harmless(seen)


def test_the_live_page_shows_texts_and_names_of_models_as_they_are(page):
    """Catches: a prompt, what a model wrote after it, or a model's name in models.toml that becomes an element."""
    seen = page(f"/live?live-server.prompt={quote(TEXT)}")
    expect(seen.locator(".live .prompt")).to_have_value(TEXT, timeout=SECONDS)
    assert MARKUP in seen.locator(".live select[name=model]").inner_text(), "the operator's model is not offered, so its name was not tried"
    seen.locator(".live .ask button[type=submit], .live .ask button").first.click()
    expect(seen.locator(".live .texts")).to_contain_text(MARKUP, timeout=SECONDS)
    harmless(seen)


def test_planted_markup_would_be_found(page):
    """Catches: a search that never finds anything, and a policy that lets an inline handler or another host through."""
    seen = page("/glossary")
    seen.evaluate("(markup) => document.body.insertAdjacentHTML('beforeend', markup + '<img src=http://evil.example/y.png>')", MARKUP)
    seen.wait_for_function("() => violations.length >= 2")
    assert len(set(seen.evaluate(FOUND))) == 2 and not seen.dialogs
    assert {line.split(" ")[0] for line in seen.evaluate("() => violations")} >= {"img-src"}
