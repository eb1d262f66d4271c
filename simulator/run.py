"""One experiment from end to end: replay it, and put on record what came of it and on what
that depends."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from muster.structs import struct
from scheduler.core import SchedulingOptions
from scheduler.core.queue.policies import queue_policy
from scheduler.files.errors import InputError, Problem
from simulator import failures
from simulator.collectors.metrics import Metrics
from simulator.collectors.recorder import Recorder
from simulator.experiment import Experiment, TraceSource
from simulator.replay import ArrivalCounts, RefusedJob, Replay
from simulator.traces import mapping
from simulator.traces.load import TraceFile, advice, find_format
from simulator.traces.record import SECOND_NS, BadRecord, TraceJob


@struct(frozen=True, slots=True)
class Progress:
    """How far a replay is. `records`: read so far; `ended`: jobs that are over."""

    records: int
    ended: int
    events: int


Warn = Callable[[str], None]


def run(
    experiment: Experiment,
    folder: Path | None = None,
    warn: Warn | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    has_report_data: bool = False,
    has_pages: bool = True,
) -> dict[str, Any]:
    """Run a replay, and return the totals with everything that they depend on.

    `folder`: where a report is written, as a page as well with `has_pages`; None for none.
    `warn` gets a line for each record that is wrong and each job that is rejected.

    Raises: InputError on a trace, a failure model or an option that cannot be used;
    InvariantViolated when hosts, jobs or host time do not add up.
    """
    with Recorder(experiment.fabric, folder, has_report_data or folder is not None) as recorder:
        totals, report_data = _replayed(experiment, recorder, warn, on_progress)
    if folder:
        from simulator.report.folder import write_report  # with matplotlib

        write_report(folder, totals, report_data, has_pages)
    if has_report_data:
        totals["report_data"] = report_data
    return totals


def _replayed(
    experiment: Experiment,
    recorder: Recorder,
    warn: Warn | None,
    on_progress: Callable[[Progress], None] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The totals, and what pages show."""
    begin = time.perf_counter()
    source = experiment.source
    skipped = _Skipped(source.is_strict, warn)
    trace = TraceFile(source.path, find_format(source.format, source.columns), skipped)

    def refused(job: RefusedJob) -> None:
        if warn:
            warn(str(Problem("job", job.message, str(source.path), job.job.line)))

    jobs = _selected(source, trace)
    stream = _outages(experiment)
    replay = Replay(experiment, jobs, recorder.feed, stream, refused)
    recorder.follow(replay)

    def step() -> None:
        if on_progress:
            ended = recorder.metrics.submitted - recorder.metrics.unfinished
            on_progress(Progress(trace.records, ended, recorder.metrics.events))

    tally = replay.run(step if on_progress else None)
    if not tally.offered:
        text = f"holds no job to replay{skipped.text()}"
        if not trace.jobs:
            text += advice(source.path, trace.format)
        raise InputError(Problem("", text, str(source.path)))
    recorder.invariants.check(tally, recorder.metrics)
    seconds = time.perf_counter() - begin
    totals = _totals(experiment, recorder.metrics, tally, skipped, seconds)
    totals["warnings"] = [
        sentence
        for log in stream.logs
        for sentence in log.warnings(recorder.metrics.makespan_ns / SECOND_NS)
    ]
    totals["warnings"] += _unreserved(experiment.options, recorder.metrics.most_waiting)
    totals["log_sha256"] = recorder.log.digest
    return totals, recorder.report_data()


def _totals(
    experiment: Experiment,
    metrics: Metrics,
    tally: ArrivalCounts,
    skipped: _Skipped,
    seconds: float,
) -> dict[str, Any]:
    """Return the totals of a replay, and what they depend on."""
    totals = metrics.totals(experiment.fabric.host_count)
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
        **_record(experiment),
    }
    return totals


def _unreserved(options: SchedulingOptions, most_waiting: int) -> Iterator[str]:
    """Warn of jobs without a reservation under a policy that keeps one for each."""
    most = options.most_reservations
    if queue_policy(options.policy).reserves_all and 0 < most < most_waiting:
        yield (
            f"{most_waiting:,} jobs waited at once, and only the first {most:,} have reservations:"
            " the others started later than conservative backfill lets them"
            " (--most-reservations 0 gives one to all)"
        )


class _Skipped:
    """Counts records left out by the reason, or refuses the first that is wrong."""

    def __init__(self, strict: bool, warn: Warn | None) -> None:
        self.kinds: Counter[str] = Counter()
        self._strict = strict
        self._warn = warn

    def text(self) -> str:
        """Say what was left out, for a sentence; empty if nothing was."""
        parts = [f"{count:,} left out: {kind}" for kind, count in sorted(self.kinds.items())]
        return f" ({'; '.join(parts)})" if parts else ""

    def __call__(self, path: Path, bad: BadRecord) -> None:
        problem = Problem(bad.field, bad.detail, str(path), bad.line)
        if self._strict and bad.is_fault:
            raise InputError(problem)
        self.kinds[bad.kind] += 1
        if self._warn and bad.is_fault:
            self._warn(f"{problem}; skipped")


