"""The swim lanes: the requests, the figures against arithmetic that knows no scheduler, the stretches against the trace, and
what the widget does with traces that were executed."""

import heapq
import json
import shutil
import subprocess

import pytest
import tokenizers

from components import Scene
from components.swim_lane import DECODE, PREFILL, STALLED, WIDGET, Params, lives, preemptions, segments
from compute import batching_requests, facts, functions, precompute
from compute.batching import POLICIES
from compute.batching_requests import COUNT, requests
from compute.measures.batching import NAMES, TIGHT, trace
from compute.trace import Life, Step, Trace, summary

OUTPUTS = [request.output for request in requests()]


def draw(params=Params(), lang="zh", answer=None, before=None):
    return WIDGET.draw(WIDGET.run(params, answer), Scene(WIDGET.words(lang), lang, "light", before))


# ---- the requests


def test_the_requests_are_what_the_rule_draws():
    """Catches: a file that was edited, or whose rule was changed without drawing again."""
    stored = json.loads(batching_requests.FILE.read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(batching_requests.choose()))


def test_the_requests_are_real_held_out_paragraphs_that_fit():
    """Catches: a paragraph that no validation file holds, a prompt of other tokens than its text's, a context that is passed,
    a source that gives more than its turn, text without its licence."""
    encode = tokenizers.Tokenizer.from_file(str(facts.DATA / "checkpoints" / "mini-256" / "tokenizer.json")).encode
    stored = json.loads(batching_requests.FILE.read_text(encoding="utf-8"))
    counts = {}
    assert len(requests()) == COUNT == len({request.text for request in requests()})
    for request in requests():
        ids = encode(request.text).ids
        assert list(request.prompt) == ids[: len(request.prompt)] and len(request.prompt) + request.output == len(ids) <= 256
        assert 4 <= len(request.prompt) <= 12 and request.output >= 1
        assert request.text in (facts.DATA / "texts" / f"{request.source}.txt").read_text(encoding="utf-8").split("\n")
        assert stored["sources"][request.source]["licence"] and stored["sources"][request.source]["notice"]
        counts[request.source] = counts.get(request.source, 0) + 1
    assert len(counts) == 10 and max(counts.values()) - min(counts.values()) <= 1


# ---- the figures, without a scheduler


def by_hand_static(outputs, slots):
    """Batches in order; each lasts as long as its longest. (steps, finishing times)"""
    at, finished = 0, []
    for first in range(0, len(outputs), slots):
        batch = outputs[first : first + slots]
        finished += [at + n for n in batch]
        at += max(batch)
    return at, finished


def by_hand_continuous(outputs, slots):
    """Each goes where a slot is free first."""
    free, finished = [0] * slots, []
    for n in outputs:
        finished.append(heapq.heappop(free) + n)
        heapq.heappush(free, finished[-1])
    return max(free), finished


@pytest.mark.parametrize("slots", [1, 4, 8, 16])
@pytest.mark.parametrize("policy, by_hand", [("static", by_hand_static), ("continuous", by_hand_continuous)])
def test_the_figures_are_those_of_plain_arithmetic(policy, by_hand, slots):
    """Catches: a policy that is not what its name says, a step counted twice, a latency from admission instead of arrival."""
    steps, finished = by_hand(OUTPUTS, slots)
    found = summary(WIDGET.run(Params(left=policy, slots=slots, blocks=256)).traces[0])
    assert found.steps == steps and found.tokens == sum(OUTPUTS)
    assert found.utilisation == pytest.approx(sum(OUTPUTS) / (slots * steps))
    assert found.mean_latency == pytest.approx(sum(finished) / len(finished))


def test_what_is_stored_is_what_the_widget_shows():
    """Catches: a lesson that states one figure above a picture of another."""
    for policy in POLICIES:
        found = summary(WIDGET.run(Params(right=policy)).traces[1])
        for key in ("utilisation", "steps", "mean_latency", "p99_latency", "tokens_per_step"):
            assert precompute.stored()[f"batching.{policy}.{key}"]["value"] == pytest.approx(getattr(found, key)), (policy, key)
    assert set(NAMES) == set(POLICIES)


