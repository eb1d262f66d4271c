"""The timeline of a log shows at each time what the map would have shown then."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from scheduler.console.cluster_map import STATES
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


def test_many_moments_are_taken_together_and_the_last_is_right() -> None:
    events, states = history([("submit", n % 8, 1) for n in range(20)] + [("fail", 3, 1)])
    few = Shown(timeline(State.empty(), events, most_frames=4))
    assert len({at_s for at_s, _, _ in few.frames}) <= 6
    assert few.seek(few.head["end"]).text == meant(states[-1], "")


def test_marks_say_what_went_wrong_and_to_whom_that_is_said() -> None:
    acts = [("submit", 0, 1), ("submit", 1, 1), *(("fail", n, 1) for n in range(8))]
    events, _ = history(acts)
    every = Shown(timeline(State.empty(), events)).head["marks"]
    own = Shown(timeline(State.empty(), events, "a")).head["marks"]
    jobs = {mark["subject"] for mark in every if mark["kind"] != "host_failed"}
    assert {"j0", "j1"} <= jobs
    assert {mark["subject"] for mark in own if mark["kind"] != "host_failed"} == {"j0"}
    assert not any(mark["detail"] for mark in own)


def test_a_log_is_begun_where_it_is_asked_for() -> None:
    events, _ = history([("submit", 0, 10), ("fail", 7, 10)])
    shown = Shown(timeline(State.empty(), events, begin_ns=15 * SECOND_NS))
    assert shown.head["begin"] == 20
    assert STATES[shown.seek(20).text[7][2]].value == "failed"
