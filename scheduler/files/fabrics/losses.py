"""The overlay that gives a file back what its format cannot hold of a fabric."""

from __future__ import annotations

from typing import Any

import numpy as np

from placement import BadInput
from placement.fabric import hostlist
from placement.fabric.tree import Fabric
from scheduler.files.fabrics.build import commonest, plain


def overlay_of(fabric: Fabric, has_outer_tiers: bool) -> dict[str, Any]:
    """The content of an overlay; `has_outer_tiers` where the format holds them all.

    Every format lacks the bandwidths and the names of tiers; blocks lack all tiers
    but the innermost, which then name the domains they hold.

    Raises: BadInput when hosts differ: an overlay has one number for all.
    """
    own = fabric.by_host
    if fabric.is_mixed or np.ptp(own.nic_gbps):
        raise BadInput("", f"hosts of {fabric.name} differ in GPUs or network cards, which no"
                       " topology file says")  # fmt: skip
    tiers: list[dict[str, Any]] = []
    for level in range(len(fabric.tiers)):
        entry, exceptions = _rated(fabric, level)
        is_lost = not has_outer_tiers and level < len(fabric.tiers) - 1
        domains = _holding(fabric, level) if is_lost else {}
        for name, rate in exceptions.items():
            domains.setdefault(name, {})["oversubscription"] = rate
        if level == len(fabric.tiers) - 1 and (fabric.has_scale_up_tier or not has_outer_tiers):
            usual, others = _nvlink(fabric)
            entry["scale_up"] = usual
            for name, rate in others.items():
                domains.setdefault(name, {})["scale_up"] = rate
        tiers.append({**entry, **({"domains": domains} if domains else {})})
    tiers.append({"name": fabric.spec["tiers"][-1]["name"]})
    inside = (
        {"scale_up_gbps": plain(fabric.scale_up_gbps)} if "scale_up_gbps" in fabric.spec else {}
    )
    stated = fabric.spec.get("gpu")
    return {
        "name": fabric.name,
        "kind": fabric.kind,
        **({} if fabric.joined else {"joined": False}),
        "gpus_per_host": fabric.gpus_per_host,
        **({"gpu": stated} if isinstance(stated, str) else {}),
        "nic_gbps": plain(fabric.nic_gbps),
        **inside,
        "tiers": tiers,
    }


def _nvlink(fabric: Fabric) -> tuple[dict[str, float] | None, dict[str, Any]]:
    """What most innermost domains have of it, and those that have something else."""
    tier = fabric.tiers[-1]
    first = np.unique(tier.domain_by_host, return_index=True)[1]
    is_joined = np.zeros(len(first), bool) if tier.is_scale_up is None else tier.is_scale_up
    rates = np.where(is_joined, fabric.by_host.scale_up_gbps[first], 0.0).tolist()
    usual = commonest(rates)
    said = [{"gbps_per_gpu": plain(rate)} if rate else None for rate in rates]
    pairs = zip(tier.domains, rates, said, strict=True)
    others = {name: unit for name, rate, unit in pairs if rate != usual}
    return ({"gbps_per_gpu": plain(usual)} if usual else None), others


def _rated(fabric: Fabric, level: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The tier with its usual oversubscription, and the domains that have another."""
    tier = fabric.tiers[level]
    injection = np.bincount(tier.domain_by_host) * fabric.gpus_per_host * fabric.nic_gbps * 1e9 / 8
    rates = [plain(float(f"{r:.12g}")) for r in injection / tier.uplink_bytes_per_s]
    usual = commonest(rates)
    entry = {"name": tier.name, **({} if usual == 1 else {"oversubscription": usual})}
    named = zip(tier.domains, rates, strict=True)
    return entry, {name: rate for name, rate in named if rate != usual}


def _holding(fabric: Fabric, level: int) -> dict[str, dict[str, Any]]:
    """Each domain with those of the next tier inside it, as ranges."""
    outer, inner = fabric.tiers[level], fabric.tiers[level + 1]
    first = np.unique(inner.domain_by_host, return_index=True)[1]  # a host of each inner domain
    inside: dict[str, list[str]] = {name: [] for name in outer.domains}
    for name, at in zip(inner.domains, outer.domain_by_host[first].tolist(), strict=True):
        inside[outer.domains[at]].append(name)
    return {name: {"holds": hostlist.fold(names)} for name, names in inside.items()}
