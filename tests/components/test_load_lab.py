"""The load lab: its runs against compute/serving, its closed forms against arithmetic, and no latency anywhere in overload."""

import json
import math
import re
import shutil
import subprocess

import numpy as np
import pydantic
import pytest

from components import Scene
from components.load_lab import HERE, WIDGET, Params, setting
from components.text import LANGUAGES
from compute import calibrated, functions, serving
from compute.errors import BadInput, Refused
from compute.serving import rates

from .test_schemes import NODE

FEW = {"requests": 1000}


def draw(found, lang="en", before=None):
    return WIDGET.draw(found, Scene(WIDGET.words(lang), lang, "light", before))


def result(**params):
    return WIDGET.run(Params(**params))


def chosen(view):
    return next(row for row in view.rows if row["row"] == "chosen")


# ---- what is shown is what compute/serving says


def test_a_rate_is_judged_as_by_the_served_function():
    """Catches: requests that are kept for other targets and are no longer the ones that serving.run measures."""
    mine = result(rate=5.0, ttft_target=0.5, tpot_target=0.04, seed=3, workload="code", slots=32)
    alone = serving.run(rate=5.0, ttft_target=0.5, tpot_target=0.04, seed=3, workload="code", slots=32, **FEW)
    assert mine.run == alone and alone.verdict == "steady"


def test_the_knee_is_the_one_of_a_sweep():
    """Catches: a knee of other targets, or found on other requests than those at the same rates of a sweep."""
    curve = result().curve
    swept = serving.sweep(workload="code", rates=[point.rate for point in curve.points], **FEW)
    assert curve.points == swept.points and (curve.knee, curve.at_knee, curve.at_capacity) == (swept.knee, swept.at_knee, swept.bound == "capacity")
    assert curve.at_knee.good.share >= rates.SHARE > next(point for point in curve.points if point.rate > curve.knee).good.share


def test_rows_and_picture_are_the_result():
    """Catches: a picture of another rate than its table, bars that do not hold all requests, a share that counts the wrong side."""
    found = result()
    view = draw(found)
    data, mine = view.picture.data, chosen(view)
    assert mine["requests_per_second"] == 4.0 and mine["good_share"] == found.run.good.share and mine["ttft_p99_seconds"] == found.run.ttft.p99.seconds
    assert data["x"] == 4.0 and data["upper"]["mine"][0] == mine["goodput_requests_per_second"] == pytest.approx(4.0 * found.run.good.share)
    drawn = [(row["requests_per_second"], row["goodput_requests_per_second"]) for row in view.rows if row["row"] == "rate"]
    assert drawn == [(x, y) for x, y, *_ in data["upper"]["points"]] and len(drawn) == len(rates.GRID)
    p99 = next(line for line in data["lower"]["lines"] if line["id"] == "p99")
    assert [row["ttft_p99_seconds"] for row in view.rows if row["row"] == "rate"] == [seconds for _, seconds, *_ in p99["points"]]
    for shown, seconds, target in zip(data["spread"], waited(found), (1.0, 0.05)):
        bars = [row["requests"] for row in view.rows if row["row"] == shown["id"]]
        assert list(shown["counts"]) == bars and sum(bars) == len(seconds)
        assert f"{100 * np.mean(seconds <= target):.3g}".rstrip("0").rstrip(".") in shown["says"]
    times = [row for row in view.rows if row["row"] == "time"]
    assert [row["in_system"] for row in times] == data["time"]["inside"] and times[-1]["at_seconds"] <= found.run.queue.until


def waited(found):
    """TTFT and TPOT of the measured requests, written out."""
    flow, measured = rates.served(setting(found.params, 1000), found.params.rate)
    rows = [(a, f, e, n) for a, f, e, n in zip(flow.arrived[measured], flow.first[measured], flow.finished[measured], flow.outputs[measured])]
    return np.array([f - a for a, f, _, _ in rows]), np.array([(e - f) / (n - 1) for _, f, e, n in rows if n > 1])


def test_other_targets_judge_the_same_requests():
    """Catches: a target that moves the waits, and one that does not move the goodput."""
    loose, tight = result(), result(ttft_target=0.2)
    assert loose.run.ttft == tight.run.ttft and loose.run.tpot == tight.run.tpot
    assert tight.run.good.share < loose.run.good.share and tight.curve.knee is None
    assert "no knee" in draw(tight).sentence and draw(tight).readouts[-1].value == "–" and draw(tight).picture.data["knee"] is None


