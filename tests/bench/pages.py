"""How fast the pages answer, in a real Chromium: `python -m tests.bench.pages [--rounds 30] [--json]`.

A control's change: from the key or click event in the page to the animation frame after the last change of the picture and
of the sentence under it; both must have changed, and then nothing for QUIET_MS. So the time holds the browser's own work, the
way to the server and back, the script's rerun, and drawing.
The player: animation frames while it plays, and messages to the server meanwhile.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Iterator

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import end, free_port, launch, start_service, start_web, visit
from tests.browser.test_lesson_one import SKIPPED, drawn, frame, slider
from tests.components import test_player as toys
from tests.conftest import FLAGS

QUIET_MS = 400  # nothing may change for so long before an update counts as done
WARM_UP = 2  # rounds that are not counted
PLAYED_S = 4.0
LANES, STEPS = 64, 300

# Timestamps of events and of performance.now() count from the same zero.
WATCH = """(frame) => {
  const sentence = () => frame.querySelector('.lab-says')?.textContent;
  const self = (window.__bench = { asked: null, before: sentence(), picture: null, said: null });
  const at = (what) => requestAnimationFrame((now) => { self[what] = Math.max(now, performance.now()); });
  for (const kind of ['keydown', 'pointerdown']) addEventListener(kind, (e) => { self.asked ??= e.timeStamp; }, { capture: true });
  const look = (records) => {
    if (self.asked === null) return;
    const nodes = records.map((r) => (r.target.nodeType === Node.ELEMENT_NODE ? r.target : r.target.parentElement)).filter(Boolean);
    if (nodes.some((n) => n.closest('svg[data-picture], svg.marks, .vega-embed') || n.querySelector?.('svg.marks'))) at('picture');
    if (sentence() !== self.before) { self.before = sentence(); at('said'); }
  };
  const all = { subtree: true, childList: true, characterData: true, attributes: true };
  const watch = (root) => {
    new MutationObserver(look).observe(root, all);
    for (const node of root.querySelectorAll('*')) if (node.shadowRoot) watch(node.shadowRoot);
  };
  watch(frame);
}"""
DONE = """(quiet) => { const b = window.__bench, last = Math.max(b.picture, b.said);
  return b.picture && b.said && performance.now() - last > quiet ? last - b.asked : null; }"""
AGAIN = "() => Object.assign(window.__bench, { asked: null, picture: null, said: null })"
FRAMES = """(seconds) => new Promise((done) => { const times = [], tick = (now) => {
  times.push(now); if (now - times[0] < seconds * 1000) requestAnimationFrame(tick); else done(times); }; requestAnimationFrame(tick); })"""


@dataclass(frozen=True)
class Update:
    """One control of one widget; milliseconds over `rounds` changes."""

    widget: str
    control: str
    rounds: int
    median_ms: float
    p95_ms: float
    slowest_ms: float


@dataclass(frozen=True)
class Play:
    """A player while it plays; frames are the browser's animation frames."""

    what: str
    seconds: float
    frames_per_second: float
    p95_frame_ms: float
    steps_shown: int
    messages_to_server: int


def conditions() -> dict[str, Any]:
    """What a figure depends on."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()) + " UTC",
        "cpu": cpu_name(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "streamlit": version("streamlit"),
        "load average": [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None,
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def own_output():
    """Standard output for the figures alone; what the started servers print goes to standard error."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


@contextmanager
def chromium() -> Iterator[Any]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ.get("INFERENCE_LAB_CHROMIUM", "/usr/bin/chromium"), args=list(FLAGS))
        yield browser
        browser.close()


# ---- a control's change


def by_key(page: Page, key: str, field: str):
    """Right, left, right, …: every press is a change."""
    box = slider(page, key, field)
    return lambda round: box.press("ArrowRight" if round % 2 == 0 else "ArrowLeft")


def by_click(page: Page, key: str, names: tuple[str, str]):
    """One mark of the chart, the other, the one, …"""
    return lambda round: frame(page, key).locator(f"svg path[aria-label*='{names[round % 2]}']").first.click()


def update(page: Page, widget: str, control: str, act, rounds: int) -> Update:
    frame(page, widget).scroll_into_view_if_needed()
    frame(page, widget).evaluate(WATCH)
    times = []
    for round in range(WARM_UP + rounds):
        page.evaluate(AGAIN)
        act(round)
        times.append(page.wait_for_function(DONE, arg=QUIET_MS, polling=50, timeout=30_000).json_value())
    kept = times[WARM_UP:]
    return Update(widget, control, rounds, statistics.median(kept), percentile(kept, 0.95), max(kept))


LESSON_ONE = f"/roofline?{SKIPPED}"
OVERLAY = "/speculative?overlay.guess=skip"
QUANTIZATION = "/quantization?grid.2.guess=skip"
SERVING = "/serving?" + "&".join(f"{key}.guess=skip" for key in ("frontier", "chunked-prefill", "judged", "load-lab", "load-lab.2", "tokenizers"))


