"""From a network and an overlay to a fabric, and the content of its file.

It becomes the list of its domains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostlist
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from scheduler.files.errors import refusal
from scheduler.files.fabrics.fitting import fitted, rates
from scheduler.files.fabrics.network import TopologyNetwork, shortened
from scheduler.files.fabrics.overlay import DEFAULT_HOST_TIER, SILENT_TIER, FabricOverlay

DEFAULT_GPUS = 8
DEFAULT_GBPS = 400
DEFAULT_SCALE_UP_GBPS = 7200.0  # NVLink 5: 900 GB/s per direction and GPU
NOT_IN_HOSTLISTS = frozenset("[], \t")

Rates = Sequence[Mapping[str, float]]  # oversubscription by domain, one for each tier
Tree = dict[str, Any]  # domain -> its domains, or its hosts


@struct(frozen=True, slots=True)
class Built:
    """A fabric, and notes for the person who imports it."""

    fabric: Fabric
    notes: tuple[str, ...]


def build(network: TopologyNetwork, overlay: FabricOverlay, name: str, source: str) -> Built:
    """Build the fabric of `network`; `overlay` says what the topology file does not.

    `name` is the fabric's when the overlay gives none.

    Raises: InputError. Cost: 0.1 s for 3,072 hosts.
    """
    if not network.hosts:
        raise refusal("has no host with a place in the topology", source)
    odd = next((host for host in network.hosts if NOT_IN_HOSTLISTS & set(host)), None)
    if odd is not None:
        raise refusal(f"host {odd!r}: a name cannot have brackets, commas or spaces", source)
    network = fitted(network, overlay)
    by_tier = [rates(network, overlay, level) for level in range(network.depth)]
    try:
        fabric = from_spec(_spec(network, overlay, by_tier, name))
    except BadInput as error:
        raise refusal(f"is not a fabric: {error}", source) from None
    notes = (*network.notes, *_roots(fabric, overlay), *_assumptions(network, overlay, by_tier))
    return Built(fabric, notes)


def _roots(fabric: Fabric, overlay: FabricOverlay) -> Iterable[str]:
    if not fabric.is_joined and overlay.keys.joined is None:
        yield (
            f"no switch joins {shortened(fabric.tiers[0].domains)}: no gang lies across them, as no"
            " job of Slurm does; where cables join them, say `joined: true` in an overlay"
        )


def _assumptions(network: TopologyNetwork, overlay: FabricOverlay, by_tier: Rates) -> Iterable[str]:
    assumed = []
    if not overlay.keys.gpus_per_host and not network.gpus_per_host:
        assumed.append(f"{DEFAULT_GPUS} GPUs a host")
    if not overlay.keys.nic_gbps and not network.nic_gbps:
        assumed.append(f"{DEFAULT_GBPS} Gbit/s each")
    if not overlay.tiers and not network.oversubscription:
        assumed.append("full bandwidth above every tier")
    if network.scale_up and not _says_scale_up(overlay):
        assumed.append(f"{DEFAULT_SCALE_UP_GBPS:,.0f} Gbit/s of NVLink a GPU inside each domain")
    if assumed:
        yield f"assumed: {', '.join(assumed)}; an overlay says otherwise"


def _spec(
    network: TopologyNetwork, overlay: FabricOverlay, by_tier: Rates, name: str
) -> dict[str, Any]:
    """The content of the fabric file."""
    head = {
        "name": overlay.keys.name or name,
        "kind": overlay.keys.kind or network.kind,
        "gpus_per_host": overlay.keys.gpus_per_host or network.gpus_per_host or DEFAULT_GPUS,
        "nic_gbps": plain(overlay.keys.nic_gbps or network.nic_gbps or DEFAULT_GBPS),
    }
    joined = network.joined if overlay.keys.joined is None else overlay.keys.joined
    if not joined and network.depth and len(network.domains(0)) > 1:
        head["joined"] = False
    if overlay.keys.gpu:
        head["gpu"] = overlay.keys.gpu
    if overlay.keys.scale_up_gbps:
        head["scale_up_gbps"] = plain(overlay.keys.scale_up_gbps)
    usual = [commonest(rates.values()) for rates in by_tier]
    nvlink = _scale_up(network, overlay)
    usually = commonest(nvlink.values()) if nvlink else 0.0
    host_tier = overlay.tiers[-1].name if overlay.tiers else DEFAULT_HOST_TIER
    late = {tier.name: dict(tier.latency) for tier in overlay.tiers}
    tiers = [_tier(n, r) | late.get(n, {}) for n, r in zip(network.tier_names, usual, strict=True)]
    if usually:
        tiers[-1]["scale_up"] = {"gbps_per_gpu": plain(usually)}
    apart = {name: gbps for name, gbps in nvlink.items() if gbps != usually}
    tiers.append({"name": host_tier} | late.get(host_tier, {}))
    if not network.depth:
        raise BadInput("", "has no tier above its hosts: write `tiers` with the count of hosts")
    domains = _domains(_tree(network), by_tier, usual, apart)
    return {**head, "tiers": tiers, "domains": domains}


def _scale_up(network: TopologyNetwork, overlay: FabricOverlay) -> dict[str, float]:
    """Gbit/s of NVLink a GPU in each innermost domain: the overlay's word, else the usual in
    those that the file calls such, 0 in others."""
    if not network.depth:
        return {}
    tier = overlay.tiers[-2] if len(overlay.tiers) > 1 else SILENT_TIER
    groups = {}
    for name in network.domains(network.depth - 1):
        own = tier.domains[name].scale_up_gbps if name in tier.domains else None
        said = tier.scale_up_gbps if own is None else own
        file_says = DEFAULT_SCALE_UP_GBPS if name in network.scale_up else 0.0
        groups[name] = file_says if said is None else said
    return groups


def _says_scale_up(overlay: FabricOverlay) -> bool:
    said = [tier.scale_up_gbps for tier in overlay.tiers[-2:-1]]
    said += [each.scale_up_gbps for tier in overlay.tiers[-2:-1] for each in tier.domains.values()]
    return any(gbps is not None for gbps in said)


def _tier(name: str, rate: float) -> dict[str, Any]:
    return {"name": name} if rate == 1 else {"name": name, "oversubscription": plain(rate)}


def plain(rate: float) -> float:
    """Return 7 for 7.0, as people write it and so that both have one digest."""
    return int(rate) if rate == int(rate) else rate


def commonest(values: Iterable[float]) -> float:
    counted = Counter(values)
    return max(counted, key=lambda value: counted[value])  # the first of equals


def _tree(network: TopologyNetwork) -> Tree:
    """Domains in the order in which the file first names them."""
    tree: Tree = {}
    for host, path in zip(network.hosts, network.paths, strict=True):
        at = tree
        for name in path[:-1]:
            at = at.setdefault(name, {})
        at.setdefault(path[-1], []).append(host)
    return tree


def _domains(
    tree: Tree, by_tier: Rates, usual: Sequence[float], nvlink: Mapping[str, float], level: int = 0
) -> list[dict[str, Any]]:
    """`nvlink`: of innermost domains that differ from most in it."""
    listed = []
    for name, child in tree.items():
        rate = by_tier[level][name]
        item: dict[str, Any] = {"name": name}
        if rate != usual[level]:
            item["oversubscription"] = plain(rate)
        if isinstance(child, list):
            if name in nvlink:
                gbps = nvlink[name]
                item["scale_up"] = {"gbps_per_gpu": plain(gbps)} if gbps else None
            item["hosts"] = [hostlist.fold(child)]
        else:
            item["domains"] = _domains(child, by_tier, usual, nvlink, level + 1)
        listed.append(item)
    return listed
