"""The learner's text under several real tokenizers: how each cuts it, and how many characters a second the same tokens per second
write."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from components import Guess, Readout, Scene, Stage, View, Widget, parameters
from components.controls import Stops, Text, Toggle
from components.text import Words, amount, digits
from compute import numbers, tokenization
from compute.quantity import Quantity
from compute.tokenization import LONGEST, Comparison, Split, Token

TEXTS = {
    "zh": "小明把苹果给了小王，推理服务把这句话切成 token，再一个一个地写下去。",
    "en": "The server cuts a sentence into tokens, then writes them one by one: 小明把苹果给了小王。",
}
QUOTED = 80  # characters of the text in the sentence
LONGEST_PIECE = 18  # characters of a token that are drawn
DRAWN = 260  # groups of a text that go to the browser, which draws as many as have room
OURS = "mini-256"
ALONE = numbers.resolve(tokenization.SPEED)
SHARED = numbers.resolve("=anchor.batch58.step_seconds")
SPEEDS = (10.0, 20.0, 1 / SHARED.value, ALONE.value, 100.0, 200.0, 500.0)


@parameters
class Params:
    """speed: tokens per second, alike for all. ids: show each token's number."""

    text: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST)] = TEXTS["zh"]
    speed: Annotated[float, Field(gt=0, le=100_000)] = ALONE.value
    ids: bool = False


@dataclass(frozen=True)
class Result:
    params: Params
    said: Comparison

    @property
    def fair(self) -> tuple[Split, ...]:
        """Those that write the whole text, the fewest tokens first."""
        return tuple(sorted((s for s in self.said.splits if s.lossless), key=lambda s: s.count))

    @property
    def best(self) -> Split:
        return self.fair[0]

    @property
    def worst(self) -> Split:
        return self.fair[-1]

    def less(self, s: Split) -> float:
        """Share of the characters per second that is missing against the best."""
        return 1 - s.characters_per_second / self.best.characters_per_second


def run(params: Params, answer: None = None) -> Result:
    return Result(params, tokenization.compare(params.text, tokens_per_second=params.speed))


# ---- drawing


def draw(result: Result, scene: Scene) -> View:
    sentence = _sentence(result, scene.words, scene.lang)
    return View(
        picture=Stage(_stage(result, scene, sentence), height=640),
        readouts=_readouts(result, scene),
        sentence=sentence,
        rows=_rows(result),
        papers=_papers(result),
        simplified=scene.words("simplified"),
        derivation=_derivation(result, scene.words),
    )


@lru_cache(maxsize=16_384)
def visible(data: bytes | str) -> str:
    """On one line, with blanks to be seen; bytes of no character as ⟨E8 8B⟩; what would draw nothing, or turn the line around, by
    its code."""
    text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")  # which makes half a surrogate pair of such a byte
    runs = (("".join(run), stray) for stray, run in groupby(text, lambda c: "\udc80" <= c <= "\udcff"))
    return "".join(f"⟨{run.encode('utf-8', 'surrogateescape').hex(' ').upper()}⟩" if stray else "".join(map(_visible, run)) for run, stray in runs)


def _visible(c: str) -> str:
    if c in " \n":
        return "␣" if c == " " else "⏎"
    kind = unicodedata.category(c)
    if kind[0] in "CZ":
        return f"⟨U+{ord(c):04X}⟩"
    return "◌" + c if kind[0] == "M" else c  # a mark that stands on the letter before it


def _piece(token: Token) -> str:
    return visible(bytes.fromhex(token.bytes))


def name(id: str, words: Words) -> str:
    return words(f"name.{id}")


def _speed(result: Result) -> str:
    return f"{digits(result.said.tokens_per_second)} token/s"


