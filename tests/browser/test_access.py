"""What every page owes to readers who use the keyboard, a screen reader, or a narrow or magnified window.

Each address that exists is opened with every guess skipped: axe-core looks at it (at its contrasts in the dark too), it is made as
narrow as a phone and as wide as a laptop at 200 %, and what its instruments offer to take away is taken away. docs/access.md says what is promised, and what is not.
"""

from __future__ import annotations

import csv
import io
import json
import os
import xml.etree.ElementTree as ElementTree
from importlib import resources
from pathlib import Path

import pytest

from app import lesson, shell
from tests.browser.conftest import fresh_page, leave, sideways, wait_idle

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
STANDARD = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
SERIOUS = ("serious", "critical")
PAGES = ["", *shell.slugs()]
# Each page takes half a minute in a browser without a graphics card: all of them in both languages when INFERENCE_LAB_EVERY is set,
# otherwise every page in one of the two.
EVERY = bool(os.environ.get("INFERENCE_LAB_EVERY"))
VISITS = [(slug, lang) for at, slug in enumerate(PAGES) for lang in (("zh", "en") if EVERY else ("zh", "en")[at % 2 : at % 2 + 1])]
NARROW = (390, 720, 360)  # a phone; 1440 px at 200 %, and at 400 %
SECONDS = 120_000  # ms; generous, as a busy machine draws slowly
AT_ONCE = 10  # downloads of one page, after which Chromium asks the reader before the next

INSIDE = """function* inside(node) { yield node; for (const c of node.children || []) yield* inside(c); if (node.shadowRoot) yield* inside(node.shadowRoot); }
const shown = (node) => node.checkVisibility?.({ visibilityProperty: true }) && node.getClientRects().length > 0;"""
# Nothing is a placeholder any more, and every instrument that is open has a picture.
DRAWN = (
    "() => {"
    + INSIDE
    + """
  const frames = [...document.querySelectorAll('[class*="st-key-instrument-"]')];
  const drawn = (frame) => [...inside(frame)].some((n) => n.matches?.('canvas, svg[data-picture], svg.marks') && n.getBoundingClientRect().width > 100);
  return !document.querySelector('.stApp [data-testid=stSkeleton]') && frames.every((f) => f.querySelector('[class*="st-key-guess-"], .lab-refused') || drawn(f));
}"""
)


def skipped(slug: str) -> str:
    """The address of a page whose guesses are all behind it."""
    if slug not in {entry.slug for entry in lesson.existing()}:
        return f"/{slug}"
    text = lesson.load(slug, "zh")
    instruments = [part for part in text.parts if isinstance(part, lesson.Instrument)]
    return f"/{slug}?" + "&".join(f"{key}.guess=skip" for key, part in zip(text.keys(), instruments) if "guess" in part.preset)


def drawn(page):
    page.wait_for_function(DRAWN, timeout=SECONDS)
    wait_idle(page, SECONDS / 1000)
    return page


def enter(chromium, url: str, path: str, lang: str):
    """A page in a context of its own, once all of it is drawn."""
    page = fresh_page(chromium, reduced_motion="reduce")
    page.set_default_timeout(SECONDS)
    page.goto(f"{url}{path}{'&' if '?' in path else '?'}lang={lang}")
    wait_idle(page, SECONDS / 1000)
    return drawn(page)


@pytest.fixture()
def opened(chromium, server):
    pages = []

    def open(path: str, lang: str):
        pages.append(enter(chromium, server.url, path, lang))
        return pages[-1]

    yield open
    for page in pages:
        leave(page)


@pytest.fixture(scope="module", params=VISITS, ids=lambda p: f"{p[0] or 'home'}-{p[1]}")
def page(request, chromium, server):
    slug, lang = request.param
    opened = enter(chromium, server.url, skipped(slug), lang)
    opened.lang = lang
    yield opened
    leave(opened)


