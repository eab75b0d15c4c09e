"""The one place with colours, type sizes and spaces.

A colour belongs to a concept and keeps its meaning in every lesson; `accent` is for what can be pressed and never for
data. Python asks `colour("kv", theme)`; a stylesheet or a player uses `var(--lab-kv)`, which follows the theme by
itself. Every colour that carries meaning has 4.5 : 1 against paper and panel, and a second cue (`cue`) for readers who
do not see the hue; tests/app/test_theme.py computes both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Theme = Literal["light", "dark"]
Lang = Literal["zh", "en"]
THEMES: tuple[Theme, ...] = ("light", "dark")


@dataclass(frozen=True)
class Tone:
    light: str
    dark: str
    cue: str = ""  # what tells the concept apart without its hue


CONCEPTS: dict[str, Tone] = {
    "weights": Tone("#27509A", "#7FA8E8", "solid"),
    "kv": Tone("#0C7A6E", "#4CC9B8", "solid, cells"),
    "state": Tone("#3F5008", "#CBE070", "dots"),
    "compute": Tone("#8F5C12", "#E8A93F", "wide bar"),
    "target": Tone("#2C2E8F", "#8285F0", "line"),
    "draft": Tone("#B84C08", "#FF9A55", "outline"),
    "accepted": Tone("#277B42", "#86E0A6", "fill"),
    "rejected": Tone("#99203A", "#F2667A", "hatch"),
    "residual": Tone("#8450BC", "#D2B6FA", "cross-hatch"),
    "prefill": Tone("#0D4A61", "#4FA3C4", "dark edge"),
    "decode": Tone("#A63C7B", "#FAB0D6", "no edge"),
    "reserved": Tone("#C9CED6", "#4A5160", "diagonal hatch"),
    "free": Tone("#EEF1F5", "#262B34", "empty"),
    "bound": Tone("#646A7A", "#9AA3B2", "dashed line"),  # ideal bound; calibrated is solid, measured a dot with a bar
}
TOGETHER = (  # concepts drawn in one picture, which must stay apart for every reader
    ("weights", "kv", "state", "compute"),
    ("target", "draft", "residual"),
    ("accepted", "rejected", "residual"),
    ("prefill", "decode"),
)
SURFACES: dict[str, Tone] = {
    "paper": Tone("#FBFAF7", "#14171C"),
    "panel": Tone("#F4F2ED", "#1B1F26"),
    "ink": Tone("#1B1F27", "#E6E8EC"),
    "muted": Tone("#565D6B", "#9AA3B2"),
    "hairline": Tone("#DEDAD2", "#2E343F"),
    "grid": Tone("#E9E6DF", "#252A33"),
    "ghost": Tone("#A9A69E", "#5B6372"),  # the state before the last move, hollow
    "accent": Tone("#22356F", "#B9C6F2"),
    "accent-soft": Tone("#EDF0F8", "#232B42"),
    "on-accent": Tone("#FFFFFF", "#14171C"),
}

TYPE_REM = {"small": 0.875, "body": 1.0, "lead": 1.25, "section": 1.6, "title": 2.2}
MINIMUM_PX = 13
SPACE_PX = (4, 8, 12, 16, 24, 32, 48, 64, 96)
RADIUS_PX = 4
PROSE_REM, WIDE_REM = 46, 72
SANS = {"zh": '"Lab Sans", "PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC", sans-serif',
        "en": '"Lab Sans Marks", "Lab Sans", system-ui, sans-serif'}
SERIF = {"zh": '"Lab Serif", "Songti SC", "Noto Serif CJK SC", serif',
         "en": '"Lab Serif Marks", "Lab Serif", Georgia, serif'}
FIGURES = '"Lab Mono", "Lab Sans", ui-monospace, monospace'
LINE_HEIGHT = {"zh": 1.7, "en": 1.6}


def colour(name: str, theme: Theme) -> str:
    """The hex value of a concept or a surface."""
    tone = CONCEPTS.get(name) or SURFACES[name]
    return tone.light if theme == "light" else tone.dark


def variable(name: str) -> str:
    """The same colour for HTML, SVG and canvas, following the reader's theme."""
    if name not in CONCEPTS and name not in SURFACES:
        raise KeyError(name)
    return f"var(--lab-{name})"


