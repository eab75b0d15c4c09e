"""What a scheme costs: the losses themselves, the interval over them, and the function that a page calls."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from compute import facts, functions
from compute.engine.registry import shared
from compute.errors import BadInput, Cancelled, UnknownName
from compute.quantize import calibration, loss, paired
from compute.quantize.schemes import scheme
from compute.training import mixture

MODEL = "mini-256"
FOLDER = facts.DATA / "checkpoints" / MODEL


@pytest.fixture(scope="module")
def model():
    return shared().get(MODEL)


@pytest.fixture(scope="module")
def some(model) -> loss.Text:
    """The first, the last and a few windows of two sources; both last ones are short."""
    whole = loss.cut({n: loss.stream(model, mixture.read_text(n)) for n in ("electron-zh", "gnome-en")})
    kept = np.array([0, 1, 2, 22, 23, 24, 25, 63])
    return loss.Text(whole.tokens[kept], whole.counts[kept], whole.sources[kept])


# ---- the losses


def test_the_losses_are_those_of_transformers(model, some):
    """Catches: a target that is shifted, filling-up counted as text, a short window read with the next one's tokens. Referee:
    transformers' own Llama and a log-softmax written out, window by window."""
    from transformers import LlamaForCausalLM

    referee = LlamaForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    mine = loss.losses(model.weights, some)
    for row, count in enumerate(some.counts):
        ids = torch.from_numpy(some.tokens[row, : count + 1])
        with torch.inference_mode():
            scores = referee(ids[None, :-1]).logits[0].double()
        wanted = sum(float(torch.logsumexp(scores[t], 0) - scores[t, ids[t + 1]]) for t in range(count))
        assert mine[row] == pytest.approx(wanted, abs=2e-3 + 1e-6 * wanted), row
    assert some.counts.tolist()[3] < 256 and some.counts.tolist()[-1] < 256


def test_the_whole_text_is_the_one_that_was_trained_against(model):
    """Catches: a source left out, a token counted twice where windows meet, another context than the training's. The published
    counts of tokens, and of one source the published loss."""
    final = json.loads((FOLDER / "training-log.json").read_text(encoding="utf-8"))["final"]
    whole = loss.read_text(model)
    assert loss.stream(model, mixture.read_text("tang")).tolist() == mixture.encode(model.tokenizer.inner, mixture.read_text("tang")).tolist()
    for name, row in final["sources"].items():
        assert whole.counts[whole.sources == name].sum() == row["tokens"], name
    text = loss.cut({"gnome-zh": loss.stream(model, mixture.read_text("gnome-zh"))})
    assert loss.losses(model.weights, text).sum() / text.counts.sum() == pytest.approx(final["sources"]["gnome-zh"]["nats_per_token"], abs=1e-6)


def test_nobody_is_measured_on_what_calibrates_it(model):
    """Catches: an operator's model whose GPTQ has read a part of the text already; and one that is called mini-…, as ours are, taken for
    one that shares their tokens."""
    own = replace(model, name="mini-of-mine")
    calibrating = "".join(map(model.tokenizer.decode, calibration.texts(own.name, own.tokenizer)))
    assert "LibreOffice" in calibrating and "libreoffice-en" in loss.read_text(model).sources
    assert set(loss.read_text(own).sources) == set(loss.DOMAIN_OF) - {"libreoffice-en"}


def test_windows_overlap_by_the_token_that_is_predicted_next():
    """Catches: a token that nobody predicts, or two windows predict. 600 tokens: 256 + 256 + 87 predicted; a source of one token
    predicts none."""
    stream = np.arange(1, 601)
    text = loss.cut({"a": stream, "b": np.array([7])})
    assert text.counts.tolist() == [256, 256, 87] and text.sources.tolist() == ["a"] * 3
    predicted = np.concatenate([row[1 : n + 1] for row, n in zip(text.tokens, text.counts)])
    assert predicted.tolist() == stream[1:].tolist() and text.tokens[1, 0] == text.tokens[0, 256] == 257
    assert text.tokens[2, 88:].tolist() == [0] * 169
    with pytest.raises(BadInput, match="two tokens"):
        loss.cut({"b": np.array([7])})


