"""A service under load: requests arrive by themselves, a policy of compute/batching serves them, a clock prices every step.

    requests.py   when they arrive and how long they are: Poisson, even, bursty or replayed; workloads by name
    flow.py       all of them through a policy, from the first arrival to the last token
    crowd.py      how that is done fast: all who decode count as one; quick.py: a clock for one step at a time
    waits.py      percentiles and shares of many waits, and how sure they are
    load.py       one rate: waits, goodput, Little's law, the queue; or overload, and how fast it grows
    knee.py       many rates: up to which the targets are met, and up to which the queue stays
    rates.py      what the load lab draws of a setting: one rate, its curve of rates, how waits are spread; each made once
    theory.py     one server, M/M/1 and M/D/1: the same simulation beside the closed form

Rates are requests a second, times seconds, lengths tokens.
"""

from compute.serving.knee import Point, Sweep, sweep
from compute.serving.load import Capacity, Little, Queue, Run, run
from compute.serving.requests import KINDS, WORKLOADS, Workload, arrivals, lengths
from compute.serving.theory import Theory, queue
from compute.serving.waits import Good, Latency, Percentile

__all__ = [
    "KINDS", "WORKLOADS", "Capacity", "Good", "Latency", "Little", "Percentile", "Point", "Queue", "Run", "Sweep", "Theory", "Workload",
    "arrivals", "lengths", "queue", "run", "sweep",
]  # fmt: skip
