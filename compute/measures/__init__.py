"""Who makes the numbers of data/precomputed.json: one module a subject.

To keep a new number:
1. In the module of its subject write a measure: `def acceptance(*, target: str, k: int, report: Report) -> dict[str, Value]`.
   It imports torch itself (pages read this package without it) and calls `report(fraction, note)` when it takes seconds.
2. Name it in the module's MEASURES and list its calls in `jobs()`: Job(measure, params, keys, models). Keys are what prose
   writes after ~; one job may answer many keys, and should where they need the same run. Keep a job under a minute.
3. A new module goes into MODULES below.
4. `python -m compute precompute --only PREFIX`, then `python -m compute verify --only PREFIX`; commit data/precomputed*.
5. What several jobs need (a long generation) is made once, in a function under functools.cache.
"""

from __future__ import annotations

from collections.abc import Callable

from compute.measures import architecture, batching, claims, distributions, drafting, kv, lab, layers, models, moe, prefix, quantize, sampling, serving, sharing, speculative
from compute.measures.job import Job, Report, Value, nobody

MODULES = (models, kv, distributions, sampling, speculative, drafting, batching, sharing, prefix, layers, moe, quantize, architecture, serving, lab, claims)  # claims last: some are about what is stored
MEASURES: dict[str, Callable[..., dict[str, Value]]] = {name: measure for module in MODULES for name, measure in module.MEASURES.items()}

AT_HOME = {"claims", *speculative.MEASURES}  # they read what is stored, so they are made where the store is, after the others


def jobs() -> list[Job]:
    return [job for module in MODULES for job in module.jobs()]


def wanted(only: str) -> list[Job]:
    """Jobs with a key that begins with `only`; prose's marks = and ~ may stand before it."""
    return [job for job in jobs() if any(key.startswith(only.lstrip("=~")) for key in job.keys)]


def run(job: Job, report: Report = nobody) -> dict[str, Value]:
    """What the job's measure makes now, by key."""
    made = MEASURES[job.measure](report=report, **job.params)
    if set(made) != set(job.keys):
        raise AssertionError(f"{job.measure} made {sorted(made)} instead of {sorted(job.keys)}")
    return made
