"""What came of one run: waits by tenant and size, host time, restarts. A fold over its log."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from muster.structs import struct
from scheduler.core import Job, State
from scheduler.core.model.events import (
    Event,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    JobSubmitted,
)
from scheduler.core.model.job_account import shown
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.records.goodput import Parts
from simulator.collectors.metrics import percentile
from simulator.collectors.size_classes import label, size_class
from simulator.traces.record import SECOND_NS

HOUR_NS = 3600 * SECOND_NS
COUNTS = ("submitted", "ended", "restarts", "requeues", "preemptions", "retired_hosts")
Kind = tuple[str, int]  # tenant, class of sizes


@struct(frozen=True, slots=True)
class _Waiting:
    kind: Kind
    since_ns: int


class RunTally:
    """Measures one run: feed it the log from `start` on, then ask for its `figures`. Waits are
    those of jobs that arrive in the run; a job that still waits at its end counts with its wait so
    far."""

    def __init__(self, start: State, now_ns: int) -> None:
        self._start, self._faults = host_time(start, now_ns), start.faults
        self._start_ns = self._at_ns = now_ns
        self._state = start
        self._out_host_ns = 0
        self._waiting: dict[str, _Waiting] = {}
        self._waits_s: dict[Kind, list[float]] = defaultdict(list)
        self._counts: Counter[str] = Counter()

    def feed(self, event: Event, state: State) -> None:
        self._pass(event.time_ns)
        self._state = state
        if isinstance(event, JobSubmitted):
            job = state.jobs[event.spec.name]
            self._counts["submitted"] += 1
            self._waiting[job.name] = _Waiting(kind_of(job), event.time_ns)
        elif isinstance(event, JobStarted):
            if (waiting := self._waiting.pop(event.name, None)) is not None:
                self._waited(waiting, event.time_ns)
            self._counts["restarts"] += event.attempt > 1
        elif isinstance(event, JobEnded):
            self._waiting.pop(event.name, None)
            self._counts["ended"] += 1
        elif isinstance(event, GangSwapped | GangResized):
            self._counts["restarts"] += 1
        elif isinstance(event, JobPreempted):
            self._counts["preemptions"] += 1
        elif isinstance(event, JobRequeued):
            self._counts["requeues"] += 1
        elif isinstance(event, HostMoved):
            self._counts["retired_hosts"] += event.move is HostMove.RETIRE

    def _waited(self, waiting: _Waiting, until_ns: int) -> None:
        self._waits_s[waiting.kind].append((until_ns - waiting.since_ns) / SECOND_NS)

    def _pass(self, now_ns: int) -> None:
        self._out_host_ns += self._state.index.out_of_service.bit_count() * (now_ns - self._at_ns)
        self._at_ns = now_ns

    def figures(self, now_ns: int, worked_host_ns: int | None = None) -> dict[str, Any]:
        """Return the figures of the run until now. `worked_host_ns`: productive host time, where
        somebody knows better than the scheduler."""
        self._pass(now_ns)
        spent = host_time(self._state, now_ns) - self._start
        still = list(self._waiting.values())
        for waiting in still:
            self._waited(waiting, now_ns)
        self._waiting.clear()
        fabric = self._state.built_fabric
        gpus = fabric.gpu_count / fabric.host_count
        productive = spent.productive if worked_host_ns is None else worked_host_ns
        total = fabric.host_count * (now_ns - self._start_ns)
        hours = {
            "effective_gpu_h": productive,
            "held_gpu_h": spent.holding,
            "lost_gpu_h": spent.holding - spent.spare - productive,
            "spare_gpu_h": spent.spare,
            "out_gpu_h": self._out_host_ns,
            "all_gpu_h": total,
        }
        waits = [wait for each in self._waits_s.values() for wait in each]
        return {
            **{key: value / HOUR_NS * gpus for key, value in hours.items()},
            "goodput": productive / spent.holding if spent.holding else 0.0,
            "effective_share": productive / total if total else 0.0,
            "wait_mean_s": sum(waits) / len(waits) if waits else 0.0,
            "wait_p95_s": percentile(sorted(waits), 95),
            "still_waiting": len(still),
            **{key: self._counts[key] for key in COUNTS},
            "host_failures": self._state.faults.failures - self._faults.failures,
            "repairs": self._state.faults.repairs - self._faults.repairs,
            "waits": [
                {
                    "tenant": tenant,
                    "size": label(size),
                    "order": size,
                    "jobs": len(each),
                    "wait_mean_s": sum(each) / len(each),
                }
                for (tenant, size), each in sorted(self._waits_s.items())
            ],
        }


def host_time(state: State, now_ns: int) -> Parts:
    """Return the host time of all jobs until now; running work counts as productive."""
    costs = state.tenants.preemption.costs
    live = (shown(job, max(now_ns, job.goodput.counted_ns), costs) for job in state.jobs.values())
    return sum((account.hosts for account in live), state.spent)


def kind_of(job: Job) -> Kind:
    """Return the job's tenant and size class."""
    return job.tenant, size_class(job.spec.request.parallelism.world_size)