def _stage(result: Result, scene: Scene, sentence: str) -> dict[str, Any]:
    words, lang = scene.words, scene.lang
    before = {s.id: s.characters_per_second for s in scene.before.said.splits} if scene.before is not None else {}
    return {
        "rows": [
            {
                "name": name(s.id, words), "vocabulary": words("ours" if s.id == OURS else "vocabulary", n=f"{tokenization.known()[s.id].vocabulary:,}"), "count": s.count,
                "counted": words("counted", tokens=amount(s.count, "token", lang), each=digits(s.characters_per_token)),
                "speed": s.characters_per_second, "says": digits(s.characters_per_second), "unit": words("unit.speed"),
                "less": _less(result, s, words, lang), "best": s is result.best, "ghost": _ghost(before.get(s.id), s.characters_per_second),
                "groups": _groups(s), "note": _note(s, words), "lossless": s.lossless,
            }
            for s in result.said.splits
        ],
        "missing": [{"name": name(m.id, words), "why": m.why[lang]} for m in result.said.missing],
        "ids": result.params.ids, "at": words("at", speed=_speed(result)), "says": sentence,
    }  # fmt: skip


def _ghost(old: float | None, new: float) -> float | None:
    return old if old is not None and abs(old - new) > 1e-9 * new else None


def _less(result: Result, s: Split, words: Words, lang: str) -> str:
    if not s.lossless:
        return ""
    return words("less", share=amount(result.less(s), "ratio", lang)) if s.count > result.best.count else words("most" if sum(each.count == result.best.count for each in result.fair) == 1 else "tied")


def _groups(s: Split) -> list[list[Any]]:
    """[the characters, [[what it looks like, id, bytes], …]] for each run of tokens that makes whole characters."""
    runs = [list(tokens) for _, tokens in groupby(s.tokens, key=lambda token: token.group)]
    return [[_short(visible(s.groups[run[0].group])), [[_short(_piece(t)), t.id, t.bytes] for t in run]] for run in runs[:DRAWN]]


def _short(text: str) -> str:
    """As much of a token as has room on a phone: Qwen has some of eighty blanks."""
    return text if len(text) <= LONGEST_PIECE else f"{text[: LONGEST_PIECE - 6]}…{text[-5:]}"


def _note(s: Split, words: Words) -> str:
    if not s.lossless:
        return words("note.lossy")
    return words("note.normalized") if s.normalized is not None else ""


def _readouts(result: Result, scene: Scene) -> tuple[Readout, ...]:
    words, lang, said = scene.words, scene.lang, result.said
    old = scene.before

    def figures(r: Result) -> tuple[str, str, str, str]:
        return f"{r.said.characters:,}", f"{r.best.count:,}", f"{r.worst.count:,}", " | ".join(digits(s.characters_per_second) for s in (r.best, r.worst))

    def was(n: int) -> str:
        return words("before", value=figures(old)[n]) if old is not None and figures(old)[n] != figures(result)[n] else ""

    characters, few, many, pair = figures(result)
    return (
        Readout(words("readout.characters"), characters, words("unit.characters"), was(0), words("bytes", n=f"{said.utf8_bytes:,}")),
        Readout(words("readout.fewest"), few, amount(result.best.count, "token", lang).split(" ", 1)[1], was(1), _names(result, result.best, words)),
        Readout(words("readout.most"), many, amount(result.worst.count, "token", lang).split(" ", 1)[1], was(2), _names(result, result.worst, words)),
        Readout(words("readout.speed"), pair, words("unit.speed"), was(3), words("at", speed=_speed(result))),
    )  # fmt: skip


def _names(result: Result, like: Split, words: Words) -> str:
    """All that need as many tokens."""
    return words("joint").join(name(s.id, words) for s in result.fair if s.count == like.count)


def _opening(text: str) -> str:
    """The beginning of the text, as a sentence quotes it."""
    quoted = visible(text).replace("␣", " ").replace("”", "’")
    return quoted if len(quoted) <= QUOTED else quoted[:QUOTED] + "…"


def _sentence(result: Result, words: Words, lang: str) -> str:
    best, worst, quoted = result.best, result.worst, _opening(result.said.text)
    counts = words("joint").join(words("count", name=name(s.id, words), n=f"{s.count:,}") for s in result.said.splits)
    said = words("sentence.counts", text=quoted, n=f"{result.said.characters:,}", counts=counts)
    if best.count == worst.count:
        return said + words("sentence.same", tokens=amount(best.count, "token", lang), speed=_speed(result), characters=digits(best.characters_per_second))
    said += words(
        "sentence.less", worst=name(worst.id, words), best=name(best.id, words), most=amount(worst.count, "token", lang), fewest=amount(best.count, "token", lang),
        speed=_speed(result), less=amount(result.less(worst), "ratio", lang), slow=digits(worst.characters_per_second), fast=digits(best.characters_per_second),
    )  # fmt: skip
    new, old = (next((s for s in result.fair if s.id == id), None) for id in ("qwen3.6", "qwen2.5"))
    if new and old and new.count < old.count and old is not worst:
        said += words("sentence.older", old=name(old.id, words), new=name(new.id, words), less=amount(1 - new.count / old.count, "ratio", lang))
    return said


