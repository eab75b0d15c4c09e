"""Requests that come by themselves, at any rate and under any policy: who is served in time, where the knee is, and where waiting
has no end; beside it the queue with one server, simulated and by formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Stops
from components.text import Words, amount, digits, short
from compute import aside, facts, judged
from compute.batching import POLICIES, PolicyName
from compute.calibrated import WEIGHT_BITS, Error, Precision
from compute.facts import ModelName
from compute.quantity import Quantity
from compute.serving import WORKLOADS, Percentile, Run, Theory, rates
from compute.serving.load import Budget, ClockName, Rate, Requests, Seed, Slots, Target
from compute.serving.rates import CUSTOMERS, GRID, SHARE, Closed, Curve, Histogram, Setting
from compute.serving.requests import KINDS

HERE = 3000  # requests that are simulated as soon as a control moves; more are a run on the service
FIRST = 1000  # requests that are shown before such a run; and of each rate of the curve
ASKED_AT = 0.8  # of the capacity
MINUTE = 60
MODELS = ("qwen3.8-27b", "qwen3-8b", "llama-3-8b", "gpt-oss-20b", "llama-3-70b")  # offered; a lesson may begin with any other
HEED = ("prefill-first", "chunked")  # policies to which the budget means something

STEPS = (1, 1.1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3.2, 3.6, 4, 4.5, 5, 5.6, 6.3, 7, 8, 9)  # of a decade
RATES = tuple(round(step * decade, 3) for decade in (0.1, 1, 10) for step in STEPS) + (100.0,)
RHOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2)


@parameters
class Params:
    """mode: an engine, or a queue with one server, M/M/1 or M/D/1. rate: requests that come in a second; rho: the load of that
    queue. budget: tokens a step may read, for the policies that heed it."""

    mode: Literal["service", "mm1", "md1"] = "service"
    rate: Rate = 4.0
    rho: Annotated[float, Field(gt=0, le=2)] = 0.8
    policy: PolicyName = "continuous"
    workload: Annotated[str, Field(max_length=40)] = "code"
    arrive: Literal["poisson", "even", "bursty"] = "poisson"
    slots: Slots = 58
    budget: Budget = 512
    model: ModelName = "qwen3.8-27b"
    chip: str = "h100-sxm"
    precision: Precision = "bf16"
    clock: ClockName = "calibrated"
    ttft_target: Target = 1.0
    tpot_target: Target = 0.05
    requests: Requests = 1000
    seed: Seed = 0


@dataclass(frozen=True)
class Result:
    """run: at the chosen rate. spread: how its TTFT and TPOT are distributed, nothing in overload. curve: at other rates; theory and
    closed: the same for a queue with one server, by load, and `exact` at the chosen one, None in overload. asked: requests that
    were asked for, where only some of them are simulated yet."""

    params: Params
    run: Run
    spread: tuple[Histogram, ...] = ()
    curve: Curve | None = None
    theory: tuple[Theory, ...] = ()
    closed: tuple[Closed, ...] = ()
    exact: Closed | None = None
    error: Error | None = None
    first_error: Error | None = None  # of first tokens of prompts as long as the workload's usual one; that of the queue in front is not known
    live: bool = False
    asked: int | None = None

    @property
    def overload(self) -> bool:
        return self.run.verdict == "overload"

    @property
    def mark(self) -> Literal["computed", "live", "refused"]:
        return "refused" if self.overload else "live" if self.live else "computed"


def setting(p: Params, requests: int) -> Setting:
    budget = p.budget if p.policy in HEED else Params.budget  # so that what changes nothing is not run again
    return Setting(p.model, p.chip, p.policy, p.workload, p.arrive, p.slots, budget, p.precision, p.clock, requests, p.seed)


_ANSWER = pydantic.TypeAdapter(Run)


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    """answer: what serving.run says of all requests. Raises BadInput, Refused and UnknownName."""
    p = params
    if p.mode != "service":
        *theory, mine = aside.call(rates.queues, p.mode, (*rates.LOADS, p.rho), p.seed)
        closed = tuple(rates.closed(p.mode, rho) for rho in rates.FINE)
        return Result(p, mine.run, theory=tuple(theory), closed=closed, exact=rates.closed(p.mode, p.rho) if p.rho < 1 else None)
    targets = p.ttft_target, p.tpot_target
    few = setting(p, p.requests if p.requests <= HERE else FIRST)
    found = _ANSWER.validate_python(answer) if answer is not None else aside.call(rates.judged, few, p.rate, *targets)
    spread = () if found.verdict == "overload" else aside.call(rates.waits, few, p.rate, *targets)
    curve = aside.call(rates.curve, setting(p, min(p.requests, FIRST)), *targets)
    return Result(
        p, found, spread, curve, error=rates.server(few).price.error, live=answer is not None,
        first_error=judged.first_token_error(rates.usual_prompt(p.workload)) if p.clock == "calibrated" else None,
        asked=p.requests if answer is None and p.requests > HERE else None,
    )  # fmt: skip


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, lang = scene.words, scene.lang
    before = scene.before if scene.before is not None and scene.before.params.mode == result.params.mode else None
    sentence = _sentence(result, words, lang)
    stage = (_service if result.curve else _queue)(result, before, words, lang)
    return View(
        picture=Stage({**stage, "says": sentence}, height=600, picks=("rate",) if result.curve else ("rho",)),
        readouts=_readouts(result, before, words, lang),
        sentence=sentence,
        rows=_rows(result),
        papers=_papers(result),
        simplified=_simplified(result, words, lang),
        derivation=words(f"derivation.{result.params.mode}") if not result.curve else "",
    )


def _growth(result: Result) -> float:
    """Requests by which the system fills up, a second or a service; of a queue whose capacity is known it need not be measured."""
    return result.run.growth if result.curve else result.params.rho - 1


def _grows(result: Result, words: Words) -> str:
    return words("grows_even") if _even(result) else words("grows" if result.curve else "grows_queue", growth=digits(_growth(result)))


def _even(result: Result) -> bool:
    """As many come as can be answered: the queue grows without end, but not in proportion to time."""
    return _growth(result) < 5e-4


def _shows_growth(result: Result) -> bool:
    """Whether this run is long enough for its queue to be seen growing."""
    return result.overload and result.run.seen_growth >= _growth(result) / 2 > 0


def _slope(result: Result, words: Words) -> str:
    if not result.overload:
        return ""
    if _shows_growth(result):
        return words("slope" if result.curve else "slope_queue", growth=digits(result.run.seen_growth))
    return words("slope_hidden")


def _refused(result: Result, words: Words) -> dict[str, Any]:
    """What is said in place of latencies: that there are none, and how many more wait after a while."""
    later = (MINUTE, 10 * MINUTE, 60 * MINUTE)
    names = ("minute", "ten", "hour") if result.curve else ("sixty", "six_hundred", "thousands")
    if _even(result):
        return {"says": _grows(result, words), "later": []}
    return {"says": _grows(result, words), "later": [[words(f"later.{name}"), f"+{digits(_growth(result) * after)}"] for name, after in zip(names, later)]}


def _common(result: Result, words: Words) -> dict[str, Any]:
    """What both kinds of queue draw: how many are there, over time."""
    run, queue = result.run, result.run.queue
    inside = [n for n, at in enumerate(queue.at) if at <= queue.until]
    return {
        "overload": result.overload, "refused": _refused(result, words) if result.overload else None,
        "time": {
            "at": [queue.at[n] for n in inside], "waiting": [queue.waiting[n] for n in inside], "inside": [queue.in_system[n] for n in inside],
            "since": queue.since, "until": queue.until, "slots": run.slots, "slope": run.seen_growth if _shows_growth(result) else None, "slope_says": _slope(result, words),
            "little": "" if result.overload else _little(result, words),
        },
    }  # fmt: skip


def _little(result: Result, words: Words) -> str:
    it = result.run.little
    gap = f"{it.difference:.1g}" if abs(it.difference) >= 5e-7 * it.in_system else "0"
    return words("little" if result.curve else "little_queue", inside=digits(it.in_system), rate=digits(it.rate), seconds=digits(it.seconds), difference=gap.replace("-", "−"))


def _at(point: Percentile | None) -> list[float | None]:
    """[seconds, low, high] as a picture takes them."""
    return [point.seconds, point.low, point.high] if point else [None, None, None]


def _service(result: Result, before: Result | None, words: Words, lang: str) -> dict[str, Any]:
    p, run, curve = result.params, result.run, result.curve
    old = before.curve if before is not None and before.curve is not None and before.curve != curve else None
    return _common(result, words) | {
        "mode": "service", "field": "rate", "x": p.rate, "old": before.params.rate if before is not None and before.params.rate != p.rate else None,
        "capacity": curve.capacity, "top": 1.25 * curve.capacity,
        "upper": {
            "points": [[point.rate, point.good.requests_per_second, point.good.low * point.rate, point.good.high * point.rate] for point in curve.points],
            "mine": [run.good.requests_per_second, run.good.low * run.rate, run.good.high * run.rate] if run.good else None,
            "ghost": [[point.rate, point.good.requests_per_second] for point in old.points] if old else [],
        },
        "knee": [curve.knee, curve.at_knee.good.requests_per_second] if curve.knee else None,
        "lower": {
            "lines": [
                {"id": name, "points": [[point.rate, *_at(getattr(point.ttft, name))] for point in curve.points if getattr(point.ttft, name).seconds is not None],
                 "mine": _at(getattr(run.ttft, name)) if run.ttft else None}
                for name in ("p50", "p90", "p99")
            ],
            "target": p.ttft_target, "target_says": seconds(p.ttft_target),
        },
        "spread": [
            {"id": h.name, "edges": h.edges, "counts": h.counts, "target": h.target,
             "says": words("met_of" if result.live else "met", n=f"{h.n:,}", share=_percent(h.met), target=seconds(h.target)),
             "marks": [[name, *_at(getattr(getattr(run, h.name), name))] for name in ("p50", "p99")]}
            for h in result.spread
        ],
        "labels": {
            "x": words("picture.rate"), "upper": words("picture.goodput"), "lower": words("picture.ttft"),
            "handle": words("picture.handle", rate=f"{p.rate:g}", load=_percent(run.load, 2)),
            "capacity": words("picture.capacity", rate=digits(curve.capacity)), "knee": words("picture.knee", rate=digits(curve.knee)) if curve.knee else words("picture.no_knee"),
            "clock": words(f"picture.clock.{p.clock}", error=_percent(result.error.mean, 2) if result.error else ""),
        },
    }  # fmt: skip


def _queue(result: Result, before: Result | None, words: Words, lang: str) -> dict[str, Any]:
    """A queue with one server: number and time in it against the load, dots simulated and lines by formula."""
    p, run = result.params, result.run
    stays = [(t.load, t.run) for t in result.theory]
    exact = result.exact
    return _common(result, words) | {
        "mode": p.mode, "field": "rho", "x": p.rho, "old": before.params.rho if before is not None and before.params.rho != p.rho else None,
        "capacity": 1.0, "top": 1.25, "knee": None,
        "upper": {
            "points": [[rho, found.little.in_system, None, None] for rho, found in stays], "mine": None if result.overload else [run.little.in_system, None, None],
            "formula": [[c.rho, c.in_system] for c in result.closed], "ghost": [],
        },
        "lower": {
            "lines": [
                {"id": "mean", "points": [[rho, found.latency.mean, None, None] for rho, found in stays], "mine": [run.latency.mean, None, None] if run.latency else None,
                 "formula": [[c.rho, c.stay] for c in result.closed]},
                {"id": "p99", "points": [[rho, *_at(found.latency.p99)] for rho, found in stays], "mine": _at(run.latency.p99) if run.latency else None,
                 "formula": [[c.rho, c.p99] for c in result.closed]},
            ],
            "target": None,
        },
        "tail": None if result.overload else {
            "points": [[100 - share, *_at(getattr(run.latency, f"p{share}"))] for share in (50, 90, 95, 99)],
            "rate": 1 - p.rho if p.mode == "mm1" else None, "exact": [[1, exact.p99]], "says": words("tail.mm1" if p.mode == "mm1" else "tail.md1"),
        },
        "labels": {
            "x": words("picture.rho"), "upper": words("picture.number"), "lower": words("picture.stay"), "handle": words("picture.handle_rho", rho=f"{p.rho:g}"),
            "capacity": words("picture.full"), "knee": "", "clock": words("picture.formula"),
        },
    }  # fmt: skip


# ---- figures and words


def seconds(value: float) -> str:
    """A target as it was set: "50 ms", "1 s"."""
    return f"{value:g}\u00a0s" if value >= 1 else f"{value * 1e3:g}\u00a0ms"


def _percent(share: float, significant: int = 3) -> str:
    return amount(share, "ratio", significant=significant)


def _pair(low: Percentile, high: Percentile, lang: str) -> tuple[str, str]:
    """Median and p99 in one unit: ("45.2 | 612", "ms"); a dash for what was not seen often enough."""
    known = [point.seconds for point in (low, high) if point.seconds is not None]
    if not known:
        return "– | –", ""
    _, unit = short(max(known), "s", lang)
    scale = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}[unit]
    return " | ".join("–" if point.seconds is None else digits(point.seconds * scale) for point in (low, high)), unit


def _interval(point: Percentile, words: Words, lang: str) -> str:
    if point.seconds is None:
        return point.why_not[lang]
    if point.high is None:
        return words("interval.open", low=amount(point.low, "s", lang))
    return words("interval.closed", low=amount(point.low, "s", lang), high=amount(point.high, "s", lang))


def _readouts(result: Result, before: Result | None, words: Words, lang: str) -> tuple[Readout, ...]:
    run, old = result.run, before.run if before is not None else None
    rate = words("unit.rate" if result.curve else "unit.rate_queue")
    clock = words("note.clock", error=_percent(result.error.mean, 2)) if result.error else ""

    def note(*parts: str) -> str:
        return words("note.join").join(part for part in parts if part)

    def was(now: str, then: str | None, unit: str = "") -> str:
        return words("before", value=f"{then} {unit}".strip()) if then is not None and then != now else ""

    def one(id: str, value: str, then: str | None, unit: str, *notes: str) -> Readout:
        return Readout(words(f"readout.{id}"), value, unit, was(value, then, unit), note(*notes))

    most = one("capacity", digits(run.capacity.requests_per_second), old and digits(old.capacity.requests_per_second), rate, words("note.load", load=_percent(run.load, 2)), clock)
    if result.overload:
        now, then = _growth(result), _growth(before) if before is not None and before.overload else None
        return (
            one("growth", digits(now), then and digits(then), rate, words("note.growth", seen=digits(run.seen_growth))),
            one("most", f"{max(run.queue.in_system):,}", None, words("unit.requests"), words("note.most", n=f"{run.requests:,}")) if _even(result)
            else one("minute" if result.curve else "sixty", digits(now * MINUTE), then and digits(then * MINUTE), words("unit.requests"), words("note.minute")),
            *((most, _knee(result, before, rate, clock, words, lang)) if result.curve else (one("load", f"{result.params.rho:g}", None, ""),)),
        )
    if not result.curve:
        return _queue_readouts(result, words, lang)

    def pair(id: str, of: Run) -> tuple[str, str] | None:
        waits = getattr(of, id)
        return _pair(waits.p50, waits.p99, lang) if waits else None

    def latency(id: str) -> Readout:
        now, then = pair(id, run), old and pair(id, old)
        said = then and " ".join(then).strip()
        waits = getattr(run, id)
        if now is None:
            return Readout(words(f"readout.{id}"), "–", "", "", words("note.one_token"))
        off = result.first_error if id == "ttft" else result.error
        told = words("note.clock", error=_percent(off.mean, 2)) if off else ""
        return Readout(words(f"readout.{id}"), *now, was(" ".join(now).strip(), said), note(_interval(waits.p99, words, lang), told))

    good, then = run.good, old.good if old else None
    percent = lambda of: digits(100 * of.share)  # noqa: E731
    return (
        latency("ttft"), latency("tpot"),
        one("goodput", digits(good.requests_per_second), then and digits(then.requests_per_second), rate, words("note.of", rate=f"{run.rate:g}"), clock),
        one("share", percent(good), then and percent(then), "%", words("note.share", low=_percent(good.low), high=_percent(good.high))),
        _knee(result, before, rate, clock, words, lang),
    )  # fmt: skip


def _knee(result: Result, before: Result | None, rate: str, clock: str, words: Words, lang: str) -> Readout:
    curve, old = result.curve, before.curve if before is not None else None
    value, then = (digits(c.knee) if c.knee else "–" for c in (curve, old or curve))
    of = words("note.knee", load=_percent(curve.knee / curve.capacity, 2), capacity=digits(curve.capacity)) if curve.knee else words("note.no_knee", share=_percent(SHARE, 2))
    change = words("before", value=then) if then != value else ""
    return Readout(words("readout.knee"), value, rate if curve.knee else "", change, words("note.join").join(part for part in (of, clock) if part and curve.knee) or of)


def _queue_readouts(result: Result, words: Words, lang: str) -> tuple[Readout, ...]:
    run, exact = result.run, result.exact
    times = lambda value: digits(value)  # noqa: E731
    p99 = run.latency.p99
    services = words("unit.services")
    seen = words("interval.open" if p99.high is None else "interval.closed", low=times(p99.low), high=times(p99.high or 0))
    return (
        Readout(words("readout.stay"), times(run.latency.mean), services, "", words("note.formula", value=times(exact.stay))),
        Readout(words("readout.stay99"), times(p99.seconds), services, "", words("note.join").join((words("note.formula", value=times(exact.p99)), seen))),
        Readout(words("readout.inside"), times(run.little.in_system), "", "", words("note.formula", value=times(exact.in_system))),
        Readout(words("readout.load"), f"{result.params.rho:g}", "", "", words("note.idle", idle=_percent(1 - result.params.rho, 2))),
    )


def _sentence(result: Result, words: Words, lang: str) -> str:
    p, run, curve = result.params, result.run, result.curve
    show = lambda value: amount(value, "s", lang)  # noqa: E731
    if not curve:
        rho = f"{p.rho:g}"
        if result.overload:
            return words("says.overload", grows=_grows(result, words)) + words("says.full", rho=rho)
        exact = result.exact
        return words(f"says.{p.mode}", rho=rho, n=f"{run.requests:,}", mean=digits(run.latency.mean), stay=digits(exact.stay), seen=digits(run.latency.p99.seconds), p99=digits(exact.p99))
    if result.overload:
        said = words("says.overload", grows=_grows(result, words)) + words("says.beyond", rate=f"{run.rate:g}", capacity=digits(curve.capacity), waiting=digits(run.growth * MINUTE))
    else:
        good = run.good
        said = words(
            "says.steady", rate=f"{run.rate:g}", load=_percent(run.load, 2), policy=words(f"option.policy.{p.policy}"), share=_percent(good.share),
            ttft=seconds(p.ttft_target), tpot=seconds(p.tpot_target), good=digits(good.requests_per_second),
        )  # fmt: skip
        if run.ttft.p99.seconds is not None:
            said += words("says.waits", p50=show(run.ttft.p50.seconds), p99=show(run.ttft.p99.seconds))
    if curve.knee is None:
        return said + words("says.no_knee", least=_percent(SHARE, 2), lowest=digits(curve.points[0].rate))
    place = "within" if run.rate <= curve.knee else "past" if not result.overload else "below"
    said += words(f"says.knee.{place}", knee=digits(curve.knee), load=_percent(curve.knee / curve.capacity, 2), least=_percent(SHARE, 2))
    return said + (words("says.at_capacity") if curve.at_capacity else "")


def _simplified(result: Result, words: Words, lang: str) -> str:
    p, run = result.params, result.run
    if not result.curve:
        said = words("simplified.queue", n=f"{CUSTOMERS:,}")
        return said if result.overload or run.settled else said + words("simplified.short", needs=f"{run.needs:,}")
    said = words("simplified.waiting", shown=f"{run.requests:,}", asked=f"{result.asked:,}") if result.asked else ""
    said += words("simplified.service", n=f"{min(p.requests, FIRST):,}", rates=len(GRID)) + words(f"simplified.lengths.{'real' if p.workload == 'paragraphs' else 'ours'}")
    if result.error:
        e = result.error
        said += words("simplified.calibrated", mean=_percent(e.mean, 2), worst=f"{e.worst:+.0%}".replace("-", "−"), where=e.where[lang])
    else:
        said += words(f"simplified.{'unjudged' if p.clock == 'calibrated' else 'ideal'}")
    if result.live and result.spread:
        said += words("simplified.live", shown=f"{result.spread[0].n:,}", n=f"{run.requests:,}")
    return said if result.overload or run.settled else said + words("simplified.short", needs=f"{run.needs:,}")


# ---- rows and papers


def _waits(prefix: str, of: Any) -> dict[str, float | None]:
    return {f"{prefix}_{name}_seconds": getattr(of, name).seconds if of else None for name in ("p50", "p90", "p99")}


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    run, queue = result.run, result.run.queue
    if result.curve:
        found = [_row("rate", point) for point in result.curve.points] + ([_row("knee", result.curve.at_knee)] if result.curve.knee else []) + [_row("chosen", run)]
        found += [
            {"row": h.name, "from_seconds": low, "to_seconds": high, "requests": count} for h in result.spread for low, high, count in zip(h.edges, h.edges[1:], h.counts)
        ]  # fmt: skip
    else:
        exact = {round(c.rho, 9): c for c in (rates.closed(result.params.mode, rho) for rho in rates.LOADS)}
        found = [_theory_row("load", t.load, t.run, exact[round(t.load, 9)]) for t in result.theory] + [_theory_row("chosen", result.params.rho, run, result.exact)]
    found += [{"row": "time", "at_seconds": at, "waiting": waiting, "in_system": inside} for at, waiting, inside in zip(queue.at, queue.waiting, queue.in_system) if at <= queue.until]
    return tuple(found)


def _row(kind: str, at: Any) -> dict[str, Any]:
    good = at.good
    return {
        "row": kind, "requests_per_second": at.rate, "load": at.load, "verdict": at.verdict, "goodput_requests_per_second": good.requests_per_second if good else None,
        "good_share": good.share if good else None, "good_share_low95": good.low if good else None, "good_share_high95": good.high if good else None,
        "growth_requests_per_second": at.growth, **_waits("ttft", at.ttft), **_waits("tpot", at.tpot), **_waits("latency", at.latency),
    }  # fmt: skip


def _theory_row(kind: str, rho: float, at: Run, exact: Closed | None) -> dict[str, Any]:
    p99 = at.latency.p99 if at.latency else None
    return {
        "row": kind, "load": rho, "verdict": at.verdict, "in_system": at.little.in_system if exact else None, "stay_services": at.latency.mean if at.latency else None,
        "p99_services": p99 and p99.seconds, "p99_low95": p99 and p99.low, "p99_high95": p99 and p99.high, "growth_per_service": at.growth,
        "formula_in_system": exact and exact.in_system, "formula_stay_services": exact and exact.stay, "formula_p99_services": exact and exact.p99,
    }  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    p, run, e = result.params, result.run, result.error
    if not result.curve:
        return _queue_papers(result)
    given = {name: getattr(p, name) for name in ("model", "chip", "policy", "workload", "arrive", "slots", "precision", "clock", "seed")} | {"command": "python -m compute call serving.run"}
    given |= {"error": f"{e.mean:.1%}", "worst_error": f"{e.worst:+.0%}", "judged_on": dict(e.where)} if e else {}

    def computed(value: float, unit: str, formula: str, id: str, interval: tuple[float, float] | None = None, **inputs: Any) -> Quantity:
        return Quantity(value, unit, "computed", formula, inputs, None, given, interval, SAYS[id])

    found = [computed(run.capacity.requests_per_second, "request/s", "requests answered / seconds, while somebody always waits", "capacity", requests=run.capacity.requests)]
    if result.curve.knee:
        found.append(computed(result.curve.knee, "request/s", "largest λ at which the share that meets both targets is large enough", "knee", share=SHARE, ttft=p.ttft_target, tpot=p.tpot_target))
    if result.overload:
        return (*found, computed(run.growth, "request/s", "λ − capacity", "growth", rate=run.rate), computed(run.seen_growth, "request/s", "slope of the number in the system", "seen_growth", rate=run.rate))
    good = run.good
    found += [
        computed(good.share, "ratio", "requests with TTFT and TPOT within their targets / all", "share", (good.low, good.high), ttft=p.ttft_target, tpot=p.tpot_target, requests=run.requests),
        computed(good.requests_per_second, "request/s", "λ × share", "goodput", rate=run.rate, share=good.share),
    ]  # fmt: skip
    for id in ("ttft", "tpot"):
        for name in ("p50", "p99"):
            point = getattr(getattr(run, id), name) if getattr(run, id) else None
            if point and point.seconds is not None:
                interval = (point.low, point.high) if point.high is not None else None
                found.append(computed(point.seconds, "s", FORMULAS[id], f"{id}_{name}", interval, rate=run.rate, requests=point.n))
    return (*found, _little_paper(run))


def _little_paper(run: Run) -> Quantity:
    it = run.little
    return Quantity(it.in_system, "request", "computed", "L = λ × W", {"rate": it.rate, "seconds": it.seconds, "difference": it.difference}, says=SAYS["little"])


def _queue_papers(result: Result) -> tuple[Quantity, ...]:
    run, exact, p = result.run, result.exact, result.params
    simulated = {"kind": p.mode, "n": run.requests, "seed": p.seed}
    if result.overload:
        return (Quantity(run.seen_growth, "count", "computed", "slope of the number in the system, per service", {"rho": p.rho}, None, simulated, None, SAYS["seen_growth"]),)
    mean, p99 = ("1 / (1 − ρ)", "ln 100 / (1 − ρ)") if p.mode == "mm1" else ("1 + ρ / (2 (1 − ρ))", "1 + t with P(wait ≤ t) = 0.99 (Franx 2001)")
    interval = (run.latency.p99.low, run.latency.p99.high) if run.latency.p99.high is not None else None
    return (
        Quantity(exact.stay, "×", "computed", mean, {"rho": p.rho}, says=SAYS["stay"]),
        Quantity(exact.p99, "×", "computed", p99, {"rho": p.rho}, says=SAYS["stay99"]),
        Quantity(run.latency.mean, "×", "computed", "mean of the simulated times", {"rho": p.rho}, None, simulated, None, SAYS["seen_stay"]),
        Quantity(run.latency.p99.seconds, "×", "computed", "99th percentile of the simulated times", {"rho": p.rho}, None, simulated, interval, SAYS["seen_stay99"]),
        _little_paper(run),
    )


FORMULAS = {"ttft": "first token − arrival", "tpot": "(last token − first token) / (tokens − 1)"}
SAYS = {
    "capacity": {"zh": "容量：总有人等着时，每秒答完的请求", "en": "capacity: requests answered a second while somebody always waits"},
    "knee": {"zh": "拐点：还守得住目标的最大到达率", "en": "knee: the largest rate at which the targets are still met"},
    "growth": {"zh": "每秒多出来的请求", "en": "requests a second that come and do not leave"},
    "seen_growth": {"zh": "这一次运行里队列增长的斜率", "en": "slope of the queue in this run"},
    "share": {"zh": "两个目标都达到的请求", "en": "requests that meet both targets"},
    "goodput": {"zh": "goodput：每秒达标的请求", "en": "goodput: requests a second that meet both targets"},
    "ttft_p50": {"zh": "首 token 时间，中位数", "en": "time to the first token, median"},
    "ttft_p99": {"zh": "首 token 时间，p99", "en": "time to the first token, p99"},
    "tpot_p50": {"zh": "每 token 时间，中位数", "en": "time per token, median"},
    "tpot_p99": {"zh": "每 token 时间，p99", "en": "time per token, p99"},
    "little": {"zh": "平均同时在系统里的请求", "en": "requests in the system, on average"},
    "stay": {"zh": "平均逗留，公式，以服务时间计", "en": "mean time in the system by formula, in services"},
    "stay99": {"zh": "逗留的 p99，公式，以服务时间计", "en": "its 99th percentile by formula, in services"},
    "seen_stay": {"zh": "平均逗留，模拟", "en": "mean time in the system, simulated"},
    "seen_stay99": {"zh": "逗留的 p99，模拟", "en": "its 99th percentile, simulated"},
    "crowd": {"zh": "逗留的 p99 是平均服务时间的多少倍", "en": "99th percentile of the time in the system over the mean service"},
}

# ---- guesses

SERVICES = {"few": (0, 5), "some": (5, 20), "counter": (20, float("inf"))}  # choices, in services
OFFERED = ("2", "5", "10", "23")


def _crowd(result: Result) -> Quantity:
    """At ASKED_AT of the capacity, whatever rate is looked at; a queue with one server by its formula."""
    p = result.params
    if p.mode != "service":
        return rates.counter()
    value = rates.stay_in_services(setting(p, FIRST), ASKED_AT)
    return Quantity(value, "×", "computed", "p99 of the time in the system / mean time of a request alone", {"load": ASKED_AT, "requests": FIRST}, says=SAYS["crowd"])


def _crowd_right(result: Result) -> str:
    value = _crowd(result).value
    return next(id for id, (low, high) in SERVICES.items() if low <= value < high)


def _counter_right(result: Result) -> str:
    return min(OFFERED, key=lambda id: abs(int(id) - rates.counter().value))


# ---- controls


def serves(params: Params) -> bool:
    return params.mode == "service"


def queues(params: Params) -> bool:
    return params.mode != "service"


def _arguments(params: Params) -> dict[str, Any]:
    names = ("model", "chip", "policy", "rate", "requests", "workload", "slots", "budget", "precision", "clock", "ttft_target", "tpot_target", "seed", "arrive")
    return {name: getattr(params, name) for name in names}


WIDGET = Widget(
    id="load-lab",
    Params=Params,
    controls=(
        Stops("rate", RATES, lambda v: f"{v:g}", when=serves),
        Stops("rho", RHOS, lambda v: f"{v:g}", when=queues),
        Choice("policy", lambda: tuple(POLICIES), when=serves),
        Choice("workload", lambda: tuple(WORKLOADS), when=serves),
        Choice("mode", lambda: ("service", "mm1", "md1")),
        Stops("ttft_target", (0.1, 0.2, 0.45, 1.0, 2.0, 4.0, 10.0), seconds, when=serves),
        Stops("tpot_target", (0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.1, 0.2), seconds, when=serves),
        Stops("slots", (1, 8, 16, 32, 58, 64, 128, 256), when=serves),
        Stops("budget", (64, 128, 256, 512, 1024, 2048, 4096), when=lambda p: serves(p) and p.policy in HEED),
        Choice("arrive", lambda: tuple(kind for kind in KINDS if kind != "replay"), when=serves),
        Choice("model", lambda: MODELS, lambda id: facts.model(id).name, when=serves),
        Choice("chip", lambda: tuple(facts.chips()), lambda id: facts.chip(id).name, when=serves),
        Choice("precision", lambda: tuple(WEIGHT_BITS), str.upper, when=serves),
        Choice("clock", lambda: ("calibrated", "ideal"), when=serves),
        Stops("requests", (300, 1000, 3000, 10_000, 100_000), when=serves),
        Stops("seed", tuple(range(10))),
    ),
    run=run,
    draw=draw,
    guesses={
        "p99": Guess(truth=_crowd, choices=tuple(SERVICES), right=_crowd_right),
        "counter": Guess(truth=lambda result: rates.counter(), choices=OFFERED, right=_counter_right),
    },
    live=Live("serving.run", _arguments, when=lambda p: serves(p) and p.requests > HERE),
)
