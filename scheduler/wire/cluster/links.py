"""Links between core values and messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.hostset import HostSet
from placement.fabric.links import uplink_of
from placement.fabric.tree import masks
from scheduler.core import Job, JobState, State
from scheduler.core.admission.etag import link_etag
from scheduler.core.model.lifecycle import LinkUse
from scheduler.core.rules.memory_copies import renewal_shares
from scheduler.core.rules.network.neighbours import loads, running
from scheduler.identity import redact_for_caller
from scheduler.v1 import link_pb2
from scheduler.wire.jobs import timestamp
from scheduler.wire.lists import filters
from scheduler.wire.names import job_resource
from scheduler.wire.specs import numbers

FILTERED = filters.fields_of(
    link_pb2.Link.DESCRIPTOR,
    "name tier share carried_share use detail reason windows",
)
_USES = numbers(link_pb2.LinkUse, "LINK_USE", LinkUse)
GBPS = 8 / 1e9  # of one byte a second


@struct(frozen=True, slots=True)
class LinkLoads:
    """The shares of the time in which running gangs use uplinks, by domain: for messages of steps,
    of narrow uplinks only, and for renewals of copies in memory."""

    steps: dict[str, float]
    renewals: dict[str, float]


IDLE = LinkLoads({}, {})


def link_loads(state: State) -> LinkLoads:
    """Return how busy running gangs keep uplinks."""
    fabric = state.loaded_fabric
    steps, renewals = (
        {fabric.tiers[depth].domains[at]: share for (depth, at), share in shares.items()}
        for shares in (loads(fabric, running(state)), renewal_shares(state))
    )
    return LinkLoads(steps, renewals)


def link_to_proto(
    state: State, name: str, is_seen: Callable[[Job], bool] | None, busy: LinkLoads = IDLE
) -> link_pb2.Link:
    """Convert an uplink. `is_seen`: tells of which jobs the caller may know; None: no matter which
    jobs cross it. Cost: with jobs O(gangs)."""
    fabric, record, shown = state.loaded_fabric, state.link(name), redact_for_caller(state)
    depth, number = uplink_of(fabric, name, "name")
    built = float(fabric.as_built.tiers[depth].uplink_bytes_per_s[number])
    now = float(fabric.tiers[depth].uplink_bytes_per_s[number])
    windows = [w for w, booking in state.windows.items() if name in booking.window.links]
    crossing = _crossing(state, masks(fabric, depth)[number]) if is_seen else ()
    return link_pb2.Link(
        name=name,
        tier=fabric.tiers[depth].name,
        share=record.share,
        detail=shown(record.detail, record.share_ns),
        report_time=timestamp(record.share_ns) if record.share_ns else None,
        use=_USES[record.use],
        reason=shown(record.reason, record.use_ns),
        use_time=timestamp(record.use_ns) if record.use_ns else None,
        windows=windows,
        carried_share=now / built,
        built_gbps=built * GBPS,
        crossed_by=[job_resource(job) for job in crossing if is_seen and is_seen(job)],
        version=state.version,
        etag=link_etag(name, record),
        busy_share=busy.steps.get(name, 0.0),
        renewal_share=busy.renewals.get(name, 0.0),
    )


def _crossing(state: State, inside: HostSet) -> Iterator[Job]:
    """Gangs with blocks on both sides, in order of start."""
    for job in state.in_state(JobState.RUNNING, JobState.INTERRUPTED):
        if job.allocation & inside and job.allocation & ~inside:
            gang = hostset.of(job.hosts)
            if gang & inside and gang & ~inside:
                yield job


def link_names(state: State, *, every: bool = False) -> list[str]:
    """Return the links that are not plainly up and open, or have windows; all links on request.
    Outermost tier first, in the order of the fabric."""
    fabric = state.loaded_fabric
    if every:
        return [name for tier in fabric.tiers for name in tier.domains]
    names = {*state.links, *(n for b in state.windows.values() for n in b.window.links)}
    return sorted(names, key=lambda name: uplink_of(fabric, name, "name"))
