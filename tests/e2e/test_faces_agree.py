"""One scheduler, three faces: served, simulated and dry run leave the same decisions.

A script of commands is sent to a running server over gRPC, each command after the
decisions on the one before have settled, and run through the simulator. With the clock
and the ids given, the two logs are equal event by event. What each job of the log was
given when it started is then what `muster place` answers for the hosts free at that moment.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from placement import hostset
from placement.hostset import HostSet
from placement.request import AUTO, Constraints
from scheduler import writer
from scheduler.cli import app
from scheduler.core import JobState, Limits, Plan, Policy, State, decide, replay
from scheduler.core.commands import CancelJob, Command, EndJob, MoveHost, ReportHost, SubmitJob
from scheduler.core.company import Company
from scheduler.core.costs import Costs
from scheduler.core.events import Event, GangResized, JobStarted
from scheduler.core.finding import Find
from scheduler.core.health.signals import SIGNALS, XID, Effect
from scheduler.core.job import SECOND_NS
from scheduler.core.lifecycle import HostMove
from scheduler.core.neighbours import Neighbours
from scheduler.core.policy import time_limit_ns
from scheduler.core.tenancy.tenants import Aging, Cell, Preemption, PriorityClass, Tenant, Tenants
from scheduler.jobfile import job_to_mapping
from scheduler.specproto import spec_from_proto, spec_to_proto
from scheduler.v1 import job_pb2, service_pb2
from simulator.run import run_script
from tests.build import (
    HOUR_NS,
    cancel,
    cordon,
    drain,
    end,
    exactly,
    fabric,
    fail,
    hosts_of,
    repair,
    submit,
    uncordon,
)
from tests.serving import START_NS, Served, logged, serving

FABRIC = fabric(2, 4, 2)  # 16 hosts
H = 3_600  # seconds
REFUSED = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.ALREADY_EXISTS,
)
Script = Sequence[tuple[int, Command]]
Step = Callable[[State], Command]


# --- scripts -----------------------------------------------------------------


def block(job: str, number: int) -> Callable[[State], str]:
    """The host that carries this block of the job when the step is taken."""
    return lambda state: hosts_of(state, job)[number]


def free(state: State) -> str:
    return FABRIC.hosts[hostset.members(state.free)[0]]


def failed(state: State) -> str:
    return FABRIC.hosts[hostset.members(state.unhealthy)[0]]


def on(make: Callable[[str], Command], where: Callable[[State], str]) -> Step:
    return lambda state: make(where(state))


def plain(command: Command) -> Step:
    return lambda _: command


STORY: list[Step] = [
    plain(submit("long", 6, pp=2, limit_s=10 * H, spares=exactly(1))),
    plain(submit("wide", 12, limit_s=H)),  # waits for long, and is promised its hosts
    plain(submit("tardy", 5, limit_s=20 * H)),  # would fit, but would break the promise
    plain(submit("brief", 2, limit_s=2 * H, request_id="r1")),  # backfills
    plain(submit("brief", 2, limit_s=2 * H, request_id="r1")),  # a retry: the same job
    on(cordon, free),
    on(fail, block("long", 0)),  # swaps its spare in
    on(lambda host: fail(host, "nic-down"), block("long", 3)),  # swaps a free host in
    on(lambda host: ReportHost(host, "thermal", "88 C"), block("long", 2)),
    on(drain, block("long", 1)),
    plain(cancel("tardy")),
    plain(end("brief")),
    plain(end("long", JobState.FAILED)),
    on(repair, failed),
    on(uncordon, lambda state: FABRIC.hosts[hostset.members(state.unhealthy)[0]]),
    on(repair, failed),
    plain(submit("rest", 3, priority=5)),  # takes what wide leaves
    plain(submit("last", 1, spares=AUTO)),
    on(fail, block("wide", 7)),  # nothing to swap in: requeued, and waits again
    plain(end("wide", attempt=1)),  # a late word: refused
    plain(end("rest")),  # room for wide: its second attempt
    on(drain, block("wide", 2)),
    on(repair, failed),
    plain(submit("nowhere", 17)),  # infeasible: refused
    plain(end("wide")),
    plain(cancel("last")),
]


def written(
    steps: Sequence[Step], limits: Limits | None = None, tenants: Tenants | None = None
) -> Script:
    """The commands of a story, each chosen on the state that those before it lead to."""
    script: list[tuple[int, Command]] = []
    for number, step in enumerate(steps):
        log = run_script(FABRIC, script, limits or Limits(), tenants=tenants) if script else ()
        state = replay(log) if script else State.empty()
        script.append((START_NS + number * HOUR_NS // 10, arriving(step(state))))
    return script


def arriving(command: Command) -> Command:
    """The command with its job as every reader gives it: axes in the order of the fields."""
    if not isinstance(command, SubmitJob):
        return command
    return replace(command, spec=spec_from_proto(spec_to_proto(command.spec)))


def random_script(seed: int, length: int = 60) -> Script:
    """Commands as they come: many wait, some are refused."""
    rng = random.Random(seed)
    time_ns, script, names = START_NS, [], ["nobody"]
    for number in range(length):
        time_ns += rng.randrange(1, 3 * H) * SECOND_NS
        kind = rng.choices(["submit", "end", "cancel", "move", "report"], [9, 6, 1, 3, 6])[0]
        name, host = rng.choice(names[-8:]), rng.choice(FABRIC.hosts)
        command: Command
        match kind:
            case "submit":
                names.append(f"job-{number}")
                command = random_job(names[-1], rng)
            case "end":
                outcome = rng.choice([JobState.COMPLETED, JobState.COMPLETED, JobState.FAILED])
                command = EndJob(name, outcome)
            case "cancel":
                command = CancelJob(name, "a change of mind")
            case "move":
                moves = [HostMove.CORDON, HostMove.UNCORDON, HostMove.DRAIN]
                command = MoveHost(host, rng.choice(moves), "maintenance")
            case _:
                command = reported(host, rng)
        script.append((time_ns, arriving(command)))
    return script


# The server's clock jumps from command to command here: nothing may be due in between.
AT_ONCE = [n for n, s in SIGNALS.items() if s.effect in (Effect.FAIL, Effect.REPAIR, Effect.NOTE)]


def reported(host: str, rng: random.Random) -> ReportHost:
    """Any signal that acts at once or counts, and often one that brings a host back."""
    signal = rng.choice([*AT_ONCE, *["repaired"] * 20])
    return ReportHost(host, signal, "x", xid=rng.choice((13, 79)) if signal == XID else 0)


TENANTS = Tenants(
    (
        Tenant("research", guaranteed_gpus=32, limit_gpus=96),
        Tenant("vision", "research", guaranteed_gpus=16, weight=2),
        Tenant("language", "research"),
        Tenant("product", cells=(Cell("rack", 2),)),
        Tenant("default"),
    ),
    classes=(PriorityClass("spot", -1, is_preemptible=True),),
    half_life_s=5 * H,
    aging=Aging(H),
    preemption=Preemption(min_run_s=0),  # in the server time stands still between commands
)


def owned(command: Command, rng: random.Random) -> Command:
    """A job of any tenant, some of them preemptible; other commands as they are."""
    if not isinstance(command, SubmitJob):
        return command
    tenant = rng.choice(["vision", "language", "product", ""])
    spec = replace(command.spec, tenant=tenant)
    if rng.random() < 0.3:
        spec = replace(spec, priority=0, priority_class="spot")
    return replace(command, spec=spec)


def random_job(name: str, rng: random.Random) -> SubmitJob:
    pp, dp = rng.choice([(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (4, 2), (2, 5), (4, 3)])
    return submit(
        name,
        pp * dp,
        pp=pp,
        priority=rng.choice([0, 0, 0, 5]),
        limit_s=rng.choice([None, H, 6 * H, 30 * H]),
        spares=rng.choice([AUTO, exactly(0), exactly(1)]),
        request_id=rng.choice(["", f"request-{name}"]),
    )


# --- the live face -----------------------------------------------------------


class Decisions:
    """Stands where the writer calls decide, to know when there is nothing left to decide."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settled = 0  # the newest version on which there is nothing to do
        monkeypatch.setattr(writer, "decide", self)

    def __call__(self, state: State, now_ns: int, limits: Limits, find: Find | None = None) -> Plan:
        plan = decide(state, now_ns, limits, find)
        if not plan.actions or plan.is_last:
            self.settled = state.version + len(plan.actions)
        return plan

    async def settle(self, served: Served) -> None:
        async with asyncio.timeout(20):
            while True:
                answer = await served.stub.ListHosts(service_pb2.ListHostsRequest(page_size=1))
                if answer.version == self.settled:
                    return
                await asyncio.sleep(0.001)


