"""One scheduler, three faces: served, simulated and dry run leave the same decisions.

A script of commands is sent to a running server over gRPC, each command after the
decisions on the one before have settled, and run through the simulator. With the clock
and the ids given, the two logs are equal event by event. What each job of the log was
given when it started is then what `muster place` answers for the hosts free at that moment.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.fabric import hostset
from placement.fabric.constraints import Constraints
from placement.fabric.hostset import HostSet
from scheduler.cli.program import app
from scheduler.core import SchedulingOptions, State, decide, replay
from scheduler.core.model.commands import Command, SubmitJob
from scheduler.core.model.events import Event, GangResized, JobStarted
from scheduler.core.model.scheduling_options import time_limit_ns
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption, Tenant, Tenants
from scheduler.core.queue.policies import BUILT_IN
from scheduler.core.rules.affinity_index import AffinityIndex
from scheduler.files.job import job_to_mapping
from tests.build import end, fail, hosts_of, submit
from tests.e2e.lives import (
    FABRIC,
    TENANTS,
    Decisions,
    H,
    Script,
    Step,
    arriving,
    lived,
    owned,
    random_script,
    with_changes,
    written,
)
from tests.replays import run_script
from tests.seeds import seeds
from tests.serving import START_NS

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
