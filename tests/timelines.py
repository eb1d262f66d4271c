"""Timelines of the console, made of random acts and read as its page reads them."""

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


class MapView:
    """What a page knows of the cluster, from frames of its map alone. `jobs`: by slot; `slots`,
    `blocks`, `states`: of every host; `text`: of all frames, `kinds`: theirs."""

    def __init__(self) -> None:
        self.version, self.text = -1, ""
        self.hosts: list[str] = []
        self.jobs: dict[int, dict[str, Any]] = {}
        self.kinds: list[str] = []
        self.slots = self.blocks = self.states = np.zeros(0)

    def take(self, frame: bytes) -> None:
        length, count = struct.unpack_from("<II", frame)
        content, place = frame[8 : 8 + length].decode(), 8 + length
        head = json.loads(content)
        is_whole = head["kind"] == "snapshot"
        self.version, self.text = head["version"], self.text + content
        self.kinds.append(head["kind"])
        columns = []
        for kind in ("<u4", "<u4", "<i4", "u1")[is_whole:]:
            columns.append(np.frombuffer(frame, kind, count, place))
            place += columns[-1].nbytes
        assert place == len(frame)
        if is_whole:
            self.jobs = {}
            self.hosts = head.get("fabric", {}).get("hosts", self.hosts)
            self.slots, self.blocks, self.states = (column.copy() for column in columns)
        else:
            for slot in head.get("gone", ()):
                del self.jobs[slot]
            hosts, *changed = columns
            for column, values in zip((self.slots, self.blocks, self.states), changed, strict=True):
                column[hosts] = values
        self.jobs |= {job["slot"]: job for job in head.get("jobs", ())}

    def state(self, host: int) -> str:
        return STATES[self.states[host]].value

    def of(self, name: str) -> list[int]:
        """The hosts of a job, by block."""
        slot = next(s for s, job in self.jobs.items() if job["shortName"] == name)
        held = [(self.blocks[at], at) for at, its in enumerate(self.slots) if its == slot]
        return [at for block, at in sorted(held) if block >= 0]


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
        self._map = MapView()

    def seek(self, at_s: float) -> Shown:
        """From the last whole picture on."""
        past = [frame for frame in self.frames if frame[0] <= at_s]
        begin = max(number for number, frame in enumerate(past) if frame[1])
        for _, _, frame in past[begin:]:
            self._map.take(frame)
        return self

    @property
    def text(self) -> list[tuple[str, int, int]]:
        """Job, block and state of each host."""
        names = {0: "", 1: "?"} | {slot: job["name"] for slot, job in self._map.jobs.items()}
        columns = (self._map.slots, self._map.blocks, self._map.states)
        return [
            (names[slot], int(block), int(state))
            for slot, block, state in zip(*columns, strict=True)
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
