"""The cluster as a map shows it, and what changed on it, in bytes.

A frame is one step of the map: JSON with what has names (the version, jobs, at first the fabric),
then one column after the other with a number of each host that changed. Frames are made once for
all who may see the same jobs. Of somebody else's gang a host says that it is held, nothing more.

    u32 length of the JSON, u32 hosts, the JSON, filled with spaces to a multiple of four bytes
    u32 number of each host          (a delta alone; a snapshot has all hosts, in their order)
    u32 slot of the job that holds it, 0 nobody, 1 a job that the reader may not see
    i32 block of the gang that it carries, -1 none: a spare, or not held
    u8  state, by its place in `states` of the snapshot

Numbers are little-endian. A job has its slot for as long as it holds hosts.
"""

from __future__ import annotations

import heapq
import json
import struct
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from placement.fabric import hostset
from placement.fabric.tree import Fabric, sizes_of
from placement.workload.parallelism import Parallelism
from placement.workload.roles import ranks_of_roles
from scheduler.core import HostState, Job, State
from scheduler.core.names import short_name
from scheduler.identity import Caller, Role
from scheduler.wire.names import job_resource

NOBODY, SOMEBODY, FIRST_SLOT = 0, 1, 2
STATES: Final = tuple(HostState)
_CODES: Final = {state: code for code, state in enumerate(STATES)}
_HEALTHY: Final = _CODES[HostState.HEALTHY]

Column = npt.NDArray[Any]


class HostColumns:
    """The state of every host, the same for all readers; computed anew only where it can have
    changed."""

    def __init__(self) -> None:
        self._of: tuple[Any, ...] = ()
        self._codes: Column = np.zeros(0, np.uint8)

    def codes(self, state: State) -> Column:
        """Return the state of each host as an index into `STATES`. Shape: (hosts,); not to be
        written to."""
        # The holder of a host decides whether it drains or is cordoned during maintenance.
        held = state.index.held if state.index.closed else 0
        of = (state.built_fabric, state.hosts, state.index.closed, held)
        if not self._of or any(a is not b for a, b in zip(of, self._of, strict=True)):
            self._codes, self._of = _state_codes(state), of
        return self._codes


def _state_codes(state: State) -> Column:
    codes = np.full(state.built_fabric.host_count, _HEALTHY, np.uint8)
    for index, host in state.hosts.items():
        codes[index] = _CODES[host.shown_state]
    if state.index.closed:
        running = {index for job in state.holding for index in job.hosts}
        for index in hostset.members(state.index.closed):
            codes[index] = _CODES[state.shown(index, index in running).state]
    return codes


