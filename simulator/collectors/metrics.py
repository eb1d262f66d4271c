"""What a replay amounts to: folds over the effects of events, nothing else.

Wait: submit to first start. Bounded slowdown: (end - submit) / run, at least 1, with a
run below 10 s counted as 10 s (Feitelson 2001). Utilization: host-seconds in which
ranks ran, over hosts x makespan. What time went to, goodput and ETTR are the accounts of
jobs, summed up.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from muster.structs import struct
from scheduler.core import State
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.fold.effects import (
    HostReport,
    HostsChange,
    HostTransition,
    JobChange,
    JobChangeKind,
)
from scheduler.core.model.events import Event
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_account import shown
from scheduler.core.model.lifecycle import HostMove, JobState, RequeueCause
from scheduler.core.model.records.goodput import NOTHING, Goodput
from scheduler.core.model.restart_option import AT_HOME, RestartOption, taken
from simulator.replay import Replay
from simulator.timing import EMPTY, PARTS, TimeAccount

FLOOR_NS = 10 * SECOND_NS
PERCENTILES = (50, 95, 99)


@struct(frozen=True, slots=True)
class JobRow:
    """One ended job. `run_ns`: its productive time, or how long it ran if it did not complete;
    `host_ns`: hosts x time they ran; `part_gpus`: GPUs of its host, of one that left it others;
    `time`, `host_time`: what its time went to, and that of its hosts; `gpus`, `user`: as in its
    trace."""

    name: str
    submit_ns: int
    start_ns: int | None
    end_ns: int
    hosts: int
    attempts: int
    time: TimeAccount
    host_time: TimeAccount
    outcome: JobState
    part_gpus: int = 0
    gpus: int = 0
    tenant: str = ""
    user: str = ""

    @property
    def run_ns(self) -> int:
        return self.time.productive if self.outcome is JobState.COMPLETED else self.time.running

    @property
    def host_ns(self) -> int:
        return self.host_time.running

    @property
    def wait_ns(self) -> int | None:
        return None if self.start_ns is None else self.start_ns - self.submit_ns

    @property
    def slowdown(self) -> float:
        return max(1.0, (self.end_ns - self.submit_ns) / max(self.run_ns, FLOOR_NS))


@dataclass(slots=True)
class _Open:
    """A live job. `began`: that of its hosts when the present attempt began."""

    uid: str
    submit_ns: int
    start_ns: int | None = None
    hosts: int = 0
    attempts: int = 0
    began: TimeAccount = EMPTY


class Metrics:
    """Measures a replay by its log: feed it each event in order, with the state after it; read it
    at any time.

    `on_row` is called with each job as it ends. Memory: two numbers per ended job, for the
    percentiles, and an entry per live one.
    """

    def __init__(self, on_row: Callable[[JobRow], None] | None = None) -> None:
        self.events = 0
        self.submitted = 0
        self.ends: Counter[JobState] = Counter()
        self.restarts = 0
        self.resizes = 0
        self.ways: Counter[RestartOption] = Counter()  # by option taken
        self.host_failures = 0
        self.preemptions = 0
        self.most_waiting = 0
        self.preempted_host_ns = 0  # work that preempted gangs have to repeat
        self.first_submit_ns: int | None = None
        self.last_end_ns: int | None = None
        self.largest: JobRow | None = None  # of the jobs that ran, the first to end
        self._effects = EffectReader()
        self._replay: Replay | None = None
        self._unasked_host_ns = 0.0  # of GPUs that jobs took and did not ask for
        self._shared_host_ns = self._parts_host_ns = 0  # hosts with parts, and these alone
        self._in_vain_ns = self._in_vain_host_ns = 0
        self._on_row = on_row
        self._open: dict[str, _Open] = {}
        self._time = NOTHING  # of ended jobs
        self._waits_s = array("d")
        self._slowdowns = array("d")
        self._now_ns = 0
        self._state = State.empty()

    def follow(self, replay: Replay) -> None:
        """Use what this replay knows beyond its log: what jobs asked for, which of them fail as in
        their trace, so that their work is not productive, and the times of its time model."""
        self._replay, self._effects = replay, replay.effects

    @property
    def completed(self) -> int:
        return self.ends[JobState.COMPLETED]

    def feed(self, event: Event, state: State) -> None:
        """Count one event. `state`: right after it."""
        self.events += 1
        self._shared_host_ns += (event.time_ns - self._now_ns) * len(self._state.index.shared)
        self._now_ns, self._state = event.time_ns, state
        self.most_waiting = max(self.most_waiting, len(state.index.queue))
        for effect in self._effects.read(event, state):
            match effect:
                case JobChange():
                    self._changed(effect)
                case HostTransition():
                    self.host_failures += effect.move is HostMove.FAIL
                case HostReport() | HostsChange():
                    pass
                case _:
                    assert_never(effect)

    def _changed(self, change: JobChange) -> None:
        match change.kind:
            case JobChangeKind.SUBMITTED:
                self._submitted(change)
            case JobChangeKind.STARTED:
                self._started(change)
            case JobChangeKind.SWAPPED | JobChangeKind.RESIZED:
                self.restarts += 1
                self.resizes += change.kind is JobChangeKind.RESIZED
                if (step := taken(change.job.restart_options)) is not None:
                    self.ways[step.option] += 1
                self._began(change)
            case JobChangeKind.REQUEUED:
                if change.job.restart_options:
                    self.ways[RestartOption.WAIT] += 1
                if change.cause is RequeueCause.PREEMPTED:
                    self._preempted(change.job.name)
            case JobChangeKind.ENDED:
                self._ended(change)
            case JobChangeKind.UPDATED | JobChangeKind.SPARES_CHANGED:
                pass
            case JobChangeKind.INTERRUPTED | JobChangeKind.SPARE_LOST:
                pass
            case JobChangeKind.LAUNCHED | JobChangeKind.SAVED | JobChangeKind.HUNG:
                pass
            case JobChangeKind.ROLE_RESTARTED:
                pass
            case JobChangeKind.HELD | JobChangeKind.RELEASED | JobChangeKind.ELIGIBLE:
                pass
            case _:
                assert_never(change.kind)

    def _submitted(self, change: JobChange) -> None:
        self.submitted += 1
        if self.first_submit_ns is None:
            self.first_submit_ns = change.time_ns
        self._open[change.job.name] = _Open(change.job.uid, change.time_ns)

    def _started(self, change: JobChange) -> None:
        job = self._open[change.job.name]
        job.hosts = len(change.job.hosts)
        if job.start_ns is None:
            job.start_ns = change.time_ns
            self._waits_s.append((change.time_ns - job.submit_ns) / SECOND_NS)
        else:
            self.restarts += 1
        self._began(change)

    def _began(self, change: JobChange) -> None:
        job = self._open[change.job.name]
        job.attempts = change.job.attempt
        if change.job.attempt > 1:  # before the first, no host of it ran
            job.began = self._host_time(change.job.name)

    def _preempted(self, name: str) -> None:
        spent = self._host_time(name) - self._open[name].began
        self.preemptions += 1
        self.preempted_host_ns += spent.running - spent.productive

    def _ended(self, change: JobChange) -> None:
        name, outcome, replay = change.job.name, change.job.state, self._replay
        job = self._open.pop(name)
        account = self._state.ended[job.uid].goodput
        time, hosts = self._model_times(name)
        all_time, host_time = (
            TimeAccount.of(account.time, time),
            TimeAccount.of(account.hosts, hosts),
        )
        arrived = replay.arrived(name) if replay else None
        if replay and replay.is_unsuccessful(name):
            self._in_vain_ns += all_time.productive
            self._in_vain_host_ns += host_time.productive
            all_time = all_time.in_vain(all_time.productive)
            host_time = host_time.in_vain(host_time.productive)
        row = JobRow(
            name,
            job.submit_ns,
            job.start_ns,
            change.time_ns,
            job.hosts,
            job.attempts,
            all_time,
            host_time,
            outcome,
            change.job.part_gpus,
            arrived.gpus if arrived else 0,
            change.job.tenant,
            arrived.user if arrived else "",
        )
        requested = replay.requested_share(name) if replay else 1.0
        self._unasked_host_ns += host_time.running * (1 - requested)
        if change.job.part_gpus:
            self._parts_host_ns += account.hosts.holding
        self._time += account.time
        self.last_end_ns = change.time_ns
        if row.start_ns is not None and (not self.largest or row.hosts > self.largest.hosts):
            self.largest = row
        self.ends[outcome] += 1
        if outcome is JobState.COMPLETED:
            self._slowdowns.append(row.slowdown)
        if self._on_row:
            self._on_row(row)

    def _model_times(
        self, name: str | None = None
    ) -> tuple[TimeAccount, TimeAccount] | tuple[None, None]:
        """The times of ended attempts of a job, or of all, by the time model, if there is one."""
        if self._replay is None or (modelled := self._replay.modelled) is None:
            return None, None
        return (modelled.time, modelled.host_time) if name is None else modelled.spent(name)

    def _host_time(self, name: str) -> TimeAccount:
        """Host time of the ended attempts of a live job."""
        return TimeAccount.of(self._state.jobs[name].goodput.hosts, self._model_times(name)[1])

    def settled(self) -> TimeAccount:
        """Return the host time of all jobs, without what attempts that still run have run."""
        live = (job.goodput.hosts for job in self._state.jobs.values())
        account = TimeAccount.of(sum(live, self._state.spent), self._model_times()[1])
        return account.in_vain(self._in_vain_host_ns)

    def ran(self) -> tuple[int, int]:
        """Return the host time in which ranks of ended attempts ran: by the scheduler, and by the
        time model. They must agree."""
        live = (job.goodput.hosts for job in self._state.jobs.values())
        account, known = sum(live, self._state.spent), self._model_times()[1]
        return account.running, account.running if known is None else known.running

    def accounts(self) -> tuple[TimeAccount, TimeAccount]:
        """Return where the time of all jobs went until the last event, and that of their hosts."""
        spent = self.spent()
        time, hosts = self._model_times()
        return (
            TimeAccount.of(spent.time, time).in_vain(self._in_vain_ns),
            TimeAccount.of(spent.hosts, hosts).in_vain(self._in_vain_host_ns),
        )

    def spent(self) -> Goodput:
        """Return the sum of the scheduler's accounts of all jobs, up to the last event."""
        costs = self._state.tenants.preemption.costs
        live = [shown(job, self._now_ns, costs) for job in self._state.jobs.values()]
        return Goodput(
            self._now_ns,
            time=sum((job.time for job in live), self._time),
            hosts=sum((job.hosts for job in live), self._state.spent),
        )

    @property
    def _idle_beside_parts_ns(self) -> int:
        """Host time of GPUs that are free of hosts that jobs share, of jobs that have ended."""
        return max(0, self._shared_host_ns - self._parts_host_ns)

    @property
    def makespan_ns(self) -> int:
        """Nanoseconds from the first submit to the last end; 0 when nothing ended."""
        if self.first_submit_ns is None or self.last_end_ns is None:
            return 0
        return self.last_end_ns - self.first_submit_ns

    @property
    def unfinished(self) -> int:
        """Jobs that are still live."""
        return len(self._open)

    def totals(self, hosts: int) -> dict[str, Any]:
        """Return the totals of a replay on a fabric of that many hosts."""
        waits, (_, spent) = sorted(self._waits_s), self.accounts()
        capacity_ns = hosts * self.makespan_ns
        return {
            "jobs": self.submitted,
            "completed": self.completed,
            "failed": self.ends[JobState.FAILED],
            "cancelled": self.ends[JobState.CANCELLED],
            "makespan_s": self.makespan_ns / SECOND_NS,
            "wait_s": {
                "mean": _mean(waits),
                **{f"p{p}": percentile(waits, p) for p in PERCENTILES},
            },
            "bounded_slowdown": {"mean": _mean(self._slowdowns)},
            "utilization": _ratio(spent.running + self._idle_beside_parts_ns, capacity_ns),
            "gpu_utilization": _ratio(spent.running - self._unasked_host_ns, capacity_ns),
            "goodput": spent.share,
            "restarts": self.restarts,
            "restart_ways": {option.value: count for option, count in sorted(self.ways.items())},
            "same_zone_share": _ratio(
                sum(self.ways[option] for option in AT_HOME), self.ways.total()
            ),
            "events": self.events,
        }

    def largest_job(self) -> dict[str, Any] | None:
        """Return for the job on most hosts how long it waited, and how long it took from its first
        start to its end; None when none has run."""
        row = self.largest
        if row is None or row.start_ns is None:
            return None
        return {
            "job": row.name,
            "hosts": row.hosts,
            "wait_s": (row.wait_ns or 0) / SECOND_NS,
            "took_s": (row.end_ns - row.start_ns) / SECOND_NS,
            "attempts": row.attempts,
        }

    def parts(self) -> dict[str, Any]:
        """Return where the time of jobs went, and that of their hosts. Units: seconds."""
        time, hosts = self.accounts()
        return {
            "ettr": _ratio(time.productive, time.total),
            "job_s": {part: getattr(time, part) / SECOND_NS for part in PARTS[:-1]},
            "host_s": {part: getattr(hosts, part) / SECOND_NS for part in PARTS},
        }


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Interpolate a percentile between the two nearest values (numpy's default); 0 for no
    values."""
    if not ordered:
        return 0.0
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _ratio(part: float, total: int) -> float:
    return part / total if total else 0.0
