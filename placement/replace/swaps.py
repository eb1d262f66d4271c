"""The swap that adds the least cut: a host for each block that lost its own.

Only the edges of the moved block change, so a domain's price is what those edges cut
with the block there. Domains without a partner of the block all cost the same. Where a job is
placed by its step, a host that makes it longer gives way to one that does not, if there is one.
See docs/engine.md, "Near an old placement".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.constraints import joinable, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.links import barred_text, seconds_over
from placement.fabric.tree import Fabric, Floats, Ints, Tier
from placement.objective.cut import cut
from placement.tiers.step_clock import step_clock
from placement.workload.request import Objective, Request, TierCut
from placement.workload.segments import may_take
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, groups_of
from placement.workload.trees import tree_edges

MOST_TIMED = 16  # blocks that lost their hosts at once; beyond, the cut alone decides
MOST_OTHER_ZONES = 3  # where a host is looked for with which the step is shorter


@struct(frozen=True, slots=True)
class Swaps:
    """A swap for each failed block, (block, host that takes it over), and the cuts that result."""

    joined: tuple[tuple[int, int], ...]
    cuts: tuple[TierCut, ...]


@with_gang_view
def choose_swaps(
    fabric: Fabric,
    request: Request,
    hosts: Sequence[int],
    blocks: Sequence[int],
    own: HostSet,
    free: HostSet,
) -> Swaps | None:
    """Choose hosts for the `blocks` that lost theirs, or None when too few can be had that keep the
    constraints of the request.

    Order: the least cut over the outermost tier, then the domain that it was in, then a spare of
    one's own before a free host, then the least cut over the inner tiers, then a spare that leaves
    spare racks whole, unless its rack lost other hosts, then the lowest host number. With the
    objective *time* the step comes before all that. Blocks are served one after the other. Cost:
    under a millisecond a block; with the objective *time* some 20 ms where the step would take
    longer.
    """
    now = np.array(hosts, dtype=np.int64)
    joined = []
    leaving = set(blocks)
    kept = own | hostset.of(host for block, host in enumerate(hosts) if block not in leaving)
    together = _together(fabric, [hosts[block] for block in blocks])
    for block in blocks:
        may = joinable(fabric, request.where, kept)
        if request.where.has_segments:
            may &= may_take(fabric, request, now.tolist(), block, leaving, may & (own | free))
        swap = _Swap(fabric, request, now, block, own & may, free & may)
        if not len(swap.candidates):
            return None
        best = swap.of_least_cut(is_whole=hosts[block] in together)
        if request.objective is Objective.TIME and len(blocks) <= MOST_TIMED:
            best = swap.fastest(best)
        now[block] = best
        leaving.discard(block)
        joined.append((block, best))
        kept |= 1 << best
        own &= ~(1 << best)
        free &= ~(1 << best)
    if fabric.barred and barred_text(fabric, hostset.of(now.tolist())):
        return None
    return Swaps(tuple(joined), cut(fabric, request, now.tolist()))


def _together(fabric: Fabric, left: Sequence[int]) -> set[int]:
    """The hosts left that share their rack with another one."""
    if len(left) < 2 or len(fabric.tiers) < 2:
        return set()
    rack_of = fabric.tiers[-1].domain_by_host
    racks = Counter(int(rack_of[host]) for host in left)
    return {host for host in left if racks[int(rack_of[host])] > 1}


class _Swap:
    """A block that lost its host, and the hosts that it may take: one's `own`, and `free` ones.
    `hosts`: of all blocks, its old one among them."""

    def __init__(
        self,
        fabric: Fabric,
        request: Request,
        hosts: Ints,
        block: int,
        own: HostSet,
        free: HostSet,
    ) -> None:
        self._fabric, self._request, self._hosts, self._block = fabric, request, hosts, block
        self._is_own = hostset.to_mask(own, fabric.host_count)
        self.candidates = hostset.indices(own | free)

    def of_least_cut(self, *, is_whole: bool) -> int:
        """Walk down the tree: on each tier keep the hosts in domains of the least cut.
        `is_whole`: its rack lost other hosts: the fullest spare rack comes first."""
        candidates, tiers = self.candidates, self._fabric.tiers
        for depth, tier in enumerate(tiers):
            if depth == 1:
                candidates = self._owned_first(candidates)
            domain_of = tier.domain_by_host
            cost = self._cut_in(tier)[domain_of[candidates]]
            candidates = candidates[cost <= cost.min()]
            if depth == 0:
                at_home = candidates[domain_of[candidates] == domain_of[self._hosts[self._block]]]
                candidates = at_home if len(at_home) else candidates
        candidates = self._owned_first(candidates)
        if len(tiers) < 2 or len(candidates) < 2 or not self._is_own[candidates[0]]:
            return int(candidates[0])
        rack = tiers[-1].domain_by_host[candidates]
        left_in_rack = np.bincount(rack)[rack]
        return int(candidates[np.argmax(left_in_rack) if is_whole else np.argmin(left_in_rack)])

    def _owned_first(self, candidates: Ints) -> Ints:
        owned = candidates[self._is_own[candidates]]
        return owned if len(owned) else candidates

    def _cut_in(self, tier: Tier) -> Floats:
        gpus, domain = self._fabric.gpus_per_host, tier.domain_by_host[self._hosts]
        return added_cut(self._request, gpus, domain, self._block, len(tier.domains))

    def fastest(self, by_cut: int) -> int:
        """Return `by_cut`, or the first host with a shorter step, where the step grows with that
        one."""
        clock, hosts = step_clock(self._fabric, self._request), self._hosts.tolist()

        def delay(host: int) -> int:
            return clock.delay([*hosts[: self._block], host, *hosts[self._block + 1 :]])

        best, least = by_cut, delay(by_cut)
        # A block without a host may stand for the time being on its neighbour's: no step is like
        # that.
        as_now = clock.delay(hosts) if len(set(hosts)) == len(hosts) else 0
        for host in self._roomier(by_cut):
            if least <= as_now:
                break
            if (slower := delay(host)) < least:
                best, least = host, slower
        return best

    def _roomier(self, by_cut: int) -> Iterator[int]:
        """Hosts in innermost domains whose uplink is shared by few of the gang, one's own and any,
        in the zone of `by_cut`, the zone that the block was in, and others that cut little."""
        if not self._fabric.tiers:
            return
        outer, inner = self._fabric.tiers[0], self._fabric.tiers[-1]
        others = inner.domain_by_host[np.delete(self._hosts, self._block)]
        crowd = np.bincount(others, minlength=len(inner.domains)).astype(np.float64) + 1
        crowded = seconds_over(crowd, inner.uplink_bytes_per_s)[inner.domain_by_host]
        zone_of, cost = outer.domain_by_host, self._cut_in(outer)
        zones = np.unique(zone_of[self.candidates]).tolist()
        cheap = sorted(zones, key=lambda zone: (cost[zone], zone))
        near = [int(zone_of[by_cut]), int(zone_of[self._hosts[self._block]])]
        for zone in dict.fromkeys([*near, *cheap[:MOST_OTHER_ZONES]]):
            there = self.candidates[zone_of[self.candidates] == zone]
            is_other = ~self._is_own[there]
            for first in (is_other, np.zeros(len(there))):
                in_order = np.lexsort((there, is_other, crowded[there], first))
                yield from map(int, there[in_order[:1]])


def added_cut(
    request: Request, gpus_per_host: int, domain_by_block: Ints, block: int, domains: int
) -> Floats:
    """Return the bytes that the edges of `block` would cut in each domain. Shape: (domains,).

    A hierarchical axis counts what one more domain in its groups would add.
    """
    cost = np.zeros(domains)
    ranks = block * gpus_per_host + np.arange(gpus_per_host)
    for traffic in axis_traffic(request, gpus_per_host):
        if traffic.pattern is Pattern.PAIRS:
            cost += _pair_edges(traffic, ranks, gpus_per_host, domain_by_block, domains)
        elif not traffic.ranks or 0 <= ranks[0] - traffic.first < traffic.ranks:
            cost += _edges(traffic, ranks, gpus_per_host, domain_by_block, block, domains)
    return cost


def _pair_edges(
    traffic: AxisTraffic, ranks: Ints, gpus: int, domain_by_block: Ints, domains: int
) -> Floats:
    """Compute what a block cuts of the bytes between its role and another."""
    domain = np.repeat(domain_by_block, gpus)
    near, far = np.split(groups_of(np.arange(len(domain)), traffic)[0], [traffic.ranks])
    is_there = [bool(np.isin(ranks[0], side)) for side in (near, far)]
    if not any(is_there):
        return np.zeros(domains)
    others = domain[far if is_there[0] else near]
    apart = len(others) - np.bincount(others, minlength=domains)
    return np.asarray(apart * float(traffic.edge_bytes * gpus))


def _edges(
    traffic: AxisTraffic, ranks: Ints, gpus: int, domain_by_block: Ints, block: int, domains: int
) -> Floats:
    """Compute what the edges of a block's ranks along one axis cut, by the domain of the block."""
    n, w = traffic.size, traffic.edge_bytes
    ranks, first = ranks - traffic.first, traffic.first
    if traffic.pattern is Pattern.HIERARCHICAL:  # only the set of domains of a group matters
        first_of_group = ranks - ranks // traffic.stride % n * traffic.stride
        ranks = ranks[np.unique(first_of_group, return_index=True)[1]]
    at = (ranks // traffic.stride % n)[:, None]
    neighbours = at + np.array([-1, 1])
    match traffic.pattern:
        case Pattern.RING:
            to, weight = neighbours % n, np.full(neighbours.shape, float(w))
        case Pattern.CHAIN:
            is_there = (neighbours >= 0) & (neighbours < n)
            wrap = np.where((at == 0) | (at == n - 1), float(traffic.wrap_bytes), 0.0)
            to = np.hstack([np.where(is_there, neighbours, at), n - 1 - at])
            weight = np.hstack([np.where(is_there, float(w), 0.0), wrap])
        case Pattern.TREE:
            to = np.broadcast_to(np.arange(n), (len(ranks), n))
            tail, head, parts = tree_edges(n, traffic.node)
            each = 2.0 * float(traffic.tree_part) * parts
            mine = [tail == rank for rank in at[:, 0]]
            weight = np.array([np.bincount(head[m], each[m], n) for m in mine])
        case _:
            to = np.broadcast_to(np.arange(n), (len(ranks), n))
            weight = np.full(to.shape, 2.0 * w)
    others = (first + ranks[:, None] + (to - at) * traffic.stride) // gpus
    weight[others == block] = 0
    domain = domain_by_block[others]
    if traffic.pattern is Pattern.HIERARCHICAL:
        domain += domains * np.arange(len(ranks))[:, None]
        there = np.bincount(domain[others != block], minlength=domains * len(ranks))
        return np.asarray((there.reshape(-1, domains) == 0).sum(axis=0) * (w * n / (n - 1)))
    inside_bytes = np.bincount(domain.ravel(), weights=weight.ravel(), minlength=domains)
    return np.asarray(weight.sum() - inside_bytes)
