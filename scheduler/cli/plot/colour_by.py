"""What colours stand for. Light to import: the command line names it."""

from __future__ import annotations

from enum import StrEnum


class ColourBy(StrEnum):
    """What tells the hosts of a job apart."""

    AUTO = "auto"
    STAGE = "stage"
    REPLICA = "replica"
