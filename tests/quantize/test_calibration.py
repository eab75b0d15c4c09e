"""The texts that quantizers look at."""

import json

import numpy as np
import pytest
import torch

from compute.engine.model import forward
from compute.engine.registry import discover
from compute.errors import BrokenData
from compute.quantize import calibration
from compute.training import mixture


@pytest.fixture(scope="module")
def mini():
    return discover().get("mini-256")


def test_each_text_begins_differently(mini):
    """Catches texts that are one text 192 times, and texts that go on after their end."""
    texts = calibration.written()
    assert len(texts) == len({t[1] for t in texts}) == 192
    assert all(t[0] == 0 and 2 <= len(t) <= 256 and 0 not in t[1:] for t in texts)
    assert all(0 <= token < mini.config.vocabulary for t in texts for token in t)


def test_the_windows_are_the_texts_one_after_the_other():
    """Catches tokens that are lost or read twice, and windows longer than what the model was trained on."""
    windows = calibration.texts("mini-256")
    assert sum(windows, []) == sum(calibration.written(), []) and {len(w) for w in windows[:-1]} == {256}
    assert calibration.texts("mini-64") == calibration.texts("mini-256:gptq-int4-g64") == windows


def test_it_covers_what_the_model_writes(mini):
    """Catches a text of stories alone: the domains leave words that only they have."""
    written = "\n".join(map(mini.tokenizer.decode, calibration.written()))
    for word in ("苹果", "LibreOffice", "选择", "春", " the ", "曰"):
        assert written.count(word) >= 3, word


def test_mini_256_wrote_them_at_temperature_1(mini):
    """Catches a file of another model, or of another temperature. Referee: drawn at temperature 1, −log p of the drawn token is
    the entropy of its distribution on average; the difference, over its standard error, is then a few at most."""
    gaps = []
    for text in calibration.written()[::3]:
        logits = forward(mini.weights, torch.tensor([text]), None, torch.arange(len(text))[None])[0].cpu()
        logp = logits.double().log_softmax(-1)[1:-1]
        gaps.append(-logp.gather(-1, torch.tensor(text[2:])[:, None])[:, 0] + (logp.exp() * logp).sum(-1))
    gap = torch.cat(gaps)
    assert len(gap) > 5_000 and abs(float(gap.mean() / gap.std() * len(gap) ** 0.5)) < 4


def test_the_same_seed_begins_the_same_texts(mini):
    """Catches a file that its committed command does not make. The first draws only: later ones can turn on the last bit of a
    processor's sums."""
    from compute.engine.sampled import continue_rows
    from compute.sampling import Sampling

    texts = calibration.written()[:4]
    rows = continue_rows(mini, [t[:2] for t in texts], 8, Sampling(temperature=1.0), range(4))
    assert [list(row.tokens) for row in rows] == [t[2:10] for t in texts]


def test_no_validation_text_is_in_it(mini):
    """Catches calibrating on what the loss is measured on: no line of 30 characters or more is in both."""
    written = "\n".join(map(mini.tokenizer.decode, calibration.written()))
    held_out = {line for name in sum(mixture.DOMAINS.values(), ()) for text in mixture.read_text(name) for line in text.split("\n") if len(line) >= 30}
    assert len(held_out) > 1000 and not [line for line in held_out if line in written]


def test_others_read_libreoffices_help_with_their_own_tokenizer(mini):
    """Catches windows that overlap or lose tokens."""
    texts = calibration.texts("anything", mini.tokenizer)
    whole = (mixture.TEXTS / "libreoffice-en.txt").read_text("utf-8")
    assert mini.tokenizer.decode(np.concatenate(texts).tolist()) == whole and {len(t) for t in texts[:-1]} == {calibration.WINDOW}


def test_a_broken_file_says_how_to_make_it_again(tmp_path, monkeypatch):
    """Catches a traceback of json."""
    monkeypatch.setattr(calibration, "FILE", tmp_path / "calibration.json")
    for content in (None, "{", json.dumps({"model": "mini-256"})):
        if content is not None:
            calibration.FILE.write_text(content)
        with pytest.raises(BrokenData, match="python -m compute.quantize.calibration"):
            calibration.texts("mini-256")
