"""A fabric: a tree of tiers above the hosts, and the bandwidth of each uplink.

Hosts are numbered in tree order, and that number is the host everywhere inside
muster; names appear at the edges only. A tier keeps one array: the domain of
each host. Nothing else of the network enters the cut (design: placement, 1).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

from placement.errors import BadInput
from placement.fabric import hostlist
from placement.fabric.labels import Labels, read_labels

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints: TypeAlias = npt.NDArray[np.int64]
    Floats: TypeAlias = npt.NDArray[np.float64]
else:  # numpy is loaded where a fabric is built, not where its presets are named
    Ints: TypeAlias = Any
    Floats: TypeAlias = Any

KINDS = ("roce", "infiniband")
_KEYS = ("name", "kind", "gpus_per_host", "nic_gbps", "scale_up_gbps", "tiers", "domains", "labels")
MOST_HOSTS = 200_000
MOST_GPUS_PER_HOST = 65_536
SCALE_UP_GBPS = 3600.0  # NVLink 4 of an H100: 450 GB/s per direction and GPU

PRESETS: dict[str, dict[str, Any]] = {
    # Llama 3 (2024), 3.3.1: 8 pods of 192 racks, 2 hosts a rack, 1:7 above the pod.
    "roce-24k": {
        "name": "roce-24k",
        "kind": "roce",
        "gpus_per_host": 8,
        "nic_gbps": 400,
        "tiers": [
            {"name": "zone", "count": 8, "oversubscription": 7},
            {"name": "rack", "count": 192},
            {"name": "host", "count": 2},
        ],
    },
    # DGX SuperPOD: scalable units of 32 hosts, 4 to a pod, non-blocking throughout.
    "ib-24k": {
        "name": "ib-24k",
        "kind": "infiniband",
        "gpus_per_host": 8,
        "nic_gbps": 400,
        "tiers": [
            {"name": "pod", "count": 24},
            {"name": "su", "count": 4},
            {"name": "host", "count": 32},
        ],
    },
}


@dataclass(frozen=True, slots=True, eq=False)
class Tier:
    """One level of the tree above the hosts.

    `domain_by_host`: shape (hosts,), index into `domains`.
    `uplink_bytes_per_s`: shape (domains,), one direction; injection / oversubscription.
    """

    name: str
    domains: tuple[str, ...]
    domain_by_host: Ints
    uplink_bytes_per_s: Floats


@lru_cache(maxsize=64)
def sizes_of(tier: Tier) -> Ints:
    """Hosts of each domain, not to be written to."""
    import numpy as np

    sizes = np.bincount(tier.domain_by_host, minlength=len(tier.domains))
    sizes.flags.writeable = False
    return sizes


@dataclass(frozen=True, eq=False)
class Fabric:
    """Tiers outermost first, hosts in tree order. `spec` rebuilds the value.

    `nic_gbps`, `scale_up_gbps`: of one GPU, one direction: out of its host, and inside it.
    `labels`: the hosts of each value of each label.
    """

    name: str
    kind: str
    gpus_per_host: int
    nic_gbps: float
    tiers: tuple[Tier, ...]
    hosts: tuple[str, ...]
    spec: Mapping[str, Any]
    scale_up_gbps: float = SCALE_UP_GBPS
    labels: Labels = field(default_factory=dict)

    @property
    def host_count(self) -> int:
        return len(self.hosts)

    @cached_property
    def index_by_name(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.hosts)}

    @cached_property
    def digest(self) -> str:
        """Names this fabric's content; equal digests place equally."""
        text = json.dumps(self.spec, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fabric) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """Raises: KeyError on a name that this fabric does not have."""
        by_name = self.index_by_name
        return tuple([by_name[name] for name in names])

    def names(self, hosts: Sequence[int]) -> tuple[str, ...]:
        return tuple(map(self.hosts.__getitem__, hosts))

    def domain(self, host: int, tier: int = 0) -> str:
        """The domain that holds `host` on `tier`; the host itself below the last one."""
        if tier >= len(self.tiers):
            return self.hosts[host]
        level = self.tiers[tier]
        return level.domains[int(level.domain_by_host[host])]

    @property
    def zone_count(self) -> int:
        """Outermost domains; a fabric without tiers is one."""
        return len(self.tiers[0].domains) if self.tiers else 1

    def zone_of(self, host: int) -> int:
        """Number of the outermost domain of `host`."""
        return int(self.tiers[0].domain_by_host[host]) if self.tiers else 0


