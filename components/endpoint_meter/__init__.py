"""Measures a running endpoint from outside: every request with its wait and its chunks, percentiles, and who met both targets."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field

from components import Html, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import Words, amount, digits, short
from compute import precompute
from compute.errors import BrokenData, LabError
from compute.meter.report import PLACES, Endpoint, Failed, Loop, Measured, Plan, Report, Spread, Summary, Underway, summary
from compute.quantity import Quantity
from compute.service import client

STORED = precompute.STORE.parent / "measured" / "meter-own.json"
OWN = "own"  # the service's own engine, on every operator's list
ENOUGH = 100  # requests from which the slowest hundredth is more than the slowest one
MOST_CURVE = 160  # points of a distribution's curve
MOST_CHUNKS = 4_000  # drawn in the picture
MOST_ERRORS = 20  # rows of the table
MOST_REQUESTS = 200  # drawn, a row each
LEAST_THIRD, GROWN = 5, 3.0  # requests in a third, and how many times longer the last third waits than the first when the queue grows
LOOKED_SECONDS = 20  # for which the operator's list is not asked for again


@parameters
class Params:
    """What to measure, and the two targets in seconds: of the time to the first token, and of the mean time of each one after it."""

    endpoint: Annotated[str, Field(min_length=1, max_length=80)] = OWN  # a name on the operator's list, never an address
    loop: Loop = "closed"
    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    rate: Annotated[float, Field(gt=0, le=100)] = 2.0
    requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS)] = 32
    prompt_tokens: Annotated[int, Field(ge=1, le=8192)] = 64
    output_tokens: Annotated[int, Field(ge=1, le=512)] = 32
    ttft_target: Annotated[float, Field(gt=0, le=600)] = 0.1
    tpot_target: Annotated[float, Field(gt=0, le=60)] = 0.02
    seed: Annotated[int, Field(ge=0, le=9_999)] = 0


@dataclass(frozen=True)
class Result:
    """waiting: the report is of another plan than the one asked for, which nobody has measured yet."""

    params: Params
    report: Report
    mark: Literal["live", "replay"]
    waiting: bool = False

    @property
    def plan(self) -> Plan:
        """What was measured, judged by the targets asked for: these move without measuring again."""
        return replace(self.report.plan, ttft_target=self.params.ttft_target, tpot_target=self.params.tpot_target)

    @property
    def summary(self) -> Summary:
        return summary(self.plan, self.report.requests, len(self.report.errors), self.report.seconds)

    @property
    def good(self) -> int:
        return sum(one.good(self.plan) for one in self.report.requests)

    @property
    def ended(self) -> int:
        return len(self.report.requests) + len(self.report.errors)


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    """answer: a report as compute/meter writes it, also of a run that goes on or was cut off."""
    if answer is not None:
        return Result(params, read(answer), "live")
    kept = _stored()
    asked = Params(endpoint=kept.endpoint.name, **{f.name: getattr(kept.plan, f.name) for f in fields(Params) if f.name != "endpoint"})
    return Result(params, kept, "replay", waiting=_measured(params) != _measured(asked))


def read(report: Mapping[str, Any]) -> Report:
    """A report from its JSON. Raises LookupError or TypeError for what is none."""

    def rows(name: str, of: type) -> tuple:
        known = {f.name for f in fields(of)}
        return tuple(of(**{k: tuple(v) if k == "chunks" else v for k, v in row.items() if k in known}) for row in report.get(name, ()))

    return Report(
        Endpoint(**report["endpoint"]), Plan(**report["plan"]), report["started"], report["seconds"], report["done"], rows("requests", Measured),
        rows("errors", Failed), report["conditions"], rows("running", Underway), report.get("stopped"),
        report.get("warming", False),
    )  # fmt: skip


def _measured(params: Params) -> dict[str, Any]:
    """What a measurement is about; the targets only judge it, and of rate and concurrency one counts."""
    idle = "rate" if params.loop == "closed" else "concurrency"
    return {f.name: getattr(params, f.name) for f in fields(Params) if f.name not in ("ttft_target", "tpot_target", idle)}


def _stored() -> Report:
    """A run on the lesson's own engine: what the command line wrote, beside where and when. Raises BrokenData."""
    try:
        return read(json.loads(STORED.read_text(encoding="utf-8"))["report"])
    except (OSError, ValueError, LookupError, TypeError) as wrong:
        raise BrokenData(f"data/measured/{STORED.name}", str(wrong)) from None


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    report = result.report
    return View(
        picture=Stage(_stage(result, scene), height=640),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(result),
        papers=_papers(result),
        after=(Html(_errors(report, scene)),) if report.errors else (),
        simplified=_simplified(result, scene),
    )


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    report, plan, figures, words, lang = result.report, result.plan, result.summary, scene.words, scene.lang
    number = {one.id: n for n, one in enumerate(sorted((*report.requests, *report.errors, *report.running), key=lambda one: (one.sent, one.id)), 1)}
    drawn = sum(len(one.chunks) for one in (*report.requests, *report.running)) <= MOST_CHUNKS
    rows = [[number[one.id], one.sent, one.first, one.last, "good" if one.good(plan) else "missed", _seconds(one.chunks) if drawn else [], _tip(one, number[one.id], plan, scene)] for one in report.requests]
    rows += [[number[one.id], one.sent, None, one.at, "failed", [], words("tip.failed", n=number[one.id], kind=words(f"kind.{one.kind}"), at=amount(one.at, "s", lang))] for one in report.errors]
    rows += [[number[one.id], one.sent, one.first, None, "running", _seconds(one.chunks) if drawn else [], words("tip.running", n=number[one.id])] for one in report.running]
    gaps = [gap for one in report.requests for gap in one.gaps]
    before = scene.before
    moved = before is not None and before.report is report and before.plan != plan
    return {
        "n": max(plan.requests, len(rows)), "rows": sorted(rows), "seconds": max([report.seconds, *(one.last for one in report.requests), *(one.at for one in report.errors)]), "running": scene.running,
        "dots": [[number[one.id], one.ttft, one.tpot or 0.0, one.good(plan)] for one in report.requests],
        "targets": [plan.ttft_target, plan.tpot_target], "labels": [_at_most(plan.ttft_target, scene), _at_most(plan.tpot_target, scene)],
        "ghost": [before.plan.ttft_target, before.plan.tpot_target] if moved else None,
        "good": result.good, "ended": result.ended,
        "curves": [_curve([one.ttft for one in report.requests], figures.ttft, lang), _curve(gaps, figures.gap, lang)],
    }  # fmt: skip


