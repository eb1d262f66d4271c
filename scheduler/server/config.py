"""What `muster serve` can be asked for: the keys of its file, and the options made of them.

docs/operations.md lists the keys. Every key is optional. Files are looked for beside the file that
names them. A key with an `ServerOption` can be given on the command line as well, checked by the
same rule. A new section is a class of keys here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo

from muster.structs import struct
from placement import BadInput
from placement.fabric.reader import PRESETS
from scheduler.access.options import CallLimits
from scheduler.core.model.scheduling_options import Overrun, SchedulingOptions
from scheduler.core.policies.health_signals import BUILT_IN_CHECKS
from scheduler.core.queue.policies import queue_policy
from scheduler.eventlog.store import is_shared
from scheduler.files.defaults import (
    CONSOLE,
    ENDED_DAYS,
    LEAST_GAIN_PERCENT,
    LISTEN,
    MOST_DAYS,
    MOST_LEASE_S,
    MOST_RESERVATIONS,
    MOST_SLIPS,
    RESIZE_EVERY_S,
    SLOW_PERCENT,
    STORE,
)
from scheduler.files.errors import InputError, Problem, line_of, short
from scheduler.files.field_types import wrong_value
from scheduler.files.job_keys import (
    Count,
    EnvironmentVariables,
    Flag,
    Keys,
    Number,
    Seconds,
    SomeSeconds,
    Text,
    checked_keys,
    message_of,
    path_of,
    sections,
)
from scheduler.files.yaml12 import load
from scheduler.launch.keys import (
    Address,
    FilePath,
    KubernetesKeys,
    SlurmKeys,
    check_address,
    resolve_path,
)
from scheduler.observe.logs import LogFormat, LogLevel

_FILE_URL = "sqlite:///"
_MOST_HOURS = 87_600
OFF = "off"  # where an address could be
MOST_WATCH_CHANGES = 1_000_000  # some 2 GB
MOST_COPIES_GB = 1_000_000


def _fabric(value: Any, info: ValidationInfo) -> str:
    path = resolve_path(value, info)
    is_word = value == Path(value).stem and not Path(path).exists()  # a preset, or one misspelt
    return value if value in PRESETS or is_word else path


def _store(value: Any, info: ValidationInfo) -> str:
    if isinstance(value, str) and is_shared(value):
        return value
    if not isinstance(value, str) or not value.startswith(_FILE_URL) or value == _FILE_URL:
        known = f"{_FILE_URL}FILE or postgresql://HOST/DATABASE"
        raise wrong_value(f"must be {known}, not {short(value)}")
    return _FILE_URL + resolve_path(value.removeprefix(_FILE_URL), info)


def _hours(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _MOST_HOURS:
        raise wrong_value(f"must be hours, above 0 and up to {_MOST_HOURS:,}, not {short(value)}")
    return float(value)


def _at_most(most: int) -> Callable[[int], int]:
    def check(value: int) -> int:
        if value > most:
            raise wrong_value(f"must be at most {most:,}, is {value:,}")
        return value

    return check


def _refuse_empty(value: Any) -> Any:
    """An empty `auth:` must not pass for one that is left out."""
    if value is None:
        raise wrong_value("is empty: give its keys, or leave it out")
    return value


def _policy(value: Any) -> str:
    """The name of a queue policy."""
    try:
        return queue_policy(str(value)).name
    except BadInput as error:
        raise wrong_value(error.message) from None


@struct(frozen=True, slots=True)
class ServerOption:
    """Marks a key that an option of `muster serve` sets. `name`: if not that of the key."""

    help: str
    name: str = ""


class ServeOption(NamedTuple):
    """An option of `muster serve`: its name, --NAME, the dotted path of its key, the key's type,
    what it is for. `default`: in words, "" without one."""

    name: str
    path: str
    kind: Any
    help: str
    default: str


class MetricsKeys(Keys):
    """Where metrics are served. `per_job`: series for each running gang as well."""

    listen: Annotated[
        Address,
        ServerOption("HOST:PORT of /metrics for Prometheus. (default: no metrics)", "metrics"),
    ]
    per_job: Annotated[
        Flag, ServerOption("Also series for each running gang.", "metrics-per-job")
    ] = False


class TlsKeys(Keys):
    """PEM files. `client_ca`: the CA that signs client certificates; if it is set, every client
    needs one."""

    certificate: FilePath
    key: FilePath
    client_ca: FilePath | None = None


def _console_address(value: Any) -> str:
    return OFF if value in (OFF, False) else check_address(value)


class ConsoleKeys(Keys):
    """Settings of the console (docs/console.md), which also answers calls as JSON. `tls`: as for
    the server, whose own section is meant where this one has none."""

    listen: Annotated[
        str,
        BeforeValidator(_console_address),
        ServerOption("HOST:PORT of the console in a browser; off: none.", "console"),
    ] = CONSOLE
    tls: Annotated[TlsKeys | None, BeforeValidator(_refuse_empty)] = None

    @property
    def is_left_open(self) -> bool:
        """Whether no address was given, so that another free port does as well."""
        return "listen" not in self.model_fields_set


class LogKeys(Keys):
    """Settings of the server's log on stderr."""

    format: Annotated[LogFormat, ServerOption("Format of log records on stderr.", "log-format")] = (
        LogFormat.TEXT
    )
    level: Annotated[LogLevel, ServerOption("Least level of log records.", "log-level")] = (
        LogLevel.WARNING
    )


