"""`muster serve`: start a server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from scheduler.cli.calls import end
from scheduler.cli.contexts import quiet_grpc
from scheduler.cli.exit_codes import BAD_INPUT, FAILED
from scheduler.cli.signatures import with_parameters
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.access.listener import Access
    from scheduler.console.thread import HttpEndpoint
    from scheduler.launch.launcher import AgentSettings
    from scheduler.launch.streams.gateway import GatewayOptions
    from scheduler.launch.substrate import Substrate
    from scheduler.observe.supervision import Heartbeats
    from scheduler.server.config import MetricsKeys, ServerKeys
    from scheduler.server.metrics.exposition import MetricsEndpoint
    from scheduler.server.serve import Ready, Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=_ServeCommand)(serve)


class _ServeCommand(TyperCommand):
    """Its options are made of the keys of the server file when it runs or shows its help, so
    that other commands need not load them."""

    @cached_property
    def _generated(self) -> Any:
        app = typer.Typer(add_completion=False)
        app.command()(_with_options(_run))
        return typer.main.get_command(app)

    def get_params(self, ctx: Any) -> list[Any]:
        return [*self._generated.params, *super().get_params(ctx)]

    def invoke(self, ctx: Any) -> Any:
        return self._generated.invoke(ctx)


def serve() -> None:
    """Serve until SIGTERM or Ctrl-C. One line on stdout says when it is ready.

    SIGHUP reads certificates, the auth file, the tenants and the health file again.
    """


def _with_options(run: Callable[..., None]) -> Callable[..., None]:
    """`run(config, **given)` as a function of one parameter for each option."""
    from scheduler.server.config import options

    file = "A server file (docs/operations.md); options given here override it."
    parameters = [_parameter("config", str, "--config", file, "")]
    paths: dict[str, str] = {}
    for option in options():
        name = option.path.replace(".", "_")
        paths[name] = option.path
        kind = _plain(option.kind)
        parameters.append(_parameter(name, kind, option.name, option.help, option.default))

    def command(config: str | None, **values: Any) -> None:
        run(config, {paths[name]: value for name, value in values.items() if value is not None})

    return with_parameters(command, parameters)


def _parameter(name: str, kind: type, option: str, text: str, default: str) -> Parameter:
    info = typer.Option(option, help=text, show_default=default or False)
    annotation = Annotated[kind | None, info]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _plain(kind: Any) -> Any:
    """The type itself, of one that may be None or has checks with it."""
    while arguments := get_args(kind):
        kind = arguments[0]
    return kind


def _run(config: str | None, given: Mapping[str, Any]) -> None:
    """`given`: values of options, by the dotted path of their key."""
    quiet_grpc()
    from scheduler.eventlog.store import is_shared
    from scheduler.observe.logs import configure
    from scheduler.server.config import (
        BadOption,
        ServerKeys,
        in_server_file,
        load_server_file,
        overridden,
    )

    keys = load_server_file(config) if config is not None else ServerKeys()
    if "metrics.per_job" in given and not (keys.metrics or "metrics.listen" in given):
        raise typer.BadParameter("needs --metrics", param_hint="--metrics-per-job")
    try:
        keys = overridden(keys, given)
    except BadOption as error:
        raise typer.BadParameter(error.message, param_hint=error.option) from None
    for key, option in (("advertise", "--advertise"), ("lease_s", "--lease-s")):
        if key in given and not is_shared(keys.store):
            raise typer.BadParameter(
                "needs a store that servers share (postgresql://)", param_hint=option
            )
    configure(keys.log.format, keys.log.level)
    try:
        _serve(_settings(keys))
    except InputError as error:
        if config is None or any(problem.field in given for problem in error.found):
            raise
        raise in_server_file(error, config, keys) from None


def _settings(keys: ServerKeys) -> Settings:
    """Return the settings of the server file and the options. Raises: InputError."""
    from scheduler.engine.planning.executor import LONG_S
    from scheduler.engine.snapshotter import DAY_S, Retention
    from scheduler.files.health.policyfile import load_health
    from scheduler.files.inputs import load_fabric
    from scheduler.files.notify import load_notify
    from scheduler.files.tenants import load_tenants
    from scheduler.server.config import scheduling_options
    from scheduler.server.serve import Settings

    described = load_fabric(keys.fabric) if keys.fabric is not None else None
    file = load_tenants(keys.tenants) if keys.tenants is not None else None
    if keys.health is not None:
        load_health(keys.health)  # what is wrong with it is said before anything is opened
    if keys.notify is not None:
        load_notify(keys.notify)
    if file and described:
        file.check(described)
    log_s = None if keys.keep_log_days is None else keys.keep_log_days * DAY_S
    return Settings(
        keys,
        described.spec if described else None,
        scheduling_options(keys),
        tenants=file.tenants if file else None,
        access=_access(keys),
        agents=_agents(keys),
        retention=Retention(keys.snapshot_every, log_s, keys.keep_ended_days * DAY_S),
        metrics=_exposure(keys.metrics),
        console=_console(keys),
        long_decision_s=LONG_S,
    )


def _exposure(keys: MetricsKeys | None) -> MetricsEndpoint | None:
    from scheduler.access.addresses import host_and_port
    from scheduler.server.metrics.exposition import MetricsEndpoint

    if keys is None:
        return None
    host, port = host_and_port(keys.listen)
    return MetricsEndpoint(host, port or 0, keys.per_job)


def _console(keys: ServerKeys) -> HttpEndpoint | None:
    """Its certificates are the server's own where it has none of its own."""
    from scheduler.access.addresses import host_and_port, is_loopback
    from scheduler.access.tls import TlsFiles
    from scheduler.console.thread import HttpEndpoint
    from scheduler.server.config import OFF

    if keys.console.listen == OFF:
        return None
    host, port = host_and_port(keys.console.listen)
    own = keys.console.tls
    shown = own or (None if is_loopback(host) else keys.tls)
    files = TlsFiles(shown.certificate, shown.key, shown.client_ca) if shown else None
    return HttpEndpoint(host, port or 0, files, keys.console.is_left_open)


