"""Gangs of roles that their owners and the scheduler resize, through failures and repairs."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from placement.objective.cut import cut
from placement.workload.segments import parted
from scheduler.core import Conflict, JobSpec, Rejected, SchedulingOptions, State
from scheduler.core.admission import launch
from scheduler.core.model.commands import CancelJob, Command, ResizeJob, SubmitJob
from scheduler.core.model.events import Event, FabricLoaded, GangResized
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.queue.requested_size import carried_out, plan_resize
from scheduler.files.job import job_from_mapping
from simulator.collectors.invariants import InvariantChecker
from tests.build import fabric, fail, repair, spec
from tests.property.driver import Driver
from tests.seeds import seeds

F = fabric(zones=2, racks=2, hosts=4)


class Resized(Driver):
    def __init__(self) -> None:
        self.checker = InvariantChecker()
        self.begin(FabricLoaded(0, F.spec), limits=SchedulingOptions(resize_every_s=60))

    def check_event(self, before: State, event: Event) -> None:
        self.checker.feed(event, self.state)
        if isinstance(event, GangResized) and event.attempt == before.jobs[event.name].attempt:
            job = before.jobs[event.name]
            others = job.hosts_at(0) + 1
            assert job.hosts[:others] == self.state.jobs[event.name].hosts[:others]

    def check_state(self) -> None:
        for job in self.state.holding:
            assert len(job.hosts) == job.gang_hosts == job.request.hosts_needed(8)
            assert not job.sizes or job.dp in job.sizes
            assert job.present.cuts == cut(F, job.request, job.hosts)
            assert parted(F, job.request, job.hosts) == []

    def resize(self, random: Random, job: Job) -> None:
        """Have its ranks start, and give it another size, if it can have that."""
        if job.spec.run is not None:
            started = launch.launched(self.state, job.name, job.uid, job.attempt, self.now_ns)
            self.record(started if isinstance(started, tuple) else ())
        role = random.choice([each.name for each in job.request.roles] or [""])
        wanted = ResizeJob(job.name, role, random.randrange(1, 7))
        plan = plan_resize(self.state, wanted, self.now_ns, self.limits)
        answer = carried_out(plan, wanted, self.state.version, self.state, self.now_ns)
        assert not isinstance(answer, Conflict), answer
        self.record(() if isinstance(answer, Rejected) else answer)


def any_roles(random: Random, name: str) -> JobSpec:
    least = random.randrange(1, 3)
    most = least + random.randrange(5)
    dp: Any = random.choice([most, {"min": least, "max": most}])
    trainer = {"name": "t", "parallelism": {"tp": 8, "dp": random.randrange(1, 4)}}
    trainer |= {"sends": {"w": random.choice([10, 10**9])}, "traffic": {"dp": 10**9}}
    worker = {"name": "w", "parallelism": {"tp": 8, "dp": dp}}
    worker |= {"restart": random.choice(["role", "gang"])}
    worker |= random.choice([{}, {}, {"same": "zone"}, {"avoid": {"rack": ["t"]}}])
    mapping = {"name": name, "spares": 0, "roles": [trainer, worker], "run": {"command": ["x"]}}
    return job_from_mapping(mapping | {"time_limit_s": random.choice([600, 40_000])})


def any_command(random: Random, state: State, number: int) -> Command:
    jobs, draw = list(state.jobs), random.random()
    if draw < 0.45:
        job = any_roles(random, f"r{number}") if draw < 0.3 else spec(f"p{number}", 3, limit_s=900)
        return SubmitJob(job, f"uid-{number}")
    if draw < 0.55 and jobs:
        return CancelJob(random.choice(jobs))
    return random.choice((fail, repair, repair))(random.choice(F.hosts))


@pytest.mark.parametrize("seed", seeds(4))
def test_resized_gangs_are_whole_and_other_roles_stay_where_they_are(seed: int) -> None:
    random, cluster = Random(seed), Resized()
    for number in range(100):
        cluster.now_ns += random.choice((0, 1, 60, 600)) * SECOND_NS
        if random.random() < 0.5 and cluster.state.jobs:
            cluster.resize(random, random.choice(list(cluster.state.jobs.values())))
        else:
            cluster.ask(any_command(random, cluster.state, number))
        cluster.until_settled()
    cluster.check_replay()
