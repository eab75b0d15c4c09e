"""A model as a pipeline, read from its config: text, token ids, embedding, layers, norm, lm_head, distribution, next token.

The matrices are those of `compute.shapes`; each belongs to one stage, and the stages' parameters add up to the model's. What is not
a matrix (scales of norms, biases, decay vectors) is a stage of its own inside the layers. Conventions as in `compute.roofline`:
2 FLOP per multiply-add, a causal prefill has n²/2 pairs, norms, softmax and look-ups cost nothing. Weights take 2 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from compute import facts
from compute.errors import BadInput
from compute.facts import ModelRef
from compute.roofline import Batch
from compute.shapes import Matrices, ModelShape

Role = Literal[
    "tokenizer", "embedding", "vectors", "recurrent", "window", "attention", "feed_forward", "experts", "norm", "lm_head", "softmax", "decoding"
]
ROLES: tuple[Role, ...] = Role.__args__
Mixer = Literal["recurrent", "window", "attention"]
IN_LAYERS: tuple[Role, ...] = ("vectors", "recurrent", "window", "attention", "feed_forward", "experts")
Tokens = Annotated[int, Field(ge=1, le=1_000_000, description="tokens of each request that go through at once")]
Dims = tuple[int, ...]

WEIGHT_BYTES = 2  # bf16
OF_KIND: dict[str, Mixer] = {"linear_attention": "recurrent", "sliding_attention": "window", "full_attention": "attention"}


@dataclass(frozen=True)
class Stage:
    """One stage for `batch` requests of `tokens` tokens.

    kind: what its cache is called ("gqa", "mla" …), for attention. layers: how many layers have it; 1 outside the layers.
    takes, gives: shapes. parameters: all of them, experts that a token does not use included; per_token: those that a token is
    multiplied with or looks up. flops, read_bytes: of the whole forward. kept_bytes: what it leaves in memory for later tokens.
    shared: its matrix is lm_head's own and is counted there.
    """

    role: Role
    kind: str
    layers: int
    takes: Dims
    gives: Dims
    matrices: tuple[Matrices, ...]
    parameters: int
    per_token: int
    flops: float
    read_bytes: float
    kept_bytes: float = 0.0
    shared: bool = False

    @property
    def bytes(self) -> int:
        return WEIGHT_BYTES * self.parameters


@dataclass(frozen=True)
class Pipeline:
    """pattern: what mixes tokens in each layer, in order; dense: how many of the first layers have no experts, all of them in a
    model without. beside: parameters that come with the files and serve no text token (vision encoder, MTP)."""

    model: str
    name: str
    batch: int
    tokens: int
    hidden: int
    vocabulary: int
    pattern: tuple[Mixer, ...]
    dense: int
    stages: tuple[Stage, ...]
    parameters: int
    beside: int

    def stage(self, role: str) -> Stage:
        """That stage; where the model has none of its kind, the one that stands in its place."""
        there = {stage.role: stage for stage in self.stages}
        if role in there:
            return there[role]
        instead = ("experts", "feed_forward") if role in ("experts", "feed_forward") else ("attention", "window", "recurrent")
        return next(there[other] for other in instead if other in there)

    @property
    def largest(self) -> Stage:
        return max(self.stages, key=lambda stage: stage.parameters)


def pipeline(model: ModelRef = "qwen3.8-27b", batch: Batch = 1, tokens: Tokens = 4) -> Pipeline:
    """A model's stages with shapes, parameters, bytes and FLOPs, for a forward of `batch` × `tokens` tokens. Raises BadInput for a
    model that is known by its size alone."""
    shape = facts.model(model)
    if not shape.config:
        raise BadInput("model", shape.name, "it is known by its size alone and has no stages", "只知道它的大小，分不出环节")
    config = shape.config.get("text_config", shape.config)
    vocabulary, hidden, n = config["vocab_size"], shape.hidden, batch * tokens
    tied = config.get("tie_word_embeddings", shape.config.get("tie_word_embeddings", False))
    embedding = 0 if tied else hidden * vocabulary
    text, states, scores, last = (batch, tokens), (batch, tokens, hidden), (batch, tokens, vocabulary), (batch, vocabulary)

    def of(role: Role, takes: Dims, gives: Dims, vectors: int = 0, layers: int = 1, per_token: int | None = None, **more) -> Stage:
        matrices = tuple(m for m in shape.matrices if role_of(m.name) == role)
        held = sum(m.loaded for m in matrices) + vectors
        used = sum(m.per_token for m in matrices) + vectors if per_token is None else per_token
        flops = 2.0 * n * sum(m.per_token for m in matrices) + more.pop("pairs_flops", 0.0)
        read = WEIGHT_BYTES * (sum(m.read(n) for m in matrices) + vectors)
        return Stage(role, more.pop("kind", ""), layers, takes, gives, matrices, held, used, flops, more.pop("read_bytes", read), **more)

    layers = _pattern(shape)
    mixers = []
    for role in ("recurrent", "window", "attention"):
        if not (count := layers.count(role)):
            continue
        caches = [c for c in shape.caches if (c.window is not None) == (role == "window")] if role != "recurrent" else []
        kept = batch * (shape.state_bytes if role == "recurrent" else sum(c.layers * c.values_per_token * c.tokens(tokens) for c in caches) * 2.0)
        pairs = batch * sum(c.layers * c.causal_pairs(tokens) * c.flops_prefill for c in caches)
        mixers.append(of(role, states, states, layers=count, kind=caches[0].kind if caches else "gdn", kept_bytes=kept, pairs_flops=pairs))
    in_experts = next((m.layers for m in shape.matrices if m.name == "experts"), 0)
    wide = []
    if in_experts < shape.layers:
        wide.append(of("feed_forward", states, states, layers=shape.layers - in_experts))
    if in_experts:
        wide.append(of("experts", states, states, layers=in_experts))
    stages = (
        of("tokenizer", (batch,), text),
        of("embedding", text, states, vectors=embedding, per_token=hidden, read_bytes=float(WEIGHT_BYTES * n * hidden), shared=bool(tied)),
        of("vectors", states, states, vectors=shape.other_parameters - embedding - hidden, layers=shape.layers),
        *mixers,
        *wide,
        of("norm", states, states, vectors=hidden),
        of("lm_head", states, scores),
        of("softmax", last, last),
        of("decoding", last, (batch,)),
    )
    return Pipeline(shape.id, shape.name, batch, tokens, hidden, vocabulary, layers, shape.layers - in_experts, stages, shape.parameters, shape.beside_parameters)


def role_of(matrix: str) -> Role:
    """The stage that a matrix of `compute.shapes` belongs to."""
    if matrix in ("router", "experts", "shared_expert"):
        return "experts"
    if matrix in ("swiglu", "lm_head"):
        return "feed_forward" if matrix == "swiglu" else "lm_head"
    if matrix.startswith("gdn."):
        return "recurrent"
    return "window" if ".window." in matrix else "attention"


def _pattern(shape: ModelShape) -> tuple[Mixer, ...]:
    """What mixes tokens in each layer, in the config's own order."""
    config = shape.config.get("text_config", shape.config)
    if kinds := config.get("layer_types"):
        return tuple(OF_KIND[kind] for kind in kinds)
    if every := config.get("full_attention_interval"):
        return tuple("attention" if (i + 1) % every == 0 else "recurrent" for i in range(shape.layers))
    return ("window" if shape.caches[0].window else "attention",) * shape.layers
