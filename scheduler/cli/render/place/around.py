"""What surrounds a placement: where the gang was before, and what stays free beside it."""

from __future__ import annotations

from typing import Any

import numpy as np

from placement import FreeTier, Hint, count_free_domains
from placement.fabric.hostset import HostSet, has, to_mask
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.workload.request import Placement, Request
from scheduler.cli.render.text import bytes_text, counted


def free_domains_by_tier(fabric: Fabric, free: HostSet, answer: Placement) -> tuple[FreeTier, ...]:
    hosts = np.flatnonzero(to_mask(free, fabric.host_count)).astype(np.int64)
    return count_free_domains(fabric, hosts, answer.hosts + answer.spares)


def free_domains_mapping(fabric: Fabric, free: HostSet, answer: Placement) -> dict[str, Any]:
    return {
        tier.tier: {"whole": tier.whole, "largest_hosts": tier.largest}
        for tier in free_domains_by_tier(fabric, free, answer)
    }


def free_domains_text(fabric: Fabric, free: HostSet, answer: Placement) -> str:
    """One line; empty on a fabric without tiers."""
    tiers = free_domains_by_tier(fabric, free, answer)
    if not tiers:
        return ""
    whole = ", ".join(counted(tier.whole, f"whole {tier.tier}") for tier in tiers)
    largest = counted(tiers[0].largest, "host")
    return f"left free: {whole}; at most {largest} in one {tiers[0].tier}"


def old_cut(fabric: Fabric, request: Request, free: HostSet, hint: Hint) -> int | None:
    """Bytes that the old placement would cut; None when not all of its hosts are free."""
    if not all(host >= 0 and has(free, host) for host in hint.hosts):
        return None
    cuts = cut(fabric, request, hint.hosts)
    return cuts[0].bytes_per_step if cuts else 0


def near_mapping(
    fabric: Fabric, request: Request, free: HostSet, hint: Hint | None, answer: Placement
) -> dict[str, Any]:
    """Empty when there was no old placement."""
    if hint is None or answer.moved is None:
        return {}
    return {
        "moved": answer.moved,
        "near": {
            "slack": hint.slack,
            "lost_hosts": _count_unavailable(free, hint),
            "bytes_per_step": old_cut(fabric, request, free, hint),
        },
    }


def near_text(
    fabric: Fabric, request: Request, free: HostSet, hint: Hint | None, answer: Placement
) -> str:
    """One line on what moves, and what the old placement would cut if it still could."""
    if hint is None or answer.moved is None:
        return ""
    moved = f"moved {answer.moved:,} of {counted(len(answer.hosts), 'block')}"
    before = old_cut(fabric, request, free, hint)
    if before is None:
        lost = _count_unavailable(free, hint)
        return f"{moved}; {counted(lost, 'old host')} {'is' if lost == 1 else 'are'} not free"
    return f"{moved}; in its old place it would cut {bytes_text(before)}"


def _count_unavailable(free: HostSet, hint: Hint) -> int:
    return sum(host < 0 or not has(free, host) for host in hint.hosts)