class AuthKeys(Keys):
    """Settings of who may call. `file`: tokens and certificates with their roles, see authfile."""

    file: FilePath


class LauncherKind(StrEnum):
    """How agents are started."""

    LOCAL = "local"  # the server, on this machine, one for each host
    SLURM = "slurm"  # the server, on nodes of a Slurm cluster, in allocations of its own
    KUBERNETES = "kubernetes"  # the server, in pods of a Kubernetes cluster


class ServerLoss(StrEnum):
    """Fate of ranks whose agent hears nothing from a server for three leases."""

    KEEP = "keep"  # they run on
    KILL = "kill"  # they end


def _of_labels(given: dict[str, Any]) -> dict[str, Any]:
    for label in given:
        if not all(label.partition("=")[::2]):
            raise wrong_value(f"must name labels of hosts as nic=cx7, not {short(label)}")
    return given


def _of_checks(given: dict[str, Any]) -> dict[str, Any]:
    for name, command in given.items():
        if not command and name not in BUILT_IN_CHECKS:
            raise wrong_value(
                f"{short(name)} needs a program: built in are {', '.join(BUILT_IN_CHECKS)}"
            )
        if len(name.split()) != 1 or "=" in name:
            raise wrong_value(f"names a check {short(name)}: it may have no blank and no '='")
    return given


class AgentKeys(Keys):
    """Settings of agents, which come in at a port of their own with the certificates of `tls`.

    `lease_s`: a host whose agent says nothing for so long is lost. `join_secret`: a file with what
    join tokens are made with (`muster agent-token`), for agents without a certificate of their own.
    `join`: hosts that the fabric lacks join it, where their agents prove their names and say where
    they are; the operator says so. `stragglers_s`: between looks for hosts that slow gangs, by what
    ranks say; they are reported as `straggler`. None: never. `on_server_loss`: what an agent does
    with its ranks that hears nothing for three leases. `gate`: program and arguments that have to
    end well on each host before the ranks of a gang start, within `gate_s`, as gates of jobs.
    `burn_in`: what `muster burn-in`, and a burn-in of the health policy, checks on idle hosts, each
    within `gate_s`: program and arguments by name, [] for gpus, memory and network, which are built
    in. `env_by_label`: variables of ranks on hosts with a label, by LABEL=VALUE. `copies_gb`:
    memory of each host, at most half of it, that copies of gangs' state may take; 0: none are kept.
    """

    listen: Annotated[
        Address,
        ServerOption(
            "HOST:PORT for agents, which start jobs with `run`. (default: none)", "agents"
        ),
    ] = "127.0.0.1:0"
    lease_s: Annotated[
        Seconds,
        AfterValidator(_at_most(MOST_LEASE_S)),
        ServerOption("Seconds after which a host with a silent agent is lost.", "agent-lease-s"),
    ] = 30
    join_secret: Annotated[
        FilePath | None, ServerOption("File with the secret of join tokens.", "join-secret")
    ] = None
    join: Flag = False
    stragglers_s: Annotated[Seconds, AfterValidator(_at_most(MOST_LEASE_S))] | None = None
    on_server_loss: ServerLoss = ServerLoss.KEEP
    gate: tuple[Text, ...] = ()
    burn_in: Annotated[dict[Text, tuple[Text, ...]], AfterValidator(_of_checks)] | None = None
    gate_s: Annotated[Seconds, AfterValidator(_at_most(MOST_LEASE_S))] = 300
    env_by_label: Annotated[dict[str, EnvironmentVariables], AfterValidator(_of_labels)] = Field(
        default_factory=dict
    )
    copies_gb: Annotated[
        Number,
        AfterValidator(_at_most(MOST_COPIES_GB)),
        ServerOption(
            "GB of each host's memory that copies of gangs' state may take.", "agent-copies-gb"
        ),
    ] = 0

    @property
    def labelled_env(self) -> tuple[tuple[str, str, Mapping[str, str]], ...]:
        """Label, value and variables of each entry of `env_by_label`, in their order."""
        given = self.env_by_label.items()
        return tuple((*label.split("=", 1), dict(env)) for label, env in given)  # type: ignore[misc]


