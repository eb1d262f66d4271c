"""Slurm's topology.yaml: several topologies in one file, trees or blocks.

Source: topology.yaml(5).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from importers.fabrics import slurm
from importers.fabrics.switches import Switch, network
from muster.structs import replace
from scheduler.files.fabrics.network import Choices, TopologyNetwork
from scheduler.files.yaml12 import Document, load

TYPES = ("tree", "block", "flat", "ring", "torus3d")


def read(path: str, choices: Choices) -> TopologyNetwork:
    """Read one topology of a topology.yaml: the one named, else the default, else the only one.

    Raises: InputError.
    """
    document = load(path)
    body, at = _chosen(document, choices.topology)
    others = [entry["topology"] for entry in document.value if entry is not body]
    note = f"read {body['topology']}; the file also has {', '.join(others)}: --topology takes one"
    notes = (note,) if others and choices.topology is None else ()
    if "tree" in body:
        switches = _switches(document, body["tree"], f"{at}.tree", "switches", "switch")
        whole = slurm.of_tree(network(list(switches)))
        return replace(whole, notes=(*notes, *whole.notes))
    blocks = list(_switches(document, body["block"], f"{at}.block", "blocks", "block"))
    _only(document, body["block"], f"{at}.block", {"blocks", "block_sizes"})
    whole = slurm.of_blocks(network(blocks))
    return replace(whole, notes=(*notes, *whole.notes))


def _chosen(document: Document, name: str | None) -> tuple[Mapping[str, Any], str]:
    """The topology to read and its path in the file."""
    listed = document.value
    if not isinstance(listed, list) or not listed:
        raise document.error(("", "must be a list of topologies"))
    entries: dict[str, int] = {}
    for i, entry in enumerate(listed):
        if not isinstance(entry, dict) or not isinstance(entry.get("topology"), str):
            raise document.error((str(i), "must be a mapping with the name `topology`"))
        if entry["topology"] in entries:
            raise document.error((f"{i}.topology", "names a topology for the second time"))
        entries[entry["topology"]] = i
    if name is not None and name not in entries:
        raise document.error(("", f"has no topology {name!r}; it has {', '.join(entries)}"))
    defaults = [i for i, entry in enumerate(listed) if _is_true(entry.get("cluster_default"))]
    if name is None and not defaults and len(listed) > 1:
        raise document.error(
            ("", f"has no default; choose one with --topology: {', '.join(entries)}")
        )
    at = entries[name] if name is not None else (defaults or [0])[0]
    _check_type(document, listed[at], str(at))
    return listed[at], str(at)


def _is_true(value: Any) -> bool:
    """Slurm takes the words of YAML 1.1 too."""
    return value is True or str(value).lower() in ("yes", "on")


def _check_type(document: Document, entry: Mapping[str, Any], at: str) -> None:
    _only(document, entry, at, {"topology", "cluster_default", *TYPES})
    types = [key for key in TYPES if key in entry]
    if len(types) != 1:
        raise document.error((at, "must have one of tree, block and flat"))
    if types[0] not in ("tree", "block"):
        fitting = [each["topology"] for each in document.value if {"tree", "block"} & each.keys()]
        others = f": choose {' or '.join(fitting)} with --topology" if fitting else ""
        raise document.error(
            (f"{at}.{types[0]}", f"has no tiers; a tree or blocks can become a fabric{others}")
        )


def _switches(
    document: Document, body: Any, at: str, list_key: str, item_key: str
) -> Iterator[Switch]:
    keys = {item_key, "nodes"} | ({"children"} if item_key == "switch" else set())
    if not isinstance(body, dict) or not isinstance(body.get(list_key), list) or not body[list_key]:
        raise document.error((at, f"must have a list of {list_key}"))
    for i, item in enumerate(body[list_key]):
        path = f"{at}.{list_key}.{i}"
        if not isinstance(item, dict):
            raise document.error((path, f"must be a mapping with {', '.join(sorted(keys))}"))
        _only(document, item, path, keys)
        for key, value in item.items():
            if not isinstance(value, str) or not value:
                raise document.error((f"{path}.{key}", f"must be a name or range, not {value!r}"))
        if item_key not in item:
            raise document.error((path, f"has no name: `{item_key}` is missing"))
        line = document.lines.get(path, 0)
        below = {
            key: slurm.names(item[key], document.source, line, key) if key in item else ()
            for key in ("children", "nodes")
        }
        yield Switch(item[item_key], below["children"], below["nodes"], document.source, line)


def _only(document: Document, item: Mapping[str, Any], at: str, known: set[str]) -> None:
    for key in item:
        if key not in known:
            message = f"unknown key; known are {', '.join(sorted(known))}"
            raise document.error((f"{at}.{key}", message))