def _at_most(target: float, scene: Scene) -> str:
    return scene.words("target", value=amount(target, "s", scene.lang))


def _seconds(times: Sequence[float]) -> list[float]:
    return [round(t, 4) for t in times]


def _tip(one: Measured, number: int, plan: Plan, scene: Scene) -> str:
    words, lang = scene.words, scene.lang
    tpot = amount(one.tpot, "s", lang) if one.tpot is not None else "–"
    missed = [words(f"short.{name}") for name, late in (("ttft", one.ttft > plan.ttft_target), ("tpot", (one.tpot or 0) > plan.tpot_target)) if late]
    verdict = words("tip.missed", which=words("and").join(missed)) if missed else words("tip.good")
    return words("tip.done", n=number, sent=amount(one.sent, "s", lang), ttft=amount(one.ttft, "s", lang), tpot=tpot, tokens=one.output_tokens, chunks=len(one.chunks) or "–", verdict=verdict)


def _curve(values: Sequence[float], found: Spread, lang: str) -> dict[str, Any]:
    """Values against the share of them that is no larger, with the same straight lines in between as the percentiles, which lie on it."""
    ordered = sorted(values)
    n = len(ordered)
    kept = range(n) if n <= MOST_CURVE else sorted({round(i * (n - 1) / (MOST_CURVE - 1)) for i in range(MOST_CURVE)})
    marks = [(name, share, value) for name, share, value in (("p50", 0.5, found.p50), ("p90", 0.9, found.p90), ("p99", 0.99, found.p99)) if value is not None and (name != "p99" or n >= ENOUGH)]
    return {"n": n, "longest": amount(ordered[-1], "s", lang) if n else "", "points": [[ordered[i], i / (n - 1)] for i in kept] if n > 1 else [[v, share] for v in ordered for share in (0, 1)], "marks": [[name, share, value, amount(value, "s", lang)] for name, share, value in marks]}


