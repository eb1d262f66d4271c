"""What every gang wanted of its hosts, it has, and keeps: judged from the definition, host by host,
and not by the functions that decide."""

from fnmatch import fnmatchcase
from itertools import combinations

from placement.fabric.reader import from_spec
from scheduler.core import Job, JobState, State
from tests.build import fabric_spec

SPEC = {
    **fabric_spec(zones=3, racks=2, hosts=2),
    "labels": {"z[0-1]": {"gpu": "a"}, "z2": {"gpu": "b"}, "z0-r0": {"gpu": "b"}},
}
FABRIC = from_spec(SPEC)


def domains(job: Job, tier: str) -> set[str]:
    depth = {"zone": 0, "rack": 1}[tier]
    return {FABRIC.domain(host, depth) for host in job.hosts + job.spares}


def check_own(job: Job) -> None:
    """Labels, one domain, few zones."""
    where = job.spec.request.where
    for key, value in where.labels:
        for host in job.hosts + job.spares:
            assert FABRIC.labels[key][value] >> host & 1
    if where.same:
        assert len(domains(job, where.same)) == 1
    if where.max_zones:
        assert len(domains(job, "zone")) <= where.max_zones


def check_pair(one: Job, other: Job) -> None:
    """Alone means alone, and who is avoided is elsewhere."""
    for a, b in ((one, other), (other, one)):
        wants = a.spec.affinity
        if wants.exclusive:
            assert not domains(a, wants.exclusive) & domains(b, wants.exclusive)
        for tier, patterns in wants.avoid:
            if any(fnmatchcase(b.name, pattern) for pattern in patterns):
                assert not domains(a, tier) & domains(b, tier)


def check(state: State) -> None:
    running = [job for job in state.jobs.values() if job.state is JobState.RUNNING]
    for job in running:
        check_own(job)
    for one, other in combinations(running, 2):
        check_pair(one, other)
