"""Figures and README.md of the drafts that are no ordinary mini model: two prediction heads and smollm2-draft."""

from __future__ import annotations

import json

import numpy as np
import torch
from safetensors.torch import load_file

from compute.engine import registry
from compute.training import draft, evaluate, mixture, mtp, smollm2_mtp, teach
from compute.training import model as mini
from compute.training.card import LOG, _curve, _data, _run, _table
from compute.training.tokenizer import load as load_tokenizer
from compute.training.train import CHECKPOINTS, Recipe, conditions

MEASURED_DEPTHS = 4  # one more than training unrolls


def measure_mtp() -> dict:
    """α and greedy agreement by depth on the whole validation texts; a domain is the sum of its sources."""
    target, head = mini.load(CHECKPOINTS / mtp.TARGET), mtp.load(CHECKPOINTS / mtp.NAME)
    tokenizer = load_tokenizer(CHECKPOINTS / mtp.TARGET)
    sources = {
        name: {"tokens": len(stream) - 1, "depths": mtp.agreement(target, head, stream, MEASURED_DEPTHS)}
        for name, (stream, _) in evaluate.streams(tokenizer).items()
    }
    domains = {}
    for domain, names in mixture.DOMAINS.items():
        rows, weights = [sources[n] for n in names], [sources[n]["tokens"] for n in names]
        depths = [
            {key: float(np.average([r["depths"][d][key] for r in rows], weights=weights)) for key in ("alpha", "greedy")}
            for d in range(MEASURED_DEPTHS)
        ]
        domains[domain] = {"tokens": sum(weights), "depths": depths}
    measured = {"text": "data/texts, whole files", "precision": "float32", **conditions()}
    return {"measured": measured, "domains": domains, "sources": sources}


def mtp_table(final: dict) -> str:
    """α by domain and depth, beside the two distilled drafts."""
    drafts = {n: json.loads((CHECKPOINTS / n / LOG).read_text(encoding="utf-8"))["final"]["domains"] for n in ("mini-128", "mini-64")}
    header = ["text", *(f"guess {d + 1}" for d in range(MEASURED_DEPTHS)), *drafts]
    rows = [
        [domain, *(f"{d['alpha']:.3f}" for d in found["depths"]), *(f"{drafts[n][domain]['alpha']:.3f}" for n in drafts)]
        for domain, found in final["domains"].items()
    ]
    greedy = [
        [domain, *(f"{d['greedy']:.3f}" for d in found["depths"]), *(f"{drafts[n][domain]['greedy']:.3f}" for n in drafts)]
        for domain, found in final["domains"].items()
    ]
    return f"α:\n\n{_table(header, rows)}\n\nGreedy agreement:\n\n{_table(header, greedy)}"


def mtp_card(log: dict) -> str:
    head = mtp.load(CHECKPOINTS / mtp.NAME)
    s, final = head.shape, log["final"]
    measured = final["measured"]
    return f"""---
language: [zh, en]
base_model: mini-256
---

# {mtp.NAME}

A multi-token prediction head of {mini.parameters(head):,} parameters with which {mtp.TARGET} drafts for itself in
speculative decoding. Not a model: without {mtp.TARGET}'s hidden states, embedding and output matrix it computes nothing.
After the module of the DeepSeek-V3 report (arXiv:2412.19437, §2.2); trained afterwards, with the target frozen. Written by
`python -m compute.training card {mtp.NAME}` from `{LOG}`.

| | |
| --- | --- |
| width, MLP width | {s.width}, {s.hidden} |
| query heads, KV heads, head dimension | {s.heads}, {s.kv_heads}, {s.head} |
| weights | float32, safetensors; Hugging Face's names inside `layer` |

## What it computes

Position i holds h_i, the target's last hidden state after its final norm, and E[t_(i+1)], the embedding of the token that
follows:

    x_i  = projection · concat(hidden_norm(h_i), embedding_norm(E[t_(i+1)]))
    h'_i = norm(block(x)_i)          one Llama block, causal, rotary position i
    q    = softmax(E h'_i)           a guess of t_(i+2)

The next guess puts h'_i where h_(i+1) would stand: position i + 1 holds h'_i and E[t_(i+2)], and guesses t_(i+3); and so on.
For verified positions the block's keys and values are those from true h; those of the guesses of a round come from the
recursion, and are computed again from true h once the target has verified them.

## Training

Depths 1 … {mtp.DEPTH} are unrolled exactly so, not approximated: the query of depth d at position j sees the keys from true h
up to position j − d + 1, then those of its own chain. Tokens are those of the text. The loss is the mean over the depths: in
the first half of the steps the cross-entropy to the target's whole distribution, in the second −log Σ min(p, q).

    OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 python -m compute.training mtp

{_run(log)}
### Text

{_data(Recipe(**log["recipe"]))}

The text is that of {mtp.TARGET}; notices: `data/texts/README.md`.

### Loss curve

`loss` is the training loss since the row before; `alpha_…_d` is α of depth d on the first 16 windows of one source a domain.

{_curve(log, 8)}

## Validation

Whole files of `data/texts`, {measured["precision"]}, windows of {mixture.CONTEXT} tokens without earlier context; measured
{measured["date"]} with torch {measured["torch"]}, {measured["processor"]}. α is the mean of Σ min(p, q) with {mtp.TARGET} (p)
over all positions, temperature 1, when the tokens before the guess are those of the text: the chance that guess d is accepted
if the ones before it were. Guess {MEASURED_DEPTHS} lies beyond what training unrolled. The last columns are the distilled drafts' own
figures, for comparison.

{mtp_table(final)}

## Limits

- Only for {mtp.TARGET} with exactly the weights beside it.
- {mixture.CONTEXT} tokens is the longest text it was trained on.
"""


