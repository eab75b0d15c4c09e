"""`python -m compute bench --device …`: its parts on a processor, small; what goes wrong with one of them; what is particular to CUDA, simulated."""

import json

import pytest
import torch

from compute import __main__ as command
from compute import precompute
from compute.engine import bench_card as card
from compute.engine import machine

CPU, TINY = torch.device("cpu"), card.SIZES["tiny"]
UNITS = {"token/s", "×", "ratio", "text", "nat/token", "s", "B/s", "token/forward", "FLOP/s"}


@pytest.fixture()
def quick(monkeypatch):
    monkeypatch.setattr(machine, "SECONDS_EACH", 0.01)
    monkeypatch.setattr(machine, "free_memory", lambda device: 0)


@pytest.mark.parametrize("part", [part for part in card.PARTS if part != "speculate"])
def test_a_part_measures_and_says_under_which_conditions(part, quick, tmp_path):
    """Catches: a number without conditions, unit or words, an entry that the store refuses, texts that differ on a processor."""
    entries = card.PARTS[part](CPU, TINY)
    assert entries and not card.broken(entries)
    for key, entry in entries.items():
        assert entry["unit"] in UNITS and entry["value"] > 0 and entry["says"]["zh"] and entry["says"]["en"], key
        assert {"device", "threads", "torch", "date"} <= set(entry["conditions"]), key
    file = precompute.write_measured("card-x", entries, "python -m compute bench --device cpu", tmp_path)
    assert set(json.loads(file.read_text("utf-8"))["entries"]) == set(entries)
    if part == "equality":
        assert entries["mini-64.same_as_naive"]["value"] == entries["mini-64.same_as_transformers"]["value"] == TINY.texts
        assert 0 < entries["mini-64.bfloat16_kl"]["value"] < card.KL_BOUND


def test_a_part_that_fails_is_told_and_the_others_go_on(monkeypatch, capsys, tmp_path):
    """Catches: a run that ends with its first failure, one that keeps silent about it, a failure that counts as success, the device that is
    not handed on."""
    asked = []

    def ran(arguments, **options):
        part = arguments[arguments.index("--part") + 1]
        asked.append((part, arguments[arguments.index("--device") + 1], options["timeout"]))
        if part == "equality":
            return type("Ran", (), {"returncode": 1, "stderr": "Traceback\nRuntimeError: an illegal memory access", "stdout": ""})
        if part == "decode":
            raise card.subprocess.TimeoutExpired(arguments, options["timeout"])
        entry = card.one(2.0, "×", {"device": "cpu"}, "数", "number")
        return type("Ran", (), {"returncode": 0, "stderr": "", "stdout": f"a warning\n{json.dumps({'x': entry})}\n"})

    monkeypatch.setattr(card.subprocess, "run", ran)
    monkeypatch.setattr(card.precompute, "write_measured", lambda name, entries, command: tmp_path / name)
    assert command.main(["bench", "--device", "cpu", "--json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["failed"] == {"equality": "RuntimeError: an illegal memory access", "decode": "not done within 45 s"}
    assert set(said["entries"]) == {f"card.cpu.{part}.x" for part in ("machine", "batch", "speculate", "int4")} and said["file"].endswith("card-cpu")
    assert asked == [(part, "cpu", card.LIMITS[part]) for part in card.PARTS] and sum(card.LIMITS.values()) == 240
    assert command.main(["bench", "card", "--device", "cpu", "--only", "int4", "--patience", "2", "--print"]) == 0
    assert asked[-1] == ("int4", "cpu", 2 * card.LIMITS["int4"]) and "card.cpu.int4.x" in capsys.readouterr().out


def test_a_process_of_its_own_answers_or_says_why_not():
    """Catches: a part that another process cannot run, and a traceback where one sentence would do."""
    entries, reason = card.in_a_process("speculate", "cpu", "tiny", 200)
    assert not reason and entries["mini-256.lookup.k4.speedup"]["value"] > 0
    if not torch.cuda.is_available():
        entries, reason = card.in_a_process("machine", "cuda", "tiny", 200)
        assert not entries and reason.endswith('the device "cuda" is not here, this machine has cpu; use one of them, or "auto"')


def test_a_claim_that_does_not_hold_is_named():
    """Catches: texts that differ, or a value beyond its bound, in a run that ends as if all were well."""
    same = card.one(7, "text", {"of": 8}, "", "")
    kl = card.one(0.02, "nat/token", {"bound": 0.01}, "", "")
    fast = card.one(9.0, "×", {}, "", "")
    assert card.broken({"card.x.m.same_as_naive": same, "card.x.m.kl": kl, "card.x.m.speed": fast}) == ["card.x.m.same_as_naive", "card.x.m.kl"]


def test_where_memory_ends_the_smaller_batches_stay(monkeypatch):
    """Catches: a batch too large that takes the measured ones along."""
    real = card.timed_engine

    def full(model, prompts, new):
        if len(prompts) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nand more")
        return real(model, prompts, new)

    monkeypatch.setattr(card, "timed_engine", full)
    made = card.batch(CPU, TINY)
    assert {"mini-64.batch1.tokens_per_second", "mini-64.batch2.out_of_memory"} <= set(made) and "mini-64.batch2.tokens_per_second" not in made
    assert made["mini-64.batch2.out_of_memory"]["conditions"]["said"].endswith("2 GiB")


# ---- CUDA, simulated


def test_a_card_is_waited_for_before_the_clock_starts_and_before_it_stops(monkeypatch):
    """Catches: a time of handing work over instead of doing it."""
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: done.append("wait"))
    card.per_product([lambda x: done.append("work")] * 2, torch.ones(1), torch.device("cuda"))
    assert done == ["wait", "work", "work", "wait"]


def test_four_bits_are_packed_as_tinygemm_reads_them(monkeypatch):
    """Catches: columns or signs in another order than its documented one: the even column in the upper half of a byte, 8 in the middle."""
    coded = card.quantize(torch.randn(16, 128).numpy(), card.Grid(card.Uniform(4), 64))
    packed = []
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *to, real=torch.Tensor.to: real(self, *[t for t in to if not isinstance(t, torch.device)]))
    monkeypatch.setattr(card, "tiles", lambda codes: packed.append(codes) or codes)
    (products, size), (codes,) = card.product4(coded, torch.device("cuda"), 2), packed
    assert codes.dtype == torch.uint8 and codes.shape == (16, 64) and len(products) == 2 and size == 16 * 64 + 2 * 2 * 16 * 2
    middle = 8 if coded.grid.numbers.symmetric else 0
    whole = torch.stack([codes >> 4, codes & 15], -1).flatten(1).int() - middle
    assert torch.equal(whole, torch.from_numpy(coded.codes).int())


def test_a_card_has_a_name_for_its_file(monkeypatch):
    """Catches: a file whose name holds blanks, or says “cuda” of every card."""
    assert card.slug("NVIDIA H200") == "nvidia-h200" and card.slug("NVIDIA A100-SXM4-80GB") == "nvidia-a100-sxm4-80gb"
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5)
    assert card.memory(torch.device("cuda")) == {"memory_bytes": 5} and card.memory(CPU) == {}