# ---- figures and words


def _pair(found: Spread, lang: str) -> tuple[str, str]:
    """Median and the slow end in one unit: ("45.2 | 61.0", "ms")."""
    if found.p50 is None:
        return "–", ""
    high = found.p99 if found.n >= ENOUGH else found.p90
    _, unit = short(high, "s", lang)
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6}.get(unit, 1e9)
    return f"{digits(found.p50 * scale)} | {digits(high * scale)}", unit


def _ends(found: Spread, words: Words) -> str:
    if found.n >= ENOUGH:
        return words("note.ends", n=f"{found.n:,}")
    return words("note.few", n=found.n, enough=ENOUGH) if found.n else ""


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, now, report = scene.words, scene.lang, result.summary, result.report
    then = scene.before.summary if scene.before is not None and scene.before.report is report else None

    def rate(name: str, of: Callable[[Summary], float | None], unit: str, note: str) -> Readout:
        value = of(now)
        if value is None:
            return Readout(words(f"readout.{name}"), "–", "", "", note)
        was = words("before", value=digits(of(then))) if then is not None and of(then) != value else ""
        return Readout(words(f"readout.{name}"), digits(value), unit, was, note)

    failed = words("note.failed", n=len(report.errors)) if report.errors else words("note.no_errors")
    return (
        Readout(words("readout.ttft"), *_pair(now.ttft, lang), "", _ends(now.ttft, words)),
        Readout(words("readout.tpot"), *_pair(now.tpot, lang), "", _ends(now.tpot, words)),
        rate("throughput", lambda s: s.tokens_per_second, "token/s", words("note.requests", rate=digits(now.requests_per_second)) if now.requests_per_second is not None else ""),
        rate("goodput", lambda s: s.goodput, words("unit.requests"), words("note.good", good=result.good, n=result.ended)),
        Readout(words("readout.done"), f"{len(report.requests):,}", f"/ {max(report.plan.requests, result.ended):,}", "", failed),
    )


def _load(plan: Plan, words: Words) -> str:
    return words(f"load.{plan.loop}", concurrency=plan.concurrency, rate=f"{plan.rate:g}", n=plan.requests)


def _name(report: Report, words: Words) -> str:
    name = words.get(f"option.endpoint.{report.endpoint.name}", report.endpoint.name)
    return words("named", name=name, model=report.endpoint.model) if report.endpoint.model else name


def _sentence(result: Result, scene: Scene) -> str:
    words, lang, report, plan, now = scene.words, scene.lang, result.report, result.plan, result.summary
    said = words("waiting") if result.waiting else ""
    if scene.running and report.warming:
        said += words("warming", n=plan.warmup)
    elif scene.running:
        said += words("so_far", ended=result.ended, n=plan.requests)
    elif not report.done:
        said += words(f"stopped.{report.stopped or 'cancelled'}", ended=result.ended, n=plan.requests)
    said += words("sentence.load", endpoint=_name(report, words), load=_load(plan, words))
    if now.ttft.p50 is None:
        return said + (words("sentence.none", failed=len(report.errors)) if report.errors else words("sentence.nothing"))
    times = {"ttft": amount(now.ttft.p50, "s", lang), "rate": digits(now.tokens_per_second or 0)}
    said += words("sentence.first", **times) if now.tpot.p50 is None else words("sentence.times", tpot=amount(now.tpot.p50, "s", lang), **times)
    said += words("sentence.good", ttft=amount(plan.ttft_target, "s", lang), tpot=amount(plan.tpot_target, "s", lang), good=result.good, n=result.ended,
                  share=amount(now.good_share, "ratio", lang), goodput=digits(now.goodput or 0))  # fmt: skip
    late = [sum(one.ttft > plan.ttft_target for one in report.requests), sum((one.tpot or 0) > plan.tpot_target for one in report.requests)]
    if any(late):
        said += words("sentence.missed", ttft=late[0], tpot=late[1])
    if grown := _behind(report):
        said += words("sentence.behind", early=amount(grown[0], "s", lang), late=amount(grown[1], "s", lang))
    if report.errors:
        said += words("sentence.failed", failed=len(report.errors))
    return said


