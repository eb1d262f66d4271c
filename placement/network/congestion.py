"""What routed flows come to: loads, the busiest link, ratios, times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from placement.network.fluid import ByLink, every_cable
from placement.network.wiring import Floats, Links

SAME = 1e-9  # loads that differ by less are equal


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One direction of one link; its name reads in the direction of travel."""

    name: str
    bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class LayerLoad:
    """The links between two layers in one direction.

    `mmr`: the busiest link over the mean of its siblings, which are the links that
    could carry the same traffic (one domain's and rail's); 1 where nothing flows.
    """

    layer: str
    direction: str
    busiest: LinkLoad
    bytes: float
    mmr: float


@dataclass(frozen=True, slots=True)
class RoutedAxis:
    """One axis alone, its flows at once. `ideal_s`: spread perfectly, nothing failed."""

    axis: str
    busiest: LinkLoad
    ideal_s: float

    @property
    def seconds(self) -> float:
        return self.busiest.seconds

    @property
    def slowdown(self) -> float:
        return self.seconds / self.ideal_s if self.ideal_s else 1.0


@dataclass(frozen=True, slots=True)
class Congestion:
    """A step's traffic under one routing. Units: bytes and seconds per step.

    `seconds`: the busiest link with all axes' bytes, one after the other; `ideal_s`: the
    same traffic spread perfectly over the fabric with nothing failed. `links`: what the
    flows found, without the failed; `loads`: bytes on each, of the NICs and then of the
    cables above every layer.
    """

    routing: str
    busiest: LinkLoad
    layers: tuple[LayerLoad, ...]
    axes: tuple[RoutedAxis, ...]
    ideal_s: float
    links: Links = field(repr=False)
    loads: ByLink = field(repr=False)

    @property
    def seconds(self) -> float:
        return self.busiest.seconds

    @property
    def slowdown(self) -> float:
        return self.seconds / self.ideal_s if self.ideal_s else 1.0

    @property
    def mmr(self) -> Mapping[tuple[str, str], float]:
        """By (layer, direction)."""
        return {(load.layer, load.direction): load.mmr for load in self.layers}

    def axis(self, name: str) -> RoutedAxis | None:
        """None for an axis that stays within hosts."""
        return next((load for load in self.axes if load.axis == name), None)


def congestion(
    whole: Links,
    left: Links,
    routing: str,
    routed: Mapping[str, ByLink],
    ideal: Mapping[str, ByLink],
) -> Congestion:
    """The report on loads by axis: `routed` over what is `left` of the `whole` network."""
    rate = whole.link_bytes_per_s
    total = sum(routed.values(), _nothing(left))
    ideal_s = sum(ideal.values(), _nothing(whole)).most / rate
    layers = tuple(_layer(left, *entry) for entry in _by_layer(total))
    axes = tuple(
        RoutedAxis(axis, _busiest(left, loads), ideal[axis].most / rate)
        for axis, loads in routed.items()
    )
    return Congestion(routing, _busiest(left, total), layers, axes, ideal_s, left, total)


def _nothing(links: Links) -> ByLink:
    nics, cables = np.zeros(len(links.leaf_by_gpu)), every_cable(links, 0.0)
    return ByLink((nics, *cables.up), (nics, *cables.down))


def _by_layer(loads: ByLink) -> Iterator[tuple[int, bool, Floats]]:
    """(lower layer, is up, loads), from the NICs (layer -1) to the top."""
    for low, (up, down) in enumerate(zip(loads.up, loads.down, strict=True), start=-1):
        yield low, True, up
        yield low, False, down


def _busiest(links: Links, loads: ByLink) -> LinkLoad:
    """The fullest link; the lowest layer, upwards first, when several are equally full."""
    enough = loads.most * (1 - SAME)
    entries = _by_layer(loads)
    return _link(links, *next(entry for entry in entries if entry[2].max(initial=0.0) >= enough))


def _link(links: Links, low: int, is_up: bool, load: Floats) -> LinkLoad:
    """The fullest of these; the first one when several are equally full."""
    if not len(load):
        return LinkLoad("", 0.0, 0.0)
    fullest = int((load >= load.max() * (1 - SAME)).argmax())
    size = float(load[fullest])
    return LinkLoad(links.link_name(low, fullest, is_up), size, size / links.link_bytes_per_s)


def _layer(links: Links, low: int, is_up: bool, load: Floats) -> LayerLoad:
    below = "nic" if low < 0 else links.layers[low].name
    name, direction = f"{below}-{links.layers[low + 1].name}", "up" if is_up else "down"
    busiest, total, mmr = _link(links, low, is_up, load), float(load.sum()), 1.0
    if total and low >= 0:  # nothing but its own NIC carries what a GPU sends
        layer = links.layers[low]
        siblings = layer.uplinks.lower // layer.per_rail
        mmr = busiest.bytes / float(load[siblings == siblings[int(load.argmax())]].mean())
    return LayerLoad(name, direction, busiest, total, mmr)
