"""What is replayed on what: the one description of a replay, made from options or by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, field
from pathlib import Path
from typing import Any

from muster.structs import replace, struct
from placement import BadInput
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.request import SpareRule
from scheduler.core import SchedulingOptions, Tenants
from scheduler.core.model.scheduling_options import Overrun
from scheduler.core.model.window import Window
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.tenants import OPEN
from scheduler.files.errors import InputError, Problem
from scheduler.files.health.policyfile import load_health
from scheduler.files.inputs import load_fabric
from scheduler.files.job_keys import parse_spares
from scheduler.files.tenants import TenantsFile, load_tenants
from scheduler.files.windows import load_windows
from simulator.failures import ALL, LogWindow
from simulator.options import COSTS, Options, Value
from simulator.placers import PlacementStrategy, PlacerFactory, placer_factory
from simulator.timing import TimeModel, load_time_model
from simulator.traces.mapping import AS_RING
from simulator.traces.record import SECOND_NS
from simulator.traces.shapes import ShapeAssignment, ShapeRule


@struct(frozen=True, slots=True)
class TraceSource:
    """The jobs of a trace file that are replayed. `format`: a name of traces/load.py; `columns`:
    those of a csv. `since`: a day, or seconds after the first submit; earlier jobs are left out.
    `limit`: so many jobs at most. `is_strict`: a wrong record refuses the file."""

    path: Path
    format: str
    since: str | None = None
    limit: int | None = None
    is_strict: bool = False
    columns: str | None = None


@struct(frozen=True, slots=True)
class Experiment:
    """One replay: a cluster, its scheduler, and what happens to it.

    `decision_ns`: how long a decision takes, None for as long as it takes here and now. `windows`:
    those of a replay whose first submit is at that time; `windows_file`: where they stand, for the
    record. `costs`: what interruptions cost, whatever the tenants file says; with `times`, a time
    model, what the scheduler believes. `until_ns`: after the first submit; jobs that are live then
    are cancelled. `has_assumed_limits`: a job without a time limit gets the assumed one of
    `options`, not its run time. `spares`: in place of what jobs state, see `job_spec`. `attach`:
    the shape of jobs of which the trace knows only the size. `placement`: who chooses the hosts.
    `health`: what the scheduler makes of reports. `trace`: where jobs come from, None where a
    caller has them. `failures`: models, presets or files, see failures/; `failure_scale`: by which
    their rates are multiplied; `log_window`: what is used of recorded ones. `seed`: of failures,
    placement and shapes. `shares_hosts`: jobs smaller than a host, of a trace that knows only their
    size, take a part of one.
    """

    fabric: Fabric
    options: SchedulingOptions = field(default_factory=SchedulingOptions)
    costs: Costs = field(default_factory=Costs)
    spares: SpareRule | None = None
    decision_ns: int | None = 0
    tenants: Tenants | None = None
    windows: Callable[[int], Sequence[Window]] | None = None
    windows_file: str | None = None
    has_assumed_limits: bool = False
    attach: ShapeAssignment = AS_RING
    placement: PlacementStrategy = PlacementStrategy.STEP_TIME
    times: TimeModel | None = None
    until_ns: int | None = None
    health: HealthPolicy | None = None
    trace: TraceSource | None = None
    failures: str | None = None
    failure_scale: float = 1.0
    seed: int = 0
    log_window: LogWindow = ALL
    shares_hosts: bool = False

    @property
    def charged(self) -> Tenants | None:
        """The tenants with the costs that hold; None where both are as without a tenants file."""
        tenants = self.tenants or OPEN
        if self.costs == tenants.preemption.costs:
            return self.tenants
        return replace(tenants, preemption=replace(tenants.preemption, costs=self.costs))

    @property
    def placer_factory(self) -> PlacerFactory:
        return placer_factory(self.placement, self.seed)

    @property
    def source(self) -> TraceSource:
        """The trace that jobs come from. Raises: ValueError when a caller has the jobs."""
        if self.trace is None:
            raise ValueError("an experiment without a trace is a Replay of given jobs")
        return self.trace


def fabric_of(options: Options) -> Fabric:
    """Load the fabric, with the oversubscription that is asked for.

    Raises: InputError.
    """
    fabric = load_fabric(str(options["fabric"]))
    ratio = options["oversubscription"]
    if ratio is None:
        return fabric
    try:
        return oversubscribed(fabric, float(ratio))
    except BadInput as error:
        raise InputError(Problem("oversubscription", error.message)) from None


def oversubscribed(fabric: Fabric, ratio: float) -> Fabric:
    """Set all uplinks of the outermost tier to this ratio, also where the file states others.

    Raises: BadInput where there is no such tier.
    """
    spec = _copy(fabric.spec)
    if not spec.get("tiers"):
        raise BadInput("", f"{fabric.name} has no tiers: nothing is oversubscribed")
    spec["tiers"][0]["oversubscription"] = ratio
    domains = spec.get("domains", ())
    for item in [domains] if isinstance(domains, dict) else domains:
        item.pop("oversubscription", None)
    return from_spec({**spec, "name": f"{fabric.name}-{ratio:g}to1"})


def _copy(value: Any) -> Any:
    """Return the value with dicts and lists of its own, which can be changed."""
    if isinstance(value, Mapping):
        return {key: _copy(each) for key, each in value.items()}
    return [_copy(each) for each in value] if isinstance(value, list | tuple) else value


def experiment_of(options: Options) -> Experiment:
    """Return the replay that these values describe. Raises: InputError."""
    fabric, seed = fabric_of(options), int(options["seed"] or 0)
    file = None if options["tenants"] is None else load_tenants(str(options["tenants"]))
    if file:
        file.check(fabric)
    tenants = file.tenants if file else None
    times = None if options["times"] is None else load_time_model(str(options["times"]))
    book = None if options["windows"] is None else load_windows(str(options["windows"]))
    return Experiment(
        fabric,
        _scheduling(options),
        times.costs if times else _costs(file, options),
        None if options["spares"] is None else parse_spares(options["spares"]),
        parse_decision_ns(str(options["decision_s"])),
        tenants,
        (lambda zero_ns: book.booked(fabric, tenants, zero_ns)[1]) if book else None,
        book.document.source if book else None,
        options["assumed_limit_h"] is not None,
        ShapeAssignment(ShapeRule(str(options["attach"])), seed),
        PlacementStrategy(str(options["placement"])),
        times,
        None if options["until_h"] is None else round(3600 * float(options["until_h"]) * SECOND_NS),
        None if options["health"] is None else load_health(str(options["health"])),
        TraceSource(
            Path(str(options["trace"])),
            str(options["trace_format"]),
            None if options["since"] is None else str(options["since"]),
            _maybe(options["limit"]),
            bool(options["strict"]),
            None if options["columns"] is None else str(options["columns"]),
        ),
        None if options["failures"] is None else str(options["failures"]),
        float(options["failure_scale"] or 1),
        seed,
        LogWindow(float(options["failures_from_h"] or 0) * 3600, bool(options["failures_repeat"])),
        bool(options["share_hosts"]),
    )


def _scheduling(options: Options) -> SchedulingOptions:
    scheduling = SchedulingOptions(
        policy=str(options["policy"]),
        resize_every_s=int(options["resize_every_s"] or 0),
        least_gain=int(options["least_gain_percent"] or 0),
        overrun=Overrun(str(options["overrun"])),
        most_slips=int(options["most_slips"] or 0),
        most_reservations=int(options["most_reservations"] or 0),
        neighbours=not options["blind"],
    )
    limit_h = options["assumed_limit_h"]
    if limit_h is None:
        return scheduling
    return replace(scheduling, assumed_limit_s=max(1, round(float(limit_h) * 3600)))


def _costs(file: TenantsFile | None, options: Options) -> Costs:
    """Checkpoint, restart and detection times as given, and for the rest what the tenants
    file says."""
    stated = file.tenants.preemption.costs if file else Costs()
    pairs = zip((_maybe(options[key]) for key in COSTS), astuple(stated), strict=True)
    return Costs(*(usual if value is None else value for value, usual in pairs))


def parse_decision_ns(text: str) -> int | None:
    """Parse the seconds that a decision takes; None: as long as it takes here. Raises: BadInput."""
    if text == "measured":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise BadInput("", f"must be measured, or a number from 0 to 86400, not {text!r}")
    return round(seconds * SECOND_NS)


def _maybe(value: Value) -> int | None:
    return None if value is None else int(value)