def _behind(report: Report) -> tuple[float, float] | None:
    """Median TTFT of the first and of the last third, where requests come on their own and the queue grew."""
    third = len(report.requests) // 3
    if report.plan.loop == "closed" or third < LEAST_THIRD:
        return None
    waits = [one.ttft for one in sorted(report.requests, key=lambda one: one.sent)]
    early, late = median(waits[:third]), median(waits[-third:])
    return (early, late) if late > GROWN * early else None


def _simplified(result: Result, scene: Scene) -> str:
    words, report, now = scene.words, result.report, result.summary
    said = words("simplified", warmup=report.plan.warmup)
    if (now.tokens_per_chunk or 1) > 1.05:
        said += words("simplified_chunks", tokens=digits(now.tokens_per_chunk))
    if uncounted := sum(one.counted_by == "chunks" for one in report.requests):
        said += words("simplified_counted", n=uncounted)
    if 0 < now.done < ENOUGH:
        said += words("simplified_few", n=now.done)
    return said + words("simplified_command")


def _errors(report: Report, scene: Scene) -> str:
    """What went wrong, a row each; what servers said is text and nothing else."""
    words, lang, shown = scene.words, scene.lang, report.errors[:MOST_ERRORS]
    heads = "".join(f'<th scope="col">{html.escape(words(f"errors.{name}"))}</th>' for name in ("at", "kind", "says"))
    rows = "".join(
        f'<tr><td class="n">{html.escape(amount(one.at, "s", lang))}</td><td>{html.escape(words(f"kind.{one.kind}"))}</td><td>{html.escape(one.says[lang])}</td></tr>'
        for one in shown
    )  # fmt: skip
    more = f'<p class="lab-quiet">{html.escape(words("errors.more", n=len(report.errors) - len(shown)))}</p>' if len(report.errors) > len(shown) else ""
    title = html.escape(words("errors.title", n=len(report.errors)))
    return f'<div class="lab-papers"><p><b>{title}</b></p><div class="lab-scroll"><table class="lab-ledger" style="min-width:0"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>{more}</div>'


def _micro(value: float | None) -> float | None:
    return None if value is None else round(value, PLACES)


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    """Everything the report knows of each request, and its plan: the report can be made of it again."""
    report, plan = result.report, result.plan
    given = {"endpoint": report.endpoint.name, "model": report.endpoint.model, "started": report.started, "measured_seconds": report.seconds, "loop": plan.loop,
             "concurrency": plan.concurrency if plan.loop == "closed" else None, "requests_per_second": plan.rate if plan.loop == "open" else None,
             "ttft_target_seconds": plan.ttft_target, "tpot_target_seconds": plan.tpot_target, "seed": plan.seed}  # fmt: skip
    rows = [
        {
            "id": one.id, "sent_seconds": one.sent, "first_seconds": one.first, "last_seconds": one.last, "late_seconds": one.late, "ttft_seconds": _micro(one.ttft), "tpot_seconds": _micro(one.tpot),
            "prompt_tokens": one.prompt_tokens, "cached_tokens": one.cached, "output_tokens": one.output_tokens, "counted_by": one.counted_by, "chunk_seconds": list(one.chunks),
            "met_targets": one.good(plan), "error": None, "error_seconds": None, "error_says": None,
        }
        for one in report.requests
    ]  # fmt: skip
    rows += [{"id": one.id, "sent_seconds": one.sent, "met_targets": False, "error": one.kind, "error_seconds": one.at, "error_says": one.says["en"]} for one in report.errors]
    return tuple(row | given for row in sorted(rows, key=lambda row: row["id"]))


