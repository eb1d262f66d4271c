"""Where the clock and the streams of a replay stand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from simulator.due import Due


@dataclass(frozen=True, slots=True)
class Standing:
    """`zero_ns`: the first submit. `entries`, `seq`: of the kernel.

    Streams are read again and not written down: `offered` jobs came of the trace, and
    `outages` of the failures, which follow from their text and the seed. `down_ns`: when
    the failure of a host is heard of. `until_ns`: when the time is over, after `zero_ns`.
    """

    zero_ns: int
    now_ns: int
    seq: int
    entries: tuple[tuple[int, int, int, Due], ...]
    is_deciding: bool
    offered: int
    refused: Counter[str]
    outages: int
    down_ns: dict[str, int]
    until_ns: int | None