def test_a_cache_in_four_bits_is_gone_through(model, some):
    """Catches: a KV scheme that is measured on the plain cache. Referee: every key and value replaced inside attention by hand."""
    exact = loss.losses(model.weights, some)
    kv4, kv8 = (loss.under(model, scheme(name), some) for name in ("kv4", "kv8"))
    assert np.abs(kv8 - exact).sum() < np.abs(kv4 - exact).sum() and (kv4 - exact).sum() > 1


def test_a_worse_model_has_a_positive_change(model, some):
    """Catches: before and after exchanged. Two bits lose more than three, three more than eight, and eight next to nothing."""
    before = loss.losses(model.weights, some)
    made = [paired.change(before, loss.under(model, scheme(s), some), some.counts, some.sources, 1).value for s in ("int8-channel", "int3-g32", "int2-g32")]
    assert abs(made[0]) < 0.005 < 0.05 < made[1] < made[2]


# ---- the interval


def test_the_interval_by_hand():
    """Catches: a normal quantile, tokens instead of windows as units, a forgotten n / (n − 1). Four windows of one source, 10 tokens
    each, differences 1, 2, 3, 4: mean 0.25 a token, standard error 1.29099 / √4 / 10, Student's t with 3 degrees 3.1824."""
    made = paired.change([5, 5, 5, 5], [6, 7, 8, 9], [10] * 4, ["a"] * 4, 1)
    reach = 3.1824 * 1.29099 / 2 / 10
    assert (made.value, made.low, made.high) == pytest.approx((0.25, 0.25 - reach, 0.25 + reach), abs=1e-5)
    assert (made.tokens, made.units) == (40, 4)


def test_neighbours_go_together_and_not_across_sources():
    """Catches: a stretch that begins in one source and ends in the next. Pairs (1, 3), (2, 2) and (9, 9), (8): with 10 tokens a window
    the sums are 4, 4 and 18, 8 of 20, 20 and 20, 10 tokens."""
    after, sources = [1, 3, 2, 2, 9, 9, 8], ["a"] * 4 + ["b"] * 3
    made = paired.change([0] * 7, after, [10] * 7, sources, 2)
    second = 26 / 30
    squares = 2 * ((18 - 20 * second) ** 2 + (8 - 10 * second) ** 2)  # the first source does not scatter; n / (n − 1) = 2
    assert made.units == 4 and made.value == pytest.approx(34 / 70)
    assert made.high - made.value == pytest.approx(4.30265 * math.sqrt(squares) / 70, rel=1e-5)  # t with 4 − 2


def test_the_interval_covers_the_truth():
    """Catches: an interval that is too narrow for windows that correlate, or one that counts the distance of sources as scatter.
    Three sources with changes of their own, neighbours that correlate by 0.1, 600 times; 95 % should hold the true change."""
    random, held, wide = np.random.default_rng(0), 0, []
    sources = np.repeat(["a", "b", "c"], (120, 60, 60))
    true = np.repeat([0.02, 0.05, 0.30], (120, 60, 60))
    for _ in range(600):
        counts = np.where(random.random(240) < 0.95, 256, 40)
        noise = random.normal(0, 0.02, 241)
        difference = counts * (true + noise[1:] + 0.1 * noise[:-1])
        made = paired.change(np.zeros(240), difference, counts, sources)
        wide.append(made.high - made.low)
        held += made.low <= (true * counts).sum() / counts.sum() <= made.high
    assert 550 <= held <= 590, held
    assert np.mean(wide) < 2 * 2.2 * 1.1 * 0.02 / math.sqrt(240) * 1.1


def test_a_source_of_one_stretch_makes_it_wider_and_one_stretch_alone_is_refused():
    """Catches: a division by zero for a source of a single stretch, and an interval made of nothing."""
    made = paired.change([0] * 3, [10, 11, 30], [10] * 3, ["a", "a", "b"], 1)
    assert made.high - made.value > paired.change([0] * 2, [10, 11], [10] * 2, ["a", "a"], 1).high - 1.05
    with pytest.raises(BadInput, match="too few") as refused:
        paired.change([0], [1], [10], ["a"])
    assert "太少" in refused.value.message("zh")


def test_the_three_verdicts():
    """Catches: "inside the noise" said of what was not even measured, and a gain beyond the floor called noise."""
    def of(value: float, reach: float) -> str:
        return paired.verdict(paired.Change(value, value - reach, value + reach, 9, 9), 0.05)

    assert [of(0.01, 0.02), of(0.01, 0.002), of(0.08, 0.01), of(-0.08, 0.01)] == ["none", "noise", "beyond", "beyond"]
    assert of(0.05, 0.01) == "noise" and paired.verdict(paired.Change(0.01, 0.005, 0.015, 9, 9), 0.0) == "beyond"


