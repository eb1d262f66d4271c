"""Fabrics from the content of fabric files, and the presets.

A regular tree gives a count per tier; an irregular one lists its domains.
See docs/engine.md, "The problem".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from math import prod
from typing import Any

from muster.structs import replace, struct
from placement.errors import BadInput, positive, positive_integer, refuse_unknown_keys
from placement.fabric import hostlist, hostset
from placement.fabric.calibration import read_calibration
from placement.fabric.gpus import ASSUMED, Gpu, catalogue, find_gpu, gpu_named, read_gpus
from placement.fabric.labels import Labels, check_labels, read_labels
from placement.fabric.power import Power, read_power
from placement.fabric.storage import read_storage
from placement.fabric.tree import (
    SCALE_UP_GBPS,
    Fabric,
    GpuGroups,
    Hardware,
    Tier,
    hosts_by_kind,
    masks,
    with_goodput,
    with_rates,
)

KINDS = ("roce", "infiniband")
_OF_HOSTS = ("gpus_per_host", "gpu", "nic_gbps", "scale_up_gbps", "gpu_groups")
_KEYS = (
    "name",
    "kind",
    "joined",
    *_OF_HOSTS,
    "gpus",
    "tiers",
    "domains",
    "labels",
    "calibration",
    "routing",
    "power_kw",
    "power_caps_kw",
    "storage",
)
LATENCY_KEYS = ("latency_us", "km")  # of a tier; one of them
_OF_TIERS = sorted(("name", "count", "oversubscription", "scale_up", *LATENCY_KEYS))
_OF_DOMAINS = ("oversubscription", "domains", "hosts", "scale_up", "labels", *_OF_HOSTS)
MOST_HOSTS = 200_000
MOST_GPUS_PER_HOST = 65_536
SECONDS_PER_KM = 4.9e-6  # of light in fibre, whose index of refraction is 1.468
GPU_LABEL = "gpu"  # its values may be names of GPUs
PRESETS: dict[str, dict[str, Any]] = {
    # Llama 3 (2024), 3.3.1: 8 pods of 192 racks, 2 hosts a rack, 1:7 above the pod.
    "roce-24k": {
        "name": "roce-24k",
        "kind": "roce",
        "gpus_per_host": 8,
        "gpu": "H100",
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
        "gpu": "H100",
        "nic_gbps": 400,
        "tiers": [
            {"name": "pod", "count": 24},
            {"name": "su", "count": 4},
            {"name": "host", "count": 32},
        ],
    },
    # DGX SuperPOD with DGX GB200 (2025): scalable units of 8 NVL72 racks, 18 trays of 4 GPUs in
    # each, NVLink 5 inside the rack (900 GB/s per direction and GPU), one 400G NIC per GPU.
    "nvl72-24k": {
        "name": "nvl72-24k",
        "kind": "infiniband",
        "gpus_per_host": 4,
        "gpu": "GB200",
        "nic_gbps": 400,
        "tiers": [
            {"name": "su", "count": 42},
            {"name": "rack", "count": 8, "scale_up": {"gbps_per_gpu": 7200}},
            {"name": "host", "count": 18},
        ],
    },
}


def preset(name: str) -> Fabric:
    """Return the preset fabric of this name. Raises: BadInput with the known names."""
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
    refuse_unknown_keys(spec, "", sorted(_KEYS))
    name = _text(spec, "name")
    kind = spec.get("kind", "roce")
    if kind not in KINDS:
        raise BadInput("kind", f"must be one of {', '.join(KINDS)}, not {kind!r}")
    own_gpus = read_gpus(spec.get("gpus", {}))
    like = _like(spec, _Like(own_gpus=own_gpus), "")
    if "gpus_per_host" not in spec:
        positive_integer(None, "gpus_per_host")
    tiers = _tier_entries(spec.get("tiers"))
    is_listed = "domains" in spec
    leaves = _listed_tree(spec["domains"], tiers, like) if is_listed else _regular_tree(tiers, like)
    fabric = _assemble(name, kind, like, tiers, leaves, spec)
    inherited = [dict(leaf.like.labels) for leaf in leaves]
    labels = read_labels(spec.get("labels", {}), _places(fabric.tiers, fabric.hosts), inherited)
    by_host = _with_kinds(fabric.by_host, spec.get("gpu"), own_gpus, labels, leaves)
    if not isinstance(joined := spec.get("joined", True), bool):
        raise BadInput("joined", f"must be true or false, not {joined!r}")
    if not isinstance(routing := spec.get("routing", ""), str):
        raise BadInput("routing", f"must be a text such as e-ecmp:16, not {routing!r}")
    zones = range(0 if joined or not fabric.tiers else fabric.zone_count)
    barred = tuple((0, number) for number in zones)
    stores = read_storage(spec.get("storage"), [tier.name for tier in fabric.tiers])
    built = replace(fabric, labels=labels, by_host=by_host, barred=barred, stores=stores)
    if "power_kw" in spec or spec.get("power_caps_kw") is not None:
        built = replace(built, power=_power(built))
    if (measured := spec.get("calibration")) is None:
        return built
    names = [tier.name for tier in built.tiers]
    rates, shares = read_calibration(measured, name, by_host.kinds, names, own_gpus)
    return with_rates(with_goodput(built, shares), rates)


def _power(fabric: Fabric) -> Power:
    """Read the caps of a fabric's file. Raises: BadInput."""
    tiers = {
        tier.name: dict(zip(tier.domains, masks(fabric, depth), strict=True))
        for depth, tier in enumerate(fabric.tiers)
    }
    return read_power(fabric.spec, tiers, fabric.labels, hosts_by_kind(fabric))


