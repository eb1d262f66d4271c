"""What routed flows come to: loads, the busiest link, ratios, times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from placement.fabric.tree import Ints
from placement.network.failures import link_name, switch_name
from placement.network.flows import Floats
from placement.network.fluid import CableLoads
from placement.network.routing import Routing
from placement.network.wiring import Links

SAME = 1e-9  # loads that differ by less are equal


@dataclass(frozen=True, slots=True, eq=False)
class Loads:
    """Bytes per step on every link, each direction.

    `nic_up`, `nic_down`: shape (gpus,). `cables`: by layer below the top.
    """

    nic_up: Floats
    nic_down: Floats
    cables: CableLoads

    def __add__(self, other: Loads) -> Loads:
        return Loads(
            self.nic_up + other.nic_up, self.nic_down + other.nic_down, self.cables + other.cables
        )

    def by_layer(self) -> Iterator[tuple[int, bool, Floats]]:
        """(lower layer, is up, loads), from the NICs (layer -1) to the top."""
        yield -1, True, self.nic_up
        yield -1, False, self.nic_down
        for low, (up, down) in enumerate(zip(self.cables.up, self.cables.down, strict=True)):
            yield low, True, up
            yield low, False, down

    @property
    def most(self) -> float:
        return max(float(load.max(initial=0.0)) for _, _, load in self.by_layer())


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
class AxisLoad:
    """One axis alone, its flows at once. `ideal_s`: spread perfectly, nothing failed."""

    axis: str
    busiest: LinkLoad
    seconds: float
    ideal_s: float

    @property
    def slowdown(self) -> float:
        return self.seconds / self.ideal_s if self.ideal_s else 1.0


@dataclass(frozen=True, slots=True)
class Congestion:
    """A step's traffic under one routing. Units: bytes and seconds per step.

    `seconds`: the busiest link with all axes' bytes, one after the other; `ideal_s`: the
    same traffic spread perfectly over the fabric with nothing failed. `links`: what the
    flows found, without the failed; `loads` has an entry for each of its cables.
    """

    routing: Routing
    busiest: LinkLoad
    layers: tuple[LayerLoad, ...]
    axes: tuple[AxisLoad, ...]
    seconds: float
    ideal_s: float
    links: Links = field(repr=False)
    loads: Loads = field(repr=False)

    @property
    def slowdown(self) -> float:
        return self.seconds / self.ideal_s if self.ideal_s else 1.0

    @property
    def mmr(self) -> Mapping[tuple[str, str], float]:
        """By (layer, direction)."""
        return {(load.layer, load.direction): load.mmr for load in self.layers}

    def axis(self, name: str) -> AxisLoad | None:
        """None for an axis that stays within hosts."""
        return next((load for load in self.axes if load.axis == name), None)


@dataclass(frozen=True, slots=True)
class Ideal:
    """Seconds when traffic is spread perfectly over the whole fabric."""

    by_axis: Mapping[str, float]
    total: float

    @classmethod
    def of(cls, links: Links, loads: Mapping[str, Loads]) -> Ideal:
        rate = links.link_bytes_per_s
        total = sum(loads.values(), _nothing(links)).most / rate
        return cls({axis: load.most / rate for axis, load in loads.items()}, total)


def congestion(
    links: Links, routing: Routing, routed: Mapping[str, Loads], ideal: Ideal
) -> Congestion:
    """The report on loads by axis; `links` as the flows found them."""
    total = sum(routed.values(), _nothing(links))
    axes = []
    for axis, loads in routed.items():
        fullest = _busiest(links, loads)
        axes.append(AxisLoad(axis, fullest, fullest.seconds, ideal.by_axis[axis]))
    layers = tuple(_layer(links, low, up, load) for low, up, load in total.by_layer())
    busiest = _busiest(links, total)
    return Congestion(
        routing, busiest, layers, tuple(axes), busiest.seconds, ideal.total, links, total
    )


def _nothing(links: Links) -> Loads:
    nics = np.zeros(len(links.leaf_by_gpu))
    zero = tuple(np.zeros(len(layer.uplinks.lower)) for layer in links.layers[:-1])
    return Loads(nics, nics, CableLoads(zero, zero))


def _busiest(links: Links, loads: Loads) -> LinkLoad:
    """The fullest link; the lowest layer, upwards first, when several are equally full."""
    enough = loads.most * (1 - SAME)
    found = next(entry for entry in loads.by_layer() if entry[2].max(initial=0.0) >= enough)
    return _link(links, *found)


def _link(links: Links, low: int, is_up: bool, load: Floats) -> LinkLoad:
    """The fullest of these; the first one when several are equally full."""
    if not len(load):
        return LinkLoad("", 0.0, 0.0)
    fullest = int((load >= load.max() * (1 - SAME)).argmax())
    name = _nic_name(links, fullest, is_up) if low < 0 else link_name(links, low, fullest, is_up)
    size = float(load[fullest])
    return LinkLoad(name, size, size / links.link_bytes_per_s)


def _nic_name(links: Links, gpu: int, is_up: bool) -> str:
    host, slot = divmod(gpu, links.fabric.gpus_per_host)
    leaf = switch_name(links.layers[0], int(links.leaf_by_gpu[gpu]))
    ends = [f"{links.fabric.hosts[host]}:nic{slot}", leaf]
    return "/".join(ends if is_up else reversed(ends))


def _layer(links: Links, low: int, is_up: bool, load: Floats) -> LayerLoad:
    below = "nic" if low < 0 else links.layers[low].name
    busiest = _link(links, low, is_up, load)
    siblings = _siblings(links, low)
    direction = "up" if is_up else "down"
    total = float(load.sum())
    if not total:
        return LayerLoad(f"{below}-{links.layers[low + 1].name}", direction, busiest, 0.0, 1.0)
    same = siblings == siblings[int(load.argmax())]
    mmr = busiest.bytes / float(load[same].mean())
    return LayerLoad(f"{below}-{links.layers[low + 1].name}", direction, busiest, total, mmr)


def _siblings(links: Links, low: int) -> Ints:
    """By link: a number that links share when they could carry the same traffic.

    Nothing but its own NIC carries what a GPU sends.
    """
    if low < 0:
        return np.arange(len(links.leaf_by_gpu))
    layer = links.layers[low]
    return layer.uplinks.lower // layer.per_rail
