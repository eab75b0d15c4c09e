"""Both servers as they are started, in processes that can reach nothing but this machine and write down what they tried.

    lab      the web server, with a compute service behind it; lab.outbound() is what either tried to reach
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.browser.conftest import end, free_port, launch, wait_until_healthy
from tests.conftest import ROOT

HERE = Path(__file__).parent
RECORD = "INFERENCE_LAB_TEST_OUTBOUND"
MARKUP = "<img src=x onerror=alert(1)>"


@dataclass(frozen=True)
class Lab:
    url: str
    compute: str
    record: Path
    endpoints: Path  # what the operator lists; read anew at each call

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def outbound(self) -> list[str]:
        return self.record.read_text("utf-8").splitlines() if self.record.exists() else []


def guarded(record: Path) -> dict[str, str]:
    """The environment of a process that cannot leave this machine."""
    return os.environ | {RECORD: str(record), "PYTHONPATH": str(HERE / "guard"), "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    web, service = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    environment = guarded(folder / "outbound.txt") | {
        "INFERENCE_LAB_COMPUTE": service, "INFERENCE_LAB_LESSONS": str(HERE / "lessons"), "INFERENCE_LAB_NOTES": str(folder / "notes.sqlite"),
        "INFERENCE_LAB_ENDPOINTS": str(folder / "endpoints.toml"), "INFERENCE_LAB_MODELS": str(folder / "models.toml"),
        "INFERENCE_LAB_TEACHER": "the teacher's word", "INFERENCE_LAB_HOSTS": "lab.example",
    }  # fmt: skip
    (folder / "endpoints.toml").write_text("", encoding="utf-8")
    (folder / "models.toml").write_text(f'["{MARKUP}"]\npath = "{(ROOT / "data/checkpoints/mini-64").as_posix()}"\nname = "{MARKUP}"\n', encoding="utf-8")
    processes = [
        launch(["compute", "serve", "--port", service.rpartition(":")[2]], environment),
        launch(["uvicorn", "app.asgi:app", "--host", "127.0.0.1", "--port", web.rpartition(":")[2], "--log-level", "warning"], environment),
    ]
    try:
        for url, process in zip((service, web), processes):
            wait_until_healthy(url, process)
        yield (lab := Lab(web, service, folder / "outbound.txt", folder / "endpoints.toml"))
        assert lab.outbound() == [], "a server tried to leave this machine"
    finally:
        for process in processes:
            end(process)
