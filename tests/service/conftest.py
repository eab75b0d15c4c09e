"""A service process for tests, and this process as its client."""

import pytest

from compute import functions
from compute.service import client
from tests.service import toys
from tests.service.process import Server


@pytest.fixture
def start():
    """start(port=0, **limits) → Server; all are stopped at the end."""
    servers = []

    def starter(port: int = 0, **limits) -> Server:
        servers.append(Server(port, **limits))
        return servers[-1]

    yield starter
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def _shared():
    server = Server(running=2, waiting=1, seconds=3, body_bytes=2000)
    yield server
    server.stop()


@pytest.fixture
def use(monkeypatch):
    """use(server or address): the client of this process calls there, and knows the toys."""
    monkeypatch.setattr(functions, "TABLE", {**functions.TABLE, **toys.TOYS})

    def choose(where):
        monkeypatch.setenv(client.VARIABLE, getattr(where, "url", where))
        client._statuses.clear()

    return choose


@pytest.fixture
def server(_shared, use):
    """One service for the tests that leave it whole: 2 running, 1 waiting, 3 s, 2000 bytes."""
    _shared.idle_within(5)
    use(_shared)
    return _shared


@pytest.fixture(scope="session")
def _talking():
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def talking(_talking, use):
    """One service with its usual limits, for the tests that talk to its models."""
    use(_talking)
    return _talking