def test_the_guess_has_the_answer_of_the_picture():
    """Catches: a question about static batching that is answered with the other policy's figure."""
    guess = WIDGET.guesses["utilisation"]
    shown = WIDGET.run(Params(left="continuous", right="static"))
    assert guess.truth(shown).value == pytest.approx(sum(OUTPUTS) / (8 * by_hand_static(OUTPUTS, 8)[0]))
    assert guess.right(shown) == "33"


# ---- stretches


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("more", [{}, {"blocks": TIGHT}, {"blocks": TIGHT, "preemption": "swap"}, {"budget": 4, "slots": 16}], ids=str)
def test_stretches_tell_every_cell_once(policy, more):
    """Catches: a cell that is lost, drawn twice or of another kind; a slot that stays taken after its request has left."""
    made = trace(policy, requests(), **more)
    drawn = {}
    for lane, sequence, start, length, kind in segments(made):
        for step in range(start, start + length):
            assert drawn.setdefault((lane, step), (sequence, kind)) == (sequence, kind)
    worked = {(lane, at): (sequence, PREFILL if what == "prefill" else DECODE) for at, step in enumerate(made.steps) for lane, sequence, what, *_ in step.lanes}
    assert {cell: told for cell, told in drawn.items() if told[1] != STALLED} == worked
    taken = [0] * len(made.steps)
    for _, step in drawn:
        taken[step] += 1
    assert taken == [step.running for step in made.steps]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_preemptions_are_where_the_request_was(preemption):
    """Catches: a mark in a slot that the request never had, or one that is missing."""
    made = trace("continuous", requests(), blocks=TIGHT, preemption=preemption)
    marks = preemptions(made)
    assert len(marks) == sum(life.preemptions for life in made.sequences) > 10
    for step, lane, sequence in marks:
        assert any((at[0], at[1]) == (lane, sequence) for at in made.steps[step - 1].lanes)
        assert sequence not in {at[1] for at in made.steps[step].lanes}


def test_lives_count_steps():
    """Catches: a waiting time off by one, or in seconds."""
    made = trace("static", requests())
    _, finished = by_hand_static(OUTPUTS, 8)
    known = lives(made)
    assert [known[id]["finished"] + 1 for id in range(COUNT)] == finished
    assert [known[id]["admitted"] + OUTPUTS[id] for id in range(COUNT)] == finished


# ---- executed traces


def executed(*policies, slots=8):
    """As batching.run answers: the simulated plans with other times."""
    found = []
    for policy in policies:
        told = trace(policy, requests(), slots=slots).to_json()
        told |= {"clock": "second", "steps": [dict(step) if isinstance(step, dict) else step for step in told["steps"]]}
        for step in told["steps"]:
            step |= {"ended": step["ended"] / 100, "took": 0.01}
        told["sequences"] = [life | {key: life[key] / 100 for key in ("arrived", "admitted", "first", "finished")} for life in told["sequences"]]
        found.append(told)
    return json.loads(json.dumps({"traces": found, "conditions": {"model": "mini-256", "device": "cpu"}}))


def test_an_executed_run_is_live_and_in_seconds():
    """Catches: an executed run under the mark of a simulated one, steps read as seconds, seconds counted as computed."""
    view = draw(answer=executed("static", "continuous"))
    result = WIDGET.run(Params(), executed("static", "continuous"))
    assert result.mark == "live" and WIDGET.run(Params()).mark == "computed"
    steps = summary(WIDGET.run(Params()).traces[1])
    latency = next(q for q in view.papers if q.says["en"] == "continuous batching: mean latency")
    assert (latency.unit, latency.kind) == ("s", "measured") and latency.value == pytest.approx(steps.mean_latency / 100)
    assert view.readouts[-1].unit == "token/s"
    assert "mini-256" in view.sentence and f"{steps.steps}" in view.sentence
    rate = next(q for q in view.papers if q.says["en"] == "continuous batching: tokens written per second")
    assert rate.value == pytest.approx(100 * sum(OUTPUTS) / steps.steps)


