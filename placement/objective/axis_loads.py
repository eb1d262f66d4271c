"""Which layer of the network each axis of a placement runs on, and how busy that is.

Layers from the inside: the links inside a host or a scale-up tier (NVLink), the hosts'
network cards, then the uplinks of the fabric's tiers, innermost first. Where the racks of a
fabric are scale-up domains, network cards carry what leaves a rack and NVLink the rest. Meta
calls choosing them "assigning parallelism to topology layers" (RoCE, SIGCOMM 2024): a
placement has chosen, and this table says what it chose. All flows are spread perfectly over
the links of a layer; what hashing makes of them is in network.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod

import numpy as np

from muster.structs import replace, struct
from placement.fabric.constraints import with_gang_view
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric, Floats, Ints
from placement.objective.cut import egress_by_axis, egress_by_host, leaving
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic, groups_of
from placement.workload.trees import both_trees
from placement.workload.volumes import axis_of, passes_per_step

SCALE_UP = "scale-up"
NIC = "nic"
HOST = "host"
EVERYWHERE = "fabric"
BYTES_PER_S = 1e9 / 8  # of one Gbit/s


@struct(frozen=True, slots=True)
class LinkKind:
    """One kind of link (layer). `inside`: the word for a domain below such a link; `names`: these
    domains. `bytes_per_s`: out of each domain, one direction; shape (domains,)."""

    name: str
    inside: str
    names: tuple[str, ...]
    bytes_per_s: Floats


@struct(frozen=True, slots=True)
class Load:
    """The bytes that one axis sends over one layer. `seconds`: of its busiest domain, alone on
    it."""

    layer: str
    domain: str
    bytes_per_step: int
    busiest_bytes_per_step: int
    seconds: float


@struct(frozen=True, slots=True)
class AxisLoad:
    """The traffic of one axis: the domain that holds each of its groups, and its loads, innermost
    layer first.

    `runs_on`: the smallest kind of domain that no group leaves, "fabric" when some group crosses
    the outermost tier. `bytes_per_gpu`: sent per step by a rank, on average. `hops`: of a pipeline,
    seconds of all messages between one stage and the next, there and back, where only this pair of
    stages sends; between the last and the first at the end, where chunks wrap. `latency_s`: of a
    step's messages in turn, beside their bytes; of a pipeline in `hops` too. `rounds`: of a
    collective whose rounds have partners of their own, one after the other.
    """

    traffic: AxisTraffic
    runs_on: str
    bytes_per_gpu: float
    loads: tuple[Load, ...]
    hops: tuple[float, ...] = ()
    latency_s: float = 0.0
    rounds: tuple[AxisLoad, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds on the layer that takes longest, and of messages beside their bytes; rounds one
        after the other."""
        if self.rounds:
            return sum(each.seconds for each in self.rounds)
        return max((load.seconds for load in self.loads), default=0.0) + self.latency_s

    def on(self, layer: str) -> float:
        """Return the seconds on one layer."""
        return sum(load.seconds for load in self.loads if load.layer == layer)


def kinds_of_link(fabric: Fabric, part: float = 1) -> tuple[LinkKind, ...]:
    """Return the layers of a fabric, innermost first. `part`: of the GPUs and the cards of a host,
    of a job that takes no more."""
    scale_up = fabric.by_host.gpus * fabric.by_host.scale_up_gbps * (BYTES_PER_S * part)
    tiers = [
        LinkKind(f"{tier.name} uplink", tier.name, tier.domains, tier.uplink_bytes_per_s)
        for tier in reversed(fabric.tiers)
    ]
    return (
        LinkKind(SCALE_UP, HOST, fabric.hosts, scale_up),
        LinkKind(NIC, HOST, fabric.hosts, fabric.injection_bytes_per_s * part),
        *tiers,
    )


