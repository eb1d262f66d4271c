"""What the policy does in time, and who may begin where."""

from dataclasses import replace

import pytest

from scheduler.core import HostState, SchedulingOptions, State, decide, replay
from scheduler.core.model.commands import LoadHealth, LoadTenants, ReportHost
from scheduler.core.model.events import GangSwapped, HostMoved, HostSignalled
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.core.model.records.host import DAY_NS, MOST, DailyCount, HostMark, HostRecord
from scheduler.core.policies.health import HealthPolicy, LemonAction, LemonPolicy
from scheduler.core.policies.tenants import OPEN, PriorityClass
from scheduler.core.rules.hosts.evaluation import lemon_signals, lemon_text, seven_signals
from tests.build import (
    admitted,
    committed,
    end,
    fabric,
    hosts_of,
    loaded,
    refused,
    repair,
    run,
    running,
    schedule,
    settled,
    started,
    submit,
)

H = "z0-r0-h0"
SMALL = fabric(zones=1, racks=2, hosts=2)
EMPTY = loaded(SMALL)
HOUR_NS = 3_600 * SECOND_NS


def now(state: State, index: int = 0) -> HostState:
    return state.host(index).state


def suspect(state: State = EMPTY, now_ns: int = 0) -> State:
    return run(state, *[ReportHost(H, "link-flap")] * 3, now_ns=now_ns)


def due(state: State) -> State:
    """What the next judgement makes of it."""
    return settled(state, state.judge_ns)


def test_gangs_take_hosts_last_that_a_burn_in_measured_as_slow() -> None:
    state = EMPTY
    for number, value in enumerate((40, 100, 98, 102)):
        name = state.loaded_fabric.hosts[number]
        state = run(state, ReportHost(name, "measured", f"memory={value} network=1"))
    assert state.slow == 1
    assert state.record(0).measures == (("memory", 40.0), ("network", 1.0))
    assert H not in hosts_of(started(state, submit("a", 1)), "a")
    assert H not in hosts_of(started(state, submit("a", 2)), "a")
    assert H in hosts_of(started(state, submit("a", 4)), "a")
    assert run(state, ReportHost(H, "measured", "memory=99")).slow == 0
    wrong = refused(state, ReportHost(H, "measured", "memory: 99"))
    assert "NAME=VALUE" in wrong.message


def test_a_suspect_takes_preemptible_gangs_alone() -> None:
    spot = replace(OPEN, classes=(PriorityClass("spot", 0, True),))
    state = run(suspect(), LoadTenants(spot))
    assert running(started(state, submit("a", 4))) == set()
    assert running(started(state, submit("a", 3))) == {"a"}
    assert H not in hosts_of(started(state, submit("a", 3)), "a")
    assert running(started(state, submit("a", 4, priority_class="spot"))) == {"a"}


def test_why_a_job_waits_for_a_suspect_is_said() -> None:
    from scheduler.core import explain

    state = started(suspect(), submit("a", 4))
    sentence = explain(state, "a", 0, SchedulingOptions()).sentence
    assert "4 are free, 1 of them suspect and for preemptible jobs only" in sentence


def test_trouble_keeps_a_suspect_longer() -> None:
    state = run(suspect(), ReportHost(H, "thermal"), now_ns=HOUR_NS)
    assert now(due(state)) is HostState.SUSPECT  # looked at in vain
    assert now(due(due(state))) is HostState.HEALTHY


def test_the_early_life_of_a_host_ends() -> None:
    state = run(EMPTY, ReportHost(H, "gpu-lost"), ReportHost(H, "installed"))
    state = run(state, ReportHost(H, "stress-test-passed"), now_ns=7)
    assert state.early == 1
    assert settled(state, 31 * DAY_NS).early == 0


def test_a_gang_leaves_a_retiring_host_when_it_has_just_saved() -> None:
    state = started(EMPTY, submit("a", 2, pp=2))
    (host, _), half_ns = hosts_of(state, "a"), 900 * SECOND_NS
    state = run(state, ReportHost(host, "predicted-failure"), now_ns=half_ns)
    assert now(state, SMALL.index_by_name[host]) is HostState.RETIRING
    plan = decide(state, half_ns, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), 2 * half_ns)
    state = schedule(state, 2 * half_ns)
    assert host not in hosts_of(state, "a")
    assert now(state, SMALL.index_by_name[host]) is HostState.IN_REPAIR


