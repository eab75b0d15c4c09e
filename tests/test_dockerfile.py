"""The Dockerfile: linted, and its steps are those of run.py. Nothing here builds an image."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.test_run import ROOT, requirements, run

TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STEPS = [tuple(line.split(maxsplit=1)) for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", TEXT, flags=re.MULTILINE)).splitlines() if line]


def values(instruction: str) -> list[str]:
    return [value.strip() for name, value in STEPS if name == instruction]


def test_hadolint_finds_nothing():
    """Catches: what a build would refuse, and what is unwise in an image."""
    hadolint = Path(sysconfig.get_path("scripts")) / "hadolint"
    if not hadolint.exists():
        pytest.skip("no hadolint for this platform")
    done = subprocess.run([hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_set_up_and_started_as_by_hand():
    """Catches: another way to install; a command or an option that run.py does not have; a port that nobody serves."""
    assert "python3 run.py setup" in values("RUN")
    python, script, *options = json.loads(values("CMD")[0])
    served = run.arguments(options)
    assert (python, script) == ("python3", "run.py") and served.host == "0.0.0.0"
    assert values("EXPOSE") == [str(served.port)] and f":{served.port}/healthz" in values("HEALTHCHECK")[0]


def test_what_setup_reads_is_there_before_it_and_nobody_is_root():
    names = [f"{name} {value}" for name, value in STEPS]
    setup, copied = names.index("RUN python3 run.py setup"), values("COPY")[0].split()[:-1]
    assert names.index(f"COPY {values('COPY')[0]}") < setup and names.index("COPY . .") > setup
    for file in [ROOT / "run.py", *requirements(ROOT)]:
        assert file.exists() and any(fnmatch.fnmatch(file.name, pattern) for pattern in copied), file.name
    assert not any(name == "USER" for name, _ in STEPS[setup:]) and values("USER")[-1] not in ("0", "root")
    assert names.index(f"USER {values('USER')[-1]}") < setup


def test_the_context_holds_the_course_and_no_secrets():
    """Catches: a folder of the course left out of the image; the operator's files and other people's notes put into it."""
    out = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert not {"app", "components", "compute", "data", ".streamlit", "run.py"} & set(out)
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split() if line.startswith("/")}
    assert {"models", "endpoints.toml", "models.toml", "var"} <= ignored and not [path for path in ignored - set(out) if "*" not in path]
    assert {".git", ".venv"} <= set(out)
