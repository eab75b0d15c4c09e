"""A few weights squeezed onto a grid: who is moved how far, what one outlier does to the others, and what groups save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Guess, Html, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Toggle
from components.text import Words, amount, digits
from compute import facts
from compute.quantity import Quantity
from compute.quantize import examples
from compute.quantize.examples import Group, Preset, Squeezed
from compute.quantize.grid import E2M1, NF4, Grid, Table, Uniform, storage_bits

MODEL, CHIP, FULL_BITS = "70b-dense", "h100-sxm", 16  # lesson 38's: 70 billion parameters, one card's bandwidth
GROUPS = ("tensor", 12, 8, 4)
TABLES = {"fp4": E2M1, "nf4": NF4}
OFTEN = 128  # weights to a scale, in formats that are used
OUTLIERS = tuple(step / 2 for step in range(25))
GUESSED = 6.0  # the outlier that the question is about
WINDOW = 1.0  # weights beyond are drawn at the side


@parameters
class Params:
    """numbers: integers of `bits` bits, or one of the two 4-bit tables. block: weights that share a scale; the worked example
    has one for its four. outlier: what one of the 24 weights is instead, 0 for none."""

    preset: Preset = "normal"
    numbers: Literal["int", "fp4", "nf4"] = "int"
    bits: Annotated[int, Field(ge=2, le=8)] = 4
    block: Literal["tensor"] | Annotated[int, Field(ge=1, le=24)] = "tensor"
    symmetric: bool = True
    outlier: Annotated[float, Field(ge=0, le=12, multiple_of=0.5)] = 6.0
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 0


@dataclass(frozen=True)
class Result:
    """outliers: the sizes that it can be dragged to; made: what comes of each. bytes: of a 70B model whose weights all take as
    many bits as these; full_bytes: with 16 bits."""

    params: Params
    grid: Grid
    outliers: tuple[float, ...]
    made: tuple[Squeezed, ...]
    bytes: float
    full_bytes: float
    bandwidth: float

    @property
    def start(self) -> int:
        return self.outliers.index(self.params.outlier) if len(self.outliers) > 1 else 0

    @property
    def squeezed(self) -> Squeezed:
        """With the outlier of the parameters."""
        return self.made[self.start]

    @property
    def tokens_per_second(self) -> float:
        return self.bandwidth / self.bytes

    @property
    def full_tokens_per_second(self) -> float:
        return self.bandwidth / self.full_bytes


def run(params: Params, answer: None = None) -> Result:
    numbers, worked = TABLES.get(params.numbers) or Uniform(params.bits, params.symmetric), params.preset == "worked"
    grid, outliers = Grid(numbers, "tensor" if worked else params.block), (0.0,) if worked else OUTLIERS
    made = tuple(examples.squeeze(examples.weights(params.preset, params.seed, outlier), grid) for outlier in outliers)
    parameters = facts.model(MODEL).parameters
    return Result(
        params, grid, outliers, made, parameters * made[0].bits_per_weight / 8, parameters * FULL_BITS / 8, facts.chip(CHIP).bandwidth_bytes_per_s
    )


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, worked = scene.words, result.params.preset == "worked"
    t = result.start
    return View(
        picture=Stage(_stage(result, scene.before), height=400, picks=() if worked else ("outlier",)),
        beside=(Html(_table(result, words)),) if worked else (),
        readouts=_readouts(result, scene.before, t, words, scene.lang),
        sentence=_sentence(result, t, words),
        rows=_rows(result, t),
        papers=_papers(result, t),
        simplified=_simplified(result, t, words, scene.lang),
        derivation=_derivation(result, t, words),
    )


def place(value: float, decimals: int = 2) -> str:
    """A weight as it is written: −0.53. A true minus, and none before a zero."""
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if not float(text) else text.replace("-", "−")


def step(scale: float) -> str:
    return digits(round(scale, 4)) if scale >= 0.01 else digits(scale)


def _stage(result: Result, before: Result | None) -> dict[str, Any]:
    """The strips, and the one that the outlier is in for every size that it can be dragged to."""
    ghosts = before is not None and before.params != result.params and len(before.made) == len(result.made)
    strips = [[_strip(result, group, n, before if ghosts else None) for n, group in enumerate(made.groups)] for made in result.made]
    hit = examples.OUTLIER_AT // len(result.squeezed.groups[0].weights) if len(result.made) > 1 else 0
    return {
        "strips": strips[result.start], "hit": hit, "hits": [line[hit] for line in strips], "at": result.start, "outliers": result.outliers, "window": WINDOW,
        "place": examples.OUTLIER_AT - hit * len(result.squeezed.groups[0].weights) if len(result.made) > 1 else None,
        "named": result.params.preset == "worked", "ghost": any(dot[3] is not None for strip in strips[result.start] for dot in strip["dots"]),
        "codes": "code" if isinstance(result.grid.numbers, Uniform) else "value",
    }  # fmt: skip


def _strip(result: Result, group: Group, n: int, before: Result | None) -> dict[str, Any]:
    """dots: [weight, where it lands, code, where it landed before the last move]. points: a table's, or of an even grid the first
    point, the step, how many there are and the first code."""
    numbers = result.grid.numbers
    old = _landed(before.squeezed, n * len(group.weights), group) if before else [None] * len(group.weights)
    even = [_short(group.points[0]), _short(group.scale), numbers.levels, numbers.smallest] if isinstance(numbers, Uniform) else None
    return {
        "dots": [[w, _short(v), q, o] for w, v, q, o in zip(group.weights, group.restored, _codes(result, group), old)], "scale": step(group.scale), "even": even,
        "points": None if even else [[_short(point), _tabled(value)] for point, value in zip(group.points, numbers.values)],
    }  # fmt: skip


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def _landed(before: Squeezed, first: int, group: Group) -> list[float | None]:
    """Where the same weights lay, if it was somewhere else."""
    was = [pair for old in before.groups for pair in zip(old.weights, old.restored)][first : first + len(group.weights)]
    return [_short(v) if w == now and v != lies else None for (w, v), now, lies in zip(was, group.weights, group.restored)]


def _tabled(value: float) -> str:
    return f"{value:.2g}".replace("-", "−")


def _readouts(result: Result, before: Result | None, t: int, words: Words, lang: str) -> tuple[Readout, ...]:
    made, count = result.made[t], result.made[t].count

    def was(of) -> str:
        return words("before", value=of(before)) if before is not None and len(before.made) > t and of(before) != of(result) else ""

    def bits(r: Result) -> str:
        return digits(r.made[t].bits_per_weight)

    def error(r: Result) -> str:
        return amount(r.made[t].relative_error, "ratio", lang)

    def zeros(r: Result) -> str:
        return str(r.made[t].zeros)

    def size(r: Result) -> str:
        return digits(r.bytes / 1e9)

    def speed(r: Result) -> str:
        return digits(r.tokens_per_second)

    return (
        Readout(words("readout.bits"), bits(result), words("unit.bits"), was(bits),
                words("note.bits", codes=result.grid.numbers.bits, over=digits(made.bits_per_weight - result.grid.numbers.bits))),
        Readout(words("readout.error"), error(result).removesuffix("%"), "%", was(error), words("note.error")),
        Readout(words("readout.zeros"), zeros(result), words("unit.zeros", n=count), was(zeros), words("note.zeros")),
        Readout(words("readout.size"), size(result), "GB", was(size), words("note.size", full=digits(result.full_bytes / 1e9))),
        Readout(words("readout.speed"), speed(result), "token/s", was(speed), words("note.speed", full=digits(result.full_tokens_per_second))),
    )  # fmt: skip


def _sentence(result: Result, t: int, words: Words) -> str:
    p, made, outlier = result.params, result.made[t], result.outliers[t]
    group = made.groups[0]
    if p.preset == "worked":
        return words(
            "sentence.worked", rounded=words(f"sentence.rounded.{_kind(result.grid.numbers)}", zero=group.zero), weights=", ".join(map(place, group.weights)), scale=step(group.scale), codes=", ".join(_codes(result, group)),
            restored=", ".join(place(r, 3) for r in group.restored), error=digits(100 * made.relative_error),
        ) + words("sentence.zeros.some" if made.zeros else "sentence.zeros.none", zeros=made.zeros)  # fmt: skip
    how = words(f"sentence.{p.numbers}", bits=result.grid.numbers.bits)
    if len(made.groups) > 1:
        how += words("sentence.groups", n=len(made.groups), each=len(group.weights))
    said = words("sentence.normal", how=how, count=made.count, zeros=made.zeros, error=digits(100 * made.relative_error))
    if outlier > WINDOW:
        hit = next(g for g in made.groups if outlier in g.weights)
        near = sum(r == 0 and w != 0 for w, r in zip(hit.weights, hit.restored))
        shared = words("sentence.alone") if len(hit.weights) == 1 else words("sentence.neighbours", near=near, of=len(hit.weights) - 1)
        said += words("sentence.outlier", outlier=f"{outlier:g}", scale=step(hit.scale)) + shared
        if len(made.groups) > 1:
            rest = made.count - len(hit.weights)
            said += words("sentence.rescued", far=made.zeros - near, of=rest)
    return said


def _codes(result: Result, group) -> list[str]:
    """q of each weight, or the table's value that it stands for."""
    if isinstance(result.grid.numbers, Uniform):
        return [place(q, 0) for q in group.codes]
    return [f"{result.grid.numbers.values[q]:.3g}".replace("-", "−") for q in group.codes]


