"""Every widget folder, held to the contract of components/__init__.py."""

import json
import re
import tomllib
from pathlib import Path

import pydantic
import pytest

import components
from components import Html, Scene, Stage, Vega, controls
from components.text import LANGUAGES, load_words
from compute.distributions import PROMPTS
from compute.errors import LabError
from compute.functions import plain
from compute.quantity import Quantity
from tests.chinese import english

WIDGETS = components.widgets()
HERE = Path(components.__file__).parent


def off_default(widget):
    """Parameters that each control can reach, one moved at a time."""
    for control in widget.controls:
        base = widget.Params()
        match control:
            case controls.Stops(field, stops):
                values = (stops[0], stops[-1])
            case controls.Range(field, low, high):
                values = (low, high)
            case controls.Choice(field, options):
                values = options()
            case controls.Toggle(field):
                values = (not getattr(base, field),)
            case controls.Text(field):
                values = ("The cat gave the <b>ball</b> to",)
            case controls.Press(field, moves):
                values = [move.value for move in moves(base, 0)]
        for value in values:
            yield field, value, widget.Params(**{**{f: getattr(base, f) for f in base.__dataclass_fields__}, field: value})


def views(widget):
    """(language, theme, params, view) at defaults and off them; settings that the widget refuses are left out."""
    before = widget.run(widget.Params())
    for field, value, params in [("default", None, widget.Params()), *off_default(widget)]:
        try:
            result = widget.run(params)
        except LabError:
            continue
        for lang in LANGUAGES:
            look = "light" if lang == "zh" else "dark"
            yield f"{field}={value} {lang}", lang, widget.draw(result, Scene(widget.words(lang), lang, look, before))


def test_there_are_widgets():
    """Catches discovery that finds nothing and lets every other test pass."""
    assert {"roofline-placer", "time-ledger", "kv-stepper", "kv-calculator"} <= set(WIDGETS)


@pytest.mark.parametrize("id", WIDGETS)
def test_params_are_frozen_and_checked_at_birth(id):
    """Catches a state that a page could change behind the URL's back."""
    params = WIDGETS[id].Params()
    with pytest.raises((AttributeError, TypeError)):
        setattr(params, next(iter(params.__dataclass_fields__)), 1)
    with pytest.raises((pydantic.ValidationError, TypeError)):
        WIDGETS[id].Params(no_such_parameter=1)
    hash(params)


@pytest.mark.parametrize("id", WIDGETS)
def test_words_have_the_same_keys_in_both_languages(id):
    """Catches an untranslated string, and a control without a label."""
    zh, en = (WIDGETS[id].words(lang) for lang in LANGUAGES)
    assert set(zh.table) == set(en.table)
    for control in WIDGETS[id].controls:
        if isinstance(control, controls.Press):
            moves = control.moves(WIDGETS[id].Params(), 0)
            assert all(words(f"move.{control.field}.{move.id}", **move.names) for words in (zh, en) for move in moves)
        else:
            assert zh(f"control.{control.field}") and en(f"control.{control.field}")
        assert control.field in {f for f in WIDGETS[id].Params.__dataclass_fields__}
        if isinstance(control, controls.Choice):
            assert all(_labelled(control, option, zh) and _labelled(control, option, en) for option in control.options())
    for name, guess in WIDGETS[id].guesses.items():
        assert zh(f"guess.{name}.question") and all(zh(f"guess.{name}.choice.{c}") for c in guess.choices)


def _labelled(control, option, words):
    """What the learner reads on an option; as `controls.render` finds it."""
    ours = f"option.{control.field}.{option}"
    return words(ours) if control.name is None or ours in words.table else control.name(option)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_stored_prompt_has_one_name(lang):
    """Catches: a prompt that a learner knows by one name and finds under another in the next instrument."""
    names = {id: {prompt: words.table[f"option.prompt.{prompt}"] for prompt in PROMPTS}
             for id, words in ((id, widget.words(lang)) for id, widget in WIDGETS.items()) if "option.prompt.giving" in words.table}  # fmt: skip
    assert {"overlay", "replay", "greedy-stepper", "temperature"} <= set(names)
    assert all(found == names["overlay"] for found in names.values()), names


@pytest.mark.parametrize("folder", [HERE, *(w.folder for w in WIDGETS.values())], ids=lambda p: p.name)
def test_chinese_is_set_with_full_width_marks(folder):
    """Catches a half-width comma or colon between Chinese characters."""
    table = tomllib.loads((folder / "text.toml").read_text(encoding="utf-8"))["zh"]
    han = r"[\u4e00-\u9fff]"
    bad = re.findall(rf"{han}[,:;?!]|[,:;?!]{han}|{han}\(|\){han}", json.dumps(table, ensure_ascii=False))
    assert not bad, bad


@pytest.mark.parametrize("id", WIDGETS)
def test_every_setting_draws_in_both_languages_and_themes(id):
    """Catches a setting that raises, an empty text equivalent, numbers without papers, words left as keys, and papers with an
    input, a condition or a formula in English on a Chinese page."""
    seen = 0
    for where, lang, view in views(WIDGETS[id]):
        seen += 1
        assert view.sentence.strip(), where
        assert any(c.isdigit() for c in view.sentence), f"{where}: the sentence says no number"
        assert view.rows and view.papers, where
        assert all(isinstance(q, Quantity) for q in view.papers), where
        assert 3 <= len(view.readouts) <= 5, f"{where}: {len(view.readouts)} read-outs"
        json.dumps(plain(view.rows), allow_nan=False)
        for picture in (view.picture, *view.beside, *view.after):
            match picture:
                case Vega(spec, clicks):
                    json.dumps(plain(spec), allow_nan=False)
                    names = json.dumps(plain(spec))
                    assert all(f'"name": "{name}"' in names for name in clicks), where
                case Stage(data):
                    json.dumps(plain(data), allow_nan=False)
                case Html(body):
                    assert "<script" not in body, where
        if lang == "zh":
            assert {q.formula or q.value: words for q in view.papers if (words := english(q))} == {}, f"{where}: components/given.toml has no Chinese for these"
        if lang == "en":
            said = view.sentence + view.simplified + "".join(r.label for r in view.readouts)
            said = re.sub("“[^”]*”", "", said)  # what the model read or wrote is quoted as it is
            assert not any("\u4e00" <= c <= "\u9fff" for c in said), f"{where}: {said}"
    assert seen >= 4, f"only {seen} views were drawn"


@pytest.mark.parametrize("id", WIDGETS)
def test_running_twice_gives_the_same(id):
    """Catches hidden state or randomness without a seed."""
    widget = WIDGETS[id]
    assert plain(widget.run(widget.Params())) == plain(widget.run(widget.Params()))


def test_the_frames_own_words_match():
    """Catches a mark or button that exists in one language only."""
    zh, en = (load_words(HERE / "text.toml", lang) for lang in LANGUAGES)
    assert set(zh.table) == set(en.table)


@pytest.mark.parametrize("id", WIDGETS)
def test_guesses_have_one_truth(id):
    """Catches a question whose right answer is not among its choices."""
    for name, guess in WIDGETS[id].guesses.items():
        result = WIDGETS[id].run(WIDGETS[id].Params())
        assert guess.truth(result).unit, name
        if guess.choices:
            assert guess.right(result) in guess.choices, name