SAYS = {
    "ttft": ("首 token 时间", "time to the first token"),
    "tpot": ("之后每个 token 的平均时间", "mean time of each token after it"),
    "gap": ("两块之间的间隔", "gap between two chunks"),
    "tokens_per_second": ("每秒写出的 token", "tokens written per second"),
    "goodput": ("每秒达到两个目标的请求", "requests per second that met both targets"),
}
HOW = {
    "ttft": "arrival of the first chunk with text − sent",
    "tpot": "(last − first) / (tokens − 1), of each request",
    "gap": "arrival − arrival of the chunk before",
    "tokens_per_second": "tokens of all answers / seconds",
    "goodput": "requests with TTFT and TPOT within the targets / seconds",
}


def _papers(result: Result) -> tuple[Quantity, ...]:
    now, plan, report = result.summary, result.plan, result.report
    around = dict(report.conditions) | {"endpoint": report.endpoint.name, "model": report.endpoint.model, "started": report.started}
    given = {f.name: getattr(plan, f.name) for f in fields(Plan)}

    def paper(name: str, value: float, unit: str, more: str = "") -> Quantity:
        zh, en = SAYS[name]
        comma = ("，", ", ") if more else ("", "")
        return Quantity(value, unit, "measured", HOW[name], given, None, around, says={"zh": f"{zh}{comma[0]}{more}", "en": f"{en}{comma[1]}{more}"})

    found = []
    for name in ("ttft", "tpot", "gap"):
        spread: Spread = getattr(now, name)
        found += [paper(name, value, "s", p) for p in ("p50", "p90", "p99") if (value := getattr(spread, p)) is not None and (p != "p99" or spread.n >= ENOUGH)]
    if now.tokens_per_second is not None:
        found += [paper("tokens_per_second", now.tokens_per_second, "token/s"), paper("goodput", now.goodput, "request/s")]
    return tuple(found)


# ---- what may be measured


_listed: dict[str, tuple[float, tuple[str, ...]]] = {}  # address of the service → (when asked, names)


def endpoints() -> tuple[str, ...]:
    """Names on the operator's list, our own first. Without the service nothing else can be measured, nor looked up."""
    at, known = _listed.get(client.address(), (0.0, (OWN,)))
    if at and time.monotonic() - at < LOOKED_SECONDS:
        return known
    if client.status().up:
        try:
            known = tuple(one["name"] for one in client.call("meter.endpoints", {}).value["endpoints"])
        except LabError:
            pass  # the run itself will say it
        _listed[client.address()] = time.monotonic(), known
    return known


def several(params: Params) -> bool:
    return params.endpoint != OWN or len(endpoints()) > 1


def closed(params: Params) -> bool:
    return params.loop == "closed"


def open_loop(params: Params) -> bool:
    return params.loop == "open"


def seconds(value: float) -> str:
    return amount(value, "s", "en")


def arguments(params: Params) -> dict[str, Any]:
    return {f.name: getattr(params, f.name) for f in fields(Params)}


WIDGET = Widget(
    id="endpoint-meter",
    Params=Params,
    controls=(
        Choice("endpoint", endpoints, lambda id: id, when=several), Choice("loop", lambda: ("closed", "open")),
        Stops("concurrency", (1, 2, 4, 8, 16, 32), when=closed), Stops("rate", (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0), lambda v: f"{v:g}/s", when=open_loop),
        Stops("ttft_target", (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0), seconds), Stops("tpot_target", (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5), seconds),
        Stops("requests", (8, 16, 32, 64, 100, 200)), Stops("prompt_tokens", (8, 16, 32, 64, 128, 256)), Stops("output_tokens", (2, 8, 16, 32, 64, 128)),
        Stops("seed", tuple(range(10))),
    ),
    run=run,
    draw=draw,
    live=Live("meter.run", arguments, about=_measured, partial=True),
)  # fmt: skip
