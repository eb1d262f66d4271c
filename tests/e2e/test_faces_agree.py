"""One scheduler, three faces: served, simulated and dry run leave the same decisions.

A script of commands is sent to a running server over gRPC, each command after the
decisions on the one before have settled, and run through the simulator. With the clock
and the ids given, the two logs are equal event by event. What each job of the log was
given when it started is then what `muster place` answers for the hosts free at that moment.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from placement.fabric.hostset import HostSet
from placement.workload.request import AUTO
from scheduler.cli.program import app
from scheduler.core import JobState, Plan, SchedulingOptions, State, decide, replay
from scheduler.core.capacity.placer import Placer
from scheduler.core.model.commands import (
    CancelJob,
    ChangeFabric,
    Command,
    EndJob,
    MoveHost,
    ReportHost,
    SubmitJob,
)
from scheduler.core.model.events import Event, GangResized, JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.names import full_name
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.health_signals import SIGNALS, XID, Effect
from scheduler.core.policies.tenants import (
    Aging,
    GuaranteedCell,
    Preemption,
    PriorityClass,
    Tenant,
    Tenants,
)
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.engine import writer
from scheduler.files.fabrics.fabricyaml import dump
from scheduler.files.fabrics.growth import listed
from scheduler.v1 import job_pb2, service_pb2
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import HOUR_NS, end, exactly, fabric, fail, hosts_of, job_to_mapping, submit
from tests.replays import run_script
from tests.seeds import seeds
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
Step = Command | Callable[[State], Command]


# --- scripts -----------------------------------------------------------------


def written(steps: Sequence[Step], options: SchedulingOptions, tenants: Tenants) -> Script:
    """The commands of a story, each chosen on the state that those before it lead to."""
    script: list[tuple[int, Command]] = []
    state = State.empty()
    for number, step in enumerate(steps):
        command = step(state) if callable(step) else step
        script.append((START_NS + number * HOUR_NS // 10, arriving(command)))
        state = replay(run_script(FABRIC, script, options, tenants=tenants))
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


def with_changes(script: Script, seed: int) -> Script:
    """The same while hosts come in front of others, and some are to go, which a gang may forbid."""
    rng, changed, spec = random.Random(seed), list[tuple[int, Command]](), listed(FABRIC.spec)
    for number, (time_ns, command) in enumerate(script):
        changed.append((time_ns, command))
        if number % 5 == 4:
            spec = deepcopy(spec)
            rack = rng.choice(rng.choice(spec["domains"])["domains"])
            hosts = [f"{rack['name']}-h{h}" for h in (0, 1)]
            hosts = hosts if isinstance(rack["hosts"], int) else rack["hosts"]
            rack["hosts"] = [f"{rack['name']}-x{number}", *hosts]
            less = deepcopy(spec)
            rack = rng.choice(rng.choice(less["domains"])["domains"])
            rack["hosts"] = [f"{rack['name']}-h1"]
            at_ns = time_ns + SECOND_NS // 4
            changed += [(at_ns, ChangeFabric(spec)), (at_ns + SECOND_NS // 4, ChangeFabric(less))]
    return changed


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
        Tenant("product", cells=(GuaranteedCell("rack", 2),)),
        Tenant("default"),
    ),
    classes=(PriorityClass("spot", -1, is_preemptible=True),),
    half_life_s=5 * H,
    aging=Aging(H),
    preemption=Preemption(min_run_s=0),  # in the server time stands still between commands
)


def owned(command: Command, rng: random.Random, names: dict[str, str]) -> Command:
    """A job of any tenant, some of them preemptible, by its full name, which commands after it say
    as well. `names`: full names so far, by short ones."""
    if isinstance(command, CancelJob | EndJob):
        return replace(command, name=names.get(command.name, command.name))
    if not isinstance(command, SubmitJob):
        return command
    tenant = rng.choice(["vision", "language", "product", ""])
    short = command.spec.name
    names[short] = full_name(tenant, short)
    spec = replace(command.spec, tenant=tenant, name=names[short])
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
    )


# --- the live face -----------------------------------------------------------


class Decisions:
    """Stands where the writer calls decide, to know when there is nothing left to decide."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settled = 0  # the newest version on which there is nothing to do
        monkeypatch.setattr(writer, "decide", self)

    def __call__(
        self, state: State, now_ns: int, options: SchedulingOptions, find: Placer | None = None
    ) -> Plan:
        plan = decide(state, now_ns, options, find)
        if not plan.actions or plan.is_fixpoint:
            self.settled = state.version + len(plan.actions)
        return plan

    async def settle(self, served: Served) -> None:
        async with asyncio.timeout(60):
            while True:
                answer = await served.stub.ListHosts(service_pb2.ListHostsRequest(page_size=1))
                if answer.version == self.settled:
                    return
                await asyncio.sleep(0.001)


async def lived(
    folder: Path,
    script: Script,
    decisions: Decisions,
    options: SchedulingOptions,
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
        "options": options,
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
            case SubmitJob(spec):
                await stub.CreateJob(pb.CreateJobRequest(spec=spec_to_proto(spec)))
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
            case ChangeFabric(spec):
                await stub.ApplyFabric(pb.ApplyFabricRequest(file=dump(spec).encode()))
            case ReportHost(host, signal, detail, xid=xid):
                await stub.ReportHost(
                    pb.ReportHostRequest(name=host, signal=signal, detail=detail, xid=xid)
                )
    except grpc.aio.AioRpcError as error:
        if error.code() not in REFUSED:
            raise


# --- what must agree -------------------------------------------------------------------------

SLOW = pytest.mark.slow


def kinds(log: Sequence[Event]) -> Counter[str]:
    return Counter(type(event).__name__ for event in log)


@pytest.mark.parametrize("policy", BUILT_IN)
@pytest.mark.parametrize("seed", seeds(1, (1, 2)))
async def test_served_and_simulated_leave_the_same_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, policy: str
) -> None:
    script, limits = random_script(seed), SchedulingOptions(policy=policy)
    simulated = run_script(FABRIC, script, limits)
    assert await lived(tmp_path, script, Decisions(monkeypatch), limits) == simulated
    assert {"JobStarted", "JobEnded", "HostMoved"} <= kinds(simulated).keys()


