"""Labels of hosts, such as the GPU model, as a fabric file gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement.errors import BadInput
from placement.fabric import hostlist
from placement.fabric.hostset import HostSet

Labels = Mapping[str, Mapping[str, HostSet]]  # key -> value -> hosts
Places = Mapping[str, tuple[int, Sequence[int]]]  # name -> depth in the tree, hosts inside


def read_labels(
    value: Any,
    places: Places,
    host_count: int,
    inherited: Sequence[Mapping[str, str]] = (),
) -> Labels:
    """`labels: {z0: {gpu: h100}, "z1-r[00-15]": {gpu: a100}}`: of domains and hosts, by
    name or hostlist range. What is said of a host goes before what is said of its rack,
    and that before its zone. `places`: everything that has a name, hosts included.
    `inherited`: of each host, what its domains are labelled with where they are listed.

    Raises: BadInput naming the entry.
    """
    if not isinstance(value, Mapping):
        raise BadInput("labels", "must be a mapping of domains or hosts to labels")
    depths = 1 + max(depth for depth, _ in places.values())
    given: list[dict[int, dict[str, str]]] = [{} for _ in range(depths)]
    for names, labels in value.items():
        path = f"labels.{names}"
        checked = check_labels(labels, path)
        for depth, members in _named(str(names), places, path):
            for host in members:
                given[depth].setdefault(host, {}).update(checked)
    by_host = [
        dict(inherited[host] if inherited else {})
        | {key: text for level in given for key, text in level.get(host, {}).items()}
        for host in range(host_count)
    ]
    return _by_value(by_host)


def _named(text: str, places: Places, path: str) -> list[tuple[int, Sequence[int]]]:
    try:
        names = hostlist.expand(text)
    except BadInput as error:
        raise BadInput(path, error.message) from None
    for name in names:
        if name not in places:
            raise BadInput(path, f"no domain or host {name!r} in this fabric")
    return [places[name] for name in names]


def check_labels(labels: Any, path: str) -> dict[str, str]:
    """Raises: BadInput unless they map texts to texts."""
    if not isinstance(labels, Mapping) or not labels:
        raise BadInput(path, "must be a mapping of labels to values, such as {gpu: h100}")
    for key, text in labels.items():
        if not isinstance(key, str) or not isinstance(text, str) or not key or not text:
            raise BadInput(f"{path}.{key}", f"must be a non-empty text, not {text!r}")
    return dict(labels)


def _by_value(by_host: Sequence[Mapping[str, str]]) -> Labels:
    by_value: dict[str, dict[str, HostSet]] = {}
    for host, labels in enumerate(by_host):
        for key, text in labels.items():
            values = by_value.setdefault(key, {})
            values[text] = values.get(text, 0) | 1 << host
    return {key: dict(sorted(by_value[key].items())) for key in sorted(by_value)}