def measure_draft() -> dict:
    """On the fixed prompts; the target must be there (`run.py models`)."""
    target, model = registry.shared().get(draft.TARGET), mini.load(CHECKPOINTS / draft.NAME)
    return {"measured": {"precision": "float32", **conditions()}, **draft.measure(target, model)}


def draft_card(log: dict) -> str:
    model = mini.load(CHECKPOINTS / draft.NAME)
    s, final, taught = model.shape, log["final"], log["taught"]
    measured, recipe = final["measured"], Recipe(**log["recipe"])
    count = mini.parameters(model)
    rows = [[p["id"], p["kind"], str(p["tokens"]), f"{p['greedy']:.3f}", f"{p['alpha']:.3f}"] for p in final["prompts"]]
    prompts = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    gains = " | ".join(f"{v:.2f}" for v in final["tokens_a_round"].values())
    return f"""---
license: apache-2.0
library_name: transformers
language: [en]
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# {draft.NAME}

A Llama of {count:,} parameters that drafts for SmolLM2-135M-Instruct in speculative decoding. It has SmolLM2's
vocabulary and knows little more than which token SmolLM2 tends to write next; alone it is of no use. Written by
`python -m compute.training card {draft.NAME}` from `{LOG}`.

| | |
| --- | --- |
| layers, width, MLP width | {s.layers}, {s.width}, {s.hidden} |
| query heads, KV heads, head dimension | {s.heads}, {s.kv_heads}, {s.head} |
| vocabulary | {s.vocabulary:,}, SmolLM2's byte-level BPE; embeddings tied, {s.vocabulary * s.width:,} of the parameters |
| longest sequence trained, positions allowed | about 330, {mini.POSITIONS} |
| weights | float16, safetensors; trained and run in float32 |

## Origin and licence

SmolLM2-135M-Instruct is by Hugging Face, Apache License 2.0 (`LICENSE` in this folder). Of it come, changed where said:

- `tokenizer.json`: its tokenizer, exported from the GGUF file that `python3 run.py models` fetches; unchanged.
- the embedding: it began as the {s.width} leading principal components of SmolLM2's embedding matrix ({s.vocabulary:,} × 576;
  rows weighted by how much probability SmolLM2 gives them in its answers), in another scale, and was then trained.
- what it learned: SmolLM2's own answers and their distributions.

The other matrices began as random numbers. The prompts are this project's (`compute/training/prompts_en.py`). Whether weights
inherit the licence of a text is unsettled; these files are given on under Apache-2.0 as well.

## Training

SmolLM2 (Q4_1 weights, computed in float32) answered {taught["answers"]:,} prompts with up to {teach.NEW} tokens, {taught["tokens"]:,} in all:
three in five greedily, one at temperature 0.7, one at 1.0. Each position keeps its {teach.TOP} most likely tokens with their
probabilities at temperature 1. One answer in {draft.HELD_OUT} is for watching only. The draft sees prompt and answer and learns at the
answer's positions: cross-entropy to the kept distribution, renormalised; from {draft.LAST_PART} of the steps on −log Σ min(p, q). A step's
softmax takes the tokens that SmolLM2 considers in the batch, and {draft.OTHERS:,} drawn from the others that stand for all of them.

    OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS=1 python -m compute.training teach --groups {taught["groups"]}
    OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS={log["starts"][-1]["threads"]} python -m compute.training draft

{_run(log)}- an answer that ends early predicts fewer than {recipe.window} tokens, so the number of tokens is an upper bound

### Loss curve

`loss` is the training loss since the row before; `val_…` on answers that are only watched: greedy agreement, Σ min(p, q) over
the kept tokens, cross-entropy in nats.

{_curve(log)}

## Validation

The 16 prompts of `data/speculation-prompts.toml`, none of them in training, along SmolLM2's greedy answers of up to 96 tokens;
{measured["precision"]}, {measured["date"]}, torch {measured["torch"]}, {measured["processor"]}. Greedy agreement is how often the draft's
most likely token is the one that SmolLM2 writes; α is the mean of Σ min(p, q), whole vocabulary, temperature 1.

All {final["tokens"]:,} tokens: greedy agreement {final["greedy"]:.3f}, α {final["alpha"]:.3f}.

Tokens that one verification yields at temperature 0 (accepted guesses and the target's own), for k guesses:

| k | {" | ".join(final["tokens_a_round"])} |
| --- |{" ---: |" * len(final["tokens_a_round"])}
| tokens a round | {gains} |

| prompt | kind | tokens | greedy agreement | α |
| --- | --- | ---: | ---: | ---: |
{prompts}

## Limits

- Its text alone is neither true nor safe, and not for use outside lessons.
- English; answers in SmolLM2's chat format with its default system line. Elsewhere it agrees less.
"""


