"""Labels of Kubernetes nodes: `kubectl get nodes -o json`, or its items alone.

No key is standard below the zone, so keys are chosen, or the first family of keys
that the nodes have is taken. GPUs of a node are those of its status: what it has, where a sick one
is withdrawn from pods. A fabric file has no health, so nodes that are not well are named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from muster.structs import replace
from scheduler.files.fabrics.network import (
    Choices,
    Path,
    TopologyNetwork,
    names_from_below,
    shortened,
)
from scheduler.files.yaml12 import JsonFile

ZONE = "topology.kubernetes.io/zone"
TOPOGRAPH_TIER = "fabric.topograph.run/tier-"  # tier 0 is the nearest switch

# Outermost first. The clouds' keys lie inside a zone; Topograph's need none above.
FAMILIES: tuple[tuple[str, ...], ...] = (
    tuple(f"network.topology.nvidia.com/{name}" for name in ("core", "spine", "leaf")),
    tuple(f"network.topology.nvidia.com/{name}" for name in ("datacenter", "spine", "block")),
    (ZONE, *(f"topology.k8s.aws/network-node-layer-{i}" for i in (1, 2, 3))),
    (ZONE, *(f"cloud.google.com/gce-topology-{name}" for name in ("block", "subblock"))),
    (ZONE, *(f"oci.oraclecloud.com/host.{name}" for name in ("network_block_id", "rack_id"))),
    (ZONE, "alibabacloud.com/point-of-delivery", "alibabacloud.com/asw-id"),
    (ZONE, "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    (ZONE, "topology.kubernetes.io/rack"),
    (ZONE,),
)

GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")  # resources of device plugins

_PARTS = ("allocatable", "capacity")
_REPORT = "muster report --import FILE --format kubernetes tells a server of cordons and failures"
_DRAIN = "muster drain takes it out"

Labels = dict[str, str]


def read(path: str, choices: Choices) -> TopologyNetwork:
    """Read the network of a list of Kubernetes nodes. Raises: InputError. Cost: 15 ms for 3,072
    nodes without their status."""
    file = JsonFile.load(path)
    nodes: dict[str, Labels] = {}
    gpus: dict[str, int] = {}
    troubles: dict[str, list[str]] = {}
    for at, name, labels, count, trouble in _nodes(file):
        if name in nodes:
            raise file.error(at, f"node {name} is listed twice")
        nodes[name] = labels
        if not _is_wanted(name, choices):
            continue
        if count is not None:
            gpus[name] = count
        for text in trouble:
            troubles.setdefault(text, []).append(name)
    keys = _keys(file, nodes.values(), choices.label_keys)
    gpus_per_host = _gpus_per_host(file, gpus)
    idle = [name for name, count in gpus.items() if not count] if gpus_per_host else []
    network = _network({name: nodes[name] for name in nodes if name not in set(idle)}, keys)
    notes = [f"left out: {shortened(idle)}, without a GPU"] if idle else []
    for text, names in troubles.items():
        if unwell := [name for name in names if name in network.hosts]:
            notes.append(f"{shortened(unwell)}: {text}, which a fabric does not say: {_REPORT}")
    return replace(network, gpus_per_host=gpus_per_host, notes=(*network.notes, *notes))


def _is_wanted(name: str, choices: Choices) -> bool:
    return choices.hosts is None or re.fullmatch(choices.hosts, name) is not None


def _gpus_per_host(file: JsonFile, gpus: dict[str, int]) -> int | None:
    """Return the GPUs that all nodes with any have; None: nothing is known."""
    by_count: dict[int, list[str]] = {}
    for name, count in gpus.items():
        if count:
            by_count.setdefault(count, []).append(name)
    if len(by_count) > 1:
        counts = "; ".join(f"{n} on {shortened(by_count[n])}" for n in sorted(by_count))
        raise file.error("", f"nodes differ in GPUs: {counts}; keep one kind with --hosts")
    return next(iter(by_count), None)


def _network(nodes: dict[str, Labels], keys: Sequence[str]) -> TopologyNetwork:
    values = {name: tuple(labels.get(key, "") for key in keys) for name, labels in nodes.items()}
    without = [name for name, path in values.items() if not all(path)]
    notes = [f"tiers are the labels {', '.join(keys)}"]
    if without:
        notes.append(f"left out: {shortened(without)}, without all of these labels")
    whole = {name: path for name, path in values.items() if all(path)}
    paths, renamed = _distinct(list(whole.values()))
    if renamed:
        notes.append(f"{shortened(renamed)}: in several domains above, so named after them too")
    return TopologyNetwork(tuple(whole), tuple(paths), _tier_names(keys), notes=tuple(notes))


Node = tuple[str, str, Labels, int | None, list[str]]


def _nodes(file: JsonFile) -> Iterator[Node]:
    """(field, name, labels, GPUs, what is wrong) of each node; GPUs are None where it has no
    status."""
    value, at = file.value, ""
    if isinstance(value, dict):
        value, at = value.get("items"), "items."
    if not isinstance(value, list):
        raise file.error(at.rstrip("."), "must be a list of nodes, as of kubectl get nodes -o json")
    for i, item in enumerate(value):
        here = f"{at}{i}"
        meta = item.get("metadata") if isinstance(item, dict) else None
        meta = meta if isinstance(meta, dict) else {}
        name = meta.get("name")
        if not isinstance(name, str) or not name:
            raise file.error(here, "has no name: metadata.name is missing")
        labels = _labels(file, meta.get("labels", {}), f"{here}.metadata.labels")
        yield here, name, labels, *_standing(file, item, here)


def _standing(file: JsonFile, node: dict[str, Any], at: str) -> tuple[int | None, list[str]]:
    """The node's GPUs, None without any word of them, and what is wrong with it."""
    status, spec = node.get("status"), node.get("spec")
    troubles = []
    if isinstance(spec, dict) and spec.get("unschedulable") is True:
        troubles.append("cordoned")
    if not isinstance(status, dict):
        return None, troubles
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        is_ready = isinstance(condition, dict) and condition.get("type") == "Ready"
        if is_ready and condition.get("status") != "True":
            troubles.append("not ready")
    given, built = (_gpus(file, status.get(part), f"{at}.status.{part}") for part in _PARTS)
    if given and built and given < built:
        troubles.append(f"{given} of {built} GPUs are given to pods ({_DRAIN})")
        return built, troubles
    return (built if given is None else given), troubles


