"""What can be done for a gang that lost hosts, and what each way costs: the record of it."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct


class RestartOption(StrEnum):
    """Ways for a gang to go on after a failure. Of two that cost the same the first is taken."""

    ZONE = "zone"  # spares of its own, or free hosts, in the zones of those lost
    LENDER = "lender"  # spares of other jobs there
    RECALL = "recall"  # spares that are lent come back: who is on them leaves
    AWAY = "away"  # hosts elsewhere: the cut rises
    PREEMPT = "preempt"  # hosts of gangs that are evicted
    SHRINK = "shrink"  # an elastic gang goes on without the replicas that were hit
    REPLACE = "replace"  # placed again near where it was; more blocks move
    WAIT = "wait"  # it gives up its hosts and waits in the queue


AT_HOME = (RestartOption.ZONE, RestartOption.LENDER, RestartOption.RECALL)
"""In the zones of the hosts lost, with the cut as it was."""


@struct(frozen=True, slots=True)
class WeighedOption:
    """One option as it was weighed.

    `gpu_s`: GPU-seconds that it costs, as far as is known: standing still so far, the
    restart and the work done again, which all options cost, and what only this one does.
    None: it cannot be had. `cut_rise_bytes`: per step over the outermost tier. `slower`:
    share by which a step is longer for it, None where no model says. `moved`: blocks on
    another host. `note`: what is special, or why it cannot be had.
    """

    option: RestartOption
    gpu_s: int | None = None
    cut_rise_bytes: int = 0
    slower: float | None = None
    moved: int = 0
    note: str = ""
    is_taken: bool = False


WeighedOptions = tuple[WeighedOption, ...]


def taken(restart_options: WeighedOptions) -> WeighedOption | None:
    """Return the option that was taken."""
    return next((step for step in restart_options if step.is_taken), None)