def measure_smollm2_mtp() -> dict:
    """On the fixed prompts; the target must be there (`run.py models`)."""
    folder = CHECKPOINTS / smollm2_mtp.NAME
    target, kept = registry.shared().get(smollm2_mtp.TARGET), load_file(folder / "model.safetensors")["shortlist"]
    found = smollm2_mtp.measure(target, mtp.load(folder), kept)
    return {"measured": {"precision": "float32", **conditions()}, **found}


def smollm2_mtp_card(log: dict) -> str:
    head = mtp.load(CHECKPOINTS / smollm2_mtp.NAME)
    s, final, taught, recipe = head.shape, log["final"], log["taught"], Recipe(**log["recipe"])
    measured, before = final["measured"], log["before"]
    depths = range(1, len(final["greedy"]) + 1)
    deeper = " and ".join(str(round(part * recipe.steps)) for part in log["deeper_from"])
    prompts = _table(
        ["prompt", "kind", "tokens", "guess 1"],
        [[p["id"], p["kind"], str(p["tokens"]), f"{p['greedy']:.3f}"] for p in final["prompts"]],
    )
    by_depth = _table(
        ["", *(str(d) for d in depths)],
        [
            ["greedy agreement of guess …", *(f"{g:.3f}" for g in final["greedy"])],
            ["tokens a round with k = …", *(f"{g:.2f}" for g in final["tokens_a_round"].values())],
        ],
    )
    return f"""---
license: apache-2.0
language: [en]
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# {smollm2_mtp.NAME}

A prediction head of {mini.parameters(head):,} parameters with which SmolLM2-135M-Instruct drafts for itself in speculative
decoding. Not a model: without SmolLM2's hidden states, embedding and output matrix it computes nothing. After the module of
the DeepSeek-V3 report (arXiv:2412.19437, §2.2) and EAGLE (arXiv:2401.15077); trained afterwards, with the target frozen.
Written by `python -m compute.training card {smollm2_mtp.NAME}` from `{LOG}`.

| | |
| --- | --- |
| width, MLP width | {s.width}, {s.hidden} |
| query heads, KV heads, head dimension | {s.heads}, {s.kv_heads}, {s.head} |
| rotary base | {head.theta:,.0f} |
| weights | float16, safetensors; trained and run in float32; Hugging Face's names inside `layer` |
| `shortlist` | ids of the {smollm2_mtp.SHORTLIST:,} tokens that it can guess, ascending |

## Origin and licence

SmolLM2-135M-Instruct is by Hugging Face, Apache License 2.0 (`LICENSE` in this folder). Of it come, changed by training: the
block, which began as SmolLM2's last layer, and the last norm; what the head learned are SmolLM2's own answers and their
distributions. The prompts are this project's (`compute/training/prompts_en.py`). Whether weights inherit the licence of a
text is unsettled; these files are given on under Apache-2.0 as well.

## What it computes

Position i holds h_i, the target's last hidden state after its final norm, and E[t_(i+1)], the embedding of the token that
follows:

    x_i  = projection · concat(hidden_norm(h_i), embedding_norm(E[t_(i+1)]))
    h'_i = norm(block(x)_i)          one Llama block, causal, rotary position i
    q    = softmax(E[shortlist] h'_i)           a guess of t_(i+2)

The next guess puts h'_i where h_(i+1) would stand. Keys and values of verified positions come from true h.

## Training

Start: the block is SmolLM2's last layer, and the projection is the solution of a ridge regression of what that layer would read
one position on, over {smollm2_mtp.FIT} answers. That alone names {before["greedy_1"]:.1%} of the watched tokens at guess 1.

Then {taught["answers"]:,} of SmolLM2's answers ({taught["groups"]} groups, {taught["tokens"]:,} tokens; three in five greedy, one at temperature 0.7, one at 1.0), with
prompts, along which SmolLM2's hidden states were computed once and kept in float16. The loss is the mean over the guesses in
a row of the cross-entropy to a mixture: {smollm2_mtp.SHARE:.0%} on SmolLM2's most likely token, the rest on its {smollm2_mtp.CONSIDERED} most likely ones as it
distributes them. One guess is unrolled at first, two and three from step {deeper}, exactly as the engine runs
them. A step's softmax takes the tokens that SmolLM2 considers in the batch, and {smollm2_mtp.OTHERS:,} drawn from the rest of the shortlist
that stand for all of it.

    OMP_WAIT_POLICY=PASSIVE python -m compute.training teach --groups {taught["groups"]}
    OMP_WAIT_POLICY=PASSIVE OMP_NUM_THREADS={log["starts"][-1]["threads"]} python -m compute.training mtp {smollm2_mtp.NAME}

{_run(log)}- an answer that ends early predicts fewer than {recipe.window} tokens, so the number of tokens is an upper bound

### Loss curve

`loss` is the training loss since the row before, over the guesses unrolled at that time; `greedy_…` is the greedy agreement of
that guess on greedy answers that are only watched.

{_curve(log)}

## Validation

The 16 prompts of `data/speculation-prompts.toml`, none of them in training, along SmolLM2's greedy answers of up to 96 tokens,
{final["tokens"]:,} in all; {measured["precision"]}, {measured["date"]}, torch {measured["torch"]}, {measured["processor"]}. Greedy agreement: how often
guess d is the token that SmolLM2 writes, if the guesses before it were. Tokens a round: what one verification yields at
temperature 0 with k guesses, accepted ones and the target's own. The first token of an answer comes from the prompt and is not
counted. Guesses beyond {mtp.DEPTH} lie beyond what training unrolled.

{by_depth}

{prompts}

## Limits

- Only for SmolLM2-135M-Instruct.
- English; answers in SmolLM2's chat format with its default system line. Elsewhere it agrees less.
- {smollm2_mtp.LONGEST} tokens, prompt and answer, is the longest text it was trained on.
"""


MADE = {
    mtp.NAME: (measure_mtp, mtp_card),
    draft.NAME: (measure_draft, draft_card),
    smollm2_mtp.NAME: (measure_smollm2_mtp, smollm2_mtp_card),
}


def write(name: str) -> None:
    """Measures one of them, keeps the figures in its log under `final`, and writes its card."""
    measure, card = MADE[name]
    folder = CHECKPOINTS / name
    log = json.loads((folder / LOG).read_text(encoding="utf-8"))
    torch.set_grad_enabled(False)
    log["final"] = measure()
    (folder / LOG).write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(log), encoding="utf-8")
