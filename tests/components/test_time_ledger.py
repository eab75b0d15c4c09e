"""The time ledger's picture and words against its own computation, and that against arithmetic written out."""

import re

import pytest

from components import Scene, time_ledger
from components.text import LANGUAGES
from compute import facts, roofline
from compute.errors import Refused, UnknownName

WIDGET = time_ledger.WIDGET
PARAMETERS = 25_623_920_640  # the anchor's, multiplied per token
DECODE_BYTES = 2 * PARAMETERS + 4096 * 65_536 + 2 * 150_994_944
DECODE_FLOPS = 2 * PARAMETERS + 16 * 4096 * 4 * 24 * 256


def result(**params):
    return WIDGET.run(WIDGET.Params(**params))


def scene(lang="en", before=None):
    return Scene(WIDGET.words(lang), lang, "light", before)


def panels(account, **more):
    decode, prefill = time_ledger.picture(account, scene(**more))["panels"]
    return decode, prefill


def test_the_default_is_the_lesson():
    """Catches: a default that does not show the point, or bytes and FLOPs that are not the anchor's."""
    r = result()
    assert (r.decode.bytes, r.decode.flops) == (DECODE_BYTES, DECODE_FLOPS)
    assert r.decode.memory_seconds == pytest.approx(DECODE_BYTES / 3.35e12) == pytest.approx(15.47e-3, rel=1e-3)
    assert r.decode.compute_seconds == pytest.approx(DECODE_FLOPS / 989.5e12)
    assert r.decode.bound == "memory" and r.decode.ratio == pytest.approx(290, rel=5e-3)
    assert r.prefill.bound == "compute" and r.prefill.tokens == 1000
    assert r.prefill.compute_seconds == pytest.approx((2 * PARAMETERS * 1000 + 16 * 2 * 1000**2 * 24 * 256) / 989.5e12)
    assert r.prefill.memory_seconds == pytest.approx((2 * PARAMETERS + 1000 * 65_536 + 150_994_944) / 3.35e12)


def test_textbook():
    """140 GB, 42 ms, 24 token/s, 0.14 ms, ratio about 300, two cards. Catches: the label lost, or a KV invented."""
    r = result(model="70b-dense")
    assert r.decode.bytes == 140e9 and r.decode.flops == 140e9
    assert round(r.decode.memory_seconds * 1e3) == 42 and round(r.decode.compute_seconds * 1e3, 2) == 0.14
    assert round(1 / r.decode.seconds) == 24 and r.decode.ratio == pytest.approx(300, rel=0.02)
    for lang in LANGUAGES:
        view = WIDGET.draw(r, scene(lang))
        assert "140 GB" in view.simplified and "80 GB" in view.simplified and "2" in view.simplified
        assert "80 GB" in view.picture.data["panels"][0]["about"], "the picture itself says whose arithmetic it is"
        assert [part["tone"] for part in view.picture.data["panels"][0]["move"]["parts"]] == ["weights"]


@pytest.mark.parametrize("model", sorted(facts.models()))
def test_parts_add_up(model):
    """Catches: an op that belongs to no part, so that the bar is shorter than its label says."""
    for chip in ("h100-sxm", "b200", "mi300x"):
        try:
            r = result(model=model, chip=chip, weight_bits=4, batch=3, prompt=77)
        except Refused:
            continue
        for _, phase in r.phases:
            assert sum(part.bytes for part in phase.parts) == pytest.approx(phase.bytes, rel=1e-12)
            assert sum(part.flops for part in phase.parts) == pytest.approx(phase.flops, rel=1e-12)
        step = roofline.decode(model, chip, 3, weight_bits=4)
        assert (r.decode.bytes, r.decode.flops) == (step.bytes_per_step, step.flops_per_step)
        for panel in panels(r):
            assert sum(part["length"] for part in panel["move"]["parts"]) == pytest.approx(panel["move"]["length"])
        rows = WIDGET.draw(r, scene()).rows
        for phase in ("decode", "prefill"):
            mine = [row for row in rows if row["phase"] == phase]
            assert sum(row["bytes"] for row in mine[:-1]) == pytest.approx(mine[-1]["bytes"]) and mine[-1]["part"] == "total"


