"""Seconds on the uplinks of the outermost domains: spread perfectly, or as routed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from muster.structs import struct
from placement.fabric.links import seconds_over
from placement.fabric.tree import Fabric
from placement.objective.cut import egress
from placement.workload.request import Placement, Request
from scheduler.cli.plot.geometry import Floats

if TYPE_CHECKING:
    from network.routing import Congestion


@struct(frozen=True, slots=True)
class PlottedLoad:
    """Seconds of a step in which uplinks are busy, out of each outermost domain.

    `mean`, `busiest`: shape (domains,), over the cables of a domain; `busiest` is None
    where traffic is taken as spread perfectly. `words` say what is shown.
    """

    mean: Floats
    busiest: Floats | None
    words: str


def load(
    fabric: Fabric, request: Request, placement: Placement, congestion: Congestion | None
) -> PlottedLoad:
    """The load of `placement`, from its routed flows if they are given."""
    if not fabric.tiers:
        return PlottedLoad(np.zeros(0), None, "")
    if congestion is not None and len(congestion.links.layers) > 1:
        return _routed(fabric, congestion)
    leaving = egress(fabric, request, placement.hosts)
    uplinks = fabric.tiers[0].uplink_bytes_per_s
    seconds = seconds_over(np.array(leaving, dtype=np.float64), uplinks)
    return PlottedLoad(seconds, None, "busy in a step, at full rate")


def _routed(fabric: Fabric, congestion: Congestion) -> PlottedLoad:
    """Cables out of the second highest layer, which serves the outermost domains."""
    layer = congestion.links.layers[-2]
    domain = layer.domain_by_switch[layer.uplinks.lower]
    seconds = congestion.loads.up[-1] / congestion.links.link_bytes_per_s
    count = len(fabric.tiers[0].domains)
    busiest = np.zeros(count)
    np.maximum.at(busiest, domain, seconds)
    cables = np.maximum(np.bincount(domain, minlength=count), 1)
    mean = np.bincount(domain, seconds, minlength=count) / cables
    words = f"busy in a step under {congestion.routing}; bar: mean of its cables, mark: the busiest"
    return PlottedLoad(mean, busiest, words)
