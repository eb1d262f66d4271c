"""Gangs with copies in memory: who has them, what a swap loads, what is lost."""

from __future__ import annotations

from dataclasses import replace

from scheduler.core import State, Tenants, replay
from scheduler.core.admission.admit import admit
from scheduler.core.model.commands import SubmitJob
from scheduler.core.model.events import Event, GangSwapped, JobStarted
from scheduler.core.model.rejected import Rejected
from scheduler.core.policies.checkpoint import CheckpointTerms
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption
from simulator.replay import run_script
from tests.build import drain, exactly, fabric, fail, loaded, submit

S = 10**9
FABRIC = fabric(zones=1, racks=4, hosts=2)
RULES = Tenants(preemption=Preemption(costs=Costs(checkpoint_s=100, restart_s=20)))
SAVING = CheckpointTerms(interval_s=1_000, peers=1, peer_interval_s=10)


def asked(checkpoint: CheckpointTerms = SAVING, **job: object) -> SubmitJob:
    command = submit("a", 4, spares=exactly(1), **job)
    return replace(command, spec=replace(command.spec, checkpoint=checkpoint))


def log_of(*script: tuple[int, object]) -> list[Event]:
    timed = [(at * S, command) for at, command in script]
    return run_script(FABRIC, timed, tenants=RULES)  # type: ignore[arg-type]


def swap_of(log: list[Event]) -> GangSwapped:
    return next(event for event in log if isinstance(event, GangSwapped))


def lost_s(state: State) -> float:
    return state.jobs["a"].goodput.time.rework / S


def test_a_start_says_who_has_whose_copy() -> None:
    log = log_of((0, asked()))
    (start,) = (event for event in log if isinstance(event, JobStarted))
    assert len(start.copies) == 4
    assert replay(log).jobs["a"].present.copies == start.copies
    racks = [FABRIC.tiers[1].domain_by_host[FABRIC.index_by_name[h]] for h in start.hosts]
    assert all(racks[b] != racks[held[0]] for b, held in enumerate(start.copies))


def test_a_swap_loads_from_the_host_that_has_the_copy() -> None:
    log = log_of((0, asked()))
    job = replay(log).jobs["a"]
    hosts = [FABRIC.hosts[h] for h in job.hosts]
    log = log_of((0, asked()), (457, fail(hosts[1])))
    (swap,) = swap_of(log).swaps
    assert swap.source == hosts[job.present.copies[1][0]]
    assert lost_s(replay(log)) == 7


def test_without_its_copy_the_gang_goes_back_to_storage() -> None:
    """The host and the one with its copy fail together."""
    log = log_of((0, asked()))
    job = replay(log).jobs["a"]
    hosts = [FABRIC.hosts[h] for h in job.hosts]
    other = hosts[job.present.copies[1][0]]
    script = [(0, asked()), (457 * S, fail(hosts[1])), (457 * S, fail(other))]
    log = run_script(FABRIC, script, tenants=RULES, decision_ns=5 * S)
    swaps = swap_of(log).swaps
    assert len(swaps) == 2
    assert [swap.source for swap in swaps] == ["", ""]
    assert lost_s(replay(log)) == 452


def test_a_host_that_is_left_hands_its_state_over() -> None:
    log = log_of((0, asked()))
    left = FABRIC.hosts[replay(log).jobs["a"].hosts[2]]
    (swap,) = swap_of(log_of((0, asked()), (455, drain(left)))).swaps
    assert swap.source == left


def test_copies_go_with_the_gang() -> None:
    log = log_of((0, asked()), (60, fail("z0-r0-h0")))
    state = replay(log)
    assert len(state.jobs["a"].present.copies) == 4
    assert replay(log_of((0, submit("a", 4)))).jobs["a"].present.copies == ()


def test_an_interval_of_its_own_goes_before_the_clusters() -> None:
    log = log_of((0, asked(CheckpointTerms(interval_s=30))), (457, fail("z0-r0-h0")))
    assert lost_s(replay(log)) == 457 % 30
    log = log_of((0, asked(CheckpointTerms())), (457, fail("z0-r0-h0")))
    assert lost_s(replay(log)) == 57


def test_a_gang_of_one_replica_is_refused() -> None:
    answer = admit(loaded(FABRIC), asked(pp=4), 0)
    assert isinstance(answer, Rejected)
    assert "need 2 replicas" in answer.message
