"""A zone whose pool of spares runs dry gets one again, when its gang has stopped anyway.

Where spares stand by in every zone, a zone that has lost many hosts at once, or whose wish
has grown with what the log shows, may be so full of a gang that no spare finds room: every
later failure there leaves the zone, one block after the other, and fills up the next. Once the
gang stands still in any case, the zones that have too few spares give up some blocks at their
borders, if that cuts about as much as going on without: until all have the spares that they wish
for, or half of them, or a third, whichever is the most that cuts about as little as the least does.
A block that lost its host counts in the zone of that host: where
no spare was left in it, a block at the border leaves in its stead.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from placement import shifted
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.objective.cut import cut
from placement.workload.request import TierCut
from placement.workload.segments import misplaced
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job

THIN = 0.125  # of what a zone wishes for: fewer spares than this, and room is made
ROOM = (1.0, 0.5, 0.35)  # of what it wishes for: so much is made
MOST_RISE = 0.02  # of the cut without it, or with less of it, that this may cost


def relieved(
    pools: SparePools, job: Job, hosts: Sequence[int], idle: HostSet
) -> tuple[tuple[int, ...], tuple[TierCut, ...]] | None:
    """Where the gang has spares in all of its zones; None where no zone is short of them, or
    nothing better is found. `hosts`: hosts that it is about to run on instead of the job's;
    `idle`: hosts it may use beside them."""
    if not pools.sizing.in_zone or not job.spec.request.spares.is_auto:
        return None
    gang = hostset.of(hosts)
    idle &= ~gang
    if not thin(pools, hosts, idle):
        return None
    fabric = pools.state.loaded_fabric
    most_cut = [(1 + MOST_RISE) * tier.bytes_per_step for tier in cut(fabric, job.request, hosts)]
    may_rise = most_cut[0] - job.cuts[0].bytes_per_step if job.cuts else 0.0
    held = [((gang | idle) & zone).bit_count() for zone in pools.zones]
    shifts: list[tuple[tuple[int, ...], tuple[TierCut, ...]]] = []
    for share in ROOM:
        most = [max(0, count - ceil(share * pools.sizing.size(count))) for count in held]
        moved = shifted(fabric, job.request, job.hosts, gang | idle, most, may_rise)
        if moved is None or misplaced(fabric, job.request, moved):
            continue
        cuts = cut(fabric, job.request, moved)
        if thin(pools, moved, (idle | gang) & ~hostset.of(moved)):
            continue
        shifts.append((tuple(moved), cuts))
        if job.cuts and cuts[0].bytes_per_step <= (1 + MOST_RISE) * job.cuts[0].bytes_per_step:
            break  # with less room it would hardly be less
    least = min((cuts[0].bytes_per_step for _, cuts in shifts), default=0)
    dearest = (1 + MOST_RISE) * least
    return next((shift for shift in shifts if shift[1][0].bytes_per_step <= dearest), None)


def thin(pools: SparePools, hosts: Sequence[int], idle: HostSet) -> bool:
    """Whether a zone of a gang on `hosts` has hardly a spare among the `idle`."""
    gang = hostset.of(hosts)
    return any(
        (idle & zone).bit_count() < THIN * pools.sizing.size((gang & zone).bit_count())
        for zone in pools.zones
        if gang & zone
    )
