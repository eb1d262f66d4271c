"""What decide proposes, on one version of the state."""

from __future__ import annotations

from dataclasses import dataclass

from placement.request import Placement, TierCut


@dataclass(frozen=True, slots=True)
class Start:
    """Start a queued gang on these hosts."""

    name: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Move:
    """Block `block` leaves host `left` for host `joined` (fabric indices)."""

    block: int
    left: int
    joined: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Replace some hosts of a gang; every other rank stays."""

    name: str
    moves: tuple[Move, ...]
    cuts: tuple[TierCut, ...]


@dataclass(frozen=True, slots=True)
class Requeue:
    """Give up the rest of an interrupted gang's hosts and wait in the queue."""

    name: str
    reason: str


Action = Start | Swap | Requeue


@dataclass(frozen=True, slots=True)
class Plan:
    """Each action stands alone: a gang commits whole or not at all."""

    version: int
    actions: tuple[Action, ...] = ()
