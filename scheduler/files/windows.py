"""The windows file: maintenance and reservations for dry runs and replays.

    windows:
      - name: firmware
        kind: maintenance
        hosts: [z0, "z1-r[000-011]"]
        start: 2026-11-21T06:00Z
        duration: 4h                  # or end: a time
        leave: requeue                # wait (default), move or requeue
        reason: BIOS 2.1
      - {name: optics, kind: maintenance, links: [z1], share: 14/16, start: +1d, duration: 2h}
      - {name: demo, kind: reservation, count: 48, hosts: [z2], tenant: t, start: +2h, end: +6h}

`+2h` counts from now, in a replay from the first submit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pydantic import Field

from muster.structs import struct
from placement import BadInput
from placement.fabric.tree import Fabric
from scheduler.core import Rejected, State, Tenants, admit, replay
from scheduler.core.model.commands import LoadTenants, SetWindow
from scheduler.core.model.events import FabricLoaded
from scheduler.core.model.window import Leave, Window, WindowKind
from scheduler.files.errors import InputError
from scheduler.files.job_keys import Count, Keys, Text, checked_keys
from scheduler.files.links.linksfile import parse_share
from scheduler.files.timeparse import parse_duration, parse_moment
from scheduler.files.yaml12 import Document, load

# Where a field of the core stands in the file.
_KEYS = {"end_time": "end", "start_time": "start", "host_count": "count", "link_share": "share"}


class _WindowKeys(Keys):
    name: Text
    kind: Text
    hosts: list[Text] = Field(default_factory=list)
    count: Count | None = None
    start: Text
    end: Text | None = None
    duration: Text | None = None
    tenant: Text | None = None
    jobs: list[Text] = Field(default_factory=list)
    leave: Text | None = None
    links: list[Text] = Field(default_factory=list)
    share: Any = None
    reason: Text | None = None


class _FileKeys(Keys):
    windows: list[_WindowKeys]


@struct(frozen=True, slots=True)
class WindowsFile:
    """Windows of a file. Their times may be relative to a moment."""

    document: Document
    entries: tuple[_WindowKeys, ...]

    def windows(self, now_ns: int) -> tuple[Window, ...]:
        """Return the windows; `+2h` counts from `now_ns`. Raises: InputError with every fault
        found."""
        windows: list[Window] = []
        wrong: list[tuple[str, str]] = []
        for at, entry in enumerate(self.entries):
            try:
                windows.append(_window(entry, now_ns))
            except BadInput as error:
                wrong.append((f"windows.{at}.{error.field}", error.message))
        if wrong:
            raise self.document.error(*wrong)
        return tuple(windows)

    def booked(
        self, fabric: Fabric, tenants: Tenants | None, now_ns: int
    ) -> tuple[State, tuple[Window, ...]]:
        """Return an empty cluster with these windows, and the windows with their hosts.

        Raises: InputError naming the line when the cluster cannot have one of them.
        """
        state = replay([FabricLoaded(now_ns, fabric.spec)])
        if tenants is not None:
            answer = admit(state, LoadTenants(tenants), now_ns)
            if not isinstance(answer, Rejected):
                state = replay(answer, state)
        for at, window in enumerate(self.windows(now_ns)):
            answer = admit(state, SetWindow(window), now_ns)
            if isinstance(answer, Rejected):
                wrong = [(each.field, each.message) for each in answer.violations]
                raise self.refused(at, answer.message, wrong)
            state = replay(answer, state)
        return state, tuple(booking.window for booking in state.windows.values())

    def refused(self, at: int, message: str, violations: Iterable[tuple[str, str]]) -> InputError:
        """Return the error why a cluster cannot have a window of the file, with its line.
        `violations`: fields of the core and what is wrong with each; without any, `message` is of
        the whole window."""
        problems = [(f"windows.{at}.{_key(field)}", text) for field, text in violations]
        return self.document.error(*(problems or [(f"windows.{at}", message)]))


def load_windows(path: str) -> WindowsFile:
    """Load a file of windows. Raises: InputError with every fault found, each with its line."""
    document = load(path)
    keys = checked_keys(_FileKeys, document)
    wrong = list(_faults(keys.windows))
    if wrong:
        raise document.error(*wrong)
    return WindowsFile(document, tuple(keys.windows))


def _faults(entries: Sequence[_WindowKeys]) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each fault between keys."""
    seen: set[str] = set()
    for at, entry in enumerate(entries):
        if entry.name in seen:
            yield f"windows.{at}.name", f"window {entry.name} is given twice"
        seen.add(entry.name)
        if (entry.end is None) == (entry.duration is None):
            yield f"windows.{at}", "give either end or duration"


def _window(entry: _WindowKeys, now_ns: int) -> Window:
    start_ns = _read("start", parse_moment, entry.start, now_ns)
    if entry.end is not None:
        end_ns = _read("end", parse_moment, entry.end, now_ns)
    else:
        end_ns = start_ns + _read("duration", parse_duration, entry.duration or "")
    return Window(
        entry.name,
        _choice("kind", WindowKind, entry.kind),
        start_ns,
        end_ns,
        tuple(entry.hosts),
        entry.count or 0,
        (),
        entry.tenant or "",
        tuple(entry.jobs),
        _choice("leave", Leave, entry.leave or Leave.WAIT),
        entry.reason or "",
        tuple(entry.links),
        parse_share(entry.share, "share") if entry.share is not None else 0.0,
    )


def _read(field: str, parse: Any, *values: Any) -> int:
    try:
        value: int = parse(*values)
    except BadInput as error:
        raise BadInput(field, error.message) from None
    return value


def _choice(field: str, members: Any, value: str) -> Any:
    if value not in list(members):
        known = ", ".join(members)
        raise BadInput(field, f"must be one of {known}, not {value!r}")
    return members(value)


def _key(field: str) -> str:
    """A field of the core, such as `end_time`, as the file has it."""
    first, *rest = field.split(".")
    return ".".join([_KEYS.get(first, first), *rest])
