"""The 64 requests of the batching lesson: real paragraphs as replies. `python -m compute.batching_requests` makes the file.

A paragraph is a line of a validation text; no model of ours was trained on one. The stories of our own grammar are left out:
nobody wrote them. The rule looks at nothing but whether a paragraph fits:

1. it has 5 to 256 tokens, so that at least one is written and mini-256's trained context holds it all;
2. the prompt is its first tenth, at least 4 and at most 12 tokens; the rest is the reply;
3. each of the ten sources gives one paragraph in turn, drawn without replacement, until there are 64; then the order is drawn.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from compute import facts
from compute.errors import BrokenData

FILE = facts.DATA / "batching-requests.json"
MODEL = "mini-256"
COUNT = 64
CONTEXT = 256
PROMPT = (4, 12)
SEED = 0


@dataclass(frozen=True)
class Request:
    """prompt: token ids of mini-256. output: tokens of the reply."""

    source: str
    text: str
    prompt: tuple[int, ...]
    output: int


@cache
def requests() -> tuple[Request, ...]:
    """In order of arrival."""
    try:
        rows = json.loads(FILE.read_text(encoding="utf-8"))["requests"]
        return tuple(Request(row["source"], row["text"], tuple(row["prompt"]), row["output"]) for row in rows)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise BrokenData("data/batching-requests.json", f"{e}; make it again: python -m compute.batching_requests") from None


def prompt_length(tokens: int) -> int:
    """Of a paragraph of so many tokens."""
    return min(max(tokens // 10, PROMPT[0]), PROMPT[1])


def choose(seed: int = SEED) -> dict[str, Any]:
    """What the file holds, drawn from the validation texts."""
    from tokenizers import Tokenizer  # pages read this module without them

    from compute.training import mixture, texts

    encode = Tokenizer.from_file(str(facts.DATA / "checkpoints" / MODEL / "tokenizer.json")).encode
    sources = [row for row in json.loads((mixture.TEXTS / texts.INDEX).read_text(encoding="utf-8"))["sources"] if "archive" in row]
    rng = np.random.default_rng(seed)
    drawn: dict[str, list[tuple[str, list[int]]]] = {}
    for name in (row["name"] for row in sources):
        lines = dict.fromkeys(line for document in mixture.read_text(name) for line in document.split("\n"))
        fitting = [(line, ids) for line in lines if PROMPT[0] < len(ids := encode(line).ids) <= CONTEXT]
        drawn[name] = [fitting[at] for at in rng.permutation(len(fitting))]
    turns = [(name, *drawn[name][turn]) for turn in range(-(-COUNT // len(drawn))) for name in drawn][:COUNT]
    rows = [(name, line, ids, prompt_length(len(ids))) for name, line, ids in (turns[at] for at in rng.permutation(COUNT))]
    return {
        "about": "64 paragraphs of the validation texts as replies; drawn by python -m compute.batching_requests, whose first lines say the rule",
        "model": MODEL,
        "seed": seed,
        "sources": {row["name"]: {"licence": row["licence"], "notice": row["notice"]} for row in sources},
        "requests": [{"source": name, "prompt": ids[:p], "output": len(ids) - p, "text": line} for name, line, ids, p in rows],
    }


def main() -> int:
    made = choose()
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in made.pop("requests"))
    head = json.dumps(made, ensure_ascii=False, indent=1).removesuffix("\n}")
    FILE.write_text(f'{head},\n "requests": [\n  {rows}\n ]\n}}\n', encoding="utf-8")
    lengths = sorted(request.output for request in requests())
    print(f"{FILE}: {len(lengths)} requests, {lengths[0]} to {lengths[-1]} tokens written, {sum(lengths)} in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
