"""Keys and values from one short vector, on real tensors: three products for one token, what is lost, and what that costs the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Text
from components.text import Words, amount, digits, short
from compute import latent, numbers, precompute
from compute.errors import BrokenData
from compute.measures.architecture import name
from compute.quantity import Quantity
from compute.quantize.paired import Change, noise_floor, verdict

SHAPE = latent.shape()
BYTES = 2  # of a number that is kept, 16 bits
STOPS = (*latent.RANKS, SHAPE.kept)
LAYERS = tuple(range(SHAPE.layers))
COPIES = 2 * SHAPE.heads * SHAPE.head_dim  # numbers of a layer in which every query head keeps K and V of its own
LINEAR = 1e-3  # nats; below, the axis of the loss is linear


@parameters
class Params:
    """rank: numbers of c. token: of the text, the one whose vectors are drawn. weighing: what chose the directions."""

    rank: Annotated[int, Field(ge=1, le=SHAPE.kept)] = 64
    layer: Annotated[int, Field(ge=0, lt=SHAPE.layers)] = 1
    weighing: Literal["activations", "weights"] = "activations"
    token: Annotated[int, Field(ge=0, lt=latent.LONGEST)] = 4
    text: Annotated[str, Field(min_length=1, max_length=80)] = "小明把苹果给了小王。小王很高兴，"


@dataclass(frozen=True)
class Kept:
    """What one token leaves in a layer, and the loss of the model above its own where every layer does so; change None where it is
    the same function."""

    id: str
    numbers: int
    change: Change | None


@dataclass(frozen=True)
class Result:
    """Vectors of one token in one layer: hidden (M), c (r), kept and again (N): K, then V. left: the share of energy that is left
    out at 1 … N directions."""

    params: Params
    tokens: tuple[str, ...]
    token: int
    hidden: tuple[float, ...]
    c: tuple[float, ...]
    kept: tuple[float, ...]
    again: tuple[float, ...]
    lost: latent.Lost
    left: tuple[float, ...]
    measured: tuple[Kept, ...]
    floor: float
    mark: Literal["computed"] = "computed"

    @property
    def bytes(self) -> int:
        """Of one token in all layers."""
        return self.params.rank * BYTES * SHAPE.layers

    def of(self, id: str) -> Kept:
        return next(k for k in self.measured if k.id == id)

    @property
    def chosen(self) -> Kept | None:
        """What was measured at this rank; None where nothing was."""
        if self.params.rank == SHAPE.kept:
            return Kept("all", SHAPE.kept, None)
        wanted = ("latent", "weights")[self.params.weighing == "weights"]
        return next((k for k in self.measured if k.id == f"{wanted}-{self.params.rank}"), None)


def run(params: Params, answer: None = None) -> Result:
    """Raises BadInput for a text of too many tokens, BrokenData where nothing was measured."""
    tokens, layers = latent.read_text(params.text)
    seen, token = layers[params.layer], min(params.token, len(tokens) - 1)
    c, again = latent.rebuilt(seen, latent.factors(params.layer, params.rank, params.weighing))
    energies = latent.basis(params.layer, params.weighing).energies
    left = [max(0.0, 1 - float(energies[:r].sum() / energies.sum())) for r in range(1, SHAPE.kept + 1)]
    return Result(
        params, tokens, token, _short(seen.hidden[token]), _short(c[token]), _short(seen.kept[token]), _short(again[token]),
        latent.lost(params.layer, seen, again), tuple(left), _measured(), noise_floor().value,
    )  # fmt: skip


def _short(values) -> tuple[float, ...]:
    return tuple(float(f"{v:.4g}") for v in values.tolist())


def _measured() -> tuple[Kept, ...]:
    kept = precompute.stored()

    def change(key: str) -> Change:
        if key not in kept:
            raise BrokenData("data/precomputed.json", f"no entry {key}; run python -m compute precompute --only latent", f"没有 {key} 这一条；请运行 python -m compute precompute --only latent")
        return Change(kept[key]["value"], *kept[key]["interval95"], kept[key]["n"], 0)

    found = [Kept(f"latent-{r}", r, change(f"{name(r)}.loss_change")) for r in latent.RANKS]
    found += [Kept(f"weights-{r}", r, change(f"{name(r, 'weights')}.loss_change")) for r in latent.RANKS if f"{name(r, 'weights')}.loss_change" in kept]
    return (*found, Kept("mqa", SHAPE.kept // SHAPE.kv_heads, change(f"latent.{latent.MODEL}.mqa.loss_change")), Kept("gqa", SHAPE.kept, None), Kept("mha", COPIES, None))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words = scene.words
    return View(
        picture=Stage(_products(result, scene), height=430, picks=("token",)),
        beside=(Stage(_price(result, scene), height=380, picks=("rank",)), Stage(_spectrum(result, scene), height=260)),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, words, scene.lang),
        rows=_rows(result),
        papers=_papers(result),
        simplified=words("simplified", tokens=f"{latent.CALIBRATING * 256:,}"),
        derivation=_derivation(result, words),
    )


def _products(result: Result, scene: Scene) -> dict[str, Any]:
    p, words, half = result.params, scene.words, SHAPE.kept // 2
    old = scene.before
    return {
        "part": "products", "tokens": list(result.tokens), "token": result.token, "rank": p.rank, "all": SHAPE.kept, "hidden": result.hidden, "c": result.c,
        "ghost": old.params.rank if old is not None and old.params.rank != p.rank else None,
        "halves": [
            {"name": side, "values": result.kept[at : at + half], "again": result.again[at : at + half], "error": amount(error, "ratio", scene.lang)}
            for side, at, error in (("K", 0, result.lost.keys), ("V", half, result.lost.values))
        ],
        "shapes": {"down": f"{p.rank} × {SHAPE.hidden}", "up": f"{half} × {p.rank}", "M": SHAPE.hidden, "half": half}, "layer": p.layer,
        "says": words("products_say", token=result.tokens[result.token].strip() or "␣", layer=p.layer, hidden=SHAPE.hidden, rank=p.rank, half=half),
    }  # fmt: skip


def _price(result: Result, scene: Scene) -> dict[str, Any]:
    p, words = result.params, scene.words
    points = [
        {"id": k.id.split("-")[0], "x": k.numbers, "y": k.change.value if k.change else 0.0, "low": k.change.low if k.change else 0.0, "high": k.change.high if k.change else 0.0,
         "text": signed(k.change.value) if k.change else "0", "chosen": result.chosen is not None and k.id == result.chosen.id or k.id == "gqa" and p.rank == SHAPE.kept,
         "pick": k.id.startswith("latent")}
        for k in result.measured
    ]  # fmt: skip
    return {
        "part": "price", "points": points, "floor": result.floor, "linear": LINEAR, "most": max(d["high"] for d in points), "end": COPIES, "rank": p.rank,
        "ticks": [0, 0.001, 0.01, 0.1, 1], "floorText": words("band", floor=digits(result.floor, 2)), "says": _price_says(result, words),
    }  # fmt: skip


def _price_says(result: Result, words: Words) -> str:
    of = [words("price_point", numbers=k.numbers, change=signed(k.change.value)) for k in result.measured if k.id.startswith("latent")]
    return words("price_says", latent=words("comma").join(of), mqa=signed(result.of("mqa").change.value), numbers=result.of("mqa").numbers, floor=digits(result.floor, 2))


def _spectrum(result: Result, scene: Scene) -> dict[str, Any]:
    p = result.params
    left = result.left[p.rank - 1]
    says = scene.words("spectrum_says", layer=p.layer, rank=p.rank, left=amount(left, "ratio", scene.lang))
    return {"part": "spectrum", "left": [float(f"{v:.4g}") for v in result.left], "rank": p.rank, "layer": p.layer, "text": amount(left, "ratio", scene.lang), "says": says}


def signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{digits(abs(value), 3)}" if abs(value) >= 5e-5 else "0.0000"


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang = scene.words, scene.lang
    old = scene.before if scene.before is not None and scene.before.params != result.params else None

    def was(of) -> str:
        return words("before", value=of(old)) if old is not None and of(old) != of(result) else ""

    def share(part: str):
        return lambda r: amount(getattr(r.lost, part), "ratio", lang)

    k = result.chosen
    loss = signed(k.change.value) if k and k.change else "0" if k else "–"
    note = words("note.same") if k and not k.change else words("note.unmeasured") if k is None else words(f"note.{verdict(k.change, result.floor)}", floor=digits(result.floor, 2))
    return (
        Readout(words("readout.bytes"), *short(result.bytes, "B", lang), was(lambda r: amount(r.bytes, "B", lang)), words("note.bytes", all=f"{SHAPE.kept * BYTES * SHAPE.layers:,}")),
        *(Readout(words(f"readout.{part}"), share(part)(result).removesuffix("%"), "%", was(share(part)), words(f"note.{part}")) for part in ("keys", "values", "attention")),
        Readout(words("readout.loss"), loss, "nat/token" if k else "", "", note),
    )  # fmt: skip


def _sentence(result: Result, words: Words, lang: str) -> str:
    p, k = result.params, result.chosen
    said = words("sentence", layer=p.layer, rank=p.rank, all=SHAPE.kept, keys=amount(result.lost.keys, "ratio", lang), values=amount(result.lost.values, "ratio", lang),
                 attention=amount(result.lost.attention, "ratio", lang))  # fmt: skip
    if k is None:
        return said + words("sentence_unmeasured")
    if k.change is None:
        return said + words("sentence_same")
    return said + words("sentence_loss", change=signed(k.change.value), low=signed(k.change.low), high=signed(k.change.high), floor=digits(result.floor, 2))


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    p, half = result.params, SHAPE.kept // 2
    vectors = [{"of": "c", "index": i, "value": v} for i, v in enumerate(result.c)]
    for side, at in (("K", 0), ("V", half)):
        vectors += [{"of": side, "index": i, "value": result.kept[at + i], "rebuilt": result.again[at + i]} for i in range(half)]
    losses = [
        {"of": f"loss/{k.id}", "index": k.numbers, "value": k.change.value if k.change else 0.0, "low95": k.change.low if k.change else None, "high95": k.change.high if k.change else None}
        for k in result.measured
    ]  # fmt: skip
    left = [{"of": "energy left out", "index": r, "value": v} for r, v in enumerate(result.left, 1)]
    common = {"model": latent.MODEL, "layer": p.layer, "rank": p.rank, "directions": p.weighing, "token": result.tokens[result.token]}
    return tuple(common | row for row in (*vectors, *losses, *left))


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, kept = result.params, numbers.measured_entries()
    given = {"model": latent.MODEL, "layer": p.layer, "r": p.rank, "directions chosen by": p.weighing, "text": p.text, "tokens": len(result.tokens)}
    errors = [Quantity(getattr(result.lost, part), "ratio", "computed", formula, given, says=SAYS[part])
              for part, formula in (("keys", "‖K̂ − K‖ / ‖K‖"), ("values", "‖V̂ − V‖ / ‖V‖"), ("attention", "‖Â − A‖ / ‖A‖, A: what the layer's attention adds"))]  # fmt: skip
    bytes_ = Quantity(result.bytes, "B", "computed", "r × 2 B × layers", {"r": p.rank, "layers": SHAPE.layers}, says=SAYS["bytes"])
    keys = [f"{name(p.rank, p.weighing)}.loss_change", f"latent.{latent.MODEL}.mqa.loss_change", "quantize.noise_floor"]
    return (bytes_, *errors, *(numbers.resolve(f"~{key}") for key in keys if key in kept))


SAYS = {
    "bytes": {"zh": "一个 token 在各层一共存多少", "en": "kept of a token in all layers"},
    "keys": {"zh": "K 的相对误差", "en": "relative error of the keys"},
    "values": {"zh": "V 的相对误差", "en": "relative error of the values"},
    "attention": {"zh": "这一层注意力输出的相对误差", "en": "relative error of this layer's attention output"},
    "mqa": {"zh": "同样存 128 个数：MQA 的损失涨幅是潜向量的几倍", "en": "with 128 numbers kept either way: MQA's rise of loss over the latent's"},
}


def _derivation(result: Result, words: Words) -> str:
    p, half = result.params, SHAPE.kept // 2
    cached, all_ = p.rank * BYTES * SHAPE.layers, SHAPE.kept * BYTES * SHAPE.layers
    return "\n\n".join((
        words("derive.products"),
        rf"$$c=W_{{down}}\,h:\quad({p.rank}\times{SHAPE.hidden})\cdot({SHAPE.hidden})\to({p.rank})$$",
        rf"$$K=W_{{uk}}\,c:\quad({half}\times{p.rank})\cdot({p.rank})\to({half})\qquad V=W_{{uv}}\,c:\quad({half}\times{p.rank})\cdot({p.rank})\to({half})$$",
        words("derive.least"),
        r"$$\min_{W_{up},\,W_{down}}\ \overline{\lVert Wh-W_{up}W_{down}\,h\rVert^2}=\sum_{i>r}\lambda_i,\qquad \overline{yy^{\top}}\,u_i=\lambda_i u_i,\quad y=Wh$$",
        words("derive.bytes"),
        rf"$${p.rank}\times {BYTES}\,\mathrm{{B}}\times {SHAPE.layers}={_tex(cached)}\,\mathrm{{B}}\qquad {SHAPE.kept}\times {BYTES}\,\mathrm{{B}}\times {SHAPE.layers}={_tex(all_)}\,\mathrm{{B}}$$",
        words("derive.absorb"),
        r"$$q^{\top}K=q^{\top}W_{uk}\,c=(W_{uk}^{\top}q)^{\top}c$$",
        words("derive.rotation"),
        r"$$(R_t\,q)^{\top}(R_s\,W_{uk}\,c)=q^{\top}R_{s-t}\,W_{uk}\,c$$",
    ))  # fmt: skip


def _tex(n: int) -> str:
    return f"{n:,}".replace(",", "{,}")


# ---- guess


def _ratio(result: Result) -> float:
    return result.of("mqa").change.value / result.of(f"latent-{result.of('mqa').numbers}").change.value


def _truth(result: Result) -> Quantity:
    around: Mapping[str, Any] = numbers.measured_entries()[f"latent.{latent.MODEL}.mqa.loss_change"]["conditions"]
    return Quantity(_ratio(result), "×", "measured", "loss change of MQA / of the latent of as many numbers", {}, None, around, says=SAYS["mqa"])


def _right(result: Result) -> str:
    ratio = _ratio(result)
    return "alike" if ratio < 2 else "some" if ratio < 20 else "far"


WIDGET = Widget(
    id="low-rank",
    Params=Params,
    controls=(
        Stops("rank", STOPS),
        Choice("layer", lambda: LAYERS, lambda i: str(i)),
        Choice("weighing", lambda: ("activations", "weights")),
        Text("text", 80),
        Range("token", 0, latent.LONGEST - 1),
    ),
    run=run,
    draw=draw,
    guesses={"mqa": Guess(truth=_truth, choices=("alike", "some", "far"), right=_right)},
    presets={"en": {"text": "Tom gave the apple to Mia. Mia was happy", "token": 5}},
)
