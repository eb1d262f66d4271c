"""What whoever asked for a placement should know, in sentences."""

from __future__ import annotations

from placement.fabric import Fabric
from placement.holding import Holding
from placement.memory import memory_note
from placement.request import Request
from placement.traffic import axis_traffic


def request_notes(fabric: Fabric, request: Request) -> list[str]:
    """About the job itself: silent axes, memory that would not do."""
    note = memory_note(request)
    return [*_silent_axes(fabric, request), *([note] if note else [])]


def _silent_axes(fabric: Fabric, request: Request) -> list[str]:
    """Axes that span hosts and carry no bytes: most likely something was left out."""
    return [
        f"axis {axis.axis} spans hosts and has no traffic: it was placed as if silent"
        for axis in axis_traffic(request)
        if not axis.edge_bytes and axis.stride * axis.size > fabric.gpus_per_host
    ]


def spare_notes(fabric: Fabric, held: Holding) -> list[str]:
    """Fewer spares than wished for, or spares far from the gang."""
    notes = []
    if len(held.spares) < held.wished:
        notes.append(f"{len(held.spares)} of {held.wished} spares held: no more hosts are free")
    if held.elsewhere:
        spares = "1 spare is" if held.elsewhere == 1 else f"{held.elsewhere} spares are"
        tier = fabric.tiers[0].name
        notes.append(f"{spares} in {tier}s that the gang does not use")
    return notes
