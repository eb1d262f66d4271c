"""Random lives: effects leave out no change of a job or host, and make none up."""

from functools import cache
from random import Random

import pytest

from scheduler.core import Job, SchedulingOptions, State, apply
from scheduler.core.fold.apply import effects
from scheduler.core.fold.effects import HostsChange, JobChange, JobChangeKind
from scheduler.core.model.events import Event, FabricLoaded, HostMoved
from scheduler.core.model.lifecycle import MOVERS, Mover
from scheduler.core.model.state import Host
from scheduler.core.queue.policies import BUILT_IN
from tests.property.driver import Driver
from tests.property.laws import FABRIC
from tests.property.test_machine import any_command
from tests.property.window_laws import any_window
from tests.seeds import seeds


def seen(state: State) -> dict[int, tuple[Host, str | None]]:
    """Every host, asked one by one."""
    if state.fabric is None:
        return {}
    hosts = range(state.fabric.host_count)
    return {index: (state.shown(index), state.host(index).cordon) for index in hosts}


class Cluster(Driver):
    def act(self, random: Random) -> None:
        self.ask(any_command(random))
        if random.random() < 0.4:
            self.ask(any_window(random, self.now_ns))

    def turn(self) -> None:
        self.until_settled()


@cache
def a_log(seed: int) -> list[Event]:
    policy, cluster = list(BUILT_IN)[seed % len(BUILT_IN)], Cluster()
    limits = SchedulingOptions(policy=policy, assumed_limit_s=300)
    cluster.begin(FabricLoaded(0, FABRIC.spec), limits=limits)
    cluster.live(Random(seed), 160, kept=0, paces_s=(0, 1, 10, 30))
    return cluster.log


@pytest.mark.parametrize("seed", range(2))
def test_every_move_of_a_host_has_a_cause_that_the_lifecycle_allows(seed: int) -> None:
    moves = [event for event in a_log(seed) if isinstance(event, HostMoved)]
    assert [m for m in moves if m.cause not in MOVERS[m.move]] == []
    assert all((m.cause is Mover.SIGNAL) == bool(m.signal) for m in moves)
    assert {m.cause for m in moves} >= {Mover.OPERATOR, Mover.SIGNAL}


def check_hosts(state: State, event: Event, after: State, done: list[object]) -> int:
    """How many hosts changed."""
    change = next((e for e in done if isinstance(e, HostsChange)), None)
    before, now = seen(state), seen(after)
    expected = tuple(i for i in now if before and before[i] != now[i])
    assert (change.indices if change else ()) == expected, event
    assert change is None or (change.version, change.time_ns) == (after.version, event.time_ns)
    return len(expected)


def a_life(job: Job) -> tuple[object, ...]:
    """What a watch shows of a job, but for its goodput and what tenants files change."""
    return (job.spec, job.state, job.attempt, job.hosts, job.spares, job.reason, job.dp)


def check_jobs(state: State, event: Event, after: State, done: list[object]) -> set[JobChangeKind]:
    """The kinds of changes; a host that jobs share changes several at once."""
    changes = [e for e in done if isinstance(e, JobChange)]
    was = {job.uid: a_life(job) for job in (*state.jobs.values(), *state.ended.values())}
    now = {job.uid: a_life(job) for job in (*after.jobs.values(), *after.ended.values())}
    expected = {uid for uid in {*was, *now} if was.get(uid) != now.get(uid)}
    assert expected <= {change.job.uid for change in changes}, event
    assert len({change.job.uid for change in changes}) == len(changes)
    for change in changes:
        assert (change.version, change.time_ns) == (after.version, event.time_ns)
        assert change.before is state.jobs.get(change.job.name)
        assert (change.before is None) == (change.kind is JobChangeKind.SUBMITTED)
        assert (change.cause is None) == (change.kind is not JobChangeKind.REQUEUED)
    return {change.kind for change in changes}


@pytest.mark.parametrize("seed", seeds(2, range(2, 8)))
def test_no_change_of_a_host_or_a_job_is_left_out_and_none_is_made_up(seed: int) -> None:
    moved, jobs, state = 0, set(), State.empty()
    for event in a_log(seed):
        after = apply(state, event)
        step = state, event, after, list(effects(state, event, after))
        moved += check_hosts(*step)
        jobs |= check_jobs(*step)
        state = after
    assert moved > 20
    assert jobs >= {JobChangeKind.SUBMITTED, JobChangeKind.STARTED, JobChangeKind.ENDED}
