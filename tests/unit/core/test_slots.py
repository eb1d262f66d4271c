"""Slots per size: in all, inside each zone, for a tenant."""

import pytest

from placement.errors import BadInput
from scheduler.core import SchedulingOptions, State, Tenants
from scheduler.core.explain.slots import Asker, Slots, slots
from scheduler.core.model.commands import LoadTenants
from scheduler.core.names import DEFAULT_TENANT
from scheduler.core.policies.tenants import GuaranteedCell, PriorityClass, Tenant
from tests.build import cordon, fabric, flat, loaded, run, started, submit

HOUR = 3_600
EIGHT = loaded(fabric(2, 2, 2))


def asked(state: State, *hosts: int, policy: str = "production", **asker: object) -> Slots:
    gpus = state.loaded_fabric.gpus_per_host
    sizes = [n * gpus for n in hosts]
    return slots(state, 0, SchedulingOptions(policy=policy), Asker(**asker), sizes)  # type: ignore[arg-type]


def in_all(found: Slots) -> list[int]:
    return [slot.in_all for slot in found.counts]


def with_tenants(*tenants: Tenant) -> State:
    classes = (PriorityClass("spot", -1, is_preemptible=True),)
    return run(EIGHT, LoadTenants(Tenants((*tenants, Tenant(DEFAULT_TENANT)), classes=classes)))


def test_an_empty_fabric() -> None:
    found = asked(EIGHT, 1, 2, 3, 8, 9)
    assert in_all(found) == [8, 4, 2, 1, 0]
    assert [slot.inside for slot in found.counts] == [8, 4, 2, 0, 0]
    assert found.counts[2].by_domain == (1, 1)
    assert (found.domains, found.free, found.room) == (("z0", "z1"), (4, 4), 8)


def test_a_gang_may_lie_across_zones_that_hold_none_whole() -> None:
    state = run(EIGHT, cordon("z0-r0-h0"), cordon("z1-r0-h0"))
    (slot,) = asked(state, 4).counts
    assert (slot.in_all, slot.inside, slot.by_domain) == (1, 0, (0, 0))


def test_a_limit_is_honoured_above_all_zones() -> None:
    state = with_tenants(Tenant("small", limit_gpus=3 * 8))
    found = asked(state, 1, 2, tenant="small")
    assert in_all(found) == [3, 1]
    assert found.counts[0].by_domain == (3, 3)
    assert (found.tenant, found.room) == ("small", 3)


def test_guarantees_of_others_are_honoured_except_by_preemptible_jobs() -> None:
    state = with_tenants(Tenant("owner", guaranteed_gpus=6 * 8))
    assert in_all(asked(state, 1)) == [2]
    assert in_all(asked(state, 1, tenant="owner")) == [8]
    assert in_all(asked(state, 1, priority_class="spot")) == [8]


def test_kept_shapes_are_kept() -> None:
    found = asked(with_tenants(Tenant("keeper", cells=(GuaranteedCell("zone", 1, 4),))), 1, 4)
    assert sorted(found.usable) == [0, 4]
    assert found.free == (4, 4)
    assert in_all(found) == [4, 1]


def test_a_reservation_leaves_slots_for_short_jobs() -> None:
    state = started(EIGHT, submit("a", 4, limit_s=HOUR))
    state = run(state, submit("wide", 8))
    assert in_all(asked(state, 1)) == [0]
    assert in_all(asked(state, 1, time_limit_s=HOUR)) == [4]
    assert in_all(asked(state, 1, time_limit_s=HOUR, policy="fifo")) == [0]
    assert in_all(asked(state, 1, time_limit_s=HOUR, policy="conservative")) == [4]


def test_jobs_that_are_due_are_served_first() -> None:
    assert in_all(asked(run(EIGHT, submit("due", 5)), 1)) == [3]


def test_a_flat_fabric_has_no_zones() -> None:
    found = asked(loaded(flat(4, 4, 2)), 4)
    assert (found.counts[0].in_all, found.counts[0].by_domain) == (2, (1, 1, 0))


@pytest.mark.parametrize(
    ("sizes", "asker", "field"),
    [
        ((8, 12), Asker(), "sizes"),
        ((0,), Asker(), "sizes"),
        ((-8,), Asker(), "sizes"),
        ((8,), Asker(tenant="nobody"), "tenant"),
        ((8,), Asker(priority_class="gold"), "priority_class"),
        ((8,), Asker(time_limit_s=0), "time_limit_s"),
    ],
)
def test_what_nobody_can_ask(sizes: tuple[int, ...], asker: Asker, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        slots(EIGHT, 0, SchedulingOptions(), asker, sizes)
    assert caught.value.field == field


def test_a_job_called_like_the_probe_is_no_obstacle() -> None:
    assert in_all(asked(started(EIGHT, submit("slot-0", 3)), 1)) == [5]
