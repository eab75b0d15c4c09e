"""The stored numbers: what is written, what is noticed when it was changed, and what is admitted to be unchecked."""

import hashlib
import json
import shutil

import pytest

from compute import facts, functions, measures, precompute, verify
from compute.__main__ import main as command
from compute.errors import BadInput, BrokenData, Cancelled, LabError
from compute.measures.job import SAMPLED_TRACE, Job, Value

REAL = precompute.STORE


@pytest.fixture()
def store(tmp_path, monkeypatch):
    """A copy of the committed store to spoil."""
    path = tmp_path / "precomputed.json"
    shutil.copy(REAL, path)
    shutil.copytree(REAL.parent / "precomputed", tmp_path / "precomputed")
    monkeypatch.setattr(precompute, "STORE", path)
    return path


def edit(path, change):
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data["entries"])
    path.write_text(json.dumps(data), encoding="utf-8")


def verdicts(only=""):
    return {row.key: row.verdict for row in verify.rows(only)}


@pytest.fixture()
def toy(tmp_path, monkeypatch):
    """One job that makes two numbers, in a store of its own; `toy.value` is what it measures, `toy.runs` how often."""
    from types import SimpleNamespace

    state = SimpleNamespace(value=1.0, runs=0, path=tmp_path / "precomputed.json", fails=None)

    def measure(*, factor, report):
        state.runs += 1
        if state.fails:
            raise state.fails
        return {
            "toy.value": Value(state.value * factor, "s", {"relative": 0.01}, {"n": 3}, trace=[1, 2, 3]),
            "toy.names": Value(["a", "b"], "token", {"exact": True}, {"n": 3}),
        }

    monkeypatch.setattr(precompute, "STORE", state.path)
    monkeypatch.setattr(measures, "MEASURES", {"toy": measure})
    monkeypatch.setattr(measures, "jobs", lambda: [Job("toy", {"factor": 2.0}, ("toy.value", "toy.names"))])
    return state


# ---- the committed file


@pytest.mark.parametrize("measure", measures.MEASURES)
def test_the_committed_numbers_agree(measure):
    """Catches a claim or measure that was changed, or weights that were trained again, without `precompute`. All claims,
    and the smallest job of every other measure: all of them is what `python -m compute verify` takes minutes for."""
    jobs = [job for job in measures.jobs() if job.measure == measure]
    for job in jobs if measure == "claims" else [min(jobs, key=lambda job: len(job.keys))]:
        for new in verify.again(job):
            row = verify.judge(new.key, precompute.stored().get(new.key), new)
            assert row.verdict == "agrees" or "smollm2" in str(row.reason), row


def test_everything_is_stored():
    """Catches a new number that was never made, and one that nothing makes any more."""
    makes = {key for job in measures.jobs() for key in job.keys}
    assert len(makes) == sum(len(job.keys) for job in measures.jobs()), "two jobs answer for one key"
    assert makes == set(precompute.stored())


def test_the_file_says_how_it_was_made():
    """Catches a store without its papers."""
    made = precompute.made()
    assert {"date", "command", "commit", "seed", "versions", "machine"} <= set(made)
    assert made["versions"]["torch"] and made["command"] == "python -m compute precompute"
    for key, entry in precompute.stored().items():
        assert entry["kind"] in ("measured", "computed") and entry["conditions"], key
        assert set(entry["says"]) == {"zh", "en"}, key


@pytest.mark.parametrize("key", ["anchor.decode_bound", "kv.without_cache"])
def test_an_edited_digit_is_found(store, key, capsys):
    """Catches a verify that compares the file with itself, and one that blames the neighbours."""
    before = verdicts(key.split(".")[0] + ".")
    edit(store, lambda entries: entries[key].update(value=entries[key]["value"] * 1.001))
    assert verdicts(key.split(".")[0] + ".") == before | {key: "differs"}
    assert command(["verify", "--only", key]) == 1
    assert "✗ " + key in capsys.readouterr().out


def test_an_edit_within_the_tolerance_is_found(store):
    """Catches a value, a condition or a tolerance changed by hand where the comparison alone would let it pass."""
    key = "kv-stepper.zh.largest_logit_difference"
    edit(store, lambda entries: entries[key].update(value=9e-6))
    assert verdicts(key) == {key: "differs"}
    edit(store, lambda entries: entries["anchor.ridge"].update(tolerance={"relative": 0.5}))
    assert verdicts("anchor.ridge") == {"anchor.ridge": "differs"}


