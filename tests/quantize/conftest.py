"""The tiny models of the engine's tests."""

from tests.engine.conftest import made, model  # noqa: F401