def css() -> str:
    """Custom properties for the page and, by inheritance, for every component inside it."""
    lines = [f"--lab-{name}: light-dark({tone.light}, {tone.dark});" for name, tone in (CONCEPTS | SURFACES).items()]
    lines += [f"--lab-{name}-size: {rem}rem;" for name, rem in TYPE_REM.items()]
    lines += [f"--lab-space-{step}: {px}px;" for step, px in enumerate(SPACE_PX, 1)]
    lines += [f"--lab-radius: {RADIUS_PX}px;", f"--lab-prose: {PROSE_REM}rem;", f"--lab-wide: {WIDE_REM}rem;",
              f"--lab-figures: {FIGURES};"]
    by_language = "\n".join(
        f":root:lang({lang}), :lang({lang}) {{ --lab-sans: {SANS[lang]}; --lab-serif: {SERIF[lang]}; --lab-line: {LINE_HEIGHT[lang]}; }}"
        for lang in ("zh", "en"))
    return ":root {\n  color-scheme: light dark;\n  " + "\n  ".join(lines) + "\n}\n" + by_language + "\n"


def vega_config(theme: Theme, lang: Lang) -> dict[str, Any]:
    """`config` of every Vega-Lite chart: faint grid, hairline axes, transparent ground, our faces."""
    ink, muted = colour("ink", theme), colour("muted", theme)
    label = {"font": SANS[lang], "fontSize": 13}
    return {
        "background": None,
        "font": SANS[lang],
        "padding": 4,
        "view": {"stroke": None},
        "axis": {
            "labelFont": FIGURES, "labelFontSize": 13, "labelColor": muted, "labelPadding": 6,
            "titleFont": SANS[lang], "titleFontSize": 13, "titleFontWeight": 500, "titleColor": ink, "titlePadding": 12,
            "gridColor": colour("grid", theme), "gridWidth": 1, "domainColor": colour("hairline", theme),
            "tickColor": colour("hairline", theme), "tickSize": 4,
        },
        "legend": {"labelFont": SANS[lang], "labelFontSize": 13, "labelColor": ink, "titleFont": SANS[lang],
                   "titleFontSize": 13, "titleFontWeight": 500, "titleColor": muted, "symbolStrokeWidth": 1.5},
        "header": {"labelFont": SANS[lang], "labelFontSize": 13, "labelColor": ink, "titleFont": SANS[lang], "titleColor": muted},
        "title": {"font": SANS[lang], "fontSize": 14, "fontWeight": 600, "color": ink, "anchor": "start", "offset": 12,
                  "subtitleFont": SANS[lang], "subtitleFontSize": 13, "subtitleColor": muted},
        "text": {**label, "color": ink},
        "line": {"strokeWidth": 2, "strokeCap": "round"},
        "rule": {"color": muted},
        "point": {"filled": True, "size": 80},
        "bar": {"cornerRadius": 1},
        "range": {"category": [colour(name, theme) for name in ("weights", "kv", "compute", "state", "decode", "residual")]},
    }


def streamlit_theme() -> dict[str, dict[str, Any]]:
    """What .streamlit/config.toml must say under [theme], [theme.light] and [theme.dark]; a test compares them."""

    def surfaces(theme: Theme) -> dict[str, str]:
        return {"primaryColor": colour("accent", theme), "backgroundColor": colour("paper", theme),
                "secondaryBackgroundColor": colour("panel", theme), "textColor": colour("ink", theme),
                "linkColor": colour("accent", theme), "borderColor": colour("hairline", theme),
                "codeBackgroundColor": colour("panel", theme), "codeTextColor": colour("ink", theme)}

    return {"light": surfaces("light"), "dark": surfaces("dark")}
