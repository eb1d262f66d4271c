"""Flows over links, under one routing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.errors import BadInput
from placement.fabric.tree import Ints
from placement.network.adaptive import settled
from placement.network.congestion import Congestion, Ideal, Loads, congestion
from placement.network.failures import without
from placement.network.flows import Flows
from placement.network.fluid import CUT_OFF, CableLoads, Weights, idle, spread
from placement.network.paths import Trips, Walker, mixed
from placement.network.routing import Kind, Routing
from placement.network.wiring import Links

BATCH = 1 << 19  # queue pairs at once: 40 MB


def route(
    links: Links, flows: Flows, routing: Routing, seed: int = 0, failed: Sequence[str] = ()
) -> Congestion:
    """What every link carries, the busiest one, and how far that is from perfect.

    `links`: the whole fabric. `failed`: switches and cables that are down, by name or
    hostlist range (`z0-ctsw03`, `z0-r[000-003]-rtsw/z0-ctsw03`); their traffic moves to
    what is left. `seed` salts the hashes; pinned and adaptive routing ignore it.

    Raises: BadInput on an unknown name, or when hosts of the job have no path left.
    Cost: O(flows x queue pairs); Llama 3 405B on 16,384 GPUs with 16 queue pairs, 2 s.
    """
    left = without(links, failed)
    sent = _on_rails(links, flows)
    if not left.live_leaf[left.leaf_by_gpu[np.append(sent.src_gpu, sent.dst_gpu)]].all():
        raise BadInput("failed", CUT_OFF)
    shares = _adapted(left, sent) if routing.kind is Kind.ADAPTIVE else None
    routed, ideal = {}, {}
    for index, axis in enumerate(sent.axes):
        flow = np.flatnonzero(sent.axis == index)
        if not len(flow):
            continue
        even = _fluid(links, sent, flow, None)
        ideal[axis] = _loads(links, sent, flow, even)
        if shares is None:
            cables = _walked(left, sent, flow, routing, seed)
        else:
            cables = even if left is links else _fluid(left, sent, flow, shares)
        routed[axis] = _loads(links, sent, flow, cables)
    return congestion(left, routing, routed, Ideal.of(links, ideal))


def _on_rails(links: Links, flows: Flows) -> Flows:
    """Where rails are apart, a flow leaves by the NIC of its target's rail (PXN)."""
    if links.is_mesh:
        return flows
    gpus = links.fabric.gpus_per_host
    source = flows.src_gpu - flows.src_gpu % gpus + flows.dst_gpu % gpus
    return Flows(source, flows.dst_gpu, flows.bytes, flows.axis, flows.axes)


def _loads(links: Links, flows: Flows, flow: Ints, cables: CableLoads) -> Loads:
    nics = len(links.leaf_by_gpu)
    sent = np.bincount(flows.src_gpu[flow], flows.bytes[flow], nics)
    taken = np.bincount(flows.dst_gpu[flow], flows.bytes[flow], nics)
    return Loads(np.asarray(sent, dtype=np.float64), np.asarray(taken, dtype=np.float64), cables)


def _fluid(links: Links, flows: Flows, flow: Ints, shares: Weights | None) -> CableLoads:
    leaf = links.leaf_by_gpu
    ends = leaf[flows.src_gpu[flow]], leaf[flows.dst_gpu[flow]]
    return spread(links, *ends, flows.bytes[flow], shares)


def _adapted(links: Links, flows: Flows) -> Weights:
    leaf = links.leaf_by_gpu
    return settled(links, leaf[flows.src_gpu], leaf[flows.dst_gpu], flows.bytes)


def _walked(links: Links, flows: Flows, flow: Ints, routing: Routing, seed: int) -> CableLoads:
    """Each queue pair of each flow on one path."""
    pinned = routing.kind is Kind.PINNED
    walker = Walker(links, None if pinned else seed, links.leaf_by_gpu[flows.dst_gpu[flow]])
    total = idle(links)
    batch = max(1, BATCH // routing.queue_pairs)
    for begin in range(0, len(flow), batch):
        total += walker.loads(_trips(links, flows, flow[begin : begin + batch], routing))
    return total


def _trips(links: Links, flows: Flows, flow: Ints, routing: Routing) -> Trips:
    """The five-tuple is both NICs and the queue pair; each axis has connections of its own."""
    pair = np.tile(np.arange(routing.queue_pairs, dtype=np.uint64), len(flow))
    flow = np.repeat(flow, routing.queue_pairs)
    source, target = flows.src_gpu[flow], flows.dst_gpu[flow]
    key = mixed(source.astype(np.uint64))
    for part in (target.astype(np.uint64), flows.axis[flow].astype(np.uint64), pair):
        key = mixed(key ^ part)
    leaf = links.leaf_by_gpu
    slot = target if links.is_mesh else target // links.fabric.gpus_per_host
    sizes = flows.bytes[flow] / routing.queue_pairs
    return Trips(leaf[source], leaf[target], slot, key, sizes)
