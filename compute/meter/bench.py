"""How well the meter measures: against a server that notes when it sent each chunk, on the same clock; and against our own engine's trace.

A bare loop that reads the same streams and does nothing else shows what the operating system alone makes of a gap. Where other programs
keep the machine busy, `chrt -f 5 python -m compute bench meter` lets server and listeners run when they have something to do, as
on a quiet one; the conditions say so. Our own engine is always measured as everybody runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import queue
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

from compute import precompute
from compute.meter import served
from compute.meter.client import Target
from compute.meter.endpoints import ROOT
from compute.meter.loads import PROBE_TOKENS
from compute.meter.prompts import word
from compute.meter.report import Plan, percentile

OWN = Plan(prompt_tokens=64, output_tokens=32, warmup=8, ttft_target=0.1, tpot_target=0.02)  # as the page begins, but for how many at a time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b'data: {"id":"cmpl-0","object":"text_completion","created":0,"model":"clock","choices":[{"index":0,"text":" word","logprobs":null,"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


@dataclass(frozen=True)
class Errors:
    """|gap as measured − gap as sent|, in seconds."""

    median: float
    p99: float
    worst: float
    gaps: int


@dataclass(frozen=True)
class Clocked:
    """together: all streams get their chunk in one go, as from an engine that batches; else each has its own moments."""

    streams: int
    interval: float
    together: bool
    meter: tuple[Errors, ...]  # one a round
    bare: tuple[Errors, ...]
    conditions: dict[str, Any]


# ---- the server with a clock, a process of its own


class Round:
    """Streams that begin together, once all are there."""

    def __init__(self):
        self.streams: list[tuple[asyncio.StreamWriter, list[float]]] = []
        self.full, self.over = asyncio.Event(), asyncio.Event()


async def clock_server(streams: int, chunks: int, interval: float, together: bool) -> None:
    """Serves rounds of `streams` requests. Prints its port, and for each request that had all its chunks a line of JSON with the first
    word of its prompt and the times, on perf_counter's clock, just before each chunk was handed to the socket."""
    rounds = [Round()]

    async def tick(begun: float, to: list[tuple[asyncio.StreamWriter, list[float]]]) -> None:
        for at in range(chunks):
            await asyncio.sleep(begun + (at + 1) * interval - perf_counter())
            for writer, times in to:
                times.append(perf_counter())
                writer.write(framed(CHUNK))

    async def stream(writer: asyncio.StreamWriter, times: list[float]) -> None:
        round = rounds[-1]
        at = len(round.streams)
        round.streams.append((writer, times))
        if at + 1 == streams:
            rounds.append(Round())
            round.full.set()
        await round.full.wait()
        if not together:
            await tick(perf_counter() + interval * at / streams, [(writer, times)])
        elif at == 0:
            await tick(perf_counter(), round.streams)
            round.over.set()
        else:
            await round.over.wait()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
                asked, times = json.loads(await reader.readexactly(length)), []
                writer.write(HEAD)
                if asked["max_tokens"] < chunks:  # somebody finds out how to speak
                    writer.write(framed(CHUNK))
                else:
                    await stream(writer, times)
                writer.write(framed(END) + b"0\r\n\r\n")
                if times:
                    print(json.dumps({"asked": asked["prompt"].split(": ")[0], "sent": times}), flush=True)
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextmanager
def clock(*options: Any) -> Iterator[tuple[int, queue.Queue[str]]]:
    """(port, the lines that it prints) of a server with a clock."""
    process = subprocess.Popen([sys.executable, "-m", "compute.meter.bench", *map(str, options)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout], daemon=True)  # a full pipe would stop the clock
    try:
        port = int(process.stdout.readline())
        reader.start()
        yield port, lines
    finally:
        process.kill()
        process.wait()


# ---- who listens


