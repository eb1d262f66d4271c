"""One run of AccaSim, in a process of its own: jobs in, start times and seconds out.

    python -m bench.replay.accasim JOBS.swf HOSTS POLICY OUT.json

POLICY: fifo; easy, its EASYBackfilling as it comes; easy-kept, the same with the reservation
kept. As it comes (1.1.3), a job is backfilled whenever it fits: the scheduler asks the
allocator to keep clear of a reservation's hosts and names none. Nor is a reservation made
anew when hosts become free sooner. `easy-kept` puts the published rule in the scheduler's
place: a job is backfilled if it ends by the reserved time, or takes hosts that the
reservation leaves. Queue, clock, allocator and resources stay AccaSim's.
Source: Galleguillos, Kiziltan and Netti, "AccaSim" (2018); Mu'alem and Feitelson (2001).
"""

from __future__ import annotations

import collections
import collections.abc
import json
import sys
import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.replay.one_run import write_run

FORMAT = {
    "format": "{job_id};{start_time}",
    "attributes": {"job_id": ("id", "str"), "start_time": ("start_time", "int")},
}


def simulate(jobs: Path, hosts: int, policy: str) -> dict[str, Any]:
    """Simulate by AccaSim: start times in seconds by job number, and what the run cost."""
    # 1.1.3 asks for a name that left the standard library with Python 3.10
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
    simulators = import_module("accasim.base.simulator_class")
    with tempfile.TemporaryDirectory() as folder:
        machine = Path(folder, "machine.json")
        machine.write_text(json.dumps(_machine(hosts)), encoding="utf-8")
        simulator = simulators.Simulator(
            str(jobs),
            str(machine),
            _dispatcher(policy),
            RESULTS_FOLDER_PATH=folder,
            SCHEDULE_OUTPUT=FORMAT,
            statistics_output=False,
            LOG_LEVEL="ERROR",
        )
        begin = time.process_time()
        (file,) = simulator.start_simulation().values()
        seconds = time.process_time() - begin
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    starts = dict(line.strip().split(";") for line in lines)
    return {"seconds": seconds, "starts": {name: int(start) for name, start in starts.items()}}


def _machine(hosts: int) -> dict[str, Any]:
    return {
        "groups": {"host": {"core": 1}},
        "resources": {"host": hosts},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }


def _dispatcher(policy: str) -> Any:
    schedulers = import_module("accasim.base.scheduler_class")
    allocator = import_module("accasim.base.allocator_class").FirstFit()
    if policy == "fifo":
        return schedulers.FirstInFirstOut(allocator)
    easy = schedulers.EASYBackfilling(allocator)
    if policy == "easy-kept":
        easy.scheduling_method = partial(_easy, easy)
    return easy


def _easy(easy: Any, now: int, queued: list[Any], jobs: Any) -> tuple[list[Any], list[Any]]:
    """EASY as published. The answer: (time or None, job, hosts) of every queued job."""
    manager, allocator = easy.resource_manager, easy.nonauto_allocator
    allocator.set_resource_manager(manager)
    allocator.set_resources(manager.current_availability)
    plan = allocator.allocating_method(queued, now, skip=False)
    at = next((i for i, (_, _, hosts) in enumerate(plan) if not hosts), None)
    if at is None:
        return plan, []
    running = [jobs[name] for name in manager.current_allocations]
    ends = [(job.start_time + job.expected_duration, job.requested_nodes) for job in running]
    ends += [(now + job.expected_duration, job.requested_nodes) for job in queued[:at]]
    free = len(manager.node_names) - sum(size for _, size in ends)
    shadow, extra = _reserved(free, queued[at].requested_nodes, sorted(ends))
    for i, job in enumerate(queued[at + 1 :], start=at + 1):
        size, is_in_time = job.requested_nodes, now + job.expected_duration <= shadow
        if size <= free and (is_in_time or size <= extra):
            plan[i] = allocator.allocating_method(job, now, skip=True)
            free -= size
            extra -= 0 if is_in_time else size
    return plan, []


def _reserved(free: int, size: int, ends: list[tuple[int, int]]) -> tuple[int, int]:
    """When so many hosts are free, and how many more are free then."""
    shadow = 0
    for end, hosts in ends:
        if free >= size and end > shadow:
            break
        shadow, free = end, free + hosts
    return shadow, free - size


if __name__ == "__main__":
    sys.exit(write_run(simulate, __doc__))