def violations(page, rules: dict | None = None) -> list[str]:
    """What axe-core calls serious or critical: rule, place, reason."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    only = rules or {"type": "tag", "values": STANDARD}
    found = page.evaluate("only => axe.run(document, { runOnly: only, resultTypes: ['violations'] })", only)["violations"]
    return [f"{v['id']} ({v['impact']}) {n['target']} {n['html'][:120]} {n['failureSummary']}" for v in found if v["impact"] in SERIOUS for n in v["nodes"]]


# ---- every page


def test_axe_finds_nothing_serious(page):
    """Catches: a control without a name, a picture without one, text too pale for its ground, roles that do not fit together, a
    wrong language of the document, a target too small to be hit."""
    assert page.evaluate("document.documentElement.lang") == {"zh": "zh-CN", "en": "en"}[page.lang]
    assert not (found := violations(page)), "\n".join(found)


def test_contrast_holds_in_the_dark(page):
    if EVERY and page.lang == "zh":
        pytest.skip("colours do not depend on the language")
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    try:
        page.wait_for_function("() => getComputedStyle(document.querySelector('.stApp')).backgroundColor === 'rgb(20, 23, 28)'")
        drawn(page)
        assert not (found := violations(page, {"type": "rule", "values": ["color-contrast"]})), "\n".join(found)
    finally:
        page.emulate_media(color_scheme="light", reduced_motion="reduce")


def test_nothing_is_lost_when_the_window_is_narrow_or_magnified(page):
    """Catches: a page that must be scrolled sideways to be read."""
    if EVERY and page.lang == "zh":
        pytest.skip("Latin words are the ones that do not break")
    try:
        for width in NARROW:
            page.set_viewport_size({"width": width, "height": 844})
            for _ in range(20):  # charts draw anew a moment later
                if sideways(page) <= 0:
                    break
                page.wait_for_timeout(100)
            assert sideways(page) <= 0, f"{page.url} at {width} px scrolls sideways by {sideways(page)} px"
    finally:
        page.set_viewport_size({"width": 1440, "height": 1000})


def test_every_instrument_gives_its_data_and_its_picture(page):
    """Catches: a button that does nothing, an empty file, a picture without its name."""
    if EVERY and page.lang == "zh":
        pytest.skip("the files are the same in either language")
    drawn(page)
    for frame in page.locator("[class*=st-key-instrument-]").all():
        if frame.locator(".lab-refused").count():
            continue
        head = frame.locator(".head").first
        name = head.locator("h4").inner_text()
        head.locator("[data-id=data]").click()
        rows = json.loads(saved(page, head.locator("[data-id=json]"), ".json"))
        table = list(csv.DictReader(io.StringIO(saved(page, head.locator("[data-id=csv]"), ".csv").decode("utf-8-sig"))))
        assert rows and len(table) == len(rows) and set(table[0]) == {key for row in rows for key in row}, name
        picture = saved(page, head.locator("[data-id=picture]"), "")
        if picture.startswith(b"\x89PNG"):
            assert len(picture) > 2_000, name
        else:
            root = ElementTree.fromstring(picture)
            space = "{http://www.w3.org/2000/svg}"
            assert root.findtext(f"{space}title") == name and root.findtext(f"{space}desc") and float(root.get("width")) > 300, name
            assert sum(1 for _ in root.iter()) > 10, name


def saved(page, button, ending: str) -> bytes:
    page.taken = getattr(page, "taken", 0)
    if page.taken and page.taken % AT_ONCE == 0:
        button.click()  # nobody is there to answer, and after a while it is as if nothing had been asked
        page.wait_for_timeout(8_000)
    with page.expect_download(timeout=SECONDS) as waiting:
        button.click()
    assert waiting.value.suggested_filename.endswith(ending)
    page.taken += 1
    return Path(waiting.value.path()).read_bytes()


# ---- the referee itself


def test_the_referee_sees_what_is_wrong_also_inside_a_component(opened):
    """Catches: a test that passes because axe looks at nothing, or stops at the components' shadow roots."""
    page = opened("/", "en")
    assert not violations(page)
    page.evaluate("""() => {
      const host = document.createElement('div');
      host.attachShadow({ mode: 'open' }).innerHTML = '<button></button><canvas role="img"></canvas>';
      document.querySelector('[data-testid=stMain]').append(host);
      document.querySelector('.lab-lead').style.color = '#ccc';
    }""")
    found = " ".join(violations(page))
    assert all(rule in found for rule in ("button-name", "color-contrast", "role-img-alt")), found


