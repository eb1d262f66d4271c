"""Wiring: the log, the writer and the gRPC server, from start to graceful stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from muster.structs import struct
from placement import warm_up
from placement.fabric.tree import Fabric
from scheduler.access.addresses import is_loopback
from scheduler.access.authenticate import Authenticator
from scheduler.access.forwarding import Forwarding
from scheduler.access.limits import at_most
from scheduler.access.listener import Access, CannotListen, Listener
from scheduler.console.calls import Calls
from scheduler.console.session import Session
from scheduler.console.thread import HttpEndpoint, HttpThread
from scheduler.core import Rejected, SchedulingOptions, Tenants
from scheduler.core.model.commands import LoadHealth, LoadTenants
from scheduler.engine.feed import Feed
from scheduler.engine.history import History
from scheduler.engine.log_clock import passed_ns
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.replica import LeaderCandidate, Replica
from scheduler.engine.snapshotter import Retention
from scheduler.engine.writer import Writer
from scheduler.eventlog.recovery import Recovered, check_fabric, recover, replayed
from scheduler.eventlog.store import SharedStore, Store, StoreError, open_store
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.files.errors import InputError
from scheduler.files.health.policyfile import load_health
from scheduler.files.tenants import TenantsFile, load_tenants
from scheduler.identity import SERVER, Caller, Role, act_for
from scheduler.launch.launcher import AgentSettings
from scheduler.launch.service import LaunchService
from scheduler.launch.streams.sessions import CannotServeAgents
from scheduler.observe.incidents import look_back
from scheduler.observe.instruments import Instruments
from scheduler.observe.supervision import PARTS, PREFIX, Heartbeats, Tasks
from scheduler.server.config import ServerKeys
from scheduler.server.metrics.exposition import Gauges, MetricsEndpoint, registry
from scheduler.server.notify import Notifier
from scheduler.service.backend import Backend
from scheduler.service.call_metrics import CallMetrics
from scheduler.service.questions import Questions
from scheduler.service.read_consistency import ReadConsistency
from scheduler.service.rpc.service import SERVICE as DESCRIPTOR
from scheduler.service.rpc.service import scheduler_service
from scheduler.v1 import service_pb2_grpc

if TYPE_CHECKING:
    from scheduler.console.http_server import HttpServer

__all__ = ["SERVICE", "CannotListen", "Ready", "Settings", "serve"]

log = logging.getLogger("muster.server")

SERVICE = DESCRIPTOR.full_name

_LOAD_S = 5.0  # for which the first calls wait for machine code
_TELL_S = 1.0  # between two looks at the parts of the server
_NEARLY_FULL = 0.95  # of the disk of the store
_CALL_TASK = "rpc_task"  # what gRPC calls the task of each call

# Clients ping, so that they notice a server that is there but does not run.
_OPTIONS = (
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),  # a port that another process listens on is refused
)


@struct(frozen=True, slots=True)
class Settings:
    """Settings of one server: the `keys` of its file and options, and what is made of them.

    `fabric_spec` is needed for a new store only; `clock` gives nanoseconds, and `measure`
    nanoseconds that passed, against which it is checked; None: it is trusted. `tenants` None: the
    store's own. `watch_depth`: changes by which a slow watcher may lag before it is cut off.
    `long_decision_s`: decisions that take longer move to a process of their own, and questions that
    keep coming to another; None: never. `agents` None: nobody starts what jobs say in `run`.
    `console` None: there is none.
    """

    keys: ServerKeys
    fabric_spec: Mapping[str, Any] | None = None
    options: SchedulingOptions = field(default_factory=SchedulingOptions)
    clock: Callable[[], int] = time.time_ns
    measure: Callable[[], int] | None = passed_ns
    new_uid: Callable[[], str] = lambda: str(uuid.uuid4())
    watch_depth: int = 10_000
    tenants: Tenants | None = None
    retention: Retention = field(default_factory=Retention)
    metrics: MetricsEndpoint | None = None
    long_decision_s: float | None = None
    access: Access = field(default_factory=Access)
    agents: AgentSettings | None = None
    console: HttpEndpoint | None = None


@struct(frozen=True, slots=True)
class Ready:
    """Facts of a server that has replayed its log. `metrics`: where they are; `agents`: where
    agents come in; `console`: the address for a browser."""

    address: str
    fabric: Fabric
    version: int
    metrics: str = ""
    agents: str = ""
    console: str = ""


async def serve(
    settings: Settings, on_ready: Callable[[Ready], None], signals: Signals | None = None
) -> None:
    """Serve until a signal; finish calls under way, then close the log.

    `signals`: the process's own, unless given.

    Raises: StoreError when the log cannot be used, CannotListen, InputError for certificates or an
    auth file that will not do.
    """
    exposure, signals = settings.metrics, signals or Signals().listen()
    is_per_job = exposure is not None and exposure.is_per_job
    gauges = Gauges(Instruments(), settings.access, is_per_job=is_per_job)
    scrapes = _start_scrapes(settings, exposure, gauges) if exposure is not None else None
    try:
        address = f"{scrapes.address}/metrics" if scrapes is not None else ""
        await _serve(settings, on_ready, signals, gauges, address)
    except CannotServeAgents as error:
        raise CannotListen(str(error)) from None
    finally:
        if scrapes is not None:
            await scrapes.close()


def _start_scrapes(settings: Settings, exposure: MetricsEndpoint, gauges: Gauges) -> HttpThread:
    """Start the thread that answers scrapes, also while the log is replayed, which may take long.
    Raises: CannotListen, InputError."""
    access, is_local = settings.access, is_loopback(exposure.host)
    path = access.auth_file
    auth = Authenticator(path, settings.clock) if path else None
    shown = None if is_local else access.tls
    endpoint = HttpEndpoint(exposure.host, exposure.port, shown, purpose="metrics")
    unasked = "anybody may read the metrics"
    thread = HttpThread("metrics", endpoint, access, unasked, gauges.instruments.beats)

    def make() -> HttpServer:
        from scheduler.server.metrics.http import metrics_server

        return metrics_server(registry(gauges), auth, is_local=is_local)

    thread.start(make)
    return thread


async def _serve(
    settings: Settings,
    on_ready: Callable[[Ready], None],
    signals: Signals,
    gauges: Gauges,
    scraped_at: str,
) -> None:
    limits = settings.access.limits
    has_process = settings.long_decision_s is not None
    questions = Questions(limits.questions, limits.questions_per_caller, has_process=has_process)
    backend = Backend(questions, has_agents=settings.agents is not None)
    servicer = scheduler_service(backend, settings.new_uid, settings.clock())
    checks = health.aio.HealthServicer()
    consistency = ReadConsistency(SERVICE)
    listener = Listener(settings.access, lambda: backend.state, settings.clock)
    forwarding = Forwarding(settings.access.tls, backend.leader)
    metrics = CallMetrics(gauges.instruments)
    interceptors = (metrics, forwarding, listener.interceptor, consistency)
    options = (*_OPTIONS, *listener.options)
    server = grpc.aio.server(interceptors=interceptors, options=options)
    _register(server, servicer, checks)
    address = listener.open(
        server, settings.keys.listen
    )  # before a store is made, for it may be wrong
    mark = Path(settings.keys.mark) if settings.keys.mark is not None else None
    store = open_store(settings.keys.store, init=settings.keys.init, mark=mark)
    try:
        beats = gauges.instruments.beats
        console = _console(settings, backend, servicer, interceptors, listener.auth, beats)
        await _set_health(checks, is_ready=False)
        await server.start()
        launches = LaunchService(settings.agents, beats) if settings.agents else None
        tasks = Tasks(beats)
        notifiers = list[Notifier]()  # none, or one
        try:
            agents = await launches.listen() if launches else ""
            writer, replica = await _recovered(store, settings, address, gauges.instruments)
            work = replica.run() if replica else writer.run()
            writing = asyncio.create_task(work, name=f"{PREFIX}writer")
            tasks.keep(
                "reload",
                lambda: _reload(settings, signals.reload, listener, writer, console, notifiers),
            )
            if replica:
                await _first(writing, signals.stop, replica.is_ready)
            if not (writing.done() or signals.stop.is_set()):
                # Machine code is loaded in a second; calls do not wait until it is made.
                await asyncio.wait({tasks.start(asyncio.to_thread(warm_up))}, timeout=_LOAD_S)
                if settings.keys.health is not None:
                    await _load_health(settings.keys.health, writer)
                backend.attach(writer)
                consistency.attach(writer, replica)
                gauges.attach(writer, store)
                await _set_health(checks, is_ready=True)
                tasks.keep("health", partial(_tell_parts, checks, beats, store))
                if settings.keys.notify is not None:
                    notifiers.append(Notifier(writer, settings.keys.notify, beats))
                fabric, version = writer.state.loaded_fabric, writer.state.version
                if launches is not None:
                    offer_lead = [replica.offer_lead] if replica else []
                    backend.agents = gauges.agents = launches.start(writer, *offer_lead)
                seen_at = console.address if console else ""
                on_ready(Ready(address, fabric, version, scraped_at, agents, seen_at))
                tell_systemd("READY=1")
                await _first(writing, signals.stop)
                tell_systemd("STOPPING=1")
                closing = asyncio.create_task(console.close()) if console else None
                await _drain(server, checks, writer, settings.keys.drain_s)
                if closing is not None:
                    await closing
            (replica or writer).stop()
            await _ended(writing)
        finally:
            for notifier in notifiers:
                await notifier.close()
            await tasks.close()
            questions.close()
            backend.forecasts.close()
            if console is not None:
                await console.close()
            if launches is not None:
                await launches.close()
            await server.stop(None)
            await forwarding.close()
            backend.reads.close()
    finally:
        store.close()


def _console(
    settings: Settings,
    backend: Backend,
    servicer: Any,
    interceptors: Sequence[Any],
    auth: Authenticator | None,
    beats: Heartbeats,
) -> HttpThread | None:
    """The console, which answers from here on. Raises: CannotListen, InputError."""
    if settings.console is None:
        return None
    unasked = "anybody may do anything"
    thread = HttpThread("console", settings.console, settings.access, unasked, beats)
    session = Session(backend)

    def register(registry: Any) -> None:
        service_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, registry)
        session.register(registry)

    calls = Calls(register, interceptors, asyncio.get_running_loop())

    def make() -> HttpServer:
        from scheduler.console.server import console_server

        most_bytes = settings.access.limits.message_bytes
        return console_server(
            backend, calls, auth, most_bytes, settings.keys.store, is_local=thread.is_local
        )

    thread.start(make)
    return thread


async def _recovered(
    store: Store, settings: Settings, address: str, instruments: Instruments
) -> tuple[Writer, Replica | None]:
    """A writer on the state at the end of the log, and what keeps it in step with other
    servers where there may be some. The port answers meanwhile: not ready."""
    fabric_spec, clock, tenants = settings.fabric_spec, settings.clock, settings.tenants
    has_callers = settings.access.auth_file is not None
    if not isinstance(store, SharedStore):
        recovered = await asyncio.to_thread(
            recover, store, fabric_spec, clock(), tenants, has_callers=has_callers
        )
        return await _writer(store, recovered, settings, instruments), None
    recovered = await asyncio.to_thread(replayed, store)
    check_fabric(store, recovered.state, fabric_spec)
    writer = await _writer(store, recovered, settings, instruments)
    public_address = settings.keys.advertise or address
    candidate = LeaderCandidate(
        public_address, settings.keys.lease_s, clock, fabric_spec, tenants, has_callers
    )
    return writer, Replica(store, writer, candidate)


async def _writer(
    store: Store, recovered: Recovered, settings: Settings, instruments: Instruments
) -> Writer:
    limits = settings.access.limits
    feed = Feed(settings.watch_depth, settings.keys.watch_changes)
    instruments.incidents = await asyncio.to_thread(look_back, store, recovered.state.version)
    return Writer(
        store,
        recovered,
        settings.clock,
        settings.options,
        feed,
        settings.retention,
        instruments,
        settings.long_decision_s,
        at_most(limits.waiting_jobs),
        History(store, limits.log_passes, limits.log_passes_per_caller),
        settings.measure,
    )


async def _ended(writing: asyncio.Task[None]) -> None:
    """Wait for the writer. Raises: StoreError when it refused, or was not to end yet."""
    await asyncio.wait({writing})
    if writing.cancelled():
        raise StoreError("what writes the log was cancelled; the server ends with it")
    writing.result()


async def _first(writing: asyncio.Task[None], *events: asyncio.Event) -> None:
    """Wait for one of the events, or for the writer to end."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait({writing, *waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def _reload(
    settings: Settings,
    requested: asyncio.Event,
    listener: Listener,
    writer: Writer,
    console: HttpThread | None,
    notifiers: Sequence[Notifier],
) -> None:
    """At every SIGHUP take up changed certificates, tokens, roles, tenants, health, receivers."""
    act_for(Caller(SERVER, Role.ADMIN))  # files are its operator's word
    while True:
        await requested.wait()
        requested.clear()
        listener.look()
        if console is not None:
            console.look()
        for notifier in notifiers:
            await notifier.reload()
        if settings.keys.tenants is not None:
            await _reload_tenants(settings.keys.tenants, writer)
        if settings.keys.health is not None:
            try:
                await _load_health(settings.keys.health, writer)
            except InputError as error:
                log.error("rejected, the old health policy stays in use: %s", error)


