"""NVIDIA Topograph's graph engine: JSON, one entry an instance, nearest switch first.

Source: docs.nvidia.com/topograph/engines/graph. Accelerator domains (NVLink) are scale-up
domains; other labels and attributes are not read.
"""

from __future__ import annotations

from typing import Any

from scheduler.files.fabrics.network import (
    Choices,
    Path,
    TopologyNetwork,
    joined,
    names_from_below,
    padded,
    second_parent,
    shortened,
)
from scheduler.files.json_file import JsonFile

# In the order in which Topograph itself looks for them, older names last.
ACCELERATORS = (
    "accelerator.topograph.run/domain",
    "nvidia.com/gpu.clique",
    "network.topology.nvidia.com/accelerator",
)


def read(path: str, _choices: Choices) -> TopologyNetwork:
    """Raises: InputError. Cost: 20 ms for 3,072 hosts."""
    file = JsonFile.load(path)
    listed = file.value.get("instances") if isinstance(file.value, dict) else None
    if not isinstance(listed, list):
        raise file.error(
            "instances", "must be a list of instances, each with id and network_layers"
        )
    paths: dict[str, Path] = {}
    accelerators: dict[str, str] = {}
    placeless = []
    for i, item in enumerate(listed):
        name, layers = _instance(file, item, f"instances.{i}")
        if name in paths:
            raise file.error(f"instances.{i}.id", f"instance {name} is listed twice")
        domain = _accelerator(file, item, f"instances.{i}")
        if layers or domain:
            accelerators[name] = domain
            paths[name] = tuple(reversed(layers))
        else:
            placeless.append(name)
    return _network(file, paths, accelerators, placeless)


def _network(
    file: JsonFile, paths: dict[str, Path], accelerators: dict[str, str], placeless: list[str]
) -> TopologyNetwork:
    levels = max((len(path) for path in paths.values()), default=0)
    notes = [f"left out: {shortened(placeless)}, without network_layers"] if placeless else []
    short = [name for name, path in paths.items() if len(path) < levels]
    layerless = [name for name in short if not paths[name]]
    if layerless:
        raise file.error("instances", f"{shortened(layerless)}: has no network_layers, others have")
    if short:
        notes.append(f"{shortened(short)}: fewer layers than others; the switch stands alone above")
    full = tuple(padded(path, levels) if levels else () for path in paths.values())
    full, scale_up, dropped = joined(full, [accelerators[name] for name in paths])
    if dropped:
        notes.append(dropped)
    twice = second_parent(full)
    if twice:
        child, first, second = twice
        message = f"switch {child} is under {first} and under {second}; a tree has one place for it"
        raise file.error("instances", message)
    tiers = names_from_below(len(full[0]) if full else 0)
    return TopologyNetwork(tuple(paths), full, tiers, notes=tuple(notes), scale_up=scale_up)


def _instance(file: JsonFile, item: Any, at: str) -> tuple[str, list[str]]:
    if not isinstance(item, dict):
        raise file.error(at, "must be a mapping with id and network_layers")
    name, layers = item.get("id"), item.get("network_layers")
    if not isinstance(name, str) or not name:
        raise file.error(f"{at}.id", f"must be a name, not {name!r}")
    if layers is None:
        return name, []
    if not isinstance(layers, list) or not all(isinstance(x, str) and x for x in layers):
        raise file.error(f"{at}.network_layers", "must be a list of switch names, nearest first")
    return name, layers


def _accelerator(file: JsonFile, item: dict[str, Any], at: str) -> str:
    """Its accelerator domain: a label, or the attribute `nvlink` of older versions."""
    for key, names in (("labels", ACCELERATORS), ("attributes", ("nvlink",))):
        held = item.get(key)
        if held is None:
            continue
        if not isinstance(held, dict):
            raise file.error(f"{at}.{key}", "must be a mapping")
        for name in names:
            if domain := held.get(name):
                if not isinstance(domain, str):
                    raise file.error(f"{at}.{key}.{name}", f"must be a name, not {domain!r}")
                return domain
    return ""