# ---- by keyboard and by ear

FOCUSED = (
    "() => {"
    + INSIDE
    + """
  let node = document.activeElement;
  while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
  if (!node || node === document.body) return null;
  window.__visited ??= new Set();
  const again = window.__visited.has(node);
  window.__visited.add(node);
  const rings = (n) => { const s = getComputedStyle(n); return (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0) || s.boxShadow !== 'none'; };
  const near = [node];   // where a framework hides the input itself, what stands for it wears the ring
  for (let up = node, i = 0; up && i < 4; i++, up = up.parentElement) near.push(up, ...(node.tagName === 'INPUT' ? up.children : []));
  return { again, ring: near.some((n) => n && rings(n)), what: node.outerHTML.slice(0, 160) };
}"""
)
NOT_VISITED = (
    "() => {"
    + INSIDE
    + """
  const pressed = 'a[href], button, input, select, textarea, summary, [tabindex="0"]';
  const radios = (n) => n.getAttribute('role') === 'radio' || n.type === 'radio';   // one Tab a group, then arrows
  return [...inside(document.body)].filter((n) => n.matches?.(pressed) && n.tabIndex >= 0 && !n.disabled && !radios(n) && shown(n) && !n.closest('[inert]')
    && !window.__visited.has(n)).map((n) => n.outerHTML.slice(0, 160));
}"""
)


def test_a_lesson_can_be_walked_through_by_keyboard(opened):
    """Catches: a control that Tab never reaches, a place where Tab gets stuck, a focus that nobody sees."""
    page = opened(skipped("roofline"), "en")
    seen = []
    for _ in range(600):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at is None or at["again"]:
            break
        seen.append(at)
    assert len(seen) > 100
    left = page.evaluate(NOT_VISITED)
    assert not left, f"{len(left)} never reached:\n" + "\n".join(left)
    blind = [at["what"] for at in seen if not at["ring"]]
    assert not blind, f"{len(blind)} without a ring:\n" + "\n".join(blind)


HEAR = (
    "() => {"
    + INSIDE
    + """
  window.__heard = [];
  for (const node of [...inside(document.body)].filter((n) => n.matches?.('[role=status], [role=alert], [aria-live=polite]')))
    new MutationObserver(() => { if (node.textContent.trim()) window.__heard.push(node.textContent.trim()); }).observe(node, { childList: true, characterData: true, subtree: true });
}"""
)


def test_a_change_is_said_once_and_says_what_is_seen_now(opened):
    """Catches: silence after a control moved, the same said twice (by the picture, the sentence and the player), seven instruments
    that speak when one changed."""
    page = opened(skipped("roofline"), "en")
    page.wait_for_timeout(1000)
    page.evaluate(HEAR)
    ledger = page.locator(".st-key-instrument-time-ledger")
    before = ledger.locator(".lab-says").inner_text()
    ledger.locator("input[type=range]").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.st-key-instrument-time-ledger .lab-says').innerText !== before", arg=before)
    wait_idle(page)
    page.wait_for_function("() => window.__heard.length")
    page.wait_for_timeout(1000)
    assert page.evaluate("window.__heard") == [ledger.locator(".lab-says").inner_text()]


def test_the_framework_speaks_the_pages_language(opened):
    """Catches: English names of the framework's own parts on a Chinese page, and Chinese ones left after the switch."""
    page = opened(skipped("roofline"), "zh")
    names = "() => [...document.querySelectorAll('[data-testid=stSidebar], [data-testid=stSidebar] button, [role=combobox] ~ button')].map((n) => n.getAttribute('aria-label')).filter(Boolean)"
    page.wait_for_function("() => document.querySelector('[data-testid=stSkipToContent]').textContent === '跳到正文'")
    assert page.evaluate(names) and not [name for name in page.evaluate(names) if name.isascii()]
    page.get_by_text("English", exact=True).click()
    page.wait_for_function("() => document.documentElement.lang === 'en'")
    wait_idle(page)
    page.wait_for_function("() => document.querySelector('[data-testid=stSkipToContent]').textContent === 'Skip to the text'")
    assert page.evaluate(names) and all(name.isascii() for name in page.evaluate(names))
