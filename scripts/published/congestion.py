"""Collisions as published: hashed flows, queue pairs, pinned paths.

Every value is simulated: flows through network on a fabric of the size
that the source describes, averaged over seeds 0, 1, 2, ... Source: RoCE (2024), the
sections on ECMP, path pinning and E-ECMP with queue-pair scaling.
"""

from __future__ import annotations

from functools import cache
from statistics import fmean

import numpy as np

from network.flows import Flows, flows_of, merge_flows
from network.routing import Kind, Routing, parse_routing, route
from network.wiring import links
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import Request
from scripts.published import Value

LINE_RATE = 5e10  # bytes per second of a 400G NIC


def two_racks(nics: int, uplinks: int) -> Fabric:
    """Racks of `nics` GPUs with so many uplinks each, one to each switch above."""
    tiers = [
        {"name": "rack", "count": 2, "oversubscription": nics / uplinks},
        {"name": "host", "count": 1},
    ]
    return from_spec({"name": "racks", "gpus_per_host": nics, "tiers": tiers})


def rack_to_rack(nics: int) -> Flows:
    """Each GPU of the first rack sends for a second at line rate to its like in the other."""
    source = np.arange(nics)
    sizes, axis = np.full(nics, LINE_RATE), np.zeros(nics, dtype=np.int64)
    return Flows(source, source + nics, sizes, axis, ("dp",))


def ecmp_mmr(seeds: int = 400) -> Value:
    """1,000 equal flows over 16 links: fullest link over the mean."""
    built, flows = links(two_racks(1_000, 16)), rack_to_rack(1_000)
    ecmp = parse_routing("ecmp")
    return fmean(route(built, flows, ecmp, seed).mmr["rtsw-ctsw", "up"] for seed in range(seeds))


@cache
def rack_slowdown(uplinks: int, queue_pairs: int, seeds: int = 400) -> float:
    """A rack of 16 NICs at line rate, against perfect spreading."""
    built, flows = links(two_racks(16, uplinks)), rack_to_rack(16)
    routing = Routing(Kind.E_ECMP, queue_pairs)
    return fmean(route(built, flows, routing, seed).slowdown for seed in range(seeds))


def queue_pair_order() -> Value:
    """Queue pairs from slowest to fastest, 16 uplinks."""
    ranked = sorted((1, 4, 16, 32), key=lambda pairs: -rack_slowdown(16, pairs))
    return " > ".join(f"Q{pairs}" for pairs in ranked)


def pinning_loss(seeds: int = 20) -> Value:
    """Two jobs of 64 hosts on 64 racks: racks shared at random, against racks of their own."""
    tiers = [{"name": "rack", "count": 64}, {"name": "host", "count": 2}]
    zone = from_spec({"name": "zone", "gpus_per_host": 8, "tiers": tiers})
    job = Request(Parallelism(tp=8, dp=64), traffic=(("dp", int(LINE_RATE)),))
    pinned = parse_routing("pinned")

    def seconds(first: list[int], second: list[int]) -> float:
        both = merge_flows(flows_of(zone, job, first), flows_of(zone, job, second))
        return route(links(zone), both, pinned).seconds

    whole = seconds(list(range(64)), list(range(64, 128)))
    shared = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(128).tolist()
        shared.append(seconds(order[:64], order[64:]))
    return fmean(shared) / whole


OURS = {
    "24": ecmp_mmr,
    "25": lambda: rack_slowdown(32, 4),
    "25b": queue_pair_order,
    "26": pinning_loss,
}
