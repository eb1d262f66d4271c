"""Scripts of commands, and a server that lives through one: what the faces are compared on."""

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from placement.workload.request import AUTO
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
from scheduler.core.model.events import Event
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.names import full_name
from scheduler.core.policies.health_signals import SIGNALS, XID, Effect
from scheduler.core.policies.tenants import (
    Aging,
    GuaranteedCell,
    Preemption,
    PriorityClass,
    Tenant,
    Tenants,
)
from scheduler.engine import writer
from scheduler.files.fabrics.fabricyaml import dump
from scheduler.files.fabrics.growth import listed
from scheduler.v1 import job_pb2, service_pb2
from scheduler.wire.specs import spec_from_proto, spec_to_proto
from tests.build import (
    HOUR_NS,
    exactly,
    fabric,
    submit,
)
from tests.replays import run_script
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
