"""How a switch chooses among equal paths, and flows routed that way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from placement.errors import BadInput
from placement.network.congestion import Congestion, congestion
from placement.network.failures import CUT_OFF, without
from placement.network.flows import Flows
from placement.network.fluid import ByLink, adaptive_weights, spread
from placement.network.paths import path_loads
from placement.network.wiring import Links

LLM_QUEUE_PAIRS = 16  # RoCE (2024); the Llama 3 paper speaks of 16 flows between two GPUs
MOST_QUEUE_PAIRS = 1024


class Kind(StrEnum):
    """The four ways.

    ECMP: a hash of the five-tuple picks a path for each connection. E_ECMP: as many
    queue pairs a connection as `queue_pairs`, each hashed by itself. PINNED: the
    destination's place in its rack names the path. ADAPTIVE: every packet takes the
    emptiest one.
    """

    ECMP = "ecmp"
    E_ECMP = "e-ecmp"
    PINNED = "pinned"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Routing:
    """A kind; `queue_pairs` is 1 for all but E_ECMP."""

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
    """`ecmp`, `e-ecmp` (16 queue pairs), `e-ecmp:4`, `pinned` or `adaptive`.

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


def route(
    links: Links, flows: Flows, routing: Routing, seed: int = 0, failed: Sequence[str] = ()
) -> Congestion:
    """What every link carries, the busiest one, and how far that is from perfect.

    `links`: the whole fabric. `failed`: switches and cables that are down, by name or
    hostlist range (`z0-ctsw03`, `z0-r[000-003]-rtsw/z0-ctsw03`); their traffic moves to
    what is left. `seed` salts the hashes; pinned and adaptive routing ignore it.

    Raises: BadInput on an unknown name, or when hosts of the job have no path left.
    Cost: O(flows x queue pairs); Llama 3 405B on 16,384 GPUs with 16 queue pairs, 2 s.
    """
    left = without(links, failed)
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
    return congestion(links, left, str(routing), loads, ideal)


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