def test_the_noise_floor_by_hand():
    """Catches: the mean of the domains' spreads instead of the spread of the whole text, and a division by n. Tokens a domain and
    the five seeds' losses, from the committed files, with Python's own statistics."""
    import statistics

    runs = json.loads((facts.DATA / "checkpoints/noise-floor.json").read_text(encoding="utf-8"))["losses"]
    tokens = {"modern": 36456, "stories": 31678, "classical": 111445, "english": 66954, "stories-en": 19139}
    whole = [sum(tokens[d] * run[d]["nats_per_token"] for d in tokens) / 265672 for run in runs.values()]
    floor = paired.noise_floor()
    assert floor.value == pytest.approx(3 * statistics.stdev(whole)) == pytest.approx(0.0508, abs=5e-5)
    assert floor.low == pytest.approx(floor.value * math.sqrt(4 / 11.1433), rel=1e-4) and floor.high == pytest.approx(floor.value * math.sqrt(4 / 0.484419), rel=1e-4)


# ---- as a page calls it


def test_a_scheme_is_scored_on_a_part_of_the_text():
    """Catches: a quick answer that calls itself whole, a domain's change from other windows than the whole, progress that runs back."""
    told: list[float] = []
    said = functions.call("quantize.score", {"scheme": "int4-g64"}, report=lambda fraction, note: told.append(fraction))
    cost = said["cost"]
    assert cost["windows"] == loss.QUICK_WINDOWS and not cost["whole"] and cost["change"]["tokens"] < 25_000
    assert cost["change"]["low"] < 0.0316 < cost["change"]["high"] and said["verdict"] == "noise"
    parts = cost["domains"].values()
    assert sum(p["tokens"] for p in parts) == cost["change"]["tokens"]
    assert sum(p["value"] * p["tokens"] for p in parts) / cost["change"]["tokens"] == pytest.approx(cost["change"]["value"])
    assert told == sorted(told) and 0 <= told[0] and told[-1] <= 1
    assert cost["bits_per_weight"] == 4.25 and said["conditions"]["dtype"] == "float32"
    assert said["floor"] == pytest.approx(0.0508, abs=1e-4)


def test_without_a_floor_a_measurable_change_is_not_judged():
    """Catches: a domain or another model that is said to lie beyond a floor that nobody measured."""
    said = functions.call("quantize.score", {"scheme": "int3-g32", "domain": "stories-en"})
    assert said["floor"] is None and said["verdict"] is None and said["cost"]["change"]["low"] > 0


@pytest.mark.parametrize(("params", "error", "words"), [
    ({"scheme": "int5-g64"}, UnknownName, "int5-g64"),
    ({"model": "mini-25"}, UnknownName, "mini-25"),
    ({"domain": "poems"}, BadInput, "domain"),
    ({"model": "mini-64", "scheme": "int4-g128"}, BadInput, "scheme"),
    ({"model": "mini-256:int4-g64"}, BadInput, "model"),
])  # fmt: skip
def test_what_cannot_be_scored(params, error, words):
    """Catches: a scheme or model that fails somewhere inside instead of by name, and quantizing what is quantized."""
    with pytest.raises(error, match=words):
        functions.call("quantize.score", params)


def test_a_model_that_is_broken_has_no_loss(model, some, monkeypatch):
    """Catches: NaN as a measured loss, where a scheme rounds no weight and so complains of none."""
    monkeypatch.setitem(loss._own, (MODEL, "all", True), (some, np.full(len(some.counts), np.nan)))
    with pytest.raises(BadInput, match="model = 'mini-256'.* not a finite number"):
        functions.call("quantize.score", {"scheme": "kv4"})


def test_cancelling_ends_it_between_two_forwards():
    """Catches: a page left while a whole text is being read, and the losses of half a text kept as the model's own."""
    loss._own.pop((MODEL, "stories", False), None)
    asked = iter(range(99))
    with pytest.raises(Cancelled):
        functions.call("quantize.score", {"domain": "stories", "quick": False}, cancelled=lambda: next(asked) > 1)
    assert (MODEL, "stories", False) not in loss._own and next(asked) < 5
