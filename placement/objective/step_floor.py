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
  hierarchical collective k - 1 times its payload. Some host sends at least the mean.

With the free hosts known: racks with c_r of them hold sum(c_r // s) whole groups of s hosts. Is
that fewer than there are, some group lies in several racks, and in the smallest of its parts,
which is half of it at most, each rank of all-to-all sends to half of the others or more.
Otherwise an axis either lies in racks whole, and NVLink carries all of it, or is parted so
somewhere: it takes the smaller of the two, never a mix.
"""

from __future__ import annotations

import numpy as np

from placement.fabric.tree import Fabric, Ints
from placement.objective.axis_loads import BYTES_PER_S, HOST, NIC, SCALE_UP, AxisLoad
from placement.objective.cut import egress_by_axis
from placement.objective.step_time import AxisTime, StepTime, exposure
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern


def step_floor(fabric: Fabric, request: Request, free: Ints | None = None) -> StepTime:
    """A step that is no slower than any on the fabric's NVLink racks, or on its free hosts."""
    ranks = request.parallelism.world_size
    gpus = request.ranks_per_host(fabric.gpus_per_host)
    blocks, own = ranks // gpus, fabric.by_host
    mine = own.gpus == fabric.gpus_per_host
    nvlink = float(own.scale_up_gbps[mine].max()) * gpus * BYTES_PER_S
    cards = float(own.nic_gbps[mine].max()) * gpus * BYTES_PER_S
    room = np.bincount(fabric.scale_up_by_host[mine if free is None else free])
    most = gpus * int(room.max())  # ranks of a rack
    rule, axes, on_cards_s, inside_s = exposure(fabric, request), [], 0.0, 0.0
    leaving = egress_by_axis(request, gpus, np.arange(blocks), blocks)
    sending = egress_by_axis(request, 1, np.arange(ranks), ranks)
    for (traffic, out), (_, sent) in zip(leaving, sending, strict=True):
        mean, every = float(sent.sum()) / blocks, sent.reshape(blocks, gpus).sum(axis=1)
        inside = float((every - out).max()) / nvlink
        outside = _leaves_racks(traffic, most) * (ranks // traffic.size) / blocks / cards
        parted, whole = _parted(traffic, gpus) / cards, float(every.max()) / nvlink
        if not _holds_groups(traffic, gpus, blocks, room):
            outside = max(outside, parted)
        seconds = max(inside, mean / (nvlink + cards), outside, min(whole, parted))
        inside_s, on_cards_s = inside_s + inside, on_cards_s + outside
        load = AxisLoad(traffic, HOST, float(sent.sum()) / ranks, ())
        longest_s = seconds
        if request.has_hops and traffic.pattern is Pattern.CHAIN:
            longest_s = max(seconds, _least_hops(traffic, gpus, most, nvlink, cards))
        axes.append(AxisTime(load, seconds, rule.exposed_s(traffic.axis, longest_s)))
    link, link_s = (NIC, on_cards_s) if on_cards_s > inside_s else (SCALE_UP, inside_s)
    bubble_s = rule.compute_s * float(rule.pipeline.bubble)
    return StepTime(rule.compute_s, bubble_s, tuple(axes), link, link_s, 0, 0.0)


def _least_hops(traffic: AxisTraffic, gpus: int, most: int, nvlink: float, cards: float) -> float:
    """Seconds of all hops of a pipeline at least: those out of racks of `most` ranks by network
    cards, the others by NVLink, each of all pipelines that a host holds at once."""
    _, inside = _hosts_of_group(traffic, gpus)
    if not inside:
        return 0.0
    out = -(-traffic.size // most) - 1
    sent = traffic.edge_bytes * (gpus // inside)
    return sent * ((traffic.size - 1 - out) / max(nvlink, cards) + out / cards)


def _hosts_of_group(traffic: AxisTraffic, gpus: int) -> tuple[int, int]:
    """Hosts of a group, and its ranks on each of them; (1, 0) where hosts end inside groups."""
    if traffic.stride % gpus and (gpus % traffic.stride or traffic.stride * traffic.size % gpus):
        return 1, 0
    inside = max(1, gpus // traffic.stride)
    return traffic.size // inside, inside


def _holds_groups(traffic: AxisTraffic, gpus: int, blocks: int, room: Ints) -> bool:
    """Whether racks with `room` for so many hosts may hold all groups whole."""
    hosts, _ = _hosts_of_group(traffic, gpus)
    return hosts <= 1 or int((room // hosts).sum()) >= blocks // hosts


def _parted(traffic: AxisTraffic, gpus: int) -> float:
    """Bytes that leave the rack of some host at least, as soon as one group lies in several."""
    w, n = traffic.edge_bytes, traffic.size
    hosts, inside = _hosts_of_group(traffic, gpus)
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
        case Pattern.HIERARCHICAL:
            return w * n / (n - 1) * (racks - 1)
