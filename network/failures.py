"""What remains of a network when switches and cables fail, and which switch reaches which leaf."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from muster.structs import replace
from network.wiring import Links, Mask
from placement import BadInput
from placement.fabric import hostlist
from placement.fabric.tree import Ints

CUT_OFF = "leaves hosts of the job no path to each other"
Number = TypeVar("Number", np.bool_, np.float64)


def links_without(links: Links, failed: Sequence[str]) -> Links:
    """Return the links of a fabric after these switches and cables, names or hostlist ranges, have
    failed, and without as many cables as its uplinks have lost (placement.fabric.links). Which of
    its cables an uplink has lost is not known, so that they are spread over the switches of a
    domain.

    Raises: BadInput with the first name that the fabric does not have.
    """
    names = [name for text in failed for name in hostlist.expand(text, "failed")]
    live_leaf = links.live_leaf.copy()
    live = [np.ones(len(layer.uplinks), dtype=np.bool_) for layer in links.layers]
    for (depth, number), share in links.fabric.links:
        level = len(links.layers) - 2 - depth
        layer = links.layers[level]
        there = np.flatnonzero(layer.domain_by_switch[layer.uplinks.lower] == number)
        lost = round(len(there) * (1 - share))
        live[level][there[np.arange(lost) * len(there) // max(1, lost)]] = False
    for name in names:
        if "/" in name:
            level, cables = _cables(links, name)
            live[level][cables] = False
            continue
        level, switch = _switch(links, name)
        live[level] &= links.layers[level].uplinks.lower != switch
        if level:
            live[level - 1] &= links.layers[level - 1].uplinks.upper != switch
        else:
            live_leaf[switch] = False
    if live_leaf.all() and all(mask.all() for mask in live):
        return links
    layers = tuple(
        replace(layer, uplinks=layer.uplinks.part(mask))
        for layer, mask in zip(links.layers, live, strict=True)
    )
    return replace(links, layers=layers, live_leaf=live_leaf, is_whole=False)


def uplinks_left(links: Links, failed: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return how many cables are left of each uplink that these switches and cables are part of,
    and how many it had, by domain.

    Raises: BadInput as `links_without`.
    """
    shares: dict[str, tuple[int, int]] = {}
    pairs = zip(links.layers[:-1], links_without(links, failed).layers[:-1], strict=True)
    for whole, left in pairs:
        had, has = (
            np.bincount(whole.domain_by_switch[each.uplinks.lower], minlength=len(whole.domains))
            for each in (whole, left)
        )
        for number in np.flatnonzero(had != has).tolist():
            shares[whole.domains[number]] = int(has[number]), int(had[number])
    return shares


def _cables(links: Links, name: str) -> tuple[int, list[int]]:
    """(layer below, cables) of a name."""
    first, second, *rest = name.split("/")
    (low, lower), (high, upper) = sorted([_switch(links, first), _switch(links, second)])
    cables = links.layers[low].uplinks
    between = np.flatnonzero((cables.lower == lower) & (cables.upper == upper))
    named = [c for c in between.tolist() if not rest or [str(cables.number[c])] == rest]
    if high != low + 1 or not named:
        raise BadInput("failed", f"{links.fabric.name} has no cable {name!r}")
    return low, named


def _switch(links: Links, name: str) -> tuple[int, int]:
    """(layer, switch) of a name."""
    if name in links.switch_by_name:
        return links.switch_by_name[name]
    like = f"{links.layers[0].switch_name(0)} or {links.layers[-1].switch_name(0)}"
    raise BadInput(
        "failed", f"{links.fabric.name} has no switch {name!r}; they are named like {like}"
    )


def reach(links: Links, leaves: Ints) -> list[Mask]:
    """Return, by layer, whether traffic for these leaves can pass each switch.

    Traffic takes shortest paths only: up to the first layer whose domain holds both ends, then
    down. What Ethernet routing withdraws and a subnet manager reroutes.
    """
    every = np.arange(links.layers[0].switch_count)
    down: list[Mask] = [(every[:, None] == leaves) & links.live_leaf[leaves]]
    for low, high in zip(links.layers[:-1], links.layers[1:], strict=True):
        down.append(sum_by(low.uplinks.upper, down[-1][low.uplinks.lower], high.switch_count))
    passable = [down[-1]]
    for level in range(len(links.layers) - 2, -1, -1):
        cables, size = links.layers[level].uplinks, links.layers[level].switch_count
        up = sum_by(cables.lower, passable[0][cables.upper], size)
        passable.insert(0, np.where(links.around(level, leaves), down[level], up))
    return passable


def sum_by(keys: Ints, rows: npt.NDArray[Number], size: int) -> npt.NDArray[Number]:
    """Return in row k the sum of the rows with key k; of truth values, whether any is true."""
    out = np.zeros((size, rows.shape[1]), dtype=rows.dtype)
    if len(keys):
        order = np.argsort(keys, kind="stable")
        present, begins = np.unique(keys[order], return_index=True)
        out[present] = np.add.reduceat(rows[order], begins, axis=0, dtype=rows.dtype)
    return out
