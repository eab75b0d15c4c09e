"""What the batching benchmark counts and hands to others; no time is judged here."""

import pytest
import torch

from compute.engine import bench_batching
from compute.engine.bench_batching import Request, moved, ours, race, reference, workload
from compute.engine.bench_peers import write_gguf
from compute.engine.loader import load
from compute.engine.model import forward

from . import tiny


def test_the_gguf_for_llama_cpp_holds_the_same_model(made, tmp_path):
    """Catches: rows of q and k in the wrong order, which costs llama.cpp its sense and us an equal text; read back by our
    own reader, which tests/engine/test_gguf_file.py holds to transformers."""
    for case in ("llama, grouped heads, tied", "llama, untied, head_dim 24 ≠ 64 / 4"):
        model = made(case)[1]
        again = load(write_gguf(model, tmp_path / "model.gguf"), device="cpu", dtype="float32")
        ids = tiny.ids(12)
        assert torch.equal(*(forward(m.weights, ids, None, torch.arange(12)[None]) for m in (model, again)))


def test_bytes_of_a_run(model):
    """Catches: keys and values counted once instead of in every step, or the prompt's twice. 3 tokens read, then one each at
    positions 3 and 4: three steps read the matrices; 3 + 3 positions are written and looked at, then 1 + 4 and 1 + 5."""
    traces = {}
    ours(model, [Request((5, 6, 7), 3)], 1, "continuous", traces, "x")
    position = 3 * 2 * 2 * 16 * 4
    assert moved(model, traces["x"]) == 3 * model.weights.bytes_per_decoded_token() + position * (6 + 5 + 6)


def test_the_requests_are_the_same_every_time():
    """Catches: a workload that changes between runs or leaves its ranges."""
    first = workload(2048)
    assert first == workload(2048) and len(first) == bench_batching.REQUESTS
    assert all(8 <= len(r.prompt) <= 64 and 8 <= r.limit <= 128 and max(r.prompt) < 2048 for r in first)
    assert sum(r.limit < 32 for r in first) == pytest.approx(16, abs=5)  # half of the logarithm's range


def test_entries_without_peers(model):
    """Catches: an entry without what prose needs, a ratio the wrong way round, texts that differ from the reference's."""
    some = [Request(r.prompt[:8], r.limit // 8) for r in workload(300)[:6]]
    traces = {}
    alone = race({"engine": lambda rs: ours(model, rs, 1, "continuous", traces, "single"), "generate": lambda rs: reference(model, rs)}, [Request((1, 2), 12)], 2)
    batched = {policy: lambda rs, policy=policy: ours(model, rs, 4, policy, traces, policy) for policy in bench_batching.POLICIES}
    many = race(batched | {"one-by-one": lambda rs: ours(model, rs, 1, "continuous", traces, "one-by-one")}, some, 2)
    entries = bench_batching.entries_of(model, alone, many, traces, 1e10, {"device": "cpu"})
    at = f"engine.{model.name}"
    assert entries[f"{at}.single.generate.tokens_per_second"]["conditions"]["texts_as_ours"] == "1 of 1"
    assert entries[f"{at}.many.chunked.tokens_per_second"]["conditions"]["texts_as_ours"] == "6 of 6"
    faster = [many["static"][i].seconds / many["continuous"][i].seconds for i in range(2)]
    assert entries[f"{at}.many.continuous_over_static"]["value"] == pytest.approx(sum(faster) / 2)
    assert all({"value", "unit", "kind", "conditions", "says", "n"} <= entry.keys() for entry in entries.values())