def test_past_the_knee_is_said_to_be():
    """Catches: "up to there all is well" at a rate beyond it."""
    knee = result().curve.knee
    before, after = result(rate=0.9 * knee), result(rate=1.1 * knee)
    assert before.run.good.share >= rates.SHARE > after.run.good.share
    assert "up to there" in draw(before).sentence and "past the knee" in draw(after).sentence


def test_little_holds_on_screen():
    """Catches: a line whose two sides are not of the same run."""
    said = draw(result()).picture.data["time"]["little"]
    inside, rate, seconds = (float(re.search(pattern, said)[1]) for pattern in (r"L = ([\d.]+)", r"= ([\d.]+)/s", r"× ([\d.]+) s"))
    assert inside == pytest.approx(rate * seconds, rel=0.01) and said.endswith("difference 0")


# ---- overload


BEYOND = ({"rate": 9.0}, {"rate": 40.0, "policy": "chunked"}, {"rate": 2.0, "workload": "chat", "slots": 4}, {"mode": "mm1", "rho": 1.1}, {"mode": "md1", "rho": 1.0})


@pytest.mark.parametrize("params", BEYOND, ids=str)
@pytest.mark.parametrize("lang", LANGUAGES)
def test_overload_has_no_latency(params, lang):
    """Catches: a time of the overloaded rate in a read-out, the sentence, the table, the papers or the picture."""
    found = result(**params)
    view = draw(found, lang)
    assert found.overload and found.mark == "refused" and not found.spread
    shown = " ".join([view.sentence, *(f"{r.label} {r.value} {r.unit} {r.note} {r.change}" for r in view.readouts)])
    assert not re.search(r"\d\s?(ms|µs|s)\b", shown.replace("requests/s", "")), shown
    assert not re.search("TTFT|TPOT|p50|p99|first token|首 token", shown), shown
    assert not [name for name, value in chosen(view).items() if value is not None and re.search("ttft|tpot|latency|stay|p99|good", name) and not name.startswith("formula")]
    assert not [row for row in view.rows if row["row"] in ("ttft", "tpot")]
    assert not [q for q in view.papers if q.unit == "s"]
    data = view.picture.data
    assert data["upper"]["mine"] is None and data["time"]["little"] == "" and not data.get("spread") and not data.get("tail")
    assert all(line["mine"] is None for line in data["lower"]["lines"])


def test_overload_says_how_fast_the_queue_grows():
    """Catches: a growth that is not the rate less the capacity, a missing refusal in one language, a queue drawn without its slope."""
    found = result(rate=9.0)
    more = 9.0 - found.curve.capacity
    for lang, words in (("en", "more arrive than leave; the queue grows without end, so no latency exists"), ("zh", "来的比走的多；队列一直长下去，所以没有延迟可言")):
        view = draw(found, lang)
        assert words in view.sentence and f"{more:.3g}" in view.sentence and view.readouts[0].value == f"{more:.3g}"
        assert words in view.picture.data["refused"]["says"] and view.picture.data["refused"]["later"][0][1] == f"+{60 * more:.3g}"
    assert view.picture.data["time"]["slope"] == found.run.seen_growth > 0
    assert draw(result(mode="mm1", rho=1.0)).picture.data["time"]["slope"] is None  # nothing that grows like a line


def test_the_capacity_is_the_border():
    """Catches: latencies just beyond it, and overload just below."""
    most = result().curve.capacity
    assert result(rate=round(most * 1.001, 4)).overload and not result(rate=round(most * 0.999, 4)).overload


# ---- bad input


@pytest.mark.parametrize("field, value", [("rate", 0), ("rate", -1), ("ttft_target", 0), ("tpot_target", -0.05), ("rho", 0), ("requests", 3), ("slots", 0)])
def test_what_must_be_positive_is_refused_in_both_languages(field, value):
    """Catches: a division by a rate of zero, or a refusal that names no field."""
    with pytest.raises(pydantic.ValidationError) as refusal:
        Params(**{field: value})
    error = functions.complaint(refusal.value, list(Params.__dataclass_fields__))
    assert field in error.message("en") and "is not possible" in error.message("en")
    assert field in error.message("zh") and "不行" in error.message("zh")


