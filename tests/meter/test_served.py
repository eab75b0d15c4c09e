"""The meter as pages and the command line run it: a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compute import functions
from compute.errors import BadInput, Cancelled
from compute.meter import endpoints, served
from compute.meter.client import Target
from compute.meter.report import Plan
from tests.meter.fake import CHUNKED, NEVER, Fake, chunked, obedient, text

ROOT = Path(__file__).parents[2]


@pytest.fixture
def serve(tmp_path, monkeypatch):
    """serve(answer): a Fake on the operator's list under the name fake."""
    fakes = []

    def start(answer, lines: str = "", **more) -> Fake:
        fakes.append(Fake(answer, **more).__enter__())
        (tmp_path / "endpoints.toml").write_text(f'[fake]\nurl = "{fakes[-1].url}"\n{lines}', "utf-8")
        monkeypatch.setenv(endpoints.VARIABLE, str(tmp_path / "endpoints.toml"))
        return fakes[-1]

    yield start
    for fake in fakes:
        fake.__exit__()


def meter(*args: str, **more) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "compute", "meter", *args], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


async def hangs_after_three(request):
    """Warm-up and three requests are answered, then everybody gets one chunk and waits."""
    if request.path.endswith("/models") or request.number <= 6:
        async for piece in obedient()(request):
            yield piece
    else:
        yield CHUNKED
        yield chunked(text("a"))
        await asyncio.sleep(NEVER)


def test_a_page_names_an_endpoint_and_gets_its_report(serve):
    """Catches a parameter that does not reach the process, and a key or an address that a page could choose."""
    fake, told = serve(obedient(), keep=True), []
    params = {"endpoint": "fake", "loop": "open", "rate": 50.0, "concurrency": 2, "requests": 5, "prompt_tokens": 30, "output_tokens": 3, "ttft_target": 9.0,
              "tpot_target": 8.0, "seed": 4}  # fmt: skip
    report = functions.call("meter.run", params, report=lambda *args: told.append(args))
    assert report["plan"] == {**{k: v for k, v in params.items() if k != "endpoint"}, "warmup": Plan().warmup}
    assert report["endpoint"] == {"name": "fake", "url": fake.url, "model": "fake"} and report["done"]
    assert [row["output_tokens"] for row in report["requests"]] == [3] * 5 and report["summary"]["good_share"] == 1.0
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_what_is_known_so_far_is_told_and_leaving_ends_the_process(serve):
    """Catches a chart that stays empty, a process that outlives its page, and a server that writes for nobody."""
    fake, told = serve(hangs_after_three, keep=True), []
    params = {"endpoint": "fake", "concurrency": 2, "requests": 9, "output_tokens": 3}
    with pytest.raises(Cancelled):
        functions.call("meter.run", params, lambda *args: told.append(args), lambda: bool(told) and len(told[-1][2]["requests"]) == 3 and len(told[-1][2]["running"]) == 2)
    fraction, note, partial = told[-1]
    assert (fraction, note) == (3 / 9, "3 / 9") and not partial["done"] and partial["summary"]["done"] == 3
    assert all(len(one["chunks"]) == 1 for one in partial["running"])
    until = time.monotonic() + 20
    while fake.left < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert fake.left == 2
    assert not subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", fake.url], capture_output=True, text=True).stdout


def test_the_key_travels_in_the_environment_alone(serve, monkeypatch):
    """Catches a key that everybody on the machine can read in the list of processes, or in a report."""
    monkeypatch.setenv("THE_KEY", "sk-very-secret")
    fake = serve(obedient(), lines='key = "THE_KEY"\nmodel = "m"\n', keep=True)
    assert not any("secret" in word for word in served.command(endpoints.find("fake"), Plan()))
    report = functions.call("meter.run", {"endpoint": "fake", "requests": 1})
    assert {request.headers["authorization"] for request in fake.requests} == {"Bearer sk-very-secret"}
    assert "secret" not in json.dumps(report)


def test_a_process_that_dies_is_a_mistake_of_ours():
    """Catches a page that waits for ever, and a report made of nothing."""
    dies = [sys.executable, "-c", "import sys; sys.exit('why it died')"]
    with pytest.raises(RuntimeError, match="why it died"):
        served.relayed(dies, Plan(), lambda *args: None, lambda: False)


