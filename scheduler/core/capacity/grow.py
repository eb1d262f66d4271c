"""Elastic gangs that run below their largest size take hosts that nobody else has a use for.

A gang grows only in a decision in which nothing starts, so every waiting job has been
asked before; never onto hosts that a waiting job is foreseen to start on before the gang
would give them back; when it has just saved its state, as far as the costs of an
interruption say; and only where that pays: it is done sooner with the replicas that join,
the restart included. Replicas that run already stay on their hosts.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from placement import NEW, Hint, carried, has_room, on_hosts, place, swapped_near
from placement.fabric import hostset
from placement.fabric.constraints import gpus_wanted
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric
from placement.workload.request import Placement
from scheduler.core.model.job import SECOND_NS, Job
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.plan import Resize
from scheduler.core.model.scheduling_options import (
    SchedulingOptions,
    expected_end_ns,
    time_limit_ns,
)
from scheduler.core.model.state import State
from scheduler.core.policies.costs import Costs
from scheduler.core.rules.job_size import keeps_other_roles, may_keep_other_roles
from scheduler.core.wording import hosts_text

STAY = 1e9  # a slack so large that no cut is a reason to move
JUST_SAVED_NS = 60 * SECOND_NS  # a checkpoint so young is no reason to wait for the next


class GrowthRoom(Protocol):
    """Hosts that are left once every waiting job has had its turn."""

    free: HostSet

    def spare_room(self, job: Job, end_ns: int) -> tuple[HostSet, int]: ...

    def record_growth(self, job: Job, more: HostSet, end_ns: int) -> None: ...


def growths(
    state: State, now_ns: int, options: SchedulingOptions, room: GrowthRoom
) -> tuple[tuple[Resize, ...], int | None]:
    """Return the gangs that grow now, most important first, and when to look again for others.

    Cost: O(gangs), and one `place` for each that grows.
    """
    costs = state.tenants.preemption.costs
    resizes: list[Resize] = []
    later: list[int] = []
    more_hosts = 0
    for job in sorted(_growable(state), key=lambda j: j.order) if room.free else ():
        if _largest(state, job, room.free, room.free.bit_count()) is None:
            continue
        at_ns = due_ns(job, now_ns, options, costs)
        if at_ns > now_ns:
            later.append(at_ns)
            continue
        resize = _grown(state, job, now_ns, options, room)
        if resize is not None:
            resizes.append(resize)
            more_hosts += len(resize.placement.hosts) - len(job.hosts)
        if more_hosts >= options.batch_hosts or not room.free:
            break
    return tuple(resizes), min(later, default=None)


def _growable(state: State) -> list[Job]:
    """Gangs that run whole, below their largest size."""
    special = map(state.jobs.__getitem__, state.index.special)
    return [
        job
        for job in special
        if job.state is JobState.RUNNING
        and is_smaller(job)
        and not job.allocation & state.index.out_of_service
    ]


def _grown(
    state: State, job: Job, now_ns: int, options: SchedulingOptions, room: GrowthRoom
) -> Resize | None:
    fabric, held = state.loaded_fabric, job.allocation
    bound = room.free.bit_count()
    hosts = room.free
    while (size := _largest(state, job, hosts, bound)) is not None:
        if not pays(state, job, size.dp, now_ns, options):
            return None
        end_ns = now_ns + time_limit_ns(size, options)
        hosts, bound = room.spare_room(job, end_ns)
        if lacking_hosts(size, job) > bound or not has_room(fabric, hosts | held, size.request):
            continue
        old = _where_it_is(fabric, job, size.dp)
        answer = place_resized(state, job, size, old, hosts, bound, options)
        if answer is None:
            return None
        more = answer.allocation & ~held
        room.record_growth(size, more, end_ns)
        reason = f"grew from dp {job.dp:,}: {hosts_text(more.bit_count())} that no job waited for"
        return Resize(job.name, size.dp, job.hosts, answer, reason, end_ns)
    return None


def place_resized(
    state: State,
    job: Job,
    size: Job,
    old: tuple[int, ...],
    more: HostSet,
    most: int,
    options: SchedulingOptions,
) -> Placement | None:
    """Return where the gang lies at another size, on its own hosts and at most `most` of `more`;
    None where it fits nowhere. `old`: the present host of each block, or NEW.

    Old blocks stay, however much less would be cut elsewhere; but where nothing at all would be
    cut, all may go, except those of roles that can run on.
    """
    fabric, held = state.loaded_fabric, job.allocation & ~state.index.out_of_service
    room, hint = more | held, Hint(old, slack=STAY)
    most_spares = held.bit_count() + most - size.gang_hosts
    answer = place(fabric, room, size.request, options.place, hint, most_spares=most_spares)
    if not isinstance(answer, Placement):
        return None
    if not may_keep_other_roles(job, size) or keeps_other_roles(job, size, answer.hosts):
        return answer
    hosts = swapped_near(fabric, size.request, room, hint)
    if hosts is None:
        return answer
    return on_hosts(fabric, size.request, hosts, held & ~hostset.of(hosts)) or answer


def _where_it_is(fabric: Fabric, job: Job, dp: int) -> tuple[int, ...]:
    """Return the present host of each block of the gang with `dp` replicas, or NEW."""
    kept = [*range(job.dp), *[NEW] * (dp - job.dp)]
    return carried(job.request, gpus_wanted(fabric, job.request.where), job.hosts, kept)


def _largest(state: State, job: Job, hosts: HostSet, bound: int) -> Job | None:
    """The largest size above the present one on at most `bound` more hosts, of `hosts`."""
    fabric, held = state.loaded_fabric, job.allocation
    larger = job.sizes[bisect_left(job.sizes, job.dp) + 1 :]

    def is_too_large(dp: int) -> bool:
        size = job.at(dp)
        return lacking_hosts(size, job) > bound or not has_room(fabric, hosts | held, size.request)

    at = bisect_left(larger, True, key=is_too_large)
    return job.at(larger[at - 1]) if at else None


def is_smaller(job: Job) -> bool:
    """Return whether the gang is smaller than its largest size, so that it may grow."""
    return bool(job.hosts and job.sizes) and job.dp < job.sizes[-1]


def size_text(job: Job, options: SchedulingOptions) -> str:
    """Describe the size of an elastic gang: `at dp 96 of 128; grows when 64 hosts more are free
    that no job waits for`."""
    larger = (dp for dp in job.sizes if dp > job.dp and _is_much(job, dp, options))
    lacking = lacking_hosts(job.at(next(larger)), job)
    are = "is" if lacking == 1 else "are"
    more = f"{hosts_text(lacking)} more {are} free that no job waits for"
    return f"{dp_text(job)}; grows when {more}"


def dp_text(job: Job) -> str:
    return f"at dp {job.dp:,} of {job.spec.request.replicas:,}"


def _is_much(job: Job, dp: int, options: SchedulingOptions) -> bool:
    """Whether `dp` replicas are enough more to be worth a restart."""
    return dp == job.sizes[-1] or (dp - job.dp) * 100 >= job.dp * options.least_gain


def lacking_hosts(size: Job, job: Job) -> int:
    """Hosts that the job needs for `size` beyond those that it holds."""
    return max(0, size.needed - len(job.hosts) - len(job.spares))


def due_ns(job: Job, now_ns: int, options: SchedulingOptions, costs: Costs) -> int:
    """Return when the gang may grow: after its next checkpoint, or the one just made, and so long
    after its last start."""
    rested_ns = job.present.start_ns + options.resize_every_s * SECOND_NS
    if not job.costs(costs).checkpoint_s:
        return rested_ns
    return job.next_save_ns(max(rested_ns, now_ns - JUST_SAVED_NS) - 1, costs)


def pays(state: State, job: Job, dp: int, now_ns: int, options: SchedulingOptions) -> bool:
    """Return whether the gang ends sooner with `dp` replicas, and gains enough replicas. A rest of
    time T at the present size becomes T x now / then at the other, and the restart and the work
    since the last checkpoint are added."""
    if not _is_much(job, dp, options):
        return False
    left_ns = expected_end_ns(job, now_ns, options) - now_ns
    lost_ns = job.loss_ns(now_ns, state.tenants.preemption.costs)
    return left_ns * (dp - job.dp) > lost_ns * dp
