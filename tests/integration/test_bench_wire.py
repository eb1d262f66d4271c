"""The clients that measure: real calls, and no failure passes for an answer."""

from contextlib import closing

import pytest

from bench.service.clients import METHODS, load, requests
from bench.service.wire import WireCallFailed, WireConnection
from scheduler.client import Client
from tests.e2e.processes import ServerProcess


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    server = ServerProcess(tmp_path_factory.mktemp("server"))
    server.start()
    yield server.address
    server.end()


@pytest.fixture
def connection(address):
    with closing(WireConnection(address)) as made:
        yield made


def _called(connection, path, body):
    connection.ask(path, body)
    while not connection.read_answer():
        pass


def test_calls_of_the_load_arrive(address):
    with Client(address) as client:
        before = client.get_status().version
        found = load(address, "churn", clients=3, seconds=0.3, first=0)
        assert len(found["took_us"]) >= 3
        assert client.get_status().version > before + len(found["took_us"])


@pytest.mark.slow
def test_a_connection_takes_more_than_a_window_of_bytes(connection):
    create, cancel = METHODS["churn"]
    sent = 0
    for body, end in requests(0):
        _called(connection, create, body)
        _called(connection, cancel, end)
        sent += len(body)
        if sent > 70_000:
            return


@pytest.mark.parametrize("path", [METHODS["submit"][0], "/scheduler.v1.SchedulerService/Nothing"])
def test_a_refused_call_ends_it(connection, path):
    with pytest.raises(WireCallFailed, match="grpc-status"):
        _called(connection, path, b"")
