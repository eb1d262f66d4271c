"""Many clients of one server in a process of their own, each asking as fast as it is answered.

    python -m bench.service.clients ADDRESS submit|vary|churn|echo
                                    [--clients 64 --seconds 10 --first 0]

Each has a connection of its own with one call in flight (wire.py). Prints JSON: for how long
they asked, calls answered, the latencies of all in microseconds, and the processor time of the
clients for each call. A call that fails ends it all. Churn cancels each job that it
submitted. Jobs differ in their names alone, those of vary in their time limits as well.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from itertools import count
from selectors import EVENT_READ, DefaultSelector

from bench.service.wire import WireConnection
from scheduler.v1 import service_pb2
from scheduler.wire.specs import spec_to_proto
from tests.build import spec

SERVICE = "/scheduler.v1.SchedulerService"
METHODS = {
    "submit": [f"{SERVICE}/CreateJob"],
    "vary": [f"{SERVICE}/CreateJob"],
    "churn": [f"{SERVICE}/CreateJob", f"{SERVICE}/CancelJob"],
    "echo": ["/bench.Echo/Echo"],
}
HOSTS = 4


def requests(first: int, *, varied: bool = False) -> Iterator[tuple[bytes, bytes]]:
    """Make submits of new jobs, and the request that cancels each."""
    message = service_pb2.CreateJobRequest(spec=spec_to_proto(spec("x", HOSTS, gpus=8)))
    for number in count(first):
        message.spec.name = message.request_id = f"load-{number:08d}"
        if varied:
            message.spec.time_limit.seconds = 3_600 + number
        cancel = service_pb2.CancelJobRequest(name=message.spec.name)
        yield message.SerializeToString(), cancel.SerializeToString()


class LoadClient:
    """One client of the load."""

    def __init__(self, address: str, method: str, bodies: Iterator[tuple[bytes, bytes]]) -> None:
        self.connection = WireConnection(address)
        self._calls = self._in_turn(METHODS[method], bodies)
        self._begun_ns = 0

    def ask(self) -> None:
        self._begun_ns = time.perf_counter_ns()
        self.connection.ask(*next(self._calls))

    def answered_us(self) -> int | None:
        """Return how long the call took; None while it has no answer. Raises: CallFailed."""
        if not self.connection.read_answer():
            return None
        return (time.perf_counter_ns() - self._begun_ns) // 1_000

    @staticmethod
    def _in_turn(
        paths: list[str], bodies: Iterator[tuple[bytes, bytes]]
    ) -> Iterator[tuple[str, bytes]]:
        for both in bodies:
            yield from zip(paths, both, strict=False)


def load(address: str, method: str, clients: int, seconds: float, first: int) -> dict[str, object]:
    """Let clients call for so long, and wait for calls that are then under way. Raises:
    CallFailed."""
    bodies, took = requests(first, varied=method == "vary"), []
    with DefaultSelector() as selector:
        for _ in range(clients):
            client = LoadClient(address, method, bodies)
            selector.register(client.connection.socket, EVENT_READ, client)
        begun, spent = time.monotonic(), time.process_time()
        for key in selector.get_map().values():
            key.data.ask()
        while selector.get_map():
            for key, _ in selector.select():
                us = key.data.answered_us()
                if us is None:
                    continue
                took.append(us)
                if time.monotonic() < begun + seconds:
                    key.data.ask()
                else:
                    selector.unregister(key.fileobj)
                    key.data.connection.close()
    lasted, spent = time.monotonic() - begun, time.process_time() - spent
    return {"seconds": lasted, "client_us": 1e6 * spent / len(took), "took_us": took}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--first", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps(load(args.address, args.method, args.clients, args.seconds, args.first)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
