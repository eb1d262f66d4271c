"""What must hold after every event and every plan of a cluster, whatever came before.

The promises are worked out here a second time, from the states and the plan alone.
"""

from collections import Counter

from placement.fabric import hostset
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.workload.request import Placement
from scheduler.core import (
    Conflict,
    HostState,
    JobState,
    Plan,
    SchedulingOptions,
    State,
    commit,
    replay,
)
from scheduler.core.capacity.outlook import Outlook
from scheduler.core.model.events import (
    Event,
    FabricChanged,
    GangResized,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobPreempted,
    JobRequeued,
    JobStarted,
    SparesChanged,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.plan import Reserve, Resize, Start, Swap
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.rules.calendar import Calendar
from scheduler.core.rules.crash_loop import avoided
from scheduler.core.tenancy.quota_check import Quotas
from tests.build import fabric, queue_order
from tests.derived import check_derived

FABRIC = fabric(zones=2, racks=2, hosts=2)
HOLDING = (JobState.RUNNING, JobState.INTERRUPTED)
GIVES_UP = (JobEnded, JobRequeued, JobPreempted, GangResized)


def check_state(state: State) -> None:
    """What holds after every event."""
    check_derived(state)
    jobs = state.jobs.values()
    assert all(job.name == name for name, job in state.jobs.items())
    # no host is held twice
    held = [host for job in jobs for host in (*job.hosts, *job.spares) if not job.part_gpus]
    assert len(held) == len(set(held))
    check_parts(state)
    # a gang is whole or absent; what runs runs on hosts that have not failed
    failed = {i for i, host in state.hosts.items() if host.state is HostState.FAILED}
    for job in jobs:
        assert len(job.hosts) == (job.gang_hosts if job.state in HOLDING else 0)
        assert job.hosts or not job.spares
        assert job.dp in (job.sizes or (job.spec.request.parallelism.dp,))
        assert job.state is not JobState.QUEUED or job.dp == min(job.sizes, default=job.dp)
        if job.state is JobState.RUNNING:
            assert not failed & {*job.hosts, *job.spares}
            assert job.present.cuts == cut(FABRIC, job.request, job.hosts)
            assert job.present.lower_bound <= job.present.cuts[0].bytes_per_step
        if job.state is JobState.INTERRUPTED:
            assert not failed & {*job.spares}
    check_deferred(state)
    # only a gang keeps a host draining
    for index, host in state.hosts.items():
        if host.state is HostState.DRAINING:
            assert any(index in job.hosts for job in jobs)


def check_parts(state: State) -> None:
    """No GPU of a shared host is held twice, and no gang is beside those who share it; what tenants
    hold is charged to them."""
    parts = [job for job in state.jobs.values() if job.part_gpus and job.state in HOLDING]
    gpus = [(job.hosts[0], gpu) for job in parts for gpu in job.present.gpus]
    assert len(gpus) == len(set(gpus))
    assert all(len(job.present.gpus) == job.part_gpus and not job.spares for job in parts)
    whole = {h for j in state.jobs.values() if not j.part_gpus for h in (*j.hosts, *j.spares)}
    assert not whole & set(state.index.shared)
    for tenant, account in state.accounts.items():
        mine = [job for job in state.jobs.values() if job.tenant == tenant]
        filled = -(-sum(len(job.present.gpus) for job in mine) // FABRIC.gpus_per_host)
        own = sum(len(j.hosts) + len(j.spares) for j in mine if not j.part_gpus)
        assert account.held == own + filled


def check_deferred(state: State) -> None:
    """Held jobs and those that wait for others are deferred, these for live ones; nothing is
    promised to them."""
    for name in state.index.queue:
        job = state.jobs[name]
        assert job.hold is None
        assert all(each.is_met for each in job.dependencies)
        assert job.eligible_ns >= job.spec.begin_ns
    assert not set(state.index.deferred) & set(state.reserved)
    assert state.index.dependants.keys() <= {job.uid for job in state.jobs.values()}


def check_event(state: State, event: Event) -> None:
    """Gangs start, and hosts join, on healthy hosts that nobody else holds."""
    if isinstance(event, JobStarted):
        taken = hostset.of(FABRIC.indices(event.hosts + event.spares))
        borrowed = hostset.of(FABRIC.indices(event.hosts)) & state.index.lent & ~state.index.held
        joined = 0
        if event.gpus:
            (host,) = hostset.members(taken)
            assert not set(event.gpus) & set(state.gpus_taken(host))
            joined = taken & hostset.of(state.index.shared) & ~state.index.out_of_service
        assert taken & ~(state.free | borrowed | joined) == 0
        assert state.jobs[event.name].is_preemptible or not borrowed
        assert len(event.hosts) == state.jobs[event.name].on(len(event.hosts)).gang_hosts
        required = state.jobs[event.name].spec.request.spares.required(len(event.hosts))
        assert len(event.spares) >= required
        assert event.attempt == state.jobs[event.name].attempt + 1
    if isinstance(event, JobStarted | GangSwapped | GangResized):
        check_avoids(state, event)
    if isinstance(event, SparesChanged):
        job = state.jobs[event.name]
        more = hostset.of(FABRIC.indices(event.spares)) & ~hostset.of(job.spares)
        assert not more & ~(state.free | hostset.of(job.present.lent) & ~state.index.held)
    if isinstance(event, GangResized):
        check_resize(state, event)
    if isinstance(event, GangSwapped):
        own = hostset.of(state.jobs[event.name].spares) & ~state.index.unhealthy
        joined = hostset.of(FABRIC.indices([s.joined for s in event.swaps]))
        assert joined & ~(state.free | own) == 0
        assert joined.bit_count() == len(event.swaps)


def check_avoids(state: State, event: JobStarted | GangSwapped | GangResized) -> None:
    """No gang runs again on the host that has just stopped it."""
    job = state.jobs[event.name]
    if isinstance(event, GangSwapped):
        names = {swap.block: swap.joined for swap in event.swaps}
        after = [FABRIC.index_by_name.get(names.get(b, ""), h) for b, h in enumerate(job.hosts)]
    else:
        after = list(FABRIC.indices(event.hosts))
    if job.state is not JobState.RUNNING:
        shut = avoided(job, state.tenants.restarts, event.time_ns)
        assert not hostset.of(after) & shut
    newest = max(job.strikes, key=lambda s: s.at_ns, default=None)
    is_new = newest is not None and event.time_ns - newest.at_ns < 600 * SECOND_NS
    if newest and is_new and job.state is not JobState.RUNNING:
        assert newest.host not in after


def check_resize(state: State, event: GangResized) -> None:
    """The gang has a valid layout at another legal size. It grows on healthy free hosts,
    and shrinks when a host has failed, on those that it has or that are free."""
    job = state.jobs[event.name]
    placement = Placement(
        FABRIC.indices(event.hosts), FABRIC.indices(event.spares), event.cuts, event.lower_bound
    )
    failed = {i for i, host in state.hosts.items() if host.state is HostState.FAILED}
    own = hostset.of(set(job.hosts) - failed) | (job.allocation & ~state.index.unhealthy)
    assert not violations(FABRIC, state.free | own, job.at(event.dp).request, placement)
    assert event.dp in job.sizes
    assert event.attempt == job.attempt + 1
    if job.state is JobState.INTERRUPTED:
        assert event.dp < job.dp
    elif event.preempted_by:
        assert event.dp < job.dp
        assert not hostset.of(placement.hosts + placement.spares) & ~job.allocation
    elif event.dp < job.dp:  # a window opened
        left = job.allocation & ~hostset.of(placement.hosts)
        assert any(left & booking.hosts for booking in state.windows.values())
    else:
        assert event.dp > job.dp
        assert not job.allocation & state.index.unhealthy


def check_growth(
    before: State, plan: Plan, after: State, now_ns: int, options: SchedulingOptions
) -> None:
    """Gangs grow when nothing starts, and no job's foreseen start is later for it."""
    grown = [a for a in plan.actions if isinstance(a, Resize) and a.dp > before.jobs[a.name].dp]
    if not grown:
        return
    assert not any(isinstance(action, Start | Swap) for action in plan.actions)
    if options.policy == "conservative" or not before.index.queue:
        return
    order = queue_order(before, now_ns, options)
    promised = [foreseen(before, name, now_ns, options) for name in order]
    first = next((i for i, start in enumerate(promised) if start is not None), None)
    if first is not None:
        kept = foreseen(after, order[first], now_ns, options)
        assert kept is not None
        assert kept <= (promised[first] or 0)


def check_order(
    before: State, plan: Plan, after: State, now_ns: int, options: SchedulingOptions
) -> None:
    """Nobody starts before an earlier job except without delaying the first that waits."""
    if any(not isinstance(action, Start | Reserve) for action in plan.actions):
        return  # swaps move hosts and ends as well
    if options.policy == "conservative" or not Quotas(before).is_open:
        return  # these have machines of their own
    order = queue_order(before, now_ns, options)
    starts = [action.name for action in plan.actions if isinstance(action, Start)]
    assert starts == [name for name in order if name in starts]
    waiting = [name for name in order if name not in starts]
    if not waiting:
        return
    head = before.jobs[waiting[0]]
    ahead = starts[: order.index(head.name)]
    open_to_it = before.free & ~avoided(head, before.tenants.restarts, now_ns)
    room = open_to_it.bit_count() - sum(
        (after.jobs[n].allocation & open_to_it).bit_count() for n in ahead
    )
    assert head.needed > room, "it fits, and waits"
    if options.policy == "fifo":
        assert starts == ahead
    check_kept(before, plan, after, head.name, ahead, now_ns, options)


def check_kept(
    before: State,
    plan: Plan,
    after: State,
    name: str,
    ahead: list[str],
    now_ns: int,
    options: SchedulingOptions,
) -> None:
    """This queued job starts no later than if only those `ahead` of it had started."""
    at_once = replay(started_alone(before, plan, ahead, now_ns), before)
    promised, kept = (foreseen(state, name, now_ns, options) for state in (at_once, after))
    assert promised is None or (kept is not None and kept <= promised)


def started_alone(before: State, plan: Plan, names: list[str], now_ns: int) -> tuple[Event, ...]:
    """The events of these starts of the plan and no others."""
    some = [a for a in plan.actions if isinstance(a, Start) and a.name in names]
    events = commit(before, Plan(plan.version, tuple(some)), now_ns)
    assert not isinstance(events, Conflict)
    return events


def foreseen(state: State, name: str, now_ns: int, options: SchedulingOptions) -> int | None:
    """The start that the ends of gangs and windows promise to this queued job."""
    job, quotas = state.jobs[name], Quotas(state)
    shut = Calendar(state).closed(job, now_ns, now_ns + time_limit_ns(job, options))
    shut |= avoided(job, state.tenants.restarts, now_ns)
    if job.needed <= (state.free & ~shut).bit_count():
        return now_ns
    outlook = Outlook(state, now_ns, options, quotas)
    found = outlook.reservation(job, state.free)
    return None if found is None else found.start_ns


def check_books(state: State) -> None:
    """Spares on loan are lent once, to preemptible jobs, and by the index as by their holders."""
    lent = Counter(host for job in state.holding for host in job.present.lent)
    assert all(count == 1 for count in lent.values()), lent
    assert hostset.of(lent) == state.index.lent
    for job in state.holding:
        assert not {*job.present.lent} & {*job.hosts, *job.spares}
        borrowed = hostset.of((*job.hosts, *job.spares)) & state.index.lent
        assert job.is_preemptible or not borrowed, job.name
    if state.fabric is not None:
        assert not state.free & (state.index.lent | state.index.held)


def check_spares_kept(before: State, event: Event, after: State) -> None:
    """A spare leaves the books of its job when it fails or joins the gang, when the job gives up
    its hosts, or when the log says that it was given away."""
    if isinstance(event, FabricChanged):
        return  # hosts have other numbers
    for job in before.holding:
        now = after.jobs.get(job.name)
        lost = {*job.spares, *job.present.lent} - (
            {*now.spares, *now.present.lent} if now else set()
        )
        if not lost:
            continue
        if isinstance(event, HostMoved):
            assert event.move is HostMove.FAIL
            assert lost == {before.loaded_fabric.index_by_name[event.host]}
            continue
        assert event.name == job.name  # type: ignore[union-attr]
        if isinstance(event, GangSwapped):
            assert now is not None
            assert lost <= {*now.hosts}
        elif isinstance(event, SparesChanged):
            assert " took " in event.reason or event.reason.startswith("releases "), event.reason
        else:
            assert isinstance(event, GIVES_UP), event
