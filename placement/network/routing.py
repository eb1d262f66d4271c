"""How a switch chooses among equal paths."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from placement.errors import BadInput

LLM_QUEUE_PAIRS = 16  # RoCE (2024); the Llama 3 paper speaks of 16 flows between two GPUs
MOST_QUEUE_PAIRS = 1024


class Kind(StrEnum):
    """The four ways.

    ECMP: a hash of the five-tuple picks a path for each connection. E_ECMP: as many
    queue pairs a connection as `queue_pairs`, each hashed by itself. PINNED: the
    destination's place in its rack names the path. ADAPTIVE: every packet takes the
    emptiest one.
    """

    ECMP = "ecmp"
    E_ECMP = "e-ecmp"
    PINNED = "pinned"
    ADAPTIVE = "adaptive"


@dataclass(frozen=True, slots=True)
class Routing:
    """A kind; `queue_pairs` is 1 for all but E_ECMP."""

    kind: Kind
    queue_pairs: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.queue_pairs <= MOST_QUEUE_PAIRS:
            raise BadInput("routing", f"queue pairs must be 1 to {MOST_QUEUE_PAIRS:,}")
        if self.queue_pairs > 1 and self.kind is not Kind.E_ECMP:
            raise BadInput("routing", f"{self.kind} has one queue pair; e-ecmp takes several")

    def __str__(self) -> str:
        return f"{self.kind}:{self.queue_pairs}" if self.kind is Kind.E_ECMP else str(self.kind)


def parse_routing(text: str) -> Routing:
    """`ecmp`, `e-ecmp` (16 queue pairs), `e-ecmp:4`, `pinned` or `adaptive`.

    Raises: BadInput.
    """
    name, colon, count = text.partition(":")
    if name not in list(Kind):
        known = ", ".join(Kind)
        raise BadInput("routing", f"must be one of {known}, not {name!r}")
    if not colon:
        return Routing(Kind(name), LLM_QUEUE_PAIRS if name == Kind.E_ECMP else 1)
    if not (count.isascii() and count.isdigit() and len(count) < 10):
        raise BadInput("routing", f"{count!r} is not a number of queue pairs")
    return Routing(Kind(name), int(count))