def test_no_latency_is_longer_than_the_run():
    """Catches: seconds of the steps alone beside latencies that count what lies between them, a p99 of 5.9 s in a run of 4.4 s."""
    answer = executed("static", "continuous")
    for told in answer["traces"]:  # as when half of the time goes into telling of the steps
        told["steps"] = [step | {"took": step["took"] / 2} for step in told["steps"]]
    view = draw(answer=answer)
    rates = {q.says["en"]: q.inputs["seconds"] for q in view.papers if q.says["en"].endswith("per second")}
    for q in view.papers:
        if q.says["en"].endswith("p99 latency"):
            assert q.value <= rates[q.says["en"].replace("p99 latency", "tokens written per second")]


def test_a_priced_step_takes_at_least_the_weights():
    """Catches: steps shown as seconds, a price without the weights, an ideal bound passed off as measured."""
    priced, result = draw(Params(clock="priced")), WIDGET.run(Params(clock="priced"))
    plain = WIDGET.run(Params())
    for made, step in zip(result.traces, plain.traces):
        assert [at.lanes for at in made.steps] == [at.lanes for at in step.steps], "a price changes no plan here"
        weights_once = 51.25e9 / 3.35e12  # bytes of the anchor's weights over the bandwidth of an H100
        assert 0.99 < made.seconds / (weights_once * len(made.steps)) < 1.1
    assert {q.kind for q in priced.papers} == {"computed"} and "H100" in priced.simplified and result.mark == "computed"


def test_the_live_servers_trace_has_one_panel():
    """Catches: a record of the live server that the lesson's player cannot read."""
    params, answer = Params(source="live"), executed("chunked")
    for lang in ("zh", "en"):
        view = draw(params, lang, answer)
        assert len(view.picture.data["runs"]) == 1 and not view.picture.data["waiting"]
        assert 3 <= len(view.readouts) <= 5 and "|" not in view.readouts[0].value
    waiting = draw(params)
    assert waiting.picture.data["waiting"] and len(waiting.picture.data["runs"]) == 2, "the lesson's, until it is fetched"


def test_a_record_that_begins_in_the_middle_is_drawn():
    """Catches: a trimmed record with sequences whose beginning it lacks, and a cancelled one that keeps its slot for ever."""

    def step(at, lanes, finished=()):
        return Step(at + 1.0, 0.5, tuple((lane, id, "decode", 1, 1) for lane, id in lanes), 0, len(lanes), 3, (), finished)

    made = Trace("chunked", 3, 64, 16, (
        Life(7, 5, 4, -20.0, -19.0, -18.0, 2.0, 22), Life(8, 6, 4, 0.0, 0.2, 0.4, 1.2, 1, cancelled=True), Life(9, 7, 4, 1.0, 2.3, 2.5, None, 2),
    ), (step(0, [(0, 7), (1, 8)]), step(1, [(0, 7)], (7,)), step(2, [(2, 9)]), step(3, [(2, 9)])), "second", first=140)  # fmt: skip
    assert segments(made) == [[0, 7, 0, 2, DECODE], [1, 8, 0, 1, DECODE], [2, 9, 2, 2, DECODE]]
    answer = json.loads(json.dumps({"traces": [made.to_json()], "conditions": {"model": "mini-256"}}, default=list))
    run = draw(Params(source="live"), "en", answer).picture.data["runs"][0]
    assert run["lives"][6] == [0, 0, 1, 4, 22, 0] and run["lives"][8][2] is None


def test_the_live_call_is_one_that_the_service_accepts():
    """Catches: a parameter renamed on one side only; a highlighted request that throws the answer away."""
    for params in (Params(), Params(left="chunked", right="prefill-first", slots=16, blocks=16, budget=64, preemption="swap"), Params(source="live")):
        arguments = WIDGET.live.arguments(params)
        assert functions.check(WIDGET.live.function, arguments).items() >= arguments.items()
    assert WIDGET.live.arguments(Params(request=5)) == WIDGET.live.arguments(Params())