def _gpus(file: JsonFile, resources: Any, at: str) -> int | None:
    if not isinstance(resources, dict):
        return None
    counts = [(key, resources[key]) for key in GPUS if key in resources]
    for key, count in counts:
        if not str(count).isdecimal():
            raise file.error(f"{at}.{key}", f"is not a number: {count!r}")
    return sum(int(count) for _, count in counts)


def _labels(file: JsonFile, value: Any, at: str) -> Labels:
    if not isinstance(value, dict):
        raise file.error(at, "must be a mapping of labels to values")
    for key, label in value.items():
        if not isinstance(label, str):
            raise file.error(f"{at}.{key}", f"must be a text, not {label!r}")
    return value


def _keys(file: JsonFile, nodes: Iterable[Labels], wanted: Sequence[str]) -> list[str]:
    """The label keys that become tiers, outermost first."""
    present = sorted({key for labels in nodes for key in labels})
    if wanted:
        return [_match(file, key, present) for key in wanted]
    tiers = [key for key in present if re.fullmatch(re.escape(TOPOGRAPH_TIER) + r"\d{1,2}", key)]
    if tiers:
        return sorted(tiers, key=lambda key: -int(key.removeprefix(TOPOGRAPH_TIER)))
    for family in FAMILIES:
        if family[-1] in present:
            return [key for key in family if key in present]
    raise file.error("", "has no topology label; name some with --label-keys")


def _match(file: JsonFile, key: str, present: Sequence[str]) -> str:
    """The key itself, or the one that ends in `/key`."""
    ends = [key] if key in present else [name for name in present if name.endswith(f"/{key}")]
    if len(ends) != 1:
        matches = (
            f"several labels end in /{key}: {', '.join(ends)}"
            if ends
            else f"no node has a label {key}"
        )
        raise file.error("", matches)
    return ends[0]


def _tier_names(keys: Sequence[str]) -> tuple[str, ...]:
    """The last part of each key; the whole keys when two share it; rack, zone for numbers."""
    if keys[0].startswith(TOPOGRAPH_TIER):
        return names_from_below(len(keys))
    short = [re.split(r"[/.]", key)[-1].removeprefix("topology-") for key in keys]
    return tuple(short) if len(set(short)) == len(short) else tuple(keys)


def _distinct(paths: list[Path]) -> tuple[list[Path], list[str]]:
    """Paths in which a value used in several places (rack 1 of every zone) is `zone.rack`."""
    renamed: dict[str, None] = {}
    for level in range(1, len(paths[0]) if paths else 0):
        above: dict[str, set[str]] = {}
        for path in paths:
            above.setdefault(path[level], set()).add(path[level - 1])
        shared = {value for value, parents in above.items() if len(parents) > 1}
        renamed.update(dict.fromkeys(sorted(shared)))
        paths = [
            (*path[:level], f"{path[level - 1]}.{path[level]}", *path[level + 1 :])
            if path[level] in shared
            else path
            for path in paths
        ]
    return paths, list(renamed)