def _simplified(result: Result, t: int, words: Words, lang: str) -> str:
    p, outlier = result.params, result.outliers[t]
    often = storage_bits(Grid(result.grid.numbers, OFTEN), 1, OFTEN) / OFTEN
    size = facts.model(MODEL).parameters * often / 8
    said = words("simplified", group=OFTEN, bits=digits(often, 4), size=amount(size, "B", lang), cards=-(-int(result.full_bytes) // 80_000_000_000))
    if p.numbers != "int":
        said += words("simplified_tables")
    if outlier > WINDOW:
        said += words("simplified_outlier", times=digits(outlier / examples.SPREAD, 2))
    return said


def _rows(result: Result, t: int) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"group": n, "weight": w, "scale": group.scale, "zero_point": group.zero, "code": q, "restored": v, "error": v - w,
         "relative_error": abs(v - w) / abs(w) if w else None}
        for n, group in enumerate(result.made[t].groups, 1)
        for w, q, v in zip(group.weights, group.codes, group.restored)
    )  # fmt: skip


# ---- the worked example, digit by digit


def _table(result: Result, words: Words) -> str:
    """w, w / s, q, q·s and what is missing, a column a weight."""
    group, numbers = result.squeezed.groups[0], result.grid.numbers
    shift = not _even(numbers)
    quotients = [place(w / group.scale + group.zero, 3) for w in group.weights]
    lines = (
        ("w", [place(w) for w in group.weights]),
        ("w / s" + (" + z" if shift else ""), quotients),
        ("q", _codes(result, group)),
        ("q × s" if not shift else "(q − z) × s", [place(r, 3) for r in group.restored]),
        (words("table.error"), [place(abs(r - w), 3) for w, r in zip(group.weights, group.restored)]),
    )
    body = "".join(f"<tr{' class=total' if head == 'q' else ''}><th scope=row>{head}</th>{''.join(f'<td class=n>{cell}</td>' for cell in cells)}</tr>" for head, cells in lines)
    largest = f"{numbers.largest:g}"
    caption = words("table.range" if shift else "table.scale", largest=largest, exact=f"{group.exact_scale:.5f}", stored=f"{group.scale:.5f}",
                    most=place(max(map(abs, group.weights))), low=place(min(*group.weights, 0)), high=place(max(*group.weights, 0)), zero=group.zero)  # fmt: skip
    return f'{STYLE}<section class="lab-worked"><p>{caption}</p><div class="lab-scroll"><table><tbody>{body}</tbody></table></div></section>'


