"""The committed fonts cover what they claim to, and stay small."""

from __future__ import annotations

import re

import pytest

from app import fonts

FONTS = fonts.OUT
RULE = re.compile(r'font-family:"(?P<family>[^"]+)";font-style:(?P<style>\w+).*?url\("(?P<file>[^"]+)"\).*?unicode-range:(?P<range>[^}]+)\}')


def rules():
    found = [match.groupdict() for match in RULE.finditer((FONTS / "fonts.css").read_text())]
    assert len(found) > 100
    return found


@pytest.mark.parametrize("family", ["Lab Sans", "Lab Serif"])
def test_every_hanzi_of_gb2312_is_covered(family):
    covered = set().union(*(fonts.code_points(rule["range"]) for rule in rules() if rule["family"] == family and rule["style"] == "normal"))
    hanzi = {c for c in fonts.gb2312() if 0x4E00 <= c <= 0x9FFF}
    assert len(hanzi) == 6763
    assert not hanzi - covered
    assert set(map(ord, "，。、；：？！“”‘’（）《》—…")) <= covered


def test_faces_of_a_family_are_written_with_the_same_weights():
    """Latin at "100 700" and Chinese at "100 900" are two families to a browser: one of them is then never used."""
    weights: dict[tuple[str, str], set[str]] = {}
    for family, style, weight in re.findall(r'font-family:"([^"]+)";font-style:(\w+);font-weight:([^;]+);', (FONTS / "fonts.css").read_text()):
        weights.setdefault((family, style), set()).add(weight)
    for mono in ("Lab Mono", "Lab Mono Marks"):  # no Chinese to be joined with: two plain weights
        assert weights.pop((mono, "normal")) == {"400", "600"}
    assert weights and all(len(found) == 1 for found in weights.values()), weights


def test_rules_and_files_agree():
    assert {rule["file"] for rule in rules()} == {path.name for path in FONTS.glob("*.woff2")}


def test_fonts_stay_within_their_budget():
    assert sum(path.stat().st_size for path in FONTS.iterdir()) < 8e6


def test_licences_lie_beside_the_fonts():
    notices = list(FONTS.glob("OFL-*.txt"))
    assert len(notices) == 5
    for notice in notices:
        assert "SIL Open Font License" in notice.read_text(), notice.name


@pytest.mark.parametrize("text,points", [("U+41", {0x41}), ("U+41-43,U+61", {0x41, 0x42, 0x43, 0x61})])
def test_ranges_survive_the_round_trip(text, points):
    assert fonts.code_points(text) == points
    assert fonts.code_points(fonts.css_range(points)) == points


def test_every_letter_of_the_course_s_texts_is_in_a_served_font():
    """Catches: a name like Gordić, or a hanzi beyond GB 2312, set in whatever face the reader's machine has."""
    covered = set().union(*(fonts.code_points(rule["range"]) for rule in rules() if rule["family"].startswith("Lab Sans") and rule["style"] == "normal"))
    root = fonts.OUT.parents[2]
    files = [*(root / "app").glob("lessons/*/*.*"), *(root / "data").glob("*.toml"), root / "app" / "text.toml", *(root / "components").glob("*/text.toml")]
    assert len(files) > 50
    missing = {(c, file.name) for file in files for c in file.read_text(encoding="utf-8") if ord(c) > 126 and c.isalpha() and ord(c) not in covered}
    assert not missing, missing
