"""Stages of a model against published parameter counts and against the shapes that other formulas use."""

from collections import Counter

import pytest

from compute import facts, pipeline, roofline
from compute.errors import BadInput

WHOLE = [id for id, shape in facts.models().items() if shape.config]
PUBLISHED = {  # parameters, as counted from the published weight files (index of the safetensors, 2 bytes each)
    "llama-3-8b": 16_060_522_496 // 2,
    "qwen3-4b": 8_044_936_192 // 2,
    "mixtral-8x7b": 93_405_585_408 // 2,
}


@pytest.mark.parametrize("id", WHOLE)
def test_stages_add_up_to_the_model(id):
    """Catches a matrix that belongs to no stage or to two, a tied table counted twice, and vectors that are lost."""
    flow, shape = pipeline.pipeline(id), facts.model(id)
    assert sum(s.parameters for s in flow.stages) == shape.parameters
    assert sorted(m.name for s in flow.stages for m in s.matrices) == sorted(m.name for m in shape.matrices)
    assert all(s.parameters >= 0 for s in flow.stages)


@pytest.mark.parametrize("id", PUBLISHED)
def test_stages_add_up_to_what_was_published(id):
    """Catches: the stages and the shapes wrong in the same way."""
    assert sum(s.parameters for s in pipeline.pipeline(id).stages) == pytest.approx(PUBLISHED[id], rel=2e-6)


@pytest.mark.parametrize("id", WHOLE)
def test_layers_in_order(id):
    """Catches a pattern that is not the config's: as many layers of each kind as the matrices say."""
    flow = pipeline.pipeline(id)
    count = Counter(flow.pattern)
    assert len(flow.pattern) == facts.model(id).layers and count == {s.role: s.layers for s in flow.stages if s.role in count}
    assert sum(s.layers for s in flow.stages if s.role in ("feed_forward", "experts")) == len(flow.pattern)


def test_the_anchor_by_hand():
    """48 GDN and 16 GQA layers, each fourth; SwiGLU 3 × 5,120 × 17,408 a layer. Catches one kind counted as the other, and a dense
    layer's width."""
    flow = pipeline.pipeline("qwen3.8-27b", batch=2, tokens=10)
    assert [i for i, kind in enumerate(flow.pattern) if kind == "attention"] == list(range(3, 64, 4))
    assert flow.stage("feed_forward").parameters == 64 * 3 * 5120 * 17408 and flow.largest.role == "feed_forward"
    assert flow.stage("attention").parameters == 16 * 5120 * (2 * 24 * 256 + 2 * 4 * 256 + 24 * 256)
    assert flow.stage("attention").kept_bytes == 2 * 10 * 65_536 and flow.stage("recurrent").kept_bytes == 2 * 48 * 48 * 128 * 128 * 4
    assert flow.stage("lm_head").gives == (2, 10, 248_320) and flow.stage("embedding").read_bytes == 2 * 10 * 5120 * 2
    assert flow.parameters + flow.beside == 27_781_427_952, "what the checkpoint's files hold"


def test_arithmetic_is_that_of_a_prefill():
    """Catches FLOPs of other matrices, or of experts that are not used, than the roofline counts."""
    for id in ("qwen3.8-27b", "deepseek-v3", "gpt-oss-20b"):
        ops = roofline.prefill_ops(facts.model(id), 300, 16, 128, 16)
        assert sum(s.flops for s in pipeline.pipeline(id, tokens=300).stages) == pytest.approx(sum(op.flops for op in ops))


def test_stands_in_for_a_stage_that_is_not_there():
    """Catches a link that was made on one model and fails on the next."""
    assert pipeline.pipeline("llama-3-8b").stage("recurrent").role == "attention" and pipeline.pipeline("mixtral-8x7b").stage("feed_forward").role == "experts"
    assert pipeline.pipeline("mistral-7b").stage("attention").role == "window"
    with pytest.raises(BadInput):
        pipeline.pipeline("70b-dense")
