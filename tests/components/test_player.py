"""The player in a real Chromium, with toy pictures of its own: what must hold for every widget that draws itself."""

import json
import shutil
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field

import pytest

from components import player, theme
from tests.browser.conftest import end, free_port, launch

VIEW = """
export const rate = 10;
export function draw(picture, data, t, tools) {
  picture.innerHTML = `<rect width="${tools.width / data.n * (t + 1)}" height="20" fill="${tools.colour('kv')}"/>
    <text x="0" y="40" data-moved="${tools.moved}" data-still="${tools.still}">${data.letters[t]} ${tools.words('hello', { t })}</text>`;
  picture.onclick = (event) => tools.pick(event.target.tagName === 'rect' ? 'letter' : 'forbidden', data.letters[t]);
}
export function says(data, t) { return `letter ${data.letters[t]} of ${data.n}`; }
"""
LANES = """
export const surface = 'canvas';
export const rate = 60;
export function draw(g, data, t, tools) {
  for (let lane = 0; lane < 64; lane++) for (let k = 0; k <= t; k++) {
    g.fillStyle = tools.colour((lane + k) % 3 ? 'kv' : 'weights');
    g.fillRect(k * tools.width / 300, lane * 6, tools.width / 300, 5);
  }
}
"""
TOYS = """
import sys
from pathlib import Path
from types import SimpleNamespace
from components import player
from components.text import load_words
HERE = Path(__file__).parent
def toy(name):
    folder = HERE / name
    player._MOUNTS[name] = player._register(folder)
    return SimpleNamespace(folder=folder, words=lambda lang: load_words(folder / "text.toml", lang))
WIDGETS = {name: toy(name) for name in ("toy", "lanes")}
"""
APP = """
import streamlit as st
import toys
from components import Stage, player, theme
st.html(f"<style>{theme.css()}</style>")
asked = st.query_params
steps = int(asked.get("steps", 26))
st.session_state["runs"] = st.session_state.get("runs", 0) + 1
letters = "abcdefghijklmnopqrstuvwxyz" if not st.checkbox("capitals") else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
if st.checkbox("shorter"):
    steps = 10
st.button("restart", on_click=lambda: player.place("p", None))
st.button("seven", on_click=lambda: player.place("p", 7))
data = {"n": steps, "letters": letters}
player.show(toys.WIDGETS[asked.get("toy", "toy")], "p", Stage(data, steps=steps, height=60, start=int(asked.get("start", 0)), picks=("letter",)), "the whole", "en",
            picked=lambda field, value: st.session_state.update({field: value}))
st.write(f"letter {st.session_state.get('letter')}, forbidden {st.session_state.get('forbidden')}")
st.write(f"runs {st.session_state['runs']}, reached {player.step('p')}.")
"""
TEXT = '[zh]\ntitle = "玩具"\nview.hello = "第{t}步"\n[en]\ntitle = "Toy"\nview.hello = "step {t}"\n'


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    for name, view in (("toy", VIEW), ("lanes", LANES)):
        (folder / name).mkdir()
        (folder / name / "view.js").write_text(view, encoding="utf-8")
        (folder / name / "text.toml").write_text(TEXT, encoding="utf-8")
    (folder / "toys.py").write_text(TOYS, encoding="utf-8")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    port = free_port()
    process = launch(["streamlit", "run", str(folder / "app.py"), "--server.port", str(port), "--server.address", "127.0.0.1"], None)
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{url}/_stcore/health", timeout=1).close()
            break
        except OSError:
            assert process.poll() is None, "the toy app did not start"
            time.sleep(0.2)
    yield url
    end(process)


@dataclass
class Toy:
    page: object
    sent: list = field(default_factory=list)

    @property
    def box(self):
        return self.page.locator(".player")

    @property
    def t(self) -> int:
        return int(self.box.get_attribute("data-t"))

    @property
    def drawing(self) -> str:
        return self.page.locator(".picture svg").evaluate("e => e.innerHTML.replace(/data-moved=.*?>/, '>')")

    @property
    def label(self) -> str:
        return self.page.locator(".picture [role=img]").get_attribute("aria-label")

    def press(self, *keys: str) -> None:
        self.box.focus()
        for key in keys:
            self.page.keyboard.press(key)

    def settle(self) -> None:
        """Until nothing was said for longer than the player waits for a gesture to end, and the run is over."""
        said = -1
        while said != len(self.sent):
            said = len(self.sent)
            self.page.wait_for_timeout(600)
            self.page.wait_for_selector(".stApp[data-test-script-state='notRunning']")

    def python(self) -> tuple[int, int | None]:
        text = self.page.get_by_text("runs ").inner_text()
        runs, reached = text.removesuffix(".").removeprefix("runs ").split(", reached ")
        return int(runs), None if reached == "None" else int(reached)


