"""Model cards: README.md of every checkpoint, written from the training log and from figures measured here."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from compute.training import evaluate, mixture, moe, reader, texts
from compute.training import model as mini
from compute.training.distil import TEACHER
from compute.training.tokenizer import load as load_tokenizer
from compute.training.train import CHECKPOINTS, Recipe, conditions

LOG = "training-log.json"
PROMPTS = (
    "小明把苹果给了", "小红带着一本故事书来到公园。", "从前，森林里住着一只小猴子。", "今天早上，外面下着小雨。",
    "话说曹操引兵", "念奴娇\n", "如果要在文档中插入表格，", "Xiao Ming gave the apple to", "To open a file, choose",
)  # fmt: skip
EXAMPLE = "小明把苹果给了"
BALANCED = """ `balance` is experts · Σ f·P of the last training batch: 1 when all experts are used alike. How they are used
on the validation texts, layer by layer and by kind of text: `mini-moe.balance` in `data/precomputed.json`."""
COMMANDS = {
    "mini-256": "OMP_WAIT_POLICY=PASSIVE python -m compute.training train --compile",
    "mini-128": "OMP_WAIT_POLICY=PASSIVE python -m compute.training distil mini-128 --compile",
    "mini-64": "OMP_WAIT_POLICY=PASSIVE python -m compute.training distil mini-64 --compile",
    "mini-moe": "OMP_WAIT_POLICY=PASSIVE python -m compute.training moe",
}


def load(name: str) -> mini.Llama:
    return (moe.load if name == moe.NAME else mini.load)(CHECKPOINTS / name)


@torch.no_grad()
def continue_text(model: mini.Llama, tokenizer, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """The continuation alone, up to <|endoftext|>. Temperature 0 is greedy. Recomputes everything at each token."""
    generator = torch.Generator().manual_seed(seed)
    ids = tokenizer.encode(prompt).ids
    start = len(ids)
    for _ in range(tokens):
        logits = model(torch.tensor([ids[-mixture.CONTEXT :]]))[0, -1].float()
        if temperature:
            next_id = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator))
        else:
            next_id = int(logits.argmax())
        if next_id == mixture.END:
            break
        ids.append(next_id)
    return tokenizer.decode(ids[start:])


@torch.no_grad()
def most_likely(model: mini.Llama, tokenizer, prompt: str, count: int = 5) -> list[tuple[str, float]]:
    """The next tokens with the highest probability at temperature 1."""
    p = model(torch.tensor([tokenizer.encode(prompt).ids]))[0, -1].float().softmax(-1)
    values, ids = p.topk(count)
    return [(tokenizer.decode([int(i)]), float(v)) for i, v in zip(ids, values, strict=True)]


def contradictions(model: mini.Llama, tokenizer, count: int = 60, tokens: int = 80) -> dict:
    """How many of `count` stories contradict themselves: each goes on, at temperature 0.8, from the first sentence of a
    held-out story in which something is given."""
    stories = [d for d in mixture.read_text("stories-zh") if "给了" in d][:count]
    openings = [d[: d.index("。") + 1] for d in stories]
    readings = [reader.read(o + continue_text(model, tokenizer, o, tokens, 0.8, i)) for i, o in enumerate(openings)]
    return {
        "stories": len(readings),
        "handings": sum(len(r.handings) for r in readings),
        "contradictory": sum(bool(r.contradictions) for r in readings),
    }


def measure(name: str, target: mini.Llama | None) -> dict:
    """Final figures of one checkpoint, added to its log under `final`."""
    path = CHECKPOINTS / name / LOG
    log = json.loads(path.read_text(encoding="utf-8"))
    model, tokenizer = load(name), load_tokenizer(CHECKPOINTS / name)
    log["final"] = {
        "measured": {"text": "data/texts, whole files", "precision": "float32", **conditions()},
        **evaluate.report(model, tokenizer, target),
        **({"training_text": moe.learned(model, load(moe.SOURCE))} if name == moe.NAME else {}),
        "own_stories": contradictions(model, tokenizer),
        "example": {"prompt": EXAMPLE, "next": most_likely(model, tokenizer, EXAMPLE)},
        "samples": [
            {
                "prompt": prompt,
                "greedy": continue_text(model, tokenizer, prompt, 60, 0.0, 0),
                "temperature 0.8, seed 0": continue_text(model, tokenizer, prompt, 60, 0.8, 0),
            }
            for prompt in PROMPTS
        ],
    }
    path.write_text(json.dumps(log, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return log


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _figures(rows: dict[str, dict]) -> str:
    drafted = "alpha" in next(iter(rows.values()))
    header = ["text", "tokens", "nats/token", "bits/byte"] + (["α", "greedy agreement"] if drafted else [])
    return _table(
        header,
        [
            [name, f"{r['tokens']:,}", f"{r['nats_per_token']:.3f}", f"{r['bits_per_byte']:.3f}"]
            + ([f"{r['alpha']:.3f}", f"{r['greedy']:.3f}"] if drafted else [])
            for name, r in rows.items()
        ],
    )


def _curve(log: dict, most: int = 16) -> str:
    """About `most` records, always the last one."""
    curve = log["curve"]
    stride = max(1, len(curve) // most)
    rows = curve[::-1][::stride][::-1]
    keys = [k for k in rows[0] if k not in ("step", "tokens")]
    cells = [[str(r["step"]), f"{r['tokens']:,}"] + [f"{r[k]:.3f}" for k in keys] for r in rows]
    return _table(["step", "tokens", *keys], cells)


def _data(recipe: Recipe) -> str:
    sources = json.loads((mixture.TEXTS / texts.INDEX).read_text(encoding="utf-8"))["sources"]
    rows = []
    for s in sources:
        drawn = recipe.tokens * mixture.SHARES[s["name"]] / sum(mixture.SHARES.values())
        held = s["training"]["tokens"]
        rows.append(
            [
                s["name"],
                s["domain"],
                s["licence"],
                s.get("archive", s["package"]),
                f"{s['training']['characters']:,}",
                f"{held:,}",
                f"{drawn / recipe.tokens:.1%}",
                f"{drawn / held:.1f}",
            ]
        )
    header = ["source", "domain", "licence", "archive", "characters", "tokens", "share of windows", "times read"]
    return _table(header, rows)


def _beside(log: dict) -> str:
    """mini-moe beside the model it began from, and beside that one when it read on unchanged: on validation text, and on text that all
    were trained on."""
    held: dict[str, int] = {}
    for s in json.loads((mixture.TEXTS / texts.INDEX).read_text(encoding="utf-8"))["sources"]:
        held[s["domain"]] = held.get(s["domain"], 0) + s["training"]["tokens"]
    dense = json.loads((CHECKPOINTS / moe.SOURCE / LOG).read_text(encoding="utf-8"))
    aside = json.loads((CHECKPOINTS / moe.NAME / moe.CONTROL).read_text(encoding="utf-8"))
    tokens = sum(Recipe(**of["recipe"]).tokens for of in (dense, log))
    final, learned, on = log["final"], log["final"]["training_text"]["domains"], aside["training_text"]["domains"]
    rows, heart = [], []
    for domain, names in mixture.DOMAINS.items():
        times = tokens * sum(mixture.SHARES[n] for n in names) / sum(mixture.SHARES.values()) / held[domain]
        read = sum(sum(aside["windows"][n]) for n in names) / sum(final["sources"][n]["tokens"] for n in names)
        before, after, known = dense["final"]["domains"][domain]["nats_per_token"], final["domains"][domain]["nats_per_token"], learned[domain]
        losses = (before, read, after, known["source_nats_per_token"], on[domain]["nats_per_token"], known["nats_per_token"])
        rows.append([domain, f"{held[domain]:,}", f"{times:.1f}", *(f"{v:.3f}" for v in losses)])
        if known["high"] < 0 and after > before:
            heart.append(domain)
    models = (moe.SOURCE, f"{moe.SOURCE} read on", "this model")
    table = _table(["text", "tokens to train on", "times read, both trainings", *models, *(f"{each}, training text" for each in models)], rows)
    return f"""### Beside {moe.SOURCE}

