"""The overlay: what a topology file cannot say and a fabric needs.

A small YAML file in the words of a fabric file; docs/fabric-formats.md has examples. A tier names
and rates the domains that the import finds; below `domains` stand exceptions, and whole tiers that
no file knows.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostlist
from placement.fabric.gpus import gpu_named
from placement.fabric.reader import KINDS, LATENCY_KEYS
from scheduler.files.field_types import one_of
from scheduler.files.job_keys import Count, Flag, Keys, Positive, Text, checked_keys, parsed
from scheduler.files.yaml12 import Document, load

DEFAULT_HOST_TIER = "host"


class _ScaleUpKeys(Keys):
    gbps_per_gpu: Positive


class _PartOverlay(Keys):
    """Facts about the domains of a tier, or about one of them."""

    oversubscription: Positive | None = None
    scale_up: _ScaleUpKeys | None = None

    @property
    def scale_up_gbps(self) -> float | None:
        """Gbit/s of NVLink a GPU, 0 where it has none; None where nothing is said."""
        if self.scale_up is None:
            return 0.0 if "scale_up" in self.model_fields_set else None
        return self.scale_up.gbps_per_gpu


def _names_held(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str):
        raise BadInput("", f"must be names or ranges such as rack[1-2], not {value!r}")
    return tuple(hostlist.expand(value))


class DomainOverlay(_PartOverlay):
    """Facts about one domain from the person who imports: its own oversubscription, and the domains
    of the next tier that it holds."""

    holds: Annotated[tuple[str, ...], parsed(_names_held)] = ()


class TierOverlay(_PartOverlay):
    name: Text
    latency_us: Positive | None = None
    km: Positive | None = None
    domains: dict[str, DomainOverlay] = Field(default_factory=dict)

    @property
    def latency(self) -> dict[str, Any]:
        """Keys of its latency, as the fabric file has them."""
        return {key: value for key in LATENCY_KEYS if (value := getattr(self, key)) is not None}

    @property
    def is_added(self) -> bool:
        """Whether this tier is made by the overlay, from the one below, and not by the topology
        file."""
        return any(domain.holds for domain in self.domains.values())


SILENT_TIER = TierOverlay(name="-")


class _FileKeys(Keys):
    name: Text | None = None
    kind: Annotated[str, one_of(*KINDS)] | None = None
    joined: Flag | None = None
    gpus_per_host: Count | None = None
    gpu: Annotated[str, parsed(lambda name: gpu_named(name, "", {}).name)] | None = None
    nic_gbps: Positive | None = None
    scale_up_gbps: Positive | None = None
    tiers: tuple[TierOverlay, ...] | None = None


@struct(frozen=True, slots=True)
class FabricOverlay:
    """Facts about a fabric, beyond its topology file, from the person who imports it."""

    keys: _FileKeys = _FileKeys()
    document: Document = Document(None)

    @property
    def tiers(self) -> tuple[TierOverlay, ...]:
        """Tiers, outermost first, the hosts last; empty where nothing is said of them."""
        return self.keys.tiers or ()


def read(path: str) -> FabricOverlay:
    """Read an overlay. Raises: InputError with file, line and field."""
    document = load(path)
    overlay = FabricOverlay(checked_keys(_FileKeys, document), document)
    if overlay.keys.tiers == ():
        raise document.error(("tiers", "must name a tier: the outermost first, hosts last"))
    names = [tier.name for tier in overlay.tiers]
    if len(set(names)) != len(names):
        raise document.error(("tiers", f"tier names repeat: {', '.join(names)}"))
    if overlay.tiers and overlay.tiers[-1].domains:
        field = f"tiers.{len(names) - 1}.domains"
        raise document.error((field, "must be absent: the last tier is the hosts"))
    return overlay
