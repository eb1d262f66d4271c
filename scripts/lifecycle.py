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
    LINK_MOVES,
    MOVERS,
    WINDOW_MOVES,
    HostMove,
    HostState,
    JobMove,
    JobState,
    LinkMove,
    LinkUse,
    WindowMove,
    WindowState,
)
from scheduler.core.policies.health_signals import SIGNALS, Effect, Signal, Threshold
from scheduler.core.policies.xids import XIDS, Blame

PAGE = Path(__file__).parent.parent / "docs" / "lifecycle.md"

JOB_STATES: dict[StrEnum, str] = {
    JobState.QUEUED: "waits for hosts, in order of priority and arrival",
    JobState.RUNNING: "the gang runs; it holds its hosts and spares",
    JobState.INTERRUPTED: "a host of the gang failed; the next decision swaps, shrinks or requeues",
    JobState.COMPLETED: "the launcher reported success",
    JobState.FAILED: "the launcher reported failure, or too many attempts failed",
    JobState.CANCELLED: "a user cancelled it",
}
JOB_MOVES_SAID: dict[StrEnum, str] = {
    JobMove.START: "all hosts at once, or none: the next attempt",
    JobMove.INTERRUPT: "a host of the gang fails; every rank stops",
    JobMove.SWAP: "some hosts are replaced, or none if all were repaired; the next attempt",
    JobMove.RESIZE: "replicas join or are dropped, with their hosts; the next attempt, but where"
    " [other roles run on](roles.md#another-size-of-one-role)",
    JobMove.REQUEUE: "too few hosts to swap in, or a window opened; it keeps its place by arrival",
    JobMove.PREEMPT: "a gang with a better claim starts instead; it keeps its place by arrival",
    JobMove.COMPLETE: "the launcher reports success",
    JobMove.FAIL: "the launcher reports failure",
    JobMove.CANCEL: "a user cancels the job",
}
HOST_STATES: dict[StrEnum, str] = {
    HostState.NEW: "installed, never tested",
    HostState.BURN_IN: "its stress tests run",
    HostState.HEALTHY: "takes gangs and spares",
    HostState.GOLDEN: "passed its stress tests, and no trouble was reported for 30 days",
    HostState.SUSPECT: "reports count against it; a gang that runs goes on",
    HostState.RETIRING: "its gang leaves at the next checkpoint, then the host goes to repair",
    HostState.CORDONED: "a gang that runs goes on, no gang starts",
    HostState.DRAINING: "cordoned, and its gang moves to another host or runs to its end",
    HostState.FAILED: "out of service until it is reported repaired; its gang is stopped",
    HostState.IN_REPAIR: "under repair",
    HostState.RMA: "returned to the vendor; another machine is installed in its place",
    HostState.UNKNOWN: "shown of one whose agent has not come in yet; in the log it is `failed`",
}
HOST_MOVES_SAID: dict[StrEnum, str] = {
    HostMove.CORDON: "an operator cordons it",
    HostMove.UNCORDON: "an operator returns it to service",
    HostMove.DRAIN: "an operator drains it",
    HostMove.EMPTY: "the last gang has left",
    HostMove.FAIL: "a fatal report, or too many of a kind",
    HostMove.REPAIR: "reported repaired; an operator's cordon stays in force",
    HostMove.SUSPECT: "too many reports of a kind",
    HostMove.RETIRE: "a failure is predicted, by reports or because it is a lemon",
    HostMove.CLEAR: "no report for the period of the policy",
    HostMove.TEST: "its stress tests begin; after a repair, if the policy asks for them",
    HostMove.PASS: "passed its stress tests",
    HostMove.START_REPAIR: "a ticket was opened",
    HostMove.PROMOTE: "passed its tests, and had no trouble for the period of the policy",
    HostMove.DEMOTE: "a report counts against it",
    HostMove.RETURN: "a lemon or a report, where the policy returns such hosts to the vendor",
    HostMove.INSTALL: "another machine is installed: its record begins",
}

