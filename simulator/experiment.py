"""One replay from end to end: what was asked, and the record of what came of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from placement.fabric.tree import Fabric
from placement.workload.request import SpareRule
from scheduler.core import SchedulingOptions
from scheduler.core.model.window import Window
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health import HealthPolicy
from scheduler.files.defaults import LEAST_GAIN_PERCENT, RESIZE_EVERY_S
from scheduler.files.errors import InputError, Problem
from scheduler.files.health.policyfile import load_health
from scheduler.files.job_keys import parse_spares
from scheduler.files.tenants import TenantsFile, load_tenants
from scheduler.files.windows import WindowsFile, load_windows
from simulator import failures
from simulator.collectors.metrics import Metrics
from simulator.collectors.recorder import Collectors, Recorder
from simulator.options import COSTS, MEASURED, Options, Value, fabric_of
from simulator.placers import PlacementStrategy, placer_factory
from simulator.replay import (
    ArrivalCounts,
    RefusedJob,
    Replay,
    Setting,
)
from simulator.report.folder import ReportFolder
from simulator.timing import TimeModel, load_time_model
from simulator.traces import mapping
from simulator.traces.load import TraceFile, find_format
from simulator.traces.record import SECOND_NS, BadRecord, TraceJob
from simulator.traces.shapes import ShapeAssignment, ShapeRule


@dataclass(frozen=True, slots=True)
class Case:
    """A trace, what it is replayed on, and how.

    `failures`: models, presets or files, see failures/. `since`: a day, or seconds
    after the first submit; earlier jobs are left out. `limit`: so many jobs at most.
    `assumed_limit_s`: for jobs that state no time limit, None for their run time.
    `spares`: in place of what jobs state; None leaves that, and none for those that are no
    more than a size. `attach`: how such jobs get a shape. `decision_s`: None for as long as
    decisions do take here and now. `times`: None for the numbers of `costs`.
    `resize_every_s`, `least_gain_percent`: how often elastic gangs grow, and by how much.
    `until_s`: after the first submit everything is cut off. `failure_scale`: by which the
    rates of failures are multiplied.
    """

    trace: Path
    trace_format: str
    fabric: Fabric
    policy: str = "production"
    failures: str | None = None
    seed: int = 0
    spares: SpareRule | None = None
    costs: Costs = field(default_factory=Costs)
    decision_s: float | None = 0.0
    strict: bool = False
    since: str | None = None
    limit: int | None = None
    tenants: TenantsFile | None = None
    health: HealthPolicy | None = None
    windows: WindowsFile | None = None
    assumed_limit_s: int | None = None
    attach: ShapeRule = ShapeRule.RING
    failure_scale: float = 1.0
    placement: PlacementStrategy = PlacementStrategy.MINIMUM_CUT
    times: TimeModel | None = None
    until_s: float | None = None
    resize_every_s: int = RESIZE_EVERY_S
    least_gain_percent: int = LEAST_GAIN_PERCENT


def case_of(options: Options) -> Case:
    """The replay that these values describe. Raises: InputError."""
    tenants, windows = options["tenants"], options["windows"]
    limit_h = options["assumed_limit_h"]
    ruled = None if tenants is None else load_tenants(str(tenants))
    return Case(
        trace=Path(str(options["trace"])),
        trace_format=str(options["trace_format"]),
        fabric=fabric_of(options),
        policy=str(options["policy"]),
        failures=None if options["failures"] is None else str(options["failures"]),
        failure_scale=float(options["failure_scale"] or 1),
        seed=int(options["seed"] or 0),
        spares=None if options["spares"] is None else parse_spares(options["spares"]),
        costs=costs_of(ruled, *(_maybe(options[key]) for key in COSTS)),
        decision_s=_decision_s(options["decision_s"]),
        strict=bool(options["strict"]),
        since=None if options["since"] is None else str(options["since"]),
        limit=_maybe(options["limit"]),
        tenants=ruled,
        health=None if options["health"] is None else load_health(str(options["health"])),
        windows=None if windows is None else load_windows(str(windows)),
        assumed_limit_s=None if limit_h is None else max(1, round(float(limit_h) * 3600)),
        attach=ShapeRule(str(options["attach"])),
        placement=PlacementStrategy(str(options["placement"])),
        times=None if options["times"] is None else load_time_model(str(options["times"])),
        until_s=None if options["until_h"] is None else 3600 * float(options["until_h"]),
        resize_every_s=int(options["resize_every_s"] or 0),
        least_gain_percent=int(options["least_gain_percent"] or 0),
    )


def _decision_s(value: Value) -> float | None:
    """None: as long as decisions do take here."""
    return None if value == MEASURED else float(value or 0)


def _maybe(value: Value) -> int | None:
    return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a replay is. `records`: read so far; `ended`: jobs that are over."""

    records: int
    ended: int
    events: int


