"""Whole models under schemes: what is changed, what is left, and how long nobody is told anything."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from compute.engine.generate import generate
from compute.engine.loader import load
from compute.engine.model import MATRICES, Linear, forward
from compute.errors import BadInput, Cancelled, UnknownName
from compute.quantize import awq, grid, smooth, w8a8
from compute.quantize.gptq import gptq, output_error
from compute.quantize.grid import quantize
from compute.quantize.model import awq_scales, named, plain, quantized, smoothing, stored_bytes
from compute.quantize.observe import observe
from compute.quantize.rescale import tied
from compute.quantize.schemes import SCHEMES, Scheme, scheme
from tests.engine.conftest import made, model  # noqa: F401

TEXTS = [[5 + (7 * i * j * j) % 300 for i in range(100)] for j in range(1, 12)]
FITTING = [
    name for name, s in SCHEMES.items()
    if not (s.weights and s.weights.block in (64, 128))  # widths of the tiny model: 64 and 96
]  # fmt: skip


def logits(weights, text=TEXTS[0]):
    return forward(weights, torch.tensor([text]), None, torch.arange(len(text))[None])[0]


def own(numbers, block, **options):
    return Scheme("own", "rtn", grid.Grid(numbers, block), **options)


@pytest.mark.parametrize("name", FITTING)
def test_every_scheme_makes_a_model_that_writes(model, name):
    """Catches a scheme of the list that nobody wired, and a dtype, bias or shape that got lost."""
    small = quantized(model, scheme(name), kernels=False, texts=TEXTS)
    assert small.name == f"{model.name}:{name}"
    assert [m.shape for m in small.weights.matrices()] == [m.shape for m in model.weights.matrices()]
    assert torch.isfinite(logits(small.weights)).all()
    assert len(list(generate(small, TEXTS[0][:5], 3, ignore_end=True))) == 3
    integers = scheme(name).activations
    for matrix in small.weights.matrices()[:-1]:
        assert isinstance(matrix, w8a8.Int8Both if integers else Linear)
    assert small.weights.head is model.weights.head or name in ("bf16", "fp16", "int8-channel-head8")


def test_rtn_weights_are_on_their_grid_and_nothing_else_changes(model):
    """Catches a norm, an embedding or the head that is rounded too. Referee: `quantize` itself, matrix by matrix."""
    small = quantized(model, scheme("int4-g32"), kernels=False).weights
    for (name, before), (_, after) in zip(named(model.weights, MATRICES), named(small, MATRICES)):
        np.testing.assert_array_equal(plain(after.weight), quantize(plain(before.weight), scheme("int4-g32").weights).restored())
    assert small.embedding is model.weights.embedding and small.norm is model.weights.norm
    assert all(torch.equal(a.attention_norm, b.attention_norm) for a, b in zip(small.layers, model.weights.layers))


def test_eight_bits_are_close_and_four_are_closer_than_two(model):
    """Catches codes that are restored with another block's scale. Distances of logits, float32 as the referee."""
    true = logits(model.weights)
    far = {n: float((logits(quantized(model, scheme(n), kernels=False).weights) - true).norm() / true.norm())
           for n in ("bf16", "fp16", "int8-g32", "int6-g32", "int4-g32", "int3-g32", "int2-g32")}  # fmt: skip
    assert far["fp16"] < far["bf16"] < 0.02 and far["int8-g32"] < 0.06
    assert far["int8-g32"] < far["int6-g32"] < far["int4-g32"] < far["int3-g32"] < far["int2-g32"]


@pytest.mark.parametrize("name", ("int4-g32", "int4-g32-asym", "gptq-int4-g32", "int8-channel"))
def test_kernels_read_the_same_codes(model, name):
    """Catches a GPTQ that is calibrated on what the kernels compute, or a kernel that restores something else. Referee: what each
    matrix makes of the unit vectors, to the eight bits of bfloat16."""
    exact, fast = (quantized(model, scheme(name), kernels=kernels, texts=TEXTS).weights for kernels in (False, True))
    for (where, before), (_, after) in zip(named(exact, MATRICES), named(fast, MATRICES)):
        assert not isinstance(after, Linear)
        unit = torch.eye(before.shape[1])
        bias = 0 if after.bias is None else after.bias
        np.testing.assert_allclose((after(unit) - bias).T, before.weight, rtol=0.02, atol=0.01 * float(before.weight.abs().max()), err_msg=where)


