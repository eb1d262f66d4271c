"""What is proved of a cut."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from placement.workload.request import TierCut


class CutProof(StrEnum):
    """What is proved of the bytes over the outermost tier."""

    OPTIMAL = "optimal"  # no placement cuts less
    BOUNDED = "bounded"  # none cuts less than a bound below it
    NONE = "none"  # nothing is known


def proof(cuts: Sequence[TierCut], lower_bound: int) -> CutProof:
    """A gang that cuts nothing is optimal without any bound."""
    cut = outermost(cuts)
    if cut == lower_bound:
        return CutProof.OPTIMAL
    return CutProof.BOUNDED if lower_bound else CutProof.NONE


def gap(cuts: Sequence[TierCut], lower_bound: int) -> float:
    """Share of the outermost cut that the bound leaves open, 0 to 1."""
    cut = outermost(cuts)
    return (cut - lower_bound) / cut if cut else 0.0


def outermost(cuts: Sequence[TierCut]) -> int:
    """Bytes per step over the outermost tier; 0 on a fabric without tiers."""
    return cuts[0].bytes_per_step if cuts else 0
