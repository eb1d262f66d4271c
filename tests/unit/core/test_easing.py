"""Which victims are asked whether they may keep replicas, and how many they keep."""

from dataclasses import replace

import pytest

from placement.fabric import hostset
from scheduler.core import SchedulingOptions
from scheduler.core.capacity.shrink_options import ShrinkOptions, Surplus, Victims
from scheduler.core.capacity.victims import candidates
from scheduler.core.model.commands import LoadTenants
from scheduler.core.policies.tenants import OPEN, PriorityClass
from scheduler.core.rules.calendar import Calendar
from tests.build import fabric, loaded, run, settled, submit


@pytest.mark.parametrize(("slack", "kept"), [(0, []), (1, [1]), (2, [2]), (3, [2, 1])])
def test_only_who_can_keep_a_replica_is_asked(slack: int, kept: list[int]) -> None:
    """Two gangs of three replicas, a host each: what may be missing is kept, dearest first."""
    spot = PriorityClass("spot", -5, is_preemptible=True)
    state = run(loaded(fabric(1, 3, 2)), LoadTenants(replace(OPEN, classes=(spot,))))
    for name in "ab":
        state = settled(run(state, submit(name, 3, min_dp=1, priority_class="spot")))
    needed, asked = 6 - slack, list[Victims]()

    def is_enough(gone: Victims) -> bool:
        asked.append(gone)
        return hostset.of(h for v in gone for h in hostset.members(v.hosts)).bit_count() >= needed

    forms = ShrinkOptions(state, 0, SchedulingOptions(), Calendar(state))
    gone = forms.shrink_less(candidates(state, 0), 0b111111, is_enough, Surplus(~0, slack))
    assert [v.dp for v in reversed(gone) if v.dp] == kept
    assert bool(asked) == bool(kept)
