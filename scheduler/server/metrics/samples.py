"""The values of all metrics, from the state and from what was counted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from scheduler.access.auth_file.reading import load_auth
from scheduler.access.certificates import read_certificate
from scheduler.access.listener import Access
from scheduler.core import JobState, State
from scheduler.core.fold import goodput
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.job_account import shown
from scheduler.core.model.lifecycle import LIVE
from scheduler.core.model.records.goodput import PARTS
from scheduler.core.rules.network.gang_step import likely_step
from scheduler.eventlog.store import StoreError
from scheduler.eventlog.store.sqlite import SqliteStore
from scheduler.files.errors import InputError
from scheduler.observe import catalogue as c
from scheduler.observe import census
from scheduler.observe.catalogue import Metric
from scheduler.observe.census import Use
from scheduler.observe.counters import Histogram, Labels
from scheduler.observe.instruments import Instruments
from scheduler.observe.proof import gap_of
from scheduler.service.backend import RankAgents

Sample = tuple[Metric, Labels, float | Histogram]
Values = Mapping[Labels, Any]  # Counts or Histograms


def of_state(state: State, now_ns: int) -> Iterator[Sample]:
    """Yield gauges of one version of the state. `now_ns`: to tell for how long jobs have waited."""
    yield from _of_tenants(state, now_ns)
    yield from _of_domains(state)
    fabric, cuts = state.loaded_fabric, census.cuts(state)
    yield from ((c.CUT, (tier,), count) for tier, count in cuts.by_tier.items())
    yield from ((c.BOUND, (tier,), cuts.lower_bound) for tier in list(cuts.by_tier)[:1])
    yield from ((c.GANGS, (proof,), count) for proof, count in cuts.by_proof.items())
    yield from ((c.WITHHELD_HOSTS, key, count) for key, count in census.withheld(state).items())
    for (depth, number), share in fabric.links:
        yield c.LINK_SHARE, (fabric.tiers[depth].domains[number],), share
    spent = goodput.sum_accounts(state, now_ns)
    for part in PARTS:
        yield c.SPENT, (part,), getattr(spent, part) * fabric.gpus_per_host / SECOND_NS
    yield c.VERSION, (), state.version
    yield c.FABRIC, (fabric.name, fabric.digest), 1


def _of_tenants(state: State, now_ns: int) -> Iterator[Sample]:
    for tenant, queue in census.queues(state).items():
        for job_state in sorted(LIVE):
            yield c.JOBS, (tenant, job_state), queue.jobs[job_state]
        since_ns = queue.oldest.submit_ns if queue.oldest else now_ns
        yield c.OLDEST_WAIT, (tenant,), max(0, now_ns - since_ns) / SECOND_NS
        yield c.QUEUED_GPUS, (tenant,), queue.queued_gpus


def _of_domains(state: State) -> Iterator[Sample]:
    gpus = state.loaded_fabric.gpus_per_host
    for domain in census.domains(state):
        for host_state, count in domain.by_state.items():
            yield c.HOSTS, (domain.name, host_state), count
        for use, count in domain.gpus(gpus).items():
            yield c.GPUS, (domain.name, use), count
        yield c.SPARE_HOSTS, (domain.name,), domain.by_use[Use.SPARE]


def of_jobs(state: State, now_ns: int) -> Iterator[Sample]:
    """Yield two series for each live job, two and more for each running gang."""
    for job in state.jobs.values():
        account = shown(job, now_ns, state.tenants.preemption.costs)
        yield c.JOB_ETTR, (job.name,), account.ettr
        yield c.JOB_GOODPUT, (job.name,), account.share
    for job in state.in_state(JobState.RUNNING):
        yield from (
            (c.JOB_CUT, (job.name, cut.tier), cut.bytes_per_step) for cut in job.present.cuts
        )
        if (gap := gap_of(job)) is not None:
            yield c.JOB_GAP, (job.name,), gap


def of_steps(state: State, agents: RankAgents) -> Iterator[Sample]:
    """Sample measured and modelled steps of each running gang whose ranks report them."""
    for job in state.in_state(JobState.RUNNING):
        now = agents.progress(job.uid, job.attempt)
        if now is None or (step_s := now[0].step_s) is None:
            continue
        yield c.JOB_STEP, (job.name,), step_s
        if (likely := likely_step(state, job)) is not None:
            yield c.JOB_MODEL_STEP, (job.name,), likely.seconds
            yield c.JOB_SLOWER, (job.name,), step_s > likely.high_s


def of_events(instruments: Instruments) -> Iterator[Sample]:
    """Yield the counts of the fold over events."""
    tally = instruments.tally
    counts: dict[Metric, Values] = {
        c.EVENTS: tally.events,
        c.SUBMITTED: tally.submitted,
        c.ENDED: tally.ended,
        c.PLACEMENTS: tally.placements,
        c.RESIZES: tally.resizes,
        c.RESTARTS: tally.restarts,
        c.REQUEUES: tally.requeues,
        c.SWAPS: tally.swaps,
        c.SWAPPED: tally.swapped_hosts,
        c.FAILURES: tally.failures,
        c.REPAIRS: tally.repairs,
        c.NOTES: tally.notes,
        c.WAIT: tally.waits_s,
        c.GAP: tally.gaps,
    }
    for metric, values in counts.items():
        yield from _labelled(metric, values)


def of_work(instruments: Instruments) -> Iterator[Sample]:
    """Yield the measurements of writes, decisions and calls."""
    yield from _labelled(c.STAGES, instruments.stages_s)
    yield c.BATCHES, (), instruments.batches
    yield from _labelled(c.CONFLICTS, instruments.conflicts)
    yield from _labelled(c.CALLS, instruments.calls)
    yield from _labelled(c.CALL_SECONDS, instruments.calls_s)
    yield from _labelled(c.TASK_RESTARTS, instruments.beats.restarts)
    yield from _labelled(c.REFUSED_MESSAGES, instruments.beats.refused)
    yield from _labelled(c.CUT_OFF, instruments.beats.cut_off)


def of_credentials(access: Access, now: datetime) -> Iterator[Sample]:
    """Yield when the first certificate and the first token expire, without files that are
    unreadable, which the log names. Cost: reads the files."""
    with suppress(OSError, InputError):
        if access.tls is not None:
            paths = filter(None, (access.tls.certificate, access.tls.client_ca))
            first = min(read_certificate(Path(path)).expires for path in paths)
            yield c.EXPIRY, ("certificate",), (first - now).total_seconds()
    with suppress(OSError, InputError):
        tokens = load_auth(access.auth_file).tokens if access.auth_file else ()
        if ends := [token.expires for token in tokens if token.expires is not None]:
            yield c.EXPIRY, ("token",), (min(ends) - now).total_seconds()


def of_disk(store: SqliteStore) -> Iterator[Sample]:
    """Yield the sizes of a store's files and the room beside them; nothing when they cannot be
    read."""
    try:
        yield c.STORE, (), store.size_bytes()
        room = os.statvfs(store.path.parent)
        yield c.ROOM, (), room.f_bavail * room.f_frsize
        yield c.DISK_USED, (), store.disk_used()
    except (OSError, StoreError):
        return


def _labelled(metric: Metric, values: Values) -> Iterable[Sample]:
    """A copy first: the writer may add to them meanwhile."""
    return ((metric, labels, value) for labels, value in list(values.items()))