class ClusterMap:
    """Map of the cluster for callers of one tenant, "" for all, as of the last `update`."""

    def __init__(self, tenant: str, columns: HostColumns, state: State) -> None:
        self._who = Caller("", Role.VIEWER, tenant)  # of whom the tenant alone counts here
        self._columns = columns
        self._restart(state)

    def _restart(self, state: State) -> None:
        """Forget everything: the hosts are others."""
        self.version = state.version
        self._fabric = state.built_fabric
        self._jobs: dict[str, tuple[Job, int, dict[str, Any]]] = {}  # by uid
        self._indices: dict[str, tuple[tuple[int, ...], Column]] = {}
        self._free: list[int] = []
        self._next = FIRST_SLOT
        self._follow_jobs(state)
        self._slots, self._blocks = self._slots_and_blocks(state)
        self._states = self._columns.codes(state)

    def update(self, state: State) -> bytes | None:
        """Take over a later state and return what changed; None where readers need a snapshot, for
        the fabric is another."""
        if state.built_fabric is not self._fabric:
            self._restart(state)
            return None
        self.version = state.version
        freed, changed = self._follow_jobs(state)
        slots, blocks = self._slots_and_blocks(state)
        states = self._columns.codes(state)
        differ = (slots != self._slots) | (blocks != self._blocks) | (states != self._states)
        hosts = np.flatnonzero(differ).astype("<u4")
        self._slots, self._blocks, self._states = slots, blocks, states
        head: dict[str, Any] = {"kind": "delta", "version": state.version}
        if freed:
            head["gone"] = freed
        if changed:
            head["jobs"] = changed
        return _frame(head, len(hosts), (hosts, slots[hosts], blocks[hosts], states[hosts]))

    def snapshot(self, *, with_fabric: bool = True) -> bytes:
        """Return the whole map for a new reader, or only the fabric."""
        head = {
            "kind": "snapshot",
            "version": self.version,
            "states": [each.value for each in STATES],
            **({"fabric": _fabric_of(self._fabric)} if with_fabric else {}),
            "jobs": [fields for _, _, fields in self._jobs.values()],
        }
        columns = (self._slots, self._blocks, self._states)
        return _frame(head, self._fabric.host_count, columns)

    def _follow_jobs(self, state: State) -> tuple[list[int], list[dict[str, Any]]]:
        """Slots that are free again, and jobs that are new or changed."""
        own = self._who.own_tenants(state.tenants)
        holding = {j.uid: j for j in state.holding if own is None or j.tenant in own}
        freed = []
        for uid in [uid for uid in self._jobs if uid not in holding]:
            _, slot, _ = self._jobs.pop(uid)
            heapq.heappush(self._free, slot)
            freed.append(slot)
        changed = []
        for uid, job in holding.items():
            known = self._jobs.get(uid)
            if known is not None and known[0] is job:
                continue
            slot = known[1] if known else self._new_slot()
            fields = _job_of(job, slot)
            if known is None or known[2] != fields:
                changed.append(fields)
            self._jobs[uid] = job, slot, fields
        return freed, changed

    def _new_slot(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._next += 1
        return self._next - 1

    def _slots_and_blocks(self, state: State) -> tuple[Column, Column]:
        """Slot and block of every host."""
        count = state.built_fabric.host_count
        slots, blocks = np.zeros(count, np.uint32), np.full(count, -1, np.int32)
        indices: dict[str, tuple[tuple[int, ...], Column]] = {}
        for job in state.holding:
            known = self._indices.get(job.uid)
            if known is None or known[0] is not job.hosts:
                known = job.hosts, np.array(job.hosts, np.intp)
            indices[job.uid] = known
            entry = self._jobs.get(job.uid)
            slot = SOMEBODY if entry is None else entry[1]
            slots[known[1]] = slot
            if job.spares:
                slots[list(job.spares)] = slot
            if entry is not None:
                blocks[known[1]] = np.arange(len(job.hosts))
        self._indices = indices
        return slots, blocks


def _frame(head: dict[str, Any], hosts: int, columns: Iterable[Column]) -> bytes:
    content = json.dumps(head, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 4)
    body = b"".join(each.astype(each.dtype.newbyteorder("<")).tobytes() for each in columns)
    return struct.pack("<II", len(content), hosts) + content + body


def _fabric_of(fabric: Fabric) -> dict[str, Any]:
    """Hosts of a domain follow one another, so a tier is told by the sizes of its domains."""
    gpus = fabric.by_host.gpus
    return {
        "name": fabric.name,
        "gpus": gpus.tolist() if fabric.is_mixed else fabric.gpus_per_host,
        "tiers": [
            {"name": tier.name, "domains": list(tier.domains), "sizes": sizes_of(tier).tolist()}
            for tier in fabric.tiers
        ],
        "hostTier": fabric.host_tier,
        "hosts": list(fabric.hosts),
    }


def _job_of(job: Job, slot: int) -> dict[str, Any]:
    request = job.request
    firsts = (ranks.start for ranks in ranks_of_roles(request))
    roles = [
        {"name": role.name, "first": first, "axes": _axes_of(role.request.parallelism)}
        for role, first in zip(request.roles, firsts, strict=True)
    ]
    return {
        "slot": slot,
        "name": job_resource(job),
        "shortName": short_name(job.name),
        "tenant": job.tenant,
        "state": job.state.value,
        "attempt": job.attempt,
        "hosts": len(job.hosts),
        "spares": len(job.spares),
        "axes": _axes_of(request.parallelism),
        **({"roles": roles} if roles else {}),
    }


def _axes_of(parallelism: Parallelism) -> list[list[Any]]:
    """The axes with their sizes, the fastest-varying in the rank number first."""
    return [[axis, parallelism.size(axis)] for axis in parallelism.axes]
