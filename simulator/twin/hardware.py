"""The same fabric with other links: uplinks of the outermost tier, NVLink across racks of a domain.

Hosts and domains keep their names and places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from placement import BadInput
from placement.fabric.tree import Fabric, from_spec

Item = dict[str, Any]


def with_oversubscription(fabric: Fabric, ratio: float) -> Fabric:
    """All uplinks of the outermost tier at this ratio, also where the file states others."""
    spec = _copy(fabric)
    if not spec.get("tiers"):
        raise BadInput("", f"{fabric.name} has no tiers: nothing is oversubscribed")
    spec["tiers"][0]["oversubscription"] = ratio
    domains = spec.get("domains", ())
    for item in [domains] if isinstance(domains, dict) else domains:
        item.pop("oversubscription", None)
    return from_spec({**spec, "name": f"{fabric.name}-{ratio:g}to1"})


def with_scale_up(fabric: Fabric, domain: str, gbps: float) -> Fabric:
    """GPUs of each rack of the domain talk over NVLink: racks are the domains next to the hosts.

    Raises: BadInput on a name of no domain, on racks that have as much already.
    """
    spec = _listed(fabric)
    letters = [str(tier["name"])[0] for tier in spec["tiers"]]
    item = next(_below(spec, domain, "", letters, 0), None)
    if item is None:
        tiers = " or ".join(tier.name for tier in fabric.tiers)
        raise BadInput("", f"{domain} is not a {tiers or 'domain'} of {fabric.name}")
    racks = list(_innermost(item))
    if all(rack.get("scale_up", {}).get("gbps_per_gpu", 0) >= gbps for rack in racks):
        raise BadInput("", f"the racks of {domain} have NVLink of {gbps:g} Gbit/s already")
    for rack in racks:
        rack["scale_up"] = {"gbps_per_gpu": gbps}
    changed = from_spec(spec)
    if changed.hosts != fabric.hosts:
        raise RuntimeError(f"hosts of {fabric.name} have other names once its domains are listed")
    return changed


def _copy(fabric: Fabric) -> Item:
    return deepcopy({key: _plain(value) for key, value in fabric.spec.items()})


def _plain(value: Any) -> Any:
    """The same with dicts and lists, which can be changed."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _listed(fabric: Fabric) -> Item:
    """The file with its domains under `domains`, where they can differ."""
    spec = _copy(fabric)
    tiers = spec.get("tiers", [])
    if "domains" in spec:
        return spec
    if len(tiers) < 2:
        raise BadInput("", f"{fabric.name} has no tiers above its hosts")
    inner: Item = {"hosts": tiers[-1]["count"]}
    for tier in reversed(tiers[:-1]):
        inner = {"domains": {"count": tier["count"], **inner}}
    for tier in tiers:
        del tier["count"]
    return {**spec, **inner}


def _below(item: Item, name: str, stem: str, letters: list[str], depth: int) -> Iterator[Item]:
    """The domain of this name below `item`, taken out of the group that it stands in."""
    domains = item.get("domains")
    if domains is None:
        return
    if isinstance(domains, dict):
        count = domains["count"]
        width = len(str(count - 1))
        each = {key: value for key, value in domains.items() if key != "count"}
        names = [f"{stem}{letters[depth]}{i:0{width}d}" for i in range(count)]
        domains = [{"name": number, **deepcopy(each)} for number in names]
        if not any(name == number or name.startswith(f"{number}-") for number in names):
            return
        item["domains"] = domains
    for domain in domains:
        if domain["name"] == name:
            yield domain
            return
        yield from _below(domain, name, f"{domain['name']}-", letters, depth + 1)


def _innermost(item: Item) -> Iterator[Item]:
    """Domains, or groups of them, that hold hosts."""
    domains = item.get("domains")
    if domains is None:
        yield item
    elif isinstance(domains, dict):
        yield from _innermost(domains)
    else:
        for domain in domains:
            yield from _innermost(domain)
