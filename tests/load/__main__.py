"""A class on loopback: `python -m tests.load [--learners 1,10,30,100] [--minutes M] [--seed N] [--think LEAST,MOST] [--plain [MOST]] [--two [MOST]] [--json FILE] [--write]`;
`--table` puts what was written last into docs/load.md, `--alone DEEDS` says what each deed of one learner takes of the processor.

Each block starts our web server anew (and with --plain a plain `streamlit run` of the same pages after it, with --two two of ours behind
nginx); the compute service runs through. Learners come over the first seconds. A tenth of them ask a model every other time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from app import lesson
from compute import precompute
from tests.bench.pages import conditions
from tests.load import report, servers
from tests.load.learner import GENERATES, THINK_SECONDS, Learner, Log

MOST_LEARNERS, MOST_MINUTES, MOST_THINK_SECONDS, MOST_DEEDS = 300, 30.0, 60.0, 10_000
SAMPLE_SECONDS = 2.0
DOCUMENT = servers.ROOT / "docs" / "load.md"
ASKING = 10  # one learner of so many asks a model


async def attend(
    url: str, learners: int, seconds: float, seed: int, think: tuple[float, float] = THINK_SECONDS, lessons: Sequence[str] = (), enough: float = math.inf,
    processor: Callable[[], float] = float,
) -> Log:  # fmt: skip
    """A class of learners on a server (host:port); they come within the longest think time, and leave after so many seconds, or when
    the class has done `enough`. lessons: all that there are, if none are named."""
    log, lessons = Log(), list(lessons) or [entry.slug for entry in lesson.existing()]
    writing = [slug for slug in lessons if any(isinstance(part, lesson.Instrument) and part.widget in GENERATES for part in lesson.load(slug, "en").parts)]
    until = time.monotonic() + seconds

    async def one(number: int) -> None:
        draw = random.Random(f"{seed}/{number}")
        await asyncio.sleep(think[1] * number / learners)
        asks = number % ASKING == ASKING // 2
        await Learner(f"ws://{url}", writing if asks else lessons, ("zh", "en")[number % 2], draw, log, asks, think, until, enough, processor).attend()

    async with asyncio.TaskGroup() as group:
        for number in range(learners):
            group.create_task(one(number))
    return log


async def watched(url: str, web: list[int], service: int, learners: int, seconds: float, seed: int, think: tuple[float, float]) -> tuple[Log, float, dict[str, float], list[report.Sample]]:
    """The class, the seconds it took, what it cost, and the memory meanwhile."""

    def cpu() -> dict[str, float]:
        beside = [child for pid in web for child in servers.children(pid)]
        return {"web": sum(map(servers.cpu_seconds, web)), "beside": sum(map(servers.cpu_seconds, beside)), "service": servers.cpu_seconds(service), "client": time.process_time()}

    before, began, samples = cpu(), time.monotonic(), []

    async def look() -> None:
        while True:
            samples.append(report.Sample(time.monotonic() - began, sum(map(servers.resident_bytes, web)), servers.resident_bytes(service)))
            await asyncio.sleep(SAMPLE_SECONDS)

    looking = asyncio.create_task(look())
    log = await attend(url, learners, seconds, seed, think)
    looking.cancel()
    return log, time.monotonic() - began, {name: used - before[name] for name, used in cpu().items()}, samples


def measure(classes: list[tuple[int, float]], seed: int, plain: float = 0, two: float = 0, think: tuple[float, float] = THINK_SECONDS) -> dict[str, Any]:
    """classes: learners and minutes of each; plain, two: minutes at most of the same class on a plain server and on two of ours behind
    nginx, 0 for none."""
    blocks, around = [], conditions()
    with servers.started(servers.COMPUTE) as (compute, service):
        for count, minutes in classes:
            for name, start, lasting in (
                ("ours", partial(servers.one, servers.OURS), minutes), ("plain", partial(servers.one, servers.PLAIN), min(minutes, plain)),
                ("two", servers.two, min(minutes, two)),
            ):  # fmt: skip
                if not lasting:
                    continue
                with start(INFERENCE_LAB_COMPUTE=f"http://{compute}") as (url, web):
                    empty = sum(map(servers.resident_bytes, web))
                    log, seconds, cpu, samples = asyncio.run(watched(url, web, service, count, lasting * 60, seed, think))
                blocks.append(report.block(name, count, seconds, log, cpu, empty, samples))
                print(report.line(blocks[-1]), file=sys.stderr, flush=True)
    around["load average after"] = conditions()["load average"]
    return {"conditions": around | {"seed": seed, "think_seconds": list(think)}, "blocks": blocks}


def alone(deeds: int, seed: int) -> Log:
    """One learner who does not think, on pages that another like this one has gone through before, with what each deed takes of the
    web process's processor time (the system counts it in hundredths of a second: means, not single ones)."""
    with servers.started(servers.COMPUTE) as (compute, _), servers.started(servers.OURS, INFERENCE_LAB_COMPUTE=f"http://{compute}") as (url, web):
        at_once = partial(attend, url, 1, math.inf, think=(0.0, 0.0), enough=deeds)
        asyncio.run(at_once(seed=seed))
        return asyncio.run(at_once(seed=seed + 1, processor=partial(servers.cpu_seconds, web)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.load", description="A class of learners on loopback: time, errors, processor, memory.")
    parser.add_argument("--learners", default="1,10,30,100", help="how many at a time (1,10,30,100)")
    parser.add_argument("--minutes", default="1", help="of each class, or one number for each (1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plain", type=float, nargs="?", const=MOST_MINUTES, default=0.0, metavar="MOST",
                        help="the same on a plain `streamlit run`, after each class, for so many minutes at most")  # fmt: skip
    parser.add_argument("--two", type=float, nargs="?", const=MOST_MINUTES, default=0.0, metavar="MOST",
                        help="the same on two of our web servers behind deploy/nginx.conf, for so many minutes at most")  # fmt: skip
    parser.add_argument("--think", default="2,5", metavar="LEAST,MOST", help="seconds between a learner's deeds (2,5)")
    parser.add_argument("--alone", type=int, metavar="DEEDS", help="no class: what so many deeds of one learner take of the web process")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole report there")
    parser.add_argument("--write", action="store_true", help="keep the figures in data/measured/load.json, in the place of those of the same classes")
    parser.add_argument("--table", action="store_true", help="measure nothing: the kept figures, as the table of docs/load.md")
    options = parser.parse_args(arguments)
    kept = {key: entry for key, entry in precompute.timings().items() if key.startswith("load.")}
    if options.table:
        made = report.table(kept)
        DOCUMENT.write_text(report.placed(DOCUMENT.read_text(encoding="utf-8"), made), encoding="utf-8")
        print(made)
        return 0
    if options.alone is not None:
        if not 1 <= options.alone <= MOST_DEEDS:
            parser.error(f"--alone {options.alone}: from 1 to {MOST_DEEDS}")
        log = alone(options.alone, options.seed)
        print("; ".join(f"{name}: {value}" for name, value in conditions().items()))
        print(report.alone(log))
        return 1 if log.errors else 0
    try:
        learners = [int(count) for count in options.learners.split(",")]
        minutes = [float(each) for each in options.minutes.split(",")]
        least, most = (float(each) for each in options.think.split(","))
    except ValueError:
        parser.error(f"--learners {options.learners} --minutes {options.minutes} --think {options.think}: numbers with commas between them, of --think two")
    if not 0 <= least <= most <= MOST_THINK_SECONDS:
        parser.error(f"--think {options.think}: from 0 to {MOST_THINK_SECONDS:g} seconds, the lesser first")
    if not all(1 <= count <= MOST_LEARNERS for count in learners):
        parser.error(f"--learners {options.learners}: each from 1 to {MOST_LEARNERS}")
    if not all(0 < each <= MOST_MINUTES for each in minutes) or len(minutes) not in (1, len(learners)):
        parser.error(f"--minutes {options.minutes}: one number or one for each class, more than 0, at most {MOST_MINUTES:g}")
    if not 0 <= min(options.plain, options.two) <= max(options.plain, options.two) <= MOST_MINUTES:
        parser.error(f"--plain {options.plain} --two {options.two}: at most {MOST_MINUTES:g} minutes")
    found = measure(list(zip(learners, minutes * len(learners) if len(minutes) == 1 else minutes)), options.seed, options.plain, options.two, (least, most))
    if options.json:
        options.json.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    if options.write:
        command = "python -m tests.load " + " ".join(sys.argv[1:] if arguments is None else arguments)
        print(precompute.write_measured("load", kept | report.entries(found, command), command))
    print("; ".join(f"{name}: {value}" for name, value in found["conditions"].items()))
    for block in found["blocks"]:
        print(report.line(block))
        for error in block["errors"]:
            print(f"   {error['count']} × {error['text']}")
    return 1 if any(block["error_count"] for block in found["blocks"] if block["server"] == "ours") else 0


if __name__ == "__main__":
    sys.exit(main())
