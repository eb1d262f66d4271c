"""A zone whose pool of spares runs dry gets one again, when its gang has stopped anyway.

Where spares stand by in every zone, a zone that has lost many hosts at once, or whose wish
has grown with what the log shows, may be so full of a gang that no spare finds room: every
later failure there leaves the zone, one block after the other, and fills up the next. Once the
gang stands still in any case it is placed again near where it was, with room for the spares of
each of its zones, if that cuts about as much as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from placement import hostset
from placement.constraints import broken
from placement.cut import cut
from placement.hostset import HostSet
from placement.near import Hint, placed_near
from placement.request import Limits as PlaceLimits
from placement.request import TierCut
from scheduler.core.job import Job
from scheduler.core.spares.pools import Pools
from scheduler.core.tenancy.cells import highest

THIN = 0.25  # of what a zone wishes for: fewer spares than this, and room is made
MOST_RISE = 0.02  # of the cut, that this may cost
LEAST_EXCESS = 0.5  # of the variance over the mean of hosts out in a zone


def relieved(
    pools: Pools, job: Job, hosts: Sequence[int], idle: HostSet, limits: PlaceLimits
) -> tuple[tuple[int, ...], tuple[TierCut, ...]] | None:
    """Where the gang, about to run on `hosts`, has spares in all of its zones; None where no
    zone is short of them, or nothing better is found. `idle`: hosts it may use beside them."""
    if not pools.sizing.in_zone or not job.spec.request.spares.is_auto:
        return None
    idle &= ~hostset.of(hosts)
    if not _fail_together(pools) or not thin(pools, hosts, idle):
        return None
    fabric = pools.state.loaded_fabric
    room = _beside_spares(pools, hostset.of(hosts), idle)
    if room.bit_count() < len(hosts):
        return None
    hint = Hint(tuple(host if hostset.has(room, host) else -1 for host in hosts))
    found = placed_near(fabric, job.request, room, hint, limits)
    if found is None or broken(fabric, job.request.where, hostset.of(found)):
        return None
    cuts, before = cut(fabric, job.request, found), cut(fabric, job.request, hosts)
    left = (idle | hostset.of(hosts)) & ~hostset.of(found)
    is_dear = bool(cuts) and cuts[0].bytes_per_step > before[0].bytes_per_step * (1 + MOST_RISE)
    return None if is_dear or thin(pools, found, left) else (found, cuts)


def thin(pools: Pools, hosts: Sequence[int], idle: HostSet) -> bool:
    """Whether a zone of a gang on `hosts` has hardly a spare among the `idle`."""
    gang = hostset.of(hosts)
    return any(
        (idle & zone).bit_count() < THIN * pools.sizing.size((gang & zone).bit_count())
        for zone in pools.zones
        if gang & zone
    )


def _fail_together(pools: Pools) -> bool:
    """Whether the hosts out in a zone vary by more than if each failed for itself."""
    sizing = pools.sizing
    hosts = max(zone.bit_count() for zone in pools.zones)
    mean = hosts * sizing.failures_per_host_day * sizing.repair_days
    return sizing.clumping * mean >= LEAST_EXCESS


def _beside_spares(pools: Pools, gang: HostSet, idle: HostSet) -> HostSet:
    """Hosts that leave each zone the spares that it wishes for when it is full: idle ones
    first, then some that the gang is on."""
    kept = 0
    for zone in pools.zones:
        wish = pools.sizing.size(((gang | idle) & zone).bit_count())
        spare = highest(idle & zone, wish)
        kept |= spare | highest(gang & zone, wish - spare.bit_count())
    return reduce(or_, pools.zones, 0) & (gang | idle) & ~kept