@lru_cache(maxsize=64)
def above(fabric: Fabric, depth: int) -> tuple[Ints, ...]:
    """For each tier down to `depth`, the domain there of each domain of tier `depth`; not to be
    written to."""
    import numpy as np

    inner = fabric.tiers[depth]
    found = []
    for tier in fabric.tiers[: depth + 1]:
        domain = np.zeros(len(inner.domains), dtype=np.int64)
        domain[inner.domain_by_host] = tier.domain_by_host
        domain.flags.writeable = False
        found.append(domain)
    return tuple(found)


def preset(name: str) -> Fabric:
    """Raises: BadInput with the known names."""
    if name not in PRESETS:
        raise BadInput("", f"unknown fabric {name!r}; presets are {', '.join(PRESETS)}")
    return from_spec(PRESETS[name])


def from_spec(spec: Mapping[str, Any]) -> Fabric:
    """Build a fabric from the content of a fabric file.

    Regular fabrics give a count per tier; irregular ones add `domains`, a nested
    list whose leaves name or count their hosts.

    Raises: BadInput with the field's path.
    """
    if not isinstance(spec, Mapping):
        raise BadInput("", "a fabric must be a mapping with name, gpus_per_host and tiers")
    _only(spec, "", set(_KEYS))
    name = _text(spec, "name")
    kind = spec.get("kind", "roce")
    if kind not in KINDS:
        raise BadInput("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    gpus = _count(spec.get("gpus_per_host"), "gpus_per_host")
    if gpus > MOST_GPUS_PER_HOST:
        raise BadInput("gpus_per_host", f"must be at most {MOST_GPUS_PER_HOST:,}, not {gpus:,}")
    gbps = _positive(spec.get("nic_gbps", 400), "nic_gbps")
    scale_up = _positive(spec.get("scale_up_gbps", SCALE_UP_GBPS), "scale_up_gbps")
    tiers = _tier_entries(spec.get("tiers"))
    tree = _listed_tree(spec["domains"], tiers) if "domains" in spec else _regular_tree(tiers)
    fabric = _assemble(name, kind, gpus, gbps, tiers, tree, spec)
    places = _places(fabric.tiers, fabric.hosts)
    labels = read_labels(spec.get("labels", {}), places, fabric.host_count)
    return replace(fabric, scale_up_gbps=scale_up, labels=labels)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One host with the names and oversubscriptions of the domains above it."""

    host: str
    path: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class _TierEntry:
    name: str
    count: int | None
    oversubscription: float


def _tier_entries(value: Any) -> list[_TierEntry]:
    if not isinstance(value, list) or not value:
        raise BadInput("tiers", "must be a list, outermost tier first, hosts last")
    entries = []
    for i, item in enumerate(value):
        path = f"tiers.{i}"
        if not isinstance(item, Mapping):
            raise BadInput(path, "must be a mapping with name and count")
        _only(item, path, {"name", "count", "oversubscription"})
        count = None if item.get("count") is None else _count(item["count"], f"{path}.count")
        over = _positive(item.get("oversubscription", 1), f"{path}.oversubscription")
        entries.append(_TierEntry(_text(item, "name", path), count, over))
    names = [e.name for e in entries]
    if len(set(names)) != len(names):
        raise BadInput("tiers", f"tier names repeat: {', '.join(names)}")
    return entries


def _regular_tree(tiers: list[_TierEntry]) -> list[_Leaf]:
    counts = []
    total = 1
    for i, tier in enumerate(tiers):
        if tier.count is None:
            raise BadInput(f"tiers.{i}.count", "is required unless `domains` lists the tree")
        counts.append(tier.count)
        total *= tier.count
    if total > MOST_HOSTS:
        raise BadInput("tiers", f"{total:,} hosts; at most {MOST_HOSTS:,} are supported")
    widths = [len(str(count - 1)) for count in counts]
    leaves = []
    for where in product(*(range(count) for count in counts)):
        parts = [f"{t.name[0]}{i:0{w}d}" for t, i, w in zip(tiers, where, widths, strict=True)]
        path = [("-".join(parts[: k + 1]), t.oversubscription) for k, t in enumerate(tiers[:-1])]
        leaves.append(_Leaf("-".join(parts), tuple(path)))
    return leaves


def _listed_tree(value: Any, tiers: list[_TierEntry]) -> list[_Leaf]:
    leaves = list(_walk(value, tiers, (), "domains", set()))
    if not leaves:
        raise BadInput("domains", "the fabric has no hosts")
    if len(leaves) > MOST_HOSTS:
        raise BadInput("domains", f"{len(leaves):,} hosts; at most {MOST_HOSTS:,} are supported")
    return leaves


def _walk(
    value: Any,
    tiers: list[_TierEntry],
    above: tuple[tuple[str, float], ...],
    path: str,
    seen: set[tuple[int, str]],
) -> Iterator[_Leaf]:
    """Leaves below one list of domains; `seen` names those met so far, by tier."""
    depth = len(above)
    if depth >= len(tiers) - 1:
        raise BadInput(path, f"is deeper than the {len(tiers)} tiers declared")
    if not isinstance(value, list):
        raise BadInput(path, "must be a list of domains")
    for i, item in enumerate(value):
        here = f"{path}.{i}"
        if not isinstance(item, Mapping):
            raise BadInput(here, "must be a mapping with name and domains or hosts")
        _only(item, here, {"name", "oversubscription", "domains", "hosts"})
        name = _text(item, "name", here)
        if (depth, name) in seen:
            raise BadInput(f"{here}.name", f"{tiers[depth].name} {name} is listed twice")
        seen.add((depth, name))
        over = item.get("oversubscription", tiers[depth].oversubscription)
        chain = (*above, (name, _positive(over, f"{here}.oversubscription")))
        if "domains" in item:
            if "hosts" in item:
                raise BadInput(f"{here}.hosts", "conflicts with `domains`: give one of them")
            yield from _walk(item["domains"], tiers, chain, f"{here}.domains", seen)
        elif depth != len(tiers) - 2:
            raise BadInput(here, f"needs `domains`: the next tier is {tiers[depth + 1].name}")
        else:
            for host in _listed_hosts(item.get("hosts"), name, tiers[-1].name[0], f"{here}.hosts"):
                yield _Leaf(host, chain)


def _listed_hosts(value: Any, domain: str, letter: str, path: str) -> list[str]:
    """`hosts: 8` numbers them; a list gives names and hostlist ranges."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, str):
                raise BadInput(f"{path}.{i}", f"must be a host name or range, not {item!r}")
        try:
            return [name for item in value for name in hostlist.expand(item)]
        except BadInput as error:
            raise BadInput(path, error.message) from None
    count = _count(value, path)
    if count > MOST_HOSTS:
        raise BadInput(path, f"{count:,} hosts; at most {MOST_HOSTS:,} are supported")
    width = len(str(count - 1))
    return [f"{domain}-{letter}{i:0{width}d}" for i in range(count)]


def _assemble(
    name: str,
    kind: str,
    gpus: int,
    gbps: float,
    entries: list[_TierEntry],
    leaves: list[_Leaf],
    spec: Mapping[str, Any],
) -> Fabric:
    import numpy as np

    hosts = tuple(leaf.host for leaf in leaves)
    if len(set(hosts)) != len(hosts):
        seen: set[str] = set()
        twice = next(h for h in hosts if h in seen or seen.add(h))  # type: ignore[func-returns-value]
        raise BadInput("domains", f"host {twice} is listed twice")
    injection = gpus * gbps * 1e9 / 8
    tiers = []
    for k, entry in enumerate(entries[:-1]):
        index: dict[str, int] = {}
        over: list[float] = []
        domain_by_host = np.empty(len(leaves), dtype=np.int64)
        for i, leaf in enumerate(leaves):
            domain, ratio = leaf.path[k]
            if domain not in index:
                index[domain] = len(index)
                over.append(ratio)
            domain_by_host[i] = index[domain]
        uplink = np.bincount(domain_by_host) * injection / np.array(over)
        tiers.append(Tier(entry.name, tuple(index), domain_by_host, uplink))
    return Fabric(name, kind, gpus, gbps, tuple(tiers), hosts, spec)


def _places(tiers: Sequence[Tier], hosts: Sequence[str]) -> dict[str, tuple[int, list[int]]]:
    """The depth and the hosts of everything that has a name; the inner one where two
    share it."""
    places: dict[str, tuple[int, list[int]]] = {}
    for depth, tier in enumerate(tiers):
        members: list[list[int]] = [[] for _ in tier.domains]
        for host, domain in enumerate(tier.domain_by_host.tolist()):
            members[domain].append(host)
        places.update({n: (depth, m) for n, m in zip(tier.domains, members, strict=True)})
    places.update({name: (len(tiers), [host]) for host, name in enumerate(hosts)})
    return places


def _only(item: Mapping[str, Any], path: str, known: set[str]) -> None:
    for key in item:
        if key not in known:
            field = f"{path}.{key}" if path else str(key)
            raise BadInput(field, f"unknown key; known are {', '.join(sorted(known))}")


def _text(item: Mapping[str, Any], key: str, path: str = "") -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{path}.{key}" if path else key, "must be a non-empty text")
    return value


def _count(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(path, f"must be a whole number of at least 1, not {value!r}")
    return value


def _positive(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise BadInput(path, f"must be a positive number, not {value!r}")
    return float(value)