async def lived(
    folder: Path,
    script: Script,
    decisions: Decisions,
    limits: Limits,
    restart_after: int = -1,
    tenants: Tenants | None = None,
) -> list[Event]:
    """The log of a server that was sent the script; one restart on the way if wished."""
    now_ns = [script[0][0]]
    uids = iter([c.uid for _, c in script if isinstance(c, SubmitJob)])
    settings: dict[str, Any] = {
        "fabric_spec": FABRIC.spec,
        "clock": lambda: now_ns[0],
        "new_uid": lambda: next(uids),
        "limits": limits,
        "tenants": tenants,
    }
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(folder, **settings))
        for number, (time_ns, command) in enumerate(script):
            now_ns[0] = time_ns
            await send(served, command)
            await decisions.settle(served)
            if number == restart_after:
                await stack.aclose()
                served = await stack.enter_async_context(serving(folder, **settings))
    return logged(folder)


async def send(served: Served, command: Command) -> None:
    """One call. A refusal is an answer like any other: it leaves no trace."""
    stub, pb = served.stub, service_pb2
    try:
        match command:
            case SubmitJob(spec, _, request_id):
                message = spec_to_proto(spec)
                await stub.CreateJob(pb.CreateJobRequest(spec=message, request_id=request_id))
            case CancelJob(name, reason):
                await stub.CancelJob(pb.CancelJobRequest(name=name, reason=reason))
            case EndJob(name, outcome, attempt, reason):
                how = job_pb2.JobState.Value(f"JOB_STATE_{outcome.name}")
                await stub.EndJob(
                    pb.EndJobRequest(name=name, outcome=how, attempt=attempt, reason=reason)
                )
            case MoveHost(host, HostMove.CORDON, reason):
                await stub.CordonHost(pb.CordonHostRequest(name=host, reason=reason))
            case MoveHost(host, HostMove.UNCORDON, reason):
                await stub.UncordonHost(pb.UncordonHostRequest(name=host, reason=reason))
            case MoveHost(host, _, reason):
                await stub.DrainHost(pb.DrainHostRequest(name=host, reason=reason))
            case ReportHost(host, signal, detail, xid=xid):
                await stub.ReportHost(
                    pb.ReportHostRequest(name=host, signal=signal, detail=detail, xid=xid)
                )
    except grpc.aio.AioRpcError as error:
        if error.code() not in REFUSED:
            raise


