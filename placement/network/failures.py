"""Names of switches and cables, and what remains when some of them fail.

z0-r000-rtsw  z0-ctsw03  atsw07        the switch of a rack, of a zone, of the fabric
p00-s0-leaf3  p00-spine12  core100     the same on InfiniBand, rail 3 at the leaf
z0-r000-rtsw/z0-ctsw03                 all cables between the two, either way round
p00-spine12/core192/1                  one of several parallel cables, from 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from placement.errors import BadInput
from placement.fabric import hostlist
from placement.fabric.tree import Ints
from placement.network.wiring import Layer, Links, Ports

Mask = npt.NDArray[np.bool_]


def switch_name(layer: Layer, switch: int) -> str:
    """The domain that a switch serves, its layer, its number there."""
    domain, number = divmod(switch, layer.per_domain)
    stem = f"{layer.domains[domain]}-" if layer.domains[domain] else ""
    width = len(str(layer.per_domain - 1))
    return f"{stem}{layer.name}" + (f"{number:0{width}d}" if layer.per_domain > 1 else "")


def link_name(links: Links, level: int, cable: int, is_up: bool = True) -> str:
    """Cable number `cable` above layer `level`, written in the direction of travel."""
    ports = links.layers[level].uplinks
    ends = [
        switch_name(links.layers[level], int(ports.lower[cable])),
        switch_name(links.layers[level + 1], int(ports.upper[cable])),
    ]
    name = "/".join(ends if is_up else reversed(ends))
    return f"{name}/{ports.number[cable]}" if ports.number.any() else name


def without(links: Links, failed: Sequence[str]) -> Links:
    """The fabric after these switches and cables, names or hostlist ranges, have failed.

    Raises: BadInput with the first name that the fabric does not have.
    """
    live_leaf = links.live_leaf.copy()
    live = [np.ones(len(layer.uplinks.lower), dtype=np.bool_) for layer in links.layers[:-1]]
    for name in _expanded(failed):
        if "/" in name:
            _cut_cable(links, name, live)
        else:
            _stop_switch(links, *_found(links, name), live, live_leaf)
    if live_leaf.all() and all(mask.all() for mask in live):
        return links
    layers = [_kept(layer, mask) for layer, mask in zip(links.layers, live, strict=False)]
    return replace(links, layers=(*layers, links.layers[-1]), live_leaf=live_leaf, is_whole=False)


def _expanded(failed: Sequence[str]) -> list[str]:
    try:
        return [name for text in failed for name in hostlist.expand(text)]
    except BadInput as error:
        raise BadInput("failed", error.message) from None


def _stop_switch(links: Links, level: int, switch: int, live: list[Mask], live_leaf: Mask) -> None:
    """Its cables both ways, and at a leaf the NICs."""
    if level == 0:
        live_leaf[switch] = False
    else:
        live[level - 1] &= links.layers[level - 1].uplinks.upper != switch
    if level < len(live):
        live[level] &= links.layers[level].uplinks.lower != switch


def _cut_cable(links: Links, name: str, live: list[Mask]) -> None:
    first, second, *rest = name.split("/")
    (low, lower), (high, upper) = sorted([_found(links, first), _found(links, second)])
    if high == low + 1:
        ports = links.layers[low].uplinks
        cables = _between(ports, lower, upper)
        chosen = [c for c in cables if not rest or [str(ports.number[c])] == rest]
        if chosen:
            live[low][chosen] = False
            return
    raise BadInput("failed", f"{links.fabric.name} has no cable {name!r}")


def _between(ports: Ports, lower: int, upper: int) -> Ints:
    """The cables between two switches."""
    begin, end = ports.first[lower : lower + 2]
    found: Ints = begin + np.flatnonzero(ports.upper[begin:end] == upper)
    return found


def _kept(layer: Layer, mask: Mask) -> Layer:
    ports = layer.uplinks
    lower = ports.lower[mask]
    first = np.searchsorted(lower, np.arange(layer.switch_count + 1))
    return replace(layer, ports=Ports(lower, ports.upper[mask], ports.number[mask], first))


def _found(links: Links, name: str) -> tuple[int, int]:
    """(layer, switch) of a name."""
    try:
        return _by_name(links)[name]
    except KeyError:
        top, leaf = links.layers[-1], links.layers[0]
        like = f"{switch_name(leaf, 0)} or {switch_name(top, 0)}"
        raise BadInput(
            "failed", f"{links.fabric.name} has no switch {name!r}; they are named like {like}"
        ) from None


@lru_cache(maxsize=8)
def _by_name(links: Links) -> Mapping[str, tuple[int, int]]:
    return {
        switch_name(layer, switch): (level, switch)
        for level, layer in enumerate(links.layers)
        for switch in range(layer.switch_count)
    }
