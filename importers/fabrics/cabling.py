"""Tiers and domains from cables alone: what ibnetdiscover sees is no tree.

    level of a switch    0 with a host attached, else one more than its lowest neighbour
    domain on level k    hosts that reach each other over switches of levels 0 to k;
                         on level 0 cables between switches do not count

In a tree of switches that gives the tree. In a rail-optimised fabric, where the eight
adapters of a host hang on eight leaf switches, level 0 is the scalable unit, level 1
the pod. Cost: O(cables x levels), 0.3 s for 3,072 hosts of 8 adapters.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from muster.structs import replace, struct
from scheduler.files.fabrics.network import TopologyNetwork, shortened

USUAL_ADAPTERS = 8  # of hosts with eight GPUs
LEVEL_NAMES = ("leaf", "spine", "core")


@struct(frozen=True, slots=True)
class Cable:
    """A cable between two ends, each the key of a switch or host. 0 Gbit/s: not known."""

    a: str
    b: str
    gbps: float


def network(
    switches: Mapping[str, str], hosts: Mapping[str, str], cables: Sequence[Cable]
) -> TopologyNetwork:
    """Return the tiers that `cables` between switches and hosts (names by key) make.

    Hosts without a cable to a switch are not part of it.
    """
    level = _levels(switches, cables)
    wired = sorted((key for key in hosts if key in level), key=lambda key: natural(hosts[key]))
    highest = max((level[key] for key in switches if key in level), default=-1)
    groups = [_groups(level, cables, k) for k in range(highest + 1)]
    names = [_names(switches, level, groups[k], k) for k in range(highest + 1)]
    paths = [_path(key, groups, names) for key in wired]
    tiers = [LEVEL_NAMES[k] if k < len(LEVEL_NAMES) else f"level-{k}" for k in range(highest + 1)]
    topology = TopologyNetwork(
        tuple(hosts[key] for key in wired),
        tuple(tuple(reversed(path)) for path in paths),
        tuple(reversed(tiers)),
        kind="infiniband",
    )
    if not wired or not all(cable.gbps for cable in cables):
        return topology
    ratios_by_level = [
        {(k, names[k][group]): ratio for group, ratio in ratios.items() if group in names[k]}
        for k, ratios in enumerate(_oversubscription(hosts, cables, g) for g in groups)
    ]
    return _with_bandwidth(topology, hosts, cables, ratios_by_level)


def _with_bandwidth(
    network: TopologyNetwork,
    hosts: Mapping[str, str],
    cables: Sequence[Cable],
    ratios: Sequence[Mapping[tuple[int, str], float]],
) -> TopologyNetwork:
    """Adapters a host and Gbit/s each are those of most hosts."""
    attached = [cable for cable in cables if cable.a in hosts or cable.b in hosts]
    per_host = Counter(cable.a if cable.a in hosts else cable.b for cable in attached)
    adapters = _commonest(per_host.values())
    odd = sorted((hosts[key] for key, n in per_host.items() if n != adapters), key=natural)
    cards = "1 adapter" if adapters == 1 else f"{adapters:g} adapters"
    notes = []
    if adapters != USUAL_ADAPTERS:
        text = "and as many GPUs unless gpus_per_host of an overlay says else"
        notes.append(f"hosts have {cards} each, {text}")
    note = f"{shortened(odd)}: not {adapters} adapters as the others; --hosts leaves hosts out"
    return replace(
        network,
        gpus_per_host=int(adapters),
        nic_gbps=_commonest(cable.gbps for cable in attached),
        oversubscription={key: ratio for level in ratios for key, ratio in level.items()},
        notes=(*notes, *([note] if odd else [])),
    )


def _commonest(values: Iterable[float]) -> float:
    """The largest of the most frequent values."""
    counted = Counter(values)
    return max(counted, key=lambda value: (counted[value], value))


def _oversubscription(
    hosts: Mapping[str, str], cables: Sequence[Cable], group_of: Mapping[str, str]
) -> dict[str, float]:
    """Adapters' bandwidth over uplinks' for each group that has uplinks, at least 1."""
    into: dict[str, float] = defaultdict(float)
    out: dict[str, float] = defaultdict(float)
    for cable in cables:
        a, b = group_of.get(cable.a, ""), group_of.get(cable.b, "")
        if a and a == b:
            into[a] += cable.gbps if cable.a in hosts or cable.b in hosts else 0
        for end in {a, b} - {""} if a != b else ():
            out[end] += cable.gbps
    return {group: max(1.0, float(f"{into[group] / out[group]:.3g}")) for group in sorted(out)}


def natural(name: str) -> tuple[tuple[int, str, int], ...]:
    """Return a sort key by which node9 comes before node10."""
    parts = re.split(r"([0-9]+)", name)
    return tuple((1, "", int(part)) if part.isdecimal() else (0, part, 0) for part in parts)


def _levels(switches: Mapping[str, str], cables: Sequence[Cable]) -> dict[str, int]:
    """Levels of switches by distance, -1 for hosts; only of what hangs together with a host."""
    neighbours: dict[str, list[str]] = defaultdict(list)
    level: dict[str, int] = {}
    for cable in cables:
        for end, other in ((cable.a, cable.b), (cable.b, cable.a)):
            if end in switches:
                neighbours[end].append(other)
            elif other in switches:
                level[end] = -1
    front = [key for key in switches if any(n not in switches for n in neighbours[key])]
    level.update(dict.fromkeys(front, 0))
    while front:
        beyond = {n: None for key in front for n in neighbours[key] if n not in level}
        level.update(dict.fromkeys(beyond, level[front[0]] + 1))
        front = list(beyond)
    return level


def _groups(level: Mapping[str, int], cables: Sequence[Cable], highest: int) -> dict[str, str]:
    """Representative of the group each host and switch of levels 0 to `highest` is in."""
    parent: dict[str, str] = {}

    def find(key: str) -> str:
        root = key
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[key] != root:
            parent[key], key = root, parent[key]
        return root

    for cable in cables:
        low, high = sorted((level.get(cable.a, highest + 1), level.get(cable.b, highest + 1)))
        between_leaves = low == high == 0 == highest
        if high <= highest and not between_leaves:
            parent[find(cable.a)] = find(cable.b)
    return {key: find(key) for key in sorted(parent)}


def _names(
    switches: Mapping[str, str], level: Mapping[str, int], groups: Mapping[str, str], k: int
) -> dict[str, str]:
    """A group is called after its first switch of level `k`, by key where names repeat."""
    inside = [key for key in groups if level[key] == k]
    repeated = Counter(switches[key] for key in inside)
    first: dict[str, str] = {}
    for key in sorted(inside, key=lambda key: natural(switches[key])):
        name = switches[key] if repeated[switches[key]] == 1 else key
        first.setdefault(groups[key], name)
    return first


def _path(
    key: str, groups: Sequence[Mapping[str, str]], names: Sequence[Mapping[str, str]]
) -> list[str]:
    """Domains of a host from the innermost out; one without a switch there keeps its name."""
    path: list[str] = []
    for group_of, name_of in zip(groups, names, strict=True):
        path.append(name_of.get(group_of[key], path[-1] if path else key))
    return path
