"""Roles that begin again by themselves: which failures are theirs, and which are of the gang."""

from typing import Any

from muster.structs import replace
from scheduler.core.policies.tenants import Restarts
from scheduler.files.job import job_from_mapping
from scheduler.launch.gangs import role_restart
from scheduler.launch.gangs.gang import GangPhase, LaunchedGang, RoleStage
from tests.build import placed


def gang(*restarts: str, **more: Any) -> LaunchedGang:
    """Roles r0, r1, ... of two hosts of two ranks each. `more`: keys of the job."""
    role = {"parallelism": {"tp": 4}, "command": ["x"]}
    roles = [{**role, "name": f"r{n}", "restart": each} for n, each in enumerate(restarts)]
    spec = job_from_mapping({"name": "a", "roles": roles, **more})
    run = placed("a", tuple(f"h{n}" for n in range(2 * len(restarts))))
    run = replace(run, job=replace(run.job, spec=spec))
    assert spec.run is not None
    return LaunchedGang(run, spec.run, 4 * len(restarts), 2, 0.0, GangPhase.RUNNING)


def fail(
    launched: LaunchedGang, host: str, at_s: float, code: int = 1, tail: str = ""
) -> list[str]:
    """The roles that begin again when the first rank of a host fails."""
    launched.exited(host, launched.ranks_of(host).first_rank, code, 0, at_s, tail)
    return begun(launched, at_s)


def begun(launched: LaunchedGang, at_s: float) -> list[str]:
    return [role.name for role, _ in role_restart.begin(launched, at_s, Restarts())]


def come_through(launched: LaunchedGang, at_s: float) -> None:
    for stage in (RoleStage.STOPPING, RoleStage.PREPARING, RoleStage.STARTING):
        hosts = launched.roles[1].hosts
        assert [role_restart.note(launched, host, stage, at_s) for host in hosts] == [False, True]
        role_restart.end_pauses(launched, at_s + 1_000)


def test_failure_of_a_role_that_restarts_alone_is_none_of_the_gang() -> None:
    launched = gang("gang", "role")
    assert fail(launched, "h3", 5) == ["r1"]
    assert not launched.failures
    assert role_restart.is_ending(launched, "h2")
    assert not role_restart.is_ending(launched, "h0")
    assert fail(launched, "h0", 6) == []
    assert [failure.host for failure in launched.failures.values()] == ["h0"]


def test_role_that_fails_soon_after_each_start_is_a_failure_of_the_gang() -> None:
    launched = gang("gang", "role")
    for at_s in (0, 10, 20):
        assert fail(launched, "h2", at_s) == ["r1"]
        come_through(launched, at_s + 1)
    assert fail(launched, "h2", 30) == []
    assert launched.failures
    launched = gang("gang", "role")  # one that ran well for a while begins to count anew
    for at_s in (0, 100, 200, 300, 400):
        assert fail(launched, "h2", at_s) == ["r1"]
        come_through(launched, at_s + 1)


def test_word_that_a_host_says_twice_is_not_taken_for_a_new_failure() -> None:
    launched = gang("gang", "role")
    fail(launched, "h2", 0)
    assert role_restart.to_prepare(launched, "h2", 1) == ()
    assert role_restart.to_prepare(launched, "h3", 1) == ("h2", "h3")
    assert role_restart.is_ending(launched, "h2")
    assert role_restart.to_prepare(launched, "h2", 1) == ("h2",)
    role_restart.note(launched, "h2", RoleStage.PREPARING, 2)
    assert not role_restart.is_ending(launched, "h2")


def test_role_that_cannot_start_again_or_takes_too_long_is_a_failure_of_the_gang() -> None:
    launched = gang("gang", "role")
    fail(launched, "h2", 0)
    role_restart.give_up(launched, "h3", "no such program", 1)
    assert begun(launched, 1) == []
    assert "could not start again: no such program" in launched.first_failure().reason
    launched = gang("gang", "role")
    fail(launched, "h2", 0)
    assert not role_restart.has_overdue(launched, 50, 60)
    assert role_restart.has_overdue(launched, 70, 60)
    assert "did not answer" in launched.first_failure().reason


def test_gang_is_complete_without_the_roles_that_serve_it() -> None:
    served, alike = gang("gang", "role"), gang("role", "role")
    for rank in range(4):
        for launched in (served, alike):
            launched.exited(f"h{rank // 2}", rank, 0, 0, 1.0, "")
    assert served.is_complete
    assert not alike.is_complete
    alike.forget_ranks(alike.roles[0])
    for rank in range(8):
        alike.exited(f"h{rank // 2}", rank, 0, 0, 1.0, "")
    assert alike.is_complete


def test_failure_that_the_job_is_not_started_again_after_is_one_of_the_gang() -> None:
    assert fail(gang("gang", "role", restarts={"max": 0}), "h2", 5) == []
    launched = gang("gang", "role", restarts={"on": {"exit": [75], "oom": False}})
    assert fail(launched, "h2", 5, code=75) == ["r1"]
    come_through(launched, 6)
    assert fail(launched, "h2", 100, code=1) == []
    memory = gang("gang", "role", restarts={"on": {"oom": False}})
    assert fail(memory, "h2", 5, tail="torch.OutOfMemoryError: CUDA out of memory") == []
    launched = gang("gang", "role", restarts={"max": 1})
    assert fail(launched, "h2", 0) == ["r1"]
    come_through(launched, 1)
    assert fail(launched, "h2", 10) == []


def test_role_pauses_before_it_begins_again_longer_each_time() -> None:
    launched = gang("gang", "role", restarts={"backoff_s": 20})
    for at_s, pause_s in ((0, 20), (60, 40)):
        assert fail(launched, "h2", at_s) == ["r1"]
        assert role_restart.to_prepare(launched, "h2", at_s) == ()
        assert role_restart.to_prepare(launched, "h3", at_s) == ()
        assert role_restart.is_ending(launched, "h2")
        assert role_restart.end_pauses(launched, at_s + pause_s - 1) == ()
        assert not role_restart.has_overdue(launched, at_s + pause_s, 5)
        assert role_restart.end_pauses(launched, at_s + pause_s) == ("h2", "h3")
        for stage in (RoleStage.PREPARING, RoleStage.STARTING):
            for host in ("h2", "h3"):
                role_restart.note(launched, host, stage, at_s + pause_s + 10)
