"""What is done about reports: everything an operator can say in a health file."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Final

from muster.structs import struct
from scheduler.core.policies.health_signals import DAY_S, SIGNALS, Effect, Signal
from scheduler.core.policies.xids import UNKNOWN, XIDS, Blame

HOUR_S = 3_600


class LemonAction(StrEnum):
    """Fate of hosts that fail again and again."""

    SHOW = "show"
    RETIRE = "retire"  # gangs leave at their next checkpoint, then repair
    RMA = "rma"  # the same, and then back to the maker


@struct(frozen=True, slots=True)
class HealthRule:
    """Rule for a signal in place of the table's."""

    signal: str
    rule: Signal


@struct(frozen=True, slots=True)
class LemonPolicy:
    """A host is a lemon when `at_least` of the seven signals reach their thresholds over
    `days` days. The signals are those of Kokolis et al. (HPCA 2025, section V); the
    thresholds, which they do not give, are ours, and not measured on a fleet.

    `single_node_failure_percent` is of single-host starts and needs two failures.
    """

    days: int = 28
    at_least: int = 2
    action: LemonAction = LemonAction.SHOW
    excl_jobid_count: int = 3
    xid_cnt: int = 3
    tickets: int = 2
    out_count: int = 4
    multi_node_node_fails: int = 3
    single_node_node_fails: int = 2
    single_node_failure_percent: int = 10


@struct(frozen=True, slots=True)
class HealthPolicy:
    """The operator's rules for the health of hosts. `rules`: signals that differ from the table.
    `xids`: codes that do.

    `clear_s`: a suspect without trouble for so long is healthy again. `has_burn_in`: a repaired
    host passes a stress test before it serves. `early_s`: from then on it is in its early life for
    so long. `golden_s`: a host that has passed a stress test is golden after so long without
    trouble. `large_hosts`: gangs of so many hosts take golden hosts first.
    """

    rules: tuple[HealthRule, ...] = ()
    xids: tuple[tuple[int, Blame], ...] = ()
    clear_s: int = DAY_S
    has_burn_in: bool = False
    early_s: int = 30 * DAY_S
    golden_s: int = 30 * DAY_S
    large_hosts: int = 64
    lemons: LemonPolicy = field(default_factory=LemonPolicy)

    def signal(self, name: str) -> Signal:
        """Return the signal of this name, by the policy's own rule if it has one. Raises: KeyError
        on an unknown name."""
        return next((r.rule for r in self.rules if r.signal == name), SIGNALS[name])

    def blame(self, code: int) -> Blame:
        table = XIDS.get(code, UNKNOWN).blame
        return next((blame for xid, blame in self.xids if xid == code), table)


BLAMES: Final[dict[Blame, Effect]] = {
    Blame.APPLICATION: Effect.NOTE,
    Blame.COUNTS: Effect.NOTE,
    Blame.RETIRE: Effect.RETIRE,
    Blame.FATAL: Effect.FAIL,
}
AS_STATED: Final = HealthPolicy()
