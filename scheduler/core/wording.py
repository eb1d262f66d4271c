"""Numbers in the sentences of reasons."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from placement.workload.request import StepBound


def hosts_text(count: int) -> str:
    return f"{count:,} host{'' if count == 1 else 's'}"


def jobs_text(count: int) -> str:
    return f"{count:,} job{'' if count == 1 else 's'}"


def sizes_text(sizes: Sequence[int]) -> str:
    """List sizes: `8, 16, 32`, `8 to 128 in steps of 8`, or both ends of a long list."""
    if len(sizes) <= 6:
        return ", ".join(f"{dp:,}" for dp in sizes)
    steps = {after - before for before, after in pairwise(sizes)}
    if len(steps) == 1:
        return f"{sizes[0]:,} to {sizes[-1]:,} in steps of {steps.pop():,}"
    first = ", ".join(f"{dp:,}" for dp in sizes[:4])
    return f"{first}, ... {sizes[-1]:,} ({len(sizes)} sizes)"


def listed(names: tuple[str, ...]) -> str:
    """List names: `a, b, c and 2 more`."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def ending(names: tuple[str, ...]) -> str:
    """Say whose end is waited for: `a ends`, `a, b, c and 2 more end`."""
    return f"{listed(names)} {'ends' if len(names) == 1 else 'end'}"


def step_text(step: StepBound | None) -> str:
    """Say how long a step takes: `; a step takes 10.5 s, no placement on these hosts less than 10.4
    s`; "" where that is not known."""
    if step is None:
        return ""
    bound = f", no placement on these hosts less than {step.least_seconds:.3g} s"
    return f"; a step takes {step.seconds:.3g} s{bound if step.least_seconds else ''}"


def duration(seconds: int) -> str:
    hours, minutes = seconds // 3600, seconds % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def share_text(share: float) -> str:
    """Describe the share of its bandwidth that an uplink carries: `up`, `down`, `at 87.5 %`."""
    return {0.0: "down", 1.0: "up"}.get(share, f"at {100 * share:.4g} %")