def _with_kinds(
    by_host: Hardware, stated: Any, own: Mapping[str, Gpu], labels: Labels, leaves: list[_Leaf]
) -> Hardware:
    """The hardware with the GPU of each host: what the nearest domain says of it, else its label
    `gpu` where that names one, else `stated` of the whole file.

    `stated` may map values of the label to names. Raises: BadInput on a GPU that is not known.
    """
    import numpy as np

    kinds: dict[Gpu, int] = {}
    kind = np.full(len(leaves), -1, dtype=np.int64)
    by_label = stated if isinstance(stated, Mapping) else None
    if stated is not None and by_label is None:
        kind[:] = kinds.setdefault(gpu_named(stated, "gpu", own), 0)
    for value, hosts in labels.get(GPU_LABEL, {}).items():
        if by_label is not None and value in by_label:
            gpu = gpu_named(by_label[value], f"gpu.{value}", own)
        elif (found := find_gpu(value, own)) is not None:
            gpu = found
        else:
            continue
        kind[hostset.indices(hosts)] = kinds.setdefault(gpu, len(kinds))
    for host, leaf in enumerate(leaves):
        if leaf.like.gpu is not None:
            kind[host] = kinds.setdefault(leaf.like.gpu, len(kinds))
    for label in by_label or ():
        if label not in labels.get(GPU_LABEL, {}):
            raise BadInput(f"gpu.{label}", f"no host is labelled {GPU_LABEL}={label}")
    is_assumed = bool((kind < 0).any())
    if is_assumed and by_label is not None:
        nameless = leaves[int(np.argmax(kind < 0))].host
        raise BadInput(
            "gpu", f"names no GPU for host {nameless}: its label {GPU_LABEL} is not listed"
        )
    if is_assumed:
        kind[kind < 0] = kinds.setdefault(catalogue()[ASSUMED], len(kinds))
    by_kind = kind if len(np.unique(kind)) > 1 else None
    names = tuple(kinds) if by_kind is not None else (tuple(kinds)[int(kind[0])],)
    return replace(by_host, kinds=names, kind_by_host=by_kind, is_kind_assumed=is_assumed)


@struct(frozen=True, slots=True)
class _Like:
    """Hardware of hosts, unless a domain nearer to them says otherwise."""

    gpus: int = 0
    nic_gbps: float = 400.0
    scale_up_gbps: float = SCALE_UP_GBPS
    gpu_groups: GpuGroups = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    gpu: Gpu | None = None  # that a domain names; what the file names is not here
    own_gpus: Mapping[str, Gpu] = field(default_factory=dict)


