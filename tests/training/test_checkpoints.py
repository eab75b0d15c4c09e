"""The committed checkpoints against their cards. Referee: transformers, which shares no code with the trainer."""

import json
import math
import re

import pytest
import torch

from compute.training import card, evaluate, mixture, tokenizer
from compute.training import model as mini
from compute.training.train import CHECKPOINTS

PARAMETERS = {"mini-256": 3_672_320, "mini-128": 1_049_728, "mini-64": 328_256, "mini-moe": 10_758_400}
SLICE = "gnome-zh"  # the smallest validation text, read whole


@pytest.fixture(scope="module")
def models():
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    return {n: AutoModelForCausalLM.from_pretrained(CHECKPOINTS / n, dtype=torch.float32).eval() for n in PARAMETERS}


@pytest.fixture(scope="module")
def logits(models):
    """name -> (logits, targets) on the slice, windows of 256 tokens without earlier context."""
    ids = torch.from_numpy(
        mixture.encode(tokenizer.load(CHECKPOINTS / "mini-256"), mixture.read_text(SLICE)).astype("int64")
    )
    found = {}
    with torch.inference_mode():
        for name, model in models.items():
            rows = [model(ids[None, i : i + 256][:, : len(ids) - 1 - i]).logits[0] for i in range(0, len(ids) - 1, 256)]
            found[name] = torch.cat(rows), ids[1:]
    return found


def final(name: str) -> dict:
    return json.loads((CHECKPOINTS / name / "training-log.json").read_text(encoding="utf-8"))["final"]


def card_row(name: str, source: str) -> list[float]:
    """The figures of one source in README.md: tokens, nats/token, bits/byte, and for drafts α and greedy agreement."""
    written = (CHECKPOINTS / name / "README.md").read_text(encoding="utf-8").split("## Validation")[1]
    (row,) = re.findall(rf"^\| {source} \| (.+) \|$", written, re.M)
    return [float(cell.replace(",", "")) for cell in row.split(" | ")]


def test_all_are_there():
    """Catches: a checkpoint committed without its card, or not at all."""
    for name in PARAMETERS:
        for file in (
            "model.safetensors",
            "config.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "generation_config.json",
        ):
            assert (CHECKPOINTS / name / file).stat().st_size > 0
        assert (CHECKPOINTS / name / "README.md").exists() and final(name)["own_stories"]["stories"] == 60


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts(name, models):
    """Catches: another shape under the same name; a card with another count."""
    assert models[name].num_parameters() == PARAMETERS[name] == mini.parameters(card.load(name))
    assert f"{PARAMETERS[name]:,} parameters" in (CHECKPOINTS / name / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PARAMETERS)
def test_loss_and_bits_per_byte_on_the_card(name, logits):
    """Catches: a card of other weights, another text or another tokenizer; a mistake in bits per byte."""
    values, targets = logits[name]
    nats = float(torch.nn.functional.cross_entropy(values, targets, reduction="sum"))
    size = sum(len(d.encode()) for d in mixture.read_text(SLICE))
    tokens, per_token, per_byte = card_row(name, SLICE)[:3]
    assert tokens == len(targets)
    assert per_token == pytest.approx(nats / len(targets), abs=1.5e-3)
    assert per_byte == pytest.approx(nats / size / math.log(2), abs=1.5e-3)


@pytest.mark.parametrize("name", ["mini-128", "mini-64"])
def test_agreement_on_the_card(name, logits):
    """Catches: α of another draft, or of another temperature."""
    p, q = logits["mini-256"][0].softmax(-1), logits[name][0].softmax(-1)
    alpha, greedy = card_row(name, SLICE)[3:]
    assert alpha == pytest.approx(float(torch.minimum(p, q).sum(-1).mean()), abs=1.5e-3)
    assert greedy == pytest.approx(float((p.argmax(-1) == q.argmax(-1)).float().mean()), abs=2e-3)


