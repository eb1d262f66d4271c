"""Where every host is drawn: outermost domains are blocks, innermost ones cells of hosts.

Units are host widths. Blocks are alike, sized for the largest domain, and filled row
by row in the order of the fabric, so that what is near in the tree is near on paper.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np
import numpy.typing as npt

from muster.structs import struct
from placement.fabric.tree import Fabric, Ints

Floats = npt.NDArray[np.float64]

CELL_GAP = 0.35  # between cells; hosts of one cell touch
BLOCK_ASPECT = 1.35  # width over height that blocks come near to
PICTURE_ASPECT = 2.1
PAD = 0.6  # between hosts and the frame around a block
TITLE_INCHES = 0.24  # for the words above a block
GAP_INCHES = 0.16
LARGEST_HOST_INCHES = 0.28
MOST_TITLED = 60  # blocks; beyond, their names would overlap


@struct(frozen=True, slots=True)
class FloorPlan:
    """Where hosts and domains lie on paper. `corner`: shape (hosts, 2), lower left of each unit
    square, y upwards.

    `blocks`: x, y, width, height of each outermost domain. `width`, `height`: of the paper,
    `hosts_per_inch` its scale.
    """

    corner: Floats
    blocks: tuple[tuple[float, float, float, float], ...]
    width: float
    height: float
    hosts_per_inch: float

    @property
    def is_titled(self) -> bool:
        return len(self.blocks) <= MOST_TITLED


def plan(fabric: Fabric, inches: float) -> FloorPlan:
    """Lay out the hosts of a fabric on paper `inches` wide. Cost: O(hosts)."""
    block_of, cell_of = _domains(fabric)
    cell, slot = _ranks(block_of, cell_of)
    cell_columns, cell_rows = _grid(int(slot.max()) + 1, 1.0, 1.0, 1.6)
    gap = CELL_GAP if len(fabric.tiers) > 1 else 0.0
    pitch_x, pitch_y = cell_columns + gap, cell_rows + gap
    columns, rows = _grid(int(cell.max()) + 1, pitch_x, pitch_y, BLOCK_ASPECT)
    width, height = columns * pitch_x - gap, rows * pitch_y - gap
    sheet = _sheet(int(block_of.max()) + 1, width + 2 * PAD, height + 2 * PAD, inches)
    left = block_of % sheet.across * sheet.step_x + PAD
    low = sheet.height - (block_of // sheet.across + 1) * sheet.step_y + sheet.gap + PAD
    x = left + cell % columns * pitch_x + slot % cell_columns
    y = low + height - 1 - cell // columns * pitch_y - slot // cell_columns
    firsts = np.unique(block_of, return_index=True)[1]
    blocks = tuple((float(left[i]), float(low[i]), width, height) for i in firsts)
    corner = np.stack([x, y], axis=1).astype(np.float64)
    return FloorPlan(corner, blocks, inches * sheet.scale, sheet.height, sheet.scale)


@struct(frozen=True, slots=True)
class _Sheet:
    """How blocks lie on the paper; lengths in hosts, `scale` in hosts an inch."""

    across: int
    step_x: float
    step_y: float
    gap: float
    height: float
    scale: float


def _sheet(count: int, width: float, height: float, inches: float) -> _Sheet:
    """`count` framed blocks of this size on paper of this width."""
    is_titled = count <= MOST_TITLED
    gap_inches = GAP_INCHES if is_titled else GAP_INCHES / 4
    title_inches = TITLE_INCHES if is_titled else 0.0
    across, down = _grid(count, width, 1.2 * height, PICTURE_ASPECT)
    scale = across * width / (inches - (across - 1) * gap_inches)
    scale = max(scale, 1 / LARGEST_HOST_INCHES)
    gap = gap_inches * scale
    step_y = height + gap + title_inches * scale
    return _Sheet(across, width + gap, step_y, gap, down * step_y, scale)


def _domains(fabric: Fabric) -> tuple[Ints, Ints]:
    """(outermost, innermost) domain of each host; a host is its own cell below one tier."""
    each = np.arange(fabric.host_count)
    if not fabric.tiers:
        return np.zeros(fabric.host_count, dtype=np.int64), each
    inner = fabric.tiers[-1].domain_by_host if len(fabric.tiers) > 1 else each
    return fabric.tiers[0].domain_by_host, inner


def _ranks(block_of: Ints, cell_of: Ints) -> tuple[Ints, Ints]:
    """The cell's number within its block, the host's within its cell."""
    first = np.unique(cell_of, return_index=True)[1]
    cell_in_block = _running(block_of[first])
    return cell_in_block[cell_of], _running(cell_of)


def _running(group: Ints) -> Ints:
    """How many of the same group stand before each."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(group)))
    running = np.empty(len(group), dtype=np.int64)
    running[order] = np.arange(len(group)) - np.repeat(starts, sizes)
    return running


def _grid(count: int, width: float, height: float, aspect: float) -> tuple[int, int]:
    """(columns, rows) for `count` boxes that come near to `aspect` with few left empty."""
    best = (float("inf"), 1, 1)
    middle = max(1, round(sqrt(count * aspect * height / width)))
    for columns in range(max(1, middle // 2), min(count, 2 * middle) + 1):
        rows = ceil(count / columns)
        ratio = columns * width / (rows * height)
        empty = rows * columns / count - 1
        badness = max(ratio / aspect, aspect / ratio) + 2 * empty
        best = min(best, (badness, columns, rows))
    return best[1], best[2]
