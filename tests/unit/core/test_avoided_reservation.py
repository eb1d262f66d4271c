"""A gang that avoids a host that stopped it has a reservation, as any that waits."""

from dataclasses import replace

from scheduler.core import SchedulingOptions, State, decide
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import JobState
from scheduler.core.policies.tenants import OPEN
from tests.build import fabric, fail, job, loaded, repair, run, schedule, submit

HOUR_S, AVOIDS_S = 3_600, 600
NOW_NS = 60 * SECOND_NS


def avoiding(policy: str) -> State:
    """A gang of all eight hosts was stopped by one of them, which is repaired."""
    tenants = replace(OPEN, restarts=replace(OPEN.restarts, avoid_s=AVOIDS_S))
    state = run(loaded(fabric(2, 2, 2)), LoadTenants(tenants), submit("all", 8, limit_s=HOUR_S))
    state = schedule(state, policy=policy)
    state = run(state, fail("z0-r0-h0"), now_ns=NOW_NS)
    state = schedule(state, NOW_NS, policy=policy)  # no host instead: it is requeued
    assert job(state, "all").state is JobState.QUEUED
    return run(state, repair("z0-r0-h0"), now_ns=NOW_NS)


def test_who_would_outlast_its_reservation_waits() -> None:
    for policy in ("easy", "production"):
        long, short = submit("long", limit_s=24 * HOUR_S), submit("short", limit_s=AVOIDS_S // 2)
        state = run(avoiding(policy), long, short, now_ns=NOW_NS)
        limits = SchedulingOptions(policy=policy)
        (reservation,) = decide(state, NOW_NS, limits).reservations
        at_ns = NOW_NS + AVOIDS_S * SECOND_NS
        assert (reservation.name, reservation.start_ns) == ("all", at_ns)

        state = schedule(state, NOW_NS, limits)
        assert state.index.running == ("short",)


def test_it_starts_when_it_may_use_the_host_again() -> None:
    state = run(avoiding("easy"), submit("long", limit_s=24 * HOUR_S), now_ns=NOW_NS)
    plan = decide(state, NOW_NS, SchedulingOptions(policy="easy"))
    assert plan.next_decision_ns == NOW_NS + AVOIDS_S * SECOND_NS
    state = schedule(state, plan.next_decision_ns, policy="easy")
    assert state.index.running == ("all",)
