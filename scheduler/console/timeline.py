"""A log as the map saw it, step by step: what the page *Time* moves through.

    u32 length of the JSON, the JSON: when it begins and ends, marks, and a strip of samples
    then frames, in order of time:
    u32 length, f64 seconds, u32 1: a whole picture, 0: what changed, the frame (cluster_map.py)

Frames are those of the live map, so that the page paints them by the same code. A whole picture
stands at the begin and after every `_KEY_EVERY` others, so a seek reads few frames. Numbers are
little-endian; seconds are those of the log's clock, which in a replay is that of its trace.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from placement.fabric import hostset
from scheduler.console.cluster_map import ClusterMap, HostColumns
from scheduler.core import State
from scheduler.core.fold.apply import apply
from scheduler.core.model.events import Event
from scheduler.core.names import short_name
from scheduler.identity import Caller, Role
from scheduler.observe.incidents import Incident, incident_of

MOST_FRAMES: Final = 20_000  # moments; more of them are taken together
MOST_MARKS: Final = 5_000
_KEY_EVERY: Final = 200
_MOST_SAMPLES: Final = 1_000
_SECOND_NS: Final = 10**9


def timeline(
    state: State,
    events: Sequence[Event],
    tenant: str = "",
    begin_ns: int = 0,
    most_frames: int = MOST_FRAMES,
) -> bytes:
    """Pack the changes of `state` by `events` for a caller of `tenant`, "" for all. `begin_ns`: of
    the first frame. Cost: some 0.1 s for 1,000 events of 3,072 hosts."""
    made = _Timeline(tenant)
    first_ns = max(begin_ns, events[0].time_ns if events else 0)
    for at_ns, group in groupby(events, key=_moments(events, first_ns, most_frames)):
        for event in group:
            state = apply(state, event)
            if at_ns >= begin_ns:
                made.mark(state, event)
        if at_ns >= first_ns:
            made.step(state, at_ns)
    if not made.frames and state.fabric is not None:
        made.step(state, max(first_ns, state.seen_ns))
    return made.written()


def _moments(events: Sequence[Event], first_ns: int, most: int) -> Any:
    """By which events are taken together: their time, or the end of a span of it."""
    times = sorted({event.time_ns for event in events if event.time_ns >= first_ns})
    if len(times) <= most:
        return lambda event: event.time_ns
    step_ns = (times[-1] - times[0]) // most + 1
    return lambda event: min(
        times[-1], times[0] + -((times[0] - event.time_ns) // step_ns) * step_ns
    )


class _Timeline:
    def __init__(self, tenant: str) -> None:
        self._tenant = tenant
        self._who = Caller("", Role.VIEWER, tenant)
        self._columns = HostColumns()
        self._map: ClusterMap | None = None
        self._since_key = 0
        self.frames: list[tuple[float, bool, bytes]] = []
        self._marks: list[dict[str, Any]] = []
        self._samples: list[tuple[float, int, int, int]] = []
        self._end_s = 0.0

    def step(self, state: State, at_ns: int) -> None:
        """Add a frame of the map at that time."""
        if state.fabric is None:
            return
        at_s = at_ns / _SECOND_NS
        self._end_s = at_s
        out = hostset.members(state.index.out_of_service)
        waiting = len(state.index.queue) + len(state.index.deferred)
        self._samples.append((at_s, waiting, state.index.held.bit_count(), sum(1 for _ in out)))
        if self._map is None:
            self._map = ClusterMap(self._tenant, self._columns, state)
            self._add(at_s, self._map.snapshot(), is_whole=True)
            return
        delta = self._map.update(state)
        if delta is None:
            self._add(at_s, self._map.snapshot(), is_whole=True)
        elif _says_something(delta):
            self._add(at_s, delta, is_whole=False)
            if self._since_key >= _KEY_EVERY:
                self._add(at_s, self._map.snapshot(with_fabric=False), is_whole=True)

    def _add(self, at_s: float, frame: bytes, *, is_whole: bool) -> None:
        self._since_key = 0 if is_whole else self._since_key + 1
        self.frames.append((at_s, is_whole, frame))

    def mark(self, state: State, event: Event) -> None:
        """Keep the incident of an event, if there is one."""
        incident = incident_of(state.version, event)
        if incident is not None and self._is_seen(state, incident):
            is_whole = not self._tenant  # a sentence may name a job of somebody else
            self._marks.append(
                {
                    "at": incident.time_ns / _SECOND_NS,
                    "kind": incident.kind.value,
                    "subject": short_name(incident.subject),
                    "detail": incident.detail if is_whole else "",
                }
            )

    def _is_seen(self, state: State, incident: Incident) -> bool:
        own = self._who.own_tenants(state.tenants)
        if own is None or not incident.job:
            return True
        job = state.find(incident.job)
        return job is not None and job.tenant in own

    def written(self) -> bytes:
        thinned = -(-len(self._samples) // _MOST_SAMPLES) or 1
        head = {
            "begin": self.frames[0][0] if self.frames else 0.0,
            "end": self._end_s,
            "marks": self._marks[-MOST_MARKS:],
            "droppedMarks": max(0, len(self._marks) - MOST_MARKS),
            "samples": self._samples[::thinned],
        }
        return b"".join(_parts(head, self.frames))


def _parts(head: dict[str, Any], frames: list[tuple[float, bool, bytes]]) -> Iterator[bytes]:
    content = json.dumps(head, separators=(",", ":")).encode()
    yield struct.pack("<I", len(content))
    yield content
    for at_s, is_whole, frame in frames:
        yield struct.pack("<IdI", len(frame), at_s, is_whole)
        yield frame


def _says_something(delta: bytes) -> bool:
    length, hosts = struct.unpack_from("<II", delta)
    head = json.loads(delta[8 : 8 + length])
    return bool(hosts or head.get("jobs") or head.get("gone"))