Warn = Callable[[str], None]


def run_case(
    case: Case,
    report: ReportFolder | None = None,
    warn: Warn | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    has_report_data: bool = False,
) -> dict[str, Any]:
    """Replay, and return the totals with everything that they depend on.

    `warn` gets a line for each record that is wrong and each job that is rejected.

    Raises: InputError on a trace, a failure model or an option that cannot be used;
    NotConserved when hosts, jobs or host time do not add up.
    """
    folder = report.folder if report else None
    with Recorder(case.fabric, folder, has_report_data or report is not None) as recorder:
        totals, report_data = _replayed(case, Collectors(recorder), warn, on_progress)
    if report:
        report.finish(totals, report_data)
    if has_report_data:
        totals["report_data"] = report_data
    return totals


def _replayed(
    case: Case,
    collectors: Collectors,
    warn: Warn | None,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The totals, and what pages show."""
    begin = time.perf_counter()
    skipped = _Skipped(case.strict, warn)
    trace = TraceFile(case.trace, find_format(case.trace_format), skipped)

    def refused(job: RefusedJob) -> None:
        if warn:
            warn(str(Problem("job", job.message, str(case.trace), job.job.line)))

    replay = Replay(
        _setting(case), _selected(case, trace), collectors.feed, _outages(case), refused
    )
    collectors.metrics.use_times(replay.modelled)

    def step() -> None:
        if on_progress:
            ended = collectors.metrics.submitted - collectors.metrics.unfinished
            on_progress(Progress(trace.records, ended, collectors.metrics.events))

    tally = replay.run(step if on_progress else None)
    if not tally.offered:
        raise InputError(Problem("", f"holds no job to replay{skipped.text()}", str(case.trace)))
    collectors.invariants.check(tally, collectors.metrics)
    seconds = time.perf_counter() - begin
    totals = _totals(case, collectors.metrics, tally, skipped, seconds)
    totals["log_sha256"] = collectors.recorder.digest()
    return totals, collectors.report_data()


def _totals(
    case: Case, metrics: Metrics, tally: ArrivalCounts, skipped: _Skipped, seconds: float
) -> dict[str, Any]:
    """What came of it, and what it depends on."""
    totals = metrics.totals(case.fabric.host_count)
    totals["seconds"] = seconds
    totals |= {
        "rejected": sum(tally.refused.values()),
        "rejected_by_reason": dict(sorted(tally.refused.items())),
        "skipped": sum(skipped.kinds.values()),
        "skipped_by_reason": dict(sorted(skipped.kinds.items())),
        "unfinished": metrics.unfinished,
        "host_failures": metrics.host_failures,
        "preemptions": metrics.preemptions,
        "preempted_host_s": metrics.preempted_host_ns / SECOND_NS,
        "resizes": metrics.resizes,
        "largest_job": metrics.largest_job(),
        **metrics.parts(),
        "events_per_second": metrics.events / seconds,
        **_record(case),
    }
    return totals


def costs_of(ruled: TenantsFile | None, *given: int | None) -> Costs:
    """Checkpoint, restart and detection times as given, and for the rest what the tenants
    file says."""
    stated = ruled.tenants.preemption.costs if ruled else Costs()
    pairs = zip(given, astuple(stated), strict=True)
    return Costs(*(usual if value is None else value for value, usual in pairs))


class _Skipped:
    """Counts records left out by the reason, or refuses the first that is wrong."""

    def __init__(self, strict: bool, warn: Warn | None) -> None:
        self.kinds: Counter[str] = Counter()
        self._strict = strict
        self._warn = warn

    def text(self) -> str:
        """What was left out, for a sentence; empty if nothing was."""
        parts = [f"{count:,} left out: {kind}" for kind, count in sorted(self.kinds.items())]
        return f" ({'; '.join(parts)})" if parts else ""

    def __call__(self, path: Path, bad: BadRecord) -> None:
        problem = Problem(bad.field, bad.detail, str(path), bad.line)
        if self._strict and bad.is_fault:
            raise InputError(problem)
        self.kinds[bad.kind] += 1
        if self._warn and bad.is_fault:
            self._warn(f"{problem}; skipped")


def _setting(case: Case) -> Setting:
    limits = SchedulingOptions(
        policy=case.policy,
        resize_every_s=case.resize_every_s,
        least_gain=case.least_gain_percent,
    )
    if case.assumed_limit_s is not None:
        limits = replace(limits, assumed_limit_s=case.assumed_limit_s)
    if case.tenants:
        case.tenants.check(case.fabric)
    return Setting(
        case.fabric,
        limits,
        case.times.costs if case.times else case.costs,
        case.spares,
        None if case.decision_s is None else round(case.decision_s * SECOND_NS),
        case.tenants.tenants if case.tenants else None,
        _windows(case),
        case.assumed_limit_s is not None,
        ShapeAssignment(case.attach, case.seed),
        placer_factory(case.placement, case.seed),
        case.times,
        None if case.until_s is None else round(case.until_s * SECOND_NS),
        case.health,
    )


def _windows(case: Case) -> Callable[[int], Sequence[Window]] | None:
    """Those of the file, in a replay whose first submit is at the given time."""
    file, tenants = case.windows, case.tenants.tenants if case.tenants else None
    if file is None:
        return None
    return lambda zero_ns: file.booked(case.fabric, tenants, zero_ns)[1]


def _outages(case: Case) -> Iterable[failures.Outage]:
    if case.failures is None:
        return ()
    return failures.parse(case.failures, case.failure_scale)(case.fabric, case.seed)


def _selected(case: Case, jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
    """The jobs from `since` on, `limit` of them at most."""
    stream = iter(jobs)
    first = next(stream, None)
    if first is None:
        return iter(())
    since_ns = _since_ns(case.since, first.submit_ns)
    late = (job for job in chain([first], stream) if job.submit_ns >= since_ns)
    return islice(late, case.limit)


def _since_ns(since: str | None, first_ns: int) -> int:
    if since is None:
        return first_ns
    try:
        day = datetime.combine(date.fromisoformat(since), datetime.min.time(), UTC)
        return int(day.timestamp()) * SECOND_NS
    except ValueError:
        pass
    try:
        return first_ns + round(float(since) * SECOND_NS)
    except (ValueError, OverflowError):
        message = f"must be YYYY-MM-DD or seconds after the first submit, not {since!r}"
        raise InputError(Problem("--since", message)) from None


def _record(case: Case) -> dict[str, Any]:
    """What the totals depend on, so that they can be had again."""
    fabric = case.fabric
    return {
        "policy": case.policy,
        "placement": case.placement.value,
        "seed": case.seed,
        "failures": case.failures,
        "times": case.times.model_dump() if case.times else None,
        "until_s": case.until_s,
        "resize_every_s": case.resize_every_s,
        "least_gain_percent": case.least_gain_percent,
        "windows": case.windows.document.source if case.windows else None,
        "tenants": case.tenants.tenants.digest if case.tenants else None,
        "health": asdict(case.health) if case.health else None,
        "fabric": {
            "name": fabric.name,
            "digest": fabric.digest,
            "hosts": fabric.host_count,
            "gpus_per_host": fabric.gpus_per_host,
        },
        "trace": {
            "file": case.trace.name,
            "format": case.trace_format,
            "since": case.since,
            "limit": case.limit,
            "attach": case.attach.value,
        },
        "assumptions": list(_assumptions(case)),
    }


def _assumptions(case: Case) -> Iterator[str]:
    yield mapping.mapping(case.attach)
    if note := find_format(case.trace_format).note:
        yield note
    if case.assumed_limit_s is None:
        yield mapping.TIME_LIMITS
    else:
        yield mapping.ASSUMED_LIMITS.format(case.assumed_limit_s / 3600)
    if case.tenants:
        yield mapping.TENANTS
    if case.health:
        yield mapping.HEALTH
    if case.windows:
        yield "windows: +2h counts from the first submit; requeued gangs lose what others do"
    yield _spares(case)
    if case.decision_s is None:
        yield "a decision takes as long as it does here: such a run does not repeat exactly"
    else:
        yield f"a decision takes {case.decision_s:g} s"
    yield _interruption(case)
    if case.until_s is not None:
        yield f"{case.until_s / 3600:g} h after the first submit live jobs are cut off"
    if case.failures:
        scale = "" if case.failure_scale == 1 else f", rates x {case.failure_scale:g}"
        text = f"injected failures: {case.failures}{scale}"
        yield f"{text}; those in the recorded run times count as well"
    else:
        yield "no failures are injected; recorded run times contain those of their time"


def _spares(case: Case) -> str:
    if case.spares is not None:
        return f"spares: {case.spares} for every job, whatever it states"
    return (
        "spares: 0 for jobs of which only the size is known; a muster trace's jobs with a shape"
        " hold what they state, auto if nothing"
    )


def _interruption(case: Case) -> str:
    costs, times = case.costs, case.times
    if times:
        return (
            f"times: {times.source}; an interruption loses the work since the last checkpoint"
            f" ({times.checkpoint.interval_s:g} s apart), and gangs are as fast as their placement"
            " and the gangs that share uplinks with them allow"
        )
    return (
        f"an interruption loses the work since the last checkpoint ({costs.checkpoint_s} s apart)"
        f" and {costs.restart_s} s to restart; a failure is noticed after {costs.detect_s} s"
    )
