"""What every topology file says in the end: hosts, and the domains above each of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from muster.structs import struct

FROM_BELOW = ("rack", "zone", "building")  # tiers of a file that does not name them
MOST_NAMED = 3

Path = tuple[str, ...]  # domains above a host, outermost first


@struct(frozen=True, slots=True)
class TopologyNetwork:
    """Hosts in the order of the file; `paths[i]`, all of one length, stands above `hosts[i]`.

    `oversubscription` is by (tiers below, domain). It and the bandwidths are what the
    format itself knows: for most, nothing. `scale_up` are innermost domains whose GPUs share an
    NVLink. `joined`: whether anything joins the outermost domains. `notes` are sentences for the
    person who imports.
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
    """What the person who imports chooses: a topology, label keys, hosts by pattern."""

    topology: str | None = None
    label_keys: tuple[str, ...] = ()
    hosts: str | None = None


def names_from_below(levels: int) -> tuple[str, ...]:
    """rack; zone, rack; building, zone, rack; tier-4, building, zone, rack; ..."""
    names = [FROM_BELOW[i] if i < len(FROM_BELOW) else f"tier-{i + 1}" for i in range(levels)]
    return tuple(reversed(names))


def padded(path: Path, length: int) -> Path:
    """A short path with its outermost domain repeated: it stands alone on the tiers it skips."""
    return (path[0],) * (length - len(path)) + path


def shortened(names: Iterable[str]) -> str:
    """`a, b, c and 7 more`."""
    listed = list(names)
    text = ", ".join(listed[:MOST_NAMED])
    more = len(listed) - MOST_NAMED
    return f"{text} and {more:,} more" if more > 0 else text


def joined(
    paths: Sequence[Path], accelerators: Sequence[str]
) -> tuple[tuple[Path, ...], frozenset[str], str]:
    """Paths with the accelerator domain of each host (empty: none) as the innermost domain, the
    domains that are such, and what was left out, as a sentence.

    Where each domain is what one innermost switch serves, that switch stands for it. Tiers of
    switches inside a domain are dropped: its GPUs need none of them.
    """
    if not any(accelerators):
        return tuple(paths), frozenset(), ""
    level = len(paths[0])
    while level and not _is_inside(accelerators, [path[level - 1] for path in paths]):
        level -= 1
    dropped = len(paths[0]) - level
    tiers = "1 tier" if dropped == 1 else f"{dropped} tiers"
    text = f"{tiers} of switches inside accelerator domains left out" if dropped else ""
    leaves = [path[level - 1] if level else "" for path in paths]
    with_domain = [leaf for leaf, domain in zip(leaves, accelerators, strict=True) if domain]
    if level and _is_inside(leaves, accelerators) and "" not in with_domain:
        return tuple(path[:level] for path in paths), frozenset(with_domain), text
    known = frozenset(domain for domain in accelerators if domain)
    made = [
        (*path[:level], domain or f"{leaf}-rest")
        for path, domain, leaf in zip(paths, accelerators, leaves, strict=True)
    ]
    return tuple(made), known, text


def _is_inside(inner: Sequence[str], outer: Sequence[str]) -> bool:
    """Whether each inner domain lies in one outer one. Hosts without an inner one are passed."""
    of: dict[str, str] = {}
    pairs = zip(inner, outer, strict=True)
    return all(of.setdefault(domain, around) == around for domain, around in pairs if domain)


def second_parent(paths: Sequence[Path]) -> tuple[str, str, str] | None:
    """A domain that stands under two others, with both; None in a tree."""
    for level in range(1, len(paths[0]) if paths else 0):
        above: dict[str, str] = {}
        for path in paths:
            first = above.setdefault(path[level], path[level - 1])
            if first != path[level - 1]:
                return path[level], first, path[level - 1]
    return None