def _derivation(result: Result, words: Words) -> str:
    characters, speed = result.said.characters, digits(result.said.tokens_per_second)
    lines = (f"{words('colon', name=name(s.id, words))}$\\dfrac{{{characters}}}{{{s.count}}} \\times {speed} = {digits(s.characters_per_second)}$" for s in result.fair)
    return words("derivation") + "".join(f"\n\n{line}" for line in lines)


def _rows(result: Result) -> tuple[dict[str, Any], ...]:
    """A row for each token, with what its tokenizer makes of the whole text."""
    return tuple(
        {
            "tokenizer": s.id, "vocabulary": tokenization.known()[s.id].vocabulary, "tokens": s.count, "characters": result.said.characters, "characters_per_token": s.characters_per_token,
            "tokens_per_second": result.said.tokens_per_second, "characters_per_second": s.characters_per_second,
            "position": n, "id": t.id, "piece": _piece(t), "utf8_bytes": t.bytes, "of": visible(s.groups[t.group]),
        }
        for s in result.said.splits for n, t in enumerate(s.tokens)
    )  # fmt: skip


def _papers(result: Result) -> tuple[Quantity, ...]:
    said, speed = result.said, result.said.tokens_per_second
    found = [
        Quantity(result.best.characters_per_second, "character/s", "computed", "token/s × characters / tokens", {"token/s": speed, "characters": said.characters, "tokens": result.best.count},
                 says={"zh": f"{tokenization.known()[result.best.id].name} 每秒写的字符", "en": f"characters per second of {tokenization.known()[result.best.id].name}"}),
    ]  # fmt: skip
    for s in said.splits:
        about = tokenization.known()[s.id]
        given = {"text": f"{about.base:,}", "marks": f"{about.added:,}", "licence": about.licence, "read_from": about.read_from, "note": dict(about.note)}
        found += [
            Quantity(s.count, "token", "computed", "len(encode(text))", {"characters": said.characters, "ids": " ".join(str(t.id) for t in s.tokens[:12]) + (" …" if s.count > 12 else "")},
                     says={"zh": f"{about.name} 的 token 数", "en": f"tokens of {about.name}"}),
            Quantity(about.vocabulary, "token", "computed", "tokens of text + special marks", given, about.source, says={"zh": f"{about.name} 的词表", "en": f"vocabulary of {about.name}"}),
        ]  # fmt: skip
    if speed == ALONE.value:
        found.append(ALONE)
    elif speed == 1 / SHARED.value:
        found.append(Quantity(speed, "token/s", "computed", "1 / step at batch 58", {"step_seconds": SHARED.value, **SHARED.inputs}, says={"zh": "batch 58 时每个读者的速度", "en": "speed of each reader at batch 58"}))
    return tuple(found)


# ---- guess

TIE = "tie"


def _fastest(result: Result) -> str:
    return TIE if result.fair[1].count == result.best.count else result.best.id


def _fastest_speed(result: Result) -> Quantity:
    return Quantity(result.best.characters_per_second, "character/s", "computed", "token/s × characters / tokens", {"tokens": result.best.count, "characters": result.said.characters})


WIDGET = Widget(
    id="tokenizers",
    Params=Params,
    controls=(Text("text", LONGEST), Stops("speed", SPEEDS, lambda v: f"{digits(v)} token/s"), Toggle("ids")),
    run=run,
    draw=draw,
    guesses={"writes": Guess(truth=_fastest_speed, choices=(*tokenization.LOADERS, TIE), right=_fastest)},
    presets={"en": {"text": TEXTS["en"]}},
)