def test_whoever_started_it_and_is_gone_ends_it(serve):
    """Catches a meter that goes on measuring after the service was killed."""
    fake = serve(hangs_after_three, keep=True)
    process = meter(fake.url, "--events", "--concurrency", "2", stdin=subprocess.PIPE)
    assert "partial" in json.loads(process.stdout.readline())
    process.stdin.close()
    *_, last = process.stdout.read().splitlines()
    assert process.wait(30) == 130 and json.loads(last)["report"]["stopped"] == "cancelled"


def test_ctrl_c_ends_it_with_what_there_is(serve, tmp_path):
    """Catches measurements lost to an impatient hand, and a traceback."""
    fake = serve(hangs_after_three, keep=True)
    process = meter(fake.url, "--concurrency", "2", "--json", str(tmp_path / "report.json"))
    until = time.monotonic() + 60
    while fake.now < 2 or len(fake.requests) < 9:
        assert time.monotonic() < until
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "3 answered, 0 failed" in out and "stopped by hand" in out and "Traceback" not in err
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert (report["stopped"], report["done"], len(report["requests"])) == ("cancelled", False, 3)


def test_the_command_line_writes_the_same_report(serve):
    """Catches a table among the JSON, and a field that only one of the two ways has."""
    fake = serve(obedient(tokens_a_chunk=2), keep=True)
    process = meter(fake.url, "--requests", "4", "--output-tokens", "6", "--json", "-")
    out, err = process.communicate(timeout=60)
    report = json.loads(out)
    assert process.returncode == 0 and "2.00 tokens a chunk" in err and "4 answered" in err
    assert set(report) == set(functions.call("meter.run", {"endpoint": "fake", "requests": 1}))


def test_nothing_answered_is_exit_status_1_and_a_row():
    """Catches a success of zero requests."""
    process = meter("http://127.0.0.1:9", "--requests", "3")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "connect" in out and "0 answered, 1 failed" in out and "Traceback" not in err


@pytest.mark.parametrize(
    ("given", "words"),
    [(["ftp://h"], "only http://"), (["http://h", "--rate", "0"], "rate"), (["http://h", "--ttft", "-1"], "ttft_target"), (["http://h", "--rate", "nan"], "rate"),
     (["http://h", "--key-from", "NO_SUCH_VARIABLE"], "NO_SUCH_VARIABLE")],
)  # fmt: skip
def test_bad_input_is_one_clear_line(given, words):
    """Catches a traceback for a typing error."""
    process = meter(*given)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and not out and len(err.splitlines()) == 1 and words in err


@pytest.mark.parametrize(
    ("field", "value"),
    [("rate", 0), ("rate", -1), ("ttft_target", 0), ("tpot_target", -0.1), ("concurrency", 0), ("requests", 10**6), ("loop", "both"), ("output_tokens", 0), ("seed", -1)],
)
def test_a_page_s_bad_input_is_refused_with_its_value(field, value):
    """Catches a process started for what cannot be."""
    with pytest.raises(BadInput) as wrong:
        functions.call("meter.run", {field: value})
    assert wrong.value.values["field"] == field


def test_the_process_needs_no_torch(serve):
    """Catches seconds of start-up, and an engine's threads beside the clock."""
    fake = serve(obedient(), keep=True)
    code = "import sys\nfrom compute.__main__ import main\nmain(['meter', sys.argv[1], '--requests', '1'])\nprint([m for m in ('torch', 'numpy', 'fastapi', 'streamlit') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code, fake.url], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "[]", ran.stderr


def test_every_option_of_the_plan_reaches_the_process():
    """Catches a field of the plan that the command line forgets."""
    from compute.__main__ import main

    seen = []
    given = Plan("open", 3, 4.5, 6, 7, 8, 0, 10, 11.0, 12.0)
    words = served.command(Target("n", "http://h/v1", "m", "chat"), given)[3:]
    from compute.meter import command

    original, command.run = command.run, lambda args: seen.append(args) or 0
    try:
        assert main(words) == 0
    finally:
        command.run = original
    assert command.plan_of(seen[0]) == given and (seen[0].name, seen[0].model, seen[0].api) == ("n", "m", "chat")
