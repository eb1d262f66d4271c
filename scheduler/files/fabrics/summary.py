"""A fabric at a glance: what a person checks who has just written the file."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np

from placement.fabric import hostset
from placement.fabric.storage import Storage
from placement.fabric.tree import Fabric, Ints, Tier


def summary(fabric: Fabric) -> dict[str, Any]:
    """Summarise a fabric: counts, sizes and bandwidths by tier, outermost first, and what looks
    odd.

    Ranges are (least, most) over the domains of a tier; Gbit/s in one direction.
    """
    return {
        "name": fabric.name,
        "kind": fabric.kind,
        "digest": fabric.digest,
        "hosts": fabric.host_count,
        "gpus": fabric.host_count * fabric.gpus_per_host,
        "gpus_per_host": fabric.gpus_per_host,
        "gpu_kinds": [gpu.name for gpu in fabric.by_host.kinds],
        "gpu_is_assumed": fabric.by_host.is_kind_assumed,
        "nic_gbps": fabric.nic_gbps,
        "scale_up_gbps": fabric.scale_up_gbps,
        "tiers": [_tier(fabric, tier) for tier in fabric.tiers],
        "stores": [_store(store) for store in fabric.stores],
        "first_host": fabric.hosts[0],
        "last_host": fabric.hosts[-1],
        "notes": list(_oddities(fabric)),
    }


def _tier(fabric: Fabric, tier: Tier) -> dict[str, Any]:
    hosts = _sizes(tier)
    uplink = tier.uplink_bytes_per_s * 8 / 1e9
    ratio = hosts * fabric.gpus_per_host * fabric.nic_gbps / uplink
    return {
        "name": tier.name,
        "domains": len(tier.domains),
        "hosts": [int(hosts.min()), int(hosts.max())],
        "uplink_gbps": [float(uplink.min()), float(uplink.max())],
        "oversubscription": [float(f"{x:.6g}") for x in (ratio.min(), ratio.max())],
        "first": tier.domains[0],
        "last": tier.domains[-1],
    }


def _store(store: Storage) -> dict[str, Any]:
    """Summarise a store; None: its file does not say, or it has no name."""
    return {
        "name": store.name or None,
        "write_gb_per_s": store.write_gb_per_s,
        "read_gb_per_s": store.read_gb_per_s or None,
        "capacity_tb": store.capacity_tb or None,
        "by_tier": {
            path.tier: {
                "write_gb_per_s": path.write_gb_per_s or None,
                "read_gb_per_s": path.read_gb_per_s or None,
            }
            for path in store.paths
        },
        "readers": store.readers
        and {
            "hosts": store.readers.hosts,
            "gb_per_s": store.readers.gb_per_s,
        },
        "hold_jobs": store.hold_jobs,
    }


def _sizes(tier: Tier) -> Ints:
    return np.bincount(tier.domain_by_host, minlength=len(tier.domains))


def _oddities(fabric: Fabric) -> Iterator[str]:
    """Yield settings that are allowed and seldom meant, and what power caps and storage mean for
    jobs."""
    if fabric.power is not None:
        may = fabric.power.within(hostset.full(fabric.host_count), 0).bit_count()
        yield f"its power caps let {may:,} of {fabric.host_count:,} hosts run at once"
    for store in fabric.stores:
        if store.hold_jobs:
            limit, most = store.dataset_limit
            where = "" if limit == "the storage" else f" of {limit}"
            rates = [f"{most:g} GB/s{where}"] if most < inf else []
            rates += [
                f"{path.read_gb_per_s:g} GB/s of each {path.tier}"
                for path in store.paths
                if path.read_gb_per_s
            ]
            yield f"jobs wait whose datasets exceed what is left of {' or of '.join(rates)}"
    if not fabric.tiers:
        yield "no tier above the hosts: no placement is better than another"
        return
    outermost = fabric.tiers[0]
    if len(outermost.domains) == 1:
        yield f"all hosts are in one {outermost.name}: nothing crosses it, so nothing is minimised"
    if not fabric.is_joined:
        yield f"nothing joins the {outermost.name}s: no gang lies in two of them"
    for outer, inner in zip(fabric.tiers, fabric.tiers[1:], strict=False):
        if len(outer.domains) == len(inner.domains) and len(inner.domains) > 1:
            yield f"every {outer.name} is a single {inner.name}: one of the two tiers does nothing"
        narrow = _starved(outer, inner)
        if narrow:
            yield f"{narrow}: its {inner.name}s together have less uplink than the {outer.name}"


def _starved(outer: Tier, inner: Tier) -> str:
    """The first domain whose inner domains cannot fill its uplink; empty for none."""
    first = np.unique(inner.domain_by_host, return_index=True)[1]
    inside = np.bincount(outer.domain_by_host[first], inner.uplink_bytes_per_s)
    narrow = np.flatnonzero(inside < outer.uplink_bytes_per_s * (1 - 1e-9))
    return outer.domains[int(narrow[0])] if len(narrow) else ""