def test_what_cannot_be_served_is_refused():
    """Catches: a run on more slots than states fit, and a calibrated clock where nothing was measured."""
    with pytest.raises(BadInput, match="slots"):
        result(slots=4096)
    with pytest.raises(Refused) as refusal:
        result(chip="mi300x")
    assert refusal.value.code == "not_calibrated" and "理想" in refusal.value.message("zh")


# ---- few requests, and many


@pytest.mark.parametrize("lang", LANGUAGES)
def test_p99_needs_enough_requests(lang):
    """Catches: the largest of a few called a percentile."""
    found = result(requests=300)
    view = draw(found, lang)
    assert found.run.ttft.p99.seconds is None and view.readouts[0].value.endswith("| –")
    assert found.run.ttft.p99.why_not[lang] in view.readouts[0].note and "p99" not in view.sentence
    assert next(line for line in view.picture.data["lower"]["lines"] if line["id"] == "p99")["points"] == []


def test_many_requests_are_a_run_on_the_service():
    """Catches: a page that computes a hundred thousand requests at every move, arguments that the function does not take, an answer that
    is not the one on screen."""
    many = Params(requests=100_000)
    assert WIDGET.live.when(many) and not WIDGET.live.when(Params(requests=HERE)) and not WIDGET.live.when(Params(mode="mm1", requests=100_000))
    waiting = WIDGET.run(many)
    assert waiting.run.requests == 1000 and waiting.mark == "computed" and "100,000 requests were asked for; 1,000 of them are shown" in draw(waiting).simplified
    asked = WIDGET.live.arguments(Params(requests=HERE + 1000))
    answer = functions.plain(serving.run(**functions.check("serving.run", asked)))
    live = WIDGET.run(Params(requests=HERE + 1000), json.loads(json.dumps(answer)))
    assert live.mark == "live" and live.run.requests == HERE + 1000 and live.run == serving.run(**asked)
    view = draw(live)
    assert chosen(view)["ttft_p99_seconds"] == answer["ttft"]["p99"]["seconds"] and "of 4,000 requests on the compute service" in view.simplified


# ---- one server


@pytest.mark.parametrize("seed", (0, 1))
def test_a_queue_with_one_server_agrees_with_the_closed_form(seed):
    """Within the bars that are drawn. Catches: formulas and simulation of different queues, bars that are too narrow, a served time that
    does not count."""
    data = draw(result(mode="mm1", seed=seed)).picture.data
    mean, p99 = data["lower"]["lines"]
    missed = [(rho, low, high) for rho, _, low, high in p99["points"] if not low <= math.log(100) / (1 - rho) <= (high or math.inf)]
    assert len(p99["points"]) == 9 and len(missed) <= 1, missed  # of nine at 95 %
    assert all(seconds == pytest.approx(1 / (1 - rho), rel=0.08) for rho, seconds, *_ in mean["points"] if rho <= 0.6)
    assert [number for _, number, *_ in data["upper"]["points"][:6]] == pytest.approx([rho / (1 - rho) for rho in rates.LOADS[:6]], rel=0.1)
    for line, exact in ((mean, lambda rho: 1 / (1 - rho)), (p99, lambda rho: math.log(100) / (1 - rho))):
        assert [y for _, y in line["formula"]] == pytest.approx([exact(rho) for rho, _ in line["formula"]])


def test_equal_services_wait_half_as_long():
    """Pollaczek and Khinchine. Catches: M/M/1's formula beside M/D/1's dots, a p99 that its own simulation misses."""
    data = draw(result(mode="md1")).picture.data
    mean, p99 = data["lower"]["lines"]
    assert [y for _, y in mean["formula"]] == pytest.approx([1 + rho / (2 * (1 - rho)) for rho, _ in mean["formula"]])
    assert all(seconds == pytest.approx(1 + rho / (2 * (1 - rho)), rel=0.08) for rho, seconds, *_ in mean["points"] if rho <= 0.6)
    missed = [rho for rho, _, low, high in p99["points"] if not low <= rates.closed("md1", rho).p99 <= (high or math.inf)]
    assert len(missed) <= 1, missed


def test_the_tail_of_the_chosen_load():
    """Catches: percentiles at the wrong share, a straight line of another load."""
    found = result(mode="mm1", rho=0.5)
    tail = draw(found).picture.data["tail"]
    assert [share for share, *_ in tail["points"]] == [50, 10, 5, 1] and tail["rate"] == 0.5 and tail["exact"] == [[1, pytest.approx(math.log(100) / 0.5)]]
    for share, seconds, low, high in tail["points"]:
        assert low <= seconds <= (high or math.inf) and low <= math.log(100 / share) / 0.5 <= (high or math.inf)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", ["mm1", "md1"])