def choosy(command: Command, rng: random.Random) -> Command:
    """A job with constraints of any kind; other commands as they are."""
    if not isinstance(command, SubmitJob):
        return command
    avoid = rng.choice([(), (("rack", ("job-1*",)),), (("zone", ("job-2*", "job-3*")),)])
    near = rng.choice(["", "job-0", "job-5"])
    beside = Affinity(rng.choice(["", "", "rack"]), avoid, near)
    where = Constraints(rng.choice([0, 1, 2]), rng.choice(["", "", "zone", "rack"]))
    request = replace(command.spec.request, where=where)
    return replace(command, spec=replace(command.spec, request=request, affinity=beside))


def with_constraints(script: Script) -> Script:
    rng = random.Random(5)
    return [(time_ns, choosy(command, rng)) for time_ns, command in script]


def with_tenants(script: Script) -> Script:
    rng, names = random.Random(5), dict[str, str]()
    return [(time_ns, owned(command, rng, names)) for time_ns, command in script]


@pytest.mark.parametrize("policy", ["production", pytest.param("conservative", marks=SLOW)])
@pytest.mark.parametrize(
    ("script", "tenants", "seen"),
    [
        (with_changes(random_script(0), 0), None, {"FabricChanged", "GangSwapped"}),
        (with_tenants(random_script(7)), TENANTS, {"TenantsLoaded"}),
        (with_constraints(random_script(5)), None, {"GangSwapped"}),
    ],
    ids=["while the fabric changes", "with tenants", "with constraints"],
)
async def test_so_they_do_through_a_restart(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    tenants: Tenants | None,
    seen: set[str],
    policy: str,
) -> None:
    limits = SchedulingOptions(policy=policy)
    simulated = run_script(FABRIC, script, limits, tenants=tenants)
    live = await lived(tmp_path, script, Decisions(monkeypatch), limits, 30, tenants)
    assert live == simulated
    assert {"JobStarted", "JobEnded", *seen} <= kinds(simulated).keys()
    if tenants:
        assert ("JobPreempted" in kinds(simulated)) is (policy == "production")


# A gang has always just saved its state, so what is due is due at once: time stands still here.
SAVING = Tenants(
    (Tenant("default"),),
    classes=TENANTS.classes,
    preemption=Preemption(min_run_s=0, costs=Costs(0, 60)),
)
SPOT = {"priority_class": "spot", "limit_s": 90 * H}
ELASTIC: list[Step] = [
    submit("soft", 12, min_dp=4, pp=1, **SPOT),
    submit("urgent", 8, limit_s=2 * H, priority=5),  # four are free: soft drops four
    submit("rigid", 4, **SPOT),  # waits: it may take nothing from an equal
    submit("more", 2, priority=5),  # soft again
    lambda state: fail(hosts_of(state, "urgent")[3]),  # and for a host that failed
    end("urgent"),  # rigid starts, and soft grows on the rest
    submit("wide", 11, priority=5),  # more than soft and rigid could spare: both leave
    end("more"),
    end("wide"),
]


async def test_so_they_do_with_elastic_gangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They grow, and make room for others."""
    limits = SchedulingOptions(resize_every_s=0)
    script = written(ELASTIC, limits, SAVING)
    simulated = run_script(FABRIC, script, limits, tenants=SAVING)
    assert await lived(tmp_path, script, Decisions(monkeypatch), limits, 4, SAVING) == simulated
    resized = [event for event in simulated if isinstance(event, GangResized)]
    assert {bool(event.preempted_by) for event in resized} == {True, False}


def whole_of_racks() -> Script:
    """Jobs that start when they come, some of which have racks for themselves."""
    where = [Constraints(same="rack"), Constraints(max_zones=1), Constraints()]
    script = []
    for number, hosts in enumerate((2, 3, 2, 1, 3)):
        beside = Affinity(exclusive="rack" if number % 2 else "")
        job = submit(f"j{number}", hosts, where=where[number % 3], affinity=beside)
        script.append((START_NS + number, arriving(job)))
    return script


@pytest.mark.parametrize(
    "script", [random_script(0), whole_of_racks()], ids=["whatever comes", "constraints"]
)
def test_a_dry_run_gives_what_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], script: Script
) -> None:
    """Hosts that are reserved for others, or beside exclusive ones, are busy for a dry run."""
    started, state = 0, State.empty()
    for event in run_script(FABRIC, script):
        if isinstance(event, JobStarted):
            started += 1
            wants = state.jobs[event.name].spec.affinity
            closed = AffinityIndex(state).closed(event.name, wants)
            taken = hostset.full(FABRIC.host_count) & ~state.free | closed
            busy = taken | reserved_for_others(state, event)
            answer = dry_run(tmp_path, state, event.name, busy, capsys)
            assert answer["hosts"] == list(event.hosts)
            assert answer["spares"] == list(event.spares)
            told = {tier: cut["by_axis"] for tier, cut in answer["cut"].items()}
            assert told == {cut.tier: dict(cut.by_axis) for cut in event.cuts}
        state = replay([event], state)
    assert started >= 4


def reserved_for_others(state: State, event: JobStarted) -> HostSet:
    """Hosts that a job which outlasts a reservation leaves alone."""
    limits = SchedulingOptions()
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
