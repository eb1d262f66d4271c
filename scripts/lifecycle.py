"""Draw docs/lifecycle.md from the transition tables; --check says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from scheduler.core.model.lifecycle import (
    ALLOWS,
    HOST_MOVES,
    JOB_MOVES,
    MOVERS,
    WINDOW_MOVES,
    HostMove,
    HostState,
    JobMove,
    JobState,
    WindowMove,
    WindowState,
)
from scheduler.core.policies.health_signals import SIGNALS, Effect, Signal, Threshold
from scheduler.core.policies.xids import XIDS, Blame

PAGE = Path(__file__).parent.parent / "docs" / "lifecycle.md"

JOB_STATES: dict[StrEnum, str] = {
    JobState.QUEUED: "waits for hosts, in order of priority and arrival",
    JobState.RUNNING: "the whole gang runs; its hosts and spares are held",
    JobState.INTERRUPTED: "a host of the gang failed; the next decision swaps, shrinks or requeues",
    JobState.COMPLETED: "the gang ended well",
    JobState.FAILED: "the gang ended badly by itself",
    JobState.CANCELLED: "the user ended it",
}
JOB_MOVES_SAID: dict[StrEnum, str] = {
    JobMove.START: "all hosts at once, or none: the next attempt",
    JobMove.INTERRUPT: "a host of the gang fails; every rank stops",
    JobMove.SWAP: "some hosts are replaced, or none if all were repaired; the next attempt",
    JobMove.RESIZE: "replicas join or are dropped, with their hosts; the next attempt",
    JobMove.REQUEUE: "too few hosts to swap in, or a window opened; it keeps its place by arrival",
    JobMove.PREEMPT: "a more important gang starts instead; it keeps its place by arrival",
    JobMove.COMPLETE: "the launcher reports success",
    JobMove.FAIL: "the launcher reports failure",
    JobMove.CANCEL: "asked for",
}
HOST_STATES: dict[StrEnum, str] = {
    HostState.NEW: "put in, never tested",
    HostState.BURN_IN: "its stress tests run",
    HostState.HEALTHY: "takes gangs and spares",
    HostState.GOLDEN: "passed its stress tests, and nothing has counted against it for long",
    HostState.SUSPECT: "something counts against it; what runs goes on",
    HostState.RETIRING: "what runs leaves at its next checkpoint; then it goes to repair",
    HostState.CORDONED: "what runs goes on, nothing new starts",
    HostState.DRAINING: "cordoned, and what runs is moved to a spare or waited for",
    HostState.FAILED: "out of service until it is reported repaired; what ran is stopped",
    HostState.IN_REPAIR: "somebody repairs it",
    HostState.RMA: "goes back to its maker; leaves when another machine is installed",
}
HOST_MOVES_SAID: dict[StrEnum, str] = {
    HostMove.CORDON: "asked for",
    HostMove.UNCORDON: "asked for",
    HostMove.DRAIN: "asked for",
    HostMove.EMPTY: "the last gang has left",
    HostMove.FAIL: "a report that it is of no use, or one too many of a kind",
    HostMove.REPAIR: "reported repaired; an operator's cordon is put back at once",
    HostMove.SUSPECT: "so many reports that it is not to be trusted",
    HostMove.RETIRE: "a failure is foreseen: by a report, by many, or because it is a lemon",
    HostMove.CLEAR: "nothing was reported for long enough",
    HostMove.TEST: "its stress tests begin, after a repair where the policy wants them",
    HostMove.PASS: "passed its stress tests",
    HostMove.START_REPAIR: "a ticket was opened",
    HostMove.PROMOTE: "passed its tests, and was without trouble for long enough",
    HostMove.DEMOTE: "something counts against it, if not much",
    HostMove.RETURN: "a lemon, and the policy sends lemons back",
    HostMove.INSTALL: "another machine stands there: its record begins anew",
}

WINDOW_STATES: dict[StrEnum, str] = {
    WindowState.PENDING: "before its start; jobs that would reach into it stay off its hosts",
    WindowState.OPEN: "between start and end",
    WindowState.OVER: "in the log alone",
}
WINDOW_MOVES_SAID: dict[StrEnum, str] = {
    WindowMove.SET: "asked for; of an open one only the end and the terms",
    WindowMove.OPEN: "its start has come: gangs leave its hosts as it says",
    WindowMove.CLOSE: "its end has come",
    WindowMove.REMOVE: "asked for",
}


def main() -> int:
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is not what the tables say: run scripts/lifecycle.py", file=sys.stderr)
    return 1


def page() -> str:
    """The whole of docs/lifecycle.md."""
    parts = [
        "# The life of a job, of a host and of a window",
        "",
        "Drawn by `scripts/lifecycle.py` from the tables in `scheduler/core/model/lifecycle.py`,",
        "which are all the ways that anything changes state: do not edit this page.",
        "",
        "## Job",
        "",
        *_diagram(JOB_MOVES, JobState.QUEUED),
        "",
        *_meanings("state", JOB_STATES),
        "",
        *_meanings("move", JOB_MOVES_SAID),
        "",
        "## Host",
        "",
        *_diagram(HOST_MOVES, HostState.HEALTHY),
        "",
        "| state | | gangs that may begin |",
        "|---|---|---|",
        *(f"| {one} | {HOST_STATES[one]} | {ALLOWS[one]} |" for one in HostState),
        "",
        "| move | | by |",
        "|---|---|---|",
        *(f"| {move} | {HOST_MOVES_SAID[move]} | {_movers(move)} |" for move in HostMove),
        "",
        "## Window",
        "",
        *_diagram(WINDOW_MOVES, WindowState.PENDING),
        "",
        *_meanings("state", WINDOW_STATES),
        "",
        *_meanings("move", WINDOW_MOVES_SAID),
        "",
        "## Health signals",
        "",
        *_signals(),
        "",
        "## XIDs",
        "",
        *_xids(),
    ]
    return "\n".join(parts) + "\n"


def _diagram(table: Mapping[Any, Mapping[Any, StrEnum]], first: StrEnum) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {first}"
    for state, moves in table.items():
        for move, then in moves.items():
            yield f"    {state} --> {then}: {move}"
        if not moves:
            yield f"    {state} --> [*]"
    yield "```"


def _meanings(heading: str, said: dict[StrEnum, str]) -> Iterator[str]:
    yield f"| {heading} | |"
    yield "|---|---|"
    for name, meaning in said.items():
        yield f"| {name} | {meaning} |"


_SAID = {
    Effect.NOTE: "is written down",
    Effect.SUSPECT: "suspect",
    Effect.RETIRE: "leaves service at the next checkpoint",
    Effect.FAIL: "fails now",
    Effect.REPAIR: "comes back",
    Effect.PASS: "passed its burn-in; a suspect is cleared",
    Effect.TEST: "burn-in begins",
    Effect.START_REPAIR: "to repair, if it is out already",
    Effect.INSTALL: "new",
}
_BLAMES = {
    Blame.APPLICATION: "the application's own, never held against the host",
    Blame.COUNTS: "counts as `xid`",
    Blame.RETIRE: "leaves service at the next checkpoint",
    Blame.FATAL: "fails now",
}


def _movers(move: HostMove) -> str:
    return ", ".join(MOVERS[move])


def _signals() -> Iterator[str]:
    yield "| signal | | one of it | several of it |"
    yield "|---|---|---|---|"
    for name, signal in SIGNALS.items():
        one = "see XIDs" if name == "xid" else _SAID[signal.effect]
        yield f"| `{name}` | {_text(signal)} | {one} | {_several(signal)} |"


def _text(signal: Signal) -> str:
    return f"{signal.text} (`value` of them)" if signal.has_value else signal.text


def _several(signal: Signal) -> str:
    return "; ".join(map(_threshold, signal.thresholds))


def _threshold(threshold: Threshold) -> str:
    minutes = threshold.within_s // 60
    within = f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
    return f"{threshold.count:,} in {within}: {_SAID[threshold.then]}"


def _xids() -> Iterator[str]:
    yield "Codes that are not here count."
    yield ""
    yield "| XID | | |"
    yield "|---|---|---|"
    for code, xid in XIDS.items():
        yield f"| {code} | {xid.text} | {_BLAMES[xid.blame]} |"


if __name__ == "__main__":
    sys.exit(main())
