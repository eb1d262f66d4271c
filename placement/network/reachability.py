"""Which switch still reaches which leaf, once cables have failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from placement.fabric.tree import Ints
from placement.network.wiring import Layer, Links

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def reach(links: Links, leaves: Ints) -> list[Mask]:
    """By layer: may traffic for these leaves pass a switch? Shape: (switches, leaves).

    Traffic takes shortest paths only: up to the first layer whose domain holds both
    ends, then down. What Ethernet routing withdraws and a subnet manager reroutes.
    """
    down = [_is_leaf(links, leaves)]
    for low, layer in enumerate(links.layers[:-1]):
        ports = layer.uplinks
        above = links.layers[low + 1].switch_count
        down.append(any_by(ports.upper, down[low][ports.lower], above))
    ways = [down[-1]]
    for low in range(len(links.layers) - 2, -1, -1):
        layer = links.layers[low]
        up = any_by(layer.uplinks.lower, ways[0][layer.uplinks.upper], layer.switch_count)
        ways.insert(0, np.where(is_inside(links, low, leaves), down[low], up))
    return ways


def _is_leaf(links: Links, leaves: Ints) -> Mask:
    every = np.arange(links.layers[0].switch_count)
    found: Mask = (every[:, None] == leaves) & links.live_leaf[leaves]
    return found


def is_inside(links: Links, level: int, leaves: Ints) -> Mask:
    """Do a switch of this layer and a leaf share a domain? Shape: (switches, leaves)."""
    layer = links.layers[level]
    same: Mask = domain_of(layer)[:, None] == links.domain_by_leaf[level][leaves]
    return same


def domain_of(layer: Layer) -> Ints:
    """Shape: (switches,)."""
    return np.arange(layer.switch_count) // layer.per_domain


def any_by(keys: Ints, rows: Mask, size: int) -> Mask:
    """Row k: is any row with key k true?"""
    return np.asarray(_by(np.logical_or.reduceat, keys, rows, size))


def sum_by(keys: Ints, rows: Floats, size: int) -> Floats:
    """Row k: the sum of rows with key k."""
    return np.asarray(_by(np.add.reduceat, keys, rows, size))


def _by(
    fold: Callable[..., npt.NDArray[Any]], keys: Ints, rows: npt.NDArray[Any], size: int
) -> npt.NDArray[Any]:
    out = np.zeros((size, rows.shape[1]), dtype=rows.dtype)
    if len(keys):
        order = np.argsort(keys, kind="stable")
        found, begins = np.unique(keys[order], return_index=True)
        out[found] = fold(rows[order], begins, axis=0)
    return out
