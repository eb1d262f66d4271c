"""Slots per size: in all, inside each zone, for a tenant."""

import pytest

from placement.errors import BadInput
from scheduler.core import SchedulingOptions, State
from scheduler.core.explain.slots import Asker, Slots, slots
from tests.build import cordon, fabric, flat, loaded, run, started, submit

EIGHT = loaded(fabric(2, 2, 2))


def asked(state: State, *hosts: int, policy: str = "production", **asker: object) -> Slots:
    gpus = state.loaded_fabric.gpus_per_host
    sizes = [n * gpus for n in hosts]
    return slots(state, 0, SchedulingOptions(policy=policy), Asker(**asker), sizes)  # type: ignore[arg-type]


def in_all(found: Slots) -> list[int]:
    return [slot.in_all for slot in found.counts]


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
