"""Priority, then fair share, then arrival; and waiting that counts."""

from __future__ import annotations

from dataclasses import replace

from scheduler.core import SchedulingOptions, State, decide
from scheduler.core.model.commands import LoadTenants
from scheduler.core.model.plan import Start
from scheduler.core.policies.tenants import Aging, Tenant, Tenants
from tests.build import HOUR_NS, end, fabric, loaded, queue_order, run, schedule, submit

HOUR = 3_600
TWO = Tenants((Tenant("a"), Tenant("b")), "a", half_life_s=HOUR)
EIGHT = loaded(fabric(2, 2, 2))


def order(state: State, now_ns: int = 0) -> list[str]:
    return queue_order(state, now_ns, SchedulingOptions())


def with_tenants(tenants: Tenants) -> State:
    return run(EIGHT, LoadTenants(tenants))


def test_equal_tenants_take_turns_as_they_start() -> None:
    """Counted by hosts, at once: a's first two hosts are worth two turns of b."""
    state = with_tenants(TWO)
    jobs = [submit(f"a{i}", 2, tenant="a") for i in range(3)]
    jobs += [submit(f"b{i}", 1, tenant="b") for i in range(4)]
    plan = decide(run(state, *jobs), 0, SchedulingOptions())
    starts = [action.name for action in plan.actions if isinstance(action, Start)]
    assert starts == ["a0", "b0", "b1", "a1", "b2", "b3", "a2"][: len(starts)]
    assert len(starts) >= 6


def test_weights_are_shares() -> None:
    tenants = Tenants((Tenant("a", weight=3), Tenant("b")), "a")
    jobs = [submit(f"{t}{i}", 1, tenant=t) for i in range(8) for t in "ba"]
    plan = decide(run(with_tenants(tenants), *jobs), 0, SchedulingOptions())
    starts = [action.name[0] for action in plan.actions if isinstance(action, Start)]
    assert (starts.count("a"), starts.count("b")) == (6, 2)


def test_priority_comes_before_share() -> None:
    state = schedule(run(with_tenants(TWO), submit("x", 8, tenant="a")))
    state = run(state, submit("b", tenant="b"), submit("a", tenant="a", priority=1))
    assert order(state) == ["a", "b"]


def test_usage_counts_and_fades() -> None:
    state = schedule(run(with_tenants(TWO), submit("x", 8, tenant="a")))
    state = run(state, submit("a", tenant="a"), submit("b", 2, tenant="b"), now_ns=HOUR_NS)
    state = run(state, end("x"), now_ns=HOUR_NS)
    assert order(state, HOUR_NS) == ["b", "a"]
    state = schedule(state, HOUR_NS)
    late = 20 * HOUR_NS
    state = run(state, submit("a2", tenant="a"), submit("b2", tenant="b"), now_ns=late)
    assert order(state, late) == ["a2", "b2"]  # a holds one host since, b two


def test_who_is_below_its_guarantee_comes_first() -> None:
    tenants = Tenants((Tenant("a", guaranteed_gpus=32), Tenant("b")), "a")
    state = schedule(run(with_tenants(tenants), submit("x", 2, tenant="a")))
    state = run(state, submit("b", tenant="b"), submit("a", tenant="a"))
    assert order(state) == ["a", "b"]


def test_siblings_are_compared_before_cousins() -> None:
    """Both of research's have little, but product has less than research together."""
    tenants = Tenants(
        (Tenant("r"), Tenant("r1", "r"), Tenant("r2", "r"), Tenant("p")), "p", half_life_s=HOUR
    )
    state = with_tenants(tenants)
    state = schedule(
        run(state, submit("x", 2, tenant="r1"), submit("y", 2, tenant="r2"), submit("z", 3))
    )
    state = run(state, submit("r", tenant="r1"), submit("p"))
    assert order(state) == ["p", "r"]


def test_waiting_counts_for_those_who_age() -> None:
    tenants = replace(TWO, aging=Aging(HOUR, 2))
    state = run(with_tenants(tenants), submit("old"))
    state = run(state, submit("new", priority=3), now_ns=2 * HOUR_NS)
    assert order(run(with_tenants(TWO), submit("old"), submit("new", priority=3))) == ["new", "old"]
    assert order(state, 2 * HOUR_NS - 1) == ["new", "old"]
    assert order(state, 2 * HOUR_NS) == ["old", "new"]


def lived(tenants: Tenants, hours: int) -> dict[str, int]:
    """Hour of each start: a job of the lowest priority that needs everything, and every
    hour one of the highest that needs half and runs for two."""
    state = run(with_tenants(tenants), submit("meek", 8, limit_s=HOUR))
    starts: dict[str, int] = {}
    for hour in range(hours):
        now_ns = hour * HOUR_NS
        done = [n for n in state.running if starts[n] == hour - (1 if n == "meek" else 2)]
        state = run(state, *(end(name) for name in done), now_ns=now_ns)
        state = run(state, submit(f"p{hour}", 4, limit_s=2 * HOUR, priority=5), now_ns=now_ns)
        before = set(state.running)
        state = schedule(state, now_ns)
        starts |= dict.fromkeys(set(state.running) - before, hour)
    return starts


def test_starvation_is_bounded_where_waiting_counts() -> None:
    """After five hours nobody who comes is more important than `meek`; those who came
    before are few, and then it holds the reservation."""
    assert "meek" not in lived(TWO, 40)
    assert lived(replace(TWO, aging=Aging(HOUR, 1)), 40)["meek"] <= 5 + 4
