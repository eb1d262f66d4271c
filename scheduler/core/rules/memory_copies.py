"""Copies of a gang's state in the memory of its hosts: who has them, what a swap loads, and what
their renewals take of uplinks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite

from placement.fabric.tree import Uplink
from placement.objective.step_time import step_bound
from scheduler.core.model.events import GangSwapped, HostSwap
from scheduler.core.model.job import Job
from scheduler.core.model.lifecycle import RUNS, JobState
from scheduler.core.model.plan import Move, Swap
from scheduler.core.model.state import State
from scheduler.core.policies.job_terms import Holders
from scheduler.core.policies.storage_use import sizes_of
from scheduler.core.rules.peer_copies import (
    choose_holders,
    mend_holders,
    renewal_by_uplink,
    restore_source,
)


def placed(state: State, job: Job, hosts: Sequence[int]) -> Holders:
    """Choose holders of the copies of a gang on these hosts; none when it asks for none."""
    peers = job.spec.checkpoint.peers
    return choose_holders(state.loaded_fabric, job.request, hosts, peers) if peers else ()


def swapped(state: State, job: Job, action: Swap, hosts: Sequence[int], now_ns: int) -> GangSwapped:
    """Return the swap as a fact: from whose memory each joining host loads its state, and who has
    whose copy from here on."""
    names, loads = state.loaded_fabric.hosts, _sources(state, job, action.moves)
    swaps = tuple(
        HostSwap(m.block, names[m.left], names[m.joined], source)
        for m, source in zip(action.moves, loads, strict=True)
    )
    copies = _holders_after_moves(state, job, hosts, (m.block for m in action.moves))
    step = None if job.part_gpus else step_bound(state.loaded_fabric, job.request, hosts)
    return GangSwapped(
        now_ns,
        job.name,
        job.attempt + 1,
        swaps,
        action.cuts,
        action.restart_options,
        copies,
        step_s=step.seconds if step else None,
    )


def renewal_shares(state: State) -> dict[Uplink, float]:
    """Return for each uplink that is up the part of the time for which running gangs renew copies
    over it. Gangs without a model are left out: the size of their state is not known."""
    shares: dict[Uplink, float] = {}
    fabric = state.loaded_fabric
    for job in state.in_state(JobState.RUNNING):
        copies = job.present.copies
        if not copies or (sizes := sizes_of(fabric, job.request)) is None:
            continue
        interval_s = job.spec.checkpoint.peer_interval_s
        loads = renewal_by_uplink(fabric, job.hosts, copies, sizes)
        for uplink, (_, seconds) in loads.items():
            if isfinite(seconds):
                shares[uplink] = shares.get(uplink, 0.0) + seconds / interval_s
    return shares


def _holders_after_moves(
    state: State, job: Job, hosts: Sequence[int], blocks: Iterable[int]
) -> Holders:
    """Holders once these blocks are on other hosts; empty: as it was."""
    if not job.present.copies:
        return ()
    peers, fabric = job.spec.checkpoint.peers, state.loaded_fabric
    holders = mend_holders(fabric, job.request, hosts, peers, job.present.copies, blocks)
    return () if holders == job.present.copies else holders


def _sources(state: State, job: Job, moves: Sequence[Move]) -> tuple[str, ...]:
    """For each move: the host from whose memory the joining one loads; empty: from storage.

    A host that is only left, not lost, hands its state over itself. When one block has no
    copy left, the whole gang goes back to storage.
    """
    storage = ("",) * len(moves)
    if not job.present.copies:
        return storage
    names = state.loaded_fabric.hosts
    lost = {b for b, h in enumerate(job.hosts) if state.host(h).state not in RUNS}
    sources = []
    for move in moves:
        holder = (
            restore_source(move.block, job.present.copies, lost)
            if move.block in lost
            else move.block
        )
        if holder is None:
            return storage
        sources.append(names[job.hosts[holder]])
    return tuple(sources)