@pytest.fixture()
def open_toy(chromium, address):
    contexts = []

    def open(query: str = "", **look) -> Toy:
        context = chromium.new_context(viewport={"width": look.pop("width", 1000), "height": 900}, **look)
        contexts.append(context)
        toy = Toy(context.new_page())
        toy.page.on("websocket", lambda socket: socket.on("framesent", lambda frame: toy.sent.append(frame)))
        toy.page.goto(f"{address}/?{query}")
        toy.page.wait_for_selector(".player[data-t]")
        toy.settle()
        return toy

    yield open
    for context in contexts:
        context.close()


def test_playing_sends_nothing_and_the_step_is_kept(open_toy):
    """Catches a server round trip per frame, and a position that is lost or set back by the rerun after a pause."""
    toy = open_toy()
    before = len(toy.sent)
    toy.page.get_by_role("button", name="Play").click()
    toy.page.wait_for_timeout(900)
    assert toy.t > 3, "it does not play"
    assert len(toy.sent) == before, "messages while it was playing"
    toy.page.get_by_role("button", name="Pause").click()
    reached = toy.t
    toy.settle()
    assert toy.t == reached and toy.python() == (2, reached)
    assert len(toy.sent) == before + 1


def test_it_stops_at_the_end_and_starts_over(open_toy):
    """Catches a clock that runs on behind the last step, and a play button that does nothing there."""
    toy = open_toy()
    toy.press("End", "ArrowLeft", "ArrowLeft", " ")
    toy.page.wait_for_function("() => document.querySelector('.stApp').innerText.includes('reached 25')", timeout=10_000)
    assert toy.t == 25 and toy.box.get_attribute("data-playing") is None
    toy.press(" ")
    toy.page.wait_for_timeout(300)
    assert toy.t < 20 and toy.box.get_attribute("data-playing") is not None


def test_keys(open_toy):
    """Catches a dead key, a key that moves twice, and R reaching the page's own shortcut (a rerun)."""
    toy = open_toy()
    for keys, expected in ((["ArrowRight"], 1), (["ArrowRight"] * 4, 5), (["ArrowLeft"], 4), (["End"], 25), (["ArrowRight"], 25), (["Home"], 0),
                           (["ArrowLeft"], 0), (["ArrowRight", "ArrowRight", "r"], 0)):
        toy.press(*keys)
        assert toy.t == expected, keys
    toy.settle()
    runs, _ = toy.python()
    toy.press("r")
    toy.settle()
    assert toy.python()[0] == runs, "R ran the script"
    toy.press(" ")
    assert toy.box.get_attribute("data-playing") is not None
    toy.press(" ")
    assert toy.box.get_attribute("data-playing") is None


def test_a_held_key_is_one_message(open_toy):
    """Catches a rerun for each repeat of an arrow key."""
    toy = open_toy()
    before = len(toy.sent)
    toy.press(*["ArrowRight"] * 12)
    toy.settle()
    assert toy.python()[1] == 12 and len(toy.sent) == before + 1


def test_scrub(open_toy):
    """Catches a slider that talks while it is dragged, or that shows another step than the picture."""
    toy = open_toy()
    before, track = len(toy.sent), toy.page.locator(".scrub").bounding_box()
    middle = track["y"] + track["height"] / 2
    toy.page.mouse.move(track["x"] + 10, middle)
    toy.page.mouse.down()
    for part in (0.2, 0.5, 0.8):
        toy.page.mouse.move(track["x"] + track["width"] * part, middle)
    toy.page.wait_for_timeout(400)
    assert len(toy.sent) == before and 18 <= toy.t <= 22
    toy.page.mouse.up()
    toy.settle()
    assert toy.python()[1] == toy.t and len(toy.sent) == before + 1
    assert toy.page.locator(".scrub").input_value() == str(toy.t)


def test_stepping_back_is_exact(open_toy):
    """Catches a picture that depends on how its step was reached."""
    toy = open_toy()
    forward = []
    for _ in range(8):
        forward.append(toy.drawing)
        toy.press("ArrowRight")
    toy.press("End")
    toy.press(*["ArrowLeft"] * (25 - 8))
    for expected in reversed(forward):
        toy.press("ArrowLeft")
        assert toy.drawing == expected


