"""How a switch chooses among equal paths, and what that makes of flows: loads, the busiest
link, ratios, times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import numpy as np

from muster.structs import replace, struct
from network.failures import CUT_OFF, links_without
from network.flows import Flows
from network.fluid import ByLink, adaptive_weights, every_cable, spread
from network.paths import path_loads
from network.wiring import Floats, Links
from placement import BadInput

LLM_QUEUE_PAIRS = 16  # RoCE (2024); the Llama 3 paper speaks of 16 flows between two GPUs
MOST_QUEUE_PAIRS = 1024
SAME = 1e-9  # loads that differ by less are equal


class Kind(StrEnum):
    """Ways in which switches route flows.

    ECMP: a hash of the five-tuple picks a path for each connection. E_ECMP: as many queue pairs a
    connection as `queue_pairs`, each hashed by itself. PINNED: the destination's place in its rack
    names the path. ADAPTIVE: every packet takes the emptiest one.
    """

    ECMP = "ecmp"
    E_ECMP = "e-ecmp"
    PINNED = "pinned"
    ADAPTIVE = "adaptive"


@struct(frozen=True, slots=True)
class Routing:
    """A way of routing; `queue_pairs` is 1 for all kinds but E_ECMP."""

    kind: Kind
    queue_pairs: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.queue_pairs <= MOST_QUEUE_PAIRS:
            raise BadInput("routing", f"queue pairs must be 1 to {MOST_QUEUE_PAIRS:,}")
        if self.queue_pairs > 1 and self.kind is not Kind.E_ECMP:
            raise BadInput("routing", f"{self.kind} has one queue pair; e-ecmp takes several")

    def __str__(self) -> str:
        return f"{self.kind}:{self.queue_pairs}" if self.kind is Kind.E_ECMP else str(self.kind)


def parse_routing(text: str) -> Routing:
    """Parse `ecmp`, `e-ecmp` (16 queue pairs), `e-ecmp:4`, `pinned` or `adaptive`.

    Raises: BadInput.
    """
    name, colon, count = text.partition(":")
    if name not in list(Kind):
        known = ", ".join(Kind)
        raise BadInput("routing", f"must be one of {known}, not {name!r}")
    if not colon:
        return Routing(Kind(name), LLM_QUEUE_PAIRS if name == Kind.E_ECMP else 1)
    if not (count.isascii() and count.isdigit() and len(count) < 10):
        raise BadInput("routing", f"{count!r} is not a number of queue pairs")
    return Routing(Kind(name), int(count))


@struct(frozen=True, slots=True)
class LinkLoad:
    """The load of one link in one direction; its name reads in the direction of travel."""

    name: str
    bytes: float
    seconds: float


@struct(frozen=True, slots=True)
class LayerLoad:
    """The load of the links between two layers in one direction.

    `mmr`: the busiest link over the mean of its siblings, which are the links that could carry the
    same traffic (one domain's and rail's); 1 where nothing flows.
    """

    layer: str
    direction: str
    busiest: LinkLoad
    bytes: float
    mmr: float


@struct(frozen=True, slots=True)
class RoutedAxis:
    """The traffic of one axis alone under a routing. `ideal_s`: spread perfectly, with nothing
    failed."""

    axis: str
    busiest: LinkLoad
    ideal_s: float

    @property
    def seconds(self) -> float:
        return self.busiest.seconds

    @property
    def slowdown(self) -> float:
        return self.seconds / self.ideal_s if self.ideal_s else 1.0


@struct(frozen=True, slots=True)
class Congestion:
    """A step's traffic under one routing. Units: bytes and seconds per step.

    `seconds`: the busiest link with all axes' bytes, one after the other; `ideal_s`: the
    same traffic spread perfectly over the fabric with nothing failed. `links`: what the
    flows found, without the failed; `loads`: bytes on each, of the NICs and then of the
    cables above every layer.
    """

    routing: Routing
    busiest: LinkLoad
    layers: tuple[LayerLoad, ...]
    axes: tuple[RoutedAxis, ...]
    ideal_s: float
    links: Links
    loads: ByLink

    @property
    def seconds(self) -> float:
        return self.busiest.seconds

    @property
    def slowdown(self) -> float:
        return self.seconds / self.ideal_s if self.ideal_s else 1.0

    @property
    def mmr(self) -> Mapping[tuple[str, str], float]:
        """Return the busiest link over the mean of its siblings, by (layer, direction)."""
        return {(load.layer, load.direction): load.mmr for load in self.layers}

    def axis_seconds(self, name: str) -> float:
        """Return the seconds of an axis; 0 for an axis that stays within hosts."""
        return next((load.seconds for load in self.axes if load.axis == name), 0.0)


def route(
    links: Links, flows: Flows, routing: Routing, seed: int = 0, failed: Sequence[str] = ()
) -> Congestion:
    """Return the load of every link, the busiest one, and how far that is from perfect.

    `links`: the whole fabric. `failed`: switches and cables that are down, by name or hostlist
    range (`z0-ctsw03`, `z0-r[000-003]-rtsw/z0-ctsw03`); their traffic moves to what is left. `seed`
    salts the hashes; pinned and adaptive routing ignore it.

    Raises: BadInput on an unknown name, or when hosts of the job have no path left. Cost: O(flows x
    queue pairs); Llama 3 405B on 16,384 GPUs with 16 queue pairs, 2 s.
    """
    left = links_without(links, failed)
    sent = _on_rails(links, flows)
    if not left.live_leaf[left.leaf_by_gpu[np.append(sent.src_gpu, sent.dst_gpu)]].all():
        raise BadInput("failed", CUT_OFF)
    is_fluid = routing.kind is Kind.ADAPTIVE
    weights = None
    if is_fluid and not left.is_whole:
        weights = adaptive_weights(left, *sent.leaves(left), sent.bytes)
    salt = None if routing.kind is Kind.PINNED else seed
    loads: dict[str, ByLink] = {}
    ideal: dict[str, ByLink] = {}
    for index in np.unique(sent.axis):
        part, axis = sent.part(sent.axis == index), sent.axes[index]
        even = spread(links, *part.leaves(links), part.bytes)
        ideal[axis] = _with_nics(links, part, even)
        if not is_fluid:
            cables = path_loads(left, part, routing.queue_pairs, salt)
        elif left.is_whole:
            cables = even
        else:
            cables = spread(left, *part.leaves(left), part.bytes, weights)
        loads[axis] = _with_nics(links, part, cables)
    rate, none = links.link_bytes_per_s, sent.part(slice(0))
    total = sum(loads.values(), _with_nics(left, none, every_cable(left, 0.0)))
    perfect = sum(ideal.values(), _with_nics(links, none, every_cable(links, 0.0)))
    axes = tuple(
        RoutedAxis(axis, _busiest(left, of_axis), ideal[axis].most / rate)
        for axis, of_axis in loads.items()
    )
    layers = tuple(_layer(left, *entry) for entry in _by_layer(total))
    busiest = _busiest(left, total)
    return Congestion(routing, busiest, layers, axes, perfect.most / rate, left, total)


def _on_rails(links: Links, flows: Flows) -> Flows:
    """Where rails are apart, a flow leaves by the NIC of its target's rail (PXN)."""
    if links.is_mesh:
        return flows
    gpus = links.fabric.gpus_per_host
    source = flows.src_gpu - flows.src_gpu % gpus + flows.dst_gpu % gpus
    return replace(flows, src_gpu=source)


def _with_nics(links: Links, flows: Flows, cables: ByLink) -> ByLink:
    sent, taken = (
        np.asarray(np.bincount(gpus, flows.bytes, len(links.leaf_by_gpu)), dtype=np.float64)
        for gpus in (flows.src_gpu, flows.dst_gpu)
    )
    return ByLink((sent, *cables.up), (taken, *cables.down))


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
