"""What launchers hold and for how long: words of the server file, which they act on."""

from __future__ import annotations

from enum import StrEnum


class HoldingScope(StrEnum):
    """The hosts that are held together: all of the fabric at once, or those of each gang."""

    WHOLE = "whole"
    GANG = "gang"


class StepScope(StrEnum):
    """How long a step of agents lasts."""

    ALLOCATION = "allocation"
    ATTEMPT = "attempt"
