"""The sizing of a class as an instrument: its figures against sizing.plan, its ruler against both, and what it says."""

import json
import re
import shutil
import subprocess

import pydantic
import pytest

from components import Scene
from components.sizing import LEARNERS, STOPS, TEXTS, WIDGET, Params, asked, bits, run
from components.text import LANGUAGES, digits
from compute import sizing
from compute.errors import BadInput, Refused, UnknownName

LARGE = dict(chip="h100-sxm", model="qwen3.8-27b", tokens=512, texts=1)


def view(lang: str = "en", before: dict | None = None, **params):
    return WIDGET.draw(run(Params(**params)), Scene(WIDGET.words(lang), lang, "light", None if before is None else run(Params(**before))))


def row(shown, id: str) -> dict:
    return next(row for row in shown.picture.data["rows"] if row["id"] == id)


@pytest.mark.parametrize("params", [{}, {"learners": 100_000, "actions": 10}, LARGE, {"texts": 0, "actions": 0, "arrive": 60}])
def test_its_figures_are_the_plan(params):
    """Catches a parameter that does not reach sizing.plan, minutes that arrive as another argument, and bytes shown as bits."""
    plan = sizing.plan(**asked(Params(**params)))
    needed, shown = {name: quantity.value for name, quantity in plan.needed.items()}, view(**params)
    line = 8 * max(needed["bandwidth_at_first"], needed["bandwidth_later"])
    assert [figure.value for figure in shown.readouts] == [f"{needed['web_servers']:,}", shown.readouts[1].value, f"{needed['engines']:,}", digits(needed["nginx_cores"]), bits(line)[0]]
    assert float(shown.readouts[1].value.replace(",", "")) * {"MB": 1e6, "GB": 1e9, "TB": 1e12}[shown.readouts[1].unit] == pytest.approx(needed["web_memory"], rel=5e-3)
    rows = {row["learners"]: row for row in shown.rows}
    assert set(rows) == {*STOPS, Params(**params).learners}
    for learners in (30, 100_000):
        assert rows[learners]["web_servers (count)"] == sizing.plan(**asked(Params(**params)) | {"learners": learners}).needed["web_servers"].value
    assert {*map(repr, plan.needed.values()), *map(repr, plan.one.values())} <= {*map(repr, shown.papers)}


def test_the_line_between_is_exact_on_log_axes():
    """Catches a bend in the wrong place: between two of its points the line is straight, with a flat part where arriving is more work."""
    assert len(run(Params(arrive=1)).even) == 3
    for params in (Params(), Params(arrive=1), Params(**LARGE)):
        found = run(params)
        for (x0, y0), (x1, y1) in zip(found.even, found.even[1:]):
            middle = (x0 * x1) ** 0.5
            assert sizing.plan(**asked(params) | {"actions_per_minute": middle}).turnover.value == pytest.approx((y0 * y1) ** 0.5), middle


