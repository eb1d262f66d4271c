"""Counts read off a state, and when certificates and tokens expire."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from muster.structs import replace
from placement.objective.step_time import step_time
from placement.workload.training import Batch
from scheduler.access.certificates import read_certificate
from scheduler.cli.render.messages import _progress
from scheduler.core import HostState, JobSpec, JobState, State
from scheduler.core.model.commands import LoadTenants, SubmitJob
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.core.rules.network.gang_step import likely_step
from scheduler.observe import catalogue as c
from scheduler.observe import census
from scheduler.observe.census import EVERYTHING, Use
from scheduler.observe.proof import CutProof
from scheduler.server.metrics import samples
from scheduler.server.metrics.samples import of_steps
from scheduler.v1 import job_pb2
from scheduler.wire.cluster.status import _domain
from scheduler.wire.jobs import fill_progress
from tests.build import (
    LLAMA3,
    cordon,
    exactly,
    fabric,
    fail,
    flat,
    gang,
    loaded,
    request,
    run,
    schedule,
    started,
    submit,
)
from tests.secured import House
from tests.windows import set_window


def _uses(state: State) -> dict[str, dict[Use, int]]:
    return {d.name: {u: n for u, n in d.by_use.items() if n} for d in census.domains(state)}


def test_every_host_has_one_health_and_one_use() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)), submit("b", 2))
    state = run(state, fail("z0-r0-h0"), cordon("z1-r1-h1"))
    for domain in census.domains(state):
        assert sum(domain.by_use.values()) == 4
        assert sum(domain.by_state.values()) == 4
    health = [domain.by_state for domain in census.domains(state)]
    assert sum(states[HostState.FAILED] for states in health) == 1
    assert sum(states[HostState.CORDONED] for states in health) == 1


def test_the_status_counts_every_host_once() -> None:
    state = run(loaded(), fail("z0-r0-h0"), fail("z0-r0-h1", "agent-awaited"), cordon("z0-r1-h0"))
    state = run(state, *[fail("z0-r1-h1", "nic-flap")] * 3)  # suspect: it takes some gangs
    told = _domain(census.domains(state)[0], 8)
    assert (told.healthy_hosts, told.cordoned_hosts, told.failed_hosts) == (1, 1, 1)
    assert (told.draining_hosts, told.other_hosts) == (0, 1)


def test_a_gang_that_a_failure_stopped_still_uses_its_hosts() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)))
    (zone,) = [d for d in census.domains(state) if d.by_use[Use.RUNNING]]
    assert _uses(state)[zone.name] == {Use.RUNNING: 3, Use.SPARE: 1}
    first = state.loaded_fabric.hosts[state.jobs["a"].hosts[0]]
    stopped = run(state, fail(first))
    assert _uses(stopped)[zone.name] == {Use.STOPPED: 3, Use.SPARE: 1}
    assert _uses(schedule(stopped))[zone.name] == {Use.RUNNING: 3, Use.OUT: 1}
    spare = state.loaded_fabric.hosts[state.jobs["a"].spares[0]]  # out of service it is no spare
    assert _uses(run(state, cordon(spare)))[zone.name] == {Use.RUNNING: 3, Use.OUT: 1}


def test_hosts_under_maintenance_are_out_or_draining_as_the_host_list_shows_them() -> None:
    state = started(loaded(), submit("a", 3, spares=exactly(1)))
    before = {use: sum(d.by_use[use] for d in census.domains(state)) for use in Use}
    state = schedule(run(state, set_window("w", "z0", "z1-r0")))
    assert state.index.closed
    found = census.domains(state)
    for host_state in HostState:
        shown = sum(state.shown(i).state is host_state for i in range(8))
        assert sum(domain.by_state[host_state] for domain in found) == shown
    assert sum(sum(domain.by_use.values()) for domain in found) == 8
    assert sum(d.by_use[Use.RUNNING] for d in found) == before[Use.RUNNING] == 3
    assert sum(d.by_use[Use.OUT] for d in found) > before[Use.OUT] == 0


def test_thousands_of_domains_are_counted_together() -> None:
    state = loaded(flat(*[1] * (census.MOST_DOMAINS + 1)))
    (domain,) = census.domains(state)
    assert domain.name == EVERYTHING
    assert domain.by_use[Use.FREE] == census.MOST_DOMAINS + 1


def test_queues_name_every_tenant_and_the_job_that_waits_longest() -> None:
    tenants = Tenants((Tenant("top"), Tenant("leaf", "top"), Tenant("default")))
    state = run(loaded(), LoadTenants(tenants))
    state = run(state, submit("late", 8, tenant="leaf", priority=5), now_ns=20)
    state = run(state, submit("early", 4, tenant="leaf"), submit("other", 2), now_ns=10)
    found = census.queues(state)
    assert list(found) == ["default", "leaf"]
    assert found["leaf"].oldest == state.jobs["early"]
    assert (found["leaf"].queued_gpus, found["leaf"].jobs[JobState.QUEUED]) == (96, 2)
    held = census.queues(schedule(state))["leaf"].held_gpus
    assert held == 8 * schedule(state).index.held.bit_count() > 0


def test_cuts_are_those_of_the_gangs_that_run_the_largest_first() -> None:
    state = started(loaded(), submit("a", 1), submit("c", 2), submit("b", 2))
    assert [job.name for job in census.gangs(state)] == ["b", "c", "a"]
    state = started(loaded(fabric(zones=4, racks=1, hosts=2)), submit("a", 8), submit("b", 8))
    found = census.cuts(state)
    a = state.jobs["a"]
    assert found.by_tier == {cut.tier: cut.bytes_per_step for cut in a.present.cuts}
    assert found.lower_bound == a.present.lower_bound > 0
    assert found.by_proof == {CutProof.OPTIMAL: 1, CutProof.BOUNDED: 0, CutProof.NONE: 0}


def test_gpus_that_are_free_beside_jobs_on_parts_of_hosts_are_told_apart() -> None:
    state = schedule(run(loaded(), submit("a", gpus=2), submit("b", gpus=5), submit("c", 2)))
    assert census.queues(state)["default"].held_gpus == 2 + 5 + 16
    used = [domain.gpus(8) for domain in census.domains(state)]
    assert sum(each[Use.RUNNING] for each in used) == 2 + 5 + 16
    assert sum(each[census.SHARED] for each in used) == 1
    assert sum(map(sum, (each.values() for each in used))) == 64


# --- steps as ranks report them beside those of the model, and which gangs are -------

MODEL = replace(LLAMA3, layers=8, hidden=4_096, ffn=14_336, heads=32)


def told(step_s: float | None) -> SimpleNamespace:
    """What ranks say of their training."""
    return SimpleNamespace(
        step_s=step_s, step=7, total=0, loss=float("nan"), copied_step=0, busy=dict[str, str]()
    )


def running(job: Any) -> State:
    return schedule(run(loaded(fabric()), SubmitJob(JobSpec("a", job), "uid")))


JOB = request(tp=8, dp=2, model=MODEL, batch=Batch(16))
STATE = running(JOB)


def progress_of(step_s: float | None, state: State = STATE) -> job_pb2.TrainingProgress:
    message = job_pb2.TrainingProgress()
    fill_progress(message, told(step_s), 0.0, likely_step(state, state.jobs["a"]))
    return message


def test_the_model_step_is_that_of_the_hosts_with_its_interval() -> None:
    job, likely = STATE.jobs["a"], likely_step(STATE, STATE.jobs["a"])
    step = step_time(STATE.loaded_fabric, job.request, job.hosts)
    assert (likely.low_s, likely.high_s) == step.likely_s
    assert likely.low_s < likely.seconds == step.seconds < likely.high_s


def test_a_gang_is_named_once_it_leaves_the_interval_and_never_without_a_model() -> None:
    likely = likely_step(STATE, STATE.jobs["a"])
    for share, is_slower in ((1.0, False), (1.1, False), (1.5, True)):
        message = progress_of(share * likely.seconds)
        assert message.slower_than_model is is_slower
        assert ("SLOWER THAN ITS MODEL" in _progress(message)) is is_slower
        assert "in 8 of 10 such runs" in _progress(message)
    message = progress_of(2.0, running(gang(4)))
    assert not message.HasField("model_step_time")
    assert not message.slower_than_model
    assert "modelled" not in _progress(message)


def test_metrics_have_both_steps_of_each_gang_that_reports() -> None:
    likely = likely_step(STATE, STATE.jobs["a"])

    def sampled(now: Any) -> list[Any]:
        agents: Any = SimpleNamespace(progress=lambda uid, attempt: now)
        return list(of_steps(STATE, agents))

    samples = sampled((told(2 * likely.seconds), 0.0))
    assert samples == [
        (c.JOB_STEP, ("a",), 2 * likely.seconds),
        (c.JOB_MODEL_STEP, ("a",), likely.seconds),
        (c.JOB_SLOWER, ("a",), True),
    ]
    assert not sampled(None)
    assert not sampled((told(None), 0.0))


def test_the_first_certificate_and_token_to_expire_count(tmp_path: Path) -> None:
    house = House(tmp_path)
    end = read_certificate(house.certificate).expires
    for days in (9, 5):
        until = (end - timedelta(days=days)).isoformat()
        house.token(f"u{days}", "viewer", "*", f', expires: "{until}"')
    access = house.access()
    found = {labels: value for _, labels, value in samples.of_credentials(access, end)}
    assert found == {("certificate",): 0.0, ("token",): -9 * 86_400.0}
    house.auth.write_text("nonsense: [")
    assert [labels for _, labels, _ in samples.of_credentials(access, end)] == [("certificate",)]