def test_new_data_keep_the_step_and_the_handlers(open_toy):
    """Catches handlers bound again on every call of the component (one press, two steps) and a jump to the start."""
    toy = open_toy()
    toy.press("ArrowRight", "ArrowRight", "ArrowRight")
    toy.settle()
    toy.page.get_by_text("capitals").click()
    toy.settle()
    assert toy.t == 3 and "D step 3" in toy.drawing
    toy.press("ArrowRight")
    assert toy.t == 4
    toy.press("End")
    toy.settle()
    toy.page.get_by_text("shorter").click()
    toy.settle()
    assert toy.t == 9, "a shorter run ends earlier"


def test_python_can_move_it(open_toy):
    """Catches a reset that the browser overrules with its own step."""
    toy = open_toy("start=20")
    assert toy.t == 20, "it opens where the stage says"
    toy.press("Home")
    toy.settle()
    toy.page.get_by_role("button", name="seven").click()
    toy.settle()
    assert toy.t == 7
    toy.page.get_by_role("button", name="restart").click()
    toy.settle()
    assert toy.t == 20


def test_a_control_moved_in_mid_play_does_not_stop_or_set_back(open_toy):
    """Catches a run that jumps back to the step Python last heard of, as it hears nothing while the player plays."""
    toy = open_toy()
    toy.press("ArrowRight")
    toy.settle()
    toy.press(" ")
    toy.page.wait_for_timeout(600)
    toy.page.get_by_text("capitals").click()
    toy.page.wait_for_selector("text=/[B-Z] step/")
    toy.page.wait_for_timeout(200)
    assert toy.box.get_attribute("data-playing") is not None and toy.t >= 6


def test_the_text_equivalent_follows(open_toy):
    """Catches an aria-label that describes another step."""
    toy = open_toy()
    assert toy.label == "letter a of 26"
    toy.press("ArrowRight", "ArrowRight")
    assert toy.label == "letter c of 26"
    assert toy.page.locator(".scrub").get_attribute("aria-valuetext") == "step 3 of 26"


def test_a_single_step_has_no_transport(open_toy):
    """Catches a play button under a still picture."""
    toy = open_toy("steps=1")
    assert not toy.page.locator(".transport").is_visible() and toy.page.locator(".picture svg").is_visible()


def test_a_click_in_the_picture_sets_a_parameter(open_toy):
    """Catches: a click that is heard once only, or of the step before, and a field that the stage does not give away."""
    toy = open_toy()
    toy.page.locator(".picture rect").click()
    toy.page.get_by_text("letter a, forbidden None").wait_for()
    toy.press("ArrowRight", "ArrowRight")
    toy.page.locator(".picture rect").click()
    toy.page.get_by_text("letter c, forbidden None").wait_for()
    toy.page.locator(".picture text").click()
    toy.settle()
    assert toy.page.get_by_text("letter c, forbidden None").is_visible()


def test_reduced_motion(open_toy):
    """Catches a flash for readers who asked for none; stepping itself goes on."""
    moved = "e => e.dataset.moved"
    lively = open_toy()
    lively.press("ArrowRight")
    assert lively.page.locator(".picture text").evaluate(moved) == "true"
    still = open_toy(reduced_motion="reduce")
    still.press("ArrowRight")
    assert still.t == 1 and still.page.locator(".picture text").evaluate(moved) == "false"


def rgb(concept: str, look: str) -> str:
    return ",".join(str(byte) for byte in bytes.fromhex(theme.colour(concept, look)[1:]))


def test_colours_follow_the_theme(open_toy):
    """Catches a canvas that keeps the light colours in the dark, and an svg that has none."""
    toy = open_toy("toy=lanes&steps=300&start=299")
    canvas = toy.page.locator("canvas[data-picture]")  # looked up each time: a change of theme may put a new one in its place
    pixel = "canvas => [...canvas.getContext('2d').getImageData(1, 1, 1, 1).data].join()"
    for look in ("light", "dark", "light"):
        toy.page.emulate_media(color_scheme=look)
        tries = (toy.page.wait_for_timeout(100) or canvas.evaluate(pixel) == f"{rgb('weights', look)},255" for _ in range(150))
        assert any(tries)
    filled = open_toy().page.locator(".picture rect").evaluate("e => getComputedStyle(e).fill")
    assert filled.replace(" ", "") == f"rgb({rgb('kv', 'light')})"


