"""The KV calculator against arithmetic written out, and its picture against its numbers."""

import re

import pytest

from components import Scene, kv_calculator
from components.text import LANGUAGES
from compute import facts, kv
from compute.errors import BadInput, LabError, UnknownName

WIDGET = kv_calculator.WIDGET
MODELS = [id for id in kv_calculator.models_with_heads() if id != kv_calculator.BY_HAND]


def result(**params):
    return WIDGET.run(WIDGET.Params(**params))


def view(sizes, lang="en", before=None):
    return WIDGET.draw(sizes, Scene(WIDGET.words(lang), lang, "light", before))


def of(sizes, kind):
    return next(curve for curve in sizes.curves if curve.kind == kind)


def test_presets_are_the_published_sizes():
    """Catches: KB for KiB, head_dim = hidden / heads, MLA counted for K and V."""
    assert result(model="llama-2-7b").own.bytes_per_token == 512 * 1024
    assert result(model="llama-3-8b").own.bytes_per_token == 128 * 1024
    assert result(model="llama-3-70b", weight_bits=4).own.bytes_per_token == 320 * 1024
    anchor = result()
    assert anchor.own.bytes_per_token == 64 * 1024 and anchor.mha.bytes_per_token == 384 * 1024
    assert anchor.layout.state_bytes == 144 * 2**20 == 48 * 48 * 128 * 128 * 4
    deepseek = result(model="deepseek-v3")
    assert deepseek.own.kind == "mla" and deepseek.own.bytes_per_token == 61 * (512 + 64) * 2
    assert deepseek.mha.bytes_per_token == 61 * 128 * (192 + 128) * 2


def test_the_same_layers_another_way():
    """24 query heads, 4 groups, head_dim 256, 16 layers. Catches: alternatives that change the layers as well."""
    sizes = result()
    assert [c.kind for c in sizes.curves] == ["mha", "gqa", "mqa", "mla"] and sizes.own.kind == "gqa"
    assert of(sizes, "mqa").bytes_per_token == 2 * 256 * 2 * 16
    assert of(sizes, "mla").bytes_per_token == (4 * 256 + 128) * 2 * 16
    assert {c.state_bytes for c in sizes.curves} == {150_994_944}
    assert [c.kind for c in result(model="mini-64").curves] == ["mha", "mqa", "mla"], "GQA of two heads is MHA or MQA"


