"""How many machines a class needs: web servers, nginx, engines or GPUs, memory and bandwidth on one ruler of learners."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from functools import partial
from math import ceil, floor, isclose, log10
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from components import Html, Readout, Scene, Stage, Vega, View, Widget, parameters, theme
from components.controls import Choice, Range, Stops
from components.text import Words, amount, condition, digits, formula
from compute import facts, sizing
from compute.errors import UnknownName
from compute.facts import ModelName
from compute.quantity import Quantity
from compute.sizing import Batch, Busy, Minutes, Plan, Tokens

LEARNERS = (10, 100_000)  # the ruler
STOPS = (30, 50, 100, 200, 300, 500, 1000, 2000, 3000, 5000, 10_000, 20_000, 30_000, 50_000, 100_000)
ACTIONS, TEXTS = (0.5, 60), (0.02, 60)  # the plane: a minute of one learner
CPU = "cpu"
PLANE = 280  # px
MACHINES = {"web": "web_server", "engine": "engine", "nginx": "nginx_core"}  # row → what one carries
CONDITIONS = ("cpu", "threads", "cores", "learners", "rounds", "slots", "load average", "date", "command")  # in the table of what one costs


def chips() -> tuple[str, ...]:
    """What an engine can run on."""
    return CPU, *facts.published_chips()


def _known(chip: str) -> str:
    if chip not in chips():
        raise UnknownName("chip", "卡", chip, list(chips()))
    return chip


@parameters
class Params:
    """actions, texts: a minute of one learner. tokens: of a text. chip: "cpu" for the measured engine. batch: texts that a GPU's engine
    writes together. busy: share of its time that a machine may be busy. arrive: minutes within which all open their first lesson."""

    learners: Annotated[int, Field(ge=LEARNERS[0], le=LEARNERS[1])] = 3000
    actions: Annotated[float, Field(ge=0, le=ACTIONS[1])] = 4
    texts: Annotated[float, Field(ge=0, le=TEXTS[1])] = 0.2
    tokens: Tokens = 64
    model: ModelName = "mini-256"
    chip: Annotated[str, AfterValidator(_known)] = CPU
    batch: Batch = 64
    busy: Busy = 0.6
    arrive: Minutes = 5


def asked(params: Params) -> dict[str, Any]:
    """The arguments of sizing.plan."""
    found = {"learners": params.learners, "actions_per_minute": params.actions, "texts_per_minute": params.texts, "tokens_per_text": params.tokens,
             "model": params.model, "busy": params.busy, "arrive_minutes": params.arrive}  # fmt: skip
    return found if params.chip == CPU else found | {"chip": params.chip, "batch": params.batch}


@dataclass(frozen=True)
class Result:
    params: Params
    plan: Plan
    classes: tuple[Plan, ...]  # the same for classes of other sizes
    even: tuple[tuple[float, float], ...]  # (actions, texts) at which engines need as many as web servers; straight between them on log axes

    @property
    def carries(self) -> dict[str, float]:
        """Row → learners that one machine carries; no engine where nobody asks for a text."""
        return {row: self.plan.carries[name].value for row, name in MACHINES.items() if name in self.plan.carries}

    @property
    def first(self) -> str:
        """The row of the machine that is full first."""
        return min(self.carries, key=self.carries.get)

    @property
    def tried(self) -> int:
        """The largest class that an action's cost was measured with."""
        return self.plan.one["action_seconds"].conditions["learners"]

    def memory(self, learners: float) -> float:
        """Bytes of the web servers."""
        one = self.plan.one
        return ceil(learners / self.carries["web"]) * one["server_bytes"].value + learners * one["learner_bytes"].value

    @property
    def bits_per_second(self) -> float:
        """What the line must carry at the beginning or afterwards, whichever is more."""
        return 8 * max(self.plan.needed["bandwidth_at_first"].value, self.plan.needed["bandwidth_later"].value)


def run(params: Params, answer=None) -> Result:
    """Raises LabError for an engine that nobody measured, and for a model that does not fit on the chip."""
    one = sizing.one(params.model, None if params.chip == CPU else params.chip, params.batch, params.tokens)

    def plan(learners: int = params.learners, actions: float = params.actions) -> Plan:
        return sizing.needs(one, learners, actions, params.texts, params.tokens, params.busy, params.arrive)

    kink = one["visit_web_seconds"].value / (params.arrive * one["action_seconds"].value)  # with fewer actions, arriving is more work
    bends = sorted({*ACTIONS, min(max(kink, ACTIONS[0]), ACTIONS[1])})
    classes = tuple(plan(learners) for learners in sorted({*STOPS, params.learners}))
    return Result(params, plan(), classes, tuple((actions, plan(actions=actions).turnover.value) for actions in bends))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, plan = scene.words, result.plan
    return View(
        picture=Stage(_stage(result, scene), height=560, picks=("learners",)),
        beside=(Html(f'<p class="lab-quiet"><b>{_e(words("plane.title"))}</b> {_e(words("plane.how", tokens=f"{result.params.tokens:,}"))}</p>'), Vega(_plane(result, scene))),
        after=(Html(_table(result, scene)), Html(_costs(result, scene)), Html(_left_out(result, words))),
        readouts=_readouts(result, scene),
        sentence=_says(result, scene),
        rows=_rows(result),
        papers=(*plan.carries.values(), plan.turnover, *plan.needed.values(), *plan.one.values()),
        simplified=words("simplified", tried=f"{result.tried:,}") + ("" if result.params.chip == CPU else words("simplified_chip")),
    )


