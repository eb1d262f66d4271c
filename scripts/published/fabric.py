"""Fabrics as published: how many of everything, and how fast."""

from __future__ import annotations

from functools import cache

from network.maxflow import Proof, proofs
from network.wiring import Striping, links
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from scripts.published import Evidence, Row, Value, exactly, near


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


ROWS = (
    Row(
        "1",
        "RoCE-24K: GPUs of a rack, a zone, the cluster",
        "16 / 3,072 / 24,576",
        roce_counts,
        exactly((16, 3_072, 24_576)),
        Evidence.INPUT,
    ),
    Row(
        "1b",
        "RoCE-24K: a zone injects and uplinks at 1:7, TB/s",
        "153.6 / 21.94",
        zone_bandwidth,
        exactly((153.6, 21.94)),
        Evidence.FORMULA,
    ),
    Row(
        "1c",
        "RoCE-24K: RTSW, CTSW (16 a zone), ATSW",
        "1,536 / 128 / 28",
        lambda: switches(preset("roce-24k")),
        exactly((1_536, 128, 28)),
        Evidence.DERIVED,
    ),
    Row(
        "1d",
        "RoCE-24K: max-flow out of a zone, injection over it (28 ports a CTSW)",
        "6.857",
        lambda: oversubscription("roce-24k", "out of", "zone"),
        near(48 / 7, 1e-6),
        Evidence.DERIVED,
    ),
    Row(
        "1e",
        "RoCE-24K: max-flow between the halves of a zone, injection over it",
        "1 (full bisection)",
        lambda: oversubscription("roce-24k", "inside", "zone"),
        near(1, 1e-6),
        Evidence.DERIVED,
    ),
    Row(
        "2",
        "SuperPOD of 2, 4, 8, 16, 32, 64 units: leaf-spine-core",
        "16-8 ... 512-512-256",
        superpods,
        exactly(("16-8", "32-16", "64-32", "128-128-64", "256-256-128", "512-512-256")),
        Evidence.INDEPENDENT,
    ),
    Row(
        "2b",
        "IB-24K (96 units), fewest cores: leaf, spine, core",
        "768 / 768 / 384",
        lambda: switches(preset("ib-24k"), Striping.MINIMAL),
        exactly((768, 768, 384)),
        Evidence.INDEPENDENT,
    ),
    Row(
        "2c",
        "IB-24K (96 units), equal cables: leaf, spine, core",
        "768 / 768 / 512",
        lambda: switches(preset("ib-24k")),
        exactly((768, 768, 512)),
        Evidence.INDEPENDENT,
    ),
    Row(
        "2d",
        "IB-24K: max-flow between the halves of the fabric, injection over it",
        "1 (full bisection)",
        lambda: oversubscription("ib-24k", "inside", "fabric"),
        near(1, 1e-6),
        Evidence.DERIVED,
    ),
)
