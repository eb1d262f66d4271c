"""Fabrics as published: how many of everything, and how fast."""

from __future__ import annotations

from placement.fabric import preset
from scripts.published import Row, exactly


def roce_counts() -> tuple[int, ...]:
    """GPUs of a rack, of a zone and in all. Source: Llama 3 (2024), 3.3.1."""
    fabric = preset("roce-24k")
    zone, rack = fabric.tiers
    hosts = (fabric.host_count // len(rack.domains), fabric.host_count // len(zone.domains))
    return tuple(n * fabric.gpus_per_host for n in (*hosts, fabric.host_count))


def zone_bandwidth() -> tuple[float, ...]:
    """Injection and uplink of one zone. Units: TB/s, one direction."""
    fabric = preset("roce-24k")
    zone, rack = fabric.tiers
    racks = len(rack.domains) // len(zone.domains)
    injection = racks * rack.uplink_bytes_per_s[0]
    return round(injection / 1e12, 2), round(zone.uplink_bytes_per_s[0] / 1e12, 2)


ROWS = (
    Row(
        "1",
        "RoCE-24K: GPUs of a rack, a zone, the cluster",
        "16 / 3,072 / 24,576",
        roce_counts,
        exactly((16, 3_072, 24_576)),
    ),
    Row(
        "1b",
        "RoCE-24K: a zone injects and uplinks at 1:7, TB/s",
        "153.6 / 21.94",
        zone_bandwidth,
        exactly((153.6, 21.94)),
    ),
)