def by_the_meter(port: int, streams: int, chunks: int, interval: float) -> list[tuple[str, list[float]]]:
    """(first word of the prompt, arrivals) of each stream."""
    command = [sys.executable, "-m", "compute", "meter", f"http://127.0.0.1:{port}/v1", "--model", "clock", "--json", "-", "--warmup", "0",
               "--concurrency", str(streams), "--requests", str(streams), "--output-tokens", str(chunks)]  # fmt: skip
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120 + 4 * chunks * interval)
    report = json.loads(ran.stdout)
    return [(word(report["conditions"]["run"], row["id"]), row["chunks"]) for row in report["requests"]]


def by_a_bare_loop(port: int, streams: int, chunks: int, interval: float) -> list[tuple[str, list[float]]]:
    """The same with one select loop over plain sockets: when something came it notes the time, and counts chunks afterwards."""
    chosen, heard = selectors.DefaultSelector(), {}
    for at in range(streams):
        connection = socket.create_connection(("127.0.0.1", port))
        body = json.dumps({"prompt": f"bare-{at}: ", "max_tokens": chunks}).encode()
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        chosen.register(connection, selectors.EVENT_READ, heard.setdefault(f"bare-{at}", []))
        heard[f"bare-{at}"].append(connection)
    left = streams
    while left:
        for key, _ in chosen.select():
            data, now = key.fileobj.recv(65536), perf_counter()
            key.data.append((now, data))
            if data.endswith(b"0\r\n\r\n"):
                chosen.unregister(key.fileobj)
                left -= 1
    found = []
    for name, (connection, *parts) in heard.items():
        connection.close()
        found.append((name, [now for now, data in parts for _ in range(data.count(b'" word"'))]))
    return found


def clocked(streams: int, chunks: int, interval: float, together: bool, rounds: int) -> Clocked:
    """Rounds in turn, one with the meter and one with the bare loop."""
    found: dict[Any, list[Errors]] = {by_the_meter: [], by_a_bare_loop: []}
    with clock(streams, chunks, interval, int(together)) as (port, lines):
        for n in range(rounds):
            for listen in list(found)[:: 1 if n % 2 else -1]:
                heard = dict(listen(port, streams, chunks, interval))
                sent = [json.loads(lines.get(timeout=60)) for _ in range(streams)]
                errors = sorted(error for line in sent for error in gap_errors(line["sent"], heard[line["asked"]]))
                found[listen].append(Errors(statistics.median(errors), percentile(errors, 0.99), errors[-1], len(errors)))
    return Clocked(streams, interval, together, tuple(found[by_the_meter]), tuple(found[by_a_bare_loop]), circumstances())


def gap_errors(sent: list[float], heard: list[float]) -> Iterator[float]:
    """Raises ValueError where chunks were lost."""
    for (a, b), (c, d) in zip(pairwise(sent), pairwise(heard), strict=True):
        yield abs((b - a) - (d - c))


# ---- our own engine


@dataclass(frozen=True)
class Compared:
    """Means over the same requests, in seconds: (as the meter saw them, as the engine's trace has them). way: medians of how long a
    request was under way to the engine (HTTP, checks, threads), which the engine's trace does not know, and a token from it; the two
    clocks are set by the quickest token, which is taken to have needed no time. Only of requests one at a time it is known which is which."""

    report: dict[str, Any]
    tokens: tuple[int, int]
    ttft: tuple[float, float]
    tpot: tuple[float, float]
    latency: tuple[float, float]
    way: tuple[float, float] | None


