"""Making the stored numbers: what runs again, what survives an interruption, what is swept, and timings beside them."""

import ast
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from compute import facts, measures, numbers, precompute
from compute.__main__ import main as command
from compute.engine import smollm2
from compute.errors import BrokenData, LabError
from compute.measures.job import Job, Value
from tests.test_verify import toy  # noqa: F401


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
    (folder / "tokenizer.json").unlink()  # a draft may borrow its target's
    assert job.inputs() not in (first, "")
    (folder / "model.safetensors").unlink()
    with pytest.raises(LabError, match="mini-256.*compute.training train mini-256"):
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


@pytest.mark.parametrize("only,left", [
    ("", {"toy.value", "toy.names"}), ("~toy", {"toy.value", "toy.names", "old.value"}), ("toy.v", {"toy.value", "toy.names", "toy.names.former", "old.value"}),
    ("old", {"toy.value", "toy.names", "toy.names.former", "toy.value.former"}), ("nothing", {"toy.value", "toy.names", "toy.names.former", "toy.value.former", "old.value"})])
def test_a_name_that_no_longer_exists_goes(toy, capsys, only, left):
    """Catches a name that nobody makes any more and that pages can still show, until everything is made again; one of another subject that
    goes as well; a name that is renamed as a whole, which `--only` does not find."""
    precompute.precompute(say=lambda line: None)
    entries = precompute.stored()
    precompute._write(toy.path, {"toy.value.former": entries["toy.value"], "toy.names.former": entries["toy.names"], "old.value": entries["toy.names"]})
    former = toy.path.parent / "precomputed" / "toy.value.former.0123456789ab.json"
    former.write_text("{}")
    assert command(["precompute", "--only", only]) == (2 if only == "nothing" else 0)
    assert set(precompute.stored()) == left and former.exists() == (only in ("old", "nothing")) and toy.runs == 1
    told = capsys.readouterr().out
    assert all((f"{key}: dropped" in told) == (key not in left) for key in ("toy.value.former", "toy.names.former", "old.value", "toy.value"))


def test_what_killed_writers_had_begun_is_swept(toy):
    """Catches halves of recordings and timings that stay for ever, since only those of the store itself were looked for."""
    file, recording = precompute.write_measured("bench", {"bench.speedup": TIMED}, "x"), toy.path.parent / "precomputed" / "toy.value.0123456789ab.json"
    precompute.precompute(say=lambda line: None)
    begun = [kept.with_name(f"{kept.name}.4194305.new") for kept in (toy.path, file, recording)]  # no process has that number
    for half in begun:
        half.write_text("{")
    precompute.precompute("toy", say=lambda line: None)
    assert not any(half.exists() for half in begun) and file.exists() and precompute.trace("toy.value") == [1, 2, 3]


def test_a_recording_that_is_not_stored_is_told_with_its_command(toy):
    """Catches: None where a page or a claim needs what was recorded, and ends in a traceback."""
    with pytest.raises(BrokenData) as said:
        precompute.recorded("toy.value")
    for lang in ("zh", "en"):
        assert "python -m compute precompute --only toy.value" in said.value.message(lang) and toy.path.name in said.value.message(lang)
    precompute.precompute(say=lambda line: None)
    assert precompute.recorded("toy.value") == [1, 2, 3]


def test_the_optional_model_counts_too(tmp_path, monkeypatch):
    """Catches results on the public model that are kept when its file is another, and a way out that does not fetch it."""
    monkeypatch.setattr(facts, "DATA", tmp_path / "data")
    job = Job("toy", {}, ("toy",), ("smollm2-135m",))
    with pytest.raises(LabError, match="smollm2-135m.*run.py models"):
        job.inputs()
    file = smollm2.gguf_path(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"one")
    first = job.inputs()
    file.write_bytes(b"other")
    assert job.inputs() != first


