"""Fabrics as published: how many of everything, and how fast."""

from __future__ import annotations

from functools import cache

from network.maxflow import Proof, proofs
from network.wiring import Striping, links
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from scripts.published import Value


def roce_counts() -> Value:
    """GPUs of a rack, of a zone and in all. Source: Llama 3 (2024), 3.3.1."""
    fabric = preset("roce-24k")
    zone, rack = fabric.tiers
    hosts = (fabric.host_count // len(rack.domains), fabric.host_count // len(zone.domains))
    return tuple(n * fabric.gpus_per_host for n in (*hosts, fabric.host_count))


def zone_bandwidth() -> Value:
    """Injection and nominal uplink of one zone. Units: TB/s, one direction."""
    fabric = preset("roce-24k")
    zone, rack = fabric.tiers
    racks = len(rack.domains) // len(zone.domains)
    injection = racks * rack.uplink_bytes_per_s[0]
    return round(injection / 1e12, 2), round(zone.uplink_bytes_per_s[0] / 1e12, 2)


def switches(fabric: Fabric, striping: Striping = Striping.EVEN) -> Value:
    """Leaves first."""
    return tuple(layer.switch_count for layer in links(fabric, striping).layers)


def superpods() -> Value:
    """Leaf, spine, core for 2 to 64 scalable units, one text each."""
    return tuple("-".join(map(str, switches(superpod(su)))) for su in (2, 4, 8, 16, 32, 64))


def superpod(units: int) -> Fabric:
    """Scalable units of 32 hosts; above 8 of them, pods of 4."""
    hosts = {"name": "host", "count": 32}
    tiers = [{"name": "su", "count": units}, hosts]
    if units > 8:
        tiers = [{"name": "pod", "count": units // 4}, {"name": "su", "count": 4}, hosts]
    return from_spec({"name": "su", "kind": "infiniband", "gpus_per_host": 8, "tiers": tiers})


@cache
def flows_proved(fabric: str) -> tuple[Proof, ...]:
    return proofs(links(preset(fabric)))


def oversubscription(fabric: str, direction: str, tier: str) -> Value:
    """By max-flow."""
    flow = next(p for p in flows_proved(fabric) if (p.what, p.tier) == (direction, tier))
    return flow.oversubscription


OURS = {
    "1": roce_counts,
    "1b": zone_bandwidth,
    "1c": lambda: switches(preset("roce-24k")),
    "1d": lambda: oversubscription("roce-24k", "out of", "zone"),
    "1e": lambda: oversubscription("roce-24k", "inside", "zone"),
    "2": superpods,
    "2b": lambda: switches(preset("ib-24k"), Striping.MINIMAL),
    "2c": lambda: switches(preset("ib-24k")),
    "2d": lambda: oversubscription("ib-24k", "inside", "fabric"),
}
