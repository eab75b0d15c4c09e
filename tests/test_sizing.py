"""The sizing of a machine park: arithmetic written out, the edges, and the tables of docs/sizing.md against the function."""

import json
import math

import pytest

from compute import sizing
from compute.errors import BadInput
from tests.conftest import ROOT
from tests.test_functions import command

DOCS = ROOT / "docs" / "sizing.md"


def measured(file: str, key: str) -> float:
    return json.loads((ROOT / "data" / "measured" / f"{file}.json").read_text(encoding="utf-8"))["entries"][key]["value"]


def test_the_plan_is_the_arithmetic_of_its_measurements():
    """Catches a minute taken for a second, bits for bytes, and a share that is multiplied where it divides."""
    found = {name: quantity.value for name, quantity in sizing.plan(6000, 10, 0.5, 100, busy=0.5, arrive_minutes=10).needed.items()}
    each, engine = lambda key: measured("sizing", f"sizing.{key}"), measured("batching-mini-256", "engine.mini-256.many.continuous.tokens_per_second")
    work = max(1000 * each("web.seconds_per_action"), 10 * each("visit.web_seconds"))  # 6000 × 10 a minute; 6000 in 600 s
    assert found["web_work"] == pytest.approx(work) and found["web_servers"] == math.ceil(2 * work)
    assert found["web_memory"] == pytest.approx(found["web_servers"] * each("web.bytes_empty") + 6000 * each("web.bytes_per_learner"))
    assert found["bandwidth_at_first"] == pytest.approx(10 * each("visit.bytes")) and found["bandwidth_later"] == pytest.approx(1000 * each("web.bytes_per_action"))
    assert found["nginx_cores"] == pytest.approx(20 * each("visit.nginx_seconds")) and found["connections"] == 12_000
    assert found["texts_per_minute"] == 3000 and found["tokens_per_second"] == pytest.approx(5000)
    assert found["engines"] == found["engine_cores"] == math.ceil(5000 / (0.5 * engine))


def test_every_number_has_its_papers():
    """Catches a number without kind, formula or conditions on the command line."""
    done = command("call", "sizing.plan", '{"learners": 100000}')
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert {quantity["kind"] for quantity in plan["one"].values()} == {"measured"} and {quantity["kind"] for quantity in plan["needed"].values()} == {"computed"}
    assert all(quantity["conditions"] for quantity in plan["one"].values()) and all(quantity["formula"] for quantity in plan["needed"].values())
    assert all(quantity["kind"] == "computed" and quantity["formula"] for quantity in (*plan["carries"].values(), plan["turnover"]))
    assert all(set(quantity["says"]) == {"zh", "en"} for part in ("one", "needed", "carries") for quantity in plan[part].values())


def test_nobody_doing_anything_needs_little_and_more_never_needs_less():
    still = sizing.plan(1, actions_per_minute=0, texts_per_minute=0).needed
    assert still["engines"].value == 0 and still["web_servers"].value == 1
    needs = [sizing.plan(n).needed for n in sizing.SIZES]
    for fewer, more in zip(needs, needs[1:]):
        assert all(fewer[name].value <= more[name].value for name in more)


@pytest.mark.parametrize("actions, texts, tokens, busy", [(4, 0.2, 64, 0.6), (0.1, 3, 512, 0.9), (30, 20, 1024, 0.3)])
def test_one_is_full_where_it_carries_no_more(actions, texts, tokens, busy):
    """Catches a capacity that belongs to another load, and a share that may be busy taken twice."""
    needs = lambda learners: sizing.plan(learners, actions, texts, tokens, busy=busy)  # noqa: E731
    carries = {name: quantity.value for name, quantity in needs(1000).carries.items()}
    assert set(carries) == {"web_server", "nginx_core", "engine"} and carries == pytest.approx({name: quantity.value for name, quantity in needs(7).carries.items()})
    for machine, needed in (("web_server", "web_servers"), ("engine", "engines")):
        for times in (1, 2, 5):
            last = math.floor(times * carries[machine])
            assert last < 1 or needs(last).needed[needed].value <= times < needs(last + 1).needed[needed].value, (machine, times)
    assert needs(1000).needed["nginx_cores"].value == pytest.approx(1000 / carries["nginx_core"])
    assert "engine" not in sizing.plan(1000, texts_per_minute=0).carries
    assert "engine" not in sizing.plan(1000, texts_per_minute=1e-310, model="qwen3-8b", chip="h100-sxm").carries, "infinitely many are no number"


@pytest.mark.parametrize("arguments", [{}, {"actions_per_minute": 0}, {"tokens_per_text": 512, "model": "qwen3-8b", "chip": "h100-sxm", "busy": 0.9}])
def test_where_engines_need_as_many_as_web_servers(arguments):
    """Catches a turnover by another work than the plan's: at it both carry the same class, with a tenth more texts the engine a smaller one."""
    even = sizing.plan(30_000, **arguments).turnover.value
    carries = lambda texts: {name: quantity.value for name, quantity in sizing.plan(30_000, texts_per_minute=texts, **arguments).carries.items()}  # noqa: E731
    assert carries(even)["engine"] == pytest.approx(carries(even)["web_server"])
    assert carries(1.1 * even)["engine"] < carries(1.1 * even)["web_server"] < carries(0.9 * even)["engine"]


def test_engines_on_a_chip_are_estimated_and_say_so():
    """Catches an estimate that passes as measured, and a chip asked for a model that nobody measured on it."""
    found = sizing.plan(100_000, model="qwen3-8b", chip="h100-sxm", tokens_per_text=512)
    assert found.one["engine_tokens_per_second"].kind == "computed" and "not measured" in found.one["engine_tokens_per_second"].conditions["note"]
    assert found.carries["engine_at_bound"].value > found.carries["engine"].value
    assert found.needed["gpus"].value == found.needed["engines"].value > 0 and "engine_cores" not in found.needed
    with pytest.raises(BadInput, match="mini-256"):
        sizing.plan(30, model="qwen3-8b")
    with pytest.raises(BadInput):
        sizing.plan(30, model={"parameters": 1e9})


def test_the_tables_of_the_page_are_the_functions():
    """Catches figures in docs/sizing.md that nothing computes any more. The way out: python -m compute.sizing, and paste."""
    text = DOCS.read_text(encoding="utf-8")
    assert sizing.costs() in text and sizing.table() in text and sizing.limits() in text
    assert sizing.plan(1).turnover.value > 0.2 and "pages need most machines" in text  # what it concludes from them
