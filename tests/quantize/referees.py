"""torchao, as a referee. It only checks; nothing of the course runs on it."""

import importlib
import logging

import pytest


def torchao(module: str):
    """A module of torchao; the test is skipped where it is not installed. Its messages about GPU kernels are left out."""
    logging.getLogger("torchao").setLevel(logging.ERROR)
    pytest.importorskip("torchao", reason="the referee; pip install -r requirements-test.txt")
    return importlib.import_module(f"torchao.{module}")