def test_an_interrupted_run_goes_on(toy, monkeypatch, capsys):
    """Catches finished jobs that are lost or made again when the command was stopped in the middle."""
    ran = []

    def slow(*, name, report):
        ran.append(name)
        if name == "b" and len(ran) == 2:
            raise KeyboardInterrupt
        return {f"toy.{name}": Value(1.0, "s", {"exact": True}, {"n": 1})}

    monkeypatch.setattr(measures, "MEASURES", {"slow": slow})
    monkeypatch.setattr(measures, "jobs", lambda: [Job("slow", {"name": n}, (f"toy.{n}",)) for n in "abc"])
    assert command(["precompute"]) == 130
    assert set(precompute.stored()) == {"toy.a"} and "goes on from there" in capsys.readouterr().err
    assert command(["precompute"]) == 0
    assert set(precompute.stored()) == {"toy.a", "toy.b", "toy.c"} and ran == ["a", "b", "b", "c"]


def test_two_runs_at_once_keep_each_others_entries(toy, monkeypatch):
    """Catches a run that writes back what it read at its start."""
    precompute.precompute(say=lambda line: None)
    entry = precompute.stored()["toy.value"]

    def measure(*, factor, report):
        precompute._write(toy.path, {"other.value": entry})  # somebody else, meanwhile
        return {"toy.value": Value(7.0, "s", {"exact": True}, {"n": 3}), "toy.names": Value(["c"], "token", {"exact": True}, {"n": 3})}

    monkeypatch.setattr(measures, "MEASURES", {"toy": measure})
    precompute.precompute("toy", force=True, say=lambda line: None)
    assert set(precompute.stored()) == {"toy.value", "toy.names", "other.value"}
    precompute.precompute(say=lambda line: None)
    assert set(precompute.stored()) == {"toy.value", "toy.names"}, "a whole run drops what nothing makes"


def test_what_reads_the_store_is_made_where_it_is():
    """Catches a measure that another machine would make from what is stored there."""
    reads = {"acceptance", "claims", "distributions", "numbers", "precompute"}  # modules of compute that read it
    for module in measures.MODULES:
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        named = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "compute" for alias in node.names}
        named |= {node.module.split(".")[1] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("compute.")}
        assert not named & reads or set(module.MEASURES) <= measures.AT_HOME, module.__name__
    assert {"claims", "speculative.rules"} <= measures.AT_HOME


RUN = """
import sys, time
from pathlib import Path
from compute import measures, precompute
from compute.measures.job import Job, Value
folder, me, other = Path(sys.argv[1]), *sys.argv[2:]
measures.MEASURES = {"toy": lambda n, report: {f"{me}.{n}": Value(float(n), "s", {"exact": True}, {"n": 1}, trace=[me, n])}}
measures.jobs = lambda: [Job("toy", {"n": n}, (f"{me}.{n}",)) for n in range(8)]
(folder / me).touch()
while not (folder / other).exists():
    time.sleep(0.001)
assert precompute.precompute(me, path=folder / "precomputed.json", say=lambda line: None) == []
"""


def test_two_processes_at_once_lose_nothing(tmp_path):
    """Catches a store that is read by one run and put in its place by another before the first has written: without the
    lock most of these 16 entries are gone."""
    runs = [subprocess.Popen([sys.executable, "-c", RUN, tmp_path, *names], cwd=Path(__file__).parents[1]) for names in ("ab", "ba")]
    assert [run.wait(60) for run in runs] == [0, 0]
    store = tmp_path / "precomputed.json"
    assert set(precompute.stored(store)) == {f"{name}.{n}" for name in "ab" for n in range(8)}
    assert precompute.trace("a.7", store) == ["a", 7] and not list(tmp_path.glob("*.new"))