Nats per token on the validation texts, then on {final["training_text"]["windows"]} windows a kind of the text that all were trained on (seed {final["training_text"]["seed"]}). “Read on” is {moe.SOURCE}
trained on by this model's recipe and on the same batches, without experts (`{aside["command"]}`; its losses are in `{moe.CONTROL}`, its
weights were not kept). Learned by heart, that is, better than {moe.SOURCE} on what it was trained on and worse on what it was not: {", ".join(heart) or "none"}.

{table}

"""


def _run(log: dict) -> str:
    """A run as a list: recipe, time, machine."""
    recipe, last = Recipe(**log["recipe"]), log["starts"][-1]
    threads = " then ".join(dict.fromkeys(str(s["threads"]) for s in log["starts"]))
    return f"""- {recipe.steps:,} steps of {recipe.rows} windows × {recipe.window} tokens = {recipe.tokens:,} tokens; seed {recipe.seed}
- Muon (rate {recipe.muon_rate}) for matrices, AdamW (rate {recipe.adam_rate}, β 0.9, 0.95) for embedding and norms;
  warm-up {recipe.warmup} steps, linear decay over the last {recipe.decay:.0%} to {recipe.last_rate:.0%} of the rate, flat
  between; gradient norm clipped at {recipe.clip}
- {log["seconds"] / 60:.0f} minutes, {recipe.tokens / log["seconds"]:.0f} tokens/s on average, stopped and resumed {len(log["starts"]) - 1}
  times, on a machine shared with other work
