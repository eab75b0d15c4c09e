"""The roofline's picture: every text has room, every layer has something in it, the settings of a slow machine fit."""

import json

import pytest

from components import Scene, roofline_placer
from components.text import LANGUAGES
from compute import facts
from compute.functions import plain
from compute.quantity import Source

WIDGET = roofline_placer.WIDGET
SETTINGS = ({}, {"batch": 58}, {"chip": "a100-80g-sxm", "model": "llama-7b"}, {"chip": "b200"}, {"chip": "m4-max", "model": "mini-256"})


def view(lang="en", before=None, **params):
    result = WIDGET.run(WIDGET.Params(**params))
    return WIDGET.draw(result, Scene(WIDGET.words(lang), lang, "light", before))


def layers(spec):
    found = plain(spec)["layer"]
    assert len(found) >= 2, "no layers found"
    return found


def marks(spec, kind):
    found = [layer for layer in layers(spec) if layer["mark"]["type"] == kind]
    assert found, f"no {kind} found"
    return found


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_no_layer_is_empty(params):
    """Catches "Infinite extent" and log scales of NaN on the reader's console: data that is empty, or given to the picture
    as a whole, which reaches the chart only after its scales are made."""
    drawn = view(**params)
    for spec in (drawn.picture.spec, drawn.beside[1].spec):
        assert "data" not in spec
        assert all(layer["data"]["values"] for layer in layers(spec))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_text_takes_no_room_from_the_plot(params, lang):
    """Catches a label that overflows: without a clip the chart shrinks its plot to make room for it."""
    drawn = view(lang, **params)
    for spec in (drawn.picture.spec, drawn.beside[1].spec):
        assert all(layer["mark"]["clip"] for layer in layers(spec) if layer["mark"]["type"] == "text")


@pytest.mark.parametrize("lang", LANGUAGES)
def test_axis_titles_fit_a_phone(lang):
    """Catches a title longer than the plot at 390 px, which is cut on both sides; the plot is 290 px wide, the strip 350."""
    drawn = view(lang)
    for spec, room in ((drawn.picture.spec, 300), (drawn.beside[1].spec, 350)):
        title = layers(spec)[0]["encoding"]["x"]["title"]
        for line in [title] if isinstance(title, str) else title:
            assert sum(13 if ord(c) > 0x2E7F else 7 for c in line) <= room, line


@pytest.mark.parametrize("params", SETTINGS, ids=str)
def test_names_stand_beside_their_triangles_and_off_each_other(params):
    """Catches chips without a name, though the prose asks for a click on the A100's triangle, and names on one another."""
    spec = view(**params).picture.spec
    named = [t for layer in marks(spec, "text") for t in layer["data"]["values"] if "from" in t]
    names = {t["label"] for t in named if t["from"] <= 1100 < t["to"]}
    assert {"H100", "A100 80G"} <= names and len(names) >= 6
    x, y = (layers(spec)[0]["encoding"][axis]["scale"]["domain"] for axis in "xy")
    for least in {t["from"] for t in named}:
        frame = roofline_placer.Frame(*x, *y, least)
        boxes = {t["id"]: frame.box(t["x"], t["y"], t["dx"], t["dy"] - 8, t["w"], 16) for t in named if t["from"] == least}
        for a, (left, top, right, bottom) in boxes.items():
            assert 0 <= left and right <= least, a
            apart = (left >= r or l >= right or top >= b or t >= bottom for other, (l, t, r, b) in boxes.items() if other != a)
            assert all(apart), (a, least)


def test_every_published_chip_has_a_short_name():
    """Catches a new chip whose full name would be written across the picture."""
    for lang in LANGUAGES:
        for id in (*facts.published_chips(), "this-machine"):
            assert 0 < len(WIDGET.words(lang)(f"chip.{id}")) <= 12


def test_a_ridge_near_one_leaves_room_on_the_left(monkeypatch):
    """Catches a slow machine's ridge and labels standing on the axis."""
    slow = facts.Chip("this-machine", "slow", 16e9, 9.8e9, {"bf16": 15e9, "fp32": 15e9}, Source("measured", note="load average 0"), measured=True)
    monkeypatch.setattr(facts, "this_machine", lambda: slow)
    monkeypatch.setattr(facts, "measured_at", lambda: 1)
    monkeypatch.setattr(facts, "measured_runs", lambda: ())
    spec = view(chip="this-machine", model="mini-256").picture.spec
    x, y = (layers(spec)[0]["encoding"][axis]["scale"]["domain"] for axis in "xy")
    assert x[0] <= slow.peak / slow.bandwidth_bytes_per_s / 30
    assert y[0] <= slow.peak / 100
    json.dumps(plain(spec), allow_nan=False)