def _outages(experiment: Experiment) -> failures.FailureStream:
    if experiment.failures is None:
        return failures.FailureStream()
    source = failures.parse(experiment.failures, experiment.failure_scale, experiment.log_window)
    return source(experiment.fabric, experiment.seed)


def _selected(source: TraceSource, jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
    """The jobs from `since` on, `limit` of them at most."""
    stream = iter(jobs)
    first = next(stream, None)
    if first is None:
        return iter(())
    since_ns = _since_ns(source.since, first.submit_ns)
    late = (job for job in chain([first], stream) if job.submit_ns >= since_ns)
    return islice(late, source.limit)


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


def _record(experiment: Experiment) -> dict[str, Any]:
    """Return what the totals depend on, so that they can be had again."""
    fabric, source, options = experiment.fabric, experiment.source, experiment.options
    return {
        "policy": options.policy,
        "placement": experiment.placement.value,
        "seed": experiment.seed,
        "failures": experiment.failures,
        "failures_from_s": experiment.log_window.from_s,
        "failures_repeat": experiment.log_window.is_repeated,
        "times": experiment.times.model_dump() if experiment.times else None,
        "until_s": None if experiment.until_ns is None else experiment.until_ns / SECOND_NS,
        "resize_every_s": options.resize_every_s,
        "least_gain_percent": options.least_gain,
        "overrun": options.overrun,
        "most_slips": options.most_slips,
        "most_reservations": options.most_reservations,
        "neighbours": options.neighbours,
        "windows": experiment.windows_file,
        "tenants": experiment.tenants.digest if experiment.tenants else None,
        "health": asdict(experiment.health) if experiment.health else None,
        "fabric": {
            "name": fabric.name,
            "digest": fabric.digest,
            "hosts": fabric.host_count,
            "gpus_per_host": fabric.gpus_per_host,
        },
        "trace": {
            "file": source.path.name,
            "format": source.format,
            "columns": source.columns,
            "since": source.since,
            "limit": source.limit,
            "attach": experiment.attach.rule.value,
            "share_hosts": experiment.shares_hosts,
        },
        "assumptions": list(_assumptions(experiment)),
    }


def _assumptions(experiment: Experiment) -> Iterator[str]:
    yield mapping.mapping(experiment.attach.rule, experiment.shares_hosts)
    if note := find_format(experiment.source.format, experiment.source.columns).note:
        yield note
    if experiment.has_assumed_limits:
        yield mapping.ASSUMED_LIMITS.format(experiment.options.assumed_limit_s / 3600)
    else:
        yield mapping.TIME_LIMITS
    if experiment.tenants:
        yield mapping.TENANTS
    if experiment.health:
        yield mapping.HEALTH
    if experiment.windows:
        yield (
            "windows: +2h counts from the first submit; a gang that a window requeues loses work"
            " like any interrupted gang"
        )
    yield mapping.OUTCOMES
    yield _spares(experiment)
    if experiment.decision_ns is None:
        yield "a decision takes as long as it takes here: the replay does not repeat exactly"
    else:
        yield f"a decision takes {experiment.decision_ns / SECOND_NS:g} s"
    yield _interruption(experiment)
    if experiment.until_ns is not None:
        until_h = experiment.until_ns / SECOND_NS / 3600
        yield f"the replay ends {until_h:g} h after the first submit; live jobs are cancelled then"
    if experiment.failures:
        scale = "" if experiment.failure_scale == 1 else f", rates x {experiment.failure_scale:g}"
        text = f"injected failures: {experiment.failures}{scale}"
        yield f"{text}, in addition to the failures that recorded run times contain"
        if experiment.log_window != failures.ALL:
            again = ", and again when they end" if experiment.log_window.is_repeated else ""
            begin_h = experiment.log_window.from_s / 3600
            yield f"recorded failures are used from {begin_h:g} h into their log on{again}"
    else:
        yield "no failures are injected; recorded run times contain the failures of their time"


def _spares(experiment: Experiment) -> str:
    if experiment.spares is not None:
        return f"spares: {experiment.spares} for every job, in place of what it states"
    return (
        "spares: 0 for jobs of which only the size is known; a muster trace's jobs with a shape"
        " hold what they state, auto if nothing"
    )


def _interruption(experiment: Experiment) -> str:
    costs, times = experiment.costs, experiment.times
    if times:
        return (
            f"times: {times.source}; an interruption loses the work since the last checkpoint"
            f" ({times.checkpoint.interval_s:g} s apart), and gangs are as fast as their placement"
            " and the gangs that share uplinks with them allow"
        )
    return (
        f"an interruption loses the work since the last checkpoint ({costs.checkpoint_s} s apart)"
        f" and {costs.restart_s} s to restart; a failure is detected after {costs.detect_s} s"
    )
