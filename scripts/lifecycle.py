"""Draw docs/lifecycle.md from the transition tables; --check says whether it is current."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from scheduler.core.lifecycle import (
    HOST_MOVES,
    JOB_MOVES,
    SIGNALS,
    WINDOW_MOVES,
    Effect,
    HostMove,
    HostState,
    JobMove,
    JobState,
    WindowMove,
    WindowState,
)

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
    HostState.HEALTHY: "takes gangs and spares",
    HostState.CORDONED: "what runs goes on, nothing new starts",
    HostState.DRAINING: "cordoned, and what runs is moved to a spare or waited for",
    HostState.FAILED: "out of service until it is reported repaired",
}
HOST_MOVES_SAID: dict[StrEnum, str] = {
    HostMove.CORDON: "asked for",
    HostMove.UNCORDON: "asked for",
    HostMove.DRAIN: "asked for",
    HostMove.EMPTY: "the last gang has left",
    HostMove.FAIL: "a health signal",
    HostMove.REPAIR: "a health signal",
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
        "Drawn by `scripts/lifecycle.py` from the tables in `scheduler/core/lifecycle.py`,",
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
        *_meanings("state", HOST_STATES),
        "",
        *_meanings("move", HOST_MOVES_SAID),
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
        *(f"- {_SAID[effect]}: {_signals(effect)}" for effect in Effect),
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
    Effect.FAIL: "take the host out of service",
    Effect.REPAIR: "bring it back",
    Effect.NOTE: "go on record and change nothing by themselves",
}


def _signals(effect: Effect) -> str:
    return ", ".join(f"`{name}`" for name, does in SIGNALS.items() if does is effect)


if __name__ == "__main__":
    sys.exit(main())