def test_a_former_result_does_not_come_back(toy, monkeypatch):
    """Catches a run that writes all of its results again after each job: those of another run, made later, would be replaced
    by older ones whose recordings are swept."""
    def measure(*, name, report):
        if name == "b":
            precompute._write(toy.path, {"toy.a": newer})  # by somebody else, after our a
        return {f"toy.{name}": Value(1.0, "s", {"exact": True}, {"n": 1})}

    precompute.precompute(say=lambda line: None)
    newer = precompute.stored()["toy.value"]
    monkeypatch.setattr(measures, "MEASURES", {"m": measure})
    monkeypatch.setattr(measures, "jobs", lambda: [Job("m", {"name": n}, (f"toy.{n}",)) for n in "ab"])
    precompute.precompute("toy", say=lambda line: None)
    assert precompute.stored()["toy.a"] == newer


def test_arrays_are_stored_as_lists(toy, monkeypatch):
    """Catches a measure that returns NumPy values and cannot be written, and not-a-number that gets into the file."""
    value = Value(np.float64(1.5), "s", {"exact": True}, {"n": np.int64(3)}, trace={"x": np.arange(3)}, n=3)
    monkeypatch.setattr(measures, "MEASURES", {"toy": lambda factor, report: {"toy.value": value, "toy.names": Value(float("nan"), "s", {"exact": True}, {"n": 1})}})
    with pytest.raises(ValueError, match="NaN|nan|JSON compliant"):
        precompute.precompute(say=lambda line: None)
    monkeypatch.setattr(measures, "MEASURES", {"toy": lambda factor, report: {"toy.value": value, "toy.names": value}})
    precompute.precompute(say=lambda line: None)
    assert precompute.stored()["toy.value"]["value"] == 1.5 and precompute.trace("toy.value") == {"x": [0, 1, 2]}


# ---- timings of one machine

TIMED = {"value": 2.5, "unit": "×", "kind": "measured", "conditions": {"cpu": "a"}, "says": {"zh": "加速", "en": "speed-up"}, "n": 3}


def test_timings_are_written_read_and_never_judged(toy, capsys):
    """Catches a benchmark's figure that no page can name, or that another machine would fail."""
    precompute.precompute(say=lambda line: None)
    file = precompute.write_measured("bench", {"bench.speedup": TIMED}, "python -m compute bench x")
    assert file == toy.path.parent / "measured" / "bench.json"
    assert json.loads(file.read_text(encoding="utf-8"))["made"]["command"] == "python -m compute bench x"
    assert precompute.timings()["bench.speedup"]["value"] == 2.5
    assert numbers.resolve("~bench.speedup").value == 2.5
    capsys.readouterr()
    assert command(["verify"]) == 0 and "bench.speedup" not in capsys.readouterr().out
    with pytest.raises(ValueError, match="conditions"):
        precompute.write_measured("bench", {"bench.speedup": {**TIMED, "conditions": {}}}, "x")


def test_timings_wait_for_who_writes(toy):
    """Catches timings whose half-written file another run sweeps away from under their writer."""
    writer = threading.Thread(target=precompute.write_measured, args=("bench", {"bench.speedup": TIMED}, "x"))
    with precompute._alone(toy.path):
        writer.start()
        writer.join(0.5)
        assert writer.is_alive() and not (toy.path.parent / "measured").exists()
    writer.join(10)
    assert not writer.is_alive() and precompute.timings()["bench.speedup"]["value"] == 2.5


@pytest.mark.parametrize("spoil,complaint", [
    (lambda text: text[:-9], "not whole JSON"), (lambda text: text.replace('"schema": 1', '"schema": 2'), "schema 1"),
    (lambda text: text.replace('"unit"', '"uni"'), "bench.speedup lacks unit"), (lambda text: text.replace("2.5", "null"), "value None"),
])  # fmt: skip
def test_a_broken_file_of_timings_is_named(toy, spoil, complaint):
    """Catches a traceback where file and key should be named."""
    file = precompute.write_measured("bench", {"bench.speedup": TIMED}, "x")
    file.write_text(spoil(file.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(BrokenData, match=complaint) as raised:
        precompute.timings()
    assert "bench.json" in str(raised.value)
