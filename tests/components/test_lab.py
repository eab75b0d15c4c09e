"""The lab's instruments with something run just now: stored and fresh stay apart, and each is judged by its own figures."""

from components import Scene, widget
from compute import acceptance, walls
from compute.functions import plain

RACE = {
    "model": "mini-256", "prompt": "小明把苹果给了", "prompt_tokens": 4, "rounds": 2, "forwards": {"1": 0.001},
    "rows": [{"new": n, "with_cache": [100.0, 300.0], "without_cache": [50.0, 100.0], "kv_with": n + 3, "kv_without": 1, "same_output": n != 64} for n in (32, 64, 128, 240)],
    "conditions": {"cpu": "X", "threads": 1, "dtype": "float32", "date": "2026-01-01", "load average": 0.1},
}  # fmt: skip


def test_a_fresh_race_stands_beside_the_stored_one():
    """Catches: a ratio of medians for the median of ratios (2.5 here, and not 200 / 75), stored figures under a fresh run's conditions,
    different texts called the same."""
    w = widget("cache-table")
    stored, live = w.run(w.Params()), w.run(w.Params(new=64), RACE)
    assert live.chosen.ratio.value == 2.5 and live.stored == stored.stored and live.mark == "live"
    view = w.draw(live, Scene(w.words("en"), "en", "light"))
    assert "2.50" in view.sentence and "which should not be" in view.sentence and "X" in view.simplified
    assert {row["run"] for row in view.rows} == {"stored", "fresh"}


def test_a_machine_is_held_against_its_own_walls():
    """Catches: a fresh speed over the stored bandwidth. The referee is bytes over bandwidth, written out: 3,670,016 weights of four
    bytes and little else."""
    w = widget("own-machine")
    rates = [{"id": id, "value": v, "low": v, "high": v, "runs": 3, "unit": "", "conditions": {}} for id, v in
             (("read.gemv.float32", 1e9), ("read.gemv.bfloat16", 1e9), ("read.sum.float32", 1e9), ("peak.float32", 1e12), ("peak.bfloat16", 1e12))]  # fmt: skip
    answer = {"rates": rates, "conditions": dict(RACE["conditions"]),
              "decodes": [{"model": "mini-256", "dtype": "float32", "tokens_per_second": 34.0, "low": 30.0, "high": 40.0, "context": 28}]}  # fmt: skip
    fresh = w.run(w.Params(model="smollm2-135m"), answer)
    bound = 1e9 / (3_670_016 * 4)
    assert abs(fresh.chosen.promise.tokens_per_second / bound - 1) < 0.02 and abs(fresh.chosen.share - 34 / bound) < 0.02
    assert fresh.asked == "smollm2-135m" and "python3 run.py models" in w.draw(fresh, Scene(w.words("en"), "en", "dark")).simplified
    assert walls.promise("mini-256", 1e15, 1e9, 28).tokens_per_second < 1e9 / (2 * 3_670_016)  # arithmetic binds where memory is fast


def test_a_choice_is_judged_by_its_own_criterion():
    """Catches: the verdict of one scheme beside another, and decisions counted as met that nobody made."""
    w = widget("decisions")
    opened = w.run(w.Params())
    assert (opened.made, opened.met) == (0, 0)
    chosen = w.run(w.Params(cache="on", scheme="int4-tensor", sampling="t0"))
    assert (chosen.made, chosen.met) == (3, 2) and chosen.criterion("scheme").verdict == "not_met"
    assert {o.id: o.meets for o in chosen.tables["scheme"]} == {"fp32": True} | {c.of: c.verdict == "met" for c in acceptance.of_schemes(acceptance.entries()) if c.of in {o.id for o in chosen.tables["scheme"]}}
    assert plain(w.run(w.Params(k=5)).tables["draft"]) != plain(opened.tables["draft"])
