"""What colours stand for. Light to import: the command line names it."""

from __future__ import annotations

from enum import StrEnum


class ColourBy(StrEnum):
    """Property that the colour of a job's hosts shows."""

    AUTO = "auto"
    STAGE = "stage"
    REPLICA = "replica"
