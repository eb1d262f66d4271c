"""An elastic gang that loses hosts, or is asked for some: which replicas go.

Replicas go whole, with all their hosts; the others keep theirs and are numbered anew. A
replica that shares hosts with others takes them with it. What is left of the hosts of the
replicas that went stands in for other hosts that failed, so a gang never drops more
replicas than it has to: the fewest, then the next legal size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from placement import hostset
from placement.fabric import Fabric
from placement.hostset import HostSet
from placement.place import place
from placement.replicas import NEW, carried, has_room, on_hosts, replicas_on
from placement.request import Limits, Placement
from placement.swaps import choose_swaps
from scheduler.core.job import Job
from scheduler.core.plan import Resize


@dataclass(frozen=True, slots=True)
class Smaller:
    """The gang of `job` at a smaller size. `freed`: healthy hosts that it leaves."""

    job: Job
    placement: Placement
    freed: HostSet


def without_hosts(
    fabric: Fabric, job: Job, lost: HostSet, own: HostSet, free: HostSet, limits: Limits
) -> Smaller | None:
    """The gang on what is left of its hosts when `lost` are gone, as large as may be; None
    when it would be smaller than the job allows.

    `own`: hosts of the gang, and its spares, that may carry another block than now. `free`:
    others that may. Cost: some placings of single hosts for each replica that is hit, and
    one `place` where replicas share hosts.
    """
    hit = [block for block, host in enumerate(job.hosts) if hostset.has(lost, host)]
    for dropped in _ever_more(fabric, job, hit):
        found = _keeping(fabric, job, dropped, lost, own, free)
        if found is not None:
            return _smaller(job, found, own)
    fits = [dp for dp in job.sizes if dp < job.dp and has_room(fabric, own, job.at(dp).request)]
    if not fits:
        return None
    answer = place(fabric, own, job.at(fits[-1]).request, limits)
    return _smaller(job, answer, own) if isinstance(answer, Placement) else None


def to_free(fabric: Fabric, job: Job, wanted: int, within: HostSet) -> Smaller | None:
    """The gang at the largest size at which it leaves `wanted` hosts of `within`, those of
    the replicas that have most there; None when it has no such size.

    `within`: one domain, say, or all hosts. Nobody moves. Cost: O(ranks log sizes).
    """

    def leaves(dp: int) -> Smaller | None:
        gone = _most_in(fabric, job, within, job.dp - dp)
        kept = [r for r in range(job.dp) if r not in gone]
        hosts = carried(job.request, fabric.gpus_per_host, job.hosts, kept)
        if NEW in hosts:
            return None
        found = on_hosts(fabric, job.at(dp).request, hosts, job.held & ~hostset.of(hosts))
        return None if found is None else _smaller(job, found, job.held)

    def is_enough(dp: int) -> bool:
        found = leaves(dp)
        return found is not None and (found.freed & within).bit_count() >= wanted

    larger_first = [dp for dp in reversed(job.sizes) if dp < job.dp]
    at = bisect_left(larger_first, True, key=is_enough)
    return leaves(larger_first[at]) if at < len(larger_first) else None


def resize(found: Smaller, job: Job, reason: str, end_ns: int) -> Resize:
    """The action that makes `job` so small; it is taken to run until `end_ns` then."""
    return Resize(job.name, found.job.dp, job.hosts, found.placement, reason, end_ns)


def _smaller(job: Job, found: Placement, own: HostSet) -> Smaller:
    freed = own & ~hostset.of(found.hosts + found.spares)
    return Smaller(job.on(len(found.hosts)), found, freed)


def _ever_more(fabric: Fabric, job: Job, hit: Sequence[int]) -> Iterator[frozenset[int]]:
    """The replicas of the block that shares its replicas with most of those hit, then those
    of the next one as well, ...; with them go replicas that share their hosts."""
    gpus = fabric.gpus_per_host
    on = [frozenset(replicas_on(job.request, gpus, block)) for block in hit]
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
    hosts = carried(job.request, fabric.gpus_per_host, job.hosts, kept)
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
    """The `count` replicas with most blocks on these hosts, the last ones first."""
    inside = [0] * job.dp
    for block, host in enumerate(job.hosts):
        if hostset.has(within, host):
            for replica in replicas_on(job.request, fabric.gpus_per_host, block):
                inside[replica] += 1
    return set(sorted(range(job.dp), key=lambda r: (-inside[r], -r))[:count])