WINDOW_STATES: dict[StrEnum, str] = {
    WindowState.PENDING: "before its start; jobs that would run into it do not start on its hosts",
    WindowState.OPEN: "between start and end",
    WindowState.OVER: "only in the log",
}
WINDOW_MOVES_SAID: dict[StrEnum, str] = {
    WindowMove.SET: "created or changed; once open, only its end, terms and reason",
    WindowMove.OPEN: "its start has come; gangs leave its hosts as `leave` says",
    WindowMove.CLOSE: "its end has come",
    WindowMove.REMOVE: "deleted",
}


LINK_STATES: dict[StrEnum, str] = {
    LinkUse.OPEN: "gangs cross it, whatever share of it is left",
    LinkUse.CORDONED: "gangs that cross it go on, no gang starts across it",
    LinkUse.DRAINING: "cordoned, and gangs that cross it move to one side or run to their end",
}
LINK_MOVES_SAID: dict[StrEnum, str] = {
    LinkMove.CORDON: "an operator cordons it",
    LinkMove.UNCORDON: "an operator opens it to all gangs",
    LinkMove.DRAIN: "an operator drains it",
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
        "# States of jobs, hosts, links and windows",
        "",
        "Drawn by `scripts/lifecycle.py` from the tables in `scheduler/core/model/lifecycle.py`,",
        "which hold every change of state. Do not edit this page.",
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
        "| state | | gangs that may start |",
        "|---|---|---|",
        *(f"| {state} | {HOST_STATES[state]} | {ALLOWS[state]} |" for state in HostState),
        "",
        "| move | | by |",
        "|---|---|---|",
        *(f"| {move} | {HOST_MOVES_SAID[move]} | {_movers(move)} |" for move in HostMove),
        "",
        "## Link",
        "",
        "The uplink of a domain. Beside this it carries a share of what it was built for, from 0",
        "(down) to 1 (up), as reports say.",
        "",
        *_diagram(LINK_MOVES, LinkUse.OPEN),
        "",
        *_meanings("state", LINK_STATES),
        "",
        *_meanings("move", LINK_MOVES_SAID),
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
    Effect.NOTE: "recorded",
    Effect.SUSPECT: "suspect",
    Effect.RETIRE: "retiring",
    Effect.FAIL: "failed",
    Effect.RMA: "failed, then rma",
    Effect.REPAIR: "back in service",
    Effect.PASS: "ends a burn-in, clears a suspect",
    Effect.TEST: "burn_in",
    Effect.START_REPAIR: "in_repair, if it is out of service",
    Effect.INSTALL: "new",
}
_BLAMES = {
    Blame.APPLICATION: "a fault of the application: never counts",
    Blame.COUNTS: "counts as `xid`",
    Blame.RETIRE: "retiring",
    Blame.FATAL: "failed",
}


def _movers(move: HostMove) -> str:
    return ", ".join(MOVERS[move])


def _signals() -> Iterator[str]:
    yield "| signal | | one report | several reports |"
    yield "|---|---|---|---|"
    for name, signal in SIGNALS.items():
        effect = "see XIDs" if name == "xid" else _SAID[signal.effect]
        yield f"| `{name}` | {_text(signal)} | {effect} | {_several(signal)} |"


def _text(signal: Signal) -> str:
    return f"{signal.text} (`value` of them)" if signal.has_value else signal.text


def _several(signal: Signal) -> str:
    return "; ".join(map(_threshold, signal.thresholds))


def _threshold(threshold: Threshold) -> str:
    minutes = threshold.within_s // 60
    within = f"{minutes} min" if minutes < 60 else f"{minutes // 60} h"
    of_gpu = " of one GPU" if threshold.per_gpu else ""
    return f"{threshold.count:,}{of_gpu} in {within}: {_SAID[threshold.then]}"


def _xids() -> Iterator[str]:
    yield "Other codes count as `xid`."
    yield ""
    yield "| XID | | |"
    yield "|---|---|---|"
    for code, xid in XIDS.items():
        yield f"| {code} | {xid.text} | {_BLAMES[xid.blame]} |"


if __name__ == "__main__":
    sys.exit(main())
