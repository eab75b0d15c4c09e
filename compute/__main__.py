"""python -m compute list | call NAME JSON | numbers | serve | meter URL | models | bench | precompute | verify"""

from __future__ import annotations

import argparse
import json
import os
import sys

from compute import functions
from compute.errors import BrokenData, Internal, LabError, lacking
from compute.meter.command import arguments as meter_arguments


def _list(args) -> int:
    table = {name: {"where": f.where, "summary": f.summary, "parameters": functions.schema(name)} for name, f in functions.TABLE.items()}
    print(json.dumps(table, ensure_ascii=False, indent=2))
    return 0


def _call(args) -> int:
    try:
        params = json.loads(args.params)
    except (ValueError, RecursionError) as e:  # not JSON, a number of thousands of digits, a thousand brackets
        print(f"the parameters are not JSON ({e}); write for instance '{{\"batch\": 58}}'", file=sys.stderr)
        return 2
    if not isinstance(params, dict):
        print("the parameters must be one JSON object such as '{\"batch\": 58}'", file=sys.stderr)
        return 2
    report = None
    if sys.stderr.isatty():
        report = lambda fraction, note, partial=None: print(f"\r{fraction:4.0%} {note}\033[K", end="", file=sys.stderr)  # noqa: E731
    try:
        result = functions.call(args.function, params, report=report)
    finally:
        if report:
            print("\r\033[K", end="", file=sys.stderr)
    print(json.dumps(result, ensure_ascii=False, indent=2))
    return 0


def _numbers(args) -> int:
    from compute import facts, numbers

    prefix = args.prefix.lstrip("=~")
    broken = {str(e): id for id, e in facts.broken().items() if id.startswith(prefix) or prefix.startswith(id)}
    asked = [name for name in numbers.names() if name.lstrip("=~").startswith(prefix)]
    if not asked and not broken:
        numbers.resolve(args.prefix)  # raises, naming the closest ones
    rows = {}
    for name in asked:
        try:
            rows[name] = functions.plain(numbers.resolve(name))
        except BrokenData as e:  # costs only the numbers made of it
            broken[str(e)] = name
    for sentence in broken:
        print(sentence, file=sys.stderr)
    failed = 2 if broken else 0
    if args.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return failed
    for name, q in rows.items():
        print(f"{name:44} {q['kind']:9} {q['value']!s:>24} {q['unit']:10} {q['formula'] or (q['source'] or {}).get('title', '')}")
    return failed


def _serve(args) -> int:
    from compute.service.serve import serve

    return serve(host=args.host, port=args.port, device=args.device, allow_hosts=args.allow_host) or 0


def _models(args) -> int:
    from compute.engine import smollm2

    return smollm2.main()


def _bench(args) -> int:
    if args.device:
        args.rest = ["card", "--device", args.device, *(["--json"] if args.json else []), *args.rest]
    if args.rest[:1] == ["overlay"]:  # needs no torch
        from compute import bench_overlay

        return bench_overlay.main(args.rest[1:])
    if args.rest[:1] == ["load"]:
        from compute.serving import bench as bench_load

        return bench_load.main(args.rest[1:])
    if args.rest[:1] == ["meter"]:
        from compute.meter import bench as bench_meter

        return bench_meter.main(args.rest[1:])
    from compute.engine import bench

    return bench.main(args.rest)


def _calibrate(args) -> int:
    from compute import calibrate

    return calibrate.main(["--tables", args.tables] if args.tables else [])


def _meter(args) -> int:
    from compute.meter import command

    return command.run(args)


def _wait_politely() -> None:
    """Threads that wait for each other sleep instead of spinning: on a machine that does something else too, spinning makes
    minutes out of seconds. Before torch is loaded."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _verify(args) -> int:
    from compute import verify

    _wait_politely()
    return verify.main(only=args.only, as_json=args.json)


def _precompute(args) -> int:
    from compute import precompute

    _wait_politely()
    return precompute.main(only=args.only, force=args.force, ray=args.ray)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m compute", description="Every number of the courseware from the command line.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="functions and their parameters as JSON schemas").set_defaults(run=_list)
    p = commands.add_parser("call", help="call one function with a JSON object")
    p.add_argument("function")
    p.add_argument("params", nargs="?", default="{}")
    p.set_defaults(run=_call)
    p = commands.add_parser("numbers", help="every number that prose may name, with its papers")
    p.add_argument("prefix", nargs="?", default="")
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=_numbers)
    p = commands.add_parser("serve", help="the compute service")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, default=8502)
    p.add_argument("--device", default=os.environ.get("INFERENCE_LAB_DEVICE", "auto"), choices=["auto", "cpu", "cuda", "mps"])
    p.add_argument("--allow-host", action="append", default=[])
    p.set_defaults(run=_serve)
    commands.add_parser("models", help="fetch the optional public model").set_defaults(run=_models)
    p = commands.add_parser("meter", help="measure a running endpoint that speaks OpenAI's protocol")
    meter_arguments(p)
    p.set_defaults(run=_meter)
    p = commands.add_parser("bench", help="benchmarks, as ratios in one alternating run")
    p.add_argument("--device", help="all that one device is asked, in a few minutes; the same as: bench card --device …")
    p.add_argument("--json", action="store_true", help="of that")
    p.add_argument("rest", nargs=argparse.REMAINDER)
    p.set_defaults(run=_bench)
    p = commands.add_parser("calibrate", help="fit the calibrated clock to published kernel measurements")
    p.add_argument("--tables", help="the folder systems/data of aiconfigurator-core; found by itself where that is installed")
    p.set_defaults(run=_calibrate)
    p = commands.add_parser("precompute", help="make the stored numbers again whose inputs changed")
    p.add_argument("--only", default="", metavar="PREFIX")
    p.add_argument("--force", action="store_true", help="also those whose inputs did not change")
    p.add_argument("--ray", nargs="?", const="", metavar="ADDRESS", help="on all machines of a Ray cluster; without an address the one that runs here, or all cores")
    p.set_defaults(run=_precompute)
    p = commands.add_parser("verify", help="recompute every stored number and compare")
    p.add_argument("--only", default="")
    p.add_argument("--json", action="store_true")
    p.set_defaults(run=_verify)
    args = parser.parse_args(argv)
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except LabError as e:
        print(e.message("en"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read has read enough, as head does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemoryError, OSError, RuntimeError) as e:
        if (code := lacking(e)) is None:
            raise
        print(Internal(code).message("en"), file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # it may be what is full
        return 1
    except KeyboardInterrupt:
        goes_on = "; what was stored stays, and the same command goes on from there" if args.command == "precompute" else ""
        print(f"stopped{goes_on}", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
