"""What the routers of mini-moe do on the validation text: how evenly they share it out, what a batch reads, what they go by; its loss beside
mini-256's; and the recorded routes of the moe-router's sentences.

Where two experts lie so near that the last digit decides, another processor chooses the other one: shares move in the fifth digit.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compute import facts, moe
from compute.measures.job import Job, Report, Value, nobody

MODEL, DENSE = "mini-moe", "mini-256"
SENTENCES = {"zh": "小明把苹果给了小红，小红很高兴。", "en": "Tom gave the apple to Lily. She was happy."}
DOMAINS = ("stories", "modern", "classical", "english", "stories-en")
KINDS = ("han", "latin", "digit", "mark", "part")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
BATCH = 8
DRAWS, SEED = 2000, 0
FAVOURITES, OFTEN = 6, 40  # tokens that are named for an expert, of those that come so often
NEAR = {"relative": 0.01}  # of shares and means over the text
TEXT = "data/texts, all 12 files, windows of 256 tokens without earlier context"


@dataclass(frozen=True)
class Reading:
    """The whole validation text read once. chosen (layers, N, k): the likeliest first; probability (layers, domains, E): means; tokens,
    domains, kinds, places (N): ids, numbers of DOMAINS and KINDS, and positions in the window; lengths (N): tokens of the window."""

    chosen: NDArray[np.uint8]
    probability: NDArray[np.float64]
    tokens: NDArray[np.int64]
    domains: NDArray[np.int64]
    kinds: NDArray[np.int64]
    places: NDArray[np.int64]
    lengths: NDArray[np.int64]
    losses: NDArray[np.float64]  # of each window, nats
    text: Any  # compute.quantize.loss.Text
    pieces: tuple[str, ...]  # by token id


@cache
def _read() -> Reading:
    from compute.engine import registry, routing
    from compute.quantize.loss import CONTEXT, DOMAIN_OF, losses, read_text

    model = registry.shared().get(MODEL)
    text = read_text(model)
    weights, routers = routing.watched(model.weights)
    sums = losses(weights, text)
    real = np.arange(CONTEXT) < text.counts[:, None]  # (windows, CONTEXT): not filled up
    tokens = text.tokens[:, :-1][real]
    domains = np.broadcast_to(np.array([DOMAINS.index(DOMAIN_OF[s]) for s in text.sources.tolist()])[:, None], real.shape)[real]
    places = np.broadcast_to(np.arange(CONTEXT), real.shape)[real]
    lengths = np.broadcast_to(text.counts[:, None], real.shape)[real]
    pieces = tuple(model.tokenizer.piece(token) for token in range(model.config.vocabulary))
    kinds = np.array([KINDS.index(kind(piece)) for piece in pieces])[tokens]
    chosen, probability = [], []
    for router in routers:
        scores = router.said().astype(np.float64)[real.ravel()]
        chosen.append(np.argsort(-scores, axis=1, kind="stable")[:, : model.config.chosen].astype(np.uint8))
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        probability.append([p[domains == d].mean(0) for d in range(len(DOMAINS))])
    return Reading(np.stack(chosen), np.array(probability), tokens, domains, kinds, places, lengths, sums, text, pieces)


def kind(piece: str) -> str:
    """What a token is to a reader. part: bytes of a character that several tokens make up."""
    text = piece.strip()
    if "⟨" in text:  # as the tokenizer shows bytes: ⟨E5 B0⟩
        return "part"
    if text.startswith("<|"):  # <|endoftext|>
        return "mark"
    if any("\u4e00" <= c <= "\u9fff" for c in text):
        return "han"
    if any(unicodedata.category(c).startswith("L") for c in text):
        return "latin"
    return "digit" if any(c.isdigit() for c in text) else "mark"


# ---- measures


def parameters(*, model: str, report: Report = nobody) -> dict[str, Value]:
    """Of the loaded weights; compute/claims/moe.py says the same from the configuration."""
    from compute.engine.registry import shared

    weights = shared().get(model).weights
    around = {"model": model, "counted": "tensor shapes"}
    made = {
        "parameters": (weights.parameters(), "权重文件里的全部参数", "all parameters in the weight file"),
        "active_parameters": (weights.active_parameters(), "一个 token 经过的参数", "parameters that a token goes through"),
    }
    return {f"{model}.{name}": Value(value, "parameter", {"exact": True}, around, says={"zh": f"{model} {zh}", "en": f"{en} of {model}"}) for name, (value, zh, en) in made.items()}


def routing(*, model: str, report: Report = nobody) -> dict[str, Value]:
    """Load, balance, what a batch reads, and what the choice goes by, all over the validation text."""
    from compute.engine.registry import shared
    from compute.engine.served import circumstances

    report(0.0, model)
    r = _read()
    experts = r.probability.shape[-1]
    weights = np.bincount(r.domains, minlength=len(DOMAINS)) / len(r.domains)
    load = np.array([moe.loads(layer, experts) for layer in r.chosen])  # (layers, E)
    mean = np.einsum("d,lde->le", weights, r.probability)
    balances = [moe.balance(f, p) for f, p in zip(load, mean)]
    report(0.8, "batches")
    read = _reads(r)
    follows = {what: [_follows(layer[:, 0], labels) for layer in r.chosen] for what, labels in (("domain", r.domains), ("kind", r.kinds), ("token", r.tokens))}
    trace = {
        "tokens": len(r.tokens), "balance": balances, "load": load.tolist(),
        "domains": {name: [moe.loads(layer[r.domains == d], experts).tolist() for layer in r.chosen] for d, name in enumerate(DOMAINS)},
        "kinds": {name: [moe.loads(layer[r.kinds == k], experts).tolist() for layer in r.chosen] for k, name in enumerate(KINDS)},
        "domain_tokens": {name: int((r.domains == d).sum()) for d, name in enumerate(DOMAINS)},
        "kind_tokens": {name: int((r.kinds == k).sum()) for k, name in enumerate(KINDS)},
        "batches": BATCHES, "read": read, "follows": follows, "favourites": [_favourites(r, layer, experts) for layer in r.chosen],
    }  # fmt: skip
    around = circumstances(shared().get(model)) | {"text": TEXT, "tokens": len(r.tokens)}
    drawn = around | {"draws": DRAWS, "seed": SEED, "batch": BATCH}
    at = BATCHES.index(BATCH)

    def said(zh: str, en: str) -> dict[str, str]:
        return {"zh": f"{model}：{zh}", "en": f"{model}: {en}"}

    made = {
        f"{model}.balance": Value(float(np.mean(balances)), "count", NEAR, around, says=said("8·Σ f·P，各层平均；1 是均匀", "8·Σ f·P, mean over the layers; 1 is even"), n=len(r.tokens),
                                  trace=_digits(trace), trace_tolerance={"absolute": 2e-3, "parted": 0.1}),
        f"{model}.load_least": Value(float(load.min()), "ratio", NEAR, around, says=said("最闲的专家分到的份额", "share of the least used expert")),
        f"{model}.load_most": Value(float(load.max()), "ratio", NEAR, around, says=said("最忙的专家分到的份额", "share of the most used expert")),
        f"{model}.read_batch": Value(float(np.mean([layer[at] for layer in read["mixed"]])), "count", NEAR, drawn, says=said("各处抽来的 8 个 token 在一层里读到的专家", "experts of a layer that 8 tokens from anywhere read")),
        f"{model}.read_run": Value(float(np.mean([layer[at] for layer in read["run"]])), "count", NEAR, drawn, says=said("一段文字里连续 8 个 token 在一层里读到的专家", "experts of a layer that 8 neighbouring tokens of a text read")),
    }  # fmt: skip
    names = {"domain": ("知道文本类别后，首选专家的不确定少了多少", "uncertainty about the first expert that the kind of text removes"), "kind": ("知道 token 种类后，首选专家的不确定少了多少", "uncertainty about the first expert that the kind of token removes"),
             "token": ("知道 token 本身后，首选专家的不确定少了多少", "uncertainty about the first expert that the token itself removes")}  # fmt: skip
    return made | {f"{model}.follows.{what}": Value(float(np.mean(values)), "ratio", NEAR, around | {"corrected": "minus what shuffled labels give"}, says=said(*names[what])) for what, values in follows.items()}


def _follows(first: NDArray, labels: NDArray) -> float:
    """Above what the same labels shuffled would seem to tell: with many labels chance alone looks like knowledge."""
    shuffled = np.random.default_rng(SEED).permutation(labels)
    return moe.known(first, labels) - moe.known(first, shuffled)


def _reads(r: Reading) -> dict[str, list[list[float]]]:
    """Mean distinct experts [layer][batch size]: tokens drawn from anywhere (each of another text, as in a batch), from one domain, and
    neighbours of one text (as in a prompt or a round of guesses)."""
    bits = np.stack([moe.masks(layer) for layer in r.chosen])
    found: dict[str, list[list[float]]] = {}
    everywhere = np.arange(len(r.tokens))
    pools = {"mixed": everywhere} | {f"of.{name}": everywhere[r.domains == d] for d, name in enumerate(DOMAINS)}
    for name, pool in pools.items():
        random = np.random.default_rng(SEED)
        rows = [pool[random.integers(0, len(pool), (DRAWS, size))] for size in BATCHES]
        found[name] = [[moe.distinct(layer[row]) for row in rows] for layer in bits]
    random = np.random.default_rng(SEED)
    starts = [random.choice(np.flatnonzero(r.places + size <= r.lengths), DRAWS) for size in BATCHES]
    found["run"] = [[moe.distinct(layer[start[:, None] + np.arange(size)]) for start, size in zip(starts, BATCHES)] for layer in bits]
    return found


def _favourites(r: Reading, chosen: NDArray, experts: int) -> list[list[str]]:
    """For each expert the tokens that are sent to it most reliably, of those that come often and are whole characters."""
    counts = np.bincount(r.tokens, minlength=len(r.pieces))
    usual = np.array([kind(piece) != "part" for piece in r.pieces]) & (counts >= OFTEN)
    found = []
    for expert in range(experts):
        sent = np.bincount(r.tokens[(chosen == expert).any(1)], minlength=len(r.pieces))
        share = np.where(usual, sent / np.maximum(counts, 1), -1)
        best = np.lexsort((-counts, -share.round(2)))[:FAVOURITES]
        found.append([r.pieces[token] for token in best])
    return found


def losses(*, model: str, dense: str, report: Report = nobody) -> dict[str, Value]:
    """The loss beside that of the model it was trained on from, and of that model when it read on unchanged, on the same windows: over all
    and for each kind of text."""
    from compute.engine.registry import shared
    from compute.engine.served import circumstances
    from compute.quantize.loss import DOMAIN_OF, unquantized
    from compute.quantize.paired import change

    report(0.0, model)
    r = _read()
    text, before = unquantized(dense, report=lambda part, note: report(0.5 + part / 2, note))
    around = circumstances(shared().get(model)) | {"text": TEXT, "trained_further_tokens": facts.training_log(model)["curve"][-1]["tokens"]}
    counts, sources = r.text.counts, r.text.sources
    aside = facts.control(model)
    on = np.concatenate([aside["windows"][source] for source in dict.fromkeys(sources.tolist())])  # the control's nats of each window
    trained = aside["measured"] | {"text": TEXT, "trained_further_tokens": aside["curve"][-1]["tokens"], "file": f"data/checkpoints/{model}/control.json", "command": aside["command"]}
    where = np.array([DOMAIN_OF[source] for source in sources.tolist()])
    read_on = f"照样多读的 {dense} ", f"a {dense} that read as much"
    reads = {"loss": (f"{model} ", model, r.losses, around), "dense_loss": (f"{dense} ", dense, before, around), "control_loss": (*read_on, on, trained)}
    changes = {"loss_change": (f" {dense} ", dense, before, around | {"because": WHY}), "experts_change": (*read_on, on, around | trained)}
    made = {}
    for domain, mine in [("", counts > 0), *((f".{d}", where == d) for d in DOMAINS)]:
        in_zh, in_en = (f"（{domain[1:]}）", f", {domain[1:]}") if domain else ("", "")
        for name, (zh, en, sums, under) in reads.items():
            says = {"zh": f"{zh}在验证文本上的损失{in_zh}", "en": f"loss of {en} on the validation text{in_en}"}
            made[f"{model}.{name}{domain}"] = Value(float(sums[mine].sum() / counts[mine].sum()), "nat/token", {"absolute": 1e-3}, under, says=says, n=int(counts[mine].sum()))
        for name, (zh, en, sums, under) in changes.items():
            found = change(sums[mine], r.losses[mine], counts[mine], sources[mine])
            says = {"zh": f"{model} 的损失减去{zh}的损失{in_zh}", "en": f"loss of {model} minus that of {en}{in_en}"}
            made[f"{model}.{name}{domain}"] = Value(found.value, "nat/token", {"absolute": 1e-3}, under, says=says, interval95=(found.low, found.high), n=found.tokens)
    return made


def by_heart(*, model: str, dense: str, report: Report = nobody) -> dict[str, Value]:
    """Both on text that they were trained on, from the log of the training, as that text is not kept here."""
    final = facts.training_log(model)["final"]
    learned = final["training_text"]
    text = {"zh": "训练文本，每窗 256 个 token", "en": "the training text, windows of 256 tokens"}
    around = final["measured"] | {"text": text, "windows": learned["windows"], "seed": learned["seed"], "file": f"data/checkpoints/{model}/training-log.json", "command": f"python -m compute.training card {model}"}
    aside = facts.control(model)
    trained = aside["measured"] | {key: around[key] for key in ("text", "windows", "seed")} | {"file": f"data/checkpoints/{model}/control.json", "command": aside["command"]}
    made = {}
    for domain in DOMAINS:
        row = learned["domains"][domain]
        after, before = row["nats_per_token"], row["source_nats_per_token"]
        says = {"zh": f"学过的文本上，{model} 的损失减 {dense} 的（{domain}）", "en": f"loss of {model} minus that of {dense} on text they were trained on, {domain}"}
        made[f"{model}.learned_change.{domain}"] = Value(after - before, "nat/token", {"exact": True}, around, says=says, interval95=(row["low"], row["high"]))
        for name, which, value in (("learned", model, after), ("dense_learned", dense, before)):
            says = {"zh": f"{which} 在学过的文本上的损失（{domain}）", "en": f"loss of {which} on text it was trained on, {domain}"}
            made[f"{model}.{name}.{domain}"] = Value(value, "nat/token", {"exact": True}, around, says=says)
        says = {"zh": f"照样多读的 {dense} 在学过的文本上的损失（{domain}）", "en": f"loss of a {dense} that read as much on text it was trained on, {domain}"}
        row = aside["training_text"]["domains"][domain]
        made[f"{model}.control_learned.{domain}"] = Value(row["nats_per_token"], "nat/token", {"exact": True}, trained, says=says)
    return made


WHY = {
    "zh": "它由 mini-256 的 MLP 切成专家再接着训练而来：切开和多读都会改变它，差别不全是专家带来的",
    "en": "mini-256's MLPs were cut into experts and trained on for so many tokens: both change it, so the difference is not made by experts alone",
}


def route(*, name: str, model: str, text: str, report: Report = nobody) -> dict[str, Value]:
    """The routers' probabilities over a sentence; who is chosen follows from them."""
    from compute.engine.registry import shared
    from compute.engine.routing import of_text

    made = of_text(shared().get(model), text)
    tokens = shared().get(model).tokenizer.encode(text)
    around = {k: v for k, v in made.conditions.items() if k in ("model", "dtype", "device", "torch")} | {"text": text}
    trace = {"model": model, "text": text, "pieces": list(made.pieces), "chosen": made.chosen, "probabilities": made.probabilities, "conditions": around}
    says = {"zh": f"“{text}”的 token", "en": f"the tokens of “{text}”"}
    return {f"moe-router.{name}.tokens": Value(tokens, "token id", {"exact": True}, around, says=says, trace=trace, trace_tolerance={"absolute": 1e-3})}


