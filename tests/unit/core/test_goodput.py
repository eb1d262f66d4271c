"""What a job's time went to, each worked out by hand."""

import math

import pytest

from scheduler.core import JobState, State, Tenants, replay
from scheduler.core.fold.goodput import sum_accounts
from scheduler.core.model.job_account import shown
from scheduler.core.model.records.goodput import Goodput, Parts
from scheduler.core.model.records.tenant import UsageAccount, usage_decay
from scheduler.core.policies.costs import Costs
from scheduler.core.policies.tenants import Preemption
from tests.build import cancel, end, exactly, fail, repair, submit
from tests.replays import machine, run_script

S = 10**9
COSTS = Costs(checkpoint_s=100, restart_s=20, detect_s=30)
RULES = Tenants(preemption=Preemption(costs=COSTS))


def after(*script: tuple[float, object], hosts: int = 4) -> State:
    """The state after these commands, at seconds."""
    timed = [(round(at * S), command) for at, command in script]
    return replay(run_script(machine(hosts), timed, tenants=RULES, decision_ns=5 * S))  # type: ignore[arg-type]


def of(state: State, at: float) -> Goodput:
    job = state.find("a")
    assert job is not None
    return shown(job, round(at * S), COSTS)


def seconds(parts: Parts) -> dict[str, float]:
    found = {name: getattr(parts, name) / S for name in Parts.__slots__}
    return {name: value for name, value in found.items() if value}


def test_a_job_that_runs_through() -> None:
    """A decision takes 5 s, then 1,000 s on two hosts and one spare."""
    state = after((0, submit("a", 2, gpus=1, spares=exactly(1))), (1_005, end("a")))
    found = of(state, 9_999)
    assert seconds(found.time) == {"queueing": 5, "productive": 1_000}
    assert seconds(found.hosts) == {"queueing": 10, "productive": 2_000, "spare": 1_000}
    assert found.ettr == 1_000 / 1_005
    assert found.share == 2_000 / 3_000


def test_a_failure_costs_detection_rework_rescheduling_and_a_restart() -> None:
    """It fails after 280 s: 30 s unnoticed, 250 s of steps of which 200 were saved."""
    state = after(
        (0, submit("a", 2, gpus=1)), (285, fail("z0-h0")), (500, end("a", JobState.COMPLETED))
    )
    assert seconds(of(state, 500).time) == {
        "queueing": 5,
        "productive": 200 + 500 - 285 - 5 - 20,
        "rework": 50,
        "detection": 30,
        "rescheduling": 5,
        "restart": 20,
    }


def test_a_gang_that_goes_on_with_the_hosts_it_had_goes_back_to_storage() -> None:
    """It waits until it need not avoid the host that stopped it, for there is no other: no
    host joins, no copy is loaded."""
    failed = (285, fail("z0-h0", "host-down")), (285, repair("z0-h0"))
    state = after((0, submit("a", 2, gpus=1)), *failed, hosts=2)
    assert state.jobs["a"].attempt == 2
    assert seconds(of(state, 891).time)["rework"] == 50


def test_what_runs_counts_as_productive_until_it_is_lost() -> None:
    state = after((0, submit("a", 2, gpus=1)))
    assert seconds(of(state, 255).time) == {"queueing": 5, "productive": 250}
    sure = sum_accounts(state, 255 * S)
    assert seconds(sure) == {"queueing": 10, "productive": 2 * 200}


def test_a_gang_that_stands_still_is_being_rescheduled() -> None:
    state = after((0, submit("a", 2, gpus=1)), (100, fail("z0-h0")), hosts=2)
    found = seconds(of(state, 130).time)
    assert found == {"queueing": 5 + 25, "rework": 65, "detection": 30, "rescheduling": 5}


def test_a_job_that_never_started_has_queued_only() -> None:
    state = after((0, submit("b", 4, gpus=1)), (6, submit("a", 4, gpus=1)), (60, cancel("a")))
    assert seconds(of(state, 99).time) == {"queueing": 54}
    assert seconds(state.spent) == {"queueing": 4 * 54}


H = 3_600_000_000_000


@pytest.mark.parametrize("elapsed", [0, 1, H // 7, H // 2, H, 3 * H + 17, 20 * H])
def test_what_is_kept_halves_with_every_half_life(elapsed: int) -> None:
    assert usage_decay(elapsed, H) / 2**64 == pytest.approx(2 ** (-elapsed / H), rel=1e-8)


def test_nothing_is_left_in_the_end() -> None:
    assert usage_decay(64 * H, H) == 0
    assert usage_decay(-5, H) == 2**64  # a clock that went back adds nothing


@pytest.mark.parametrize("hours", [0.5, 1, 2.25, 30])
def test_holding_adds_the_integral(hours: float) -> None:
    used = UsageAccount().having(3, 0, H).used_at(round(hours * H), H)
    assert used == pytest.approx(3 * H / math.log(2) * (1 - 2**-hours), rel=1e-7)
