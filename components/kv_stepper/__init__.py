"""Every step of a real generation, twice: without a cache every old token is computed again, with one only the new one."""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from statistics import median
from typing import Annotated, Any, Literal, Mapping

from pydantic import Field, StringConstraints

from components import Guess, Live, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Choice, Range, Stops, Text
from components.text import Words, digits
from compute import kv, precompute
from compute.measures.kv import SENTENCES
from compute.measures.models import MINIS
from compute.quantity import Quantity
from compute.service import client

PROMPTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 2000, 4000, 8000)
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


@parameters
class Params:
    """text, tokens, model: the sentence that is stepped through. prompt, new: the account for any length."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)] = SENTENCES["zh"]
    tokens: Annotated[int, Field(ge=1, le=64)] = 12
    model: Annotated[str, StringConstraints(min_length=1, max_length=80)] = "mini-256"
    prompt: Annotated[int, Field(ge=1, le=10_000)] = 4
    new: Annotated[int, Field(ge=1, le=10_000)] = 1000


@dataclass(frozen=True)
class Run:
    """A generation made both ways. Forward i sees the prompt and i new tokens; K/V computations are counted per forward."""

    model: str
    text: str
    prompt_pieces: tuple[str, ...]
    pieces: tuple[str, ...]  # one a forward
    without_cache: tuple[int, ...]
    with_cache: tuple[int, ...]
    largest_logit_difference: float
    largest_logit: float
    equal: bool  # the same tokens both ways
    compared: int  # tokens that the difference and the equality are about; a recording may be shown in part
    conditions: tuple[tuple[str, Any], ...]
    seconds_without: tuple[float, ...] = ()  # empty for a recording: timings belong to one machine
    seconds_with: tuple[float, ...] = ()


@dataclass(frozen=True)
class Result:
    run: Run
    account: kv.Computations  # for any length
    prompt: int
    new: int
    mark: Literal["live", "replay"]
    waiting: bool  # the learner's own sentence was not run yet; the run shown is the example


def run(params: Params, answer: Mapping[str, Any] | None = None) -> Result:
    account = kv.computations(params.prompt, params.new)
    if answer is not None:
        return Result(_answered(answer), account, params.prompt, params.new, "live", False)
    recording, own = _recording(params)
    return Result(recording, account, params.prompt, params.new, "replay", own)


def _recording(params: Params) -> tuple[Run, bool]:
    """The stored run of this sentence, or of the example in its language; and whether it is only the example."""
    for lang, text in SENTENCES.items():
        if (params.text, params.model) == (text, "mini-256"):
            return _stored(lang, params.tokens), False
    return _stored("zh" if any("\u4e00" <= c <= "\u9fff" for c in params.text) else "en", params.tokens), True


def _stored(lang: str, tokens: int) -> Run:
    kept = precompute.recorded(f"kv-stepper.{lang}.tokens")
    return Run(
        kept["model"], kept["text"], tuple(kept["prompt_pieces"]), tuple(kept["pieces"][:tokens]), tuple(kept["kv_without_cache"][:tokens]),
        tuple(kept["kv_with_cache"][:tokens]), kept["largest_logit_difference"], kept["largest_logit"], kept["equal"],
        len(kept["pieces"]), tuple(kept["conditions"].items()),
    )  # fmt: skip


def _answered(answer: Mapping[str, Any]) -> Run:
    plain, cached = answer["without_cache"], answer["with_cache"]
    return Run(
        answer["model"], answer["text"], tuple(answer["prompt_pieces"]), tuple(answer["pieces"]), tuple(plain["kv_computed"]),
        tuple(cached["kv_computed"]), answer["largest_logit_difference"], answer["largest_logit"], answer["equal"],
        len(answer["pieces"]), tuple(answer["conditions"].items()), tuple(plain["seconds"]), tuple(cached["seconds"]),
    )  # fmt: skip


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    words, r = scene.words, result.run
    return View(
        picture=Stage(_stage(result, scene), steps=len(r.pieces), height=520, start=len(r.pieces) - 1),
        readouts=_readouts(result, scene),
        sentence=_sentence(result, scene),
        rows=_rows(r),
        papers=_papers(result),
        simplified=words("simplified"),
        derivation=words(
            "derivation", prompt=f"{result.prompt:,}", new=f"{result.new:,}", last=f"{result.prompt + result.new - 1:,}",
            first=f"{result.new:,} × {result.prompt:,}", triangle=f"{result.new:,} × {result.new - 1:,} / 2",
            without=f"{result.account.without_cache:,}", with_cache=f"{result.account.with_cache:,}", times=digits(_times(result.account)),
        ),
    )  # fmt: skip


def _stage(result: Result, scene: Scene) -> dict[str, Any]:
    r, before = result.run, scene.before
    moved = before is not None and (before.prompt, before.new) != (result.prompt, result.new)
    milliseconds = {"without": [1e3 * s for s in r.seconds_without], "with": [1e3 * s for s in r.seconds_with]}
    return {
        "text": r.text, "prompt": r.prompt_pieces, "pieces": r.pieces, "without": r.without_cache, "with": r.with_cache,
        "account": {"prompt": result.prompt, "new": result.new, "without": result.account.without_cache, "with": result.account.with_cache},
        "ghost": {"prompt": before.prompt, "new": before.new} if moved else None,
        "milliseconds": milliseconds if r.seconds_with else None,
        "waiting": result.waiting,
    }  # fmt: skip


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, r, a, b = scene.words, result.run, result.account, scene.before
    times, unit = _times(a), words("unit.times")
    length = words("readout.length", prompt=f"{result.prompt:,}", new=f"{result.new:,}")

    def change(now: str, then: str) -> str:
        return words("readout.before", value=then) if b is not None and now != then else ""

    old = b.account if b is not None else a
    found = [
        Readout(words("readout.without"), f"{a.without_cache:,}", unit, change(f"{a.without_cache:,}", f"{old.without_cache:,}"), length),
        Readout(words("readout.with"), f"{a.with_cache:,}", unit, change(f"{a.with_cache:,}", f"{old.with_cache:,}"), length),
        Readout(words("readout.ratio"), digits(times), words("unit.ratio"), change(digits(times), digits(_times(old)))),
        Readout(words("readout.difference"), *_split(tiny(r.largest_logit_difference)), "", _agreement(r, words)),
    ]
    if r.seconds_with:
        plain, cached = (digits(1e3 * median(s), 2) for s in (r.seconds_without, r.seconds_with))
        found.append(Readout(words("readout.milliseconds"), f"{plain} → {cached}", "ms", "", words("readout.milliseconds_note", n=len(r.pieces))))
    return tuple(found)


def _agreement(r: Run, words: Words) -> str:
    return words("readout.same" if r.equal else "readout.other", n=r.compared, largest=digits(r.largest_logit))


def _sentence(result: Result, scene: Scene) -> str:
    words, r, a = scene.words, result.run, result.account
    plain, cached = sum(r.without_cache), sum(r.with_cache)
    said = words(
        "sentence", text=r.text, n=len(r.pieces), made=_shown("".join(r.pieces)), without=f"{plain:,}", with_cache=f"{cached:,}", times=digits(plain / cached),
        prompt=f"{result.prompt:,}", new=f"{result.new:,}", far_without=f"{a.without_cache:,}", far_with=f"{a.with_cache:,}", far_times=digits(_times(a)),
    )  # fmt: skip
    said += words("sentence_same" if r.equal else "sentence_other", difference=tiny(r.largest_logit_difference))
    if not r.seconds_with:
        return said
    slow, quick = median(r.seconds_without), median(r.seconds_with)
    key = "sentence_time" if slow / quick > plain / cached / 2 else "sentence_time_short"
    return said + words(key, slow=digits(1e3 * slow, 2), quick=digits(1e3 * quick, 2))


def _shown(text: str) -> str:
    """On one line, and without the marks of broken characters at a cut."""
    return " ".join(text.split())


def _rows(r: Run) -> tuple[dict[str, Any], ...]:
    seconds = zip(r.seconds_without, r.seconds_with) if r.seconds_with else [(None, None)] * len(r.pieces)
    return tuple(
        {"step": i + 1, "token": piece, "positions_seen": len(r.prompt_pieces) + i, "kv_computed_without_cache": a, "kv_computed_with_cache": b,
         "seconds_without_cache": s, "seconds_with_cache": c}
        for i, (piece, a, b, (s, c)) in enumerate(zip(r.pieces, r.without_cache, r.with_cache, seconds))
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    r, a = result.run, result.account
    inputs, around = {"prompt": result.prompt, "new": result.new}, dict(r.conditions) | {"text": r.text, "new": r.compared, "decoding": "greedy"}
    found = [
        Quantity(a.without_cache, "count", "computed", "Σ (prompt + i), i = 0 … new − 1", inputs, says=SAYS["without"]),
        Quantity(a.with_cache, "count", "computed", "prompt + new − 1", inputs, says=SAYS["with"]),
        Quantity(tiny(r.largest_logit_difference), "logit", "measured", "max |logit with − logit without|, vocabulary × steps", {}, None, around, says=SAYS["difference"]),
    ]
    for name, seconds in (("ms_without", r.seconds_without), ("ms_with", r.seconds_with)):
        if seconds:
            spread = {"n": len(seconds), "fastest": f"{1e3 * min(seconds):.3g} ms", "slowest": f"{1e3 * max(seconds):.3g} ms"}
            found.append(Quantity(median(seconds), "s", "measured", "median over the steps", {}, None, around | spread, says=SAYS[name]))
    return tuple(found)


SAYS = {
    "without": {"zh": "不用缓存，K/V 计算次数", "en": "K/V computations without a cache"},
    "with": {"zh": "用缓存，K/V 计算次数", "en": "K/V computations with a cache"},
    "difference": {"zh": "两种算法 logits 的最大差", "en": "largest difference of the logits"},
    "ms_without": {"zh": "不用缓存，一步的时间", "en": "one step without a cache"},
    "ms_with": {"zh": "用缓存，一步的时间", "en": "one step with a cache"},
}


def _times(c: kv.Computations) -> float:
    return c.without_cache / c.with_cache


SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def tiny(value: float) -> str:
    """2.4×10⁻⁶: these differences are rounding, and zeros would hide their size."""
    if value == 0 or value >= 0.01:
        return digits(value)
    number, power = f"{value:.1e}".split("e")
    return f"{number}×10{str(int(power)).translate(SUPERSCRIPT)}"


def _split(number: str) -> tuple[str, str]:
    """The power of ten goes where the unit stands, in the text face."""
    digits_, times, power = number.partition("×")
    return digits_, times + power


# ---- controls, guess, live


def _models() -> tuple[str, ...]:
    """Ours, and what the operator's service knows besides."""
    return tuple(dict.fromkeys((*MINIS, *client.status().models_known)))


TIMES = {"2": 2, "20": 20, "500": 500, "250000": 250_000}


def _nearest(result: Result) -> str:
    ratio = _times(result.account)
    return min(TIMES, key=lambda id: abs(log10(TIMES[id] / ratio)))


def _truth(result: Result) -> Quantity:
    return Quantity(_times(result.account), "×", "computed", "Σ (prompt + i) / (prompt + new − 1)", {"prompt": result.prompt, "new": result.new})


WIDGET = Widget(
    id="kv-stepper",
    Params=Params,
    controls=(
        Text("text", 200), Range("tokens", 1, 64), Stops("prompt", PROMPTS), Stops("new", LENGTHS), Choice("model", _models, name=lambda id: id),
    ),
    run=run,
    draw=draw,
    guesses={"times": Guess(truth=_truth, choices=tuple(TIMES), right=_nearest)},
    live=Live("kv.compare", lambda p: {"model": p.model, "text": p.text, "new": p.tokens}),
    presets={"en": {"text": SENTENCES["en"]}},
)  # fmt: skip
