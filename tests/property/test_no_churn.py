"""No gang is started to be evicted in the same second, whatever comes and however long it waits.

Production jobs and preemptible ones of one size fill a cluster, come, end and age. Where all are
alike, a preemptible gang that starts in the second in which another is evicted takes what was given
up for somebody else, or was evicted for nothing (gangs of several sizes may share what one of them
leaves). That no gang at all is started and evicted at once holds for any sizes.
"""

from dataclasses import replace
from random import Random

import pytest

from scheduler.core import State
from scheduler.core.model.commands import LoadTenants
from scheduler.core.policies.tenants import Aging, PriorityClass, Tenant, Tenants
from tests.build import end, loaded, run, running, schedule, submit

HOUR, HOUR_NS = 3_600, 3_600 * 10**9
CLASSES = (PriorityClass("production", 100), PriorityClass("spot", 0, is_preemptible=True))
SEEDS = range(2)


def started_and_evicted(state: State, now_ns: int) -> tuple[State, set[str], set[str]]:
    """What happens at one moment until nothing more does: preemptible gangs that started at any
    time of it, and those that were evicted."""
    started, evicted = set[str](), set[str]()
    while (after := schedule(state, now_ns)) != state:
        was, now = running(state), running(after)
        started |= {name for name in now - was if after.jobs[name].is_preemptible}
        evicted |= {name for name in was - now if state.jobs[name].is_preemptible}
        state = after
    return state, started, evicted


@pytest.mark.parametrize("sizes", [(2,), (4,), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("aging", [None, Aging(HOUR, 100), Aging(HOUR, 7)], ids=str)
def test_nobody_starts_and_is_evicted_in_one_second(
    sizes: tuple[int, ...], aging: Aging | None
) -> None:
    evictions = 0
    for seed in SEEDS:
        random = Random(seed)
        tenants = Tenants((Tenant("a"), Tenant("b", weight=2)), "a", classes=CLASSES)
        state = run(loaded(), LoadTenants(replace(tenants, aging=aging)))
        for turn in range(40):
            now_ns = (1 + turn) * HOUR_NS
            for name in sorted(running(state)):
                if random.random() < (0.3 if name.startswith("p") else 0.05):
                    state = run(state, end(name), now_ns=now_ns)
            for kind, share in (("production", 0.6), ("spot", 0.4)):
                if random.random() < share:
                    job = submit(
                        f"{kind[0]}{turn}",
                        random.choice(sizes),
                        tenant=random.choice("ab"),
                        priority_class=kind,
                        limit_s=random.randint(1, 9) * HOUR,
                    )
                    state = run(state, job, now_ns=now_ns)
            state, started, evicted = started_and_evicted(state, now_ns)
            evictions += len(evicted)
            assert not started & evicted, (seed, turn)
            if len(sizes) == 1:
                assert not (started and evicted), (seed, turn, started, evicted)
    assert evictions > len(SEEDS)  # the days are such as try it
