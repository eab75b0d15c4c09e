"""The address of the engine that everybody shares, as a client of OpenAI's protocol reaches it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from compute.service.schema import ADDRESS_VARIABLE

START_SECONDS = 10.0


@contextmanager
def served() -> Iterator[str]:
    """Inside the compute service: where it listens. Elsewhere (everything in one process, or the command line) the protocol is served on
    a free port of this machine's own address as long as this lasts."""
    if address := os.environ.get(ADDRESS_VARIABLE):
        yield address
        return
    import uvicorn
    from fastapi import FastAPI

    from compute.service import openai
    from compute.service.api import SameHost, Service
    from compute.service.http import LOOPBACK
    from compute.service.jobs import Limits
    from compute.service.machine import Machine
    from compute.service.serve import listen

    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.mount("/v1", openai.create(Service(Machine(), Limits())))
    app.add_middleware(SameHost, hosts=set(LOOPBACK))
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="protocol", daemon=True)
    thread.start()
    try:
        until = time.monotonic() + START_SECONDS
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        listening.close()