def test_a_request_and_a_card():
    """Catches: the state forgotten, or a card filled past its memory."""
    sizes = result()
    assert sizes.own.request_bytes(4096) == 4096 * 65_536 + 150_994_944
    assert sizes.requests(sizes.own) == int((80e9 - 55_562_855_904) // (4096 * 65_536 + 150_994_944)) == 58
    n = sizes.longest(sizes.own)
    assert n == (80_000_000_000 - 55_562_855_904 - 150_994_944) // 65_536
    assert result(batch=58).longest(sizes.own) == ((80_000_000_000 - 55_562_855_904) // 58 - 150_994_944) // 65_536


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("chip", ["h100-sxm", "rtx-4090", "b200"])
def test_agrees_with_the_command(model, chip):
    """Catches: the widget counting requests otherwise than kv.capacity, or drawing where that refuses."""
    sizes = result(model=model, chip=chip, context=3000, weight_bits=8, kv_bits=8)
    assert sizes.own.bytes_per_token == kv.per_token(model, 8).bytes
    try:
        room = kv.capacity(model, chip, 3000, weight_bits=8, kv_bits=8)
    except LabError:
        assert not sizes.weights_fit and sizes.requests(sizes.own) == 0
        return
    assert sizes.weights_fit and sizes.requests(sizes.own) == room.requests
    assert sizes.free_bytes == pytest.approx(room.free_bytes)


def test_weights_that_do_not_fit_are_refused_in_the_picture():
    """Catches: requests per card for a model that no such card holds."""
    sizes = result(model="deepseek-v3")
    assert not sizes.weights_fit
    for lang in LANGUAGES:
        shown = view(sizes, lang)
        plot = shown.picture.data["plot"]
        assert plot["refused"] and "1.37 TB" in plot["refused"] and "80 GB" in plot["refused"] and "1.29 TB" in plot["refused"]
        assert plot["ceiling"] is None and plot["weights"] is None and not any(c["cross"] for c in plot["curves"])
        assert "1.29 TB" in shown.sentence and not any(r.label == WIDGET.words(lang)("readout.longest.one") for r in shown.readouts)


def test_a_batch_that_does_not_fit_says_what_is_missing():
    """Catches: a length that is out of reach shown as if it were not."""
    sizes = result(batch=58, context=8192)
    missing = 58 * (8192 * 65_536 + 150_994_944) - (80e9 - 55_562_855_904)
    assert sizes.missing_bytes == pytest.approx(missing)
    shown = view(sizes)
    assert f"{missing / 1e9:.1f} GB" in shown.sentence and shown.picture.data["plot"]["here"]["fits"] is False
    assert result(batch=58).missing_bytes == 0 and result(batch=59).missing_bytes > 0


def test_windows_and_states_are_shown_as_what_they_are():
    """Catches: a window drawn as endless growth, a state drawn as growth."""
    oss = result(model="gpt-oss-20b")
    layer = 2 * 8 * 64 * 2
    assert oss.own.cache_bytes(4096) == 12 * 4096 * layer + 12 * 128 * layer
    assert "128" in view(oss).picture.data["bars"]["notes"][0]["text"]
    mistral = result(model="mistral-7b")
    assert mistral.own.cache_bytes(10**6) == mistral.own.cache_bytes(4096) and mistral.longest(mistral.own) is None
    assert WIDGET.words("en")("readout.never") in [r.value for r in view(mistral).readouts]
    note = view(result()).picture.data["bars"]["notes"][0]
    assert note["tone"] == "state" and "144 MiB" in note["text"] and f"{144 * 2**20 // 65_536:,}" in note["more"]


def test_by_hand_is_the_published_model_when_its_numbers_are_put_in():
    """Catches: another formula for hand-set models. Llama-3-8B: 32 layers, 32 heads, 8 groups, 128."""
    hand = result(model="by-hand", kind="gqa", layers=32, heads=32, kv_heads=8, head_dim=128, parameters_billion=8.030261248)
    real = result(model="llama-3-8b")
    assert [c.bytes_per_token for c in hand.curves] == [c.bytes_per_token for c in real.curves]
    assert hand.requests(hand.own) == real.requests(real.own)
    hybrid = result(model="by-hand", layers=64, state_layers=48, heads=32, head_dim=128)
    assert hybrid.own.bytes_per_token == 16 * 2 * 8 * 128 * 2 and hybrid.layout.state_bytes == 48 * 32 * 128 * 128 * 4
    ignored = result(layers=3, heads=2, kind="mqa")
    assert ignored.own.bytes_per_token == 64 * 1024, "hand-set fields count only by hand"


@pytest.mark.parametrize(
    "params, named",
    [
        ({"model": "by-hand", "heads": 24, "kv_heads": 16}, ["kv_heads", "16", "24"]),
        ({"model": "by-hand", "layers": 4, "state_layers": 4}, ["state_layers", "4"]),
        ({"model": "70b-dense"}, ["70B"]),
    ],
)
def test_impossible_shapes_are_one_sentence(params, named):
    """Catches: a figure for a shape that cannot be built."""
    with pytest.raises(BadInput) as caught:
        result(**params)
    for lang in LANGUAGES:
        assert all(word in caught.value.message(lang) for word in named)


def test_unknown_names():
    """Catches: a typo in a link that silently shows another model."""
    with pytest.raises(UnknownName):
        WIDGET.Params(model="gpt-9")


@pytest.mark.parametrize("params", [{}, {"batch": 58}, {"axes": "log"}, {"model": "deepseek-v3"}, {"model": "mistral-7b"}, {"model": "mini-256"}, {"context": 1048576}], ids=str)
def test_the_plot_is_drawn_from_the_numbers(params):
    """Catches: a crossing that is not where the curve meets the ceiling; marks outside the frame."""
    sizes = result(**params)
    plot = view(sizes).picture.data["plot"]
    for curve in plot["curves"]:
        xs = [x for x, _ in curve["points"]]
        assert xs == sorted(xs) and xs[0] == 0 and xs[-1] == pytest.approx(1)
        heights = [y for _, y in curve["points"]]
        assert heights == sorted(heights) and heights[0] >= 0
        if cross := curve["cross"]:
            assert 0 <= cross["x"] <= 1 and cross["y"] == pytest.approx(plot["ceiling"]["y"])
            if not params.get("axes"):
                (x0, y0), (x1, y1) = curve["points"][0], curve["points"][-1]
                assert y0 + (y1 - y0) * (cross["x"] - x0) / (x1 - x0) == pytest.approx(cross["y"], abs=2e-3)
    for axis in (plot["x"], plot["y"]):
        assert 2 <= len(axis["ticks"]) <= 14 and all(-1e-9 <= tick["at"] <= 1 + 1e-9 for tick in axis["ticks"]), axis
    bars = view(sizes).picture.data["bars"]["rows"]
    most = max(c.bytes_per_token for c in sizes.curves)
    assert [bar["length"] for bar in bars] == pytest.approx([c.bytes_per_token / most for c in sizes.curves])
    assert sum(bar["own"] for bar in bars) == 1


def test_the_derivation_holds_the_numbers():
    """Catches: a derivation that shows another setting's numbers, or in one language only."""
    texts = [view(result(), lang).derivation for lang in LANGUAGES]
    for text in texts:
        for number in (r"2 \times 4 \times 256", r"65{,}536", r"150{,}994{,}944", r"419{,}430{,}400", r"55{,}562{,}855{,}904", "= 58"):
            assert number in text, number
    assert texts[0] != texts[1] and "每个 token" in texts[0]
    mla = view(result(model="deepseek-v3")).derivation
    assert r"(512 + 64) \times 2" in mla and "once, not twice" in mla and r"2 \times 128" not in mla
    assert r"12 \times 128 \times" in view(result(model="gpt-oss-20b")).derivation


def test_ghost_of_the_state_before():
    """Catches: a ghost drawn where nothing moved, or missing where it did."""
    before = result()
    assert view(result(), before=before).picture.data["plot"]["ghost"] is None
    moved = view(result(batch=8), before=before).picture.data
    assert moved["plot"]["ghost"] and moved["bars"]["ghost"] is None
    assert view(result(kv_bits=8), before=before).picture.data["bars"]["ghost"] == 64 / 192


@pytest.mark.parametrize("value, text", [(65_536, "64 KiB"), (144 * 2**20, "144 MiB"), (70_272, "68.6 KiB"), (512, "512 B"), (4_997_120, "4.77 MiB")])
def test_binary_sizes(value, text):
    """Catches: 65.5 KiB."""
    assert kv_calculator.binary(value) == text


def test_papers_for_what_is_shown():
    """Catches: a read-out without its source; chip and model facts not quoted."""
    papers = view(result()).papers
    values = {q.value for q in papers}
    assert {65_536, 393_216, 150_994_944, 419_430_400, 58, 80e9} <= values
    assert {q.kind for q in papers} == {"computed", "quoted"}
    assert facts.model("qwen3.8-27b").source in [q.source for q in papers]


def test_the_folder_names_no_colour():
    """Catches: a hex value beside the theme, which then does not follow it."""
    files = [p for p in WIDGET.folder.iterdir() if p.suffix in (".py", ".js", ".toml")]
    assert len(files) == 3
    for path in files:
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", path.read_text(encoding="utf-8")), path
