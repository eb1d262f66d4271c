"""What a file says of one host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NodeState(StrEnum):
    """What another scheduler thinks of a host."""

    UP = "up"
    DOWN = "down"
    DRAIN = "drain"
    FAILING = "failing"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ImportedReport:
    """A signal, or how the host stands with another scheduler; neither: nothing is known.
    `field`: where it is said."""

    host: str
    line: int
    field: str
    signal: str = ""
    detail: str = ""
    gpu: int | None = None
    xid: int = 0
    standing: NodeState | None = None