def test_a_gang_that_can_go_nowhere_stays_and_nobody_looks_in_vain() -> None:
    state = started(EMPTY, submit("a", 4))
    state = run(state, ReportHost(H, "predicted-failure"))
    for now_ns in (0, 1_800 * SECOND_NS):
        plan = decide(state, now_ns, SchedulingOptions())
        assert (plan.actions, plan.next_decision_ns) == ((), None)
    assert now(run(state, end("a"))) is HostState.IN_REPAIR


def test_an_interrupted_gang_leaves_its_retiring_hosts_at_once() -> None:
    state = started(EMPTY, submit("a", 2))
    one, other = hosts_of(state, "a")
    state = run(state, ReportHost(one, "predicted-failure"), ReportHost(other, "gpu-lost"))
    (event,) = (e for e in committed(state, decide(state, 5, SchedulingOptions()), 5))
    assert isinstance(event, GangSwapped)
    assert {swap.left for swap in event.swaps} == {one, other}


def fails(state: State, times: int) -> State:
    for i in range(times):
        state = run(state, ReportHost(H, "xid", xid=(48, 62, 64, 74, 79)[i]), now_ns=i * HOUR_NS)
        state = run(state, ReportHost(H, "ticket"), repair(H), now_ns=i * HOUR_NS + 1)
    return state


def of_lemons(action: LemonAction) -> LoadHealth:
    return LoadHealth(HealthPolicy(lemons=LemonPolicy(action=action)))


def said_to_be_lemons(state: State, *commands: ReportHost, now_ns: int) -> list[str]:
    """Why hosts are lemons, by the events of these commands."""
    texts = []
    for command in commands:
        events = admitted(state, command, now_ns)
        state = replay(events, state)
        texts += [e.detail for e in events if isinstance(e, HostSignalled) and e.signal == "lemon"]
    return texts


def test_lemons_are_only_reported_unless_the_policy_says_more() -> None:
    state = settled(fails(EMPTY, 5), 5 * HOUR_NS)
    assert lemon_signals(state.record(0), state.health.lemons, 5 * HOUR_NS)
    assert now(state) is HostState.HEALTHY


def test_a_host_that_becomes_a_lemon_is_said_to_be_one_once_until_it_is_back() -> None:
    excluded = [ReportHost(H, "excluded", f"job-{i}") for i in range(3)]
    trouble = ReportHost(H, "thermal")
    state = run(fails(EMPTY, 2), *excluded, now_ns=HOUR_NS + 2)
    text = "lemon: excl_jobid_count 3, tickets 2 in 28 days"
    later = 2 * HOUR_NS
    assert said_to_be_lemons(state, trouble, trouble, trouble, now_ns=later) == [text]
    state = run(state, trouble, now_ns=later)
    back = run(state, ReportHost(H, "gpu-lost"), repair(H), now_ns=later + 1)
    (again,) = said_to_be_lemons(back, trouble, trouble, now_ns=later + 2)
    assert again == text
    shown = run(
        state, of_lemons(LemonAction.SHOW), ReportHost(H, "gpu-lost"), repair(H), now_ns=later
    )
    assert said_to_be_lemons(shown, trouble, now_ns=later + 2) == []


def test_a_host_is_golden_by_its_measures_and_probes_too() -> None:
    state = EMPTY
    for number, value in enumerate((40, 100, 98, 102)):
        name = state.loaded_fabric.hosts[number]
        passed = ReportHost(name, "stress-test-passed")
        state = run(state, passed, ReportHost(name, "measured", f"memory={value}"), now_ns=5)
    state = run(state, ReportHost(state.loaded_fabric.hosts[1], "probed", "fan-fault: f"), now_ns=6)
    month = settled(state, 31 * DAY_NS)
    states = [now(month, index) for index in range(4)]
    assert states == [*[HostState.HEALTHY] * 2, *[HostState.GOLDEN] * 2]
    fast = run(month, ReportHost(H, "measured", "memory=99"), now_ns=32 * DAY_NS)
    assert now(settled(fast, 32 * DAY_NS)) is HostState.GOLDEN
    quiet = run(month, ReportHost(state.loaded_fabric.hosts[1], "probed"), now_ns=32 * DAY_NS)
    assert now(settled(quiet, 32 * DAY_NS), 1) is HostState.GOLDEN


