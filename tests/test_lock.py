"""The lock files: true to the requirements, complete, in agreement with each other, and what is installed here."""

from __future__ import annotations

import importlib.metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.lock import BY_MACHINE, ROOT, TORCH, pins

SETS = sorted(path.stem for path in ROOT.glob("requirements*.txt"))
LOCKS = {path.name: pins(path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("requirements*.lock"))}


def requirements(name: str) -> list[Requirement]:
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    included = [one for line in lines if line.startswith("-r ") for one in requirements(line.removeprefix("-r "))]
    return included + [Requirement(line) for line in lines if line and not line.startswith("-r ")]


def locked(name: str) -> list[Requirement]:
    return [Requirement(pin.splitlines()[0].rstrip(" \\")) for pin in LOCKS[name]]


@pytest.mark.parametrize("each", SETS)
def test_a_lock_holds_what_its_requirements_name(each):
    """Catches: a version changed by hand in one of the two. The way out: python -m tests.lock"""
    wanted = requirements(f"{each}.txt")
    held = {(canonicalize_name(pin.name), str(pin.specifier)) for pin in locked(f"{each}.lock") + locked(TORCH)}
    assert wanted and not [str(one) for one in wanted if (canonicalize_name(one.name), str(one.specifier)) not in held]


def test_all_is_hashed_but_what_differs_from_machine_to_machine():
    """Catches: an archive that pip would take unseen; torch among the hashed, where no hash fits every machine."""
    assert set(LOCKS) == {f"{each}.lock" for each in SETS} | {TORCH}
    for name, entries in LOCKS.items():
        assert len(entries) == len([line for line in (ROOT / name).read_text().splitlines() if line[:1] not in ("#", " ")])
        for entry in entries:
            assert bool(BY_MACHINE.match(entry)) == (name == TORCH) == ("--hash=sha256:" not in entry), entry


def test_sets_agree_and_name_no_address():
    """Catches: two sets that cannot be installed together; the address of somebody's own index."""
    versions: dict[str, str] = {}
    for name in LOCKS:
        for pin in locked(name):
            key = f"{pin.name};{pin.marker}"
            assert versions.setdefault(key, str(pin.specifier)) == str(pin.specifier), f"{pin.name} in {name}"
        assert not re.search(r"://|index|find-links", (ROOT / name).read_text(encoding="utf-8"))


def test_installed_is_what_is_locked():
    """Catches: an installation beside the locks. Torch may say which build it is (2.13.0+cpu). The way out: python3 run.py test"""
    wanted = [pin for name in ("requirements.lock", "requirements-test.lock") for pin in locked(name) if not pin.marker or pin.marker.evaluate()]
    installed = {canonicalize_name(each.name): each.version for each in importlib.metadata.distributions()}
    differing = {str(pin): installed.get(canonicalize_name(pin.name)) for pin in wanted
                 if not pin.specifier.contains(installed.get(canonicalize_name(pin.name), "0"))}
    assert len(wanted) > 80 and not differing
    assert f"torch=={importlib.metadata.version('torch').split('+')[0]}" in LOCKS[TORCH]