def _e(text: Any) -> str:
    return html.escape(str(text))


def bits(value: float) -> tuple[str, str]:
    """A speed as networks are sold: (316, "Mbit/s")."""
    name, factor = next(((name, factor) for name, factor in (("Gbit/s", 1e9), ("Mbit/s", 1e6)) if value >= 0.9995 * factor), ("kbit/s", 1e3))
    return digits(value / factor), name


def counted(words: Words, row: str, n: float) -> str:
    """"1 engine", "23 web servers"."""
    return words(f"one.{row}" if n == 1 else f"many.{row}", n=f"{n:,}" if isinstance(n, int) else digits(n))


def _engine(result: Result) -> str:
    return "engine" if result.params.chip == CPU else "gpu"


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    words, plan, before = scene.words, result.plan, scene.before
    carries, was = result.carries, before.carries if before else {}
    bound = plan.carries.get("engine_at_bound")

    def machine(row: str, tone: str, whole: bool, note: str) -> dict[str, Any]:
        full, name = carries.get(row), _engine(result) if row == "engine" else row
        return {"id": row, "kind": "whole" if whole else "part", "name": words(f"row.{name}"), "note": note, "tone": tone, "full": full, "first": row == result.first,
                "was": was[row] if row in was and full and not isclose(was[row], full) else None, "units": [words(f"unit.{name}"), words(f"units.{name}")],
                "estimate": row == "engine" and result.params.chip != CPU, "bound": bound.value if bound and row == "engine" else None,
                "scale": [[v * full, f"{v:,}"] for v in _decades(1, LEARNERS[1] / full)] if full else []}  # fmt: skip

    per_bit, each = result.bits_per_second / result.params.learners, plan.one["learner_bytes"].value
    where = facts.model(result.params.model).name if result.params.chip == CPU else f"{facts.model(result.params.model).name}, {facts.chip(result.params.chip).name}"
    return {
        "at": result.params.learners, "domain": LEARNERS, "was": before.params.learners if before and before.params.learners != result.params.learners else None, "tried": result.tried,
        "rows": [
            machine("web", "compute", True, words("row.web_note")),
            machine("engine", "decode", True, words("row.engine_note", where=where) if "engine" in carries else words("row.engine_none")),
            machine("nginx", "compute", False, words("row.nginx_note", minutes=digits(result.params.arrive, 2) if result.params.arrive % 1 else int(result.params.arrive))),
            {"id": "memory", "kind": "memory", "name": words("row.memory"), "note": words("row.memory_note"), "base": plan.one["server_bytes"].value, "each": each, "web": carries["web"],
             "scale": [[n, said] for v, said in ((1e9, "1 GB"), (1e10, "10 GB"), (1e11, "100 GB"), (1e12, "1 TB"), (1e13, "10 TB")) if (n := _reaches(result, v)) is not None]},
            {"id": "band", "kind": "rate", "name": words("row.band"), "note": words("row.band_note"), "each": per_bit,
             "scale": [[10**e / per_bit, _power(e)] for e in range(5, 13) if LEARNERS[0] <= 10**e / per_bit <= LEARNERS[1]]},
        ],
    }  # fmt: skip


def _power(e: int) -> str:
    """10**e bit/s."""
    return f"{10 ** (e % 3)} {('', 'k', 'M', 'G', 'T')[e // 3]}bit/s"


def _decades(low: float, high: float) -> list[int]:
    return [10**e for e in range(int(log10(low)), floor(log10(high)) + 1)] if high >= low else []


def _reaches(result: Result, size: float) -> float | None:
    """The least class whose web servers take so many bytes; None where no class of the ruler does, or the smallest does already."""
    low, high = map(float, LEARNERS)
    if not result.memory(low) < size <= result.memory(high):
        return None
    while high / low > 1.0001:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if result.memory(middle) < size else (low, middle)
    return high