def _digits(value: Any) -> Any:
    """Five decimals: no more is meant."""
    if isinstance(value, dict):
        return {k: _digits(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_digits(v) for v in value]
    return round(value, 5) if isinstance(value, float) else value


MEASURES = {"moe.parameters": parameters, "moe.routing": routing, "moe.losses": losses, "moe.by_heart": by_heart, "moe.route": route}


def jobs() -> list[Job]:
    keys = ("balance", "load_least", "load_most", "read_batch", "read_run", "follows.domain", "follows.kind", "follows.token")
    lost = tuple(f"{which}{domain}" for which in ("loss_change", "experts_change", "loss", "dense_loss", "control_loss") for domain in ("", *(f".{d}" for d in DOMAINS)))
    return [
        Job("moe.parameters", {"model": MODEL}, (f"{MODEL}.parameters", f"{MODEL}.active_parameters"), (MODEL,)),
        Job("moe.routing", {"model": MODEL}, tuple(f"{MODEL}.{key}" for key in keys), (MODEL,)),
        Job("moe.losses", {"model": MODEL, "dense": DENSE}, tuple(f"{MODEL}.{key}" for key in lost), (MODEL, DENSE)),
        Job("moe.by_heart", {"model": MODEL, "dense": DENSE}, tuple(f"{MODEL}.{which}.{d}" for which in ("learned_change", "learned", "dense_learned", "control_learned") for d in DOMAINS), (MODEL, DENSE)),
        *(Job("moe.route", {"name": lang, "model": MODEL, "text": text}, (f"moe-router.{lang}.tokens",), (MODEL,)) for lang, text in SENTENCES.items()),
    ]
