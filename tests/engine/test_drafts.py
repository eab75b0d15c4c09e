"""Runs for service and command line: the same seed gives the same run, races count what they time, drafts are found by name."""

from dataclasses import replace

import pytest

from compute import functions
from compute.engine import drafts, registry
from compute.engine.generate import generate
from compute.engine.speculate import Lookup, ModelDraft
from compute.errors import BadInput, Cancelled, LabError, UnknownName
from compute.sampling import GREEDY, Sampling


@pytest.fixture(scope="module")
def target():
    return registry.shared().get("mini-256")


def without_clock(run):
    told = [{k: v for k, v in r.items() if not k.endswith("_seconds")} for r in run["rounds"]]
    return run | {"rounds": told, "conditions": None}


def test_the_same_seed_gives_the_same_run(target):
    """Catches: randomness that does not come from the seed; temperature and truncation dropped on the way."""
    asked = {"text": "小明把苹果给了", "temperature": 0.8, "top_p": 0.9, "seed": 3, "new": 16}
    first, again, other = (without_clock(functions.call("speculate.run", asked | more)) for more in ({}, {}, {"seed": 4}))
    assert first == again != other
    assert first["conditions"] is None and "".join(r["text"] for r in first["rounds"])
    greedy = functions.call("speculate.run", asked | {"temperature": 0, "draft": "lookup"})
    plain = [step.text for step in generate(target, target.tokenizer.encode(asked["text"]), 16)]
    assert greedy["first"] + "".join(r["text"] for r in greedy["rounds"]) == "".join(plain)


def test_progress_brings_the_text_and_cancelling_ends_it():
    """Catches: a bar that never moves, and a cancelled run passed off as a whole one."""
    seen = []
    functions.call("speculate.run", {"new": 12, "temperature": 0}, report=lambda fraction, note: seen.append((fraction, note)))
    assert [f for f, _ in seen] == sorted(f for f, _ in seen) and 0 < seen[0][0] < 1 and len(seen[-1][1]) > len(seen[0][1])
    with pytest.raises(Cancelled):
        functions.call("speculate.run", {"new": 12}, cancelled=lambda: True)
    with pytest.raises(Cancelled):
        functions.call("speculate.cell", {}, cancelled=lambda: True)


@pytest.mark.parametrize("wrong", [{"k": 0}, {"k": 17}, {"new": 97}, {"text": ""}, {"temperature": -1}, {"top_p": 0}, {"draft": "nobody"}, {"text": "x" * 201}])
def test_what_cannot_be_is_refused_with_a_sentence(wrong):
    """Catches: a run without bounds, and a traceback for a name that is not there."""
    with pytest.raises(LabError) as said:
        functions.call("speculate.run", wrong)
    assert said.value.message("zh") and said.value.message("en")


def test_drafts_by_name(target):
    """Catches: c that counts what is not multiplied. mini-64 has 328,256 parameters, mini-256 has 3,672,320."""
    assert drafts.cost_by_parameters("mini-64", target) == pytest.approx(328_256 / 3_672_320)
    assert drafts.cost_by_parameters("lookup", target) == 0
    assert isinstance(drafts.source("lookup", target).new(32), Lookup) and isinstance(drafts.source("mini-128", target).new(32), ModelDraft)
    with pytest.raises(UnknownName):
        drafts.source("mini-65", target)
    stranger = replace(target, weights=replace(target.weights, config=replace(target.config, vocabulary=2047)))
    with pytest.raises(BadInput, match="vocabulary"):
        drafts.source("mini-64", stranger)


def test_a_race_counts_what_it_times(target):
    """Catches: the prompt's forward timed, a speed of another run, a text that differs and is not noticed."""
    texts = [p.sent for p in drafts.prompts("mini-256")[:3]]
    contenders = [(drafts.source("mini-64", target), 2), (drafts.source("lookup", target), 3)]
    found = drafts.race(target, contenders, texts, 8, GREEDY)
    assert [(r.draft, r.k) for r in found] == [("mini-64", 2), ("lookup", 3)]
    for r in found:
        assert r.same == 3 and len(r.speeds) == len(r.plain_speeds) == 3 and all(s > 0 for s in r.speeds)
        assert r.speedups == tuple(a / b for a, b in zip(r.speeds, r.plain_speeds))
        assert r.plain_speeds == found[0].plain_speeds, "one plain run serves all"
    sampled = drafts.race(target, contenders[:1], texts, 8, Sampling(1.0))
    assert sampled[0].same < 3


def test_the_fixed_prompts():
    """Catches: a template that loses the text, fewer prompts than are promised."""
    for name in drafts.DRAFTS:
        found = drafts.prompts(name)
        assert len(found) == 16 == len({p.id for p in found}) and all(p.text in p.sent for p in found)