def test_every_setting_runs_to_its_end():
    """Catches: memory so short that a request never fits, or a slider's end that raises."""
    for blocks in (16, TIGHT, 1024):
        for slots in (1, 16):
            for policy in POLICIES:
                made = trace(policy, requests(), slots=slots, blocks=blocks, budget=1)
                assert all(life.finished is not None and life.written == OUTPUTS[life.id] for life in made.sequences)


def test_the_rows_follow_every_request():
    """Catches: a download that lacks a policy or a request, or steps that do not fit the picture."""
    rows = draw().rows
    assert len(rows) == 2 * COUNT and {row["policy"] for row in rows} == {"static", "continuous"}
    for row in rows:
        assert row["latency_steps"] == row["last_step"] and row["last_step"] - row["first_step"] + 1 == row["written_tokens"]


NODE = """
import { readFileSync } from 'node:fs';
const { code, sets } = JSON.parse(readFileSync(0, 'utf8')), view = await import('data:text/javascript,' + encodeURIComponent(code));
const pen = () => {
  const calls = [], canvas = { style: {} };
  return { calls, g: new Proxy({ canvas }, { get: (own, name) => own[name] ?? ((...given) => calls.push([name, ...given])), set: (own, name, value) => { calls.push([name, value]); return true; } }) };
};
const tools = { lang: 'zh', still: false, moved: false, local: {}, redraw() {}, colour: (n) => n, font: (n) => n, words: (k, v) => k + JSON.stringify(v ?? ''), measure: (s, px) => String(s).length * px * .6, number: (n) => n.toLocaleString('en-US'), esc: (s) => s };
for (const { data, n } of sets) {
  const at = (t, width) => { const { calls, g } = pen(); view.draw(g, data, t, { ...tools, width, local: {} }); return JSON.stringify(calls, (k, v) => (typeof v === 'number' && !Number.isFinite(v) ? 'BAD' : v === undefined ? 'BAD' : v)); };
  const first = at(n >> 1, 1152); at(n - 1, 390);
  if (at(n >> 1, 1152) !== first) throw new Error('not pure');
  for (let t = 0; t < n; t += Math.max(1, Math.floor(n / 9))) for (const width of [390, 719, 1152]) {
    const told = at(t, width), said = view.says(data, t, tools);
    if (/BAD|NaN|undefined|Infinity/.test(told + said)) throw new Error(`step ${t}, ${width} px: ${(told + said).match(/.{80}(BAD|NaN|undefined|Infinity).{20}/)?.[0]}`);
    const outside = JSON.parse(told).filter(([name, x, y, w]) => name === 'fillRect' && (x < -1 || x + w > width + 4));
    if (outside.length) throw new Error(`step ${t}, ${width} px: outside ${JSON.stringify(outside[0])}`);
  }
}
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
def test_the_picture_is_a_function_of_the_step():
    """Catches: a drawing that depends on what was drawn before, a coordinate that is no number, a bar beyond the picture."""
    sets = []
    before = WIDGET.run(Params())
    for params, answer in (
        (Params(), None), (Params(left="prefill-first", right="chunked", blocks=TIGHT, budget=4, request=12), None),
        (Params(slots=16, right="static"), None), (Params(source="live"), executed("chunked")), (Params(source="live"), None), (Params(slots=1), None),
    ):  # fmt: skip
        stage = draw(params, "en", answer, before).picture
        sets.append({"data": json.loads(json.dumps(functions.plain(stage.data))), "n": stage.steps})
    view = (WIDGET.folder / "view.js").read_text(encoding="utf-8")
    run = subprocess.run(["node", "--input-type=module", "-e", NODE], input=json.dumps({"code": view, "sets": sets}), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-1500:]
