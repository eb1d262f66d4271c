"""Whether a gang leaves a suspect host before it fails: prices, policy, and the log's lessons."""

import math

import pytest

from muster.structs import replace
from scheduler.core import HostState, State
from scheduler.core.model.commands import LoadHealth, LoadTenants, ReportHost
from scheduler.core.model.events import HostMoved
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.records.failure_rates import DAY_NS, SuspicionCount
from scheduler.core.policies.health import HealthPolicy, PreventionAction, PreventionPolicy
from scheduler.core.policies.tenants import OPEN
from scheduler.core.rules.hosts.prevention import (
    NextStop,
    failure_risk,
    preventive_swap,
    priced_swap,
)
from tests.build import (
    admitted,
    fabric,
    hosts_of,
    job,
    loaded,
    repair,
    run,
    settled,
    started,
    submit,
)

EMPTY = loaded(fabric(zones=1, racks=2, hosts=2))
FLAP = "link-flap"


def policy(action: PreventionAction, ratio: float, **more: float) -> LoadHealth:
    prevention = PreventionPolicy(action, ((FLAP, ratio),), **more)  # type: ignore[arg-type]
    return LoadHealth(HealthPolicy(prevention=prevention))


def suspected(action: PreventionAction, ratio: float, hosts: int = 2) -> tuple[State, HostMoved]:
    """A gang of so many of four hosts, the first of which has become suspect, and its move."""
    state = started(run(EMPTY, policy(action, ratio)), submit("a", hosts))
    host = hosts_of(state, "a")[0]
    state = run(state, *[ReportHost(host, FLAP)] * 2)
    (move,) = [e for e in admitted(state, ReportHost(host, FLAP)) if isinstance(e, HostMoved)]
    return run(state, ReportHost(host, FLAP)), move


def test_a_swap_is_priced_against_the_failures_until_the_next_stop() -> None:
    state = started(EMPTY, submit("a", 2))
    costs = replace(OPEN.preemption.costs, checkpoint_s=1000, restart_s=100, detect_s=20)
    terms = replace(OPEN.preemption, costs=costs)
    state = run(state, LoadTenants(replace(OPEN, preemption=terms)))
    gpus = state.loaded_fabric.gpus_per_host
    risk = NextStop(1, 0.01, math.inf).risk(1, 9)
    assert risk == pytest.approx(8 / 10)  # of 10 failures 9 are its own, 1 would be anyway
    swap = priced_swap(state, job(state, "a"), risk, repair_s=50)
    assert swap.loss_s == pytest.approx(0.8 * (500 + 100 + 20) * 2 * gpus)
    assert swap.price_s == pytest.approx((100 * 2 + 0.2 * 50) * gpus)
    assert swap.pays
    assert not priced_swap(state, job(state, "a"), 0.1, repair_s=50).pays


def test_a_gang_that_ends_soon_has_less_to_lose() -> None:
    assert NextStop(1, 0.01, 1).risk(1, 9) == pytest.approx(0.8 * (1 - math.exp(-0.1)))
    assert NextStop(1, 0.01, math.inf).risk(1, 1) == 0  # a host like all others


def test_a_policy_that_shows_says_what_a_swap_is_worth_and_moves_nothing() -> None:
    state, move = suspected(PreventionAction.SHOW, 1000)
    assert "% above that of another host: staying is expected to cost" in move.reason
    host = state.loaded_fabric.index_by_name[move.host]
    assert state.host(host).state is HostState.SUSPECT
    assert host in job(state, "a").hosts


def test_a_gang_leaves_at_its_checkpoint_where_the_policy_swaps_and_it_pays() -> None:
    state, move = suspected(PreventionAction.SWAP, 1000)
    host = state.loaded_fabric.index_by_name[move.host]
    assert state.host(host).state is HostState.RETIRING
    assert "a swap" in move.reason
    assert host in job(state, "a").hosts
    state = settled(state, 1800 * SECOND_NS)
    assert host not in job(state, "a").hosts
    assert state.host(host).state is HostState.IN_REPAIR


