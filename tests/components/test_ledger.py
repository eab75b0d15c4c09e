"""The ledger: its rows against the sources of all numbers, its words, and a recomputation against a service of toys."""

import json
import re
import shutil
import tomllib
from pathlib import Path

import pytest

from components import ledger
from components.ledger import recompute
from components.ledger.rows import KINDS, VERDICTS, outcomes, rows, shown, version
from components.text import load_words
from compute import facts, measures, numbers, precompute, verify
from compute.claims import CLAIMS
from compute.errors import BadInput, Busy, Unavailable
from compute.service.schema import Conditions, Progress, Result
from tests.test_verify import again_as_stored

HERE = Path(ledger.__file__).parent
TEXT = tomllib.loads((HERE / "text.toml").read_text(encoding="utf-8"))


def words(lang="en"):
    return load_words(HERE / "text.toml", lang)


@pytest.fixture()
def store(tmp_path, monkeypatch):
    """A copy of the committed store to spoil."""
    path = tmp_path / "precomputed.json"
    shutil.copy(precompute.STORE, path)
    shutil.copytree(precompute.STORE.parent / "precomputed", tmp_path / "precomputed")
    monkeypatch.setattr(precompute, "STORE", path)
    return path


def found(lang="en"):
    return {row["key"]: row for row in rows(words(lang), version())[0]}


# ---- rows


def test_every_number_that_prose_may_name_has_a_row():
    """Catches a source of numbers that the reviewers' table leaves out."""
    have = found()
    assert {name.lstrip("=~") for name in numbers.names()} <= set(have)
    assert set(CLAIMS) | set(precompute.stored()) | {key for job in measures.jobs() for key in job.keys} <= set(have)
    assert sum(row["group"] == "runs" for row in have.values()) == len(facts.public_runs())


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_a_row_says_where_its_number_comes_from(lang):
    """Catches a number without formula, measure or source, a value that was rounded, and labels in the other language."""
    for key, row in found(lang).items():
        assert row["kind"] in KINDS and row["verdict"] in VERDICTS, key
        if "value" not in row:
            assert row["verdict"] == "unchecked" and row["reason"], key
            continue
        assert row["shown"] and (row.get("how") or row["source"]["title"]), key
        if key in precompute.stored() and row["kind"] != "timing":
            assert row["value"] == precompute.stored()[key]["value"] and row["tolerance"], key
        if row["kind"] in ("computed", "measured") and lang == "zh":
            assert re.search(r"[\u4e00-\u9fffα-ω，：]", row["says"]), f"{key}: {row['says']}"
    json.dumps(list(found(lang).values()), allow_nan=False)


def test_ours_stand_before_quoted_ones_in_groups():
    """Catches a group that is torn apart, which would be drawn twice."""
    order = [row["group"] for row in found().values()]
    assert order == sorted(order, key=list(dict.fromkeys(order)).index) and order[0] == "roofline" and order[-1] == "runs"


@pytest.mark.parametrize("lang", ["zh", "en"])
def test_every_group_has_a_name(lang):
    """Catches: the numbers of a new lesson under the first word of their keys, in English on a Chinese page."""
    assert [group for group in {row["group"] for row in found(lang).values()} if not words(lang).get(f"group.{group}")] == []


def test_a_reference_is_shown_with_its_reason(store):
    """Catches a published figure of somebody else's model that hides behind ours."""
    data = json.loads(store.read_text(encoding="utf-8"))
    entry = data["entries"]["mini-256.parameters"]
    entry["reference"] = {"value": 3.7e6, "where": "the notes", "why_different": {"zh": "词表不同", "en": "another vocabulary"}}
    store.write_text(json.dumps(data), encoding="utf-8")
    assert found()["mini-256.parameters"]["reference"] == {"shown": "3.700 M", "value": 3.7e6, "where": "the notes", "why": "another vocabulary"}
    assert found("zh")["mini-256.parameters"]["reference"]["why"] == "词表不同"


def test_an_edited_entry_is_red_before_any_recomputation(store):
    """Catches a desk that only looks at what it recomputed, and an old verdict kept for a file that has changed since."""
    key, other = "anchor.decode_bound", "anchor.ridge"
    entries = precompute.stored()
    seen = {k: (entries[k], verify.judge(k, entries[k], again_as_stored(k, entries[k]))) for k in (key, other)}
    assert {k: o["verdict"] for k, o in outcomes(words(), seen).items()} == {key: "agrees", other: "agrees"}
    data = json.loads(store.read_text(encoding="utf-8"))
    data["entries"][key]["conditions"]["formula"] += " "
    store.write_text(json.dumps(data), encoding="utf-8")
    told = outcomes(words(), seen)
    assert {k: o["verdict"] for k, o in told.items()} == {key: "differs", other: "agrees"} and "edited" in told[key]["reason"]
    data["entries"][key]["seal"] = precompute.seal(data["entries"][key])  # stored anew: what was seen of the old one is over
    store.write_text(json.dumps(data), encoding="utf-8")
    assert set(outcomes(words(), seen)) == {other}


def test_a_broken_store_costs_only_its_own_rows(store):
    """Catches a page that fails as a whole."""
    store.write_text("{", encoding="utf-8")
    have, broken = rows(words(), version())
    assert [type(each).__name__ for each in broken] == ["BrokenData"] and have and {row["kind"] for row in have} <= {"quoted", "timing"}
    assert outcomes(words(), {}) == {}


@pytest.mark.parametrize("value,unit,text", [
    (65.3686, "token/s", "65.37 token/s"), ([0.85, 0.9], "ratio", "85.00 – 90.00%"), ([1, 2, 3, 4, 5], "token id", "[1, 2, 3, 4, …] (5)"), ("a", "", "a"), (True, "", "True"),
])  # fmt: skip
def test_values_of_every_shape_are_shown(value, unit, text):
    """Catches a list or text that the number formatter cannot print."""
    assert shown(value, unit, "en") == text