def updates(browser, url: str, rounds: int, only: str) -> list[Update]:
    found = []
    for address, widget, control, act in (
        (LESSON_ONE, "time-ledger", "batch, arrow keys", lambda page: by_key(page, "time-ledger", "batch")),
        (LESSON_ONE, "roofline-placer", "batch, arrow keys", lambda page: by_key(page, "roofline-placer", "batch")),
        (LESSON_ONE, "roofline-placer", "chip, a click on its triangle", lambda page: by_click(page, "roofline-placer", ("H200 SXM", "H100 SXM"))),
        (LESSON_ONE, "kv-stepper", "new tokens, arrow keys", lambda page: by_key(page, "kv-stepper", "new")),
        (LESSON_ONE, "kv-calculator", "context, arrow keys", lambda page: by_key(page, "kv-calculator", "context")),
        (OVERLAY, "overlay", "temperature, arrow keys", lambda page: by_key(page, "overlay", "temperature")),
        (QUANTIZATION, "grid.2", "outlier, arrow keys", lambda page: by_key(page, "grid.2", "outlier")),
        (QUANTIZATION, "real-row", "row, arrow keys", lambda page: by_key(page, "real-row", "row")),
        (SERVING, "frontier", "TPOT target, arrow keys", lambda page: by_key(page, "frontier", "tpot_target")),
        (SERVING + "&chunked-prefill.prompt=8192", "chunked-prefill", "prompt, arrow keys", lambda page: by_key(page, "chunked-prefill", "prompt")),
        (SERVING, "load-lab.2", "rate, arrow keys", lambda page: by_key(page, "load-lab.2", "rate")),
    ):  # a page of its own each: the watcher of one would see the other's key
        if only not in f"{address} {widget}":
            continue
        page = visit(browser, url, address, lang="zh")
        if address == LESSON_ONE:
            drawn(page)
        frame(page, widget).locator("svg[data-picture], svg.marks").first.wait_for(timeout=60_000)
        found.append(update(page, widget, control, act(page), rounds))
        page.context.close()
    return found


# ---- the player


def play(page: Page, what: str, player) -> Play:
    sent = page.bench_sent
    player.scroll_into_view_if_needed()
    player.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(1500)  # the step is told to the server, and the rerun is over
    before = len(sent)
    page.keyboard.press(" ")
    times = page.evaluate(FRAMES, PLAYED_S)
    messages, shown = len(sent) - before, int(player.get_attribute("data-t"))
    still_playing = player.get_attribute("data-playing") is not None
    if still_playing:
        page.keyboard.press(" ")
    gaps = [b - a for a, b in zip(times, times[1:])]
    seconds = (times[-1] - times[0]) / 1000
    return Play(what, seconds, len(gaps) / seconds, percentile(gaps, 0.95), shown, messages if still_playing else messages - 1)


def counted(context) -> Page:
    page = context.new_page()
    page.bench_sent = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: page.bench_sent.append(frame)))
    return page


def plays(browser, url: str) -> list[Play]:
    found = []
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    with toy_page() as toy:
        page = counted(context)
        page.goto(f"{toy}/?toy=lanes&steps={STEPS}")
        page.wait_for_selector(".player[data-t]", timeout=30_000)
        found.append(play(page, f"{LANES} lanes × {STEPS} steps, canvas, 60 steps/s", page.locator(".player")))
    page = counted(context)
    page.goto(f"{url}/roofline?lang=zh&{SKIPPED}")
    drawn(page)
    found.append(play(page, "kv-stepper, svg, its own speed", frame(page, "kv-stepper").locator(".player")))
    context.close()
    return found


@contextmanager
def toy_page() -> Iterator[str]:
    """The page of the player's tests."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, view in (("toy", toys.VIEW), ("lanes", toys.LANES)):
            (folder / name).mkdir()
            (folder / name / "view.js").write_text(view, encoding="utf-8")
            (folder / name / "text.toml").write_text(toys.TEXT, encoding="utf-8")
        (folder / "toys.py").write_text(toys.TOYS, encoding="utf-8")
        (folder / "app.py").write_text(toys.APP, encoding="utf-8")
        port = free_port()
        process = launch(["streamlit", "run", str(folder / "app.py"), "--server.port", str(port), "--server.address", "127.0.0.1"], None)
        try:
            for _ in range(300):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            end(process)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages", description="Time from a control's change to the changed picture, in Chromium.")
    parser.add_argument("--rounds", type=int, default=30, help="changes of each control (30)")
    parser.add_argument("--only", default="", help="a part of the address or of an instrument's name: only those, and no players")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1")
    around, out = conditions(), own_output()
    service, service_process = start_service()
    url, web = start_web(service)
    try:
        with chromium() as browser:
            around["chromium"] = browser.version
            measured, played = updates(browser, url, options.rounds, options.only), [] if options.only else plays(browser, url)
    finally:
        end(web)
        end(service_process)
    around["load average after"] = conditions()["load average"]
    if options.json:
        print(json.dumps({"conditions": around, "updates": [asdict(u) for u in measured], "players": [asdict(p) for p in played]}, indent=1), file=out)
        return 0
    print("; ".join(f"{name}: {value}" for name, value in around.items()), file=out)
    print(f"\n{'widget':<17}{'control':<32}{'median':>9}{'p95':>9}{'slowest':>9}   ms, {options.rounds} changes each", file=out)
    for u in measured:
        print(f"{u.widget:<17}{u.control:<32}{u.median_ms:>9.0f}{u.p95_ms:>9.0f}{u.slowest_ms:>9.0f}", file=out)
    print(f"\n{'player':<49}{'fps':>9}{'p95 ms':>9}{'sent':>9}", file=out)
    for p in played:
        print(f"{p.what:<49}{p.frames_per_second:>9.1f}{p.p95_frame_ms:>9.1f}{p.messages_to_server:>9}", file=out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