- {last["processor"]}, {last["cores"]} cores, {threads} threads, {last["precision"]}, torch.compile
  {"on" if last["compiled"] else "off"}; torch {last["torch"]}, Python {last["python"]}, OMP_WAIT_POLICY={last["OMP_WAIT_POLICY"]};
  {last["date"]}
"""


def _quoted(text: str) -> str:
    return text.replace("\n", " ⏎ ").replace("|", "\\|")


def card(name: str, log: dict) -> str:
    """README.md of one checkpoint."""
    recipe = Recipe(**log["recipe"])
    mixed = name == moe.NAME
    shape = moe.SHAPE if mixed else mini.SHAPES[recipe.shape]
    count = mini.parameters((moe.Moe if mixed else mini.Llama)(shape))
    if mixed:
        idle = shape.layers * (moe.EXPERTS - moe.CHOSEN) * 3 * shape.width * shape.hidden
        what = f"Mixtral of {count:,} parameters, of which a token goes through {count - idle:,},"
        inside = f"layers, width, width of an expert | {shape.layers}, {shape.width}, {shape.hidden} |\n| experts of a layer, chosen for a token | {moe.EXPERTS}, {moe.CHOSEN}"
    else:
        what, inside = f"Llama of {count:,} parameters", f"layers, width, MLP width | {shape.layers}, {shape.width}, {shape.hidden}"
    teacher = log.get("teacher")
    final = log["final"]
    measured = final["measured"]
    own = final["own_stories"]
    if teacher:
        how = (
            f"Distilled from {teacher}: the first half of the steps minimises cross-entropy to its whole distribution,\n"
            f"the second half −log Σ min(p, q)."
        )
    elif mixed:
        how = (
            f"Trained on from {moe.SOURCE}: embedding, attention and norms as they were, every expert with half of the neurons of its\n"
            f"layer's MLP, routers new (sparse upcycling, Komatsuzaki et al. 2022). The loss is next-token cross-entropy and {moe.BALANCE} of\n"
            f"the balance loss (Fedus et al. 2021, eq. 4), so that no expert is left without tokens. Cutting the MLPs\n"
            f"changed it and so did {recipe.tokens:,} tokens more, so that only the comparison with a {moe.SOURCE} that read on is one of experts."
        )
    else:
        how = "Trained from scratch on next-token cross-entropy."
    next_tokens = ", ".join(f"{_quoted(t)} {p:.3f}" for t, p in final["example"]["next"])
    samples = "\n".join(
        f"| {_quoted(s['prompt'])} | {_quoted(s['greedy'])} | {_quoted(s['temperature 0.8, seed 0'])} |"
        for s in final["samples"]
    )
    agreement = (
        f"α is the mean of Σ min(p, q) between this model (q) and {teacher} (p) over all positions, temperature 1; greedy "
        f"agreement is how often both name the same most likely token. " if teacher else ""
    )  # fmt: skip
    return f"""---
