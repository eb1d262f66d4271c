"""Makes a network's tiers the wanted ones: roots dropped, tiers named or added.

A switch above every host is no boundary: nothing crosses it. It is kept only where
an overlay counts it, or as the one tier there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.structs import replace
from scheduler.files.fabrics.network import TopologyNetwork, shortened
from scheduler.files.fabrics.overlay import SILENT_TIER, FabricOverlay


def fitted(network: TopologyNetwork, overlay: FabricOverlay) -> TopologyNetwork:
    """Return `network` with the tiers that `overlay` names; without any, less its single roots.

    Raises: InputError when the overlay names other tiers than the file has.
    """
    added = [tier for tier in overlay.tiers if tier.is_added]
    if tuple(added) != overlay.tiers[: len(added)]:
        at = next(
            i
            for i, t in enumerate(overlay.tiers)
            if t.is_added and i and not overlay.tiers[i - 1].is_added
        )
        raise overlay.document.error(
            (f"tiers.{at}.domains", "`holds` is for tiers outside those of the file")
        )
    wanted = len(overlay.tiers) - 1 - len(added) if overlay.tiers else None
    network = _without_roots(network, wanted)
    if wanted is not None and network.depth != wanted:
        raise overlay.document.error(("tiers", _tier_mismatch(network, wanted)))
    for level in range(len(added) - 1, -1, -1):
        network = _with_tier(network, overlay, level)
    if overlay.tiers:
        network = replace(network, tier_names=tuple(tier.name for tier in overlay.tiers[:-1]))
    _check_domains(network, overlay)
    return network


def only_hosts(network: TopologyNetwork, pattern: str | None) -> TopologyNetwork:
    """Return the hosts whose whole name matches the regular expression."""
    if pattern is None:
        return network
    keep = [re.fullmatch(pattern, host) is not None for host in network.hosts]
    hosts = tuple(host for host, kept in zip(network.hosts, keep, strict=True) if kept)
    paths = tuple(path for path, kept in zip(network.paths, keep, strict=True) if kept)
    return replace(network, hosts=hosts, paths=paths)


def _without_roots(network: TopologyNetwork, wanted: int | None) -> TopologyNetwork:
    dropped = []
    while network.depth > (1 if wanted is None else wanted) and len(network.domains(0)) == 1:
        dropped.append(network.domains(0)[0])
        paths = tuple(path[1:] for path in network.paths)
        network = replace(network, paths=paths, tier_names=network.tier_names[1:])
    if not dropped:
        return network
    note = f"dropped: {shortened(dropped)}, above every host and so no boundary"
    return replace(network, notes=(*network.notes, note), joined=True)


def _tier_mismatch(network: TopologyNetwork, wanted: int) -> str:
    tiers = [f"{len(network.domains(i)):,} x {name}" for i, name in enumerate(network.tier_names)]
    others = f"{network.depth} above the hosts ({', '.join(tiers)})"
    return f"the file has {others}, the overlay {wanted} besides the hosts"


def _with_tier(network: TopologyNetwork, overlay: FabricOverlay, level: int) -> TopologyNetwork:
    """One more tier outside, from what each of its domains holds."""
    network = replace(network, joined=True)  # by the domains of this tier
    tier = overlay.tiers[level]
    holder: dict[str, str] = {}
    below = set(network.domains(0)) if network.depth else set(network.hosts)
    for name, domain in tier.domains.items():
        at = f"tiers.{level}.domains.{name}"
        for held in domain.holds:
            if held not in below:
                raise overlay.document.error(
                    (f"{at}.holds", f"{held} is not a domain of the next tier")
                )
            if held in holder:
                message = f"{held} is in {holder[held]} and in {name}"
                raise overlay.document.error((f"{at}.holds", message))
            holder[held] = name
    free = sorted(below - holder.keys())
    if free:
        raise overlay.document.error(
            (f"tiers.{level}.domains", f"no domain holds {shortened(free)}")
        )
    tops = (
        path[0] if path else host for path, host in zip(network.paths, network.hosts, strict=True)
    )
    paths = tuple((holder[top], *path) for top, path in zip(tops, network.paths, strict=True))
    return replace(network, paths=paths, tier_names=(tier.name, *network.tier_names))


def _check_domains(network: TopologyNetwork, overlay: FabricOverlay) -> None:
    for level, tier in enumerate(overlay.tiers[:-1]):
        known = set(network.domains(level))
        for name in tier.domains:
            if name not in known:
                raise overlay.document.error(
                    (f"tiers.{level}.domains.{name}", f"there is no {tier.name} {name}")
                )


def rates(network: TopologyNetwork, overlay: FabricOverlay, level: int) -> Mapping[str, float]:
    """Return each domain's oversubscription: by the overlay, else the file, else 1."""
    tier = overlay.tiers[level] if overlay.tiers else SILENT_TIER
    below = network.depth - 1 - level
    by_tier = {}
    for name in network.domains(level):
        own = tier.domains[name].oversubscription if name in tier.domains else None
        by_tier[name] = float(
            own or tier.oversubscription or network.oversubscription.get((below, name), 1)
        )
    return by_tier