# --- they agree --------------------------------------------------------------


def kinds(log: Sequence[Event]) -> Counter[str]:
    return Counter(type(event).__name__ for event in log)


@pytest.mark.parametrize("restart_after", [-1, 9, 18])
async def test_served_and_simulated_leave_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restart_after: int
) -> None:
    script = written(STORY)
    simulated = run_script(FABRIC, script)
    live = await lived(tmp_path, script, Decisions(monkeypatch), Limits(), restart_after)
    assert live == simulated
    seen = kinds(simulated)
    assert (seen["GangSwapped"], seen["JobRequeued"], seen["HostSignalled"]) == (4, 1, 1)
    started = [e.name for e in simulated if isinstance(e, JobStarted)]
    assert started == ["long", "brief", "wide", "rest", "last", "wide"]


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("seed", range(3))
async def test_so_they_do_on_whatever_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, policy: Policy
) -> None:
    script, limits = random_script(seed), Limits(policy=policy)
    simulated = run_script(FABRIC, script, limits)
    assert await lived(tmp_path, script, Decisions(monkeypatch), limits) == simulated
    assert {"JobStarted", "JobEnded", "HostMoved"} <= kinds(simulated).keys()


@pytest.mark.parametrize("policy", [Policy.PRODUCTION, Policy.CONSERVATIVE])
async def test_so_they_do_with_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    rng, limits = random.Random(7), Limits(policy=policy)
    script = [(time_ns, owned(command, rng)) for time_ns, command in random_script(7)]
    simulated = run_script(FABRIC, script, limits, tenants=TENANTS)
    live = await lived(tmp_path, script, Decisions(monkeypatch), limits, 30, TENANTS)
    assert live == simulated
    assert {"TenantsLoaded", "JobStarted", "JobEnded"} <= kinds(simulated).keys()
    assert ("JobPreempted" in kinds(simulated)) is (policy is Policy.PRODUCTION)


# A gang has always just saved its state, so what is due is due at once: time stands still here.
SAVING = Tenants(
    (Tenant("default"),),
    classes=TENANTS.classes,
    preemption=Preemption(min_run_s=0, costs=Costs(0, 60)),
)
SPOT = {"priority_class": "spot", "limit_s": 90 * H}
ELASTIC: list[Step] = [
    plain(submit("soft", 12, min_dp=4, pp=1, **SPOT)),
    plain(submit("urgent", 8, limit_s=2 * H, priority=5)),  # four are free: soft drops four
    plain(submit("rigid", 4, **SPOT)),  # waits: it may take nothing from an equal
    plain(submit("more", 2, priority=5)),  # soft again
    on(fail, block("urgent", 3)),  # and for a host that failed
    plain(end("urgent")),  # rigid starts, and soft grows on the rest
    plain(
        submit("wide", 11, priority=5)
    ),  # more than soft and rigid together could spare: both leave
    plain(end("more")),
    plain(end("wide")),
]


