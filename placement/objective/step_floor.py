"""What no layout of a gang on NVLink racks goes below: each axis for itself, as if it could have
the racks to itself.

On hosts without racks of NVLink the links inside a host and its network cards carry the same
whatever the layout, so the step on one switch is exact (tiers/step_clock.py). In a scale-up
domain they do not: an axis may stay inside racks, or leave them. Of an axis

- what stays inside hosts needs the links there;
- all of it needs NVLink and network cards together;
- what has to leave racks needs network cards. A rack holds R ranks at most, so a group of n
  ranks lies in k = ceil(n / R) racks at least. In all-to-all each rank then sends to n - R
  others outside; a ring leaves each of the k racks once, a chain crosses k - 1 times, a
  hierarchical collective k - 1 times its payload, and a double tree no less. Some host sends at
  least the mean.

With the free hosts known: racks with c_r of them hold sum(c_r // s) whole groups of s hosts. Is
that fewer than there are, some group lies in several racks, and in the smallest of its parts,
which is half of it at most, each rank of all-to-all sends to half of the others or more.
Otherwise an axis either lies in racks whole, and NVLink carries all of it, or is parted so
somewhere: it takes the smaller of the two, never a mix.
"""

from __future__ import annotations

from itertools import groupby, product
from math import inf, prod

import numpy as np

from muster.structs import replace, struct
from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import BYTES_PER_S, HOST, NIC, SCALE_UP, AxisLoad
from placement.objective.cut import egress_by_axis
from placement.objective.step_time import AxisTime, StepTime, exposure
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern
from placement.workload.volumes import axis_of


@struct(frozen=True, slots=True)
class _AxisFloor:
    """Seconds of one axis at least. `least_s`: wherever its groups lie; `whole_s`: where each lies
    in one rack; `parted_s`: as soon as one lies in several. `inside_s`, `outside_s`: of that on
    links inside hosts, and on network cards. `hosts`: of a group. `sent`: bytes by rank."""

    traffic: AxisTraffic
    sent: float
    hosts: int
    least_s: float
    whole_s: float
    parted_s: float
    inside_s: float
    outside_s: float


class _Racks:
    """The least seconds of each axis on the NVLink racks of a fabric, or on free hosts there."""

    def __init__(self, fabric: Fabric, request: Request, free: Ints | None) -> None:
        self.request, self.rule = request, exposure(fabric, request)
        self.ranks = request.parallelism.world_size
        self.gpus = request.ranks_per_host(fabric.gpus_per_host)
        own = fabric.by_host
        mine = own.gpus == fabric.gpus_per_host
        self.nvlink = float(own.scale_up_gbps[mine].max()) * self.gpus * BYTES_PER_S
        self.cards = float(own.nic_gbps[mine].max()) * self.gpus * BYTES_PER_S
        self.room = np.bincount(fabric.scale_up_by_host[mine if free is None else free])
        self.most = self.gpus * int(self.room.max())  # ranks of a rack
        self.axes = self._axes()

    @property
    def blocks(self) -> int:
        return self.ranks // self.gpus

    def _axes(self) -> list[_AxisFloor]:
        blocks, gpus, ranks = self.blocks, self.gpus, self.ranks
        leaving = egress_by_axis(self.request, gpus, np.arange(blocks), blocks)
        sending = egress_by_axis(self.request, 1, np.arange(ranks), ranks, gpus)
        axes = []
        for (traffic, out), (_, sent) in zip(leaving, sending, strict=True):
            mean, every = float(sent.sum()) / blocks, sent.reshape(blocks, gpus).sum(axis=1)
            inside = float((every - out).max()) / self.nvlink
            outside = (
                _leaves_racks(traffic, self.most) * (ranks // traffic.size) / blocks / self.cards
            )
            hosts, _ = hosts_of_group(traffic, gpus)
            parted, whole = _parted(traffic, gpus) / self.cards, float(every.max()) / self.nvlink
            if not self.can_hold(hosts):
                outside = max(outside, parted)
            least = max(inside, mean / (self.nvlink + self.cards), outside)
            axes.append(
                _AxisFloor(
                    *(traffic, float(sent.sum()) / ranks, hosts, least),
                    *(max(least, whole), max(least, parted), inside, outside),
                )
            )
        return axes

    def can_hold(self, hosts: int) -> bool:
        """Whether racks have room for the gang in parts of so many hosts that stay whole."""
        return hosts <= 1 or int((self.room // hosts).sum()) >= -(-self.blocks // hosts)

    def step(self) -> StepTime:
        """The step where each axis may have the racks to itself."""
        axes, gpus = [], self.gpus
        for name, rounds in groupby(self.axes, key=lambda axis: axis_of(axis.traffic.axis)):
            parts = tuple(rounds)
            traffic = replace(parts[0].traffic, axis=name)
            seconds = sum(min(each.whole_s, each.parted_s) for each in parts)
            load, longest_s = AxisLoad(traffic, HOST, sum(e.sent for e in parts), ()), seconds
            if traffic.pattern is Pattern.CHAIN:
                hops = _least_hops(traffic, gpus, self.most, self.nvlink, self.cards)
                longest_s = max(seconds, hops)
            axes.append(AxisTime(load, seconds, self.rule.exposed_s(traffic.axis, longest_s)))
        on_cards_s = sum(each.outside_s for each in self.axes)
        inside_s = sum(each.inside_s for each in self.axes)
        link, link_s = (NIC, on_cards_s) if on_cards_s > inside_s else (SCALE_UP, inside_s)
        bubble_s = self.rule.compute_s * float(self.rule.pipeline.bubble)
        return StepTime(self.rule.compute_s, bubble_s, tuple(axes), link, link_s, 0, 0.0)

    def shared_s(self) -> float:
        """Seconds of the step where racks hold what stays in them of all axes at once.

        Of each set of axes whose groups all lie in one rack each: groups that share hosts lie in
        the same one, which therefore holds their product. What no rack holds, or too few, cannot
        be; else some group of every other axis is parted.
        """
        wide = [a for a in self.axes if a.hosts > 1 and not self._has_hops(a)]
        exposed = self.rule.exposed_s
        least_s = inf
        for whole in product((True, False), repeat=len(wide)):
            kept = [axis for axis, is_whole in zip(wide, whole, strict=True) if is_whole]
            together = prod(axis.hosts for axis in kept)
            if not self.can_hold(together):
                continue
            waited_s = 0.0
            for axis in self.axes:
                if self._has_hops(axis):
                    waited_s += self._waits_for_hops(axis, together)
                    continue
                seconds = axis.parted_s
                if axis.hosts <= 1:
                    seconds = min(axis.whole_s, axis.parted_s)
                elif axis in kept:
                    seconds = axis.whole_s
                waited_s += exposed(axis.traffic.axis, seconds)
            least_s = min(least_s, waited_s)
        return self.rule.compute_s * (1 + float(self.rule.pipeline.bubble)) + least_s

    def _has_hops(self, axis: _AxisFloor) -> bool:
        return axis.traffic.pattern is Pattern.CHAIN and axis.hosts > 1

    def _waits_for_hops(self, axis: _AxisFloor, together: int) -> float:
        """Seconds that the step waits for messages between stages where `together` hosts of each
        stage share a rack.

        A rack holds so many stages; as many hops in a row would join one more, so one of them
        leaves racks. All tails of the pipeline have that many hops out of racks, and the step
        waits for no less if they are as far behind as they may be. Where chunks wrap, stages form
        a ring, and either the last hop leaves racks as well or one more of the others does.
        """
        traffic, p = axis.traffic, axis.traffic.size
        _, inside = hosts_of_group(traffic, self.gpus)
        stages = self.most // (self.gpus * together) * inside
        if stages >= p and not self.can_hold(together * axis.hosts):
            stages = p - 1
        lines = self.gpus // inside
        near = lines / max(self.nvlink, self.cards)
        far = lines / self.cards
        hops = [far if (p - 1 - hop) % stages == 0 else near for hop in range(p - 1)]
        hops = [traffic.edge_bytes * each for each in hops]
        if traffic.wrap_bytes:
            wrap = traffic.wrap_bytes * near
            if stages < p:
                other = wrap + traffic.edge_bytes * (far - near)
                wrap = min(traffic.wrap_bytes * far, other)
            hops.append(wrap)
        return self.rule.exposed_s(traffic.axis, axis.least_s, hops)


def step_floor(fabric: Fabric, request: Request, free: Ints | None = None) -> StepTime:
    """Return a step that is no slower than any on the fabric's NVLink racks, or on its free hosts,
    in which each axis may have the racks to itself."""
    return _Racks(fabric, request, free).step()


def least_step_s(fabric: Fabric, request: Request, free: Ints) -> float:
    """Return the seconds below which no step on the free hosts of NVLink racks goes."""
    racks = _Racks(fabric, request, free)
    return max(racks.step().seconds, racks.shared_s())


def _least_hops(traffic: AxisTraffic, gpus: int, most: int, nvlink: float, cards: float) -> float:
    """Seconds of all hops of a pipeline at least: those out of racks of `most` ranks by network
    cards, the others by NVLink, each of all pipelines that a host holds at once."""
    _, inside = hosts_of_group(traffic, gpus)
    if not inside:
        return 0.0
    out = -(-traffic.size // most) - 1
    sent = traffic.edge_bytes * (gpus // inside)
    return sent * ((traffic.size - 1 - out) / max(nvlink, cards) + out / cards)


def hosts_of_group(traffic: AxisTraffic, gpus: int) -> tuple[int, int]:
    """Hosts of a group, and its ranks on each of them; (1, 0) where hosts end inside groups."""
    if traffic.stride % gpus and (gpus % traffic.stride or traffic.stride * traffic.size % gpus):
        return 1, 0
    inside = max(1, gpus // traffic.stride)
    return traffic.size // inside, inside


def _parted(traffic: AxisTraffic, gpus: int) -> float:
    """Bytes that leave the rack of some host at least, as soon as one group lies in several."""
    w, n = traffic.edge_bytes, traffic.size
    hosts, inside = hosts_of_group(traffic, gpus)
    if hosts <= 1:
        return 0.0
    lines = gpus // inside
    match traffic.pattern:
        case Pattern.ALL_TO_ALL:
            return float(w) * gpus * (n - hosts // 2 * inside)
        case Pattern.RING:
            return float(w) * lines
        case Pattern.CHAIN:
            return w * lines / 2
        case Pattern.HIERARCHICAL:
            return lines * w * n / (n - 1) / hosts
        case Pattern.TREE:  # one edge of one tree, which carries half of the vector each way
            return lines * w * n / (n - 1) / 4
        case Pattern.PAIRS:
            return 0.0


def _leaves_racks(traffic: AxisTraffic, most: int) -> float:
    """Bytes of one group that leave racks of `most` ranks at least."""
    w, n = traffic.edge_bytes, traffic.size
    racks = -(-n // most)
    if racks == 1:
        return 0.0
    match traffic.pattern:
        case Pattern.ALL_TO_ALL:
            return float(w) * n * (n - most)
        case Pattern.RING:
            return float(w) * racks
        case Pattern.CHAIN:
            return float(w) * (racks - 1)
        case Pattern.HIERARCHICAL | Pattern.TREE:
            return w * n / (n - 1) * (racks - 1)
        case Pattern.PAIRS:
            return 0.0
