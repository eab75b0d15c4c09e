"""Builds app/static/fonts from the Fontsource packages; run only when the fonts change.

    npm install @fontsource-variable/noto-sans-sc @fontsource/noto-serif-sc @fontsource-variable/ibm-plex-sans \
                @fontsource/ibm-plex-serif @fontsource/ibm-plex-mono
    pip install fonttools brotli
    python -m app.fonts node_modules

Chinese is cut into slices by how often characters occur (the packages' own unicode-range slices), reduced to GB 2312
and its punctuation, so that a browser fetches only the slices that a page uses. Latin comes from the Plex family;
the quotation marks, dashes and dots that both scripts share belong to the Chinese face under :lang(zh) and to Plex
under :lang(en), which is why each face has a "Marks" companion.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

OUT = Path(__file__).parent / "static" / "fonts"
DEBIAN = Path("/usr/share/fonts/opentype/noto")
SHARED_MARKS = (0x00B7, 0x2014, 0x2018, 0x2019, 0x201C, 0x201D, 0x2026)
LATIN = "U+0020-007E,U+00A0-00B6,U+00B8-00FF,U+0106-0107,U+010C-010D,U+0118-0119,U+011E-011F,U+0131,U+0141-0144,U+0150-0153,U+0158-015B,U+015E-0161,U+0170-0171,U+0174-0175,U+0179-017E,U+2013,U+2020,U+2022,U+2030,U+2032-2033,U+2070-209F,U+20AC,U+2190-2193,U+2212,U+2248,U+2260,U+2264-2265,U+221E"
# Browsers join the faces of a family by unicode-range only where weight and style are written alike.
SANS_WEIGHTS = "100 700"
GREEK = "U+0391-03C9"
FACE = re.compile(r"url\(\./files/(?P<file>[^)]+\.woff2)\).*?unicode-range:\s*(?P<range>[^;]+);", re.S)
LATIN_FACES = (  # family, package, file stem with {subset}, weight, style, subsets
    ("Lab Sans", "@fontsource-variable/ibm-plex-sans", "ibm-plex-sans-{}-wght-normal", SANS_WEIGHTS, "normal"),
    ("Lab Sans", "@fontsource-variable/ibm-plex-sans", "ibm-plex-sans-{}-wght-italic", SANS_WEIGHTS, "italic"),
    ("Lab Serif", "@fontsource/ibm-plex-serif", "ibm-plex-serif-{}-600-normal", "600", "normal"),
    ("Lab Mono", "@fontsource/ibm-plex-mono", "ibm-plex-mono-{}-400-normal", "400", "normal"),
    ("Lab Mono", "@fontsource/ibm-plex-mono", "ibm-plex-mono-{}-600-normal", "600", "normal"),
)
CHINESE_FACES = (  # package, its stylesheet, our prefix, family, weight, Debian's file for what the package lacks
    ("@fontsource-variable/noto-sans-sc", "index.css", "sans-sc", "Lab Sans", SANS_WEIGHTS, "NotoSansCJK-Regular.ttc"),
    ("@fontsource/noto-serif-sc", "600.css", "serif-sc", "Lab Serif", "600", "NotoSerifCJK-Bold.ttc"),
)


def gb2312() -> set[int]:
    """Every character of GB 2312 (6,763 hanzi and its symbols) beyond Latin and Greek, plus the full-width forms Chinese typesetting uses."""
    found = set()
    for high in range(0xA1, 0xF8):
        for low in range(0xA1, 0xFF):
            try:
                found.add(ord(bytes((high, low)).decode("gb2312")))
            except UnicodeDecodeError:  # an unassigned cell of the 94 × 94 table
                continue
    return {c for c in found if c > 0x2000} | set(range(0xFF01, 0xFF5F)) | set(SHARED_MARKS)


def code_points(unicode_range: str) -> set[int]:
    points: set[int] = set()
    for part in unicode_range.replace(" ", "").upper().removesuffix(",").split(","):
        first, _, last = part.removeprefix("U+").partition("-")
        points |= set(range(int(first, 16), int(last or first, 16) + 1))
    return points


def css_range(points: set[int]) -> str:
    runs: list[list[int]] = []
    for point in sorted(points):
        if runs and point == runs[-1][1] + 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return ",".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in runs)


def face(family: str, file: str, weight: str, style: str, unicode_range: str) -> str:
    return (
        f'@font-face{{font-family:"{family}";font-style:{style};font-weight:{weight};font-display:swap;'
        f'src:url("{file}") format("woff2");unicode-range:{unicode_range}}}'
    )


def cut(source: Path, target: Path, keep: set[int], member: int = -1) -> set[int]:
    """Writes the part of a font (or of one member of a collection) that covers `keep`; returns what it really covers."""
    from fontTools import subset

    options = subset.Options(flavor="woff2", layout_features=["*"], hinting=False, notdef_outline=True, font_number=member)
    font = subset.load_font(str(source), options)
    present = keep & set(font.getBestCmap())
    if present:
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=present)
        cutter.subset(font)
        subset.save_font(font, str(target), options)
    return present


def chinese(modules: Path, package: str, css: str, prefix: str, family: str, weight: str, rare: str, wanted: set[int]) -> list[str]:
    rules, covered = [], set()
    for match in FACE.finditer((modules / package / css).read_text()):
        number = re.search(r"-sc-(\d+)-", match["file"])
        keep = code_points(match["range"]) & wanted - covered
        if not keep or number is None:
            continue
        target = OUT / f"{prefix}-{number[1]}.woff2"
        present = cut(modules / package / "files" / match["file"], target, keep)
        if present:
            covered |= present
            rules.append(face(family, target.name, weight, "normal", css_range(present)))
    # What no numbered slice carries (the marks shared with Latin) sits in the package's latin file.
    stem = next(m["file"] for m in FACE.finditer((modules / package / css).read_text()) if re.search("-latin-(wght|600)", m["file"]))
    present = cut(modules / package / "files" / stem, OUT / f"{prefix}-marks.woff2", wanted - covered)
    rules.append(face(family, f"{prefix}-marks.woff2", weight, "normal", css_range(present)))
    covered |= present
    # Some thirty rare hanzi are in none of the package's files; Debian's fonts-noto-cjk has the same design in full.
    target = OUT / f"{prefix}-rare.woff2"
    present = cut(DEBIAN / rare, target, {c for c in wanted - covered if c > 0x2FFF}, member=2)
    rules.append(face(family, target.name, weight, "normal", css_range(present)))
    return rules


def latin(modules: Path) -> list[str]:
    rules = []
    wanted = code_points(LATIN) | set(SHARED_MARKS)
    for family, package, stem, weight, style in LATIN_FACES:
        left = code_points(LATIN) | code_points(GREEK) | set(SHARED_MARKS)
        for subset_name in ("latin", "latin-ext", "greek"):  # Plex Serif has no Greek
            source = modules / package / "files" / f"{stem.format(subset_name)}.woff2"
            if not source.exists():
                continue
            target = OUT / source.name
            present = cut(source, target, left)
            left -= present
            if own := present - set(SHARED_MARKS):
                rules.append(face(family, target.name, weight, style, css_range(own)))
            if marks := present & set(SHARED_MARKS):
                rules.append(face(f"{family} Marks", target.name, weight, style, css_range(marks)))
    return rules


def main(modules: Path) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.woff2"):
        old.unlink()
    rules = latin(modules)
    for package, css, prefix, family, weight, rare in CHINESE_FACES:
        plex = set().union(*(code_points(rule.split("unicode-range:")[1].rstrip("}")) for rule in rules if f'"{family}";font-style:normal' in rule))
        rules += chinese(modules, package, css, prefix, family, weight, rare, gb2312() - plex)
    (OUT / "fonts.css").write_text("\n".join(rules) + "\n")
    for package, name in (("@fontsource-variable/noto-sans-sc", "OFL-Noto-Sans-SC.txt"), ("@fontsource/noto-serif-sc", "OFL-Noto-Serif-SC.txt"),
                          ("@fontsource-variable/ibm-plex-sans", "OFL-IBM-Plex-Sans.txt"), ("@fontsource/ibm-plex-serif", "OFL-IBM-Plex-Serif.txt"),
                          ("@fontsource/ibm-plex-mono", "OFL-IBM-Plex-Mono.txt")):
        shutil.copyfile(modules / package / "LICENSE", OUT / name)
    print(f"{len(rules)} faces, {sum(f.stat().st_size for f in OUT.glob('*.woff2')) / 1e6:.2f} MB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
