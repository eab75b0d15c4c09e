"""The branch on architecture: what our model with experts holds, what a token goes through, what a batch reads if routing were even, and
how much text it learned from, how often."""

from __future__ import annotations

from compute import facts, moe
from compute.claims.claim import claim, computed
from compute.shapes import Matrices, ModelShape

MODEL, DENSE = "mini-moe", "mini-256"
BATCH, LARGE_BATCH = 8, 64  # tokens of a step


def _shape() -> ModelShape:
    return facts.model(MODEL)


def _experts() -> Matrices:
    return moe.experts_of(_shape())


@claim("moe.parameters", "mini-moe 的全部参数", "all parameters of mini-moe")
def _():
    return computed(_shape().parameters, "parameter", "Σ matrices, all experts, and vectors", model=MODEL)


@claim("moe.active_parameters", "mini-moe 里一个 token 经过的参数", "parameters of mini-moe that a token goes through")
def _():
    return computed(_shape().active_parameters, "parameter", "all − layers · idle experts · expert", all=_shape().parameters, layers=_experts().layers,
                    idle=_experts().copies - _experts().used, expert=_experts().parameters)  # fmt: skip


@claim("moe.active_share", "mini-moe 里一个 token 经过的参数占全部的比例", "share of mini-moe's parameters that a token goes through")
def _():
    return computed(_shape().active_parameters / _shape().parameters, "ratio", "active / all", active=_shape().active_parameters, all=_shape().parameters)


@claim("moe.dense_parameters", "mini-256 的参数", "parameters of mini-256")
def _():
    return computed(facts.model(DENSE).parameters, "parameter", "Σ matrices and vectors", model=DENSE)


@claim("moe.memory_ratio", "mini-moe 占的内存是 mini-256 的几倍", "memory of mini-moe over that of mini-256")
def _():
    return computed(_shape().parameters / facts.model(DENSE).parameters, "×", "all / dense", all=_shape().parameters, dense=facts.model(DENSE).parameters)


@claim("moe.expert_parameters", "mini-moe 一个专家的参数", "parameters of one expert of mini-moe")
def _():
    return computed(_experts().parameters, "parameter", "3 · hidden_size · intermediate_size", hidden_size=_shape().config["hidden_size"], intermediate_size=_shape().config["intermediate_size"])


@claim("moe.router_parameters", "mini-moe 全部路由器的参数", "parameters of all routers of mini-moe")
def _():
    router = next(m for m in _shape().matrices if m.name == "router")
    return computed(router.loaded, "parameter", "layers · hidden_size · experts", layers=router.layers, hidden_size=_shape().hidden, experts=_experts().copies)


def _even(name: str, tokens: int) -> None:
    @claim(f"moe.{name}", f"假如路由均匀：{tokens} 个 token 在一层里读到的专家", f"if routing were even: experts of a layer that {tokens} tokens read")
    def _():
        value = _experts().distinct(tokens)
        return computed(value, "count", "E · (1 − (1 − k / E)^B)", E=_experts().copies, k=_experts().used, B=tokens)


_even("even_read_single", 1)
_even("even_read", BATCH)
_even("even_read_large", LARGE_BATCH)


@claim("moe.even_read_share", "假如路由均匀：8 个 token 的一步读到的权重占全部矩阵的比例", "if routing were even: share of all matrices that a step over 8 tokens reads")
def _():
    read = moe.read_parameters(_shape(), _experts().distinct(BATCH))
    return computed(read / sum(m.loaded for m in _shape().matrices), "ratio", "(matrices without experts + distinct experts) / matrices", B=BATCH, model=MODEL)


# ---- what it learned from

KINDS = {  # of text: zh, en
    "modern": ("软件帮助", "software help in Chinese"), "stories": ("小故事", "Chinese stories"), "classical": ("古文诗词", "classical Chinese"),
    "english": ("英文帮助", "software help in English"), "stories-en": ("英文故事", "English stories"),
}  # fmt: skip


def _trained(model: str) -> int:
    """Tokens read in its own training, without that of the model it began from."""
    return facts.training_log(model)["curve"][-1]["tokens"]


@facts.made_of("texts/texts.json")
def _drawn() -> dict[str, tuple[int, float]]:
    """kind of text → (tokens to train on, share of what training draws)."""
    sources = facts.read_json(facts.DATA / "texts" / "texts.json")["sources"]
    every = sum(s["training"]["share_percent"] for s in sources)
    of = {kind: [s["training"] for s in sources if s["domain"] == kind] for kind in KINDS}
    return {kind: (sum(t["tokens"] for t in texts), sum(t["share_percent"] for t in texts) / every) for kind, texts in of.items()}


@claim("moe.trained_tokens", "mini-moe 接着 mini-256 又读了多少 token", "tokens that mini-moe read after mini-256's training")
def _():
    recipe = facts.training_log(MODEL)["recipe"]
    return computed(_trained(MODEL), "token", "steps · windows · tokens", steps=recipe["steps"], windows=recipe["rows"], tokens=recipe["window"])


def _text(kind: str, zh: str, en: str) -> None:
    @claim(f"moe.text.{kind}", f"能学的{zh}有多少 token", f"tokens of {en} to train on")
    def _():
        return computed(_drawn()[kind][0], "token", "Σ tokens to train on, by source", file="data/texts/texts.json")

    @claim(f"moe.times.{kind}", f"mini-256 和 mini-moe 前后把{zh}读了几遍", f"how often the trainings of mini-256 and mini-moe went through the {en}")
    def _():
        (held, share), trained = _drawn()[kind], _trained(DENSE) + _trained(MODEL)
        return computed(trained * share / held, "count", "tokens of both trainings · share drawn / tokens to train on", tokens_trained=trained, share_drawn=share, tokens_to_train_on=held)


for _kind, _says in KINDS.items():
    _text(_kind, *_says)
