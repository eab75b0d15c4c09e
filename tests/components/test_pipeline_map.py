"""What the map of the pipeline says, and what a click may set."""

import pytest

from components import Scene
from components.pipeline_map import LESSONS, WIDGET, Params, models, name_of
from components.text import LANGUAGES
from compute.pipeline import ROLES


def view(lang="en", before=None, **params):
    return WIDGET.draw(WIDGET.run(Params(**params)), Scene(WIDGET.words(lang), lang, "light", before and WIDGET.run(before)))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("id", models())
def test_every_stage_of_every_model_has_words(id, lang):
    """Catches a kind of layer without a name, a stage that says nothing about itself, and one that leads nowhere."""
    for stage in WIDGET.run(Params(model=id)).flow.stages:
        drawn = view(lang, model=id, stage=stage.role)
        name = name_of(stage, WIDGET.words(lang))
        assert name in drawn.sentence and name in drawn.beside[0].body.replace("&#x27;", "'") and f'/{"architecture" if stage.kind == "mla" else LESSONS[stage.role]}?lang={lang}"' in drawn.beside[0].body
        assert "{" not in drawn.sentence + drawn.beside[0].body


def test_the_anchor_on_screen():
    """17.1 of 26.9 billion are SwiGLU. Catches a share of the wrong total, and a shape that does not follow the controls."""
    drawn = view(batch=58, tokens=128)
    assert "17.1 B parameters, 63.6% of the model’s 26.9 B, 34.2 GB in bf16" in drawn.sentence and "58 × 128 × 5,120 out" in drawn.sentence
    data = drawn.picture.data
    assert data["chosen"] == "feed_forward" and data["total"] == "26.9 B" and data["kinds"] == "48 GDN, 16 GQA attention" and len(data["pattern"]) == 64
    assert sum(s["share"] for s in data["stages"]) == pytest.approx(1) and drawn.picture.picks == ("stage",)
    assert sum(row["parameters"] for row in drawn.rows) == 26_895_998_464


def test_a_table_that_two_stages_share_is_counted_once():
    """Catches: mini-256's tied table as parameters of the embedding, too."""
    drawn = view(model="mini-256", stage="embedding")
    assert "lm_head’s own table" in drawn.sentence and drawn.readouts[1].value == "0"


def test_the_guess_groups_what_looks_back():
    """Catches GDN and attention judged apart, and experts taken for something else than feed-forward."""
    guess = WIDGET.guesses["largest"]
    assert [guess.right(WIDGET.run(Params(model=id))) for id in ("qwen3.8-27b", "deepseek-v3")] == ["feed_forward"] * 2
    assert guess.truth(WIDGET.run(Params())).value == pytest.approx(17_112_760_320 / 26_895_998_464)


def test_the_ghost_says_what_it_was():
    """Catches a change against another stage."""
    assert "20,480 before" in view(before=Params(), tokens=16).readouts[0].change
    assert not any(r.change for r in view(before=Params(stage="lm_head"), tokens=16).readouts)
    assert set(LESSONS) == set(ROLES)


def test_a_cache_is_told_as_elsewhere():
    """64 KiB a token, 151 MB a state. Catches the same cache called 65.5 kB here."""
    attention, state = view(stage="attention", tokens=1), view(stage="recurrent")
    assert (attention.readouts[-1].value, attention.readouts[-1].unit) == ("64", "KiB") and "64 KiB" in attention.readouts[-1].note
    assert (state.readouts[-1].value, state.readouts[-1].unit) == ("151", "MB") and view().readouts[-1].value == "0"