@pytest.mark.parametrize(("ratio", "hosts"), [(1.5, 2), (1000, 4)])
def test_a_gang_stays_where_it_does_not_pay_or_no_host_is_free(ratio: float, hosts: int) -> None:
    state, move = suspected(PreventionAction.SWAP, ratio, hosts)
    index = state.loaded_fabric.index_by_name[move.host]
    assert state.host(index).state is HostState.SUSPECT
    assert ("a swap" in move.reason) is (hosts == 2)


def test_nothing_is_said_while_the_policy_is_off_or_nothing_runs_there() -> None:
    _, move = suspected(PreventionAction.OFF, 1000)
    assert move.reason == FLAP
    assert preventive_swap(run(EMPTY, policy(PreventionAction.SWAP, 9)), 0, FLAP, 0) is None


def test_an_early_life_multiplies_what_is_stated() -> None:
    state = started(run(EMPTY, policy(PreventionAction.SHOW, 3, early_ratio=2)), submit("a", 2))
    index = state.loaded_fabric.index_by_name[hosts_of(state, "a")[0]]
    old = preventive_swap(state, index, FLAP, 0)
    records = {index: replace(state.record(index), service_ns=1)}
    new = preventive_swap(replace(state, records=records), index, FLAP, 2)
    assert old is not None
    assert new is not None
    assert (old.risk, new.risk) == (pytest.approx(2 / 4), pytest.approx(5 / 7))


def test_what_became_of_suspect_hosts_outweighs_what_was_stated() -> None:
    stated, stop = PreventionPolicy(ratios=((FLAP, 10),), evidence=20), NextStop(90, 0.01, math.inf)
    assert failure_risk(stated, None, FLAP, stop) == pytest.approx(9 / 100)
    assert failure_risk(stated, None, "thermal", stop) == 0
    # Half of them failed, after a day: 100 times as often as others.
    seen = SuspicionCount(FLAP, 60, 30, 30 * DAY_NS)
    logged = (0.5 * 100 - 1) / 190
    assert failure_risk(stated, seen, FLAP, stop) == pytest.approx((20 * 0.09 + 60 * logged) / 80)
    harmless = SuspicionCount(FLAP, 980, 0, 0)
    assert failure_risk(stated, harmless, FLAP, stop) == pytest.approx(0.09 / 50)


def test_the_log_counts_how_times_of_suspicion_end() -> None:
    host, other = EMPTY.loaded_fabric.hosts[:2]
    state = run(EMPTY, *[ReportHost(host, FLAP)] * 3, *[ReportHost(other, FLAP)] * 3)
    assert not state.faults.suspicions
    state = run(state, ReportHost(host, "gpu-lost"), now_ns=DAY_NS // 2)
    state = run(state, repair(host), now_ns=DAY_NS // 2)
    state = settled(state, DAY_NS)  # the other one is cleared
    assert state.faults.suspicions == (SuspicionCount(FLAP, 2, 1, DAY_NS // 2),)
    state = run(state, *[ReportHost(host, FLAP)] * 3, now_ns=DAY_NS)
    state = run(state, ReportHost("z0-r0", "tor-down"), now_ns=2 * DAY_NS)  # not the host's fault
    assert state.faults.suspicions == (SuspicionCount(FLAP, 3, 1, DAY_NS // 2),)
    last = EMPTY.loaded_fabric.hosts[-1]  # retires, so whether it would have failed is not known
    state = run(state, *[ReportHost(last, FLAP)] * 3, now_ns=2 * DAY_NS)
    state = run(state, ReportHost(last, "predicted-failure"), now_ns=2 * DAY_NS)
    assert state.host(state.fabric.host_count - 1).state is HostState.IN_REPAIR
    assert state.faults.suspicions == (SuspicionCount(FLAP, 3, 1, DAY_NS // 2),)