async def _load_health(path: str, writer: Writer) -> None:
    """Raises: InputError. A server that does not lead leaves it to the one that does."""
    policy = await asyncio.to_thread(load_health, path)
    try:
        answer = await writer.submit(LoadHealth(policy))
    except (NotLeading, WriterStopped):
        log.warning("%s: not read, for this server does not lead", path)
        return
    if isinstance(answer, Rejected):  # pragma: no cover - the file was checked
        log.error("%s was refused: %s", path, answer.message)


def _checked_tenants(path: str, fabric: Fabric) -> TenantsFile:
    """Raises: InputError."""
    file = load_tenants(path)
    file.check(fabric)
    return file


async def _reload_tenants(path: str, writer: Writer) -> None:
    """Read the tenants again; log faults, and keep the old tenants then."""
    try:
        file = await asyncio.to_thread(_checked_tenants, path, writer.state.loaded_fabric)
        answer = await writer.submit(LoadTenants(file.tenants))
    except InputError as error:
        log.error("rejected, the old tenants stay in use: %s", error)
        return
    except (NotLeading, WriterStopped):
        log.warning("%s: not read, for this server does not lead", path)
        return
    if isinstance(answer, Rejected):
        log.error("%s is rejected, the old tenants stay in use: %s", path, answer.message)
    else:
        log.warning("%s: %s", path, "taken" if answer else "nothing has changed")


