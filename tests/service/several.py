"""A Ray cluster of two nodes on this machine with the service on it, for tests and measurements: little of everything, on loopback."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_metrics_collection": "0", "RAY_SERVE_LOG_TO_STDERR": "0", "RAY_worker_niceness": "0",
    "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the last: on loopback
}  # fmt: skip

import ray  # noqa: E402
from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from compute.service import cluster  # noqa: E402
from tests.service import toys  # noqa: E402

ROOT = Path(__file__).parents[2]
STEP_SECONDS = 0.01  # of an engine here, so that there is time to kill it


class ToyPart(cluster.Part):
    """With the toys beside the real functions, and with an engine that takes its time."""

    def __init__(self, *arguments, **more):
        toys.offer()
        super().__init__(*arguments, **more)
        if serve.get_replica_context().deployment == "engines":
            from compute.engine.engine import Engine

            quick = Engine.step

            def step(engine):
                time.sleep(STEP_SECONDS)
                return quick(engine)

            Engine.step = step


@dataclass(frozen=True)
class Several:
    url: str
    seconds: float  # until it answered

    def take_away(self) -> None:
        """The service, as `serve shutdown` and a smaller cluster do; waits until it is gone."""
        serve.delete("default")

    def kill(self, deployment: str) -> str:
        """One of its replicas, without a word; its name."""
        name = self.replicas(deployment)[0]
        ray.kill(ray.get_actor(name, namespace="serve"))
        return name

    def replicas(self, deployment: str) -> list[str]:
        names = (actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True))
        return sorted(name for name in names if name.startswith(f"SERVE_REPLICA::default#{deployment}#"))


@contextmanager
def several(part: type[cluster.Part] = ToyPart) -> Iterator[Several]:
    began = time.monotonic()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    node = {"num_cpus": 4, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=node)
    try:
        nodes.add_node(**{name: value for name, value in node.items() if name != "include_dashboard"})
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        serve.start(http_options={"host": "127.0.0.1", "port": port}, proxy_location="HeadOnly")
        settings = cluster.Settings(functions=2, most_functions=2, engines=2, most_engines=2, function_cpus=0.1, engine_cpus=0.1,
                                    device="cpu", address=f"http://127.0.0.1:{port}")  # fmt: skip
        serve.run(cluster.application(settings, part, preload=False))
        yield Several(settings.address, time.monotonic() - began)
    finally:
        ray.shutdown()
        nodes.shutdown()


