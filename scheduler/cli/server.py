"""`muster serve`, and the commands that talk to a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from scheduler.cli import (
    audit,
    capacity,
    health,
    hosts,
    jobs,
    quotas,
    spares,
    status,
    stores,
    tokens,
    windows,
)
from scheduler.cli.calls import BAD_INPUT, FAILED, MOST, end, quiet_grpc
from scheduler.files.defaults import LEAST_GAIN_PERCENT, MOST_DAYS, MOST_LEASE_S, RESIZE_EVERY_S
from scheduler.observe.logs import LogFormat, LogLevel

if TYPE_CHECKING:
    from scheduler.access.door import Access
    from scheduler.files.job_keys import Keys
    from scheduler.observe.instruments import Tracer
    from scheduler.server.config import MetricsKeys, ServerKeys
    from scheduler.server.metrics.exposition import Exposure
    from scheduler.server.serve import Ready, Settings

SomeKeys = TypeVar("SomeKeys", bound="Keys")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)
    jobs.register(app)
    hosts.register(app)
    quotas.register(app)
    tokens.register(app)
    audit.register(app)
    health.register(app)
    capacity.register(app)
    spares.register(app)
    status.register(app)
    stores.register(app)
    windows.register(app)


def serve(
    config: Annotated[
        str | None,
        typer.Option(help="A server file (docs/operations.md); options given here override it."),
    ] = None,
    fabric: Annotated[
        str | None,
        typer.Option(help="A preset or a fabric file; a store that has one needs none."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="Where the log is kept: sqlite:///FILE, or postgresql://... for several servers"
            " (docs/replicas.md).  [default: sqlite:///muster.db]"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="HOST:PORT; port 0 takes a free one.  [default: 127.0.0.1:7443]"),
    ] = None,
    advertise: Annotated[
        str | None,
        typer.Option(help="HOST:PORT at which others find this server.  [default: --listen]"),
    ] = None,
    lease_s: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST_LEASE_S,
            help="A leader that is silent for so long is replaced.  [default: 5]",
        ),
    ] = None,
    policy: Annotated[
        Literal["production", "easy", "fifo", "conservative"] | None,
        typer.Option(
            help="How the queue is ordered and whether later jobs may overtake."
            "  [default: production]"
        ),
    ] = None,
    tenants: Annotated[
        str | None,
        typer.Option(help="A tenants file: quotas, shares, priority classes. Default: as before."),
    ] = None,
    health: Annotated[
        str | None,
        typer.Option(help="A health file: what reports of hosts do. Default: as before."),
    ] = None,
    assumed_limit_h: Annotated[
        float | None,
        typer.Option(
            min=0.01, max=87_600, help="Time limit of jobs that state none.  [default: 24]"
        ),
    ] = None,
    resize_every_s: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            help="An elastic gang grows, or gives back what it has grown, no sooner after its last"
            f" start.  [default: {RESIZE_EVERY_S}]",
        ),
    ] = None,
    least_gain_percent: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=MOST,
            help="More replicas that are worth a restart, unless they are all it asks for."
            f"  [default: {LEAST_GAIN_PERCENT}]",
        ),
    ] = None,
    snapshot_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MOST,
            help="Events between two snapshots of the state: more where it has more entries."
            "  [default: 10000]",
        ),
    ] = None,
    keep_log_days: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_DAYS, help="Days for which events are kept; without it, for ever."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of /metrics for Prometheus; without it, there are none."),
    ] = None,
    metrics_per_job: Annotated[
        bool, typer.Option("--metrics-per-job", help="Series for each running gang as well.")
    ] = False,
    traces: Annotated[
        str | None,
        typer.Option(help="OTLP collector of traces, http://HOST:PORT; without it, no traces."),
    ] = None,
    log_format: Annotated[
        LogFormat | None, typer.Option(help="One record a line on stderr.  [default: text]")
    ] = None,
    log_level: Annotated[
        LogLevel | None, typer.Option(help="The least grave record.  [default: warning]")
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Listen beyond this machine without TLS or authentication too."
        ),
    ] = False,
) -> None:
    """Serve until SIGTERM or Ctrl-C. One line on stdout says when it is ready.

    SIGHUP reads certificates, the auth file, the tenants and the health file again.
    """
    quiet_grpc()
    from scheduler.core import Policy
    from scheduler.eventlog.store import is_shared
    from scheduler.observe.logs import configure
    from scheduler.server.config import ServerKeys, load_server_file

    keys = load_server_file(config) if config is not None else ServerKeys()
    given = {
        "fabric": fabric,
        "store": store,
        "listen": listen,
        "advertise": _checked(ServerKeys, _given(advertise=advertise), "--advertise").advertise,
        "lease_s": lease_s,
        "policy": Policy(policy) if policy else None,
        "tenants": tenants,
        "health": health,
        "assumed_limit_h": assumed_limit_h,
        "resize_every_s": resize_every_s,
        "least_gain_percent": least_gain_percent,
        "insecure": insecure or None,
        "snapshot_every": snapshot_every,
        "keep_log_days": keep_log_days,
        "metrics": _metrics(keys.metrics, metrics, metrics_per_job),
        "log": keys.log.model_copy(update=_given(format=log_format, level=log_level)),
        "traces": _checked(ServerKeys, _given(traces=traces), "--traces").traces,
    }
    keys = keys.model_copy(update=_given(**given))
    for option, value in (("--advertise", advertise), ("--lease-s", lease_s)):
        if value is not None and not is_shared(keys.store):
            raise typer.BadParameter("goes with a store that servers share", param_hint=option)
    configure(keys.log.format, keys.log.level)
    with _tracer(keys.traces) as tracer:
        _serve(_settings(keys, tracer))


def _given(**options: Any) -> dict[str, Any]:
    """Those that are."""
    return {key: value for key, value in options.items() if value is not None}


def _metrics(in_file: MetricsKeys | None, listen: str | None, per_job: bool) -> MetricsKeys | None:
    """The file's section with what the command line says of it. Raises: BadParameter."""
    from scheduler.server.config import MetricsKeys

    found = in_file.model_dump() if in_file else {}
    found |= _given(listen=listen, per_job=per_job or None)
    if "listen" in found:
        return _checked(MetricsKeys, found, "--metrics")
    if per_job:
        raise typer.BadParameter("goes with --metrics", param_hint="--metrics-per-job")
    return None