def _register(
    server: Any,  # as much of one as generated code uses
    servicer: Any,  # with all methods of the service
    checks: health.aio.HealthServicer,
) -> None:
    service_pb2_grpc.add_SchedulerServiceServicer_to_server(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    about = reflection.aio.ReflectionServicer(names)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(about, server)


async def _set_health(checks: health.aio.HealthServicer, is_ready: bool) -> None:
    status = health_pb2.HealthCheckResponse
    for name in ("", SERVICE):
        await checks.set(name, status.SERVING if is_ready else status.NOT_SERVING)


async def _tell_parts(checks: health.aio.HealthServicer, beats: Heartbeats, store: Store) -> None:
    """Keep one health check for each part of the server in step with its heartbeat, for ever. A
    store whose disk is nearly full is not well before it refuses to write."""
    status, before = health_pb2.HealthCheckResponse, dict[str, str]()
    while True:
        states = beats.states()
        if isinstance(store, SqliteStore) and (full := _disk_trouble(store)):
            states["store"] = states.get("store") or full
        for part in PARTS:
            trouble = states.get(part)
            if trouble:
                await checks.set(part, status.NOT_SERVING)
            elif trouble is not None or part in before:  # it works, or nothing is expected of it
                await checks.set(part, status.SERVING)
            if trouble and not before.get(part):
                log.error("%s: %s", part, trouble)
        before = states
        await asyncio.sleep(_TELL_S)


def _disk_trouble(store: SqliteStore) -> str:
    try:
        used = store.disk_used()
    except OSError:
        return ""
    text = f"its disk is {used:.0%} full: changes are refused when it is full; make room"
    return text if used >= _NEARLY_FULL else ""


async def _drain(
    server: grpc.aio.Server, checks: health.aio.HealthServicer, writer: Writer, drain_s: float
) -> None:
    """Turn new calls away, end watches, let the rest finish."""
    await checks.enter_graceful_shutdown()
    writer.feed.close()
    stopping = asyncio.create_task(server.stop(drain_s))
    await asyncio.wait({stopping}, timeout=drain_s / 2)
    if not stopping.done():
        under_way = sum(task.get_name() == _CALL_TASK for task in asyncio.all_tasks())
        message = "calls that have not ended %g s after the stop: %d; after %g s they are cut off"
        log.warning(message, drain_s / 2, under_way, drain_s)
    await stopping


_STOPPING = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """The signals of a server: `stop` is set by SIGTERM and Ctrl-C, `reload` by SIGHUP; the code
    that waits for it clears it.

    A second SIGTERM or Ctrl-C ends the process at once, which loses nothing: what was acknowledged
    is in the log.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.reload = asyncio.Event()

    def listen(self) -> Signals:
        """Take the process's signals; to be called on the event loop."""
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        return self

    def _stop(self) -> None:
        self.stop.set()
        for number in _STOPPING:
            asyncio.get_running_loop().remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)


def tell_systemd(state: str) -> None:
    """Tell systemd `READY=1` or `STOPPING=1` (sd_notify(3)); do nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.connect("\0" + address[1:] if address[0] == "@" else address)
        out.sendall(state.encode())