@pytest.mark.parametrize(
    ("action", "then"),
    [(LemonAction.RETIRE, HostState.IN_REPAIR), (LemonAction.RMA, HostState.RMA)],
)
def test_a_lemon_leaves(action: LemonAction, then: HostState) -> None:
    state = run(fails(EMPTY, 2), of_lemons(action))
    state = run(state, *[ReportHost(H, "excluded", f"job-{i}") for i in range(3)], now_ns=HOUR_NS)
    state = run(state, ReportHost(H, "thermal"), now_ns=2 * HOUR_NS)
    state = settled(state, 2 * HOUR_NS)
    assert now(state) is then
    if then is HostState.RMA:
        assert "lemon: excl_jobid_count 3, tickets 2 in 28 days" in state.host(0).reason


def test_a_repaired_lemon_serves_until_the_next_trouble() -> None:
    state = run(fails(EMPTY, 2), of_lemons(LemonAction.RETIRE))
    assert now(settled(state, HOUR_NS * 3)) is HostState.HEALTHY


def test_the_seven_signals_are_counted_over_their_days() -> None:
    record, policy = HostRecord(), LemonPolicy()
    for tally in (
        DailyCount.OUT,
        DailyCount.MULTI,
        DailyCount.SINGLE,
        DailyCount.SINGLE,
        DailyCount.TICKET,
    ):
        record = record.counted(tally, 0)
    for _ in range(4):
        record = record.counted(DailyCount.START, 0)
    record = (
        record.record_signal("xid 79", 0)
        .record_signal("xid 79", 1)
        .record_signal("xid 48", 2)
        .record_signal("job a", 3)
    )
    found = seven_signals(record, policy, DAY_NS)
    assert (found.excl_jobid_count, found.xid_cnt, found.tickets, found.out_count) == (1, 2, 1, 1)
    assert (found.multi_node_node_fails, found.single_node_node_fails) == (1, 2)
    assert found.single_node_failure_percent == 50
    assert "single_node_failure_percent 50" in lemon_text(record, policy, DAY_NS)
    later = seven_signals(record, policy, 30 * DAY_NS)
    assert set(map(later.__getattribute__, type(later).__dataclass_fields__)) == {0}


def test_gangs_that_a_host_stops_are_told_apart_by_size() -> None:
    state = started(EMPTY, submit("a", 1))
    (alone,) = hosts_of(state, "a")
    index = SMALL.index_by_name[alone]
    record = run(state, ReportHost(alone, "gpu-lost")).record(index)
    assert {m.kind for m in record.days} == {DailyCount.START, DailyCount.OUT, DailyCount.SINGLE}
    pair = started(EMPTY, submit("a", 2))
    index = SMALL.index_by_name[hosts_of(pair, "a")[0]]
    record = run(pair, ReportHost(hosts_of(pair, "a")[0], "gpu-lost")).record(index)
    assert {m.kind for m in record.days} == {DailyCount.OUT, DailyCount.MULTI}


def test_a_record_is_bounded_and_forgets_nothing_that_counts() -> None:
    record = HostRecord()
    for i in range(1_000):
        record = record.marked(HostMark(i, "ecc-correctable", 2), 10_000)
    assert len(record.marks) <= MOST + 1
    assert record.amount("ecc-correctable", -1) == 2_000


def test_a_judgement_on_an_old_state_is_made_anew() -> None:
    state = suspect()
    plan = decide(state, state.judge_ns, SchedulingOptions())
    newer = run(state, ReportHost("z0-r0-h1", "stress-test-passed"), now_ns=1)
    events = committed(newer, plan, newer.judge_ns)
    text = "nothing more was reported"
    assert HostMoved(newer.judge_ns, H, HostMove.CLEAR, text, cause=Mover.POLICY) in events
    assert now(replay(events, newer)) is HostState.HEALTHY
