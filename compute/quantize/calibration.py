"""The text that quantizers look at. `python -m compute.quantize.calibration` writes it for mini-256.

No validation text of the loss tables: mini-256 and its smaller siblings are calibrated on what mini-256 writes itself at
temperature 1, as data-free quantization does (LLM-QAT, Liu et al. 2023). 192 texts: the end-of-text token, which is what
stands before a text in training, then a token that begins one, drawn without replacement so that no two begin alike, then what
the model draws until it ends the text or 256 tokens are there. Beginning anew, instead of going on after an end, keeps short
stories from crowding out manuals. They are read as training and validation read: one after the other, in windows of 256 tokens.
Any other model reads LibreOffice's English help with its own tokenizer; what it is measured on leaves that file out.
"""

from __future__ import annotations

import json
import sys

from compute.engine.tokens import Tokenizer
from compute.errors import BrokenData
from compute.facts import DATA

FILE = DATA / "calibration-mini-256.json"
WRITER = "mini-256"
COUNT, LENGTH, SEED = 192, 256, 0
OTHERS = DATA / "texts" / "libreoffice-en.txt"
WINDOW = 512


def texts(model: str, tokenizer: Tokenizer | None = None) -> list[list[int]]:
    """Token ids in windows. tokenizer: the model's, else it is loaded. Raises BrokenData for a file that cannot be read."""
    from compute.engine.registry import CHECKPOINTS, shared

    model = model.split(":")[0]
    if model in CHECKPOINTS:  # an operator's mini-something has another tokenizer
        return _windows([token for text in written() for token in text], LENGTH)
    if tokenizer is None:
        tokenizer = shared().get(model).tokenizer
    return _windows(tokenizer.encode(OTHERS.read_text(encoding="utf-8")), WINDOW)


def written() -> list[list[int]]:
    """What mini-256 wrote, text by text, as the file has it."""
    try:
        return json.loads(FILE.read_text(encoding="utf-8"))["texts"]
    except (OSError, ValueError, KeyError) as e:
        raise BrokenData(f"data/{FILE.name}", f"{e}; make it again: python -m compute.quantize.calibration") from None


def _windows(ids: list[int], size: int) -> list[list[int]]:
    return [ids[first : first + size] for first in range(0, len(ids), size)]


def write(seed: int = SEED) -> list[list[int]]:
    """What the file holds; text i draws with seed + i."""
    import numpy as np
    import torch

    from compute.engine.model import forward
    from compute.engine.registry import shared
    from compute.engine.sampled import continue_rows
    from compute.sampling import Sampling, probabilities

    model = shared().get(WRITER)
    (end,) = model.config.stop_tokens
    logits = forward(model.weights, torch.tensor([[end]]), None, torch.tensor([[0]]))[0, 0].cpu().numpy()
    logits[end] = -np.inf  # no empty text
    p = probabilities(logits, Sampling(temperature=1.0))
    begun = [[end, int(first)] for first in np.random.default_rng(seed).choice(len(p), COUNT, replace=False, p=p)]
    rows = continue_rows(model, begun, LENGTH - 2, Sampling(temperature=1.0), range(seed, seed + COUNT))
    return [start + _until(list(row.tokens), end) for start, row in zip(begun, rows)]


def _until(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens  # the next text begins with one


def main() -> int:
    head = {
        "about": "texts that mini-256 wrote itself, as token ids, to calibrate quantization with; compute/quantize/calibration.py says how",
        "kind": "synthetic", "model": WRITER, "temperature": 1, "seed": SEED, "command": "python -m compute.quantize.calibration",
    }  # fmt: skip
    made = write()
    rows = ",\n  ".join(json.dumps(row, separators=(",", ":")) for row in made)
    FILE.write_text(json.dumps(head, indent=1).removesuffix("\n}") + f',\n "texts": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    print(f"{FILE}: {len(made)} texts, {sum(map(len, made)):,} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
