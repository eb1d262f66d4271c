"""A fabric with hosts that join it, each where it says that it is.

A host names its domain on one tier or on several; those around a domain that there is are known,
and a domain that there is not is made inside one that there is. What a new host has is what its
domain says of its hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from placement import BadInput
from placement.fabric import hostlist


def with_host(spec: Mapping[str, Any], host: str, place: Mapping[str, str]) -> dict[str, Any]:
    """Return the fabric file `spec` with the host at the end of its innermost domain. `place`:
    names of domains by name of their tier; a key may have a prefix as in
    topology.kubernetes.io/zone, and other keys are ignored.

    Raises: BadInput.
    """
    if host != (hostlist.expand(host) or [""])[0] or len(hostlist.expand(host)) != 1:
        raise BadInput("", f"{host!r} is not the name of one host")
    tiers = [str(tier["name"]) for tier in spec["tiers"][:-1]]
    if not tiers:
        raise BadInput("", f"{spec['name']} has no tiers in which hosts could have a place")
    grown = listed(spec)
    path = _path(grown["domains"], tiers, place)
    domains = grown["domains"]
    for name in path[:-1]:
        domains = _domain(domains, name, "domains")["domains"]
    rack = _domain(domains, path[-1], "hosts")
    letter = str(grown["tiers"][-1]["name"])[0]
    hosts = rack["hosts"]
    if isinstance(hosts, int):
        hosts = hostlist.numbered(f"{rack['name']}-", letter, hosts)
    rack["hosts"] = [*hosts, host]
    return grown


def _domain(domains: list[dict[str, Any]], name: str, key: str) -> dict[str, Any]:
    """The domain of this name, which is made where there is none."""
    for domain in domains:
        if domain["name"] == name:
            return domain
    domains.append({"name": name, key: []})
    return domains[-1]


def _path(
    domains: list[dict[str, Any]], tiers: list[str], place: Mapping[str, str]
) -> tuple[str, ...]:
    """The domains of a host, outermost first."""
    stated = {key.rpartition("/")[2]: name for key, name in place.items()}
    named = {tier: stated[tier] for tier in tiers if stated.get(tier)}
    if not named:
        said = ", ".join(place) or "nothing"
        raise BadInput("", f"its place must name one of {', '.join(tiers)}; it names {said}")
    known = {(len(path) - 1, path[-1]): path for path in _paths(domains, ())}
    inner = max(tiers.index(tier) for tier in named)
    for depth in range(inner, -1, -1):
        if path := known.get((depth, named.get(tiers[depth], ""))):
            break
    else:
        depth, path = -1, ()
    for tier, name in named.items():
        at = tiers.index(tier)
        if at <= depth and path[at] != name:
            raise BadInput("", f"{tiers[depth]} {path[depth]} is in {tier} {path[at]}, not {name}")
    missing = [tier for tier in tiers[depth + 1 :] if tier not in named]
    if missing:
        raise BadInput("", f"its place does not say in which {missing[0]} it is")
    return (*path, *(named[tier] for tier in tiers[depth + 1 :]))


def _paths(domains: list[dict[str, Any]], above: tuple[str, ...]) -> list[tuple[str, ...]]:
    paths = []
    for domain in domains:
        path = (*above, domain["name"])
        paths += [path, *_paths(domain.get("domains", []), path)]
    return paths


def listed(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fabric with every domain listed by name, and none counted."""
    copy = deepcopy(dict(spec))
    tiers = copy["tiers"]
    if "domains" not in copy:
        copy["tiers"] = [{k: v for k, v in tier.items() if k != "count"} for tier in tiers]
        copy["domains"] = _counted([(tier["name"][0], tier["count"]) for tier in tiers], "")
    else:
        copy["domains"] = _listed(copy["domains"], [tier["name"][0] for tier in tiers], "")
    return copy


def _counted(levels: list[tuple[str, int]], stem: str) -> list[dict[str, Any]]:
    """Domains of a regular fabric, by the names that it gives them."""
    (letter, count), *below = levels
    return [
        {"name": name, "hosts": below[0][1]}
        if len(below) == 1
        else {"name": name, "domains": _counted(below, f"{name}-")}
        for name in hostlist.numbered(stem, letter, count)
    ]


def _listed(domains: Any, letters: list[str], stem: str) -> list[dict[str, Any]]:
    if isinstance(domains, Mapping):
        each = {key: value for key, value in domains.items() if key != "count"}
        names = hostlist.numbered(stem, letters[0], domains["count"])
        domains = [{"name": name, **deepcopy(each)} for name in names]
    for domain in domains:
        if "domains" in domain:
            domain["domains"] = _listed(domain["domains"], letters[1:], f"{domain['name']}-")
    return list(domains)