@pytest.mark.parametrize("name, dtype", {"bf16": torch.bfloat16, "fp16": torch.float16}.items())
def test_a_cast_is_a_round_trip(model, name, dtype):
    """Catches an embedding left in 32 bits where lm_head is the same tensor. Referee: torch's own cast of every matrix."""
    small = quantized(model, scheme(name), kernels=False).weights
    for before, after in zip(model.weights.matrices(), small.matrices()):
        assert torch.equal(after.weight, before.weight.to(dtype).float()) and after.bias is before.bias
    assert torch.equal(small.embedding, small.head.weight)


def test_gptq_goes_layer_by_layer(model):
    """Catches layers calibrated on inputs that they will not get. Referee: each matrix again, from an ordinary pass over the model
    whose earlier layers are quantized already."""
    rule = scheme("gptq-int4-g32")
    small = quantized(model, rule, kernels=False, texts=TEXTS).weights
    for number in range(len(small.layers)):
        half = replace(model.weights, layers=small.layers[:number] + model.weights.layers[number:])
        seen = observe(half, TEXTS)
        for name in MATRICES:
            before, after = getattr(model.weights.layers[number], name), getattr(small.layers[number], name)
            hessian = seen[f"{number}.{name}"].hessian
            rtn = quantize(plain(before.weight), rule.weights).restored()
            expected = gptq(plain(before.weight), hessian, rule.weights).restored()
            error = [output_error(w - plain(before.weight), hessian) for w in (plain(after.weight), expected, rtn)]
            assert error[0] == pytest.approx(error[1], rel=0.03) and error[0] < error[2], (number, name)


def test_awq_and_smoothing_keep_the_function_until_rounding(model):
    """Catches a scale that is not divided out again: with eight bits in small groups hardly anything is rounded."""
    true = logits(model.weights)
    for rule in (own(grid.Uniform(8), 16, method="awq"), replace(scheme("w8a8-smooth"), activations=False)):
        made = logits(quantized(model, rule, kernels=False, texts=TEXTS).weights)
        assert float((made - true).norm() / true.norm()) < 0.06


def test_awq_looks_at_mean_magnitudes(model):
    """Catches the largest magnitude taken for the mean, and the model looked at in another scheme's grid. Referee: the search itself."""
    rule, seen = own(grid.Uniform(3), 32, method="awq"), observe(model.weights, TEXTS)
    scales = awq_scales(model.weights, TEXTS, rule)
    for name, matrix in named(model.weights, MATRICES):
        mean = tied(model.weights.config, seen[name].mean) if name.endswith("out") else seen[name].mean
        np.testing.assert_array_equal(scales[name], awq.search(plain(matrix.weight), mean, seen[name].sample, rule.weights).scales)


def test_smoothing_takes_back_what_was_planted(model):
    """Catches smoothing that looks at the model before planting. At α = 1/2 the factor f of a planted channel is undone exactly:
    max|X|·f and max|W|/f give s·f. So both smoothed models are the same, and without smoothing the planted one is worse."""
    small = {n: logits(quantized(model, scheme(n), texts=TEXTS).weights) for n in ("w8a8", "w8a8-planted", "w8a8-smooth", "w8a8-smooth-planted")}
    true = logits(model.weights)
    far = {name: float((found - true).norm()) for name, found in small.items()}
    assert far["w8a8-planted"] > 2 * far["w8a8"]
    torch.testing.assert_close(small["w8a8-smooth-planted"], small["w8a8-smooth"], rtol=1e-4, atol=1e-4)
    factors = smoothing(model.weights, TEXTS, 0.5)
    assert set(factors) == {f"{n}.{name}" for n in range(3) for name in ("qkv", "gate_up")}
    seen = observe(model.weights, TEXTS)["1.qkv"]
    np.testing.assert_array_equal(factors["1.qkv"], smooth.factors(seen.largest, plain(model.weights.layers[1].qkv.weight)))


def test_kv_schemes_change_no_weights(model):
    """Catches weights that are rounded where only the cache should be."""
    for name in ("kv8", "kv4"):
        small = quantized(model, scheme(name))
        assert torch.equal(logits(small.weights), logits(model.weights)) and stored_bytes(model.weights, scheme(name)).bits_per_weight == 16