async def test_so_they_do_with_elastic_gangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They grow, and make room for others."""
    limits = Limits(resize_every_s=0)
    script = written(ELASTIC, limits, SAVING)
    simulated = run_script(FABRIC, script, limits, tenants=SAVING)
    assert await lived(tmp_path, script, Decisions(monkeypatch), limits, 4, SAVING) == simulated
    resized = [event for event in simulated if isinstance(event, GangResized)]
    assert {bool(event.preempted_by) for event in resized} == {True, False}


def choosy(command: Command, rng: random.Random) -> Command:
    """A job with constraints of any kind; other commands as they are."""
    if not isinstance(command, SubmitJob):
        return command
    avoid = rng.choice([(), (("rack", ("job-1*",)),), (("zone", ("job-2*", "job-3*")),)])
    near = rng.choice(["", "job-0", "job-5"])
    beside = Neighbours(rng.choice(["", "", "rack"]), avoid, near)
    where = Constraints(rng.choice([0, 1, 2]), rng.choice(["", "", "zone", "rack"]))
    request = replace(command.spec.request, where=where)
    return replace(command, spec=replace(command.spec, request=request, neighbours=beside))


@pytest.mark.parametrize("policy", [Policy.PRODUCTION, Policy.CONSERVATIVE])
async def test_so_they_do_with_constraints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    rng, limits = random.Random(3), Limits(policy=policy)
    script = [(time_ns, choosy(command, rng)) for time_ns, command in random_script(3)]
    simulated = run_script(FABRIC, script, limits)
    live = await lived(tmp_path, script, Decisions(monkeypatch), limits, 30)
    assert live == simulated
    assert {"JobStarted", "JobEnded", "GangSwapped"} <= kinds(simulated).keys()


def test_a_dry_run_keeps_the_same_constraints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job starts when it comes; hosts beside exclusive ones are busy for a dry run."""
    where = [Constraints(same="rack"), Constraints(max_zones=1), Constraints()]
    script, state = [], State.empty()
    for number, hosts in enumerate((2, 3, 2, 1, 3)):
        beside = Neighbours(exclusive="rack" if number % 2 else "")
        job = submit(f"j{number}", hosts, where=where[number % 3], neighbours=beside)
        script.append((START_NS + number, arriving(job)))
    started = 0
    for event in run_script(FABRIC, script):
        if isinstance(event, JobStarted):
            started += 1
            wants = state.jobs[event.name].spec.neighbours
            closed = Company(state).closed(event.name, wants)
            taken = hostset.full(FABRIC.host_count) & ~state.free | closed
            answer = dry_run(tmp_path, state, event.name, taken, capsys)
            assert answer["hosts"] == list(event.hosts)
        state = replay([event], state)
    assert started >= 4


def test_a_dry_run_gives_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = State.empty()
    for event in run_script(FABRIC, written(STORY)):
        if isinstance(event, JobStarted):
            taken = hostset.full(FABRIC.host_count) & ~state.free
            busy = taken | reserved_for_others(state, event)
            answer = dry_run(tmp_path, state, event.name, busy, capsys)
            assert answer["hosts"] == list(event.hosts)
            assert answer["spares"] == list(event.spares)
            told = {tier: cut["by_axis"] for tier, cut in answer["cut"].items()}
            assert told == {cut.tier: dict(cut.by_axis) for cut in event.cuts}
        state = replay([event], state)


def reserved_for_others(state: State, event: JobStarted) -> HostSet:
    """Hosts that a job which outlasts a reservation leaves alone."""
    limits = Limits()
    end_ns = event.time_ns + time_limit_ns(state.jobs[event.name], limits)
    reservations = decide(state, event.time_ns, limits).reservations
    return sum(r.hosts for r in reservations if r.name != event.name and end_ns > r.start_ns)


def dry_run(
    folder: Path, state: State, name: str, taken: HostSet, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """What `muster place` answers for a job with these hosts taken."""
    job, cluster, busy = (folder / f"{what}.yaml" for what in ("job", "fabric", "busy"))
    job.write_text(yaml.safe_dump(job_to_mapping(state.jobs[name].spec)))
    cluster.write_text(yaml.safe_dump(dict(FABRIC.spec)))
    busy.write_text("\n".join(FABRIC.names(hostset.members(taken))))
    arguments = ["place", str(job), "--fabric", str(cluster), "--busy", str(busy)]
    with pytest.raises(SystemExit) as finished:
        app([*arguments, "--format", "json"])
    assert finished.value.code == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer
