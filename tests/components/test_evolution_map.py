"""The evolution map: a chain without gaps, every number resolved by name and shown with its papers."""

import pytest

from components import Scene
from components.evolution_map import CHAIN, IDS, NODES, WIDGET, Params, run
from components.text import LANGUAGES
from compute import numbers


def view(lang="en", node="recompute"):
    return WIDGET.draw(run(Params(node=node)), Scene(WIDGET.words(lang), lang, "light"))


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("id", IDS)
def test_every_number_of_a_step_is_said_and_has_its_paper(id, lang):
    """Catches a number that is named and not shown, one shown without its paper, and a placeholder that nobody fills."""
    drawn, node = view(lang, id), next(n for n in NODES if n.id == id)
    words = WIDGET.words(lang)
    for role, names in (("solved", node.solved), ("stuck", node.stuck)):
        text = words(f"{role}.{id}") + words(f"card.{role}.{id}")
        assert all("{" + word + "}" in text for word in names), f"{id} names a number that its {role} text does not show"
    assert {q.value if not isinstance(q.value, list) else tuple(q.value) for q in drawn.papers} == {_value(n) for n, _ in (node.solved | node.stuck).values()}
    assert "{" not in drawn.sentence + drawn.beside[0].body and f'/{node.lesson}?lang={lang}"' in drawn.beside[0].body


def _value(name):
    value = numbers.resolve(name).value
    return tuple(value) if isinstance(value, list) else value


def test_the_chain_has_no_gap():
    """Catches a step that was lost or moved, and a side branch that hangs on another side branch."""
    assert CHAIN == ("recompute", "cache", "batching", "continuous", "paged", "speculative", "mtp", "quantization", "slo") and set(IDS) == {n.id for n in NODES}
    assert {n.id: n.of for n in NODES if n.of} == {"truncation": "recompute", "architecture": "cache"}


def test_figures_by_hand():
    """503,500 against 1,003; 58 requests; 2,304 token/s at 25.2 ms. Catches a number under another's word."""
    assert "503,500" in view().sentence and "1,003" in view(node="cache").sentence and "65.4 token/s" in view(node="cache").sentence
    said = view(node="quantization").sentence
    assert all(figure in said for figure in ("13.2 GB", "254 token/s", "15.5 ms", "25.2 ms", "64.6 token/s", "2,304 token/s", "1.91 s"))
    assert "20.4%–38.2%" in view(node="continuous").sentence and "58 requests" in view(node="paged").sentence
    kinds = {row["kind"] for row in view().rows}
    assert kinds == {"computed", "measured", "quoted"} and view().picture.picks == ("node",)
