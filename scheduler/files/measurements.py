"""What was measured on a cluster, as readers of other programs' files hand it over."""

from __future__ import annotations

from statistics import median

from muster.structs import struct

FEWEST_STEPS = 5  # of which the first are left out: caches, compilation, connections
WARM_UP_SHARE = 10  # one part in so many


@struct(frozen=True, slots=True)
class RunSteps:
    """Seconds of the steps of one run, in their order. `source`: the file, or the job."""

    source: str
    framework: str
    seconds: tuple[float, ...]

    @property
    def typical_s(self) -> float:
        """The median without the first tenth, and without the first step at least."""
        left_out = max(1, len(self.seconds) // WARM_UP_SHARE)
        return median(self.seconds[left_out:] or self.seconds)


@struct(frozen=True, slots=True)
class Sizes:
    """One collective at several sizes: (bytes, microseconds, GB/s of bus bandwidth) each. `hosts`:
    as the program names them, none where it does not."""

    source: str
    collective: str
    rows: tuple[tuple[int, float, float], ...]
    hosts: tuple[str, ...]