def _like(item: Mapping[str, Any], like: _Like, path: str) -> _Like:
    """GPUs, speeds, NUMA nodes and labels of an entry, or of what is around it."""
    at = f"{path}." if path else ""
    gpus = (
        positive_integer(item["gpus_per_host"], f"{at}gpus_per_host")
        if "gpus_per_host" in item
        else 0
    )
    if gpus > MOST_GPUS_PER_HOST:
        raise BadInput(
            f"{at}gpus_per_host", f"must be at most {MOST_GPUS_PER_HOST:,}, not {gpus:,}"
        )
    nic = positive(item.get("nic_gbps", like.nic_gbps), f"{at}nic_gbps")
    inside, gpu = like.scale_up_gbps, like.gpu
    if isinstance(item.get("gpu"), str) or (path and "gpu" in item):
        named = gpu_named(item["gpu"], f"{at}gpu", like.own_gpus)
        inside, gpu = named.scale_up_gbps, named if path else None
    scale_up = positive(item.get("scale_up_gbps", inside), f"{at}scale_up_gbps")
    count = gpus or like.gpus
    groups = like.gpu_groups if count == like.gpus else ()
    if "gpu_groups" in item:
        groups = _gpu_groups(item["gpu_groups"], count, f"{at}gpu_groups")
    labels = check_labels(item["labels"], f"{at}labels") if path and "labels" in item else {}
    labels = {**like.labels, **labels}
    return _Like(count, nic, scale_up, groups, labels, gpu, like.own_gpus)


def _gpu_groups(value: Any, gpus: int, path: str) -> GpuGroups:
    """Raises: BadInput unless each GPU of a host is in one group."""
    example = "as [[0, 1, 2, 3], [4, 5, 6, 7]]"
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise BadInput(path, f"must be a list with the GPUs of each NUMA node, {example}")
    numbers = [gpu for group in value for gpu in group]
    if any(isinstance(gpu, bool) or not isinstance(gpu, int) for gpu in numbers) or sorted(
        numbers
    ) != list(range(gpus)):
        raise BadInput(path, f"must name each of the GPUs 0 to {gpus - 1} once, {example}")
    return tuple(tuple(group) for group in value if group)


def scale_up_gbps(item: Mapping[str, Any], path: str, default: float) -> float:
    """Return the rate at which a GPU sends over NVLink to the hosts of its domain, in Gbit/s; 0
    where it is no scale-up domain."""
    if "scale_up" not in item:
        return default
    value = item["scale_up"]
    if value is None:
        return 0.0
    if not isinstance(value, Mapping) or "gbps_per_gpu" not in value:
        raise BadInput(f"{path}.scale_up", "must be {gbps_per_gpu: N}, as 7200 for NVLink 5")
    refuse_unknown_keys(value, f"{path}.scale_up", ["gbps_per_gpu"])
    return positive(value["gbps_per_gpu"], f"{path}.scale_up.gbps_per_gpu")


@struct(frozen=True, slots=True)
class _Leaf:
    """One host with the domains above it, and what it has."""

    host: str
    path: tuple[_Domain, ...]
    like: _Like


@struct(frozen=True, slots=True)
class _Domain:
    """`scale_up_gbps`: 0 where its hosts are joined by the network alone."""

    name: str
    oversubscription: float
    scale_up_gbps: float


@struct(frozen=True, slots=True)
class _TierEntry:
    name: str
    count: int | None
    oversubscription: float
    scale_up_gbps: float
    latency_s: float


def _tier_entries(value: Any) -> list[_TierEntry]:
    if not isinstance(value, list) or not value:
        raise BadInput("tiers", "must be a list, outermost tier first, hosts last")
    entries = []
    for i, item in enumerate(value):
        path = f"tiers.{i}"
        if not isinstance(item, Mapping):
            raise BadInput(path, "must be a mapping with name and count")
        refuse_unknown_keys(item, path, _OF_TIERS)
        count = (
            None if item.get("count") is None else positive_integer(item["count"], f"{path}.count")
        )
        over = positive(item.get("oversubscription", 1), f"{path}.oversubscription")
        scale_up = scale_up_gbps(item, path, 0.0)
        late_s = _latency_s(item, path)
        entries.append(_TierEntry(_text(item, "name", path), count, over, scale_up, late_s))
    for i, entry in enumerate(entries):
        if entry.scale_up_gbps:
            _check_scale_up(i, entries, f"tiers.{i}")
    names = [e.name for e in entries]
    if len(set(names)) != len(names):
        raise BadInput("tiers", f"tier names repeat: {', '.join(names)}")
    return entries


