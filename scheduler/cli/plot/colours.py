"""Which colour each host has, and what the colours stand for.

Seven hues of Okabe and Ito (2008), distinct with any colour vision, in three
shades, neighbours in different hues. Beyond 21 groups colours become a scale
(viridis without its black end; it has no grey, which is for hosts outside the job),
for then it is order that can be seen, not numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints
from placement.workload.request import Placement, Request
from scheduler.cli.plot.colour_by import ColourBy

HUES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
SHADES = (0.0, -0.42, 0.55)  # towards black, towards white
MOST_NAMED = len(HUES) * len(SHADES)
DARKEST = 0.12
FREE, BUSY, SPARE = "#EDEDED", "#A9A9A9", "#000000"
NOT_OF_JOB = -1


AXES = {ColourBy.STAGE: "pp", ColourBy.REPLICA: "dp"}


@struct(frozen=True, slots=True)
class Grouping:
    """`group_by_host`: the stage or replica of a host's first rank, -1 outside the job."""

    by: ColourBy
    count: int
    group_by_host: Ints


@struct(frozen=True, slots=True)
class States:
    """Host indices that carry no rank of the job, by what they are."""

    spare: Ints
    busy: Ints
    free: Ints


def grouping(fabric: Fabric, request: Request, placement: Placement, by: ColourBy) -> Grouping:
    """Groups of the axis asked for; *auto* is the one whose groups touch fewer domains."""
    ways = [_grouped(fabric, request, placement, each) for each in AXES]
    if by is not ColourBy.AUTO:
        return next(way for way in ways if way.by is by)
    return min(ways, key=lambda way: (way.count == 1, _spread(fabric, way)))


def _grouped(fabric: Fabric, request: Request, placement: Placement, by: ColourBy) -> Grouping:
    axis = AXES[by]
    parallelism = request.parallelism
    first_rank = np.arange(len(placement.hosts)) * fabric.gpus_per_host
    group = first_rank // parallelism.stride(axis) % parallelism.size(axis)
    of_host = np.full(fabric.host_count, NOT_OF_JOB, dtype=np.int64)
    of_host[list(placement.hosts)] = group
    return Grouping(by, parallelism.size(axis), of_host)


def _spread(fabric: Fabric, way: Grouping) -> float:
    """Outermost domains that a group touches, on average."""
    if not fabric.tiers:
        return 1.0
    inside = way.group_by_host >= 0
    pairs = {
        *zip(
            way.group_by_host[inside].tolist(),
            fabric.tiers[0].domain_by_host[inside].tolist(),
            strict=True,
        )
    }
    return len(pairs) / len({group for group, _ in pairs})


def states(fabric: Fabric, placement: Placement, free: HostSet) -> States:
    """Spare, busy and free hosts."""
    is_free = hostset.to_mask(free, fabric.host_count).copy()
    is_free[[*placement.hosts, *placement.spares]] = False
    is_busy = ~hostset.to_mask(free, fabric.host_count)
    is_busy[[*placement.hosts, *placement.spares]] = False
    spare = np.array(placement.spares, dtype=np.int64)
    return States(spare, np.flatnonzero(is_busy), np.flatnonzero(is_free))


def palette(count: int) -> Sequence[str]:
    """`count` colours as #RRGGBB."""
    if count > MOST_NAMED:
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        scale = colormaps["viridis"]
        return [to_hex(scale(DARKEST + (1 - DARKEST) * i / (count - 1))) for i in range(count)]
    return [_shade(HUES[i % len(HUES)], SHADES[i // len(HUES)]) for i in range(count)]


def _shade(colour: str, amount: float) -> str:
    """Mixed with white (amount above 0) or black (below)."""
    target = 255 if amount > 0 else 0
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    mixed = [round(part + (target - part) * abs(amount)) for part in parts]
    return "#" + "".join(f"{part:02X}" for part in mixed)
