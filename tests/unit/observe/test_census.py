"""Counts read off a state."""

from __future__ import annotations

from scheduler.core import HostState, JobState, State
from scheduler.core.model.commands import LoadTenants
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.observe import census
from scheduler.observe.census import EVERYTHING, Use
from scheduler.observe.proof import CutProof
from tests.build import cordon, exactly, fabric, fail, flat, loaded, run, schedule, started, submit
from tests.windows import set_window


def _uses(state: State) -> dict[str, dict[Use, int]]:
    return {d.name: {u: n for u, n in d.by_use.items() if n} for d in census.domains(state)}


def test_every_host_has_one_health_and_one_use() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)), submit("b", 2))
    state = run(state, fail("z0-r0-h0"), cordon("z1-r1-h1"))
    for domain in census.domains(state):
        assert sum(domain.by_use.values()) == 4
        assert sum(domain.by_state.values()) == 4
    health = [domain.by_state for domain in census.domains(state)]
    assert sum(states[HostState.FAILED] for states in health) == 1
    assert sum(states[HostState.CORDONED] for states in health) == 1


def test_a_gang_that_a_failure_stopped_still_uses_its_hosts() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)))
    (zone,) = [d for d in census.domains(state) if d.by_use[Use.RUNNING]]
    assert _uses(state)[zone.name] == {Use.RUNNING: 3, Use.SPARE: 1}
    first = state.loaded_fabric.hosts[state.jobs["a"].hosts[0]]
    stopped = run(state, fail(first))
    assert _uses(stopped)[zone.name] == {Use.STOPPED: 3, Use.SPARE: 1}
    assert _uses(schedule(stopped))[zone.name] == {Use.RUNNING: 3, Use.OUT: 1}


def test_a_spare_out_of_service_is_no_spare() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)))
    spare = state.loaded_fabric.hosts[state.jobs["a"].spares[0]]
    uses = [domain.by_use for domain in census.domains(run(state, cordon(spare)))]
    assert sum(use[Use.SPARE] for use in uses) == 0
    assert sum(use[Use.OUT] for use in uses) == 1


def test_hosts_under_maintenance_are_out_or_draining_as_the_host_list_shows_them() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)))
    before = {use: sum(d.by_use[use] for d in census.domains(state)) for use in Use}
    state = schedule(run(state, set_window("w", "z0", "z1-r0")))
    assert state.index.closed
    found = census.domains(state)
    for host_state in HostState:
        shown = sum(state.shown(i).state is host_state for i in range(8))
        assert sum(domain.by_state[host_state] for domain in found) == shown
    assert sum(sum(domain.by_use.values()) for domain in found) == 8
    assert sum(d.by_use[Use.RUNNING] for d in found) == before[Use.RUNNING] == 3
    assert sum(d.by_use[Use.OUT] for d in found) > before[Use.OUT] == 0


def test_thousands_of_domains_are_counted_together() -> None:
    state = loaded(flat(*[1] * (census.MOST_DOMAINS + 1)))
    (domain,) = census.domains(state)
    assert domain.name == EVERYTHING
    assert domain.by_use[Use.FREE] == census.MOST_DOMAINS + 1


def test_queues_name_every_tenant_and_the_job_that_waits_longest() -> None:
    tenants = Tenants((Tenant("top"), Tenant("leaf", "top"), Tenant("default")))
    state = run(loaded(), LoadTenants(tenants))
    state = run(state, submit("late", 8, tenant="leaf", priority=5), now_ns=20)
    state = run(state, submit("early", 4, tenant="leaf"), submit("other", 2), now_ns=10)
    found = census.queues(state)
    assert list(found) == ["default", "leaf"]
    assert found["leaf"].oldest == state.jobs["early"]
    assert (found["leaf"].queued_gpus, found["leaf"].jobs[JobState.QUEUED]) == (96, 2)
    held = census.queues(schedule(state))["leaf"].held_gpus
    assert held == 8 * schedule(state).index.held.bit_count() > 0


def test_cuts_are_those_of_the_gangs_that_run() -> None:
    state = started(loaded(fabric(zones=4, racks=1, hosts=2)), submit("a", 8), submit("b", 8))
    found = census.cuts(state)
    a = state.jobs["a"]
    assert found.by_tier == {cut.tier: cut.bytes_per_step for cut in a.present.cuts}
    assert found.lower_bound == a.present.lower_bound > 0
    assert found.by_proof == {CutProof.OPTIMAL: 1, CutProof.BOUNDED: 0, CutProof.NONE: 0}


def test_the_largest_gangs_come_first() -> None:
    state = started(loaded(), submit("a", 1), submit("c", 2), submit("b", 2))
    assert [job.name for job in census.gangs(state)] == ["b", "c", "a"]


def test_gpus_that_are_free_beside_jobs_on_parts_of_hosts_are_told_apart() -> None:
    state = schedule(run(loaded(), submit("a", gpus=2), submit("b", gpus=5), submit("c", 2)))
    assert census.queues(state)["default"].held_gpus == 2 + 5 + 16
    used = [domain.gpus(8) for domain in census.domains(state)]
    assert sum(each[Use.RUNNING] for each in used) == 2 + 5 + 16
    assert sum(each[census.SHARED] for each in used) == 1
    assert sum(map(sum, (each.values() for each in used))) == 64