def _latency_s(item: Mapping[str, Any], path: str) -> float:
    """Return the seconds that a message between two domains of a tier takes beside its bytes, from
    `latency_us`, or from `km` of fibre between them; 0 where neither is given."""
    given = [key for key in LATENCY_KEYS if key in item]
    if len(given) > 1:
        raise BadInput(f"{path}.km", "conflicts with `latency_us`: give one of them")
    if not given:
        return 0.0
    value = positive(item[given[0]], f"{path}.{given[0]}")
    return value * SECONDS_PER_KM if given[0] == "km" else value / 1e6


def _check_scale_up(depth: int, tiers: Sequence[_TierEntry], path: str) -> None:
    """Raises: BadInput unless the tier is the one next to the hosts."""
    if depth == len(tiers) - 1:
        raise BadInput(
            f"{path}.scale_up",
            f"{tiers[depth].name} is the host itself, whose links inside are `scale_up_gbps`:"
            " a scale-up tier holds hosts",
        )
    if depth != len(tiers) - 2:
        raise BadInput(
            f"{path}.scale_up",
            f"only the tier next to the hosts, {tiers[-2].name}, can be a scale-up tier",
        )


def _regular_tree(tiers: list[_TierEntry], like: _Like) -> list[_Leaf]:
    counts = []
    for i, tier in enumerate(tiers):
        if tier.count is None:
            raise BadInput(f"tiers.{i}.count", "is required unless `domains` lists the tree")
        counts.append(tier.count)
    *outer, hosts = counts
    _refuse_many(prod(counts), "tiers")
    if not outer:
        return [_Leaf(n, (), like) for n in hostlist.numbered("", tiers[0].name[0], hosts)]
    domains: Any = {"count": outer.pop(), "hosts": hosts}
    for count in reversed(outer):
        domains = {"count": count, "domains": domains}
    return list(_walk(domains, tiers, (), "domains", set(), like))


def _listed_tree(value: Any, tiers: list[_TierEntry], like: _Like) -> list[_Leaf]:
    leaves = list(islice(_walk(value, tiers, (), "domains", set(), like), MOST_HOSTS + 1))
    if not leaves:
        raise BadInput("domains", "the fabric has no hosts")
    if len(leaves) > MOST_HOSTS:
        raise BadInput("domains", f"more than {MOST_HOSTS:,} hosts, which is the most supported")
    return leaves


def _walk(
    value: Any,
    tiers: list[_TierEntry],
    above: tuple[_Domain, ...],
    path: str,
    seen: set[tuple[int, str]],
    like: _Like,
) -> Iterator[_Leaf]:
    """Leaves below one list of domains; `seen` names those met so far, by tier."""
    depth = len(above)
    if depth >= len(tiers) - 1:
        raise BadInput(path, f"is deeper than the {len(tiers)} tiers declared")
    tier = tiers[depth]
    if isinstance(value, Mapping):
        value = _numbered(value, path, above, tier.name[0])
    if not isinstance(value, list):
        raise BadInput(path, "must be a list of domains, or {count: N} with what each has")
    for i, item in enumerate(value):
        here = path if isinstance(item, _Numbered) else f"{path}.{i}"
        if not isinstance(item, Mapping):
            raise BadInput(here, "must be a mapping with name and domains or hosts")
        refuse_unknown_keys(item, here, sorted(("name", *_OF_DOMAINS)))
        name = _text(item, "name", here)
        if (depth, name) in seen:
            raise BadInput(f"{here}.name", f"{tier.name} {name} is listed twice")
        seen.add((depth, name))
        over = positive(
            item.get("oversubscription", tier.oversubscription), f"{here}.oversubscription"
        )
        scale_up = scale_up_gbps(item, here, tier.scale_up_gbps)
        if scale_up and "scale_up" in item:
            _check_scale_up(depth, tiers, here)
        chain = (*above, _Domain(name, over, scale_up))
        mine = _like(item, like, here)
        if "domains" in item:
            if "hosts" in item:
                raise BadInput(f"{here}.hosts", "conflicts with `domains`: give one of them")
            yield from _walk(item["domains"], tiers, chain, f"{here}.domains", seen, mine)
        elif depth != len(tiers) - 2:
            raise BadInput(here, f"needs `domains`: the next tier is {tiers[depth + 1].name}")
        else:
            for host in _listed_hosts(item.get("hosts"), name, tiers[-1].name[0], f"{here}.hosts"):
                yield _Leaf(host, chain, mine)


