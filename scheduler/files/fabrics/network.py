"""What every topology file says in the end: hosts, and the domains above each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType

from muster.structs import struct

FROM_BELOW = ("rack", "zone", "building")  # tiers of a file that does not name them
MOST_NAMED = 3

Path = tuple[str, ...]  # domains above a host, outermost first


@struct(frozen=True, slots=True)
class TopologyNetwork:
    """A network as a topology file describes it. Hosts in the order of the file; `paths[i]`, all of
    one length, stands above `hosts[i]`.

    `oversubscription` is by (tiers below, domain). It and the bandwidths are what the format itself
    knows: for most, nothing. `scale_up` are innermost domains whose GPUs share an NVLink. `joined`:
    whether anything joins the outermost domains. `notes` are sentences for the person who imports.
    """

    hosts: tuple[str, ...]
    paths: tuple[Path, ...]
    tier_names: tuple[str, ...]  # of the domains, outermost first
    kind: str = "roce"
    gpus_per_host: int | None = None
    nic_gbps: float | None = None
    oversubscription: Mapping[tuple[int, str], float] = field(
        default_factory=lambda: MappingProxyType({})
    )
    notes: tuple[str, ...] = ()
    scale_up: frozenset[str] = frozenset()
    joined: bool = True

    @property
    def depth(self) -> int:
        """Tiers above the hosts."""
        return len(self.tier_names)

    def domains(self, level: int) -> list[str]:
        """Names on one level, in the order of the file."""
        return list(dict.fromkeys(path[level] for path in self.paths))


@struct(frozen=True, slots=True)
class Choices:
    """Choices of the person who imports a fabric."""

    topology: str | None = None
    label_keys: tuple[str, ...] = ()
    hosts: str | None = None


def names_from_below(levels: int) -> tuple[str, ...]:
    """Return usual names for so many tiers: rack; zone, rack; building, zone, rack; tier-4,
    building, zone, rack; ..."""
    names = [FROM_BELOW[i] if i < len(FROM_BELOW) else f"tier-{i + 1}" for i in range(levels)]
    return tuple(reversed(names))


def shortened(names: Iterable[str]) -> str:
    """List names, cut short: `a, b, c and 7 more`."""
    listed = list(names)
    text = ", ".join(listed[:MOST_NAMED])
    more = len(listed) - MOST_NAMED
    return f"{text} and {more:,} more" if more > 0 else text