STYLE = """<style>
.lab-worked p { margin: 0 0 8px; font-size: 0.9375rem; color: var(--lab-muted); }
.lab-worked table { border-collapse: collapse; }
.lab-worked :is(th, td) { border: 0; border-top: 1px solid var(--lab-hairline); padding: 5px 0 5px clamp(14px, 4vw, 28px); text-align: right; white-space: nowrap; font-family: var(--lab-figures); font-variant-numeric: tabular-nums; }
.lab-worked tr th { padding-left: 0; text-align: left; font-weight: 400; font-family: var(--lab-sans); color: var(--lab-muted); }
.lab-worked tr.total :is(th, td) { color: var(--lab-weights); font-weight: 650; }
</style>"""


def _kind(numbers: Uniform | Table) -> str:
    return "table" if isinstance(numbers, Table) else "symmetric" if numbers.symmetric else "asymmetric"


def _even(numbers: Uniform | Table) -> bool:
    """Whether a block needs no zero point."""
    return _kind(numbers) != "asymmetric"


def _derivation(result: Result, t: int, words: Words) -> str:
    made, numbers, outlier = result.made[t], result.grid.numbers, result.outliers[t]
    group = next((g for g in made.groups if outlier in g.weights), made.groups[0])
    lines = sorted(zip(group.weights, group.codes, group.restored), key=lambda line: (line[0] in (0, outlier), line[2] == 0))
    w, q, r = lines[0]  # the first that is neither the outlier nor squeezed to 0, if there is one
    low, high = min(*group.weights, 0.0), max(*group.weights, 0.0)
    given = dict(
        most=f"{max(map(abs, group.weights)):g}", largest=f"{numbers.largest:g}", exact=f"{group.exact_scale:.5f}", scale=f"{group.scale:.5f}",
        low=f"{low:g}", high=f"{high:g}", zero=group.zero, w=f"{w:g}", name=place(w), quotient=f"{w / group.scale:.3f}", q=q, restored=f"{r:.4f}", error=f"{abs(r - w):.4f}",
        percent=digits(100 * abs(r - w) / abs(w)) if w else "0",
    )  # fmt: skip
    if isinstance(numbers, Table):
        given["q"] = f"{numbers.values[q]:.4g}"
    said = words(f"derivation.{_kind(numbers)}", **given)
    zeros = "" if _even(numbers) else f" + {len(made.groups)} \\times {numbers.bits}"
    more = "" if _even(numbers) else words("derivation.zeros", bits=numbers.bits)
    return said + "\n" + words(
        "derivation.storage", count=made.count, bits=numbers.bits, groups=len(made.groups), more=more, zeros=zeros, total=made.bits, each=digits(made.bits_per_weight),
        size=digits(result.bytes / 1e9), bandwidth=digits(result.bandwidth / 1e9, 4), speed=digits(result.tokens_per_second),
    )  # fmt: skip