@with_gang_view
def axis_loads(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[AxisLoad, ...]:
    """Return the load of each axis wider than 1, in rank order, on the hosts of each block.

    Cost: 20 ms for 16,384 ranks on 3,072 hosts.
    """
    chosen = np.asarray(hosts, dtype=np.int64)
    ranks, gpus = request.parallelism.world_size, request.ranks_per_host(fabric.gpus_per_host)
    kinds = kinds_of_link(fabric, gpus / fabric.gpus_per_host)
    domains = [chosen, *(tier.domain_by_host[chosen] for tier in reversed(fabric.tiers))]
    outbound = [
        egress_by_axis(request, gpus, domain, len(kind.names))
        for kind, domain in zip(kinds[1:], domains, strict=True)
    ]
    host_by_rank, loads = np.repeat(chosen, gpus), []
    cards = None
    if fabric.has_scale_up_tier:
        joined = fabric.scale_up_by_host[chosen]
        cards = egress_by_host(request, gpus, chosen, joined, fabric.host_count)
    sending = egress_by_axis(request, 1, np.arange(ranks), ranks, gpus)
    for i, (traffic, by_rank) in enumerate(sending):
        sent = np.bincount(host_by_rank, by_rank, fabric.host_count)
        out = [by_axis[i][1] for by_axis in outbound]
        # The first kind of domain that nothing leaves holds every group.
        homes = (kind.inside for kind, b in zip(kinds[1:], out, strict=True) if not b.any())
        runs_on, per_gpu = next(homes, EVERYWHERE), float(sent.sum()) / ranks
        if cards is not None:
            out[0] = cards[i]
        used = zip(kinds, [np.rint(sent - out[0]), *out], strict=True)
        over = tuple(_load(kind, b) for kind, b in used if b.any())
        if traffic.pattern is Pattern.PAIRS:
            over = _with_arrivals(fabric, traffic, chosen, gpus, over, kinds)
        hops: tuple[float, ...] = ()
        if traffic.pattern is Pattern.CHAIN and traffic.edge_bytes:
            hops = _hop_seconds(fabric, kinds, traffic, groups_of(host_by_rank, traffic))
        late_s = 0.0
        if fabric.has_latency and traffic.edge_bytes:
            late = latencies(fabric, request, traffic, groups_of(host_by_rank, traffic))
            late_s = float(late.max())
            hops = tuple(s + float(late[:, hop].max()) for hop, s in enumerate(hops))
        loads.append(AxisLoad(traffic, runs_on, per_gpu, over, hops, late_s))
    axes = groupby(loads, key=lambda load: axis_of(load.traffic.axis))
    return tuple(_sum_rounds(name, tuple(rounds), kinds) for name, rounds in axes)


def _sum_rounds(name: str, rounds: tuple[AxisLoad, ...], kinds: Sequence[LinkKind]) -> AxisLoad:
    """Return the load of an axis, whose rounds follow one another."""
    if len(rounds) == 1 and rounds[0].traffic.axis == name:
        return rounds[0]
    over = []
    for kind in kinds:
        loads = [each for part in rounds for each in part.loads if each.layer == kind.name]
        if loads:
            worst = max(loads, key=lambda load: load.seconds)
            sent = sum(load.bytes_per_step for load in loads)
            busiest = sum(load.busiest_bytes_per_step for load in loads)
            seconds = sum(load.seconds for load in loads)
            over.append(Load(kind.name, worst.domain, sent, busiest, seconds))
    homes = [*(kind.inside for kind in kinds), EVERYWHERE]
    return AxisLoad(
        replace(rounds[0].traffic, axis=name, size=prod(part.traffic.size for part in rounds)),
        max((part.runs_on for part in rounds), key=homes.index),
        sum(part.bytes_per_gpu for part in rounds),
        tuple(over),
        latency_s=sum(part.latency_s for part in rounds),
        rounds=rounds,
    )


def latencies(fabric: Fabric, request: Request, traffic: AxisTraffic, hosts: Ints) -> Floats:
    """Return the seconds of a step that the messages of an axis take one after the other, beside
    their bytes. `hosts`: of the ranks of each group, shape (groups, ranks).

    In a ring, the data of each rank pass all edges but one; in a hierarchy, those of each domain's
    part; in a tree, its longest branch. All-to-all waits for the farthest. Shape: (groups,); of a
    chain that of each hop, as in `AxisLoad.hops`: (groups, hops).
    """
    passes, group = passes_per_step(request, traffic.axis), np.arange(len(hosts))
    match traffic.pattern:
        case Pattern.CHAIN:
            late = fabric.latency_between(hosts, np.roll(hosts, -1, axis=1)) * passes
            late[:, -1] *= traffic.wrap_bytes / traffic.edge_bytes  # chunks but one go round
            return late if traffic.wrap_bytes else late[:, :-1]
        case Pattern.RING:
            late = fabric.latency_between(hosts, np.roll(hosts, -1, axis=1)) * passes
            return np.asarray(late.sum(axis=1) - late.min(axis=1))
        case Pattern.ALL_TO_ALL | Pattern.PAIRS:  # farthest from one: farthest of all, in a tree
            return np.asarray(fabric.latency_between(hosts, hosts[:, :1]).max(axis=1) * passes)
        case Pattern.TREE:
            heads, longest = hosts[:, :: traffic.node], np.zeros(len(hosts))
            for tree in both_trees(heads.shape[1]):
                down = np.zeros(heads.shape)
                for child, parent in zip(*tree, strict=True):
                    hop = fabric.latency_between(heads[:, child], heads[:, parent])
                    down[:, child] = down[:, parent] + hop
                longest = np.maximum(longest, down.max(axis=1))
            return longest * passes
        case Pattern.HIERARCHICAL:
            total, around = np.zeros(len(hosts)), np.zeros_like(hosts)
            left_s = fabric.latency_s + sum(tier.latency_s for tier in fabric.tiers)
            for tier in (*fabric.tiers, None):
                by_host = tier.domain_by_host if tier else fabric.scale_up_by_host
                part = by_host[hosts]
                rows = np.stack([*np.broadcast_arrays(group[:, None], around, part)])
                parts = np.unique(rows.reshape(3, -1), axis=1)[:2]
                ring, many = np.unique(parts, axis=1, return_counts=True)
                longest = np.zeros(len(hosts))
                np.maximum.at(longest, ring[0], many - 1.0)
                total += longest * left_s
                left_s -= tier.latency_s if tier else 0.0
                around = part
            return total * passes


@struct(frozen=True, slots=True)
class SharedLinks:
    """Network cards and uplinks that one axis uses, and who else does.

    `by_stage`: seconds that the groups of each stage need where only they send; those of all
    stages at once under the first, of a network card. Shape (links, stages). `hops_s`: seconds
    that messages between stages keep these links busy. Shape (links,).
    """

    by_stage: Floats
    hops_s: Floats


def shared_links(fabric: Fabric, request: Request, hosts: Sequence[int]) -> dict[str, SharedLinks]:
    """Return the links of each axis but the pipeline, and who else uses them. Cost: twice that of
    `axis_loads`."""
    chosen, p = np.asarray(hosts, dtype=np.int64), request.parallelism
    gpus = request.ranks_per_host(fabric.gpus_per_host)
    stage = np.arange(p.world_size) // p.stride("pp") % p.pp
    nic, *uplinks = kinds_of_link(fabric, gpus / fabric.gpus_per_host)[1:]
    racks = fabric.scale_up_by_host[chosen]
    cards = egress_by_host(request, gpus, chosen, racks, fabric.host_count)
    whole, parted = [cards], [[np.pad(sent[:, None], ((0, 0), (0, p.pp - 1))) for sent in cards]]
    for tier in reversed(fabric.tiers):
        domain, count = tier.domain_by_host[chosen], len(tier.domains)
        at = np.repeat(domain, gpus) * p.pp + stage
        whole.append(tuple(sent for _, sent in egress_by_axis(request, gpus, domain, count)))
        stages = egress_by_axis(request, 1, at, count * p.pp, gpus)
        parted.append([sent.reshape(count, p.pp) for _, sent in stages])
    speeds = np.concatenate([kind.bytes_per_s for kind in (nic, *uplinks)])
    axes = axis_traffic(request)
    chain = next(i for i, axis in enumerate(axes) if axis.pattern is Pattern.CHAIN)
    hops_s = seconds_over(np.concatenate([layer[chain] for layer in whole]), speeds)
    found = {}
    for i, traffic in enumerate(axes):
        by_stage = np.concatenate([layer[i] for layer in parted])
        used = by_stage.any(axis=1) & (i != chain)
        seconds = seconds_over(by_stage[used], speeds[used, None])
        found[traffic.axis] = SharedLinks(seconds, hops_s[used])
    return found


def _with_arrivals(
    fabric: Fabric,
    traffic: AxisTraffic,
    chosen: Ints,
    gpus: int,
    loads: Sequence[Load],
    kinds: Sequence[LinkKind],
) -> tuple[Load, ...]:
    """Return the loads of bytes that go one way, each with the seconds of whichever domain takes
    longer: one that sends them or one that receives them."""
    domains = [chosen, chosen, *(tier.domain_by_host[chosen] for tier in reversed(fabric.tiers))]
    slower = []
    for load in loads:
        number = next(i for i, kind in enumerate(kinds) if kind.name == load.layer)
        kind, by_rank = kinds[number], np.repeat(domains[number], gpus)
        groups = groups_of(by_rank, traffic.reversed)
        if kind.inside == HOST and fabric.has_scale_up_tier:
            groups = groups_of(np.repeat(fabric.scale_up_by_host[chosen], gpus), traffic.reversed)
            hosts = groups_of(by_rank, traffic.reversed)
            arriving = leaving(traffic.reversed, groups, fabric.host_count, hosts)
        else:
            arriving = leaving(traffic.reversed, groups, len(kind.names))
        there = _load(kind, arriving)
        slower.append(load if load.seconds >= there.seconds or not number else there)
    return tuple(slower)


def _hop_seconds(
    fabric: Fabric, kinds: Sequence[LinkKind], traffic: AxisTraffic, hosts: Ints
) -> tuple[float, ...]:
    """Seconds between a stage and the next, of all pipelines at once. `hosts`: of each pipeline's
    stages, shape (pipelines, stages)."""
    if traffic.wrap_bytes:
        hosts = np.concatenate([hosts, hosts[:, :1]], axis=1)
    near, far = hosts[:, :-1], hosts[:, 1:]
    count, hop = near.shape[1], np.broadcast_to(np.arange(near.shape[1]), near.shape)
    joined, every = fabric.scale_up_by_host, np.arange(fabric.host_count)
    is_out = joined[near] != joined[far]
    by_host = [(every, ~is_out), (every, is_out)]
    by_tier = [(tier.domain_by_host, is_out) for tier in reversed(fabric.tiers)]
    most = np.zeros(count)
    for kind, (domain, may_pass) in zip(kinds, [*by_host, *by_tier], strict=True):
        passes = may_pass if domain is every else may_pass & (domain[near] != domain[far])
        for end in (near, far):
            where = hop[passes] * len(kind.names) + domain[end[passes]]
            each = np.bincount(where, minlength=count * len(kind.names))
            busy = seconds_over(each.reshape(count, -1).astype(float), kind.bytes_per_s)
            most = np.maximum(most, busy.max(axis=1))
    size = np.full(count, float(traffic.edge_bytes))
    size[traffic.size - 1 :] = traffic.wrap_bytes
    return tuple((most * size).tolist())


def _load(kind: LinkKind, out: Floats) -> Load:
    seconds = seconds_over(out, kind.bytes_per_s)
    worst = int(np.argmax(seconds))
    return Load(
        kind.name,
        kind.names[worst],
        round(float(out.sum())),
        round(float(out[worst])),
        float(seconds[worst]),
    )
