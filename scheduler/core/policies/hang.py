"""When a gang whose steps stop coming hangs, and what is done then, as far as its owner says."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct


class HangAction(StrEnum):
    """The action once a gang hangs. Its stacks are taken in any case."""

    WARN = "warn"  # it is said, and the gang runs on
    RESTART = "restart"  # the attempt has failed
    ASK = "ask"  # the attempt is stopped, and the job held until its owner releases it
    IGNORE = "ignore"  # nobody looks


@struct(frozen=True, slots=True)
class HangTerms:
    """`after_s`: without a step, at least; longer where steps, or pauses between them, took long
    before. `first_step_s`: without a first step after all ranks have started; None = for ever."""

    after_s: int = 1_800
    action: HangAction = HangAction.WARN
    first_step_s: int | None = None


AS_WARNED = HangTerms()
