"""The options of a replay, each declared once: name, kind, bounds, default, help.

From OPTIONS come the command lines of `muster replay` and `muster compare`
(cli/parameters.py), the keys of an experiment file and the axes of a sweep
(experiment_file.py). This file is light, because `muster --help` loads it: what reads a
value is imported when there is a value to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from muster.structs import struct
from placement import BadInput
from scheduler.files.defaults import (
    LEAST_GAIN_PERCENT,
    MOST_RESERVATIONS,
    MOST_SLIPS,
    RESIZE_EVERY_S,
)
from scheduler.files.errors import InputError, Problem

Value = str | int | float | bool | None
Options = Mapping[str, Value]

MOST = 2**31 - 1


@struct(frozen=True, slots=True)
class TextKind:
    """A text that a reader checks."""

    reader: str = ""

    def check(self, value: Value) -> Value:
        if isinstance(value, bool) or not isinstance(value, str | int | float) or str(value) == "":
            raise BadInput("", f"must be a text, not {value!r}")
        if self.reader:
            module, _, function = self.reader.partition(":")
            getattr(import_module(module), function)(str(value))
        return str(value)


@struct(frozen=True, slots=True)
class WholeKind:
    """A whole number from `low` to `high`."""

    low: int = 0
    high: int = MOST

    def check(self, value: Value) -> Value:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not self.low <= int(value or 0) <= self.high:
            message = f"must be a whole number from {self.low} to {self.high}, not {value!r}"
            raise BadInput("", message)
        return value


@struct(frozen=True, slots=True)
class NumberKind:
    """A number from `low` to `high`; `is_above`: but not `low` itself."""

    low: float
    high: float
    is_above: bool = False

    def check(self, value: Value) -> Value:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value or 0) if is_number else self.low - 1
        if not self.low <= number <= self.high or (self.is_above and number == self.low):
            bounds = f"above {self.low:g} and up to {self.high:g}"
            if not self.is_above:
                bounds = f"from {self.low:g} to {self.high:g}"
            raise BadInput("", f"must be a number {bounds}, not {value!r}")
        return number


@struct(frozen=True, slots=True)
class ChoiceKind:
    names: tuple[str, ...]

    def check(self, value: Value) -> Value:
        if value not in self.names:
            raise BadInput("", f"must be one of {', '.join(self.names)}, not {value!r}")
        return value


@struct(frozen=True, slots=True)
class FlagKind:
    def check(self, value: Value) -> Value:
        if not isinstance(value, bool):
            raise BadInput("", f"must be true or false, not {value!r}")
        return value


@struct(frozen=True, slots=True)
class ReplayOption:
    """One option of a replay. `is_file`: its value names a file (`fabric`: or a preset).
    `has_files`: its text may name files among other things. `is_several`: `muster compare` takes
    several values of it."""

    key: str
    kind: TextKind | WholeKind | NumberKind | ChoiceKind | FlagKind
    help: str
    default: Value = None
    is_needed: bool = False
    is_file: bool = False
    has_files: bool = False
    is_several: bool = False

    @property
    def flag(self) -> str:
        """Name of the option in messages."""
        return "trace" if self.key == "trace" else f"--{self.key.replace('_', '-')}"


OPTIONS = (
    ReplayOption(
        "trace",
        TextKind("simulator.traces.load:check_readable"),
        "The trace file, plain or gzip.",
        is_needed=True,
        is_file=True,
    ),
    ReplayOption(
        "trace_format",
        TextKind("simulator.traces.load:check_format"),
        # Spelt out, for the readers are imported only when a command runs; a test compares.
        "swf, philly-csv, philly-json, helios, acme, pai, gavel, alibaba-spot, muri, tiresias,"
        " mystous, slurm-sacct, muster or csv.",
        is_needed=True,
    ),
    ReplayOption(
        "columns",
        TextKind("simulator.traces.load:check_columns"),
        "With --trace-format csv, which column holds what, by name or by number:"
        " submit=COLUMN[:UNIT],gpus=COLUMN,duration=COLUMN[:UNIT], or end=; also workers, start,"
        " limit, id, user, queue, account, class, priority, outcome. Units: us, ms, s, min, h, d."
        " With slurm-sacct: gpus_per_node=N, for jobs that name no GPU, and the columns of a file"
        " without a header, JobID,User,....",
    ),
    ReplayOption(
        "fabric",
        TextKind("scheduler.files.inputs:load_fabric"),
        "The cluster: a preset (roce-24k, ib-24k, nvl72-24k) or a fabric file.",
        is_needed=True,
        is_file=True,
        is_several=True,
    ),
    ReplayOption(
        "oversubscription",
        NumberKind(0.01, 1000),
        "Oversubscription of the uplinks of the fabric's outermost tier.",
    ),
    ReplayOption(
        "policy",
        TextKind("scheduler.core.queue.policies:queue_policy"),
        "The queue policy: production, easy, fifo, conservative, or one that a package adds.",
        "production",
        is_several=True,
    ),
    ReplayOption(
        "placement",
        ChoiceKind(("step-time", "minimum-cut", "consecutive", "random", "spread")),
        "How hosts are chosen: step-time, by the step of jobs that say enough to know it, as on a"
        " server, else by the cut; for comparison: minimum-cut, consecutive (fewest domains by"
        " free hosts), random, or spread (Arnold's measure).",
        "step-time",
        is_several=True,
    ),
    ReplayOption(
        "spares",
        TextKind("simulator.options:check_spares"),
        'Spares of every job: auto, a number of hosts or a share such as "2%". Default: what jobs'
        " of a muster trace state, else 0.",
        is_several=True,
    ),
    ReplayOption(
        "failures",
        TextKind("simulator.failures:parse"),
        "Failures of hosts: poisson:rate=6.5,repair_h=24 (per 1,000 host-days), weibull:, llama3,"
        " rsc1, rsc2, ft-hsdp, infinitehbd:FILE, a YAML file of causes, or host events"
        " (CSV); several joined with `;`.",
        has_files=True,
        is_several=True,
    ),
    ReplayOption(
        "failure_scale",
        NumberKind(1e-6, 1e6),
        "All rates of the failure model are multiplied by this.",
        1.0,
    ),
    ReplayOption(
        "failures_from_h",
        NumberKind(0, 876_000),
        "Hours into recorded failures (logs and host events) at which the replay begins.",
        0.0,
    ),
    ReplayOption(
        "failures_repeat",
        FlagKind(),
        "Recorded failures begin again when their log ends.",
        False,
    ),
    ReplayOption(
        "seed",
        WholeKind(),
        "Seed of all random draws: failures, random placement, shapes of jobs.",
        0,
        is_several=True,
    ),
    ReplayOption(
        "checkpoint_s",
        WholeKind(),
        "Seconds of progress between two checkpoints. Default: from the tenants file, else 1800.",
        is_several=True,
    ),
    ReplayOption(
        "restart_s",
        WholeKind(),
        "Seconds until an interrupted gang makes progress again. Default: from the tenants file,"
        " else 300.",
    ),
    ReplayOption(
        "detect_s",
        WholeKind(),
        "Seconds until a failure is detected; work in them is lost. Default: from the tenants"
        " file, else 0.",
    ),
    ReplayOption(
        "times",
        TextKind("simulator.timing:load_time_model"),
        "A time model: default, llama3 or a YAML file, then changes, such as"
        " llama3,checkpoint.interval_s=1800. It replaces --checkpoint-s, --restart-s and"
        " --detect-s, and makes steps slower where placement and neighbours do.",
        has_files=True,
    ),
    ReplayOption(
        "until_h",
        NumberKind(0, 876_000, is_above=True),
        "Hours after the first submit when the replay ends; live jobs are cancelled then.",
    ),
    ReplayOption(
        "decision_s",
        TextKind("simulator.experiment:parse_decision_ns"),
        "Seconds that a scheduling decision takes, or measured: as long as it takes here.",
        "0",
    ),
    ReplayOption(
        "attach",
        ChoiceKind(("ring", "llm", "llm-elastic")),
        "Shape of jobs whose trace has only a size: ring is data parallel alone; llm adds a model"
        " and its parallelism; llm-elastic lets data-parallel jobs shrink.",
        "ring",
    ),
    ReplayOption(
        "share_hosts",
        FlagKind(),
        "Jobs smaller than a host take the GPUs that they ask for, and others share the host. Else"
        " every job takes whole hosts.",
        False,
        is_several=True,
    ),
    ReplayOption(
        "tenants",
        TextKind("scheduler.files.tenants:load_tenants"),
        "A tenants file. A job belongs to the tenant that its account, queue or user names.",
        is_file=True,
    ),
    ReplayOption(
        "health",
        TextKind("scheduler.files.health.policyfile:load_health"),
        "A health file, as for muster serve: the effect of reports about hosts.",
        is_file=True,
    ),
    ReplayOption(
        "windows",
        TextKind("scheduler.files.windows:load_windows"),
        "A windows file; a time such as +2h counts from the first submit.",
        is_file=True,
    ),
    ReplayOption(
        "assumed_limit_h",
        NumberKind(0.01, 87_600),
        "Time limit in hours of jobs that state none. Default: their run time.",
    ),
    ReplayOption(
        "overrun",
        ChoiceKind(("extend", "requeue", "kill")),
        "What happens to a gang at the time limit that it states; with extend it runs on.",
        "extend",
    ),
    ReplayOption(
        "most_slips",
        WholeKind(),
        "How often overrun time limits may delay the first waiting job before no other job is"
        " backfilled past it; 0: without bound.",
        MOST_SLIPS,
    ),
    ReplayOption(
        "most_reservations",
        WholeKind(),
        "Under conservative, the number of waiting jobs that have a reservation; 0: all.",
        MOST_RESERVATIONS,
    ),
    ReplayOption(
        "resize_every_s",
        WholeKind(),
        "Seconds after its last start before an elastic gang may grow.",
        RESIZE_EVERY_S,
    ),
    ReplayOption(
        "least_gain_percent",
        WholeKind(),
        "Least growth of an elastic gang in percent of replicas, except to its largest size.",
        LEAST_GAIN_PERCENT,
    ),
    ReplayOption(
        "blind",
        FlagKind(),
        "Place gangs as if no other gang sent anything over uplinks that they share.",
        False,
    ),
    ReplayOption(
        "since",
        TextKind(),
        "Leave out jobs submitted before: YYYY-MM-DD, or seconds after the first submit.",
    ),
    ReplayOption("limit", WholeKind(1), "Replay this many jobs at most."),
    ReplayOption("strict", FlagKind(), "Refuse a trace that has a wrong record.", False),
)
BY_KEY = {option.key: option for option in OPTIONS}
DEFAULTS: dict[str, Value] = {option.key: option.default for option in OPTIONS}
FILES = tuple(option.key for option in OPTIONS if option.is_file or option.has_files)
TEXTS = tuple(option.key for option in OPTIONS if option.has_files)
COSTS = ("checkpoint_s", "restart_s", "detect_s")


def check_spares(text: str) -> None:
    """Check a text of spares. Raises: BadInput."""
    from scheduler.files.job_keys import parse_spares

    parse_spares(text)


def checked(key: str, value: Value) -> Value:
    """Check a value, and return it as it is stored.

    Raises: BadInput, or InputError for what is wrong inside a file that it names.
    """
    if value is None:
        return None
    try:
        return BY_KEY[key].kind.check(value)
    except InputError as error:
        if any(problem.source for problem in error.found):
            raise
        raise BadInput(key, error.found[0].message) from None


def from_command_line(key: str, value: Value) -> Value:
    """Check a value of a command line. Raises: InputError naming the option."""
    option = BY_KEY[key]
    if key == "trace":  # one that cannot be read is named by its reader
        return value
    try:
        return checked(key, value)
    except BadInput as error:
        raise InputError(Problem(option.flag, error.message)) from None


def conflicts(options: Options) -> Iterator[tuple[str, str]]:
    """Return (key, message) of options that would have no effect."""
    is_csv = options["trace_format"] == "csv"
    may_have_columns = is_csv or options["trace_format"] == "slurm-sacct"
    has_columns = options["columns"] is not None
    if is_csv > has_columns or has_columns > may_have_columns:
        need = "is needed with the format csv: submit=COLUMN,gpus=COLUMN,duration=COLUMN"
        yield (
            "columns",
            need if is_csv else "has an effect only with the formats csv and slurm-sacct",
        )
    if options["times"] is not None:
        for key in COSTS:
            if options[key] is not None:
                yield key, "has no effect with --times, which sets it"
    if options["failures"] is None:
        for key in ("failure_scale", "failures_from_h", "failures_repeat"):
            if options[key] not in (None, DEFAULTS[key]):
                yield key, "has no effect without failures"