def test_what_is_learned_by_heart_against_the_losses():
    """Catches: the two models swapped, a sum over another axis, an interval of something else. Windows of the slice, each once and twice."""
    stream = mixture.encode(tokenizer.load(CHECKPOINTS / "mini-256"), mixture.read_text(SLICE))
    rows = torch.cat([group for group in evaluate.windows(stream, 6)])
    small, large = card.load("mini-64"), card.load("mini-128")
    once, twice = (evaluate.by_heart(small, large, {"modern": drawn})["modern"] for drawn in (rows, rows.repeat(2, 1)))
    assert once["nats_per_token"] == pytest.approx(evaluate.loss(small, stream, 6), rel=1e-5)
    assert once["source_nats_per_token"] == pytest.approx(evaluate.loss(large, stream, 6), rel=1e-5)
    change = once["nats_per_token"] - once["source_nats_per_token"]
    assert once["low"] < change < once["high"] and (once["low"] + once["high"]) / 2 == pytest.approx(change, abs=1e-5)
    assert once["high"] - once["low"] > 1.3 * (twice["high"] - twice["low"])


def test_the_card_says_what_is_learned_by_heart():
    """Catches: a card of another log. Better on training text and worse on the rest: the help texts alone."""
    log = json.loads((CHECKPOINTS / "mini-moe" / "training-log.json").read_text(encoding="utf-8"))
    written = (CHECKPOINTS / "mini-moe" / "README.md").read_text(encoding="utf-8")
    assert written == card.card("mini-moe", log) and "worse on what it was not: modern." in written
    learned, dense = log["final"]["training_text"]["domains"], final("mini-256")["domains"]
    assert [d for d in mixture.DOMAINS if learned[d]["high"] < 0 and log["final"]["domains"][d]["nats_per_token"] > dense[d]["nats_per_token"]] == ["modern"]


def test_one_tokenizer_for_all():
    """Catches: a draft whose token ids mean something else than the target's."""
    files = {(CHECKPOINTS / name / "tokenizer.json").read_bytes() for name in PARAMETERS}
    assert len(files) == 1


def test_the_running_example(models):
    """Catches: weights that do not finish 小明把苹果给了 with a person, 小王 first."""
    learned = tokenizer.load(CHECKPOINTS / "mini-256")
    with torch.inference_mode():
        p = models["mini-256"](torch.tensor([learned.encode("小明把苹果给了").ids])).logits[0, -1].softmax(-1)
    values, ids = p.topk(2)
    best = learned.decode([int(ids[0])])
    assert best == "小王" and values[0] > 2 * values[1], (best, values)
    assert final("mini-256")["example"]["next"][0][0] == "小王"


@pytest.mark.parametrize("name", PARAMETERS)
def test_transformers_reads_the_tokenizer(name):
    """Catches: a tokenizer_config that changes the ids or adds a token in front."""
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(CHECKPOINTS / name)
    ours = tokenizer.load(CHECKPOINTS / name)
    for text in ("小明把苹果给了小王。", "Xiao Ming gave the apple to", "打开 文件 - 另存为。"):
        assert theirs(text)["input_ids"] == ours.encode(text).ids
        assert theirs.decode(theirs(text)["input_ids"]) == text
    assert theirs.eos_token_id == mixture.END


def test_noise_floor_is_that_of_its_losses():
    """Catches: a spread that does not belong to the losses beside it."""
    import statistics

    noise = json.loads((CHECKPOINTS / "noise-floor.json").read_text(encoding="utf-8"))
    assert len(noise["losses"]) == 5 and set(noise["spread"]) == set(mixture.DOMAINS)
    for domain, spread in noise["spread"].items():
        values = [run[domain]["nats_per_token"] for run in noise["losses"].values()]
        assert spread["mean_nats_per_token"] == pytest.approx(statistics.mean(values))
        assert spread["sd_nats_per_token"] == pytest.approx(statistics.stdev(values))
        assert 0 < spread["sd_nats_per_token"] < 0.2 and len(set(values)) == 5
