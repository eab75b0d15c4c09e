"""`python -m compute meter URL`: a run on the command line, and with --events as the process behind a page.

Nothing here imports torch: the meter must start quickly, and its clock must not share an interpreter with an engine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from compute.errors import BadInput
from compute.meter.report import Plan

SHOWN_ERRORS = 10  # rows in the table; the JSON has all


def arguments(parser: argparse.ArgumentParser) -> None:
    default = Plan()
    add = parser.add_argument
    add("url", help="base URL of an OpenAI-compatible server, such as http://127.0.0.1:8502/v1")
    add("--model", default="", help="default: the first that the server lists")
    add("--api", choices=["completions", "chat"], help="default: completions, else chat where there is nothing else")
    add("--key-from", default="", metavar="VARIABLE", help="environment variable that holds the key")
    add("--loop", choices=["closed", "open"], default=default.loop, help="closed: a fixed number at a time; open: Poisson arrivals")
    add("--concurrency", type=int, default=default.concurrency, metavar="N", help=f"requests at a time, closed loop (default {default.concurrency})")
    add("--rate", type=float, default=default.rate, metavar="R", help=f"requests a second, open loop (default {default.rate:g})")
    add("--requests", type=int, default=default.requests, metavar="N", help=f"default {default.requests}")
    add("--prompt-tokens", type=int, default=default.prompt_tokens, metavar="N", help=f"about (default {default.prompt_tokens})")
    add("--output-tokens", type=int, default=default.output_tokens, metavar="N", help=f"at most (default {default.output_tokens})")
    add("--warmup", type=int, default=default.warmup, metavar="N", help=f"requests before, not in the figures (default {default.warmup})")
    add("--ttft", type=float, default=default.ttft_target, metavar="S", help=f"target for the first token, seconds (default {default.ttft_target:g})")
    add("--tpot", type=float, default=default.tpot_target, metavar="S", help=f"target for each later token, seconds (default {default.tpot_target:g})")
    add("--seed", type=int, default=default.seed, metavar="N", help="of prompts and arrivals")
    add("--seconds", type=float, default=0.0, metavar="S", help="stop after so many, with what there is")
    add("--name", default="", help="what the report calls the endpoint")
    add("--json", default="", metavar="FILE", help="write the report there; - for standard output")
    add("--events", action="store_true", help="for programs: reports as JSON lines while it runs; ends when standard input closes")


def plan_of(args: argparse.Namespace) -> Plan:
    """Raises BadInput."""
    return Plan(args.loop, args.concurrency, args.rate, args.requests, args.prompt_tokens, args.output_tokens, args.warmup, args.seed, args.ttft, args.tpot)


def run(args: argparse.Namespace) -> int:
    """0: measured; 1: no request was answered; 130: stopped by hand. Raises BadInput before anything is sent."""
    from compute.meter.client import Target
    from compute.meter.endpoints import checked, key_in
    from compute.meter.loads import Run

    url = checked(args.url)
    if not 0 <= args.seconds < float("inf"):
        raise BadInput("seconds", args.seconds, "0 or more is needed; 0 for no limit", "要填 0 或更大的数；0 表示不限时")
    if args.json not in ("", "-"):  # before a long run, not after it
        writable(Path(args.json))
    api = args.api or ("chat" if args.url.rstrip("/").endswith("/chat/completions") else None)
    meter = Run(Target(args.name or url, url, args.model, api, key_in(args.key_from)), plan_of(args), seconds=args.seconds, tell=teller(args.events))
    report = asyncio.run(measured(meter, args.events)).to_json()
    if args.events:
        say({"report": report})
    elif sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if not args.events:
        print(table(report), file=sys.stderr if args.json == "-" else sys.stdout)
    if args.json == "-":
        print(json.dumps(report, ensure_ascii=False))
    elif args.json:
        Path(args.json).write_text(json.dumps(report, ensure_ascii=False) + "\n", encoding="utf-8")
    return 130 if report["stopped"] == "cancelled" else 0 if report["requests"] else 1


def writable(path: Path) -> None:
    """Raises BadInput."""
    try:
        with path.open("a"):
            pass
    except OSError as error:
        raise BadInput("json", str(path), f"it cannot be written ({error.strerror})", f"写不了（{error.strerror}）") from None


async def measured(meter: Any, events: bool) -> Any:
    """The report of the run, which Ctrl-C ends, or the end of standard input."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: there Ctrl-C is an exception
            loop.add_signal_handler(number, meter.end, "cancelled")
    if events:
        threading.Thread(target=until_left, args=(loop, meter), daemon=True).start()
    gc.collect()
    gc.freeze()
    gc.disable()  # a collection in the middle would be measured as a pause of the server
    return await meter.measure()


def until_left(loop: asyncio.AbstractEventLoop, meter: Any) -> None:
    """Whoever started this process holds the other end of its input, and has gone when that closes."""
    while os.read(0, 4096):
        pass
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(meter.end, "cancelled")