def _plane(result: Result, scene: Scene) -> dict[str, Any]:
    """Which needs more, by what a learner does in a minute; under the line web servers, above it engines."""
    words, tone, p, before = scene.words, partial(theme.colour, theme=scene.theme), result.params, scene.before
    engine, inside = _engine(result), lambda value, ends: min(max(value, ends[0]), ends[1])
    edge = [{"x": x, "y": y, "low": TEXTS[0], "high": TEXTS[1]} for x, y in result.even]
    ticks = {"actions": [0.5, 1, 3, 10, 30], "texts": [0.03, 0.1, 0.3, 1, 3, 10, 30]}
    x = {"field": "x", "type": "quantitative", "scale": {"type": "log", "domain": ACTIONS, "nice": False}, "title": words("plane.x"), "axis": {"values": ticks["actions"], "format": "~g"}}
    y = {"field": "y", "type": "quantitative", "scale": {"type": "log", "domain": TEXTS, "nice": False}, "title": words("plane.y"), "axis": {"values": ticks["texts"], "format": "~g"}}

    def region(to: str, name: str) -> dict:
        return {"data": {"values": edge}, "mark": {"type": "area", "color": tone(name), "opacity": 0.14, "clip": True}, "encoding": {"x": x, "y": y, "y2": {"field": to}}}

    def dot(of: Result, **mark) -> dict:
        at = {"x": inside(of.params.actions, ACTIONS), "y": inside(of.params.texts, TEXTS)}
        return {"data": {"values": [at]}, "mark": {"type": "point", "size": 130, "opacity": 1, **mark}, "encoding": {"x": x, "y": y}}

    def label(text: str, corner: dict, name: str, **mark) -> dict:
        return {"data": {"values": [corner]}, "mark": {"type": "text", "text": text, "color": tone(name), "fontWeight": 600, **mark}, "encoding": {"x": x, "y": y}}

    layers = [region("low", "compute"), region("high", "decode"),
              {"data": {"values": edge}, "mark": {"type": "line", "color": tone("ink"), "strokeWidth": 1.5, "clip": True}, "encoding": {"x": x, "y": y}}]
    if result.even[-1][1] > 2 * TEXTS[0]:
        layers.append(label(words("plane.web"), {"x": ACTIONS[1], "y": TEXTS[0]}, "compute", align="right", baseline="bottom", dx=-8, dy=-8))
    if result.even[0][1] < TEXTS[1] / 2:
        layers.append(label(words(f"plane.{engine}"), {"x": ACTIONS[0], "y": TEXTS[1]}, "decode", align="left", baseline="top", dx=8, dy=8))
    if before and (before.params.actions, before.params.texts) != (p.actions, p.texts):
        layers.append(dot(before, filled=False, color=tone("muted"), strokeDash=[3, 2], strokeWidth=1.5))
    layers.append(dot(result, filled=True, color=tone("ink")))
    side = 16 if p.texts < result.plan.turnover.value and p.texts > 2 * TEXTS[0] else -16  # away from the line
    ends = "left" if p.actions < 1 else "right" if p.actions > 30 else "center"
    layers.append(label(words("plane.here"), {"x": inside(p.actions, ACTIONS), "y": inside(p.texts, TEXTS)}, "ink", align=ends, baseline="middle", dy=side))
    return {"height": PLANE, "config": theme.vega_config(scene.theme, scene.lang), "layer": layers}


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, old = scene.words, scene.lang, scene.before

    def figure(name: str, of, note: str = "") -> Readout:
        number, unit = of(result)
        was = of(old) if old else (number, unit)
        return Readout(words(f"readout.{name}"), number, unit, words("before", value=" ".join(filter(None, was))) if was != (number, unit) else "", note)

    def count(name: str):
        return lambda r: (f"{r.plan.needed[name].value:,}", "")

    def memory(r: Result) -> tuple[str, str]:
        number, _, unit = amount(r.plan.needed["web_memory"].value, "B", lang).rpartition(" ")
        return number, unit

    needed = result.plan.needed
    first, later = (" ".join(bits(8 * needed[name].value)) for name in ("bandwidth_at_first", "bandwidth_later"))
    return (
        figure("web", count("web_servers"), words("note.web")),
        figure("memory", memory, words("note.memory")),
        figure("engine" if result.params.chip == CPU else "gpu", count("engines"), words("note.measured") if result.params.chip == CPU else words("note.estimate")),
        figure("nginx", lambda r: (digits(r.plan.needed["nginx_cores"].value), ""), words("note.nginx")),
        figure("band", lambda r: bits(r.bits_per_second), words("note.band", first=first, later=later)),
    )


