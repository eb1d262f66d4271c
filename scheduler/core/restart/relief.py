"""A zone whose pool of spares runs dry gets one again, when its gang has stopped anyway.

Where spares stand by in every zone, a zone that has lost many hosts at once, or whose wish
has grown with what the log shows, may be so full of a gang that no spare finds room: every
later failure there leaves the zone, one block after the other, and fills up the next. Once the
gang stands still in any case, the zones that have too few spares give up some blocks at their
borders, if that cuts about as much as going on without: until all have the spares that they wish
for, or half of them, or a third, whichever is the most that cuts about as little as the least does.
A block that lost its host counts in the zone of that host: where
no spare was left in it, a block at the border leaves in its stead.

A gang that is placed by the time of its steps does the same under every policy as long as its
steps take no longer: it began where the fewest bytes cross zones, which may fill zones to the last
host (Llama 3 405B: three stages fill a zone of 384), and bytes that hide behind compute are worth
less than a spare in the zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from placement import measure, shifted
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.objective.cut import cut
from placement.workload.request import Objective, TierCut
from placement.workload.segments import misplaced
from scheduler.core.capacity.spare_pools import SparePools
from scheduler.core.model.job import Job

THIN = 0.125  # of what a zone wishes for: fewer spares than this, and room is made
ROOM = (1.0, 0.5, 0.35)  # of what it wishes for: so much is made
MOST_RISE = 0.02  # of the cut without it, or with less of it, that this may cost


def relieved(
    pools: SparePools, job: Job, hosts: Sequence[int], idle: HostSet
) -> tuple[tuple[int, ...], tuple[TierCut, ...]] | None:
    """Return where the gang could move so that it has spares in all of its zones; None where no
    zone is short of them, or nothing better is found. `hosts`: hosts that it is about to run on
    instead of the job's; `idle`: hosts it may use beside them."""
    by_time = job.request.objective is Objective.TIME
    if not (pools.sizing.in_zone or by_time) or not job.spec.request.spares.is_auto:
        return None
    gang = hostset.of(hosts)
    idle &= ~gang
    if not is_short_of_spares(pools, hosts, idle):
        return None
    fabric = pools.state.loaded_fabric
    plain = cut(fabric, job.request, hosts)
    may_rise = inf if by_time else 0.0
    if job.present.cuts and not by_time:
        may_rise = (1 + MOST_RISE) * plain[0].bytes_per_step - job.present.cuts[0].bytes_per_step
    longest = measure(fabric, job.request, hosts, plain)
    held = [((gang | idle) & zone).bit_count() for zone in pools.zones]
    shifts: list[tuple[tuple[int, ...], tuple[TierCut, ...]]] = []
    for share in ROOM:
        room = [max(0, count - ceil(share * pools.sizing.size(count))) for count in held]
        moved = shifted(fabric, job.request, job.hosts, gang | idle, room, may_rise)
        if moved is None or misplaced(fabric, job.request, moved):
            continue
        cuts = cut(fabric, job.request, moved)
        if by_time and measure(fabric, job.request, moved, cuts) > longest:
            continue
        if is_short_of_spares(pools, moved, (idle | gang) & ~hostset.of(moved)):
            continue
        shifts.append((tuple(moved), cuts))
        most = (1 + MOST_RISE) * job.present.cuts[0].bytes_per_step if job.present.cuts else 0.0
        if by_time or cuts[0].bytes_per_step <= most:
            break  # with less room it would hardly be less
    least = min((cuts[0].bytes_per_step for _, cuts in shifts), default=0)
    dearest = (1 + MOST_RISE) * least
    return next((shift for shift in shifts if shift[1][0].bytes_per_step <= dearest), None)


def is_short_of_spares(pools: SparePools, hosts: Sequence[int], idle: HostSet) -> bool:
    """Whether a zone of a gang on `hosts` has hardly a spare among the `idle`."""
    gang = hostset.of(hosts)
    return any(
        (idle & zone).bit_count() < THIN * pools.sizing.size((gang & zone).bit_count())
        for zone in pools.zones
        if gang & zone
    )
