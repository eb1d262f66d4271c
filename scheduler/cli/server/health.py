"""`muster health`: whether a server serves, for probes and scripts."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, before_call, end
from scheduler.cli.exit_codes import FAILED

_PAUSE_S = 0.2
_SERVING, _ABSENT = "SERVING", "NOT_FOUND"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(health)


def health(
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until it serves; 0: ask once.")
    ] = 0.0,
    only_serving: Annotated[
        bool,
        typer.Option("--only-serving", help="Ask for no parts, as a readiness probe should."),
    ] = False,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Check whether a server serves. Exit code 1: it does not, or a part of it does not work.

    The parts are the door of the agents, the planner, the launcher, the store and the console.
    Needs no token. A server that requires client certificates requires one here too.
    """
    until = time.monotonic() + wait
    while trouble := _trouble(address, is_whole=not only_serving):
        if time.monotonic() >= until:
            raise end(trouble, FAILED)
        time.sleep(_PAUSE_S)
    typer.echo(f"{address} serves")


def _trouble(address: str, *, is_whole: bool) -> str:
    """Say why a server does not serve or, with `is_whole`, which parts do not work; "" if all is
    well."""
    before_call(address)
    import grpc
    from grpc_health.v1 import health_pb2_grpc

    from scheduler.client.credentials import Credentials
    from scheduler.client.diagnosis import unreachable
    from scheduler.observe.supervision import PARTS

    who = Credentials.from_environment()
    with who.channel(address, ()) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            if (status := _status(stub, "")) != _SERVING:
                return f"{address}: {status}"
            parts = PARTS if is_whole else ()
            ill = [part for part in parts if _status(stub, part) not in (_SERVING, _ABSENT)]
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return unreachable(address, who)
            return f"{address}: {error.code().name}"
    return f"{address} serves, but parts of it do not work: {', '.join(ill)}" if ill else ""


def _status(stub: Any, part: str) -> str:
    """Return what the health check of a part answers; NOT_FOUND of one that the server lacks.
    Raises: grpc.RpcError."""
    import grpc
    from grpc_health.v1 import health_pb2

    try:
        answer = stub.Check(health_pb2.HealthCheckRequest(service=part), timeout=5)
    except grpc.RpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            return _ABSENT
        raise
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