def test_it_fits_a_phone(open_toy):
    """Catches a transport bar that is wider than the screen, and a picture that keeps the width it was born with."""
    toy = open_toy(width=390)
    assert toy.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
    right = toy.page.locator(".transport").evaluate("e => Math.max(...[...e.children].map((c) => c.getBoundingClientRect().right))")
    assert right <= 390
    toy.page.set_viewport_size({"width": 800, "height": 900})
    toy.page.wait_for_timeout(300)
    wide = toy.page.locator(".picture svg").evaluate("e => [e.viewBox.baseVal.width, e.clientWidth]")
    assert wide[0] == wide[1] > 390


def test_a_view_without_draw_is_refused():
    """Catches a view.js that would fail only in the reader's browser."""
    with pytest.raises(ImportError, match="draw"):
        player.source("export const rate = 1;")
    assert "return { rate, draw };" in player.source("export const rate = 2;\nexport function draw() {}\n")


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
@pytest.mark.parametrize("text,lines", [
    ("one two three", ["one two", "three"]),
    ("一二三四，五六七。", ["一二三", "四，五六", "七。"]),
    ("共 16 块", ["共 16 块"]),
    ("", [""]),
    ("unbreakable", ["unbreakable"]),
])  # fmt: skip
def test_long_sentences_are_broken_where_a_reader_expects_it(text, lines):
    """A letter is 10 wide, a Han character 20, a line 80. Catches a line that begins with a comma, a word cut in two, an empty first line."""
    code = (player.HERE / "player.js").read_text(encoding="utf-8")
    code += f"\nconst wide = (s) => [...s].reduce((sum, c) => sum + (c > '⺀' ? 20 : 10), 0);\nconsole.log(JSON.stringify(wrap({json.dumps(text)}, 80, wide)));"
    made = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True)
    assert json.loads(made.stdout) == lines, made.stderr


RAIL = """
const calls = [], heard = [], local = { at: 5 }, dot = { isConnected: true, focus: () => calls.push('focus') };
const svg = { style: {}, querySelector: () => dot, setPointerCapture() {}, getBoundingClientRect: () => ({ left: 100, top: 50, width: 200 }) };
const rail = (at) => ({ field: 'n', at, ends: [0, 10], takes: (x, y) => y < 30, value: (x) => Math.round(x / 40), on: (steps) => Math.min(10, local.at + steps) });
const place = (at) => slide(svg, rail(at), { local, width: 400, redraw: () => { calls.push(local.at); place(local.rail.at); }, pick: (field, value) => heard.push(value) });
const event = (more) => ({ pointerType: 'mouse', preventDefault() {}, stopPropagation() {}, ...more });
const wait = (ms) => new Promise((done) => setTimeout(done, ms)), told = [];
const end = (name) => { told.push([name, local.at, Boolean(local.moving), calls.splice(0), heard.splice(0)]); };
place(5);
dot.onfocus();
for (const key of ['ArrowRight', 'ArrowUp', 'PageDown', 'x']) dot.onkeydown(event({ key }));
end('keys, before they rest');
await wait(SETTLED_MS + 100); end('at rest');
dot.onkeydown(event({ key: 'End' })); place(10); await wait(SETTLED_MS + 100); end('the last answer says the same');
svg.onpointerdown(event({ clientX: 110, clientY: 90 })); end('elsewhere');
svg.onpointerdown(event({ clientX: 140, clientY: 60 })); svg.onpointermove(event({ clientX: 160, clientY: 200 })); end('held');
svg.onpointerup(event({ type: 'pointerup' })); svg.onpointermove(event({ clientX: 200, clientY: 60 })); end('let go');
svg.onpointerdown(event({ clientX: 200, clientY: 60 })); svg.onpointercancel(event({ type: 'pointercancel' })); end('a finger that scrolled');
console.log(JSON.stringify(told));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_a_handle_on_a_line_is_told_once_it_rests():
    """Catches: a key that nobody hears of or that is told at every press, a parameter set to what it is already, a finger that scrolls and
    sets one, a pixel of the window taken for one of the picture, a new handle without the focus."""
    made = subprocess.run(["node", "--input-type=module", "-e", (player.HERE / "player.js").read_text(encoding="utf-8") + RAIL], capture_output=True, text=True)
    assert json.loads(made.stdout or "null") == [
        ["keys, before they rest", 2, True, [6, "focus", 7, "focus", 2, "focus"], []],
        ["at rest", 2, False, [], [2]],
        ["the last answer says the same", 10, False, [10, "focus", "focus"], []],
        ["elsewhere", 10, False, [], []],
        ["held", 3, True, [2, "focus", 3, "focus"], []],
        ["let go", 3, False, [3, "focus"], [3]],
        ["a finger that scrolled", 10, False, [5, "focus", 10, "focus"], []],
    ], made.stderr
