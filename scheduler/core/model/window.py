"""Windows: hosts that are spoken for between two moments, known beforehand.

A maintenance window closes its hosts to every gang. A reservation holds them for a tenant
or for named jobs, and closes them to all others.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from functools import lru_cache
from typing import Final

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.model.lifecycle import WindowState

OF_OTHERS: Final = "a window held for others"

Shares = tuple[tuple[int, int], ...]
"""How many hosts of each kind, where windows tell them apart: (one of the kind, count)."""


class WindowKind(StrEnum):
    MAINTENANCE = "maintenance"
    RESERVATION = "reservation"


class Leave(StrEnum):
    """Fate of gangs that hold hosts of a window when it opens."""

    WAIT = "wait"  # they run to their end
    MOVE = "move"  # other hosts take over their blocks; where there are none, they run on
    REQUEUE = "requeue"  # the same; where there are none, the gang is requeued


@struct(frozen=True, slots=True)
class Window:
    """A maintenance window or a reservation of hosts or uplinks. Half-open: [start_ns, end_ns).

    `among`: hosts and domains by name or range, empty for the whole fabric. `count`: so many hosts
    of these, 0 for all. `hosts`: the hosts that admit chose. `tenant`, `jobs`: for whom a
    reservation is, with sub-tenants; jobs by name or pattern. `leave`: for gangs that are in the
    way when it opens. `links`: domains whose uplinks are under maintenance, and carry `share` of
    what they were built for meanwhile; 0: no gang may cross them.
    """

    name: str
    kind: WindowKind
    start_ns: int
    end_ns: int
    among: tuple[str, ...] = ()
    count: int = 0
    hosts: tuple[str, ...] = ()
    tenant: str = ""
    jobs: tuple[str, ...] = ()
    leave: Leave = Leave.WAIT
    reason: str = ""
    links: tuple[str, ...] = ()
    share: float = 0.0

    def named(self, tenants: Collection[str]) -> str:
        """Name the window for readers of these tenants: `window rack-12`. What is held for others
        is not named to them."""
        return f"window {self.name}" if self._concerns(tenants) else OF_OTHERS

    def titled(self, tenants: Collection[str]) -> str:
        """Name the window with its reason, for readers of these tenants: `window rack-12
        (firmware)`."""
        return self.title if self._concerns(tenants) else OF_OTHERS

    def _concerns(self, tenants: Collection[str]) -> bool:
        return not self.tenant or self.tenant in tenants

    @property
    def title(self) -> str:
        """Name of the window with its reason: `window rack-12 (firmware)`."""
        return f"window {self.name}" + (f" ({self.reason})" if self.reason else "")


@struct(frozen=True, slots=True)
class Booking:
    """A window in the state. `indices`: of its hosts. `since_ns`: of `state`. `create_ns`,
    `change_ns`: when it was first and last set. `sequence`: the version that made it."""

    window: Window
    indices: tuple[int, ...]
    state: WindowState
    since_ns: int
    create_ns: int = 0
    change_ns: int = 0
    sequence: int = 0

    @property
    def update_ns(self) -> int:
        """Time of the last change of the window, by an operator or by the clock."""
        return max(self.since_ns, self.change_ns)

    @property
    def hosts(self) -> HostSet:
        return _set_of(self.indices)

    @property
    def is_closing(self) -> bool:
        """Whether nobody may use its hosts now."""
        return self.state is WindowState.OPEN and self.window.kind is WindowKind.MAINTENANCE

    @property
    def is_clearing(self) -> bool:
        """Whether the window makes gangs leave its hosts, but for those that it is reserved for."""
        return self.state is WindowState.OPEN and self.window.leave is not Leave.WAIT

    def overlaps(self, start_ns: int, end_ns: int) -> bool:
        return start_ns < self.window.end_ns and self.window.start_ns < end_ns


@lru_cache(maxsize=1_024)
def _set_of(indices: tuple[int, ...]) -> HostSet:
    return hostset.of(indices)
