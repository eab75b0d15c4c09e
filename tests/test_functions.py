"""The command line: every function by name, with JSON in and out, and one clear line when something is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compute import functions
from compute.errors import MESSAGES, BadInput, LabError, UnknownName

ROOT = Path(__file__).parents[1]


def command(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "compute", *args], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_the_anchor_from_the_command_line():
    """Catches a broken path from argument to JSON: the figures of the README's example."""
    done = command("call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 58, "context": 4096}')
    assert done.returncode == 0, done.stderr
    step = json.loads(done.stdout)
    assert round(step["step_seconds"] * 1e3, 2) == 25.17
    assert round(step["tokens_per_second"]) == 2304


def test_list_gives_a_schema_for_every_function():
    """Catches a function whose parameters cannot be described, such as one without annotations."""
    done = command("list")
    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    assert set(table) == set(functions.TABLE) and table
    for name, row in table.items():
        assert row["summary"], name
        assert row["parameters"]["type"] == "object", name


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["call", "roofline.decod"], ["roofline.decod", "roofline.decode"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100"}'], ["h100", "h100-sxm"]),
        (["call", "roofline.decode", '{"model": "qwen", "chip": "h100-sxm"}'], ["qwen", "qwen3.8-27b"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 0}'], ["batch", "0", "at least 1"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 1.5}'], ["batch", "1.5"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "size": 1}'], ["size", "batch"]),
        (["call", "roofline.decode", '{"chip": "h100-sxm"}'], ["model", "required"]),
        (["call", "roofline.decode", "[1]"], ["object"]),
        (["call", "roofline.decode", "{batch: 1}"], ["JSON"]),
        (["call", "roofline.decode", '{"model": "qwen3.8-27b", "chip": "h100-sxm", "batch": 59}'], ["does not fit", "0.3092 GB"]),
        (["call", "roofline.decode", '{"model": {"hidden_size": 0}, "chip": "h100-sxm"}'], ["hidden_size", "0"]),
        (["call", "roofline.decode", '{"model": {"parameters": 1e9}, "chip": {"memory_bytes": 1e9}}'], ["bandwidth_bytes_per_s"]),
    ],
)
def test_bad_input_is_one_clear_line(args, words):
    """Catches tracebacks, silent defaults, and messages that name neither the value nor the way out."""
    done = command(*args)
    assert done.returncode == 2 and not done.stdout
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_errors_survive_the_wire_in_both_languages():
    """Catches an error that loses its class or its values between service and page."""
    for error in (BadInput("batch", 0, "at least 1 is needed", "至少要 1"), UnknownName("model", "模型", "x", ["a", "b"])):
        back = LabError.from_json(json.loads(json.dumps(error.to_json())))
        assert type(back) is type(error) and back.values == error.values
        assert back.message("zh") == error.message("zh") != back.message("en")


def test_every_message_has_both_languages():
    """Catches a failure that could be told in one language only."""
    assert MESSAGES
    for code, words in MESSAGES.items():
        assert set(words) == {"zh", "en"} and all(words.values()), code


def test_numbers_lists_every_kind():
    """Catches a resolver that lost a whole table: quoted figures, claims, and nothing unknown."""
    done = command("numbers", "--json")
    assert done.returncode == 0, done.stderr
    kinds = {row["kind"] for row in json.loads(done.stdout).values()}
    assert {"quoted", "computed"} <= kinds
