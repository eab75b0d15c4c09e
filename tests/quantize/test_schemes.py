"""The list of schemes, and what each stores, against counts written out."""

import pytest

from compute.errors import BadInput, UnknownName
from compute.quantize.grid import Grid, Table, Uniform, pack, quantize
from compute.quantize.schemes import SCHEMES, Scheme, scheme, stored

import numpy as np

SHAPES = [(512, 256), (256, 256), (1536, 256), (256, 768)]  # a layer of mini-256
HEAD = (2048, 256)
WEIGHTS = 512 * 256 + 256 * 256 + 1536 * 256 + 256 * 768


def test_there_are_enough_and_they_are_what_their_names_say():
    """Catches a name that promises another grid, and a family that lost its members."""
    assert len(SCHEMES) >= 22 and {s.family for s in SCHEMES.values()} == {"float", "rtn", "gptq", "awq", "fp8", "fp4", "w8a8", "kv"}
    for name, s in SCHEMES.items():
        assert s.id == name
        parts = name.split("-")
        for part in parts:
            if part.startswith("int"):
                assert s.weights.numbers.bits == int(part[3:])
            if part[0] == "g" and part[1:].isdigit():
                assert s.weights.block == int(part[1:])
            if part in ("tensor", "channel"):
                assert s.weights.block == part
        assert (s.method == parts[0]) == (parts[0] in ("gptq", "awq"))
        assert s.act_order == ("order" in parts) and s.planted == ("planted" in parts) and (s.smooth is not None) == ("smooth" in parts)
        assert (s.head is not None) == ("head8" in parts)
        if s.weights and isinstance(s.weights.numbers, Uniform):
            assert s.weights.numbers.symmetric == ("asym" not in parts)


def test_an_unknown_name_gets_the_closest_ones():
    """Catches a KeyError on a page."""
    with pytest.raises(UnknownName, match="int4-g64") as caught:
        scheme("int4-g63")
    assert "没有名为 'int4-g63' 的量化方案" in caught.value.message("zh")
    with pytest.raises(UnknownName):
        scheme("")


@pytest.mark.parametrize(
    "name, bits",
    {
        "bf16": 16, "kv4": 16, "int8-tensor": 8 + 4 * 16 / WEIGHTS, "int4-g64": 4 + 16 / 64, "int4-g64-asym": 4 + 20 / 64,
        "int3-g32": 3.5, "int2-g32-asym": 2 + 18 / 32, "gptq-int4-g128": 4 + 1 / 8, "gptq-int3-channel-order": 3 + 2560 * 16 / WEIGHTS,
        "awq-int4-g64": 4.25, "mxfp4": 4.25, "nf4": 4.5, "nvfp4": 4.5 + 4 * 32 / WEIGHTS, "fp8-e4m3-channel": 8 + 2560 * 32 / WEIGHTS,
        "w8a8-smooth": 8 + 2560 * 16 / WEIGHTS, "w8a8-planted": 8 + 2560 * 16 / WEIGHTS,
    }.items(),
)  # fmt: skip
def test_bits_by_hand(name, bits):
    """Catches scales or zero points left out, or counted for a factor that is folded into another matrix. 512 + 256 + 1536 + 256
    = 2560 rows."""
    assert stored(scheme(name), SHAPES, HEAD).bits_per_weight == pytest.approx(bits, rel=1e-12)


def test_the_model_counts_its_head():
    """Catches a head that is left out, or counted with the layers' bits."""
    plain, eight = stored(scheme("int4-g64"), SHAPES, HEAD), stored(scheme("int4-g64-head8"), SHAPES, HEAD)
    head = 2048 * 256
    assert plain.bytes == (WEIGHTS * 4.25 + head * 16) / 8 and plain.model_bits_per_weight == plain.bytes * 8 / (WEIGHTS + head)
    assert eight.bytes == (WEIGHTS * 4.25 + head * 8 + 2048 * 16) / 8 and eight.bits_per_weight == plain.bits_per_weight


@pytest.mark.parametrize("name", [name for name, s in SCHEMES.items() if s.weights])
def test_the_count_is_the_length_of_what_is_packed(name):
    """Catches a formula that drifts from the codes. Referee: a real matrix, its packed bytes, and its scales one by one."""
    grid = SCHEMES[name].weights
    weights = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)
    made = quantize(weights, grid)
    bits = 8 * len(pack(made.codes, grid.numbers))
    bits += made.steps.scales.size * grid.scales.bits
    if made.steps.zeros is not None:
        bits += made.steps.zeros.size * grid.numbers.bits
    bits += {"e4m3": 32, "double": 32 + 32 * made.steps.scales.size // 256}.get(grid.scales.name, 0)
    assert stored(SCHEMES[name], [(256, 256)], (8, 8)).bits_per_weight == bits / weights.size == made.bits_per_weight


def test_what_cannot_be_stored():
    """Catches a fraction of a group, and a grid of one bit."""
    with pytest.raises(BadInput, match="divide rows of 192"):
        stored(scheme("int4-g128"), [(64, 192)], HEAD)
    with pytest.raises(BadInput, match="2 to 8 bits"):
        Uniform(1)
    assert stored(Scheme("own", "rtn", Grid(Uniform(2), 1)), [(4, 4)], HEAD).bits_per_weight == 18  # groups of one: all scales