def teller(events: bool) -> Any:
    if events:
        return lambda report: say({"partial": report.partial()})
    if sys.stderr.isatty():
        return lambda report: print(f"\r{status(report)}\033[K", end="", file=sys.stderr, flush=True)
    return None


def say(event: dict[str, Any]) -> None:
    print(json.dumps(event, allow_nan=False, separators=(",", ":")), flush=True)


def status(report: Any) -> str:
    if report.warming:
        return "warming up"
    return f"{len(report.requests)} of {report.plan.requests}, {len(report.running)} under way, {len(report.errors)} failed, {report.seconds:.0f} s"


# ---- for reading


def table(report: dict[str, Any]) -> str:
    """The report as lines of text."""
    plan, found, conditions = report["plan"], report["summary"], report["conditions"]
    load = f"{plan['concurrency']} at a time" if plan["loop"] == "closed" else f"{plan['rate']:g} a second (Poisson)"
    lines = [
        f"{report['endpoint']['name']}  {report['endpoint']['model']}",
        f"{load}, prompts of about {plan['prompt_tokens']} tokens, at most {plan['output_tokens']} written; seed {plan['seed']}",
        "",
        f"{found['done']} answered, {found['failed']} failed, of {plan['requests']}; {report['seconds']:.2f} s" + stopped(report),
    ]
    if found["done"]:
        lines += ["", f"{'seconds':22}{'p50':>10}{'p90':>10}{'p99':>10}{'mean':>10}{'n':>8}"]
        rows = [("ttft", "first token"), ("tpot", "each later token"), ("gap", "between chunks"), ("latency", "whole answer")]
        for name, words in [*rows, *([("late", "sent late by")] if plan["loop"] == "open" else [])]:
            row = found[name]
            if row["n"]:
                lines.append(f"{words:22}" + "".join(f"{row[p]:10.4f}" for p in ("p50", "p90", "p99", "mean")) + f"{row['n']:8}")
        if found["done"] < 100:
            lines.append(f"(with {found['done']} requests, p99 is little else than the slowest of them)")
        lines += [
            "",
            f"{found['tokens_per_second']:.1f} tokens/s, {found['requests_per_second']:.2f} requests/s; "
            f"goodput {found['goodput']:.2f} requests/s ({100 * found['good_share']:.0f} % within {plan['ttft_target']:g} s and {plan['tpot_target']:g} s a token)",
            counted(report["requests"], found, plan, conditions),
            clocked(conditions),
        ]
    if report["errors"]:
        lines += ["", f"{'id':>5}{'after, s':>10}  {'kind':10}"]
        lines += [f"{row['id']:5}{row['at'] - row['sent']:10.2f}  {row['kind']:10}{row['says']['en']}" for row in report["errors"][:SHOWN_ERRORS]]
        if len(report["errors"]) > SHOWN_ERRORS:
            lines.append(f"… and {len(report['errors']) - SHOWN_ERRORS} more")
    return "\n".join(lines)


def clocked(conditions: dict[str, Any]) -> str:
    """How far the meter's own delays are in the figures."""
    if conditions["clock"] != "kernel":
        return "chunks timed as this process read them, its own delays with them"
    late = conditions["read_late"]
    return f"chunks timed by the kernel as they came; this process read them {1e3 * late['p50']:.2f} ms later (p99 {1e3 * late['p99']:.2f} ms)"


def stopped(report: dict[str, Any]) -> str:
    return {"cancelled": "; stopped by hand", "time": "; its time was up", "failing": "; given up, as nothing was answered", None: ""}[report["stopped"]]


def counted(requests: list[dict[str, Any]], found: dict[str, Any], plan: dict[str, Any], conditions: dict[str, Any]) -> str:
    """How tokens were counted, and how many came."""
    wrote = sorted(row["output_tokens"] for row in requests)
    lengths = f"{wrote[0]}" if wrote[0] == wrote[-1] else f"{wrote[0]} to {wrote[-1]}"
    by = "by the server's usage" if all(row["counted_by"] == "usage" for row in requests) else "by chunks with text where the server gave no usage: a lower bound"
    told = f"tokens counted {by}; {lengths} of {plan['output_tokens']} written"
    if found["tokens_per_chunk"] and abs(found["tokens_per_chunk"] - 1) > 0.02:
        told += f"; {found['tokens_per_chunk']:.2f} tokens a chunk, so the time between chunks is not that of a token"
    prompts = sorted(row["prompt_tokens"] for row in requests if row["prompt_tokens"] is not None)
    if prompts:
        told += f"\nprompts of {prompts[0]} to {prompts[-1]} tokens, {conditions['characters_per_token']:.2f} characters each"
        cached = sum(row["cached"] or 0 for row in requests)
        told += f"; {cached} of {sum(prompts)} were in the server's cache" if cached else ""
    else:
        told += f"\nprompt lengths guessed at {conditions['characters_per_token']:.2f} characters a token"
    return told