def _agents(keys: ServerKeys) -> AgentSettings | None:
    """Raises: InputError for agents that could not prove for which host they speak."""
    from scheduler.access.addresses import host_and_port, is_loopback
    from scheduler.launch.gangs.orders import SiteTerms
    from scheduler.launch.launcher import AgentSettings
    from scheduler.launch.streams.gateway import GatewayOptions
    from scheduler.server.config import AgentKeys, ServerLoss

    is_local = keys.launcher is not None
    if not keys.has_agents:
        return None
    agents, shown = keys.agents or AgentKeys(), _access(keys).tls
    host = host_and_port(agents.listen).host
    can_prove = is_local or agents.join_secret or (shown and shown.client_ca)
    if not can_prove and not keys.insecure:
        reason = "agents must prove their host: give agents.join_secret, or tls.client_ca"
        raise InputError(Problem("agents", reason))
    if shown is None and not is_loopback(host) and not keys.insecure:
        reason = f"not listening for agents on {agents.listen} without TLS: give a tls section"
        raise InputError(Problem("agents.listen", reason))
    gateway = GatewayOptions(
        agents.listen, shown, agents.join_secret or "", is_insecure=keys.insecure
    )
    return AgentSettings(
        gateway,
        agents.lease_s,
        _substrate(keys, gateway),
        agents.join,
        agents.stragglers_s,
        keeps_ranks=agents.on_server_loss is ServerLoss.KEEP,
        site=SiteTerms(
            agents.gate, agents.gate_s, agents.burn_in, agents.labelled_env, agents.copies_gb
        ),
    )


