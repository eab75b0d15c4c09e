"""The stored numbers: what is written, what is noticed when it was changed, and what is admitted to be unchecked."""

import json
import shutil

import pytest

from compute import facts, measures, precompute, verify
from compute.__main__ import main as command
from compute.errors import BrokenData, LabError
from compute.measures.job import Job, Value

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


def test_the_committed_numbers_agree(store):
    """Catches a claim that was changed, or weights that were trained again, without `precompute`."""
    found = list(verify.rows())
    assert len(found) > 40, "no stored numbers found"
    assert not [row for row in found if row.verdict == "differs"]
    assert not [row.key for row in found if row.verdict == "unchecked" and "is not there" not in row.reason]


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
    before = verdicts()
    edit(store, lambda entries: entries[key].update(value=entries[key]["value"] * 1.001))
    assert verdicts() == before | {key: "differs"}
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
    assert row.verdict == "differs" and file.name in row.reason
    with pytest.raises(BrokenData, match="sha256"):
        precompute.trace(key)


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


# ---- making


def test_only_what_changed_is_made_again(toy):
    """Catches hours of measuring repeated after an interruption, and results kept although their inputs changed."""
    precompute.precompute(say=lambda line: None)
    precompute.precompute(say=lambda line: None)
    assert toy.runs == 1
    precompute.precompute(force=True, say=lambda line: None)
    assert toy.runs == 2


def test_other_weights_are_other_inputs(tmp_path, monkeypatch):
    """Catches results of the former checkpoint kept after a training."""
    monkeypatch.setattr(facts, "DATA", tmp_path)
    folder = tmp_path / "checkpoints" / "mini-256"
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text(name)
    job = Job("toy", {}, ("toy",), ("mini-256",))
    first = job.inputs()
    assert job.inputs() == first
    (folder / "model.safetensors").write_text("trained again")
    assert job.inputs() != first
    (folder / "model.safetensors").unlink()
    with pytest.raises(LabError, match="mini-256"):
        job.inputs()


def test_a_failed_job_keeps_what_was_stored(toy):
    """Catches a store emptied by a machine that lacks a model."""
    precompute.precompute(say=lambda line: None)
    toy.fails = LabError("no_model", model="m", reason="gone", reason_zh="没了", way_out="", way_out_zh="")
    (failed,) = precompute.precompute(force=True, say=lambda line: None)
    assert "gone" in failed and precompute.stored()["toy.value"]["value"] == 2.0


def test_an_interrupted_write_leaves_the_old_file(toy, monkeypatch):
    """Catches a half-written store."""
    precompute.precompute(say=lambda line: None)
    before = toy.path.read_bytes()
    toy.value = 3.0
    monkeypatch.setattr(precompute.os, "replace", lambda a, b: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        precompute.precompute(force=True, say=lambda line: None)
    assert toy.path.read_bytes() == before


def test_old_recordings_are_swept(toy):
    """Catches a folder that grows with every training."""
    precompute.precompute(say=lambda line: None)
    (toy.path.parent / "precomputed" / "toy.value.0123456789ab.json").write_text("{}")
    precompute.precompute(say=lambda line: None)
    kept = precompute.stored()["toy.value"]["trace"]["file"]
    assert [f.name for f in (toy.path.parent / "precomputed").iterdir()] == [kept.removeprefix("precomputed/")]


# ---- a broken file


@pytest.mark.parametrize("spoil,complaint", [
    (lambda text: text[: len(text) // 2], "not whole JSON"),
    (lambda text: text.replace('"schema": 1', '"schema": 9'), "schema is 9"),
    (lambda text: text.replace('"unit"', '"units"', 1), "entry toy.names lacks unit"),
    (lambda text: text.replace('"exact"', '"roughly"'), "entry toy.names: tolerance"),
    (lambda text: "[]", "schema is"),
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