library_name: transformers
language: [zh, en]
pipeline_tag: text-generation
---

# {name}

A {what} for lessons on inference: small enough to run anywhere, trained well enough that its
next word is not noise. It tells small stories in Chinese and English, imitates software help, 三国演义 and 词. It knows
nothing else. Written by `python -m compute.training card` from `{LOG}`.

| | |
| --- | --- |
| {inside} |
| query heads, KV heads, head dimension | {shape.heads}, {shape.kv_heads}, {shape.head} |
| vocabulary | {shape.vocabulary}, byte-level BPE; embeddings tied |
| context trained, positions allowed | {mixture.CONTEXT}, {mini.POSITIONS} |
| weights | float32, safetensors |

## Training

{how}

    {COMMANDS[name]}

{_run(log)}
### Text

{_data(recipe)}

Half of the windows begin where a paragraph begins, the rest anywhere. Notices: `data/texts/README.md`. The stories come
from a grammar of this project. No GPL or GFDL text. Whether weights inherit the licence of a text is unsettled; the mix
avoids the question as far as it can.

### Loss curve

`loss` is the training loss since the row before; `val_…` are losses on the first 32 windows of one source a domain.
Nats per token.{BALANCED if mixed else ""}

{_curve(log)}

## Validation

Whole files of `data/texts`, {measured["precision"]}, windows of {mixture.CONTEXT} tokens without earlier context; measured
{measured["date"]} with torch {measured["torch"]}. {agreement}A domain is the sum of its sources.

{_figures(final["domains"])}

{_figures(final["sources"])}

{_beside(log) if mixed else ""}## What it writes

After {EXAMPLE} the most likely tokens are: {next_tokens}.

| prompt | greedy | temperature 0.8, seed 0 |
| --- | --- | --- |
{samples}

Of {own["stories"]} stories that it wrote itself at temperature 0.8 from a given first sentence ({own["handings"]} handings),
{own["contradictory"]} contradict themselves about who has a thing (`compute/training/reader.py`).

## Limits

- No knowledge, no reasoning, no safety training, not for use outside lessons. Facts in its text are chance.
- {mixture.CONTEXT} tokens is the longest text it was trained on; positions up to {mini.POSITIONS} run, but get worse.
- The stories' cast is small: the model prefers those names, things and places, and 小明's apple mostly goes to 小王
  because the grammar says that they are friends.
- <|im_start|> and <|im_end|> exist in the vocabulary and were never trained. There is no chat format.
- Classical text is 三国演义, 宋词, part of 全唐诗 and school primers; modern text is software help only.
- One Han character may be several tokens: decode a stream incrementally.
"""


def write_all(names: tuple[str, ...] = ("mini-256", "mini-128", "mini-64", "mini-moe")) -> None:
    """Measure and write the card of every checkpoint that has a log."""
    target = mini.load(CHECKPOINTS / TEACHER)
    for name in names:
        folder: Path = CHECKPOINTS / name
        if not (folder / LOG).exists():
            print(f"{name}: no {LOG} yet, skipped")
            continue
        began = time.monotonic()
        log = measure(name, target if name not in (TEACHER, moe.NAME) else None)
        (folder / "README.md").write_text(card(name, log), encoding="utf-8")
        print(f"{name}: {time.monotonic() - began:.0f} s")