# ---- words


def test_words_are_the_same_in_both_languages():
    """Catches an untranslated word, one that the table asks for and nobody wrote, and half-width marks in Chinese."""
    zh, en = words("zh").table, words("en").table
    assert set(zh) == set(en)
    source = (HERE / "table.js").read_text(encoding="utf-8")
    asked = set(re.findall(r"'((?:view|verdict|kind)\.\w+)'", source)) | {"title", "help"}
    asked |= {f"verdict.{v}" for v in (*VERDICTS, "now")} | {f"kind.{k}" for k in KINDS} | {f"tolerance.{t}" for t in precompute.TOLERANCES}
    assert asked <= set(zh), asked - set(zh)
    han = r"[\u4e00-\u9fff]"
    assert not re.findall(rf"{han}[,:;?!]|[,:;?!]{han}|{han}\(|\){han}", json.dumps(TEXT["zh"], ensure_ascii=False))


# ---- a recomputation


@pytest.fixture()
def service(monkeypatch, store):
    """A service that answers with what is stored; `service.calls` what was asked, `service.raises` errors to raise first."""
    from types import SimpleNamespace

    state = SimpleNamespace(calls=[], raises=[], after=None)

    def run(function, params, *, timeout, learner):
        state.calls.append(params["keys"])
        assert function == "verify.recompute" and learner == "somebody"
        if state.raises:
            raise state.raises.pop(0)
        yield Progress(0.5, params["keys"][0], 0.1)
        if state.after:
            state.after(len(state.calls))
        entries = precompute.stored()
        numbers = [vars(again_as_stored(k, entries[k])) for k in params["keys"]]
        yield Result({"numbers": numbers}, Conditions("cpu", "m", "3", None, 1, None, 0.1, "2026-01-01"))

    monkeypatch.setattr(recompute.client, "run", run)
    return state


def finished(run):
    run.wait(30)
    standing = run.look()
    assert not standing.running
    return standing


def test_a_recomputation_finds_everything(service):
    """Catches keys that are forgotten or asked twice, and outcomes that are not of the page's own file."""
    keys = [k for k in precompute.stored() if k.startswith(("anchor.", "mini-"))]
    run = recompute.Recomputation(keys, "somebody")
    standing = finished(run)
    assert set(keys) <= set(run.found) and standing.done == standing.total == len(run.found) and standing.error is None
    assert {row.verdict for _, row in run.found.values()} == {"agrees"}
    assert len(service.calls) == 1 + sum(job.measure != "claims" for job in measures.jobs() if set(job.keys) & set(keys))


def test_a_cancel_keeps_what_was_found(service):
    """Catches a run that goes on, or loses its first batches."""
    run = None

    def cancel_in_the_second(call):
        if call == 2:
            run.cancel()

    service.after = cancel_in_the_second
    keys = ["anchor.ridge", "mini-256.parameters", "mini-128.parameters", "mini-64.parameters"]
    started = recompute.threading.Event()
    service_run = recompute.client.run
    recompute.client.run = lambda *a, **k: (started.wait(10), (yield from service_run(*a, **k)))[1]
    run = recompute.Recomputation(keys, "somebody")
    started.set()
    standing = finished(run)
    assert set(run.found) == {"anchor.ridge"} and standing.done == 1 and standing.total == 4 and standing.error is None


def test_a_service_that_goes_away_is_said(service):
    """Catches a run that ends in silence, and one that forgets what came before."""
    service.after = lambda call: service.raises.append(Unavailable("unavailable", reason="gone", reason_zh="没了"))
    run = recompute.Recomputation(["anchor.ridge", "mini-256.parameters"], "somebody")
    standing = finished(run)
    assert standing.error.code == "unavailable" and set(run.found) == {"anchor.ridge"}


def test_a_busy_service_is_asked_again(service, monkeypatch):
    """Catches a whole recomputation lost because somebody else was computing."""
    service.raises = [Busy(3, 0.01), Busy(2, 0.01)]
    run = recompute.Recomputation(["anchor.ridge"], "somebody")
    assert finished(run).error is None and set(run.found) == {"anchor.ridge"} and len(service.calls) == 3


def test_a_run_that_nobody_looks_at_ends(service, monkeypatch):
    """Catches a service that computes for learners who left."""
    monkeypatch.setattr(recompute, "ABANDONED_SECONDS", -1.0)
    run = recompute.Recomputation(["anchor.ridge"], "somebody")
    assert finished(run).done == 0 and not run.found


# ---- the address


@pytest.mark.parametrize("said,good,complaint", [
    ({"text": "kv", "kind": "quoted"}, {"text": "kv", "kind": "quoted", "verdict": ""}, ""),
    ({"kind": "guessed"}, {"text": "", "kind": "", "verdict": ""}, "guessed"),
    ({"colour": "red"}, {"text": "", "kind": "", "verdict": ""}, "colour"),
    ({"text": "x" * 81, "verdict": "differs"}, {"text": "", "kind": "", "verdict": "differs"}, "80"),
])  # fmt: skip
def test_what_the_address_says_is_checked(said, good, complaint):
    """Catches a filter that silently shows nothing."""
    filter, complaints = ledger._checked(said)
    assert filter == good and bool(complaints) == bool(complaint) and all(complaint in str(each) for each in complaints)


def test_only_what_is_known_is_asked():
    """Catches a page that could make the service run anything else."""
    assert recompute.batches(["no.such.number"]) == []
    with pytest.raises(BadInput):
        verify.recompute(("no.such.number",))
