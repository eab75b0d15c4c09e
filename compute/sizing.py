"""How big a machine park must be: so many learners online at once, what they do, and what one of each machine can take.

    python -m compute call sizing.plan '{"learners": 100000}'
    python -m compute.sizing          the tables of docs/sizing.md

Work that adds up, over what a machine may take: cores = work per second / `busy`. The share that is left free is what keeps waiting short
and bears a server that died; how long anybody waits is not computed here (`python -m tests.load` measures it on one server). A web
server is one process on one core. What one learner costs is measured (data/measured/sizing.json); machines are taken to be like the one
it was measured on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from compute import numbers, roofline
from compute.errors import BadInput
from compute.facts import ChipRef, ModelRef
from compute.quantity import Quantity

ENGINE = "~engine.{}.many.continuous.tokens_per_second"
SIZES = (30, 300, 3_000, 30_000, 100_000)  # of the table

Learners = Annotated[int, Field(ge=1, le=10_000_000, description="online at the same time")]
PerMinute = Annotated[float, Field(ge=0, le=600, description="of one learner, in the mean")]
Tokens = Annotated[int, Field(ge=1, le=100_000, description="that a text asked of the live engine has")]
Batch = Annotated[int, Field(ge=1, le=1024, description="texts that a GPU's engine writes together; only with a chip")]
Busy = Annotated[float, Field(ge=0.05, le=1, description="share of its time that a machine may be busy")]
Minutes = Annotated[float, Field(ge=0.1, le=1440, description="within which all open their first lesson")]


@dataclass(frozen=True)
class Plan:
    """Each by its name: what one costs, what is needed for all, in the order in which one follows from another; and how many learners a
    machine carries before it takes a second (none is named that nobody needs). turnover: the texts a minute of one learner at which the
    engines need as many cores, or GPUs, as there are web servers."""

    learners: int
    one: dict[str, Quantity]
    needed: dict[str, Quantity]
    carries: dict[str, Quantity]
    turnover: Quantity


def plan(
    learners: Learners, actions_per_minute: PerMinute = 4, texts_per_minute: PerMinute = 0.2, tokens_per_text: Tokens = 64,
    model: ModelRef = "mini-256", chip: ChipRef | None = None, batch: Batch = 64, busy: Busy = 0.6, arrive_minutes: Minutes = 5,
) -> Plan:  # fmt: skip
    """Web servers, nginx, memory, bandwidth and engines for learners who are online at the same time.

    An action is a control moved, a question answered, a page opened. Without a chip the live engine runs on processor cores and its speed
    is measured; with one it is the least share of the ideal bound that published engines reach. Raises LabError for what was not measured."""
    return needs(one(model, chip, batch, tokens_per_text), learners, actions_per_minute, texts_per_minute, tokens_per_text, busy, arrive_minutes)


def one(model: ModelRef, chip: ChipRef | None, batch: int, tokens_per_text: int) -> dict[str, Quantity]:
    """What one costs: an action, a learner, a server, a first visit; and what an engine writes. Raises like `plan`."""
    return {name: numbers.resolve(f"~sizing.{key}") for name, key in (
        ("action_seconds", "web.seconds_per_action"), ("action_bytes", "web.bytes_per_action"), ("learner_bytes", "web.bytes_per_learner"),
        ("server_bytes", "web.bytes_empty"), ("visit_bytes", "visit.bytes"), ("visit_web_seconds", "visit.web_seconds"),
        ("visit_nginx_seconds", "visit.nginx_seconds"))} | {"engine_tokens_per_second": _engine(model, chip, batch, tokens_per_text)}  # fmt: skip


def needs(one: dict[str, Quantity], learners: int, actions_per_minute: float, texts_per_minute: float, tokens_per_text: int, busy: float, arrive_minutes: float) -> Plan:
    """The plan at what one costs."""
    cost = {name: quantity.value for name, quantity in one.items()}
    needed: dict[str, Quantity] = {}

    def need(name: str, value: float, unit: str, formula: str, zh: str, en: str, **inputs: float) -> float:
        needed[name] = Quantity(value, unit, "computed", formula, inputs, says={"zh": zh, "en": en})
        return value

    actions = need("actions_per_second", learners * actions_per_minute / 60, "1/s", "learners × actions per minute / 60",
                   "每秒要回应的操作", "actions to answer in a second", learners=learners, actions_per_minute=actions_per_minute)
    visits = need("visits_per_second", learners / (60 * arrive_minutes), "1/s", "learners / seconds in which they arrive",
                  "刚开始时每秒有多少人打开第一课", "first visits in a second, at the beginning", learners=learners, arrive_minutes=arrive_minutes)
    work = need("web_work", max(actions * cost["action_seconds"], visits * cost["visit_web_seconds"]), "core",
                "the larger of actions per second × seconds of one, first visits per second × seconds of one", "网页服务的工作：每秒要算几秒",
                "work of the web servers: seconds to compute in a second", action_seconds=cost["action_seconds"], visit_seconds=cost["visit_web_seconds"])
    servers = need("web_servers", math.ceil(work / busy), "count", "⌈work / busy⌉, each on one core", "网页服务（各占一核）",
                   "web servers, each on one core", busy=busy)
    need("web_memory", servers * cost["server_bytes"] + learners * cost["learner_bytes"], "B", "servers × empty server + learners × learner",
         "网页服务的内存", "memory of the web servers", server_bytes=cost["server_bytes"], learner_bytes=cost["learner_bytes"])
    need("nginx_cores", visits * cost["visit_nginx_seconds"] / busy, "core", "first visits per second × seconds of nginx / busy",
         "nginx 的核数", "cores of nginx", visit_seconds=cost["visit_nginx_seconds"], busy=busy)
    need("connections", 2 * learners, "count", "2 × learners: to the browser and to its web server", "nginx 同时开着的连接", "connections open at nginx", learners=learners)
    need("bandwidth_at_first", visits * cost["visit_bytes"], "B/s", "first visits per second × bytes of one",
         "刚开始时的带宽", "bandwidth at the beginning", visit_bytes=cost["visit_bytes"])
    need("bandwidth_later", actions * cost["action_bytes"], "B/s", "actions per second × bytes of one, uncompressed",
         "之后的带宽", "bandwidth afterwards", action_bytes=cost["action_bytes"])
    texts = need("texts_per_minute", learners * texts_per_minute, "1/min", "learners × texts per minute", "每分钟要现场生成的文本",
                 "live texts in a minute", learners=learners, texts_per_minute=texts_per_minute)
    tokens = need("tokens_per_second", texts / 60 * tokens_per_text, "token/s", "texts per minute / 60 × tokens", "每秒要生成的 token",
                  "tokens to write in a second", tokens_per_text=tokens_per_text)
    engines = need("engines", math.ceil(tokens / (busy * cost["engine_tokens_per_second"])), "count", "⌈tokens per second / (busy × an engine's)⌉",
                   "引擎", "engines", busy=busy, engine_tokens_per_second=cost["engine_tokens_per_second"])
    speed = one["engine_tokens_per_second"]
    estimated = speed.kind == "computed"  # on a chip
    threads = 1 if estimated else speed.conditions["threads"]
    if not estimated:
        need("engine_cores", engines * threads, "core", "engines × threads of one", "引擎的核数", "cores of the engines", threads=threads)
    else:
        need("gpus", engines, "count", "one engine on each", "GPU", "GPUs")
    carries = {
        "web_server": _carries(learners, busy, work, "一个网页服务带得动", "one web server carries"),
        "nginx_core": _carries(learners, 1, needed["nginx_cores"].value, "nginx 的一核带得动", "one core of nginx carries"),
    }
    if tokens:
        carries["engine"] = _carries(learners, busy * speed.value, tokens, "一个引擎带得动", "one engine carries")
        if estimated:
            carries["engine_at_bound"] = _carries(learners, busy * speed.inputs["bound"], tokens, "一个引擎在理想上界下带得动", "one engine at the ideal bound would carry")
    even = Quantity(60 * work * speed.value / (learners * tokens_per_text * threads), "1/min", "computed",
                    "60 × work of the web servers × an engine's tokens per second / (learners × tokens of a text × cores of an engine)",
                    {"work": work, "engine_tokens_per_second": speed.value, "learners": learners, "tokens_per_text": tokens_per_text, "cores": threads},
                    says={"zh": "每人每分钟要这么多篇文本，引擎才和网页服务要得一样多", "en": "texts a minute of one learner at which engines need as many as web servers"})
    carries = {name: found for name, found in carries.items() if math.isfinite(found.value)}  # of next to no work: more than there are numbers for
    return Plan(learners, one, needed, carries, even)


def _carries(learners: int, capacity: float, load: float, zh: str, en: str) -> Quantity:
    return Quantity(learners * capacity / load, "learner", "computed", "learners × capacity of one / load of all", {"learners": learners, "capacity": capacity, "load": load}, says={"zh": zh, "en": en})


def _engine(model: ModelRef, chip: ChipRef | None, batch: int, tokens: int) -> Quantity:
    """Tokens per second of one engine with its slots full."""
    if chip is None:
        name = ENGINE.format(model)
        if not isinstance(model, str) or name not in numbers.names():
            measured = [n.split(".")[1] for n in numbers.names() if n == ENGINE.format(n.split(".")[1] if "." in n else "")]
            raise BadInput("model", model if isinstance(model, str) else "{…}", f"without a chip it is one whose engine was measured: {', '.join(measured)}",
                           f"不给 chip 时只能是测过引擎的模型：{'、'.join(measured)}")  # fmt: skip
        return numbers.resolve(name)
    bound, share = roofline.decode(model, chip, batch, tokens).tokens_per_second, numbers.resolve("=engines.of_bound")
    return Quantity(bound * share.value[0], "token/s", "computed", "ideal bound of a full batch × least share of it that published engines reach",
                    {"bound": bound, "share": share.value[0], "batch": batch, "context": tokens}, share.source,
                    {"note": "our own engine was not measured on this chip"}, says={"zh": "一个引擎在这种卡上的生成速度（估计）", "en": "an engine on this chip (estimate)"})  # fmt: skip


def table() -> str:
    """For docs/sizing.md: what each number of learners needs, with everything else as it is by default."""
    plans = [plan(learners) for learners in SIZES]
    rows = [["learners online", *(f"{found.learners:,}" for found in plans)]]
    for name, unit, scale in (("actions_per_second", "", 1), ("web_servers", "", 1), ("web_memory", " (GB)", 1e9), ("nginx_cores", "", 1), ("connections", "", 1),
                              ("bandwidth_at_first", " (Gbit/s)", 1e9 / 8), ("bandwidth_later", " (Gbit/s)", 1e9 / 8), ("texts_per_minute", "", 1),
                              ("tokens_per_second", "", 1), ("engines", "", 1), ("engine_cores", "", 1)):  # fmt: skip
        rows.append([plans[0].needed[name].says["en"] + unit, *(_digits(found.needed[name].value / scale) for found in plans)])
    lines = [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in [lines[0], " | ".join(["---", *["---:"] * len(plans)]), *lines[1:]])


def _digits(value: float) -> str:
    """Whole numbers as they are, others below 100 to two digits."""
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{float(f'{value:.2g}'):g}"


def costs() -> str:
    """For docs/sizing.md: what one costs, with its kind and where it was measured."""
    lines = ["| name | one costs | kind | conditions |", "|---|---|---|---|"]
    for name, quantity in plan(1).one.items():
        about = quantity.conditions
        shown = ", ".join(f"{key} {about[key]}" for key in ("cpu", "threads", "learners", "rounds", "slots", "load average", "date", "command") if key in about)
        lines.append(f"| {name} | {_digits(float(f'{quantity.value:.3g}'))} {quantity.unit}: {quantity.says['en']} | {quantity.kind} | {shown} |")
    return "\n".join(lines)


def limits() -> str:
    """For docs/sizing.md: how many learners one carries, with everything as it is by default; and where engines need as many cores as pages."""
    found = plan(1)
    lines = [f"- {quantity.says['en']} {_digits(float(f'{quantity.value:.3g}'))} learners" for quantity in found.carries.values()]
    return "\n".join([*lines, f"- {found.turnover.says['en']}: {_digits(float(f'{found.turnover.value:.3g}'))}"])


if __name__ == "__main__":
    print(costs(), table(), limits(), sep="\n\n")