class _Numbered(dict[str, Any]):
    """A domain that stands for one of several alike."""


def _numbered(
    value: Mapping[str, Any], path: str, above: Sequence[_Domain], letter: str
) -> list[_Numbered]:
    """`domains: {count: 192, hosts: 2}`: so many domains alike, numbered as a regular fabric
    numbers them."""
    refuse_unknown_keys(value, path, sorted(("count", *_OF_DOMAINS)))
    count = positive_integer(value.get("count"), f"{path}.count")
    _refuse_many(count, f"{path}.count", "domains")
    stem = "".join(f"{domain.name}-" for domain in above[-1:])
    each = {key: field for key, field in value.items() if key != "count"}
    return [_Numbered(name=name, **each) for name in hostlist.numbered(stem, letter, count)]


def _listed_hosts(value: Any, domain: str, letter: str, path: str) -> list[str]:
    """`hosts: 8` numbers them; a list gives names and hostlist ranges."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, str):
                raise BadInput(f"{path}.{i}", f"must be a host name or range, not {item!r}")
        return [name for item in value for name in hostlist.expand(item, path)]
    count = positive_integer(value, path)
    _refuse_many(count, path)
    return hostlist.numbered(f"{domain}-", letter, count)


def _assemble(
    name: str,
    kind: str,
    like: _Like,
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
    has = [(leaf.like, leaf.path[-1].scale_up_gbps if leaf.path else 0.0) for leaf in leaves]
    by_host = Hardware(
        np.array([own.gpus for own, _ in has], dtype=np.int64),
        np.array([own.nic_gbps for own, _ in has]),
        np.array([gbps or own.scale_up_gbps for own, gbps in has]),
        tuple(own.gpu_groups for own, _ in has) if any(own.gpu_groups for own, _ in has) else (),
    )
    injection, tiers = by_host.gpus * by_host.nic_gbps * 1e9 / 8, []
    for k, entry in enumerate(entries[:-1]):
        domains = {leaf.path[k].name: leaf.path[k] for leaf in leaves}
        index = {domain: i for i, domain in enumerate(domains)}
        domain_by_host = np.array([index[leaf.path[k].name] for leaf in leaves], dtype=np.int64)
        over = np.array([domain.oversubscription for domain in domains.values()])
        uplink = np.bincount(domain_by_host, injection) / over
        is_scale_up = np.array([domain.scale_up_gbps > 0 for domain in domains.values()])
        joined = is_scale_up if is_scale_up.any() else None
        tier = Tier(entry.name, tuple(index), domain_by_host, uplink, joined, entry.latency_s)
        tiers.append(tier)
    inside = like.scale_up_gbps
    if by_host.gpus.size and (usual := by_host.gpus == like.gpus).any():
        inside = float(by_host.scale_up_gbps[usual].min())
    return Fabric(
        *(name, kind, like.gpus, like.nic_gbps, tuple(tiers), hosts, spec, by_host, inside),
        latency_s=entries[-1].latency_s,
    )


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


def _refuse_many(count: int, path: str, kind: str = "hosts") -> None:
    if count > MOST_HOSTS:
        raise BadInput(path, f"{count:,} {kind}; at most {MOST_HOSTS:,} are supported")


def _text(item: Mapping[str, Any], key: str, path: str = "") -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise BadInput(f"{path}.{key}" if path else key, "must be a non-empty text")
    return value
