"""What an address may say to a page: a value that is possible, or a sentence. Nothing else comes of any text in any parameter.

INFERENCE_LAB_FUZZ=N multiplies the number of tries, with fresh ones each time.
"""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from streamlit.testing.v1 import AppTest

import components
from components import Html, Scene, Stage, Vega, controls, frame, ledger, live_server, player
from compute.errors import LabError
from compute.functions import plain
from tests.security.strategies import HOSTILE, TEXT

DEEPER = int(os.environ.get("INFERENCE_LAB_FUZZ", "0"))
WIDGETS = components.widgets()


class Query(dict):
    """The address as Streamlit hands it out."""

    def get_all(self, name):
        return [self[name]]

    def from_dict(self, said):
        self.clear()
        self.update({name: value[-1] if isinstance(value, list) else value for name, value in said.items()})


@pytest.fixture
def address(monkeypatch):
    """address(parameters): the page is opened under them, by a fresh visitor."""
    fake = SimpleNamespace(query_params=Query(), session_state={})
    for module in (frame, player, ledger, live_server):
        monkeypatch.setattr(module, "st", fake)

    def opened(parameters):
        fake.query_params.from_dict(parameters)
        fake.session_state.clear()
        return fake.query_params

    return opened


def told(complaints: list[LabError]) -> None:
    for complaint in complaints:
        for lang in ("zh", "en"):
            assert complaint.message(lang) and len(complaint.message(lang)) < 3_000


def shown(id: str, query: Query) -> None:
    """The instrument at this address, as frame.show has it: read, complained about, computed, drawn."""
    widget, key = WIDGETS[id], id
    base = frame._values(widget.Params())
    state = frame._state(key)
    frame._follow_url(widget, key, base, state)
    for guess in widget.guesses.values():
        if state["guess"] is not None:
            frame._possible(guess, state["guess"])
    params = frame._params(widget, key, base, state)
    told(state["complaints"])
    assert params == widget.Params(**{**base, **state["values"]})
    written = {name.removeprefix(f"{id}."): value for name, value in query.items() if name.startswith(f"{id}.")}
    assert set(written) <= {*base, "guess", "t"}, "what is no parameter stays in the address"
    try:
        view = widget.draw(widget.run(params), Scene(widget.words("zh"), "zh", "light", None, None, state["t"]))
    except LabError as refusal:
        return told([refusal])
    for picture in (view.picture, *view.beside, *view.after):
        match picture:
            case Vega(spec):
                json.dumps(plain(spec), allow_nan=False)
            case Stage(data):
                json.dumps(plain(data), allow_nan=False)
            case Html(body):
                only_ours(body)


def only_ours(body: str) -> None:
    """No element or attribute in it that runs a script."""

    class Look(HTMLParser):
        def handle_starttag(self, tag, attributes):
            assert tag not in ("script", "img", "iframe", "object", "embed", "link", "meta", "base", "form"), body[:200]
            for name, value in attributes:
                assert not name.startswith("on") and not (value or "").strip().lower().startswith(("javascript:", "data:text")), body[:200]

    Look().feed(body)


def likely(id: str) -> dict[str, st.SearchStrategy]:
    """Texts for each field: of its control, numbers in and out of its range, and whatever else."""
    found = {}
    for field in [*frame._values(WIDGETS[id].Params()), "guess", "t", "no_such"]:
        own = []
        for control in WIDGETS[id].controls:
            if getattr(control, "field", None) == field:
                match control:
                    case controls.Choice():
                        own = [str(option) for option in control.options()]
                    case controls.Range():
                        own = [f"{control.low:g}", f"{control.high:g}", f"{(control.low + control.high) / 3:g}"]
                    case controls.Stops():
                        own = [f"{stop:g}" for stop in control.stops] + [f"{control.stops[-1] * 0.77:g}"]
        found[field] = (st.sampled_from(own) if own else st.integers(-1, 10**6).map(str)) | st.integers(0, 300).map(str) | st.floats().map(str) | TEXT
    return found