@pytest.mark.parametrize("name", ("int4-g32", "gptq-int4-g32", "bf16", "w8a8-smooth", "awq"))
def test_progress_is_told_for_every_matrix_and_can_be_stopped(model, name):
    """Catches a bar that stands still, passes its end or goes back, and a quantization that runs on after its reader left."""
    rule = own(grid.Uniform(4), 32, method="awq") if name == "awq" else scheme(name)
    told = []
    quantized(model, rule, kernels=False, texts=TEXTS, report=lambda fraction, note: told.append((fraction, note)))
    assert [fraction for fraction, _ in told] == [step / len(told) for step in range(len(told))]
    notes = dict.fromkeys(note.removeprefix(f"{rule.id}: ") for _, note in told)
    assert [note for note in notes if note != "calibration"] == [f"{n}.{m}" for n in range(3) for m in MATRICES] + ["head"]
    for stop in (0, 5, 12, len(told) - 1):
        asked = []

        def cancelled():
            asked.append(1)
            return len(asked) > stop

        with pytest.raises(Cancelled):
            quantized(model, rule, kernels=False, texts=TEXTS, cancelled=cancelled)
        assert len(asked) == stop + 1


def test_bad_input_is_told_in_a_sentence(model):
    """Catches tracebacks: groups that do not fill a row, weights that are no numbers, calibration text that is too short."""
    with pytest.raises(BadInput, match="divide rows of 96"):
        quantized(model, scheme("int4-g64"))
    with pytest.raises(BadInput, match="divide rows of 96"):
        quantized(model, scheme("gptq-int4-g64"), texts=TEXTS)
    with pytest.raises(BadInput, match="divide rows of 96"):
        stored_bytes(model.weights, scheme("int4-g64"))
    first = model.weights.layers[0]
    for bad in (float("nan"), float("inf")):
        weight = first.qkv.weight.clone()
        weight[3, 4] = bad
        spoilt = replace(model.weights, layers=(replace(first, qkv=Linear(weight, first.qkv.bias)), *model.weights.layers[1:]))
        for name in ("int4-g32", "gptq-int4-g32", "w8a8-smooth"):
            with pytest.raises(BadInput, match="not finite|finite matrix"):
                quantized(replace(model, weights=spoilt), scheme(name), kernels=False, texts=TEXTS)
    with pytest.raises(BadInput, match="80 tokens.*a matrix of 96 input channels needs at least 96 tokens"):
        quantized(model, scheme("gptq-int4-g32"), texts=[TEXTS[0][:80]])
    for name in ("gptq-int4-g32", "w8a8-smooth"):
        with pytest.raises(BadInput, match="no token to calibrate with"):
            quantized(model, scheme(name), texts=[])
    with pytest.raises(UnknownName, match="int4-g64"):
        scheme("int4-g46")


def test_rows_of_zeros_and_groups_of_one(model):
    """Catches 0 / 0, and a scale for each weight that is not nearly exact (to the 11 bits of its 16-bit scale)."""
    first = model.weights.layers[0]
    weight = first.out.weight.clone()
    weight[5], weight[6, :32] = 0, 0
    zeros = replace(model, weights=replace(model.weights, layers=(replace(first, out=Linear(weight)), *model.weights.layers[1:])))
    for name in ("int4-g32", "int4-g32-asym", "mxfp4", "nvfp4", "gptq-int4-g32", "int8-channel"):
        made = plain(quantized(zeros, scheme(name), kernels=False, texts=TEXTS).weights.layers[0].out.weight)
        assert (made[5] == 0).all() and (made[6, :32] == 0).all() and np.isfinite(made).all()
    single = quantized(model, own(grid.Uniform(2), 1), kernels=False).weights
    np.testing.assert_allclose(plain(single.layers[0].qkv.weight), plain(first.qkv.weight), rtol=2**-11, atol=1e-7)


@pytest.mark.parametrize("name", ("int4-g32", "gptq-int4-g32", "w8a8-smooth-planted", "awq"))
def test_a_model_of_16_bits_keeps_its_dtype(made, name):
    """Catches an operator's bfloat16 model that meets float32 halfway, or comes out in it."""
    path = made("qwen2, biases on q, k, v")[2]
    half = load(path, device="cpu", dtype="bfloat16")
    rule = own(grid.Uniform(4), 32, method="awq") if name == "awq" else scheme(name)
    small = quantized(half, rule, kernels=False, texts=TEXTS).weights
    assert small.dtype == torch.bfloat16 and small.layers[0].attention_norm.dtype == torch.bfloat16
    far = (logits(small) - logits(half.weights)).norm() / logits(half.weights).norm()
    assert 0 < float(far) < 0.8  # unrelated logits would be 1.4 apart
