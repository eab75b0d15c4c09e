"""Words and numbers as a reader sees them. Options are ids; words are looked up here."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from math import floor, isfinite, log10
from pathlib import Path
from typing import Any

from compute.errors import BrokenData, UnknownName
from compute.quantity import Quantity, Source

LANGUAGES = ("zh", "en")
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Words:
    """One language's words of a text.toml: words("control.batch"), words("says.memory", bytes="51.2 GB")."""

    path: str
    lang: str
    table: Mapping[str, str]

    def __call__(self, key: str, **values: Any) -> str:
        if key not in self.table:
            raise UnknownName("word", "词条", f"{self.path}: {key}", sorted(self.table)[:8])
        return self.table[key].format(**values) if values else self.table[key]

    def get(self, key: str, default: str = "") -> str:
        return self.table.get(key, default)

    def __hash__(self):
        return hash((self.path, self.lang))


@cache
def load_words(path: Path, lang: str) -> Words:
    """text.toml has a table [zh] and a table [en] with the same keys; nested tables become dotted keys. Raises BrokenData."""
    return Words(f"{path.parent.name}/{path.name}", lang, dict(_flat(_read(path, {lang: dict})[lang])))


def _read(path: Path, needed: Mapping[str, type]) -> dict[str, Any]:
    """Raises BrokenData where the file cannot be read, is no TOML or lacks something at its top."""
    name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as wrong:
        raise BrokenData(name, str(wrong.strerror)) from None
    except ValueError as wrong:  # no TOML, or no UTF-8
        raise BrokenData(name, str(wrong)) from None
    if lacking := [key for key, kind in needed.items() if not isinstance(data.get(key), kind)]:
        raise BrokenData(name, f"it lacks {', '.join(lacking)}", f"缺少 {'、'.join(lacking)}")
    return data


def _flat(table: Mapping[str, Any], prefix: str = ""):
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


HAN = "[\u4e00-\u9fff](?:[\u4e00-\u9fff，。！？、：；“”《》…]*[\u4e00-\u9fff])?"


def foreign(markup: str, lang: str) -> str:
    """Chinese words in an English text, marked as Chinese for those who have it read to them."""
    return markup if lang == "zh" else re.sub(HAN, lambda found: f'<span lang="zh-CN">{found[0]}</span>', markup)


GIVEN = {"zh": dict, "en": dict, "said": dict, "formula": dict, "verbatim": list}


@cache
def _given() -> Mapping[str, Mapping[str, str]]:
    return _read(Path(__file__).parent / "given.toml", GIVEN)


def given(name: str, lang: str) -> str:
    """The name of an input or a condition, in words where there are any."""
    return _given()[lang].get(name, name.replace("_", " ") if lang == "en" else name)


def condition(name: str, value: Any, lang: str) -> tuple[str, str]:
    """The name and the value of an input or a condition."""
    return given(name, lang), said(value, lang, name in _given()["verbatim"])


def said(value: Any, lang: str, verbatim: bool = False) -> str:
    """The value of an input or a condition, or a note of a source. verbatim: text stays in its own language."""
    match value:
        case Quantity():
            return quantity(value, "", lang)
        case {"zh": _, "en": _}:
            return str(value[lang])
        case Mapping():
            return ", ".join(" ".join(condition(name, each, lang)) for name, each in value.items())
        case bool():
            return {"zh": ("否", "是"), "en": ("no", "yes")}[lang][value]
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.6g}"
        case list() | tuple():
            return ", ".join(said(each, lang, verbatim) for each in value)
    text = str(value)
    return text if verbatim or lang == "en" else _given()["said"].get(text) or SO_MANY_OF.sub(r"\2 个里的 \1 个", text)


SO_MANY_OF = re.compile(r"^([\d,]+) of ([\d,]+)$")
FULL_WIDTH = {",": "，", ";": "；", ":": "："}
OPERATORS = re.compile(r"( [/×+−=≠≤≥<·∝→…] |[,;:] | ?[()⌊⌋⌈⌉|√‖](?: (?=[A-Za-z]))?|(?<=[Σ½]) )")


@lru_cache(maxsize=1024)
def formula(line: str, lang: str) -> str:
    """A number's arithmetic; in Chinese the whole line where there is one, otherwise term by term between the operators."""
    terms = _given()["formula"]
    if lang == "en" or line in terms:
        return line if lang == "en" else terms[line]
    *pieces, last = OPERATORS.split(line)
    text = "".join(terms.get(piece) or given(piece, lang) for piece in (*pieces, last))
    text = re.sub(r"(?<=[^\WΣ]) \(([^()+−×=/]+)\)", r"（\1）", text)  # a remark, as a factor comes behind an operator
    return re.sub("(?<=[\u4e00-\u9fff）])[,;:] |[,;:] (?=[\u4e00-\u9fff])", lambda found: FULL_WIDTH[found[0][0]], text)


# ---- numbers: SI inside, prefixes only here