def test_a_full_queue_is_refused_with_any_seed(mode, seed):
    """Catches: a load of 1 that is called steady where the services drawn are short by chance, and has no formula to stand beside."""
    found = result(mode=mode, rho=1.0, seed=seed)
    assert found.overload and "1" in draw(found).sentence


# ---- guesses


def test_services_are_those_of_a_request_alone():
    """By the clock, request by request. Catches: a mean service with queueing in it, prompts or last tokens left out."""
    p = Params()
    clock = calibrated.calibrated("qwen3.8-27b", "h100-sxm")
    prompts, outputs = serving.lengths("code", rates.ALONE, 0, even=True)

    def seconds(prompt, output):
        steps = np.arange(prompt, prompt + output - 1)  # the first token comes with the prompt
        return float(clock.step(0, 0, prompt, prompt * (prompt + 1) / 2, 1)) + float(np.sum(clock.step(np.ones(len(steps)), steps)) if len(steps) else 0)

    assert rates.alone_seconds(setting(p, 1000)) == pytest.approx(np.mean([seconds(int(n), int(m)) for n, m in zip(prompts, outputs)]), rel=0.01)


def test_guesses_are_judged_at_four_fifths_wherever_the_rate_is():
    """Catches: an answer that depends on the slider, and a single counter that is not ln 100 / 0.2."""
    crowd, counter = WIDGET.guesses["p99"], WIDGET.guesses["counter"]
    truth = crowd.truth(result())
    run = serving.run(workload="code", rate=0.8 * result().curve.capacity, **FEW)
    assert truth.value == pytest.approx(run.latency.p99.seconds / rates.alone_seconds(setting(Params(), 1000)))
    assert crowd.truth(result(rate=9.0)) == truth and crowd.right(result()) == "some" and 5 <= truth.value < 20
    assert crowd.right(result(mode="mm1")) == "counter" and counter.right(result(mode="mm1")) == "23" and counter.truth(result()).value == pytest.approx(23.03, abs=0.01)


# ---- the picture


def test_the_ghost_is_the_former_policy():
    """Catches: a ghost that is the present curve, and one where only the rate was moved."""
    old, new = result(), result(policy="prefill-first")
    assert draw(new, before=old).picture.data["upper"]["ghost"] == [[p.rate, p.good.requests_per_second] for p in old.curve.points]
    moved = draw(result(rate=2.0), before=old).picture.data
    assert moved["upper"]["ghost"] == [] and moved["old"] == 4.0


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
def test_the_picture_is_a_function_of_its_data():
    """Catches: overload, a missing knee, p99 or TPOT that breaks the drawing."""
    settings = [{}, {"rate": 9.0}, {"rate": 100.0}, {"requests": 300}, {"ttft_target": 0.2}, {"mode": "mm1"}, {"mode": "md1", "rho": 0.5}, {"mode": "mm1", "rho": 1.1}, {"mode": "md1", "rho": 1.0}]
    stages = [draw(result(**params), before=result()).picture.data | {"part": str(params)} for params in settings]
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE, view, json.dumps(functions.plain(stages))], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-300:]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
def test_the_handle_stays_where_the_hand_has_it():
    """Catches: an answer to an earlier move that sets the handle back while keys or a finger still move it, and one of another mode that
    does not."""
    stages = [draw(result(**params)).picture.data for params in ({}, {"rate": 2.0}, {"mode": "mm1", "rho": 0.5})]
    script = (WIDGET.folder / "view.js").read_text(encoding="utf-8") + """
    const tools = { colour: (n) => n, words: (k) => k, measure: (s, px) => s.length * px * .55, esc: String, wrap: (s) => [s], slide() {}, width: 1024, local: {} };
    const [first, late, other] = JSON.parse(process.argv[1]), seen = [];
    const stands = (data) => { draw({ style: {} }, data, 0, tools); seen.push(tools.local.at); };
    stands(first); stands(late);
    Object.assign(tools.local, { moving: true, at: 7 });
    stands(first); stands(other);
    console.log(JSON.stringify(seen));
    """
    run = subprocess.run(["node", "--input-type=module", "-e", script, json.dumps(functions.plain(stages))], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-600:]
    assert json.loads(run.stdout) == [4.0, 2.0, 7, 0.5]
