"""The process that decides, started by executor.py with the number of its pipe.

It holds a state of its own and folds into it the events that each question brings. It
ends when the other side of its pipe does, however that came about.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import starmap
from multiprocessing.connection import Connection
from time import perf_counter_ns

from placement import warm_up
from placement.fabric.hostset import HostSet
from placement.workload.request import Placement
from scheduler.core import Job, Plan, SchedulingOptions, State, decide, replay
from scheduler.core.capacity.placer import make_placer
from scheduler.eventlog import codec, snapshots

Spans = list[tuple[int, int]]

_NICE = 10  # calls go first


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to do on the state at `version`. `base`: a snapshot to begin with, else the
    state of the question before; `events`: what follows it, as the log has it."""

    version: int
    now_ns: int
    limits: SchedulingOptions
    base: bytes | None
    events: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class PlanResponse:
    """The plan, and from when to when each placement was looked for, by perf_counter_ns,
    which all processes of a machine share."""

    plan: Plan
    solves: Spans


def followed(state: State, request: PlanRequest) -> State:
    """The state to decide on. Raises: ValueError when it is another one than asked for."""
    if request.base is not None:
        state, _ = snapshots.decode(request.base)
    state = replay(starmap(codec.decode, request.events), state)
    if state.version != request.version:
        raise ValueError(f"the events lead to version {state.version}, not {request.version}")
    return state


def respond(state: State, request: PlanRequest) -> PlanResponse:
    """Decide, and take the time of every placement."""
    solves: Spans = []
    find = make_placer(state, request.limits, now_ns=request.now_ns)

    def timed(job: Job, free: HostSet, most: int) -> Placement | None:
        began_ns = perf_counter_ns()
        try:
            return find(job, free, most)
        finally:
            solves.append((began_ns, perf_counter_ns()))

    return PlanResponse(decide(state, request.now_ns, request.limits, timed), solves)


def answer(link: Connection) -> None:
    """Answer until the other side is gone. Exceptions are answers too."""
    state = State.empty()
    warm_up()
    link.send("up")
    while True:
        request = link.recv()
        try:
            state = followed(state, request)
            response: PlanResponse | Exception = respond(state, request)
        except Exception as error:
            response = error
        link.send(response)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the server, which ends the pipe
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    with Connection(int(sys.argv[1])) as link, suppress(EOFError, OSError):
        answer(link)
