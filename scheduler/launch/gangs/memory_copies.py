"""Copies of gangs' state in the memory of their hosts: which agents have which, and what the next
attempt begins with.

Nothing of this is in the log: agents say it again to whoever leads. A job without `peers`, or of a
site that gives no memory to copies, has none.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from scheduler.launch.gangs.gang import LaunchedGang
from scheduler.v1 import agent_pb2

Version = tuple[int, int]  # attempt and step
NOTHING: Version = (0, 0)
_NONE: Mapping[Version, frozenset[int]] = {}


@dataclass(slots=True)
class GangCopies:
    """Copies of one job. `secret`: what agents prove to each other, of the present attempt.
    `needed`: copies of one step, counted by rank and host, that make it complete; `counts`: those
    that there are. `since_attempt`: in which the job got the ranks that it has. `complete`: the
    newest step of the present attempt that is complete. `sources`: where its ranks find copies of a
    step, and `start`: the step with which it begins; None until somebody has asked."""

    world_size: int
    since_attempt: int
    secret: bytes = b""
    needed: int = 0
    addresses: dict[str, str] = field(default_factory=dict)  # by host
    held: dict[str, Mapping[Version, frozenset[int]]] = field(default_factory=dict)  # by host
    counts: Counter[Version] = field(default_factory=Counter)
    complete: Version = NOTHING
    sources: tuple[Version, Mapping[int, str]] | None = None
    start: Version | None = None


class MemoryCopies:
    """`most_bytes`: that copies may take on a host; 0: the site keeps none."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._jobs: dict[str, GangCopies] = {}

    def begin(self, gang: LaunchedGang) -> None:
        """Know an attempt that is about to start."""
        if not self._are_kept(gang):
            self._jobs.pop(gang.uid, None)
            return
        job = self._jobs.get(gang.uid)
        if job is None or job.world_size != gang.world_size:
            job = self._jobs[gang.uid] = GangCopies(gang.world_size, gang.attempt)
        for host in [host for host in job.held if host not in gang.by_host]:
            self._replace(job, host, _NONE)
            del job.held[host], job.addresses[host]
        job.complete, job.secret = NOTHING, os.urandom(32)
        job.sources = job.start = None
        copies = zip(gang.hosts, gang.placed.job.present.copies, strict=True)
        job.needed = sum((1 + len(some)) * gang.ranks_of(host).ranks for host, some in copies)

    def leave(self, gang: LaunchedGang, after: LaunchedGang | None, *, is_over: bool) -> list[str]:
        """Return the hosts of an attempt on which copies are of no use any more, once it has left
        them. `after`: the attempt that its job has now, None: none. `is_over`: its job."""
        if is_over:
            self._jobs.pop(gang.uid, None)
        if not self._are_kept(gang) or (after is None and not is_over):
            return []
        return [host for host in gang.hosts if after is None or host not in after.by_host]

    def _are_kept(self, gang: LaunchedGang) -> bool:
        return bool(gang.placed.job.present.copies and self._most_bytes)

    def note(self, gang: LaunchedGang, host: str, word: agent_pb2.HeldCopies) -> int | None:
        """Note which copies a host has. Return the step of the present attempt of which all copies
        have come to be there by that, else None."""
        job = self._jobs.get(gang.uid)
        if job is None or host not in gang.by_host:
            return None
        job.addresses[host] = word.address
        self._replace(job, host, {(c.attempt, c.step): frozenset(c.ranks) for c in word.copies})
        newest = max((v for v, count in job.counts.items() if count >= job.needed), default=NOTHING)
        if newest <= job.complete or newest[0] != gang.attempt:
            return None
        job.complete = newest
        return newest[1]

    def terms(
        self, gang: LaunchedGang, host: str, saved_step: int, connected: Collection[str]
    ) -> agent_pb2.CopyTerms | None:
        """Return what a host is told before an attempt starts there; None: no copies are kept.
        `saved_step`: of the newest checkpoint in storage, behind which no copy is wanted."""
        job = self._jobs.get(gang.uid)
        if job is None:
            return None
        terms = agent_pb2.CopyTerms(secret=job.secret, most_bytes=self._most_bytes)
        terms.interval.FromSeconds(gang.placed.job.spec.checkpoint.peer_interval_s)
        if job.sources is None:
            job.sources = _sources(job, gang, saved_step, connected)
        version, sources = job.sources
        lacking = defaultdict[str, list[int]](list)
        here = job.held.get(host, _NONE).get(version, frozenset())
        for rank in _ranks(gang, host) if sources else ():
            if rank not in here:
                lacking[sources[rank]].append(rank)
        for address, ranks in lacking.items():
            copy = agent_pb2.HeldCopy(attempt=version[0], step=version[1], ranks=ranks)
            terms.wanted.add(address=address, copy=copy)
        return terms

    def start_of(self, gang: LaunchedGang, saved_step: int) -> Version:
        """Return the attempt and step of the copies that each rank of an attempt has on its own
        host, newer than what is in storage; NOTHING where they begin with that. All hosts of one
        attempt are told the same."""
        job = self._jobs.get(gang.uid)
        if job is None:
            return NOTHING
        if job.start is None:
            job.start = _common_version(job, gang, saved_step)
        return job.start

    def addresses(self, gang: LaunchedGang, host: str) -> list[str]:
        """Return HOST:PORT of the agents that keep copies of a host's ranks."""
        job = self._jobs.get(gang.uid)
        holders = [gang.hosts[node] for node in gang.copies(host)[0]]
        return [a for each in holders if job is not None and (a := job.addresses.get(each, ""))]

    @staticmethod
    def _replace(job: GangCopies, host: str, now: Mapping[Version, frozenset[int]]) -> None:
        for version, ranks in job.held.get(host, _NONE).items():
            job.counts[version] -= len(ranks)
        for version, ranks in now.items():
            job.counts[version] += len(ranks)
        job.counts = +job.counts
        job.held[host] = now


def _ranks(gang: LaunchedGang, host: str) -> range:
    ranks = gang.ranks_of(host)
    return range(ranks.first_rank, ranks.first_rank + ranks.ranks)


def _newer(job: GangCopies, gang: LaunchedGang, saved_step: int) -> list[Version]:
    """Return the steps that may be begun with, the newest first."""
    return sorted(
        (v for v in job.counts if job.since_attempt <= v[0] < gang.attempt and v[1] > saved_step),
        reverse=True,
    )


def _sources(
    job: GangCopies, gang: LaunchedGang, saved_step: int, connected: Collection[str]
) -> tuple[Version, Mapping[int, str]]:
    """Return the newest step of which hosts of the gang have a copy of each rank, and the address
    of one that has it."""
    for version in _newer(job, gang, saved_step):
        sources: dict[int, str] = {}
        for host in gang.hosts:
            if host in connected and job.addresses.get(host):
                for rank in job.held.get(host, _NONE).get(version, ()):
                    sources.setdefault(rank, job.addresses[host])
        if all(rank in sources for rank in range(gang.world_size)):
            return version, sources
    return NOTHING, {}


def _common_version(job: GangCopies, gang: LaunchedGang, saved_step: int) -> Version:
    def is_there(version: Version, host: str) -> bool:
        return job.held.get(host, _NONE).get(version, frozenset()).issuperset(_ranks(gang, host))

    versions = _newer(job, gang, saved_step)
    whole = (v for v in versions if all(is_there(v, host) for host in gang.hosts))
    return next(whole, NOTHING)
