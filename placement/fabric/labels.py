"""Labels of hosts, such as the GPU model, as a fabric file gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement.errors import BadInput
from placement.fabric import hostlist
from placement.fabric.hostset import HostSet

Labels = Mapping[str, Mapping[str, HostSet]]  # key -> value -> hosts
POWER = "power"  # label of hosts behind one feed
Places = Mapping[str, tuple[int, Sequence[int]]]  # name -> depth in the tree, hosts inside


def read_labels(value: Any, places: Places, by_host: Sequence[dict[str, str]]) -> Labels:
    """Read labels of domains and hosts, by name or hostlist range: `labels: {z0: {gpu: h100},
    "z1-r[00-15]": {gpu: a100}}`. Labels of a host override those of its rack, and these those of
    its zone.

    Raises: BadInput naming the entry.
    """
    if not isinstance(value, Mapping):
        raise BadInput("labels", "must be a mapping of domains or hosts to labels")
    given: list[tuple[int, Sequence[int], dict[str, str]]] = []
    for names, labels in value.items():
        path = f"labels.{names}"
        checked = check_labels(labels, path)
        for name in hostlist.expand(str(names), path):
            if name not in places:
                raise BadInput(path, f"no domain or host {name!r} in this fabric")
            given.append((*places[name], checked))
    for _, hosts, labels in sorted(given, key=lambda each: each[0]):
        for host in hosts:
            by_host[host].update(labels)
    by_value: dict[str, dict[str, HostSet]] = {}
    for host, labels in enumerate(by_host):
        for key, text in labels.items():
            values = by_value.setdefault(key, {})
            values[text] = values.get(text, 0) | 1 << host
    return {key: dict(sorted(by_value[key].items())) for key in sorted(by_value)}


def check_labels(labels: Any, path: str) -> dict[str, str]:
    """Refuse labels that do not map texts to texts. Raises: BadInput."""
    if not isinstance(labels, Mapping) or not labels:
        raise BadInput(path, "must be a mapping of labels to values, such as {gpu: h100}")
    for key, text in labels.items():
        if not isinstance(key, str) or not isinstance(text, str) or not key or not text:
            raise BadInput(f"{path}.{key}", f"must be a non-empty text, not {text!r}")
    return dict(labels)
