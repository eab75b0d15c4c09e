"""What one learner costs, for compute/sizing.py: `python -m tests.bench.sizing [--load REPORT.json] [--minutes 1] [--rounds 5] [--write]`.

The cost of what a learner does comes from two classes or more of `python -m tests.load` (a report of it, or two classes of its own):
processor seconds of the web server over everything that its learners did, and memory as a line through the class sizes. A first visit is
the first lesson in a new browser, through deploy/nginx.conf with warm caches, and once past it. --write keeps all in
data/measured/sizing.json. Linux only, as it reads /proc; needs nginx and Chromium.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from compute.precompute import write_measured
from tests.bench.pages import chromium, conditions
from tests.browser.test_several_servers import proxied
from tests.load import servers
from tests.load.__main__ import measure
from tests.load.report import KINDS

NOBODY = "http://127.0.0.1:9"
CLASSES = (10, 40)
LESSON = "/roofline?lang=zh"
QUIET_MS = 3_000


def entry(value: float, unit: str, zh: str, en: str, about: dict[str, Any], n: int) -> dict[str, Any]:
    return {"value": value, "unit": unit, "kind": "measured", "conditions": about, "n": n, "says": {"zh": zh, "en": en}}


def of_classes(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Entries from a report of tests.load with two class sizes or more of our server."""
    blocks = [block for block in report["blocks"] if block["server"] == "ours" and block["learners"] >= 10]
    sizes = [block["learners"] for block in blocks]
    if len(set(sizes)) < 2:
        raise SystemExit(f"two class sizes of 10 learners or more are needed; the report has {sizes}")
    largest = max(blocks, key=lambda block: block["learners"])
    deeds = {kind: largest[kind] for kind in KINDS if largest[kind]["n"]}
    n = sum(found["n"] for found in deeds.values())
    about = report["conditions"] | {"command": "python -m tests.load", "learners": largest["learners"], "of these": {kind: found["n"] for kind, found in deeds.items()},
                                    "change p95 ms": largest["change"]["p95_ms"], "errors": largest["error_count"]}  # fmt: skip
    percent = sum(largest["cpu_percent_of_a_core"].get(name, 0) for name in ("web", "beside"))  # and the process that it has beside it
    seconds = percent / 100 * largest["seconds"] / n
    sent = sum(found["n"] * found["kilobytes"] * 1e3 for found in deeds.values()) / n
    each, first = statistics.linear_regression(sizes, [block["memory_megabytes"]["after"] * 1e6 for block in blocks])
    with_sizes = report["conditions"] | {"command": "python -m tests.load", "learners": sizes}
    return {
        "sizing.web.seconds_per_action": entry(seconds, "s", "网页服务：学习者每做一件事占用的处理器时间", "web server: processor time of a thing a learner does", about, n),
        "sizing.web.bytes_per_action": entry(sent, "B", "网页服务：每件事发给浏览器的字节，未压缩", "web server: bytes sent for it, uncompressed", about, n),
        "sizing.web.bytes_per_learner": entry(each, "B", "网页服务：每多一个学习者多占的内存", "web server: memory for one more learner", with_sizes, len(blocks)),
        "sizing.web.bytes_empty": entry(first, "B", "网页服务：学习者以外的内存，缓存已满（直线的截距）", "web server: memory beside its learners, caches warm (of the line)", with_sizes, len(blocks)),
    }


def visit(browser, url: str) -> int:
    """Bytes of a first visit: every answer's body and headers as sent. The session's WebSocket is not in it."""
    page, answered = browser.new_context().new_page(), []
    page.on("requestfinished", lambda request: answered.append(request) if request.url.startswith(url) else None)
    page.goto(url + LESSON)
    page.wait_for_selector(".stApp h1", timeout=60_000)
    seen = 0
    while seen < len(answered):  # until nothing more is asked for
        seen = len(answered)
        page.wait_for_timeout(QUIET_MS)
    sizes = [request.sizes() for request in answered]
    page.context.close()
    return sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes)


def of_visits(rounds: int) -> dict[str, dict[str, Any]]:
    web = tuple({"INFERENCE_LAB_COMPUTE": NOBODY}.items())
    with tempfile.TemporaryDirectory() as folder, servers.started(servers.OURS, **dict(web)) as (one, first), \
            servers.started(servers.OURS, **dict(web)) as (two, second), chromium() as browser, \
            proxied(Path(folder), [one, two]) as (url, nginx):  # fmt: skip
        for warm in (f"http://{one}", f"http://{two}", url):
            visit(browser, warm)
        children = Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children").read_text().split()
        workers = [int(pid) for pid in children if "worker" in Path(f"/proc/{pid}/cmdline").read_text()]  # those that look after the cache end by themselves

        def used() -> tuple[float, float]:
            return sum(map(servers.cpu_seconds, (first, second))), sum(map(servers.cpu_seconds, workers))

        before = used()
        through = [visit(browser, url) for _ in range(rounds)]
        spent = [(after - was) / rounds for was, after in zip(before, used())]
        past = visit(browser, f"http://{one}")
    about = conditions() | {"command": "python -m tests.bench.sizing", "page": LESSON, "rounds": rounds, "nginx": "deploy/nginx.conf, its cache warm"}
    return {
        "sizing.visit.bytes": entry(statistics.median(through), "B", "第一次打开一课：经 nginx 压缩后的字节", "first visit of a lesson: bytes through nginx, compressed", about, rounds),
        "sizing.visit.bytes_without_nginx": entry(past, "B", "第一次打开一课：不经 nginx 的字节", "first visit of a lesson: bytes without nginx", about, 1),
        "sizing.visit.web_seconds": entry(spent[0], "s", "第一次打开一课：网页服务占用的处理器时间", "first visit of a lesson: processor time of the web servers", about, rounds),
        "sizing.visit.nginx_seconds": entry(spent[1], "s", "第一次打开一课：nginx 占用的处理器时间", "first visit of a lesson: processor time of nginx", about, rounds),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.sizing", description="What one learner costs.")
    parser.add_argument("--load", type=Path, metavar="REPORT", help="a report of `python -m tests.load --json`, instead of classes of its own")
    parser.add_argument("--minutes", type=float, default=1.0, help="of each class (1)")
    parser.add_argument("--rounds", type=int, default=5, help="first visits (5)")
    parser.add_argument("--write", action="store_true", help="keep it in data/measured/sizing.json")
    options = parser.parse_args(arguments)
    report = json.loads(options.load.read_text(encoding="utf-8")) if options.load else measure([(learners, options.minutes) for learners in CLASSES], seed=1)
    found = of_classes(report) | of_visits(options.rounds)
    if options.write:
        print(write_measured("sizing", found, "python -m tests.bench.sizing --write"), file=sys.stderr)
    for key, each in found.items():
        print(f"{key:36}{each['value']:>16.4g} {each['unit']:4}{each['says']['en']}")
    print(json.dumps(next(iter(found.values()))["conditions"], ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