def compared(plan: Plan) -> Compared:
    """A service of its own, measured; then what its engine kept of the same requests. Raises RuntimeError where not all were answered."""
    if realtime():
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    process = subprocess.Popen([sys.executable, "-m", "compute", "serve", "--port", "0"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().split()[2]
        command = [word for word in served.command(Target("own", f"{address}/v1"), plan) if word != "--events"]
        ran = subprocess.run([*command, "--json=-"], cwd=ROOT, capture_output=True, text=True, timeout=600)
        with urllib.request.urlopen(f"{address}/live", timeout=30) as answer:
            lives = sorted(json.load(answer)["sequences"], key=lambda life: life["arrived"])[-plan.requests :]
        with urllib.request.urlopen(f"{address}/healthz", timeout=30) as answer:
            health = json.load(answer)
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    report = json.loads(ran.stdout)
    if not report["done"] or report["errors"]:
        raise RuntimeError(f"not all requests were answered: {report['errors'][:1] or ran.stderr[-500:]}")
    report["conditions"] |= {name: health[name] for name in ("machine", "device", "torch")}
    mean, found = statistics.fmean, report["summary"]
    engine = (
        sum(life["written"] for life in lives),
        mean(life["first"] - life["arrived"] for life in lives),
        mean((life["finished"] - life["first"]) / (life["written"] - 1) for life in lives if life["written"] > 1),
        mean(life["finished"] - life["arrived"] for life in lives),
    )
    ours = (sum(row["output_tokens"] for row in report["requests"]), *(found[name]["mean"] for name in ("ttft", "tpot", "latency")))
    if plan.concurrency > 1:
        return Compared(report, *zip(ours, engine), None)
    pairs = list(zip(sorted(report["requests"], key=lambda row: row["sent"]), lives, strict=True))
    out = [row["first"] - life["first"] for row, life in pairs]
    way = (statistics.median(life["arrived"] - row["sent"] for row, life in pairs) + min(out), statistics.median(out) - min(out))
    return Compared(report, *zip(ours, engine), way)


def circumstances() -> dict[str, Any]:
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    return {"cores": os.cpu_count(), "load_average": load, "python": sys.version.split()[0], "realtime": realtime()}


def realtime() -> bool:
    return hasattr(os, "sched_getscheduler") and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)


# ---- what is printed and kept


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m compute bench meter", description="What the meter adds to a gap; and its figures against the engine's own.")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--chunks", type=int, default=150, help="a stream")
    parser.add_argument("--interval", type=float, default=0.02, help="seconds between the chunks of a stream")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--own", action="store_true", help="also against our own engine's trace (starts a service)")
    parser.add_argument("--write", action="store_true", help="with --own: keep it in data/measured/meter-own.json")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if min(args.streams, args.rounds) < 1 or args.chunks <= PROBE_TOKENS or args.interval <= 0:  # shorter answers are the meter finding out how to speak
        parser.error(f"--streams and --rounds: at least 1; --chunks: more than {PROBE_TOKENS}; --interval: more than 0")
    found = [clocked(args.streams, args.chunks, args.interval, together, args.rounds) for together in (True, False)]
    own = {at_a_time: compared(replace(OWN, concurrency=at_a_time, requests=max(32, 8 * at_a_time))) for at_a_time in (4, 1, 8)} if args.own else {}
    if args.write and own:
        print(write(found, own[4], own[1], f"python -m compute bench meter {' '.join(argv)}"), file=sys.stderr)
    if args.json:
        print(json.dumps([asdict(one) for one in (*found, *own.values())], ensure_ascii=False, indent=2))
        return 0
    print(f"{args.streams} streams, {args.chunks} chunks each, one every {1e3 * args.interval:g} ms; {args.rounds} rounds in turn; {found[0].conditions}")
    print(f"{'error of a gap, ms':34}{'median':>10}{'p99':>10}{'worst':>10}   (median of the rounds, worst of all)")
    for one in found:
        for name, rounds in (("the meter", one.meter), ("a bare loop", one.bare)):
            print(f"{name + (', all together' if one.together else ', each on its own'):34}" + "".join(f"{1e3 * n:10.3f}" for n in over(rounds)))
    for one in own.values():
        plan = one.report["plan"]
        print(f"\nour own engine, {plan['concurrency']} at a time, {plan['requests']} requests; load average {one.report['conditions']['load_average']}")
        print(f"{'':22}{'meter':>12}{'trace':>12}{'apart':>10}")
        for name in ("tokens", "ttft", "tpot", "latency"):
            ours, theirs = getattr(one, name)
            print(f"{name:22}{ours:12.5g}{theirs:12.5g}{100 * (ours / theirs - 1):9.2f}%")
        if one.way:
            print(f"a request was {1e3 * one.way[0]:.1f} ms under way to the engine, a token {1e3 * one.way[1]:.1f} ms from it")
    return 0


def over(rounds: tuple[Errors, ...]) -> tuple[float, float, float]:
    """(median of the medians, median of the p99, worst of all)"""
    return statistics.median(r.median for r in rounds), statistics.median(r.p99 for r in rounds), max(r.worst for r in rounds)


def write(found: list[Clocked], own: Compared, alone: Compared, command: str) -> Path:
    """The run on our own engine with its report, which the page replays, and the figures that prose may name. alone: one request at a time."""
    report, summary, entries = own.report, own.report["summary"], {}
    plan, around = report["plan"], {k: report["conditions"][k] for k in ("machine", "device", "torch", "load_average", "clock", "fingerprint")}
    measured = around | {k: plan[k] for k in ("loop", "concurrency", "requests", "prompt_tokens", "output_tokens", "seed")}
    clocks = found[0].conditions | {"streams": found[0].streams, "interval_seconds": found[0].interval, "rounds": len(found[0].meter)}
    worse = [max(pair) for pair in zip(*(over(one.meter) for one in found))]  # of the two ways in which streams can come

    def keep(key: str, value: float | None, unit: str, n: int, conditions: dict[str, Any], zh: str, en: str) -> None:
        entries[f"serving.meter.{key}"] = {"value": value, "unit": unit, "kind": "measured", "conditions": conditions, "says": {"zh": zh, "en": en}, "n": n}

    gaps = sum(r.gaps for r in found[0].meter)
    keep("gap_error.median", worse[0], "s", gaps, clocks, "测量端给间隔带来的误差，中位数", "error that the meter adds to a gap, median")
    keep("gap_error.p99", worse[1], "s", gaps, clocks, "测量端给间隔带来的误差，p99", "error that the meter adds to a gap, p99")
    for name, zh, en in (("ttft", "首个 token 的时间", "time to the first token"), ("tpot", "之后每个 token 的时间", "time of each later token")):
        for p in ("p50", "p99"):
            keep(f"own.{name}.{p}", summary[name][p], "s", summary[name]["n"], measured, f"{zh}，{p}，本机自带引擎", f"{en}, {p}, our own engine on this machine")
        ours, theirs = getattr(own, name)
        via = ("（含请求到引擎的路程）", " (with the request's way to the engine)") if name == "ttft" else ("", "")
        keep(f"own.{name}.apart", abs(ours / theirs - 1), "ratio", summary[name]["n"], measured,
             f"{zh}：从外面测得的均值与引擎自己的记录相差{via[0]}", f"{en}: mean measured from outside, apart from the engine's own trace{via[1]}")  # fmt: skip
    for name, unit, zh, en in (("tokens_per_second", "token/s", "吞吐", "throughput"), ("requests_per_second", "request/s", "每秒完成的请求", "requests finished a second")):
        keep(f"own.{name}", summary[name], unit, summary["done"], measured, f"{zh}，本机自带引擎", f"{en}, our own engine on this machine")
    count = alone.report["plan"]["requests"]
    single = measured | {"concurrency": 1, "requests": count, "load_average": alone.report["conditions"]["load_average"]}
    keep("own.way_in", alone.way[0], "s", count, single, "请求到引擎的路程：HTTP、检查、线程，中位数", "a request's way to the engine: HTTP, checks, threads; median")
    keep("own.way_out", alone.way[1], "s", count, single, "token 从引擎回来的路程，比最快的多出，中位数", "a token's way from the engine beyond the quickest one's, median")
    file = precompute.write_measured("meter-own", entries, command)
    compact = json.dumps(report, ensure_ascii=False, allow_nan=False)
    file.write_text(file.read_text("utf-8").rstrip().removesuffix("}").rstrip() + f',\n "report": {compact}\n}}\n', "utf-8")
    return file


if __name__ == "__main__":
    a, b, c, d = sys.argv[1:]
    asyncio.run(clock_server(int(a), int(b), float(c), bool(int(d))))