class ServerKeys(Keys):
    """Every setting of `muster serve`; its defaults are those without a file.

    `resize_every_s`, `least_gain_percent`: how often an elastic gang grows, and by how much.
    `slow_percent`: how much longer links make the step of a gang that is named as slow.
    `drain_s`: how long calls may take to finish once the server has to stop.
    `advertise`: where clients and other servers on the same store find this one. `lease_s`:
    a leader among them that is not heard of for so long is replaced.
    `init`: whether a store that is not there is made. `mark`: where the end of the log is marked.
    `snapshot_every`: least events between two snapshots. `keep_log_days`: None keeps all events.
    `keep_ended_days`: of jobs that ended, which are kept apart from events.
    `watch_changes`: changes of jobs and of hosts kept in memory for watches.
    `insecure`: serve beyond loopback without TLS or without asking callers who they are.
    `overrun`: of a gang that reaches the time limit that it states; None: it is ended where agents
    run it, else it runs on. `most_slips`, `most_reservations`: see SchedulingOptions.
    `launcher`: who starts agents; without one they are started by others, if at all.
    """

    listen: Annotated[Address, ServerOption("HOST:PORT; port 0 takes a free one.")] = LISTEN
    store: Annotated[
        str,
        BeforeValidator(_store),
        ServerOption(
            "Where the log is kept: sqlite:///FILE, or postgresql://... for several servers"
            " (docs/replicas.md)."
        ),
    ] = STORE
    init: Annotated[
        Flag | None,
        ServerOption(
            "Make a store where there is none, or never. (default: where nothing is left of an"
            " earlier one)",
            "init/--no-init",
        ),
    ] = None
    mark: Annotated[
        FilePath | None,
        ServerOption(
            "File that says how far the log has come. (default: FILE.mark beside a SQLite store,"
            " none for postgresql://)"
        ),
    ] = None
    fabric: Annotated[
        Annotated[str, BeforeValidator(_fabric)] | None,
        ServerOption(
            "A preset or a fabric file, for a new store; an existing store has its fabric."
        ),
    ] = None
    tenants: Annotated[
        FilePath | None,
        ServerOption("A tenants file: quotas, shares, priority classes. (default: as in the log)"),
    ] = None
    health: Annotated[
        FilePath | None,
        ServerOption("A health file: the effect of reports. (default: as in the log)"),
    ] = None
    notify: Annotated[
        FilePath | None,
        ServerOption("A notify file: who is told what of which jobs. (default: nobody)"),
    ] = None
    policy: Annotated[
        str,
        BeforeValidator(_policy),
        ServerOption(
            "Queue policy: production, easy, fifo, conservative, or the name of a policy that"
            " another package adds."
        ),
    ] = "production"
    assumed_limit_h: Annotated[
        float, BeforeValidator(_hours), ServerOption("Time limit of jobs that state none.")
    ] = 24.0
    overrun: Annotated[
        Overrun | None,
        ServerOption(
            "What happens to a gang at its time limit: extend, requeue or kill. (default: kill"
            " with agents, else extend)"
        ),
    ] = None
    most_slips: Number = MOST_SLIPS
    most_reservations: Number = MOST_RESERVATIONS
    resize_every_s: Annotated[
        SomeSeconds,
        ServerOption("Least seconds from a start of an elastic gang to its next growth or return."),
    ] = RESIZE_EVERY_S
    least_gain_percent: Annotated[
        Number,
        ServerOption("Least growth of an elastic gang in percent, except to its largest size."),
    ] = LEAST_GAIN_PERCENT
    slow_percent: Number = SLOW_PERCENT
    neighbours: Flag = True
    drain_s: Seconds = 5
    advertise: Annotated[
        Address | None,
        ServerOption("HOST:PORT at which clients find this server. (default: --listen)"),
    ] = None
    lease_s: Annotated[
        Seconds,
        AfterValidator(_at_most(MOST_LEASE_S)),
        ServerOption("Seconds after which a silent leader is replaced."),
    ] = 5
    snapshot_every: Annotated[
        Count,
        ServerOption("Events between two snapshots; more if the state has more entries."),
    ] = 10_000
    keep_log_days: Annotated[
        Annotated[Count, AfterValidator(_at_most(MOST_DAYS))] | None,
        ServerOption("Days for which events are kept. (default: for ever)"),
    ] = None
    keep_ended_days: Annotated[Count, AfterValidator(_at_most(MOST_DAYS))] = ENDED_DAYS
    watch_changes: Annotated[Count, AfterValidator(_at_most(MOST_WATCH_CHANGES))] = 20_000
    metrics: Annotated[MetricsKeys | None, BeforeValidator(_refuse_empty)] = None
    console: Annotated[ConsoleKeys, BeforeValidator(_refuse_empty)] = Field(
        default_factory=ConsoleKeys
    )
    log: Annotated[LogKeys, BeforeValidator(_refuse_empty)] = Field(default_factory=LogKeys)
    insecure: Annotated[
        Flag, ServerOption("Listen beyond this machine also without TLS or authentication.")
    ] = False
    launcher: Annotated[
        LauncherKind | None,
        ServerOption(
            "Start agents: `local`, on this machine for each host of a small fabric, `slurm`, on"
            " nodes of a cluster (docs/slurm.md), or `kubernetes`, in its pods"
            " (docs/kubernetes.md)."
        ),
    ] = None
    agents: Annotated[AgentKeys | None, BeforeValidator(_refuse_empty)] = None
    slurm: Annotated[SlurmKeys, BeforeValidator(_refuse_empty)] = Field(default_factory=SlurmKeys)
    kubernetes: Annotated[KubernetesKeys, BeforeValidator(_refuse_empty)] = Field(
        default_factory=KubernetesKeys
    )
    tls: Annotated[TlsKeys | None, BeforeValidator(_refuse_empty)] = None
    auth: Annotated[AuthKeys | None, BeforeValidator(_refuse_empty)] = None
    limits: Annotated[CallLimits, BeforeValidator(_refuse_empty)] = Field(
        default_factory=CallLimits
    )

    @property
    def has_agents(self) -> bool:
        """Whether agents start jobs."""
        return self.agents is not None or self.launcher is not None


