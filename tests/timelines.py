"""Timelines of the console, made of random acts and read as its page reads them."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from scheduler.console.timeline import timeline
from scheduler.core import Rejected, State, admit, commit, decide
from scheduler.core.commit.commit import Conflict
from scheduler.core.fold.apply import apply
from scheduler.core.model.commands import Command, LoadTenants
from scheduler.core.model.events import Event, FabricLoaded
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.scheduling_options import SchedulingOptions
from scheduler.core.policies.tenants import Tenant, Tenants
from tests.build import cancel, fabric, fail, repair, submit

FABRIC = fabric(zones=2, racks=2, hosts=2)


class Shown:
    """What a reader of a timeline has at a time."""

    def __init__(self, content: bytes) -> None:
        (length,) = struct.unpack_from("<I", content)
        self.head: dict[str, Any] = json.loads(content[4 : 4 + length])
        self.frames: list[tuple[float, bool, bytes]] = []
        place = 4 + length
        while place < len(content):
            size, at_s, is_whole = struct.unpack_from("<IdI", content, place)
            self.frames.append((at_s, bool(is_whole), content[place + 16 : place + 16 + size]))
            place += 16 + size
        self.names: dict[int, str] = {}
        self.slots = self.blocks = self.states = np.zeros(0)

    def seek(self, at_s: float) -> Shown:
        """From the last whole picture on."""
        past = [frame for frame in self.frames if frame[0] <= at_s]
        begin = max(number for number, frame in enumerate(past) if frame[1])
        for _, is_whole, frame in past[begin:]:
            self._take(frame, is_whole=is_whole)
        return self

    def _take(self, frame: bytes, *, is_whole: bool) -> None:
        length, count = struct.unpack_from("<II", frame)
        head, place = json.loads(frame[8 : 8 + length]), 8 + length
        columns = []
        for kind in ("<u4", "<u4", "<i4", "u1")[is_whole:]:
            columns.append(np.frombuffer(frame, kind, count, place))
            place += columns[-1].nbytes
        if is_whole:
            self.names = {job["slot"]: job["name"] for job in head["jobs"]}
            self.slots, self.blocks, self.states = (column.copy() for column in columns)
            return
        for slot in head.get("gone", ()):
            del self.names[slot]
        self.names |= {job["slot"]: job["name"] for job in head.get("jobs", ())}
        hosts, *changed = columns
        for column, values in zip((self.slots, self.blocks, self.states), changed, strict=True):
            column[hosts] = values

    @property
    def text(self) -> list[tuple[str, int, int]]:
        """Job, block and state of each host."""
        names = {0: "", 1: "?"} | self.names
        return [
            (names[slot], int(block), int(state))
            for slot, block, state in zip(self.slots, self.blocks, self.states, strict=True)
        ]


def meant(state: State, tenant: str) -> list[tuple[str, int, int]]:
    shown = Shown(timeline(state, [], tenant))
    return shown.seek(float("inf")).text


TWO = Tenants((Tenant("a"), Tenant("b")), "a")


def history(acts: list[tuple[str, int, int]]) -> tuple[list[Event], list[State]]:
    """Events at growing times, and the state after each."""
    events: list[Event] = [FabricLoaded(0, FABRIC.spec)]
    states = [apply(State.empty(), events[0])]

    def take(more: tuple[Event, ...]) -> None:
        for event in more:
            events.append(event)
            states.append(apply(states[-1], event))

    loaded = admit(states[-1], LoadTenants(TWO), 0)
    assert not isinstance(loaded, Rejected)
    take(loaded)
    now_ns = 0
    for kind, number, step in acts:
        now_ns += step * SECOND_NS
        host, name = FABRIC.hosts[number], f"j{number % 4}"
        command: Command = {
            "submit": submit(name, number % 3 + 1, tenant="ab"[number % 2]),
            "cancel": cancel(name),
            "fail": fail(host),
            "repair": repair(host),
        }[kind]
        answer = admit(states[-1], command, now_ns)
        if not isinstance(answer, Rejected):
            take(answer)
        plan = decide(states[-1], now_ns, SchedulingOptions())
        decided = commit(states[-1], plan, now_ns)
        if not isinstance(decided, Conflict):
            take(decided)
    return events, states
