"""The branch on architecture: what our model with experts holds, what a token goes through, and what a batch reads if routing were
even."""

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
