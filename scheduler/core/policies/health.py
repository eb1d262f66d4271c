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
    REPORT = "report"  # the log says once of each that it is one, whenever it is back in service
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
    action: LemonAction = LemonAction.REPORT
    excl_jobid_count: int = 3
    xid_cnt: int = 3
    tickets: int = 2
    out_count: int = 4
    multi_node_node_fails: int = 3
    single_node_node_fails: int = 2
    single_node_failure_percent: int = 10


class PreventionAction(StrEnum):
    """Treatment of a host of a gang that is likelier to fail than others."""

    OFF = "off"
    SHOW = "show"  # the report that makes it suspect says what a swap would be worth
    SWAP = "swap"  # its gang leaves it at the next checkpoint, where that pays


FAILURE_RATIOS: Final[dict[str, float]] = {"ecc-correctable": 2.4}
"""How many times as often as others a host fails that is suspect for a signal; 1 where nothing was
published.

Schroeder, Pinheiro and Weber (DRAM errors in the wild, SIGMETRICS 2009): a corrected error of
memory makes an uncorrectable one 9 to 400 times as probable. High-bandwidth memory was the cause of
72 of 419 failures (Llama 3, table 5), so that a host fails 1 + 72 / 419 x (9 - 1) times as often,
by the lower of the two. Wu et al. (USENIX ATC 2024), who looked at such memory itself, find no
clear relation between the two kinds of errors.
"""


@struct(frozen=True, slots=True)
class PreventionPolicy:
    """When a gang leaves a suspect host before it fails (rules/hosts/prevention.py).

    `ratios`: in place of those of FAILURE_RATIOS, by signal. `evidence`: how much they
    weigh against the log, as if hosts had been suspect so many times. `early_ratio`: how many
    times as often as others a host fails in its early life. Schroeder and Gibson (DSN 2006) fit
    times between failures by Weibull distributions of shape 0.7 to 0.8, by which the first 30 days
    have 1.6 to 2.1 times the failures of an average month of the first year.
    """

    action: PreventionAction = PreventionAction.OFF
    ratios: tuple[tuple[str, float], ...] = ()
    evidence: int = 20
    early_ratio: float = 2.0

    def ratio(self, signal: str) -> float:
        """Return how many times as often as others a host that is suspect for `signal` fails."""
        return (FAILURE_RATIOS | dict(self.ratios)).get(signal, 1.0)


class ProbeAction(StrEnum):
    """Effect of what agents find by themselves."""

    REPORT = "report"  # the log says it, and the host takes gangs as before
    ACT = "act"  # each is a report of its signal, as of any monitor


@struct(frozen=True, slots=True)
class ProbePolicy:
    """`every_s`: between two probes of an idle host; 0: none are made."""

    every_s: int = 600
    then: ProbeAction = ProbeAction.REPORT


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
    prevention: PreventionPolicy = field(default_factory=PreventionPolicy)
    probes: ProbePolicy = field(default_factory=ProbePolicy)

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
