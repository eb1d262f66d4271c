"""What is proved of a cut."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from placement.workload.request import Objective, StepBound, TierCut
from scheduler.core import Job


class CutProof(StrEnum):
    """How far it is proved that no placement sends fewer bytes over the outermost tier."""

    OPTIMAL = "optimal"  # no placement cuts less
    BOUNDED = "bounded"  # none cuts less than a bound below it
    NONE = "none"  # nothing is known


def proof(cuts: Sequence[TierCut], lower_bound: int) -> CutProof:
    """Return how far the bound proves the outermost cut; a cut of 0 needs no bound."""
    cut = outermost(cuts)
    if cut == lower_bound:
        return CutProof.OPTIMAL
    return CutProof.BOUNDED if lower_bound else CutProof.NONE


def gap(cuts: Sequence[TierCut], lower_bound: int) -> float:
    """Return the share of the outermost cut that the bound leaves open, 0 to 1."""
    cut = outermost(cuts)
    return (cut - lower_bound) / cut if cut else 0.0


def objective_gap(
    objective: Objective, cuts: Sequence[TierCut], lower_bound: int, step: StepBound | None
) -> float | None:
    """Return how far the gang may be from the best in what it minimises: the share by which its
    step exceeds the lower bound, or the gap of its cut. None where nothing is proved."""
    if objective is Objective.TIME:
        return None if step is None else step.gap
    is_known = objective is Objective.CUT and proof(cuts, lower_bound) is not CutProof.NONE
    return gap(cuts, lower_bound) if is_known else None


def gap_of(job: Job) -> float | None:
    """Return `objective_gap` of a gang that holds hosts."""
    return objective_gap(
        job.request.objective, job.present.cuts, job.present.lower_bound, job.present.step
    )


def outermost(cuts: Sequence[TierCut]) -> int:
    """Return the bytes per step over the outermost tier; 0 on a fabric without tiers."""
    return cuts[0].bytes_per_step if cuts else 0
