"""Every event survives its JSON form, and nothing else is taken for one."""

import inspect
import subprocess
import sys
from dataclasses import replace
from typing import get_args

import pytest

from placement.workload.request import (
    Batch,
    Collective,
    SpareRule,
    StepBound,
    TierCut,
)
from scheduler.core import JobSpec, JobState
from scheduler.core.model.dependency import Dependency, DependencyKind, DependencyTerm
from scheduler.core.model.events import (
    ChannelOpened,
    CheckpointSaved,
    Defragmented,
    Event,
    FabricChanged,
    FabricLoaded,
    GangHung,
    GangLaunched,
    GangResized,
    GangSwapped,
    HealthLoaded,
    HostMoved,
    HostSignalled,
    HostsJudged,
    HostSwap,
    JobEligible,
    JobEnded,
    JobHeld,
    JobPreempted,
    JobReleased,
    JobRequeued,
    JobsReserved,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    LaunchFailed,
    LinkMoved,
    LinkReported,
    NamesQualified,
    RankFailed,
    RequestAnswered,
    RequestEvent,
    RoleRestarted,
    SparesChanged,
    TenantsLoaded,
    WindowClosed,
    WindowOpened,
    WindowRemoved,
    WindowSet,
)
from scheduler.core.model.lifecycle import Hold, HostMove, LinkMove, Mover, RequeueCause
from scheduler.core.model.restart_option import RestartOption, WeighedOption
from scheduler.core.policies.health import HealthPolicy
from scheduler.core.policies.job_terms import StopCause
from scheduler.core.policies.tenants import Aging, GuaranteedCell, PriorityClass, Tenant, Tenants
from scheduler.eventlog.codec import UndecodableEvent, decode, encode
from tests.build import LLAMA3, exactly, fabric_spec, request, spec
from tests.cases import case
from tests.windows import window