def _substrate(
    keys: ServerKeys, gateway: GatewayOptions
) -> Callable[[Heartbeats], Substrate] | None:
    """Return a factory of what starts agents; None without one. Raises: InputError."""
    from pathlib import Path

    from scheduler.files.yaml12 import read_text
    from scheduler.launch.local import LocalAgents
    from scheduler.launch.slurm.agents import SlurmAgents
    from scheduler.server.config import LauncherKind

    file = keys.store.removeprefix("sqlite:///") if keys.store.startswith("sqlite:///") else ""
    folder = Path(f"{file or 'muster'}.agents").resolve()
    if keys.launcher is None:
        return None
    if keys.launcher is LauncherKind.LOCAL:
        return lambda beats: LocalAgents(folder, beats)
    path = gateway.join_secret_file
    secrets = read_text(path, 65_536).split() if path else []
    if not file and not secrets:
        reason = f"is needed with `launcher: {keys.launcher}` where servers share a store"
        raise InputError(Problem("agents.join_secret", reason))
    if keys.launcher is LauncherKind.KUBERNETES:
        return _pods(keys, gateway, folder, secrets[0] if secrets else "")
    slurm = keys.slurm
    if gateway.tls and not slurm.ca:
        reason = "is needed with `tls`: a file on the hosts with who signed the certificate"
        raise InputError(Problem("slurm.ca", reason))
    _need_server("slurm", slurm.server, gateway)
    secret = secrets[0] if secrets else ""
    return lambda beats: SlurmAgents(slurm, folder, secret, beats=beats)


def _need_server(section: str, server: str | None, gateway: GatewayOptions) -> None:
    """Raises: InputError where agents could not tell at which address the server is."""
    from scheduler.access.addresses import host_and_port

    if not server and host_and_port(gateway.listen).host in ("0.0.0.0", "::"):
        reason = f"is needed where agents.listen is {gateway.listen}: HOST:PORT for agents"
        raise InputError(Problem(f"{section}.server", reason))


def _pods(
    keys: ServerKeys, gateway: GatewayOptions, folder: Path, secret: str
) -> Callable[[Heartbeats], Substrate]:
    """Agents in pods. Raises: InputError."""
    from scheduler.files.yaml12 import read_text

    try:
        from scheduler.launch.kubernetes.agents import KubernetesAgents
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("kubernetes", "aiohttp"):
            raise
        wanted = "pip install 'muster-scheduler[kubernetes]'"
        raise end(f"`launcher: kubernetes` needs its client: {wanted}", BAD_INPUT) from None
    from scheduler.launch.kubernetes.pods import PodSettings, load_template

    given = keys.kubernetes
    template = load_template(given.template) if given.template else {}
    if given.adopt and given.holding == "whole":
        reason = "needs `holding: gang`: agents on every host hold the GPUs that pods ask for"
        raise InputError(Problem("kubernetes.adopt", reason))
    if not given.image and not template and not given.adopt:
        reason = "is needed with `launcher: kubernetes`, or a template, or adopt"
        raise InputError(Problem("kubernetes.image", reason))
    if gateway.tls and not given.ca:
        reason = "is needed with `tls`: a file with who signed the certificate"
        raise InputError(Problem("kubernetes.ca", reason))
    _need_server("kubernetes", given.server, gateway)
    ca = read_text(given.ca) if given.ca else ""
    pods = PodSettings(given, template, given.server or "", ca)
    return lambda beats: KubernetesAgents(pods, folder, secret, beats=beats)


def _access(keys: ServerKeys) -> Access:
    from scheduler.access.listener import Access
    from scheduler.access.tls import TlsFiles

    shown = keys.tls
    return Access(
        TlsFiles(shown.certificate, shown.key, shown.client_ca) if shown else None,
        keys.auth.file if keys.auth else None,
        keys.limits,
        keys.insecure,
    )


def _serve(settings: Settings) -> None:
    import uvloop

    from scheduler.eventlog.store import StoreError
    from scheduler.interpreter import prefer_answers
    from scheduler.server.serve import CannotListen
    from scheduler.server.serve import serve as run

    code = BAD_INPUT  # it has not begun: a wrong option or file

    def ready(ready: Ready) -> None:
        nonlocal code
        code = FAILED
        prefer_answers()  # first, for it takes a tenth of a second in which nobody is answered
        _say_ready(ready)

    try:
        uvloop.run(run(settings, ready))
    except (StoreError, CannotListen) as error:
        raise end(str(error), code) from None


def _say_ready(ready: Ready) -> None:
    typer.echo(
        f"muster serves {ready.fabric.name} ({ready.fabric.host_count:,} hosts)"
        f" on {ready.address}, log at version {ready.version}"
        + (f", metrics on {ready.metrics}" if ready.metrics else "")
        + (f", agents on {ready.agents}" if ready.agents else "")
        + (f", console on {ready.console}" if ready.console else "")
    )
    sys.stdout.flush()
