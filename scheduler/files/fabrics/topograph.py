"""NVIDIA Topograph's graph engine: JSON, one entry an instance, nearest switch first.

Source: docs.nvidia.com/topograph/engines/graph. Labels and accelerator domains are
not read: NVLink stands inside a tier of hosts, not above it.
"""

from __future__ import annotations

import json
from typing import Any

from scheduler.files.fabrics.jsonfile import JsonFile
from scheduler.files.fabrics.network import (
    Choices,
    Path,
    TopologyNetwork,
    names_from_below,
    padded,
    second_parent,
    shortened,
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
    placeless = []
    for i, item in enumerate(listed):
        name, layers = _instance(file, item, f"instances.{i}")
        if name in paths:
            raise file.error(f"instances.{i}.id", f"instance {name} is listed twice")
        if layers:
            paths[name] = tuple(reversed(layers))
        else:
            placeless.append(name)
    return _network(file, paths, placeless)


def _network(file: JsonFile, paths: dict[str, Path], placeless: list[str]) -> TopologyNetwork:
    levels = max((len(path) for path in paths.values()), default=0)
    notes = [f"left out: {shortened(placeless)}, without network_layers"] if placeless else []
    short = [name for name, path in paths.items() if len(path) < levels]
    if short:
        notes.append(f"{shortened(short)}: fewer layers than others; the switch stands alone above")
    full = tuple(padded(path, levels) for path in paths.values())
    twice = second_parent(full)
    if twice:
        child, first, second = twice
        message = f"switch {child} is under {first} and under {second}; a tree has one place for it"
        raise file.error("instances", message)
    return TopologyNetwork(tuple(paths), full, names_from_below(levels), notes=tuple(notes))


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


def write(network: TopologyNetwork) -> str:
    """One instance a line."""
    rows = [
        json.dumps({"id": host, "network_layers": path[::-1]})
        for host, path in zip(network.hosts, network.paths, strict=True)
    ]
    return '{"instances": [\n' + ",\n".join(rows) + "\n]}\n"