DECIMAL = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))
SMALL = (("", 1.0), ("m", 1e-3), ("µ", 1e-6), ("n", 1e-9))
BINARY = (("", 1.0), ("Ki", 2.0**10), ("Mi", 2.0**20), ("Gi", 2.0**30), ("Ti", 2.0**40))
SCALED = ("B", "B/s", "FLOP", "FLOP/s", "FLOP/B", "parameter")
COUNTED = {  # units that are words
    "request": ("个请求", "request", "requests"),
    "token": ("个 token", "token", "tokens"),
    "character/s": ("字符/s", "character/s", "characters/s"),
    "token/forward": ("个 token", "token", "tokens"),
    "prompt": ("个提示", "prompt", "prompts"),
    "layer": ("层", "layer", "layers"),
    "cell": ("格", "cell", "cells"),
    "head": ("个头", "head", "heads"),
    "card": ("张卡", "card", "cards"),
    "core": ("核", "core", "cores"),
    "learner": ("人", "learner", "learners"),
    "parameter": ("个参数", "parameter", "parameters"),
    "count": ("", "", ""),
    "step": ("步", "step", "steps"),
    "bit": ("位", "bit", "bits"),
    "bit/weight": ("位", "bit", "bits"),
    "ratio": ("", "", ""),
    "×": ("", "", ""),
}


def digits(value: float, significant: int = 3) -> str:
    """Three significant digits, thousands with commas, no exponent: 65.4, 2,304, 0.00271."""
    if value == 0 or not isfinite(value):
        return "0" if value == 0 else ("∞" if value > 0 else "−∞")
    whole = floor(log10(abs(value))) + 1
    text = f"{value:,.0f}" if whole >= significant else f"{value:,.{significant - whole}f}"
    return text.replace("-", "−")


def short(value: float, unit: str, lang: str = "zh", significant: int = 3) -> tuple[str, str]:
    """A value and its unit with the prefix that suits it: (65.4, "token/s"), (51.2, "GB"), (15.5, "ms")."""
    if unit == "s" and 0 < abs(value) < 1:
        return _scaled(value, "s", SMALL, significant)
    if unit == "parameter":
        for name, factor in ((("B", 1e9), ("M", 1e6)) if lang == "en" else (("B", 1e9), ("M", 1e6))):
            if abs(value) >= factor:
                return digits(value / factor, significant), name
    if unit in SCALED and unit != "FLOP/B" and abs(value) >= 1000:
        return _scaled(value, unit, DECIMAL, significant)
    if unit == "ratio":
        return digits(value * 100, significant), "%"
    if unit == "×":
        return "×" + digits(value, significant), ""
    return _counted(value, unit, lang, significant)


def _counted(value: float, unit: str, lang: str, significant: int) -> tuple[str, str]:
    number = f"{value:,}" if isinstance(value, int) else digits(value, significant)
    if unit in COUNTED:
        zh, one, many = COUNTED[unit]
        return number, zh if lang == "zh" else (one if value == 1 else many)
    return number, unit


def _scaled(value: float, unit: str, prefixes, significant: int) -> tuple[str, str]:
    ladder = sorted(prefixes, key=lambda p: p[1])
    name, factor = next(((n, f) for n, f in reversed(ladder) if abs(value) >= f), ladder[0])
    text = digits(value / factor, significant)
    if text in ("1,000", "−1,000"):  # 999.7 MB rounds up to the next prefix
        bigger = [(n, f) for n, f in ladder if f > factor]
        if bigger:
            name, factor = bigger[0]
            text = digits(value / factor, significant)
    return text, name + unit


def amount(value: float, unit: str, lang: str = "zh", significant: int = 3) -> str:
    """"51.2 GB", "65.4 token/s", "×3.17", "0.339%" """
    return _join(*short(value, unit, lang, significant))


def _join(number: str, unit: str) -> str:
    return f"{number}{unit}" if unit in ("", "%") else f"{number} {unit}"


def ending(text: str, longest: int = 40) -> str:
    """The last characters of a text that a sentence names."""
    return text if len(text) <= longest else "…" + text[-longest:]


def quantity(q: Quantity, unit: str = "", lang: str = "zh") -> str:
    """A Quantity as prose prints it. `unit` asks for a display unit ("TB/s", "ms", "KiB", "%", "tok/s"), optionally with
    a number of significant digits: "ms 4"."""
    wanted, _, count = unit.partition(" ")
    if wanted.isdigit():
        wanted, count = "", wanted
    significant = int(count) if count else 3
    if isinstance(q.value, str):
        return q.value
    if isinstance(q.value, (tuple, list)):
        low, high = q.value
        first = quantity(Quantity(low, q.unit, "quoted", source=q.source or _NOWHERE), unit, lang)
        last = quantity(Quantity(high, q.unit, "quoted", source=q.source or _NOWHERE), unit, lang)
        return f"{first}–{last}"
    if not wanted:
        return amount(q.value, q.unit, lang, significant)
    factor = display_factor(wanted, q.unit)
    if wanted == "×":
        return "×" + digits(q.value, significant)
    value = q.value / factor
    if wanted == q.unit and wanted in COUNTED:  # a word, which has a plural
        return _join(*_counted(q.value, wanted, lang, significant))
    number = f"{value:,}" if isinstance(value, int) else digits(value, significant)
    return _join(number, wanted.replace("tok/s", "token/s"))


_NOWHERE = Source("")


def display_factor(wanted: str, unit: str) -> float:
    if wanted == "%" and unit == "ratio":
        return 0.01
    if wanted == "h" and unit == "s":
        return 3600
    for prefixes in (DECIMAL, BINARY, SMALL):
        for prefix, factor in prefixes:
            if wanted == prefix + unit or (wanted == prefix + "tok/s" and unit == "token/s"):
                return factor
    raise ValueError(f"a number in {unit!r} cannot be shown in {wanted!r}")