def test_scales_stand_where_their_numbers_are():
    """Catches a tick of memory or bandwidth that belongs to another class."""
    found, shown = run(Params()), view()
    scale = row(shown, "memory")["scale"]
    assert len(scale) >= 2
    for learners, said in scale:
        size = float(said[:-3]) * {"GB": 1e9, "TB": 1e12}[said[-2:]]
        assert found.memory(learners / 1.001) < size <= found.memory(learners * 1.001)
    for learners, said in row(shown, "band")["scale"]:
        number, unit = said.split(" ")
        assert learners * row(shown, "band")["each"] == pytest.approx(float(number) * {"kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9}[unit])
    web = row(shown, "web")
    assert web["scale"][:2] == [[web["full"] * n, f"{n}"] for n in (1, 10)] and web["scale"][-1][0] <= LEARNERS[1] < 10 * web["scale"][-1][0]


def test_an_estimate_is_no_measurement():
    """Catches a GPU drawn like a measured engine, and a bound that is not beside it."""
    measured, estimated = row(view(), "engine"), row(view(**LARGE), "engine")
    assert not measured["estimate"] and measured["bound"] is None
    assert estimated["estimate"] and estimated["bound"] > estimated["full"]
    assert "not measured" in view(**LARGE).simplified and "not measured" not in view().simplified
    assert "estimated: " in view(**LARGE).after[1].body and "estimated: " not in view().after[1].body


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_sentence_says_what_most_machines_do(lang):
    """Catches pages blamed where engines need more, a comparison of classes too small for one, and engines where nobody writes."""
    words = WIDGET.words(lang)
    begins = {name: words(f"says.{name}").split("{")[0] for name in ("pages", "tokens", "equal")}
    for params, name in (({}, "pages"), ({"texts": 60}, "tokens"), (LARGE | {"texts": 10}, "tokens"), ({"learners": 30}, "equal")):
        said = view(lang, **params).sentence
        assert [each for each, beginning in begins.items() if beginning in said] == [name], params
    assert words("none.engine") in view(lang, texts=0).sentence
    even = digits(sizing.plan(3000).turnover.value)
    assert even in view(lang).sentence and digits(run(Params()).carries["web"]) in view(lang).sentence


def test_a_move_leaves_its_ghosts():
    """Catches a ghost of what did not move, and none of what did."""
    moved = view(before={}, learners=300).picture.data
    assert moved["was"] == 3000 and all(row.get("was") is None for row in moved["rows"])
    busier = view(before={}, actions=20)
    assert busier.picture.data["was"] is None and row(busier, "web")["was"] > row(busier, "web")["full"] and row(busier, "nginx")["was"] is None
    assert busier.readouts[0].change == f"was {sizing.plan(3000).needed['web_servers'].value}" and not busier.readouts[2].change
    assert sum("strokeDash" in json.dumps(layer) for layer in busier.beside[1].spec["layer"]) == 1


def test_what_cannot_be_is_refused():
    """Catches a plan for an engine that nobody measured, or a model that the card cannot hold."""
    with pytest.raises(BadInput, match="without a chip"):
        run(Params(model="qwen3-8b"))
    with pytest.raises(Refused, match="does not fit"):
        run(Params(model="qwen3.8-27b", chip="rtx-4090"))
    for wrong in ({"learners": LEARNERS[1] + 1}, {"learners": 5}, {"texts": TEXTS[1] + 1}, {"busy": 0}):
        with pytest.raises(pydantic.ValidationError):
            Params(**wrong)
    with pytest.raises(UnknownName, match="cpu"):
        Params(chip="abacus")


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here; the browser draws the same picture")
@pytest.mark.parametrize("params, before", [({}, None), ({"learners": 100_000, "actions": 60, "busy": 0.1}, {}), ({"learners": 10, "texts": 0}, {}), (LARGE, {"learners": 42}), (LARGE | {"texts": 60, "tokens": 4096, "batch": 16}, None)])
def test_the_picture_says_the_plan_and_stays_inside_itself(params, before):
    """Catches a figure of the browser's own arithmetic that is not the plan's, at the class and wherever it is dragged; coordinates that are
    no numbers; words of another language; a mark outside."""
    classes = [params.get("learners", 3000), 77, 3100, 99_000]
    expected = []
    for learners in classes:
        needed = {name: quantity.value for name, quantity in sizing.plan(**asked(Params(**params)) | {"learners": learners}).needed.items()}
        line = bits(8 * max(needed["bandwidth_at_first"], needed["bandwidth_later"]))
        expected.append([f"{needed['web_servers']:,}", f"{needed['engines']:,}", digits(needed["nginx_cores"]), *line])
    data, words = json.dumps(view(before=before, **params).picture.data), json.dumps(WIDGET.words("en").table)
    source = re.sub("^export ", "", (WIDGET.folder / "view.js").read_text(encoding="utf-8"), flags=re.MULTILINE)
    script = source + """
    const data = JSON.parse(process.argv[1]), words = JSON.parse(process.argv[2]), classes = JSON.parse(process.argv[3]), found = [];
    const tools = { colour: (n) => n, words: (k, values = {}) => (words['view.' + k] ?? (() => { throw new Error(k); })()).replace(/\\{(\\w+)\\}/g, (_, n) => values[n]),
      measure: (s, px) => s.length * px * .55, esc: String, wrap: (s) => [s], slide() {}, local: {} };
    for (const width of [1024, 358]) {
      const high = height(data, width, tools), svg = { style: {} };
      draw(svg, data, 0, { ...tools, width, local: {} });
      const drawn = svg.innerHTML;
      if (/NaN|undefined|Infinity|[\\u4e00-\\u9fff]/.test(drawn)) throw new Error(drawn.match(/.{60}(NaN|undefined|Infinity|[\\u4e00-\\u9fff])/)[0]);
      for (const [, x, y] of drawn.matchAll(/<circle[^>]*cx="([^"]+)" cy="([^"]+)"/g)) if (+x < 0 || +x > width || +y < 0 || +y > high) throw new Error(['outside', x, y].join(' '));
      for (const [, x, w] of drawn.matchAll(/<rect x="([^"]+)" y="[^"]+" width="([^"]+)"/g)) if (+w < 0 || +x + +w > width) throw new Error(['outside', x, w].join(' '));
    }
    for (const at of classes) { const [web, engine, nginx, , band] = data.rows.map((row) => need(row, at)); found.push([web[0], engine[0], nginx[0], ...band]); }
    console.log(JSON.stringify(found));
    """
    done = subprocess.run(["node", "--input-type=module", "-e", script, data, words, json.dumps(classes)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-600:]
    assert json.loads(done.stdout) == expected
