"""An elastic gang that loses hosts, or is asked for some: which replicas go.

Replicas go whole, with all their hosts; the others keep theirs and are numbered anew. A
replica that shares hosts with others takes them with it. What is left of the hosts of the
replicas that went stands in for other hosts that failed, so a gang never drops more
replicas than it has to: the fewest, then the next legal size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence

from muster.structs import struct
from placement import (
    NEW,
    carried,
    choose_swaps,
    has_room,
    on_hosts,
    place,
    ranks_inside,
    replicas_on,
)
from placement.fabric import hostset
from placement.fabric.constraints import gpus_wanted
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import Limits, Placement
from scheduler.core.model.job import Job
from scheduler.core.model.plan import Resize


@struct(frozen=True, slots=True)
class ShrunkGang:
    """The gang of `job` at a smaller size. `freed`: healthy hosts that it leaves."""

    job: Job
    placement: Placement
    freed: HostSet

    @property
    def hosts(self) -> HostSet:
        """The hosts that it keeps, its spares among them."""
        return self.placement.allocation


def without_hosts(
    fabric: Fabric, job: Job, lost: HostSet, own: HostSet, free: HostSet, limits: Limits
) -> ShrunkGang | None:
    """Return the gang without its `lost` hosts, as large as may be; None when it would be smaller
    than the job allows.

    `own`: hosts of the gang, and its spares, that may carry another block than now. `free`: others
    that may. Cost: some placings of single hosts for each replica that is hit, and one `place`
    where replicas share hosts.
    """
    hit = [block for block, host in enumerate(job.hosts) if hostset.has(lost, host)]
    for dropped in _ever_more(fabric, job, hit):
        shrunk = _keeping(fabric, job, dropped, lost, own, free)
        if shrunk is not None:
            return _smaller(job, shrunk, own)
    fits = [dp for dp in job.sizes if dp < job.dp and has_room(fabric, own, job.at(dp).request)]
    if not fits:
        return None
    answer = place(fabric, own, job.at(fits[-1]).request, limits)
    return _smaller(job, answer, own) if isinstance(answer, Placement) else None


def to_free(
    fabric: Fabric,
    job: Job,
    within: HostSet,
    fit: HostSet,
    is_enough: Callable[[ShrunkGang], bool],
    least_dp: int = 0,
) -> ShrunkGang | None:
    """Shrink the gang to the largest size, from `least_dp` on, at which it frees enough hosts; None
    when there is no such size.

    `within`: where hosts are wanted, one domain, say: the replicas that have most there go. `fit`:
    hosts of the gang that are in service. Nobody moves. Cost: O(ranks log sizes).
    """

    def enough(dp: int) -> ShrunkGang | None:
        return next(filter(is_enough, _forms(fabric, job, dp, within, fit)), None)

    larger_first = [dp for dp in reversed(job.sizes) if least_dp <= dp < job.dp]
    at = bisect_left(larger_first, True, key=lambda dp: enough(dp) is not None)
    return enough(larger_first[at]) if at < len(larger_first) else None


def at_size(fabric: Fabric, job: Job, dp: int, within: HostSet, fit: HostSet) -> ShrunkGang | None:
    """Shrink the gang to `dp` replicas with as few spares as may be; None where the replicas that
    go share hosts with others, or needed spares would be missing."""
    forms = _forms(fabric, job, dp, within, fit)
    return min(forms, key=lambda form: len(form.placement.spares), default=None)


def _forms(
    fabric: Fabric, job: Job, dp: int, within: HostSet, fit: HostSet
) -> Iterator[ShrunkGang]:
    """The gang without the replicas that have most hosts `within`: its spares elsewhere, or
    none, or anywhere."""
    dropped = _most_in(fabric, job, within, job.dp - dp)
    kept = [r for r in range(job.dp) if r not in dropped]
    hosts = carried(job.request, gpus_wanted(fabric, job.request.where), job.hosts, kept)
    if NEW in hosts:
        return
    own, request = fit & ~hostset.of(hosts), job.at(dp).request
    for spares in (own & ~within, 0, own) if request.spares.hosts != 0 else (0,):
        if (placement := on_hosts(fabric, request, hosts, spares)) is not None:
            yield _smaller(job, placement, fit)


def resize(shrunk: ShrunkGang, job: Job, reason: str, end_ns: int) -> Resize:
    """Return the action that makes `job` so small. It is expected to run until `end_ns` then."""
    return Resize(job.name, shrunk.job.dp, job.hosts, shrunk.placement, reason, end_ns)


def _smaller(job: Job, placement: Placement, own: HostSet) -> ShrunkGang:
    freed = own & ~placement.allocation
    return ShrunkGang(job.on(len(placement.hosts)), placement, freed)


def _ever_more(fabric: Fabric, job: Job, hit: Sequence[int]) -> Iterator[frozenset[int]]:
    """The replicas of the block that shares its replicas with most of those hit, then those
    of the next one as well, ...; with them go replicas that share their hosts."""
    gpus = gpus_wanted(fabric, job.request.where)
    last = (job.dp - 1,)  # makes room for another role
    on = [frozenset(replicas_on(job.request, gpus, block) or last) for block in hit]
    groups = sorted(set(on), key=lambda group: (-on.count(group), sorted(group)))
    dropped: frozenset[int] = frozenset()
    for group in groups:
        dropped |= group
        yield dropped


def _keeping(
    fabric: Fabric,
    job: Job,
    dropped: Collection[int],
    lost: HostSet,
    own: HostSet,
    free: HostSet,
) -> Placement | None:
    """The gang without these replicas, and without as many more of the last ones as the
    next legal size asks for; what else is lost is swapped."""
    fits = [dp for dp in job.sizes if dp <= job.dp - len(dropped)]
    if not fits:
        return None
    smaller = job.at(fits[-1])
    kept = [r for r in range(job.dp) if r not in dropped][: smaller.dp]
    hosts = carried(job.request, gpus_wanted(fabric, job.request.where), job.hosts, kept)
    if NEW in hosts:
        return None
    blocks = [block for block, host in enumerate(hosts) if hostset.has(lost, host)]
    own &= ~hostset.of(hosts)
    swaps = choose_swaps(fabric, smaller.request, hosts, blocks, own, free)
    if swaps is None:
        return None
    joined = dict(swaps.joined)
    hosts = tuple(joined.get(block, host) for block, host in enumerate(hosts))
    return on_hosts(fabric, smaller.request, hosts, own & ~hostset.of(hosts))


def _most_in(fabric: Fabric, job: Job, within: HostSet, count: int) -> set[int]:
    """The `count` replicas with most ranks on these hosts, the last ones first."""
    inside = ranks_inside(job.request, fabric, job.hosts, within)
    return set(sorted(range(job.dp), key=lambda r: (-inside[r], -r))[:count])
