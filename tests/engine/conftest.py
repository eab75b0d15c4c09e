"""Each tiny model is made, saved and loaded once for all tests."""

from functools import cache

import pytest

from compute.engine.loader import load

from . import tiny


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """made(case) → (transformers' model, ours loaded from its directory in float32 on the CPU, the directory)."""

    @cache
    def make(case: str):
        theirs = tiny.reference(case)
        path = tiny.save(theirs, tmp_path_factory.mktemp("model"))
        return theirs, load(path, device="cpu", dtype="float32"), path

    return make


@pytest.fixture(scope="session")
def model(made):
    """The Llama with grouped heads and tied embedding, for tests that need any model."""
    return made("llama, grouped heads, tied")[1]