CUTS = (TierCut("zone", 2**53 + 1, (("dp", 2**53), ("pp", 1))), TierCut("rack", 0))
DERIVED = request(
    dp=4,
    model=LLAMA3,
    batch=Batch(2_048, 1, 2),
    collectives={"dp": Collective.HIERARCHICAL},
    spares=SpareRule(share=0.02),
)
TENANTS = Tenants(
    (
        Tenant("a", "", 64, 128, 3, (GuaranteedCell("rack", 2), GuaranteedCell("zone", 1, 4))),
        Tenant("b", "a"),
    ),
    "b",
    (PriorityClass("spot", -1, True),),
    3_600,
    Aging(60, 2),
)
EVENTS: list[Event] = [
    FabricLoaded(0, fabric_spec()),
    NamesQualified(3),
    FabricChanged(0, fabric_spec(3), (("z0-r0", "west"),), "r0"),
    TenantsLoaded(0, TENANTS.digest, TENANTS),
    JobSubmitted(1, "uid", spec("a", 4, priority=-3, limit_s=60, spares=exactly(2)), "r1"),
    JobSubmitted(1, "uid", JobSpec("ünïcode", DERIVED)),
    JobSubmitted(1, "uid", replace(spec("b"), tenant="b", priority_class="spot")),
    JobUpdated(3, "a", replace(spec("a", 4), labels=(("team", "nlp"),)), "r2"),
    JobSubmitted(
        1,
        "uid",
        replace(
            spec("c"),
            hold=True,
            begin_ns=2**60,
            dependencies=(DependencyTerm(DependencyKind.AFTEROK, "a"),),
            cancel_unmet=True,
        ),
        dependencies=(Dependency(DependencyKind.AFTEROK, "a", "u", JobState.COMPLETED),),
    ),
    JobHeld(2, "c", Hold.OPERATOR, "a reason", "r8"),
    JobReleased(2, "c", "r9"),
    JobEligible(2, "c"),
    JobsReserved(2, (("a", 2**60), ("b", 3)), (("b", (("z0-r0-h0", 2), ("z1-r0-h0", 1))),)),
    JobStarted(2, "a", 1, ("z0-r0-h0", "z0-r0-h1"), ("z0-r1-h0",), CUTS, 2**53, ("a note",)),
    JobStarted(2, "a", 1, ("z0-r0-h0",), (), (), 0, step=StepBound(10.5, 10.4)),
    GangResized(3, "a", 2, 3, ("z0-r0-h1",), ("z0-r0-h0",), CUTS, 3, ("note",), "why"),
    GangSwapped(3, "a", 2, (HostSwap(1, "z0-r0-h1", "z0-r1-h0"),), CUTS),
    GangSwapped(
        3, "a", 2, (), CUTS, (WeighedOption(RestartOption.AWAY, 7, -1, 0.5, 2, "why", True),)
    ),
    SparesChanged(4, "a", ("z0-r1-h0",), "holds 1 host more"),
    JobRequeued(4, "a", 'gpu-lost: "Xid" 79\n', RequeueCause.FAILURE),
    JobPreempted(5, "a", "b", "preempted by b after 5 s (priority 1 to 0)"),
    GangLaunched(5, "a", 1),
    LaunchFailed(5, "a", 1, "z0-r0-h0", "no such user"),
    RankFailed(5, "a", 1, 7, "z0-r0-h0", "exit code 1"),
    CheckpointSaved(5, "a", 1, 100, "/ckpt/100"),
    ChannelOpened(5, "a", 1, 8, "z0-r0-h1", ("ls", "-l")),
    GangHung(5, "a", 1, "no step for 30 min"),
    RoleRestarted(5, "a", 1, "server", 8, "z0-r0-h1", "exited with code 1", StopCause.EXIT, 1),
    Defragmented(5, "frees 4 hosts in z0 for 1 move, 1.0 GPU-hours"),
    Defragmented(5, "frees 4 hosts in z0 for 1 move, 1.0 GPU-hours", "4 hosts", "r9"),
    JobEnded(5, "a", JobState.CANCELLED, "typo"),
    HostMoved(6, "z0-r0-h0", HostMove.DRAIN, "new cable"),
    HostMoved(6, "z0-r0-h0", HostMove.FAIL, "gpu-lost: GPU 3", "r5", Mover.SIGNAL, "gpu-lost"),
    HostSignalled(2**62, "z0-r0-h0", "link-flap"),
    LinkReported(6, "z0", 0.875, "2 of 16 cables are down", "r6"),
    LinkMoved(6, "z0", LinkMove.DRAIN, "new optics"),
    HealthLoaded(7, HealthPolicy()),
    HostsJudged(8),
    WindowSet(6, window("w", "z0", count=2, tenant="b", leave="move", reason="why"), "r3"),
    WindowOpened(7, "w"),
    WindowClosed(8, "w"),
    WindowRemoved(9, "v", "never mind", "r4"),
    RequestAnswered(9, "@ads/0f/3:ada:r7", "cancelled a", "uid-1", "as it was"),
]


def test_an_event_reads_back_as_itself() -> None:
    for event in EVENTS:
        with case(event=event):
            type_name, body = encode(event)
            assert decode(type_name, body) == event
            assert encode(decode(type_name, body)) == (type_name, body)


def test_every_type_of_event_is_tried() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


def test_every_event_with_the_id_of_a_request_is_remembered_under_it() -> None:
    with_id = {
        kind for kind in get_args(Event) if "request_id" in inspect.signature(kind).parameters
    }
    assert set(get_args(RequestEvent)) == with_id


@pytest.mark.parametrize(
    ("type_name", "body", "message"),
    [
        ("JobEnded", "{", "JobEnded: Input data was truncated"),
        (
            "JobEnded",
            '{"time_ns": 1, "name": "a"}',
            "JobEnded: Object missing required field `outcome`",
        ),
        (
            "JobRequeued",
            '{"time_ns": "1", "name": "a", "reason": ""}',
            r"JobRequeued: Expected `int`, got `str` - at `\$.time_ns`",
        ),
    ],
)
def test_a_record_that_is_no_event_is_refused(type_name: str, body: str, message: str) -> None:
    with pytest.raises(UndecodableEvent, match=message):
        decode(type_name, body)


def test_the_codec_is_light_enough_for_the_simulator() -> None:
    heavy = {"grpc", "sqlite3", "asyncio"}
    script = f"import sys, scheduler.eventlog.codec; print({heavy} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert found.stdout == "set()\n", found.stdout + found.stderr