def _checked(kind: type[SomeKeys], found: dict[str, Any], option: str) -> SomeKeys:
    """What an option says, held to the rules of the server file. Raises: BadParameter."""
    from pydantic import ValidationError

    from scheduler.files.job_keys import message_of

    try:
        return kind.model_validate(found)
    except ValidationError as error:
        wrong = message_of(error.errors()[0], {})
        raise typer.BadParameter(wrong, param_hint=option) from None


@contextmanager
def _tracer(endpoint: str | None) -> Iterator[Tracer | None]:
    """Where spans go, if anywhere."""
    if endpoint is None:
        yield None
        return
    try:
        from scheduler.server.tracing import sending
    except ModuleNotFoundError:
        raise end("traces need OpenTelemetry: pip install 'muster[tracing]'", BAD_INPUT) from None
    with sending(endpoint) as tracer:
        yield tracer


def _settings(keys: ServerKeys, tracer: Tracer | None) -> Settings:
    """What the server file and the options ask for. Raises: InputError."""
    from scheduler.core import SchedulingOptions
    from scheduler.engine.planning.executor import LONG_S
    from scheduler.engine.snapshotter import DAY_S, Retention
    from scheduler.files.health.policyfile import load_health
    from scheduler.files.inputs import load_fabric
    from scheduler.files.tenants import load_tenants
    from scheduler.server.serve import Settings

    described = load_fabric(keys.fabric) if keys.fabric is not None else None
    file = load_tenants(keys.tenants) if keys.tenants is not None else None
    if keys.health is not None:
        load_health(keys.health)  # what is wrong with it is said before anything is opened
    if file and described:
        file.check(described)
    log_s = None if keys.keep_log_days is None else keys.keep_log_days * DAY_S
    return Settings(
        keys.store,
        keys.listen,
        described.spec if described else None,
        SchedulingOptions(
            policy=keys.policy,
            assumed_limit_s=max(1, round(keys.assumed_limit_h * 3600)),
            resize_every_s=keys.resize_every_s,
            least_gain=keys.least_gain_percent,
        ),
        tenants=file.tenants if file else None,
        tenants_file=keys.tenants,
        health_file=keys.health,
        access=_access(keys),
        drain_s=keys.drain_s,
        advertise=keys.advertise or "",
        lease_s=keys.lease_s,
        retention=Retention(keys.snapshot_every, log_s),
        metrics=_exposure(keys.metrics),
        tracer=tracer,
        long_decision_s=LONG_S,
    )


def _exposure(keys: MetricsKeys | None) -> Exposure | None:
    from scheduler.server.metrics.exposition import Exposure

    if keys is None:
        return None
    host, _, port = keys.listen.rpartition(":")
    return Exposure(host.strip("[]"), int(port), keys.per_job)


def _access(keys: ServerKeys) -> Access:
    from scheduler.access.door import Access
    from scheduler.access.keys import Reflection
    from scheduler.access.tls import TlsFiles

    shown = keys.tls
    return Access(
        TlsFiles(shown.certificate, shown.key, shown.client_ca) if shown else None,
        keys.auth.file if keys.auth else None,
        keys.auth.reflection if keys.auth else Reflection.CALLERS,
        keys.limits,
        keys.insecure,
    )


def _serve(settings: Settings) -> None:
    import uvloop

    from scheduler.eventlog.store import StoreError
    from scheduler.interpreter import keep_heap_whole, prefer_answers
    from scheduler.server.serve import CannotListen
    from scheduler.server.serve import serve as run

    code = BAD_INPUT  # it has not begun: what it was told will not do, or is not there

    def ready(ready: Ready) -> None:
        nonlocal code
        code = FAILED
        _say_ready(ready)
        prefer_answers()

    keep_heap_whole()
    try:
        uvloop.run(run(settings, ready))
    except (StoreError, CannotListen) as error:
        raise end(str(error), code) from None


def _say_ready(ready: Ready) -> None:
    typer.echo(
        f"muster serves {ready.fabric.name} ({ready.fabric.host_count:,} hosts)"
        f" on {ready.address}, log at version {ready.version}"
        + (f", metrics on {ready.metrics}" if ready.metrics else "")
    )
    sys.stdout.flush()
