"""What monitors may report of a host, and what each report does: one table.

A report acts by itself, or counts: so many within so long do something. What counts, how
many and what happens then can be said otherwise in a health file (policy.py); these are
the defaults.

Sources: checks and their severities, Kokolis et al. (HPCA 2025, section III); ranges of
causes, Llama 3 (table 5); early-life cables and links, RoCE at scale (SIGCOMM 2024); 8 PCIe
replays a minute, NVIDIA/DCGM (dcgm_gpu_hardware_limits.h). Limits at which agents report by
themselves: agent/checks/probe.py.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from muster.structs import struct

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
STRAGGLER: Final = "straggler"


class Effect(StrEnum):
    """Effect of a report on a host, the mildest first."""

    NOTE = "note"  # it is written down
    SUSPECT = "suspect"  # preemptible gangs only from here on
    RETIRE = "retire"  # what runs leaves at its next checkpoint
    FAIL = "fail"  # out of service now; what runs is stopped
    RMA = "rma"  # the same, and it goes back to its maker
    REPAIR = "repair"  # back in service
    PASS = "pass"  # it passed its stress tests
    TEST = "test"  # its stress tests begin
    START_REPAIR = "start_repair"  # somebody repairs it
    INSTALL = "install"  # another machine stands there


@struct(frozen=True, slots=True)
class Threshold:
    """Reports that together have an effect: `count` of them within `within_s` seconds have the
    effect `then`. `per_gpu`: of one GPU, where reports name one; else of the whole host."""

    count: int
    within_s: int
    then: Effect
    per_gpu: bool = False


@struct(frozen=True, slots=True)
class Signal:
    """A kind of health report, and what it does to its host. `effect`: of one report by itself.
    `thresholds`: of several. `is_trouble`: it counts against the host, so that it is not golden.
    `has_value`: `value` is a number of errors, that many at once. `is_domain`: it may name a domain
    instead of a host."""

    text: str
    effect: Effect = Effect.NOTE
    thresholds: tuple[Threshold, ...] = ()
    is_trouble: bool = True
    has_value: bool = False
    is_domain: bool = False


def _fails(text: str, *, is_domain: bool = False) -> Signal:
    return Signal(text, Effect.FAIL, is_domain=is_domain)


def _retires(text: str) -> Signal:
    return Signal(text, Effect.RETIRE)


def _counts(
    text: str, *thresholds: tuple[int, int, Effect] | Threshold, has_value: bool = False
) -> Signal:
    made = tuple(t if isinstance(t, Threshold) else Threshold(*t) for t in thresholds)
    return Signal(text, Effect.NOTE, made, True, has_value)


def _says(text: str, effect: Effect, *, is_domain: bool = False) -> Signal:
    return Signal(text, effect, is_trouble=False, is_domain=is_domain)


XID: Final = "xid"
AGENT_LOST: Final = "agent-lost"
AGENT_AWAITED: Final = "agent-awaited"
POWER_LOST: Final = "power-lost"
MEASURED: Final = "measured"
PROBED: Final = "probed"
LEMON: Final = "lemon"
BURN_IN: Final = "burn-in"  # also the reason with which hosts are cordoned to be checked
BUILT_IN_CHECKS: Final = ("gpus", "memory", "network")

_FLAPS: Final = (Threshold(3, HOUR_S, Effect.SUSPECT), Threshold(6, DAY_S, Effect.RETIRE))
_LASTS: Final = (Threshold(3, HOUR_S, Effect.SUSPECT), Threshold(10, DAY_S, Effect.RETIRE))

SIGNALS: Final[dict[str, Signal]] = {
    "host-down": _fails("crashed, or cannot be reached"),
    "gpu-lost": _fails("a GPU has fallen off the PCIe bus"),
    "ecc-uncorrectable": _fails("DRAM error that could not be corrected"),
    "sram-uncorrectable": _fails("SRAM error that could not be corrected"),
    "row-remap-failure": _fails("no spare memory row is left"),
    "nvlink-down": _fails("an NVLink is down"),
    "nic-down": _fails("a NIC is down"),
    "link-down": _fails("the link between NIC and switch is down"),
    "mount-lost": _fails("a file system that jobs need is gone"),
    "stress-test-failed": _fails("failed a stress test"),
    "gate-failed": _fails("failed the site's gate, which runs before the ranks of a gang"),
    "tor-down": _fails("the switch of a rack is down: names the rack", is_domain=True),
    "switch-down": _fails("a switch is down: names the domain behind it", is_domain=True),
    POWER_LOST: _fails("has no power: names the host, or the domain", is_domain=True),
    AGENT_LOST: _fails("no message came from its agent for a lease"),
    AGENT_AWAITED: _says("its agent has not come in yet", Effect.FAIL),
    "row-remap-pending": _retires("a memory row is remapped at the next reset"),
    "sram-threshold": _retires("SRAM errors are at the limit from which the maker replaces a GPU"),
    "pcie-degraded": _retires("a PCIe link lost lanes or speed"),
    "predicted-failure": _retires("a failure is predicted"),
    "heartbeat-missed": _counts("no heartbeat in time", (3, 5 * MINUTE_S, Effect.FAIL)),
    "ecc-correctable": _counts(
        "DRAM errors that were corrected", (1_000, DAY_S, Effect.SUSPECT), has_value=True
    ),
    "sram-correctable": _counts(
        "SRAM errors that were corrected",
        (100, DAY_S, Effect.SUSPECT),
        (1_000, DAY_S, Effect.RETIRE),
        has_value=True,
    ),
    "nvlink-errors": _counts(
        "replays and recoveries of an NVLink",
        (10, HOUR_S, Effect.SUSPECT),
        (100, HOUR_S, Effect.RETIRE),
        has_value=True,
    ),
    "pcie-replays": _counts(
        "packets that a GPU's PCIe link had to send again",
        Threshold(480, HOUR_S, Effect.SUSPECT, per_gpu=True),
        has_value=True,
    ),
    "nic-flap": _counts("times that a NIC went down and up", *_FLAPS, has_value=True),
    "link-flap": _counts("times that a link went down and up", *_FLAPS, has_value=True),
    "link-errors": _counts("a link has more errors than its maker allows", *_LASTS),
    "thermal": _counts("too hot, or slowed down by heat", *_LASTS),
    "fan-fault": _counts("a fan stands still, or is too slow", *_LASTS),
    "power-fault": _counts("a power supply gives too little, or a GPU draws too much", *_LASTS),
    STRAGGLER: _counts(
        "a rank is slower than the others", (3, HOUR_S, Effect.RETIRE), (5, DAY_S, Effect.RETIRE)
    ),
    XID: _counts("an error of the NVIDIA driver, see XIDs", (3, DAY_S, Effect.SUSPECT)),
    "excluded": Signal("a job excluded this host; the detail names the job", is_trouble=False),
    "ticket": _says("a repair ticket was opened", Effect.START_REPAIR),
    "repaired": _says("back in service", Effect.REPAIR),
    "agent-back": _says("its agent sends messages, again or at last", Effect.REPAIR),
    "agent-reached": _says("its agent, which was cut off, sends messages again", Effect.REPAIR),
    "agents-cut-off": _says(
        "many agents are silent together: names the domain", Effect.NOTE, is_domain=True
    ),
    "agents-reached": _says(
        "agents that were cut off send messages again: names the domain",
        Effect.NOTE,
        is_domain=True,
    ),
    "tor-up": _says("the switch of a rack is up again", Effect.REPAIR, is_domain=True),
    "switch-up": _says("a switch is up again", Effect.REPAIR, is_domain=True),
    "power-back": _says("has power again", Effect.REPAIR, is_domain=True),
    BURN_IN: _says("its stress tests begin", Effect.TEST),
    MEASURED: _says("measured in a burn-in: NAME=VALUE, more is better", Effect.NOTE),
    PROBED: _says("its agent probed it: what is wrong, or nothing any more", Effect.NOTE),
    LEMON: _says("it fails again and again", Effect.NOTE),
    "stress-test-passed": _says("passed its stress tests", Effect.PASS),
    "installed": _says("another machine was installed; its record begins", Effect.INSTALL),
}

WITHOUT_AGENT: Final = (AGENT_LOST, AGENT_AWAITED, POWER_LOST)
"""Hosts that are out for one of these come back with their agents."""

ENDS: Final = {
    "tor-up": ("tor-down",),
    "switch-up": ("switch-down",),
    "power-back": (POWER_LOST,),
    "agent-back": WITHOUT_AGENT,
    "agent-reached": WITHOUT_AGENT,
}
"""What each of these brings back: hosts that are out for one of these reasons alone."""
