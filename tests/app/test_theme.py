"""Colours: contrast and colour-blindness computed from the standards' formulas, not read off a picture."""

from __future__ import annotations

import itertools
import math
import re
import tomllib

import pytest

from components import theme

# Machado, Oliveira and Fernandes (2009), severity 1.0, on linear RGB
BLINDNESS = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}


def linear(hexa: str) -> list[float]:
    channels = [int(hexa[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def contrast(a: str, b: str) -> float:
    """WCAG 2.2 contrast ratio."""
    first, second = (0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(a), linear(b)))
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


def oklab(rgb: list[float]) -> tuple[float, float, float]:
    r, g, b = (max(0.0, c) for c in rgb)
    l, m, s = ((0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3),
               (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3),
               (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3))
    return (0.2104542553 * l + 0.7936177850 * m - 0.0040720468 * s, 1.9779984951 * l - 2.4285922050 * m + 0.4505937099 * s,
            0.0259040371 * l + 0.7827717662 * m - 0.8086757660 * s)


def seen_by(hexa: str, blindness: str | None) -> tuple[float, float, float]:
    rgb = linear(hexa)
    return oklab(rgb if blindness is None else [sum(k * c for k, c in zip(row, rgb)) for row in BLINDNESS[blindness]])


def test_contrast_formula_agrees_with_the_standard():
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#767676", "#FFFFFF") == pytest.approx(4.54, abs=0.01)  # the well-known lightest AA grey


@pytest.mark.parametrize("look", theme.THEMES)
@pytest.mark.parametrize("name", [*(n for n in theme.CONCEPTS if n not in ("reserved", "free")), "ink", "muted", "accent"])
def test_what_carries_meaning_is_readable_on_paper_and_panel(name, look):
    for ground in ("paper", "panel"):
        ratio = contrast(theme.colour(name, look), theme.colour(ground, look))
        assert ratio >= 4.5, f"{name} on {ground}, {look}: {ratio:.2f}"


@pytest.mark.parametrize("look", theme.THEMES)
@pytest.mark.parametrize("ground,names", [("accent", ("on-accent",)), ("accent-soft", ("ink", "muted", "accent", "accepted", "rejected", "bound")),
                                          ("free", ("ink", "muted")), ("reserved", ("ink",))])  # fmt: skip
def test_text_on_other_grounds_is_readable(look, ground, names):
    """Catches: a chosen row, a pressed button or a cell of memory in which the words are too pale for their ground."""
    for name in names:
        ratio = contrast(theme.colour(name, look), theme.colour(ground, look))
        assert ratio >= 4.5, f"{name} on {ground}, {look}: {ratio:.2f}"


@pytest.mark.parametrize("look", theme.THEMES)
def test_the_ring_of_the_focus_stands_out(look):
    """WCAG 1.4.11 asks for 3 : 1 against what is around."""
    for ground in ("paper", "panel", "accent-soft"):
        assert contrast(theme.colour("accent", look), theme.colour(ground, look)) >= 3


@pytest.mark.parametrize("blindness", [None, *BLINDNESS])
@pytest.mark.parametrize("look", theme.THEMES)
@pytest.mark.parametrize("group", theme.TOGETHER)
def test_what_is_drawn_together_stays_apart_or_has_another_cue(group, look, blindness):
    for a, b in itertools.combinations(group, 2):
        apart = math.dist(seen_by(theme.colour(a, look), blindness), seen_by(theme.colour(b, look), blindness))
        assert apart > 0.05, f"{a} and {b} look alike ({blindness}, {look}): {apart:.3f}"
        assert theme.CONCEPTS[a].cue != theme.CONCEPTS[b].cue, f"{a} and {b} share the cue {theme.CONCEPTS[a].cue!r}"


def test_streamlit_is_told_the_same_colours(root):
    told = tomllib.loads((root / ".streamlit/config.toml").read_text())["theme"]
    for look, wanted in theme.streamlit_theme().items():
        for key, value in wanted.items():
            assert told[look][key] == value, f"[theme.{look}] {key}"


def test_stylesheets_name_no_colour_of_their_own(root):
    """A colour outside theme.py would not follow the theme, nor keep its meaning."""
    sheets = [*(root / "app").glob("*.css"), *(root / "components").rglob("*.css")]
    assert sheets
    for sheet in sheets:
        for line in sheet.read_text(encoding="utf-8").splitlines():
            bare = re.sub(r"/\*.*?\*/|var\([^()]*\)", "", line)
            assert not re.search(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bhsla?\(", bare), f"{sheet.name}: {line.strip()}"


def test_css_has_every_colour_and_both_themes():
    css = theme.css()
    for name, tone in (theme.CONCEPTS | theme.SURFACES).items():
        assert f"--lab-{name}: light-dark({tone.light}, {tone.dark});" in css


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("look", theme.THEMES)
def test_no_chart_text_is_smaller_than_thirteen_pixels(look, lang):
    config = theme.vega_config(look, lang)
    sizes = [v for part in config.values() if isinstance(part, dict) for k, v in part.items() if k.endswith("ontSize")]
    assert sizes and min(sizes) >= theme.MINIMUM_PX


def test_unknown_colour_raises():
    with pytest.raises(KeyError):
        theme.variable("mauve")
