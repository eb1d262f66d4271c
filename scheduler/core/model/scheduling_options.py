"""How the queue is served, and how long jobs are taken to run."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from muster.structs import struct
from placement.workload.request import Limits as PlaceLimits
from scheduler.core.model.job import SECOND_NS, Job

MINUTE_NS = 60 * SECOND_NS


class Overrun(StrEnum):
    """Fate of a gang that has run as long as its time limit."""

    EXTEND = "extend"  # it runs on
    REQUEUE = "requeue"  # it waits in the queue, and goes on from its checkpoint
    KILL = "kill"  # its job has failed


@struct(frozen=True, slots=True)
class SchedulingOptions:
    """Options of decisions. `policy`: the name of a queue policy (core.queue.policies).
    `assumed_limit_s` stands in for the time limit of jobs that state none.

    `most_reservations`: under conservative, jobs from the head of the queue that get
    one; those behind them wait until they are among these; 0: all. `batch_hosts`: a decision that
    has started gangs on so many hosts ends, and the next one goes on: they begin while
    the rest is still being placed. `resize_every_s`: an elastic gang grows no sooner after
    its last start, swap or resize, `least_gain` percent of its replicas at a time or to its
    largest size. `neighbours`: jobs that know their step start beside the traffic of gangs that
    run. `slow_percent`: a gang is slow when links make its step so much longer.
    `overrun`: of gangs that reach the time limit that they state. `most_slips`: once gangs that
    outran their limits have put off the reservation of the first that waits so often, nobody
    passes it by a time limit any more; 0: however often.
    """

    policy: str = "production"
    place: PlaceLimits = field(default_factory=PlaceLimits)
    assumed_limit_s: int = 24 * 3600
    most_reservations: int = 500
    batch_hosts: int = 128
    resize_every_s: int = 1_800
    least_gain: int = 10
    slow_percent: int = 5
    overrun: Overrun = Overrun.EXTEND
    most_slips: int = 1
    neighbours: bool = True


def time_limit_ns(job: Job, options: SchedulingOptions) -> int:
    """The job's own limit, or the assumed one."""
    stated_ns = job.limit_ns
    return job.lasting(options.assumed_limit_s) if stated_ns is None else stated_ns


def expected_end_ns(job: Job, now_ns: int, options: SchedulingOptions) -> int:
    """Return when a running job is expected to end; always after `now_ns`.

    Limits are not enforced. A job that has outrun its own is given a minute more, then two, four,
    ...: it is taken to need at most as long again as it is late already. Source: corrections by
    growing increments, Tsafrir, Etsion and Feitelson (TPDS 2007).
    """
    return later_ns(job.present.start_ns + time_limit_ns(job, options), now_ns)


def later_ns(end_ns: int, now_ns: int) -> int:
    """Return `end_ns`, or the next moment at which a gang that has outrun it is taken to end."""
    if end_ns > now_ns:
        return end_ns
    minutes_late = (now_ns - end_ns) // MINUTE_NS
    return end_ns + (MINUTE_NS << minutes_late.bit_length())