def test_a_spoilt_recording_is_found(store):
    """Catches arrays that are trusted because they lie in another file."""
    key = "kv-stepper.zh.tokens"
    file = store.parent / precompute.stored()[key]["trace"]["file"]
    file.write_text(file.read_text(encoding="utf-8").replace("小明", "小红", 1), encoding="utf-8")
    (row,) = verify.rows(key)
    assert row.verdict == "differs" and file.name in row.reason["en"] and "sha256 与" in row.reason["zh"]
    with pytest.raises(BrokenData, match="sha256"):
        precompute.trace(key)


# ---- every entry, and every place in it


def without_a_run():
    """What a new run of everything gives when nothing has changed, taken from the committed file: the comparison is under
    test here, and computing it all again takes minutes."""
    return {key: again_as_stored(key, entry) for key, entry in precompute.stored().items()}


def again_as_stored(key, entry):
    trace = precompute.trace(key) if "trace" in entry else None
    return verify.Again(key, entry["value"], entry["unit"], entry["kind"], entry.get("interval95"), entry.get("n"), trace)


def judged(new):
    entries = precompute.stored()
    return {key: verify.judge(key, entries.get(key), new[key]).verdict for key in new}


def another(value):
    """The value with one digit, letter or item changed."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return float(next(t for t in digit_edits(repr(value)) if float(t) != value))
        case str():
            return value + "1"
        case list():
            return [another(value[0]), *value[1:]] if value else [1]
        case dict():
            first = next(iter(value), None)
            return {**value, first: another(value[first])} if first is not None else {"more": 1}
    return 1


def digit_edits(text):
    """The text with its last digit before an exponent changed, then the one before, and so on."""
    mantissa = text.split("e")[0]
    for at in reversed([i for i, c in enumerate(mantissa) if c.isdigit()]):
        yield text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]


def test_any_edit_turns_exactly_its_entry_red(store):
    """Catches an entry, or a part of one, whose edit goes unnoticed, and one whose edit is blamed on its neighbour."""
    new, whole = without_a_run(), precompute.stored()
    assert set(judged(new).values()) == {"agrees"} and len(whole) > 60
    keys = list(whole)
    for key, neighbour in zip(keys, keys[1:] + keys[:1]):
        for part in whole[key]:
            found = as_read(store, {key: {**whole[key], part: another(whole[key][part])}, neighbour: whole[neighbour]})
            if found is not None:  # else the edit made the file itself impossible, and that was said
                assert {k: verify.judge(k, found[k], new[k]).verdict for k in found} == {key: "differs", neighbour: "agrees"}, (key, part)


def as_read(store, entries):
    """The entries as the reader takes them, without a file written for each of thousands of edits; None when it refuses them."""
    precompute._json, real = (lambda path: {"schema": precompute.SCHEMA, "made": {}, "entries": entries}), precompute._json
    try:
        return precompute._read.__wrapped__(store, 0)["entries"]
    except BrokenData as broken:
        assert "entry" in str(broken)
        return None
    finally:
        precompute._json = real


def test_an_edited_array_turns_exactly_its_entry_red(store):
    """Catches arrays beside an entry that are trusted because they lie in another file."""
    new = without_a_run()
    for key, entry in precompute.stored().items():
        if "trace" not in entry:
            continue
        file = store.parent / entry["trace"]["file"]
        text = file.read_text(encoding="utf-8")
        at = [i for i, c in enumerate(text) if c.isdigit()]
        at = at[len(at) // 2]
        file.write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :], encoding="utf-8")
    touched = {key for key, entry in precompute.stored().items() if "trace" in entry}
    assert {key for key, verdict in judged(new).items() if verdict == "differs"} == touched and len(touched) >= 2


def test_an_edit_that_renews_its_seal_is_found(store):
    """Catches a verify that only checks seals: value, interval, count and arrays are compared with the new run too."""
    new = without_a_run()
    edits = {"value": 0, "interval95": 0, "n": 0, "unit": 0, "trace": 0}
    for key, entry in precompute.stored().items():
        for part in edits.keys() & entry.keys():
            if part == "value" and "at_most" in entry["tolerance"]:
                continue  # any value below the limit is as good
            edited = {**entry, part: far(entry[part])}
            if part == "trace":
                text = json.dumps(all_far(precompute.trace(key)))
                (store.parent / "precomputed" / f"{key}.edited.json").write_text(text, encoding="utf-8")
                edited["trace"] = {**entry["trace"], "file": f"precomputed/{key}.edited.json", "sha256": hashlib.sha256(text.encode()).hexdigest()}
            edited["seal"] = precompute.seal(edited)
            row = verify.judge(key, edited, new[key])
            assert row.verdict == "differs" and set(row.reason) == {"zh", "en"}, (key, part)
            edits[part] += 1
    assert edits["value"] > 60 and edits["trace"] >= 2


def all_far(trace):
    """Every leaf another one, out of every tolerance."""
    match trace:
        case list():
            return [all_far(item) for item in trace]
        case dict():
            return {name: all_far(item) for name, item in trace.items()}
    return far(trace)


def far(value):
    """Another value, out of every tolerance."""
    match value:
        case list() if value:
            return [far(value[0]), *value[1:]]
        case dict():
            name = next(n for n in value if n != "conditions" and value[n] not in ([], {}))
            return {**value, name: far(value[name])}
        case int() | float() if not isinstance(value, bool):
            return value * 2 + 5
    return another(value)


def test_junk_in_any_field_is_one_sentence(store):
    """Catches a traceback from a file that a hand has spoilt: every field of every kind of entry holds every kind of junk."""
    new, whole, kinds = without_a_run(), precompute.stored(), {}
    for key, entry in whole.items():
        kinds.setdefault((entry["recompute"], frozenset(entry)), key)
    for key in kinds.values():
        for part, value in whole[key].items():
            for junk in (None, True, -1, 1.5, "", "x", [], [1, "a"], {}, {"a": None}, {"exact": 1}, {"relative": "x"}, {"file": "../x", "sha256": ""}):
                if junk != value and (found := as_read(store, {key: {**whole[key], part: junk}})) is not None:
                    assert verify.judge(key, found[key], new[key]).verdict == "differs", (key, part, junk)


# ---- arrays


@pytest.mark.parametrize("stored,new,place", [
    ({"logits": [1.0, 2.0]}, {"logits": [1.0004, 2.0]}, ""), ({"logits": [1.0, 2.0]}, {"logits": [1.0, 2.002]}, "logits[1]"),
    ({"tokens": [1, 2]}, {"tokens": [1, 3]}, "tokens[1]"), ({"tokens": [1, 2]}, {"tokens": [1]}, "tokens[1]"), ({"text": "小明"}, {"text": "小红"}, "text"),
    ({"equal": True}, {"equal": 1}, "equal"), ({"a": 1}, {"b": 1}, "a"), ([1], [1, 2], "[1]"), ({"a": 1.0}, {"a": 1}, ""), ({"a": None}, {"a": 0.0}, "a"),
    ({"conditions": {"torch": "2.13"}, "x": 1}, {"conditions": {"torch": "9"}, "x": 1}, ""), ({"run": {"conditions": 1}}, {"run": {"conditions": 2}}, ""), ({"rows": [{"p": 0.5}]}, {"rows": [{"p": 0.6}]}, "rows[0].p"),
    ([[1, 2], [3, 4.0]], [[1, 2], [3, 4.1]], "[1][1]"),
])  # fmt: skip
def test_traces_are_compared_within_their_tolerance(stored, new, place):
    """Catches floats compared to the last bit, token ids compared loosely, and machines that may not differ."""
    found = verify.apart(stored, new, {"absolute": 1e-3})
    assert found.first.startswith(place + ":") and found.parted if place else (found.first, found.parted) == ("", 0)


def test_sampled_text_may_part_where_its_entry_says_so():
    """Catches a verify that is red on another processor because of one draw, and one that calls other text the same."""
    runs = [{"tokens": list(range(10)), "p": [0.5] * 10} for _ in range(4)]
    one, two = ([{"tokens": [9] * 10, "p": [0.1] * 10}] * n + runs[n:] for n in (1, 2))
    assert verify._traces(runs, one, dict(SAMPLED_TRACE)) == {}
    assert "of 80 places" in verify._traces(runs, two, dict(SAMPLED_TRACE))["en"]
    assert "of 80 places" in verify._traces(runs, one, {"absolute": 1e-3})["en"]
    longer = [runs[0], {"tokens": list(range(40)), "p": [0.5] * 40}, *runs[2:]]
    assert verify.apart(runs, longer, {"absolute": 1e-3}).parted == 60


# ---- what pages ask the service for


def test_a_service_recomputes_what_is_asked_and_says_why_not(toy):
    """Catches a recomputation that answers for other keys, loses arrays on the wire, or fails as a whole for one model."""
    (value, names) = functions.call("verify.recompute", {"keys": ["toy.value"]})["numbers"]
    assert (value["key"], value["value"], value["trace"]) == ("toy.value", 2.0, [1, 2, 3]) and names["value"] == ["a", "b"]
    toy.fails = LabError("no_model", model="m", reason="no GPU here", reason_zh="没有 GPU", way_out="buy one", way_out_zh="请买一块")
    (value, _) = functions.call("verify.recompute", {"keys": ["toy.value"]})["numbers"]
    assert value["value"] is None and "请买一块" in value["reason"]["zh"]
    with pytest.raises(BadInput, match="toy.wrong"):
        functions.call("verify.recompute", {"keys": ["toy.wrong"]})


def test_a_cancelled_recomputation_is_no_verdict(toy):
    """Catches a cancel that is told as a number which cannot be checked."""
    toy.fails = Cancelled()
    with pytest.raises(Cancelled):
        functions.call("verify.recompute", {"keys": ["toy.value"]})


# ---- exit codes and output


def test_exit_codes(toy, capsys):
    """Catches a mismatch, or a number nobody could check, that ends as success."""
    assert command(["verify"]) == 3  # nothing is stored
    assert "not stored" in capsys.readouterr().out
    assert command(["precompute"]) == 0 and command(["verify"]) == 0
    toy.value = 1.5
    assert command(["verify"]) == 1
    toy.fails = LabError("no_model", model="m", reason="no GPU here", reason_zh="没有 GPU", way_out="", way_out_zh="")
    capsys.readouterr()
    assert command(["verify"]) == 3
    assert "no GPU here" in capsys.readouterr().out
    assert command(["verify", "--only", "nothing.begins.so"]) == 2
    assert command(["precompute", "--only", "nothing.begins.so"]) == 2


def test_json(toy, capsys):
    """Catches output that a script cannot read."""
    precompute.precompute(say=lambda line: None)
    toy.value = 2.0
    assert verify.main(as_json=True) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["count"] == {"agrees": 1, "differs": 1, "unchecked": 0}
    row = next(r for r in said["rows"] if r["key"] == "toy.value")
    assert (row["stored"], row["recomputed"], row["difference"]) == (2.0, 4.0, 1.0)
    assert [(j["measure"], j["keys"]) for j in said["jobs"]] == [("toy", ["toy.value", "toy.names"])] and said["jobs"][0]["seconds"] >= 0


@pytest.mark.parametrize("a,b,tolerance,apart,within", [
    (100.0, 100.1, {"relative": 0.01}, 0.001, True), (100.0, 102.0, {"relative": 0.01}, 0.02, False), (0.0, 0.1, {"relative": 0.5}, float("inf"), False),
    (0, 0, {"relative": 1e-9}, 0.0, True), (1.0, 1.2, {"absolute": 0.3}, 0.2, True), ([1, 2, 3], [1, 5, 3], {"exact": True}, 1, False),
    ([1, 2], [1, 2, 3], {"exact": True}, 1, False), (1e-6, 2e-3, {"at_most": 1e-3}, 0.001999, False), (1e-6, 5e-5, {"at_most": 1e-3}, 4.9e-5, True),
    (float("nan"), 1.0, {"relative": 1.0}, float("inf"), False), ([1.0, 2.0], [1.0, 2.1], {"relative": 0.01}, 0.05, False), (7, "7", {"exact": True}, 1.0, False),
])  # fmt: skip
def test_tolerances(a, b, tolerance, apart, within):
    """Catches a comparison that lets not-a-number, a shorter list or a zero pass."""
    difference, agrees = verify.compare(a, b, tolerance)
    assert difference == pytest.approx(apart) and agrees is within


# ---- a broken file


@pytest.mark.parametrize("spoil,complaint", [
    (lambda text: text[: len(text) // 2], "not whole JSON"),
    (lambda text: text.replace('"schema": 1', '"schema": 9'), "schema is 9"),
    (lambda text: text.replace('"unit"', '"units"', 1), "entry toy.names lacks unit"),
    (lambda text: text.replace('"exact"', '"roughly"'), "entry toy.names: tolerance"),
    (lambda text: "[]", "schema is"),
    (lambda text: text.replace('"toy.names"', '"toy.value"'), "'toy.value' stands twice"),
    (lambda text: text.replace('"value": 2.0', '"value": NaN'), "NaN is no number"),
    (lambda text: text.replace('"relative": 0.01', '"relative": "wide"'), "entry toy.value: tolerance"),
    (lambda text: text.replace('"precomputed/', '"../../'), "entry toy.value: trace"),
])  # fmt: skip
def test_a_broken_file_is_named(toy, spoil, complaint, capsys):
    """Catches a traceback, or silence, where file and key should be named."""
    precompute.precompute(say=lambda line: None)
    toy.path.write_text(spoil(toy.path.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(BrokenData, match=complaint) as raised:
        precompute.stored()
    assert "precomputed.json" in raised.value.message("zh")
    assert command(["verify"]) == 2
    assert complaint.split()[0] in capsys.readouterr().err
