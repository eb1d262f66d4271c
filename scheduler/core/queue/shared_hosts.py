"""Hosts that jobs share: which of them a job that takes a part of one joins.

The fullest host with room is joined first, so that whole hosts stay free for gangs. Sharing a host
takes none from anybody, but keeps it from being whole for as long as the last job on it runs.
"""

from __future__ import annotations

from placement import choose_gpus
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.job import Job
from scheduler.core.model.state import State


class SharedHosts:
    """The shared hosts of one decision. Mutable: each start on a part of a host is entered."""

    def __init__(self, state: State, outlook: Outlook) -> None:
        self._fabric, self._outlook = state.built_fabric, outlook
        self._taken = {host: set(state.gpus_taken(host)) for host in state.index.shared}
        self._by_room: dict[int, HostSet] = {}  # by how many GPUs are free
        out = state.index.out_of_service
        for host in self._taken:
            if not hostset.has(out, host):
                self._enter(host)
        self._until_ns: dict[int, int] = {}

    def with_room(self, gpus: int) -> HostSet:
        """Return the shared hosts with so many GPUs free."""
        reach = 0
        for room, hosts in self._by_room.items():
            reach |= hosts if room >= gpus else 0
        return reach

    def until_ns(self, host: int) -> int:
        """Return when the last job that shares this host is expected to end."""
        if host not in self._until_ns:
            self._until_ns[host] = self._outlook.shared_until_ns(host)
        return self._until_ns[host]

    def fullest_first(self, job: Job, hosts: HostSet) -> list[int]:
        """The `hosts` with room for `job`, fullest first."""
        rooms = sorted(room for room in self._by_room if room >= job.part_gpus)
        return [h for room in rooms for h in hostset.members(self._by_room[room] & hosts)]

    def gpus_for(self, job: Job, host: int) -> tuple[int, ...]:
        """The GPUs that `job` takes of this host, which may be free as a whole."""
        taken = self._taken.get(host, set())
        return choose_gpus(self._fabric, host, taken, job.part_gpus) or ()

    def record_allocation(self, host: int, gpus: tuple[int, ...], end_ns: int) -> None:
        """Record that a job starts on these GPUs."""
        if host in self._taken:
            self._by_room[self._room(host)] &= ~(1 << host)
        self._taken.setdefault(host, set()).update(gpus)
        self._enter(host)
        self._until_ns[host] = max(end_ns, self.until_ns(host))

    def _enter(self, host: int) -> None:
        self._by_room[self._room(host)] = self._by_room.get(self._room(host), 0) | 1 << host

    def _room(self, host: int) -> int:
        return int(self._fabric.by_host.gpus[host]) - len(self._taken[host])
