"""Figures that prose states, from compute/claims: stored so that a changed formula is noticed."""

from __future__ import annotations

from compute.claims.claim import CLAIMS  # of the package itself there is but a part while its lab module imports us
from compute.measures.job import Job, Report, Value, nobody


def claim(*, name: str, report: Report = nobody) -> dict[str, Value]:
    q = CLAIMS[name]()
    return {name: Value(q.value, q.unit, {"relative": 1e-9}, {"formula": q.formula, **q.inputs}, q.kind, q.says)}


MEASURES = {"claims": claim}


def jobs() -> list[Job]:
    return [Job("claims", {"name": name}, (name,)) for name in CLAIMS]