@pytest.mark.parametrize("params", [{}, {"batch": 58}, {"prompt": 32768}, {"prompt": 1}, {"weight_bits": 4}, {"model": "70b-dense"}], ids=str)
def test_bars_share_one_linear_axis_from_zero(params):
    """Catches: two scales, a log axis, or a cut one: lengths must be in the proportion of the times."""
    r = result(**params)
    longest = max(r.decode.memory_seconds, r.decode.compute_seconds, r.prefill.memory_seconds, r.prefill.compute_seconds)
    lengths = []
    for panel, (_, phase) in zip(panels(r), r.phases):
        assert panel["move"]["length"] == pytest.approx(phase.memory_seconds / longest)
        assert panel["compute"]["length"] == pytest.approx(phase.compute_seconds / longest)
        lengths += [panel["move"]["length"], panel["compute"]["length"]]
    assert max(lengths) == 1
    ticks = time_ledger.picture(r, scene())["axis"]["ticks"]
    assert ticks[0] == {"at": 0.0, "label": "0"} and 3 <= len(ticks) <= 9
    steps = [b["at"] - a["at"] for a, b in zip(ticks, ticks[1:])]
    assert steps == pytest.approx([steps[0]] * len(steps)) and ticks[-1]["at"] <= 1


def test_the_magnifier_says_by_how_much():
    """Catches: a magnified bar whose length is not the factor times the hair."""
    r = result()
    decode, prefill = panels(r)
    lens = decode["lens"]
    assert decode["compute"]["length"] < time_ledger.HAIR and prefill["lens"] is None
    assert lens["length"] == pytest.approx(decode["compute"]["length"] * lens["factor"]) and 0.1 < lens["length"] <= time_ledger.LENS_FILL
    assert re.fullmatch(r"[125]0*", str(lens["factor"])) and f"{lens['factor']:,}" in lens["title"]
    screens = lens["factor"] * decode["move"]["length"]
    assert f"{screens:.0f}" in lens["beyond"].replace(",", "")
    assert panels(result(batch=58))[0]["lens"] is None, "at batch 58 the bar can be seen by itself"


def test_ghosts_only_where_something_moved():
    """Catches: a ghost under every bar, or at the new length."""
    before = result()
    decode, prefill = panels(result(batch=8), before=before)
    assert decode["move"]["ghost"] == pytest.approx(before.decode.memory_seconds / result(batch=8).prefill.seconds)
    assert prefill["move"]["ghost"] is None and prefill["compute"]["ghost"] is None
    assert panels(result(), before=result())[0]["move"]["ghost"] is None


def test_words_follow_the_result():
    """Catches: a sentence that always says that moving is the wall."""
    for params, decode, prefill in (({}, "memory", "compute"), ({"prompt": 1}, "memory", "memory"), ({"model": "qwen3-0.6b", "batch": 512, "context": 0}, "compute", "compute")):
        r = result(**params)
        assert (r.decode.bound, r.prefill.bound) == (decode, prefill)
        for lang in LANGUAGES:
            says = WIDGET.draw(r, scene(lang)).sentence
            assert "{" not in says and len(re.findall(r"\d", says)) > 10
    assert "1 token at once" in WIDGET.draw(result(prompt=1), scene()).sentence
    one = WIDGET.draw(result(), scene("zh")).sentence
    assert "51.8 GB" in one and "15.5 ms" in one and "290" in one and "0.345%" in one


def test_the_guess_is_judged_by_the_result():
    """Catches: a right answer typed in. Three in a thousand at batch 1, about a tenth at 58."""
    guess = WIDGET.guesses["share"]
    assert guess.right(result()) == "p03" and guess.truth(result()).value == pytest.approx(0.00345, rel=5e-3)
    assert guess.right(result(batch=58)) == "p30"
    assert guess.right(result(model="qwen3-0.6b", batch=512, context=0)) == "p90"


def test_what_does_not_fit_is_refused():
    """Catches: bars for a model that the card cannot hold, and unknown names accepted at birth."""
    with pytest.raises(Refused):
        result(model="llama-3-70b")
    with pytest.raises(UnknownName):
        WIDGET.Params(model="gpt-9")
    with pytest.raises(UnknownName):
        WIDGET.Params(chip="abacus")


def test_the_folder_names_no_colour():
    """Catches: a hex value beside the theme, which then does not follow it."""
    files = [p for p in WIDGET.folder.iterdir() if p.suffix in (".py", ".js", ".toml")]
    assert len(files) == 3
    for path in files:
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b", path.read_text(encoding="utf-8")), path