def scheduling_options(keys: ServerKeys) -> SchedulingOptions:
    """Return the scheduling options of a server with these keys."""
    return SchedulingOptions(
        policy=keys.policy,
        assumed_limit_s=max(1, round(keys.assumed_limit_h * 3600)),
        resize_every_s=keys.resize_every_s,
        least_gain=keys.least_gain_percent,
        overrun=keys.overrun or (Overrun.KILL if keys.has_agents else Overrun.EXTEND),
        most_slips=keys.most_slips,
        most_reservations=keys.most_reservations,
        slow_percent=keys.slow_percent,
        neighbours=keys.neighbours,
    )


def load_server_file(path: str) -> ServerKeys:
    """Read a server file. Raises: InputError with every fault found, each with its line."""
    document = load(path)
    return checked_keys(ServerKeys, document, folder=Path(path).parent)


def in_server_file(error: InputError, path: str, keys: ServerKeys) -> InputError:
    """Return the error with each key of the server file at `path` that is wrong, or that names a
    file that is, and its line. Problems of other files stay as they are."""
    lines = load(path).lines
    named = dict(_texts(keys.model_dump()))
    located = []
    for problem in error.found:
        key, said = "" if problem.source else problem.field, problem.message
        if problem.source and not problem.field and not problem.line:  # that it is not there
            key, said = named.get(problem.source, ""), f"{problem.source}: {said}"
        located.append(Problem(key, said, path, line_of(lines, key)) if key else problem)
    return InputError(*located)


def _texts(section: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text of a section, and the dotted path of its key."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _texts(value, f"{above}{key}.")
        elif isinstance(value, str):
            yield str(value), f"{above}{key}"


class BadOption(Exception):
    """The value of an option was refused by its key. `option`: as it is given, --NAME."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option
        self.message = message


def overridden(keys: ServerKeys, given: Mapping[str, Any]) -> ServerKeys:
    """Return `keys` with the values that the command line gives, by dotted path. Raises:
    BadOption."""
    changes: dict[str, Any] = {}
    for path, value in given.items():
        section, _, key = path.rpartition(".")
        if not section:
            changes[key] = value
            continue
        before: Keys | None = getattr(keys, section)
        inner = before.model_dump(exclude_unset=True) if before else {}
        changes[section] = inner | changes.get(section, {}) | {key: value}
    try:
        checked = ServerKeys.model_validate(changes)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        names = {option.path: option.name for option in options()}
        raise BadOption(names[path_of(fault)], message_of(fault, ServerKeys)) from None
    return keys.model_copy(update={name: getattr(checked, name) for name in changes})


def options() -> Iterator[ServeOption]:
    """Return the options of `muster serve`, in the order of their keys."""
    for section, known in sections(ServerKeys).items():
        for key, field in known.model_fields.items():
            for option in field.metadata:
                if isinstance(option, ServerOption):
                    name = "--" + (option.name or key.replace("_", "-"))
                    path = f"{section}.{key}" if section else key
                    is_shown = not field.is_required() and field.default not in (None, False)
                    default = str(field.default) if is_shown else ""
                    yield ServeOption(name, path, field.annotation, option.help, default)


def keys() -> Iterator[str]:
    """Return the dotted path of every key, in order."""
    known = sections(ServerKeys)
    for section, inner in known.items():
        above = f"{section}." if section else ""
        yield from (above + name for name in inner.model_fields if name not in known)