def _says(result: Result, scene: Scene) -> str:
    words, needed, p, engine = scene.words, result.plan.needed, result.params, _engine(result)
    n = needed["engines"].value
    parts = [words("says.plan", learners=f"{p.learners:,}", web=counted(words, "web", needed["web_servers"].value), memory=amount(needed["web_memory"].value, "B", scene.lang),
                   nginx=counted(words, "nginx", needed["nginx_cores"].value), engine=counted(words, engine, n) if n else words(f"none.{engine}"), band=" ".join(bits(result.bits_per_second)))]  # fmt: skip
    carries, first = result.carries, result.first
    second = min((row for row in carries if row not in (first, "nginx")), key=carries.get, default="nginx")
    a = {row: words(f"a.{engine if row == 'engine' else row}") for row in carries}
    parts.append(words("says.first", first=a[first], carries=digits(carries[first]), second=a[second], more=digits(carries[second])))
    servers, others = needed["web_servers"].value, needed["engine_cores" if engine == "engine" else "gpus"].value
    most = "pages" if servers > others else "tokens" if others > servers else "equal"
    parts.append(words(f"says.{most}", even=digits(result.plan.turnover.value), engine=words(f"all.{engine}"), texts=f"{p.texts:g}"))
    return words("says.join").join(parts)


# ---- tables


def _shown(quantity: Quantity, lang: str) -> str:
    """As the tables say it: a rate whose name says of what and in which time needs no unit, a network is counted in bits."""
    if quantity.unit in ("1/s", "1/min"):
        return digits(quantity.value)
    return " ".join(bits(8 * quantity.value)) if quantity.unit == "B/s" else amount(quantity.value, quantity.unit, lang)


def _grid(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]], opened: bool) -> str:
    head = "".join(f'<th scope="col">{_e(each)}</th>' for each in heads)
    body = "".join("<tr>" + f'<th scope="row">{_e(row[0])}</th>' + f'<td class="n">{_e(row[1])}</td>' + "".join(f"<td>{_e(cell)}</td>" for cell in row[2:]) + "</tr>" for row in rows)
    return f'<details class="lab-papers lab-ledger few" {"open" if opened else ""}><summary>{_e(title)}</summary><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></details>'


def _table(result: Result, scene: Scene) -> str:
    words, lang, old = scene.words, scene.lang, scene.before
    rows = []
    for name, quantity in result.plan.needed.items():
        was = old.plan.needed.get(name) if old else None
        rows.append((quantity.says[lang], _shown(quantity, lang), _shown(was, lang) if was and was.value != quantity.value else "", formula(quantity.formula, lang)))
    return _grid(words("table.plan"), tuple(words(f"column.{each}") for each in ("what", "needed", "was", "how")), rows, opened=True)


def _costs(result: Result, scene: Scene) -> str:
    words, lang = scene.words, scene.lang
    rows = []
    for quantity in result.plan.one.values():
        about = quantity.inputs | quantity.conditions
        told = words("joint").join(" ".join(condition(key, about[key], lang)) for key in (*quantity.inputs, *CONDITIONS, "note") if key in about)
        rows.append((quantity.says[lang], amount(quantity.value, quantity.unit, lang), words("kind.measured" if quantity.kind == "measured" else "kind.estimate", **{"with": told})))
    return _grid(words("table.costs"), tuple(words(f"column.{each}") for each in ("what", "one", "with")), rows, opened=False)


def _left_out(result: Result, words: Words) -> str:
    items = "".join(f"<li>{_e(text)}</li>" for key, text in words.table.items() if key.startswith("missing."))
    command = f"python -m compute call sizing.plan '{json.dumps(asked(result.params))}'"
    return (f'<div class="lab-papers"><p class="lab-quiet"><b>{_e(words("table.missing"))}</b></p><ul>{items}</ul>'
            f'<p class="lab-quiet"><b>{_e(words("table.command"))}</b></p><p><code>{_e(command)}</code></p></div>')  # fmt: skip


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    """The plan at the chosen class and at every stop of the slider."""
    return tuple({"learners": plan.learners, **{f"{name} ({quantity.unit})": quantity.value for name, quantity in plan.needed.items()}} for plan in result.classes)


WIDGET = Widget(
    id="sizing",
    Params=Params,
    controls=(
        Stops("learners", STOPS),
        Stops("actions", (0, 0.5, 1, 2, 4, 6, 10, 15, 20, 30, 60), lambda v: f"{v:g}"),
        Stops("texts", (0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60), lambda v: f"{v:g}"),
        Choice("chip", chips, lambda id: facts.chip(id).name),
        Stops("tokens", (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)),
        Choice("model", lambda: tuple(facts.models()), lambda id: facts.model(id).name),
        Stops("batch", (1, 4, 16, 64, 256, 1024), when=lambda params: params.chip != CPU),
        Range("busy", 0.1, 1.0, 0.05, "%.2f"),
        Stops("arrive", (0.5, 1, 2, 5, 10, 20, 30, 60), lambda v: f"{v:g}"),
    ),
    run=run,
    draw=draw,
)
