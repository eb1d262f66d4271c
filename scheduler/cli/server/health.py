"""`muster health`: whether a server serves, for probes and scripts."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from scheduler.cli.calls import DEFAULT_ADDRESS, Address, before_call, end
from scheduler.cli.exit_codes import FAILED

_PAUSE_S = 0.2
_SERVING = "SERVING"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(health)


def health(
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until it serves; 0: ask once.")
    ] = 0.0,
    address: Address = DEFAULT_ADDRESS,
) -> None:
    """Check whether a server serves. Exit code 1: it does not.

    Needs no token. A server that requires client certificates requires one here too.
    """
    until = time.monotonic() + wait
    while (status := _asked(address)) != _SERVING:
        if time.monotonic() >= until:
            raise end(status, FAILED)
        time.sleep(_PAUSE_S)
    typer.echo(f"{address} serves")


def _asked(address: str) -> str:
    """SERVING, or a sentence that says why not."""
    before_call(address)
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    from scheduler.client.credentials import Credentials
    from scheduler.client.diagnosis import unreachable

    who = Credentials.from_environment()
    with who.channel(address, ()) as channel:
        try:
            request = health_pb2.HealthCheckRequest()
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=5)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return unreachable(address, who)
            return f"{address}: {error.code().name}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return _SERVING
    return f"{address}: {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"
