"""The overlay: what a topology file cannot say and a fabric needs.

A small YAML file in the words of a fabric file; docs/fabric-formats.md has examples. A tier names
and rates the domains that the import finds; below `domains` stand exceptions, and whole tiers that
no file knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from muster.structs import struct
from placement import BadInput, positive, positive_integer, refuse_unknown_keys
from placement.fabric import hostlist
from placement.fabric.gpus import gpu_named
from placement.fabric.reader import KINDS, LATENCY_KEYS, scale_up_gbps
from scheduler.files.yaml12 import Document, load

DEFAULT_HOST_TIER = "host"
_KEYS = ("name", "kind", "joined", "gpus_per_host", "gpu", "nic_gbps", "scale_up_gbps", "tiers")


@struct(frozen=True, slots=True)
class DomainOverlay:
    """Facts about one domain from the person who imports: its own oversubscription, and the domains
    of the next tier that it holds.

    `scale_up_gbps`: of NVLink, 0 where it has none; None where nothing is said.
    """

    oversubscription: float | None = None
    holds: tuple[str, ...] = ()
    scale_up_gbps: float | None = None


@struct(frozen=True, slots=True)
class TierOverlay:
    name: str
    oversubscription: float | None = None
    domains: Mapping[str, DomainOverlay] = field(default_factory=dict)
    scale_up_gbps: float | None = None
    latency: Mapping[str, float] = field(default_factory=dict)  # as the fabric file has it

    @property
    def is_added(self) -> bool:
        """Whether this tier is made by the overlay, from the one below, and not by the topology
        file."""
        return any(domain.holds for domain in self.domains.values())


@struct(frozen=True, slots=True)
class FabricOverlay:
    """Facts about a fabric, beyond its topology file, from the person who imports it. `tiers` is
    empty where the overlay says nothing of them; else the hosts come last."""

    name: str | None = None
    kind: str | None = None
    gpus_per_host: int | None = None
    nic_gbps: float | None = None
    scale_up_gbps: float | None = None
    tiers: tuple[TierOverlay, ...] = ()
    document: Document = field(default_factory=lambda: Document(None))
    gpu: str | None = None
    joined: bool | None = None


def read(path: str) -> FabricOverlay:
    """Read an overlay. Raises: InputError with file, line and field."""
    document = load(path)
    try:
        return _overlay(document)
    except BadInput as error:
        raise document.error((error.field, error.message)) from None


def _overlay(document: Document) -> FabricOverlay:
    body = document.mapping()
    refuse_unknown_keys(body, "", _KEYS)
    name, kind, gpus = body.get("name"), body.get("kind"), body.get("gpus_per_host")
    if name is not None and (not isinstance(name, str) or not name):
        raise BadInput("name", "must be a non-empty text")
    if kind is not None and kind not in KINDS:
        raise BadInput("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    if gpus is not None:
        positive_integer(gpus, "gpus_per_host")
    speeds = _number(body, "nic_gbps", ""), _number(body, "scale_up_gbps", "")
    gpu = gpu_named(body["gpu"], "gpu", {}).name if "gpu" in body else None
    joined = body.get("joined")
    if joined is not None and not isinstance(joined, bool):
        raise BadInput("joined", f"must be true or false, not {joined!r}")
    return FabricOverlay(name, kind, gpus, *speeds, _tiers(body), document, gpu, joined)


def _tiers(body: Mapping[str, Any]) -> tuple[TierOverlay, ...]:
    listed = body.get("tiers", [])
    if not isinstance(listed, list) or ("tiers" in body and not listed):
        raise BadInput("tiers", "must be a list, outermost tier first, hosts last")
    tiers = tuple(_tier(item, f"tiers.{i}") for i, item in enumerate(listed))
    names = [tier.name for tier in tiers]
    if len(set(names)) != len(names):
        raise BadInput("tiers", f"tier names repeat: {', '.join(names)}")
    if tiers and tiers[-1].domains:
        raise BadInput(
            f"tiers.{len(tiers) - 1}.domains", "must be absent: the last tier is the hosts"
        )
    return tiers


def _tier(item: Any, at: str) -> TierOverlay:
    if not isinstance(item, dict):
        raise BadInput(at, "must be a mapping with name")
    refuse_unknown_keys(
        item, at, ("name", "oversubscription", "scale_up", *LATENCY_KEYS, "domains")
    )
    if not isinstance(item.get("name"), str) or not item["name"]:
        raise BadInput(f"{at}.name", "must be a non-empty text")
    domains = item.get("domains", {})
    if not isinstance(domains, dict):
        raise BadInput(f"{at}.domains", "must be a mapping of domain names")
    named = {name: _domain(value, f"{at}.domains.{name}") for name, value in domains.items()}
    rate = _number(item, "oversubscription", at)
    late = {key: value for key in LATENCY_KEYS if (value := _number(item, key, at)) is not None}
    return TierOverlay(item["name"], rate, named, _scale_up(item, at), late)


def _domain(value: Any, at: str) -> DomainOverlay:
    if not isinstance(value, dict):
        raise BadInput(at, "must be a mapping with oversubscription or holds")
    refuse_unknown_keys(value, at, ("oversubscription", "holds", "scale_up"))
    holds = value.get("holds", "")
    if not isinstance(holds, str):
        raise BadInput(f"{at}.holds", f"must be names or ranges, not {holds!r}")
    try:
        names = tuple(hostlist.expand(holds)) if holds else ()
    except BadInput as error:
        raise BadInput(f"{at}.holds", error.message) from None
    return DomainOverlay(_number(value, "oversubscription", at), names, _scale_up(value, at))


def _scale_up(item: Mapping[str, Any], at: str) -> float | None:
    """As in a fabric file: {gbps_per_gpu: N}, or null for none."""
    if "scale_up" not in item:
        return None
    return scale_up_gbps(item, at, 0.0)


def _number(item: Mapping[str, Any], key: str, at: str) -> float | None:
    value = item.get(key)
    return None if value is None else positive(value, f"{at}.{key}" if at else key)