def _papers(result: Result, t: int) -> tuple[Quantity, ...]:
    p, made, numbers = result.params, result.made[t], result.grid.numbers
    weights = {"weights": "worked example"} if p.preset == "worked" else {"weights": f"N(0, {examples.SPREAD}²)", "seed": p.seed}
    given = {**weights, "numbers": p.numbers, "bits": numbers.bits,
             "weights to a scale": len(made.groups[0].weights), "scale": "float16"}  # fmt: skip
    if result.outliers[t]:
        given |= {"outlier": result.outliers[t]}
    if isinstance(numbers, Uniform):
        given |= {"symmetric": p.symmetric}
    zeros = "" if _even(numbers) else " + groups × bits of a zero point"
    chip, model = facts.chip(CHIP), facts.model(MODEL)
    return (
        Quantity(made.bits_per_weight, "bit", "computed", f"(weights × bits + groups × 16{zeros}) / weights", {"weights": made.count, "groups": len(made.groups), "bits": numbers.bits}, says=SAYS["bits"]),
        Quantity(made.relative_error, "ratio", "computed", "mean of |ŵ − w| / |w| over w ≠ 0", given, says=SAYS["error"]),
        Quantity(made.zeros, "count", "computed", "weights with ŵ = 0 and w ≠ 0", given, says=SAYS["zeros"]),
        Quantity(result.bytes, "B", "computed", "parameters × bits per weight / 8", {"parameters": model.parameters, "bits per weight": made.bits_per_weight}, says=SAYS["size"]),
        Quantity(result.tokens_per_second, "token/s", "computed", "bandwidth / bytes", {"chip": chip.name, "bandwidth": chip.bandwidth_bytes_per_s, "bytes": result.bytes}, says=SAYS["speed"]),
        Quantity(result.full_tokens_per_second, "token/s", "computed", "bandwidth / (parameters × 2 B)", {"bandwidth": chip.bandwidth_bytes_per_s, "parameters": model.parameters}, says=SAYS["full"]),
    )  # fmt: skip


SAYS = {
    "bits": {"zh": "每个权重占的位数，连同缩放因子（和零点）", "en": "bits per weight, scales (and zero points) included"},
    "error": {"zh": "平均相对误差；掉到 0 的算 100%，本来就是 0 的不算", "en": "mean relative error; a weight that falls to 0 counts 100%, one that was 0 is left out"},
    "zeros": {"zh": "被挤成 0 的权重", "en": "weights squeezed to 0"},
    "size": {"zh": "70B 模型都这样存的体积", "en": "a 70B model stored like this throughout"},
    "speed": {"zh": "单用户速度上限：每个 token 把权重读一遍", "en": "bound for a single user: the weights are read once a token"},
    "full": {"zh": "同一上限，16 位权重", "en": "the same bound with 16-bit weights"},
}


# ---- predict first


def _truth(result: Result) -> Quantity:
    """Asked of 4 bits, one scale for all and an outlier of GUESSED, whatever the lesson shows."""
    asked = run(Params(outlier=GUESSED, seed=result.params.seed))
    return Quantity(asked.squeezed.zeros, "count", "computed", "weights with ŵ = 0 and w ≠ 0", {"outlier": GUESSED, "bits": 4, "seed": result.params.seed})


def _normal(params: Params) -> bool:
    return params.preset == "normal"


WIDGET = Widget(
    id="grid",
    Params=Params,
    controls=(
        Range("outlier", 0.0, 12.0, 0.5, "%.1f", when=_normal),
        Choice("block", lambda: GROUPS, when=_normal),
        Range("bits", 2, 8, when=lambda p: p.numbers == "int"),
        Choice("preset", lambda: ("normal", "worked")),
        Toggle("symmetric", when=lambda p: p.numbers == "int"),
        Choice("numbers", lambda: ("int", "fp4", "nf4")),
        Range("seed", 0, 99, when=_normal),
    ),
    run=run,
    draw=draw,
    guesses={"outlier": Guess(truth=_truth, bounds=(0, 23))},
)
