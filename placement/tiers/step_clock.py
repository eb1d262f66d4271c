"""The step as what is minimised: how late hosts make it, what a byte costs it, and its bound.

Nothing is faster than one switch that joins all hosts: there each axis takes what the links
inside hosts and the hosts' network cards need. Most placements come within a thousandth of that,
and then no more is searched. Where uplinks hold up the step, bytes get prices: what a byte of
each axis adds to the step, between what the network cards take of it in any case and what its
busiest uplink takes now. The cut that is least at these prices is another candidate.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from math import isfinite
from random import Random

import numpy as np

from muster.structs import replace
from placement.bound.size_relaxation import is_priceable, size_bound
from placement.fabric.constraints import with_gang_view
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric, Floats, Hardware, Ints, Tier
from placement.grid.block_grid import block_grid
from placement.kernels import INFINITE
from placement.objective.axis_loads import shared_links
from placement.objective.distance_floor import NearStep, least_distant_step_s
from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_floor import least_step_s, step_floor
from placement.objective.step_time import StepTime, exposure, fastest_gpu, step_time
from placement.workload.request import Collective, Request
from placement.workload.traffic import FULL_PRICE, Pattern, axis_traffic, without_trees

LEAST_PRICE = FULL_PRICE // 100  # of bytes that hide: of two such layouts the tidier is taken
AT_FIRST = 1.01  # times the least that an axis takes: where its slope is taken at the least
MOST_PRICINGS = 3  # times that prices follow from a layout and layouts from prices
MOST_RACK_SHARES = 3  # numbers of hosts of an NVLink rack that groups fill
MOST_LINK_LEVELS = 3  # of what uplinks have left, by tier
NEAR_BOUND = 1.005  # times the bound on NVLink racks
RESOLUTION = 1_000  # steps are told apart by so small a part of the least


class StepClock:
    """Times steps of one request on hosts of one fabric, and bounds them."""

    def __init__(self, fabric: Fabric, request: Request) -> None:
        self._fabric, self._request = fabric, request

    @cached_property
    def on_one_switch(self) -> StepTime:
        """The step on a network that never holds it up; on NVLink racks no layout is faster."""
        if self._fabric.has_scale_up_tier:
            if self.of_roles:  # the slowest, as if it had the racks to itself
                return max((c.on_one_switch for c in self.of_roles), key=lambda step: step.seconds)
            return step_floor(self._fabric, self._request)
        if self._request.roles:
            gang = self._request.hosts_needed(self._fabric.gpus_per_host)
            return step_time(self._switch, self._request, range(gang))
        return self._near.step

    @cached_property
    def _switch(self) -> Fabric:
        """One switch that joins hosts as fast as the fastest."""
        fabric, own = self._fabric, self._fabric.by_host
        mine = own.gpus == fabric.gpus_per_host
        fastest = Hardware(
            np.full(fabric.host_count, fabric.gpus_per_host),
            np.full(fabric.host_count, own.nic_gbps[mine].max(initial=0.0)),
            np.full(fabric.host_count, own.scale_up_gbps[mine].max(initial=0.0)),
            kinds=(fastest_gpu(fabric, self._shapes[0]),),
        )
        # A hierarchy over domains has fewer messages in turn than one over all hosts at once.
        late_s = 0.0 if self._has_hierarchies else fabric.latency_s
        return replace(fabric, tiers=(), by_host=fastest, latency_s=late_s)

    @cached_property
    def _near(self) -> NearStep:
        rule, switch = exposure(self._fabric, self._request), self._switch
        hosts = range(self._request.hosts_needed(self._fabric.gpus_per_host))
        step = step_time(switch, self._request, hosts, rule=rule)
        links = shared_links(switch, self._request, hosts) if rule.counts_stages else {}
        return NearStep(step, rule, links)

    @property
    def _has_hierarchies(self) -> bool:
        return any(t.pattern is Pattern.HIERARCHICAL for t in axis_traffic(self._request))

    @cached_property
    def _shapes(self) -> list[Request]:
        """Return what computes in a step: the roles that say how long they take, or the gang."""
        roles = [role.request for role in self._request.roles]
        return [shape for shape in roles if shape.has_step_time] or [self._request]

    @cached_property
    def of_roles(self) -> list[StepClock]:
        """The clocks of the roles that say how long they take."""
        shapes = self._shapes if self._request.roles else []
        return [StepClock(self._fabric, shape) for shape in shapes]

    def step(self, hosts: Sequence[int]) -> StepTime:
        return step_time(self._fabric, self._request, hosts)

    def delay(self, hosts: Sequence[int]) -> int:
        """How much slower the step is than on one switch, in parts of RESOLUTION."""
        return self._delay_of(self.step(hosts).seconds)

    def _delay_of(self, seconds: float) -> int:
        least_s = self.on_one_switch.seconds
        if not least_s:
            return 0
        slower = (seconds / least_s - 1) * RESOLUTION
        return int(slower) if isfinite(slower) else INFINITE  # an uplink that it needs is down

    @property
    def cut_slack(self) -> float:
        """How much longer than the shortest a step may be for a smaller cut, as a share of it."""
        wanted = self._request.cut_slack
        return fitted_constants().resolution if wanted is None else wanted

    @property
    def slack(self) -> int:
        """`cut_slack` in parts of RESOLUTION."""
        return int(self.cut_slack * RESOLUTION)

    def excess(self, hosts: Sequence[int]) -> int:
        """How much slower the step is than on one switch, beyond what may be given up for the
        cut; in parts of RESOLUTION."""
        return max(0, self.delay(hosts) - self.slack)

    def good_delay(self, free: Ints) -> int:
        """Return the delay up to which more search is not worth its time: nearly as fast as on one
        switch, or, on NVLink racks, where nothing is that fast, near what no placement on the free
        hosts goes below."""
        if not self._fabric.has_scale_up_tier:
            return self.slack
        return self._delay_of(self.bound(free) * max(NEAR_BOUND, 1 + self.cut_slack))

    def shorten(self, hosts: tuple[int, ...], free: Ints, tries: int) -> tuple[int, ...]:
        """Exchange blocks for one another, or their hosts for free ones, while no step gets longer.

        Unlike prices, this sees which link is busiest. The exchanges are drawn at random; those
        inside an innermost domain are left out, for they change no uplink.
        """
        tiers, draw = self._fabric.tiers, Random(f"shorten {hosts}")
        rest = np.setdiff1d(free, hosts).tolist()
        if not tiers or len(hosts) < 2:
            return hosts
        domain, at, shortest = tiers[-1].domain_by_host, [*hosts, *rest], self.step(hosts).seconds
        for _ in range(tries):
            block, other = draw.randrange(len(hosts)), draw.randrange(len(at))
            if domain[at[block]] == domain[at[other]]:
                continue
            at[block], at[other] = at[other], at[block]
            seconds = self.step(at[: len(hosts)]).seconds
            if seconds <= shortest:
                shortest = seconds
            else:
                at[block], at[other] = at[other], at[block]
        return tuple(at[: len(hosts)])

    def prices(self, step: StepTime) -> tuple[tuple[str, int], ...]:
        """Return each axis' price of a byte, in thousandths of its time in the step. It includes
        the latency of messages. Bytes of roles that others wait for cost nothing."""
        if self._request.roles:
            costs = {t.load.traffic.axis: t.exposed_s / t.seconds for t in step.axes if t.seconds}
            return tuple(
                (each.axis, max(LEAST_PRICE, round(FULL_PRICE * costs.get(each.axis, 0.0))))
                for each in axis_traffic(self._request)
            )
        rule, prices = exposure(self._fabric, self._request), []
        for least, now in zip(self.on_one_switch.axes, step.axes, strict=True):
            axis, start_s, late_s = now.load.traffic.axis, least.seconds, now.load.latency_s
            if now.load.hops:  # each of which a byte may be on
                slope = now.exposed_s / (max(now.load.hops) - late_s)
            else:
                slope = rule.slope(axis, start_s, max(now.seconds, start_s * AT_FIRST))
                slope *= now.seconds / (now.seconds - late_s) if late_s else 1.0
            prices.append((axis, max(LEAST_PRICE, round(FULL_PRICE * slope))))
        return tuple(prices)

    def thin_hosts(self, free: Ints, needed: int) -> Iterator[Ints]:
        """Yield the free hosts, and then fewer hosts of each innermost domain whose uplink carries
        less than its hosts send, for hosts that share it with fewer others have more of it. Of
        NVLink racks, as many hosts as whole groups of an axis take, or equal parts of a group."""
        yield free
        if not self._fabric.tiers:
            return
        tier = self._fabric.tiers[-1]
        rank = tier.nth(free)
        sizes: Sequence[int] = range(1, int(rank.max()) + 1)
        each = self._fabric.injection_bytes_per_s
        if (tier.uplink_bytes_per_s >= np.bincount(tier.domain_by_host, each)).all():
            sizes = self._even_group_sizes(int(rank.max()) + 1)
        for most in sizes:
            some = free[rank < most]
            if len(some) >= needed:
                yield some

    def _even_group_sizes(self, room: int) -> Sequence[int]:
        """Hosts of an NVLink rack, of `room` that are free, that groups fill evenly."""
        if not self._fabric.has_scale_up_tier:
            return ()
        groups, gpus = set(), self._fabric.gpus_per_host
        for traffic in axis_traffic(self._request):
            blocks = traffic.size * max(1, traffic.stride // gpus) // max(1, gpus // traffic.stride)
            for group in {blocks, traffic.size} if traffic.stride >= gpus else {blocks}:
                if group > 1:
                    racks = -(-group // room)
                    groups |= {-(-group // racks), -(-group // (racks + 1))}
        return sorted(groups & set(range(1, room)), reverse=True)[:MOST_RACK_SHARES]

    def behind_better_links(self, free: Ints, needed: int) -> Iterator[Ints]:
        """Yield the free hosts without those of domains whose uplink has lost most of its capacity,
        level by level; and without those of slow network cards or GPUs."""
        cards = self._fabric.by_host.nic_gbps[free]
        for slow in np.unique(cards)[:-1][::-1]:
            some = free[cards > slow]
            if len(some) >= needed:
                yield some
        yield from self._on_faster_gpus(free, needed)
        for tier, built in zip(self._fabric.tiers, self._fabric.as_built.tiers, strict=True):
            left = (tier.uplink_bytes_per_s / built.uplink_bytes_per_s)[tier.domain_by_host[free]]
            levels = np.unique(left)[:-1]
            for most in levels[:: -(-len(levels) // MOST_LINK_LEVELS) or 1]:
                some = free[left > most]
                if len(some) >= needed:
                    yield some

    def _on_faster_gpus(self, free: Ints, needed: int) -> Iterator[Ints]:
        """The free hosts without those of the kinds of GPU that take longest, kind by kind."""
        by_host = self._fabric.by_host
        if by_host.kind_by_host is None:
            return
        kind = by_host.kind_by_host[free]
        present = np.unique(kind)
        one = {k: int(free[kind == k][0]) for k in present.tolist()}
        seconds = {
            k: max(exposure(self._fabric, shape, hosts=[h]).compute_s for shape in self._shapes)
            for k, h in one.items()
        }
        for slow in sorted(set(seconds.values()), reverse=True)[:-1]:
            some = free[np.isin(kind, [k for k in seconds if seconds[k] < slow])]
            if len(some) >= needed:
                yield some

    def bound(self, free: Ints) -> float:
        """Return the seconds below which no placement on the free hosts goes."""
        if self._request.roles:  # none is faster than with all hosts to itself
            alone = max(clock.bound(free) for clock in self.of_roles)
            is_mixed = self._fabric.by_host.kind_by_host is not None
            return alone if is_mixed else max(alone, self.on_one_switch.seconds)
        best = self.on_one_switch.seconds
        if self._fabric.has_scale_up_tier:
            best = least_step_s(self._fabric, self._request, free)
        elif self._fabric.has_latency:
            far_s = least_distant_step_s(self._fabric, self._request, free, self._near)
            best = max(best, far_s)
        # What hierarchies send out of a domain is not known of the domain alone.
        if self._has_hierarchies:
            return best
        return max([best, *self._by_uplinks(free)])

    def _by_uplinks(self, free: Ints) -> Iterator[float]:
        """Domains that hold the gang have to hold so many blocks; the least that as many send.

        An axis takes no less than on any uplink, and what is exposed of it grows at least as
        fast as at the beginning.
        """
        rule, least = exposure(self._fabric, self._request), self.on_one_switch
        slopes, already_s = {}, {}
        for each in least.axes:
            axis, s = each.load.traffic.axis, each.seconds
            slopes[axis] = int(FULL_PRICE * rule.slope(axis, s, s * AT_FIRST))
            # Hops, and stages on an uplink, cost a share of its time, no matter what on one switch.
            passed_s = each.exposed_s - rule.least_exposed_s(axis, s)
            already_s[axis] = passed_s + slopes[axis] * s / FULL_PRICE
        # The busiest link says nothing of what an axis adds.
        alone_s = least.compute_s + least.bubble_s + least.exposed_s
        exposed = [axis for axis, slope in slopes.items() if slope]
        # A domain with a part of a tree's group sends the vector, half of it on an edge of each
        # tree; on the edge of a ring it would send 2 (n-1)/n of it.
        rings, shares = without_trees(self._request, Collective.RING), dict.fromkeys(slopes, 1.0)
        for traffic in axis_traffic(self._request):
            if traffic.pattern is Pattern.TREE:
                shares[traffic.axis] = traffic.size / (2 * (traffic.size - 1))
        for axes in [*([axis] for axis in exposed), exposed]:
            prices = {axis: slopes[axis] if axis in axes else 0 for axis in slopes}
            already = sum(already_s[axis] for axis, price in prices.items() if price)
            sent = tuple((axis, int(price * shares[axis])) for axis, price in prices.items())
            priced = replace(rings, prices=sent)
            for tier in self._fabric.tiers:
                busiest = _least_busiest(self._fabric, free, priced, tier)
                yield alone_s + busiest - already


@with_gang_view
@lru_cache(maxsize=64)
def step_clock(fabric: Fabric, request: Request) -> StepClock:
    """Return the clock of a gang, from a cache, for a search asks for it many times."""
    return StepClock(fabric, request)


@lru_cache(maxsize=256)
def _egress(request: Request, gpus_per_host: int, most: int) -> Floats | None:
    """The least bytes that leave a domain of 0 .. `most` blocks; None where that is unknown."""
    grid = block_grid(request, gpus_per_host)
    if grid is None or not grid.weights or not is_priceable(grid, most):
        return None
    leaving = size_bound(grid).part_costs(most) * float(grid.unit) / 2
    leaving[0] = 0.0
    return np.asarray(leaving, dtype=np.float64)


def _least_busiest(fabric: Fabric, free: Ints, request: Request, tier: Tier) -> float:
    """Seconds of the busiest uplink of a tier at least: the smallest within which domains still
    take the whole gang."""
    gang = request.hosts_needed(fabric.gpus_per_host)
    room = tier.count(free)
    leaving = _egress(request, fabric.gpus_per_host, min(gang, int(room.max())))
    if leaving is None:
        return 0.0
    speeds = tier.uplink_bytes_per_s
    kinds, many = np.unique(np.stack([np.minimum(room, gang), speeds]), axis=1, return_counts=True)
    blocks = np.arange(len(leaving))
    takes = [
        (seconds_over(leaving[: int(most) + 1], float(speed)), count)
        for (most, speed), count in zip(kinds.T, many, strict=True)
    ]

    def holds(seconds: float) -> bool:
        held = sum(int(blocks[: len(each)][each <= seconds].max()) * int(n) for each, n in takes)
        return held >= gang

    every = np.unique(np.concatenate([each for each, _ in takes]))
    low, high = 0, len(every) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(float(every[middle])) else (middle + 1, high)
    return float(every[low])
