"""A gang that is placed by its step is swapped, moved, placed again and replayed by its step.

Sixteen ranks exchange with each other over racks of four hosts, whose uplinks carry what two
hosts send. Two hosts in each rack of the gang are held up by network cards alone; a third one
in a rack cuts less, and is slower.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from placement import Hint, choose_swaps, place, placed_near
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from placement.objective.cut import cut
from placement.objective.step_time import step_time
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Limits, Objective, Request
from scheduler.core import JobState, SchedulingOptions, State, replay
from scheduler.core.defrag.proposal import DefragProposal, propose
from scheduler.core.model.events import JobStarted, JobSubmitted
from scheduler.core.model.job import JobSpec
from scheduler.core.policies.costs import Costs
from tests.build import fail, loaded, run, settled

TIERS = [
    {"name": "zone", "count": 2},
    {"name": "rack", "count": 6, "oversubscription": 2},
    {"name": "host", "count": 4},
]
FABRIC = from_spec({"name": "f", "gpus_per_host": 2, "nic_gbps": 100, "tiers": TIERS})
BY_TIME = Request(
    Parallelism(ep=16),
    traffic=(("ep", 10**9),),
    spares=NO_SPARES,
    objective=Objective.TIME,
    compute_s=0.1,
)
BY_CUT = replace(BY_TIME, objective=Objective.CUT)
EVENLY = (0, 1, 4, 5, 8, 9, 12, 13)  # two hosts in each of four racks
IN_ITS_RACKS, IN_ANOTHER = 6, 16  # free hosts


def in_racks(hosts: Sequence[int]) -> list[int]:
    """How many hosts of each rack, the most first."""
    return sorted(Counter(host // 4 for host in hosts).values(), reverse=True)


def seconds(hosts: Sequence[int]) -> float:
    return step_time(FABRIC, BY_TIME, hosts).seconds


def test_a_swap_goes_where_the_step_is_not_longer() -> None:
    free = hostset.of((IN_ITS_RACKS, IN_ANOTHER))
    for request, host in ((BY_CUT, IN_ITS_RACKS), (BY_TIME, IN_ANOTHER)):
        found = choose_swaps(FABRIC, request, EVENLY, (0,), hostset.of(()), free)
        assert found.joined == ((0, host),)


def test_placed_near_its_old_hosts_the_step_comes_first() -> None:
    room = hostset.of((*EVENLY[1:], IN_ITS_RACKS, IN_ANOTHER))
    hint = Hint((-1, *EVENLY[1:]))
    for limits in (Limits(), Limits(rounds=0)):
        answer = place(FABRIC, room, BY_TIME, limits, hint)
        assert answer.moved == 1
        assert answer.hosts[0] == IN_ANOTHER
    assert placed_near(FABRIC, BY_TIME, room, hint, Limits()) == (IN_ANOTHER, *EVENLY[1:])


def started(request: Request, hosts: Sequence[int]) -> State:
    """One gang that runs on these hosts."""
    events = (
        JobSubmitted(1, "uid", JobSpec("a", request)),
        JobStarted(
            *(2, "a", 1, FABRIC.names(hosts), (), cut(FABRIC, request, hosts), 0),
        ),
    )
    return replay(events, loaded(FABRIC))


@pytest.mark.parametrize(("request_", "rack_sizes"), [(BY_TIME, 2), (BY_CUT, 3)])
def test_a_gang_that_lost_a_host_goes_on_as_fast_as_it_was(
    request_: Request, rack_sizes: int
) -> None:
    state = started(request_, EVENLY)
    taken = hostset.of((*EVENLY, IN_ITS_RACKS, IN_ANOTHER))
    for host in hostset.members(hostset.full(24) & ~taken):
        state = run(state, fail(FABRIC.hosts[host]))
    after = settled(run(state, fail(FABRIC.hosts[0])))
    job = after.jobs["a"]
    assert job.state is JobState.RUNNING
    assert in_racks(job.hosts)[0] == rack_sizes
    assert job.present.step.seconds == seconds(job.hosts)


def freed(request: Request, lost: Sequence[int]) -> DefragProposal:
    """What frees the first zone, while hosts of the second are out of service."""
    state = started(request, EVENLY)
    for host in lost:
        state = run(state, fail(FABRIC.hosts[host]))
    return propose(state, 24, 3, SchedulingOptions(), Costs())


def test_defragmentation_moves_no_gang_to_where_its_step_is_longer() -> None:
    """Two racks are left in the other zone: less is cut there, and the step is longer."""
    few, nearly_all = range(24, 40), (24,)
    assert len(freed(BY_CUT, few).moves) == 1
    refused = freed(BY_TIME, few)
    assert not refused.moves
    assert refused.sentence.endswith("or a longer step for the gangs that move")
    (move,) = freed(BY_TIME, nearly_all).moves
    joined = {block.block: block.joined for block in move.swap.moves}
    then = [joined.get(block, host) for block, host in enumerate(EVENLY)]
    assert min(then) >= 24
    assert seconds(then) <= seconds(EVENLY)