@pytest.mark.parametrize("id", WIDGETS)
def test_an_instrument_takes_or_refuses_what_the_address_says(id, address):
    """Catches: a parameter, alone or with others, that ends in a traceback or in a figure that no chart can carry."""

    @settings(max_examples=5 * max(1, DEEPER), deadline=None, derandomize=not DEEPER, database=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(st.fixed_dictionaries({}, optional=likely(id)))
    def every(said):
        shown(id, address({f"{id}.{field}": text for field, text in said.items()}))

    every()


@pytest.mark.parametrize("id", WIDGETS)
def test_no_hostile_text_gets_past_a_field(id, address):
    """Catches: a field that was never tried with the texts that are known to break things."""
    widget, base = WIDGETS[id], frame._values(WIDGETS[id].Params())
    for field in [*base, "guess", "t"]:
        for text in HOSTILE.elements:
            address({f"{id}.{field}": text})
            state = frame._state(id)
            frame._follow_url(widget, id, base, state)
            frame._params(widget, id, base, state)
            told(state["complaints"])


@settings(max_examples=60 * max(1, DEEPER), deadline=None, derandomize=not DEEPER, database=None, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(["filter", "text", "kind", "outcome", "group", "prompt", "tokens", "temperature", "n", "model", "no_such"]), TEXT, max_size=4))
def test_the_desk_and_the_live_page_read_any_address(said):
    """Catches: a filter or a form that an address takes down."""
    for module in (ledger, live_server):
        found, complaints = module._checked(said)
        told(complaints)
        assert found is not None


# ---- whole pages

HOSTILE_PAGES = [
    ("", {"lang": "<img src=x onerror=alert(1)>"}), ("", {"lesson": "<img src=x onerror=alert(1)>"}), ("", {"lesson": "\x00" * 40 + "a" * 5_000}), ("", {"lesson": "../../etc"}),
    ("planted", {"present": "<b>", "step": "</script>", "follow": "javascript:alert(1)"}),
    ("planted", {"kv-stepper.text": "<img src=x onerror=alert(1)>", "kv-stepper.t": "9" * 5_000, "tokenizers.text": "\U0001f468\u200d", "temperature.text": "</script>"}),
    ("planted", {"<b>.<i>": "1", "kv-stepper.<b>": "2", "kv-stepper.guess": "<b>", "no.such": "[x](javascript:alert(1))"}),
    ("check", {"check.text": "<img src=x>", "check.kind": "<b>", "ledger.text": "(" * 300, "ledger.no": "1"}),
    ("live", {"live-server.prompt": "<img src=x>", "live-server.tokens": "1e400", "live-server.model": "../x"}),
    ("glossary", {"q": "<b>", "find": "(" * 99}), ("judged", {"judged.of": "<b>", "judged.t": "-1"}),
]  # fmt: skip


@pytest.mark.parametrize("page,said", HOSTILE_PAGES, ids=str)
def test_a_page_opens_at_any_address(page, said, monkeypatch, fresh_streamlit):
    """Catches: a page that an address takes down, and text of the address that comes back as markup."""
    from app import lesson
    from tests.conftest import ROOT

    monkeypatch.setattr(lesson, "LESSONS", ROOT / "tests" / "security" / "lessons")
    monkeypatch.setenv("INFERENCE_LAB_COMPUTE", "http://127.0.0.1:9")
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=120)
    for name, text in (({"lesson": page} if page else {}) | said).items():
        at.query_params[name] = text
    at.run()
    assert not at.exception, at.exception[0].value
    bodies = [block.proto.body for block in at.get("html")]
    assert bodies, "nothing is on the page"
    for body in bodies:
        if not body.lstrip().startswith("<style"):
            only_ours(body)
    for block in at.markdown:
        assert "onerror" not in block.value and "javascript:" not in block.value
