"""Signals of hosts, what the policy makes of them, and gangs that leave before a failure."""

import math

import msgspec
import pytest

from muster.structs import replace
from scheduler.core import HostState, SchedulingOptions, State, decide, explain, replay
from scheduler.core.model.commands import LoadHealth, LoadTenants, ReportHost
from scheduler.core.model.events import GangSwapped, HostMoved, HostSignalled
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.core.model.records.failure_rates import SuspicionCount
from scheduler.core.model.records.host import DAY_NS, MOST, DailyCount, HostMark, HostRecord
from scheduler.core.model.requests import parse_request_id
from scheduler.core.policies.health import (
    HealthPolicy,
    HealthRule,
    LemonAction,
    LemonPolicy,
    PreventionAction,
    PreventionPolicy,
)
from scheduler.core.policies.health_signals import DAY_S, SIGNALS, XID, Effect, Signal, Threshold
from scheduler.core.policies.tenants import OPEN
from scheduler.core.policies.xids import XIDS, Blame
from scheduler.core.rules.hosts.evaluation import lemon_signals, lemon_text, seven_signals
from scheduler.core.rules.hosts.prevention import (
    NextStop,
    failure_risk,
    preventive_swap,
    priced_swap,
)
from tests.build import (
    admitted,
    committed,
    cordon,
    drain,
    end,
    fabric,
    hosts_of,
    job,
    loaded,
    refused,
    repair,
    run,
    schedule,
    settled,
    started,
    submit,
    uncordon,
)
from tests.cases import case

H = "z0-r0-h0"
EMPTY = loaded(fabric(zones=2, racks=2, hosts=2))
THEN = {
    Effect.NOTE: HostState.HEALTHY,
    Effect.SUSPECT: HostState.SUSPECT,
    Effect.RETIRE: HostState.IN_REPAIR,  # nothing runs there
    Effect.FAIL: HostState.FAILED,
    Effect.INSTALL: HostState.NEW,
}
HOSTS = {name: signal for name, signal in SIGNALS.items() if not signal.is_domain and name != XID}


def now(state: State, name: str = H) -> HostState:
    return state.host(state.loaded_fabric.index_by_name[name]).state


def report(signal: str, **more: object) -> ReportHost:
    return ReportHost(H, signal, "a=1", **more)  # type: ignore[arg-type]


def test_one_report_does_what_the_table_says() -> None:
    for name in HOSTS:
        with case(name=name):
            state = run(EMPTY, report(name))
            assert now(state) is THEN.get(SIGNALS[name].effect, HostState.HEALTHY)


ROWS = [(n, t) for n, s in SIGNALS.items() for t in s.thresholds]


def test_a_threshold_is_met_by_so_many_and_by_none_fewer() -> None:
    for name, row in ROWS:
        with case(name=name, row=row):
            signal = Signal("", thresholds=(row,), has_value=SIGNALS[name].has_value)
            state = run(EMPTY, LoadHealth(HealthPolicy(rules=(HealthRule(name, signal),))))
            one = report(name, xid=63 if name == XID else 0)
            gap_ns = row.within_s * SECOND_NS // (min(row.count, 60) + 1)
            if signal.has_value:
                state = run(state, report(name, value=row.count - 1), now_ns=1)
            else:
                for i in range(row.count - 1):
                    state = run(state, one, now_ns=1 + i * gap_ns)
            assert now(state) is HostState.HEALTHY
            assert now(run(state, one, now_ns=row.within_s * SECOND_NS)) is THEN[row.then]
            late = run(state, one, now_ns=2 * row.within_s * SECOND_NS + 1)
            assert now(late) is HostState.HEALTHY


BLAMED = {
    Blame.APPLICATION: HostState.HEALTHY,
    Blame.COUNTS: HostState.HEALTHY,
    Blame.RETIRE: HostState.IN_REPAIR,
    Blame.FATAL: HostState.FAILED,
}


def test_an_xid_is_blamed_as_the_table_says() -> None:
    for code in XIDS:
        with case(code=code):
            state = run(EMPTY, report(XID, xid=code, gpu=3))
            record = state.record(0)
            assert now(state) is BLAMED[XIDS[code].blame]
            is_own = XIDS[code].blame is Blame.APPLICATION
            assert (record.trouble_ns, len(record.seen), record.reports) == (
                0,
                0 if is_own else 1,
                1,
            )


def test_unknown_xids_count() -> None:
    state = run(EMPTY, *[report(XID, xid=999)] * 3)
    assert now(state) is HostState.SUSPECT


def test_a_health_file_changes_what_a_report_does() -> None:
    milder = HealthPolicy(
        rules=(HealthRule("gpu-lost", Signal("", Effect.SUSPECT)),), xids=((79, Blame.COUNTS),)
    )
    state = run(EMPTY, LoadHealth(milder), report("gpu-lost"))
    assert now(state) is HostState.SUSPECT
    assert now(run(EMPTY, LoadHealth(milder), report(XID, xid=79))) is HostState.HEALTHY


def of_rule(signal: str, *thresholds: Threshold, effect: Effect = Effect.NOTE) -> State:
    rule = replace(SIGNALS[signal], effect=effect, thresholds=thresholds)
    return run(EMPTY, LoadHealth(HealthPolicy(rules=(HealthRule(signal, rule),))))


def test_a_host_goes_back_to_its_maker_where_the_site_says_so() -> None:
    state = of_rule("row-remap-failure", effect=Effect.RMA)
    gang = started(state, submit("a", 8))
    sent = run(gang, report("row-remap-failure", gpu=3))
    assert now(sent) is HostState.RMA
    assert sent.host(0).reason == "row-remap-failure: GPU 3: a=1"
    assert job(sent, "a").state.value == "interrupted"
    assert sent.record(0).failures == 1
    assert "back to the vendor" in refused(sent, repair(H)).message
    assert now(run(sent, report("row-remap-failure"))) is HostState.RMA
    broken = run(state, report("gpu-lost"), report("row-remap-failure"))
    assert now(broken) is HostState.RMA
    assert now(run(broken, report("installed"))) is HostState.NEW


def test_a_threshold_may_count_each_gpu_by_itself() -> None:
    state = of_rule("ecc-correctable", Threshold(10, DAY_S, Effect.RMA, per_gpu=True))
    spread = run(state, *[report("ecc-correctable", gpu=gpu, value=9) for gpu in range(8)])
    assert now(spread) is HostState.HEALTHY
    assert spread.record(0).amount("ecc-correctable", -1) == 72
    assert now(run(spread, report("ecc-correctable", gpu=5))) is HostState.RMA
    whole = of_rule("ecc-correctable", Threshold(10, DAY_S, Effect.RMA))
    two = [report("ecc-correctable", gpu=gpu, value=5) for gpu in (1, 2)]
    assert now(run(whole, *two)) is HostState.RMA


def test_what_a_probe_found_is_on_record_until_the_next_finds_nothing() -> None:
    state = run(EMPTY, ReportHost(H, "probed", "fan-fault: fan1"))
    assert (now(state), state.record(0).findings) == (HostState.HEALTHY, "fan-fault: fan1")
    assert state.record(0).trouble_ns == 0
    assert run(state, ReportHost(H, "probed")).record(0).findings == ""


def test_what_is_wrong_with_a_report_is_said_of_its_field() -> None:
    wrong = {
        "signal": report("smoke"),
        "xid": report(XID),
        "value": report("thermal", value=3),
        "gpu": report("gpu-lost", gpu=8),
        "detail": ReportHost(H, "excluded"),
    }
    for field, command in wrong.items():
        assert refused(EMPTY, command).violations[0].field == field
    assert refused(EMPTY, report("thermal", xid=3)).violations[0].field == "xid"
    assert refused(EMPTY, ReportHost("x", "thermal")).missing == ("host", "x")
    assert refused(EMPTY, ReportHost("x", "tor-down")).missing == ("domain", "x")
    assert "z0-r0 is a domain" in refused(EMPTY, ReportHost("z0-r0", "repaired")).message


def test_a_switch_takes_its_rack_in_one_report_and_brings_back_no_other_host() -> None:
    state = started(run(EMPTY, ReportHost("z0-r0-h1", "gpu-lost")), submit("a", 5))
    first, *events = admitted(state, ReportHost("z0-r0", "tor-down", "power", "r1"), 5)
    assert msgspec.structs.replace(first, request_id="") == HostSignalled(
        5, "z0-r0", "tor-down", "power"
    )
    assert parse_request_id(first.request_id).id == "r1"
    text = "tor-down: z0-r0: power"
    assert events == [HostMoved(5, H, HostMove.FAIL, text, "", Mover.SIGNAL, "tor-down")]
    state = replay([first, *events], state)
    assert job(state, "a").state.value == "interrupted"
    assert admitted(state, ReportHost("z0-r0", "tor-down", "power", "r1")) == ()
    state = run(state, ReportHost("z0-r0", "tor-up"))
    assert now(state) is HostState.HEALTHY
    assert now(state, "z0-r0-h1") is HostState.FAILED


def test_a_switch_is_not_held_against_its_hosts() -> None:
    record = run(EMPTY, ReportHost("z0-r0", "switch-down")).record(0)
    assert (record.trouble_ns, record.failures, record.days) == (0, 0, ())


@pytest.mark.parametrize("command", [cordon(H), drain(H)])
def test_an_operators_cordon_outlasts_failure_repair_and_burn_in(command: object) -> None:
    state = run(EMPTY, command, report("gpu-lost"))  # type: ignore[arg-type]
    assert now(run(state, repair(H))) is HostState.CORDONED
    tested = run(EMPTY, LoadHealth(HealthPolicy(has_burn_in=True)), command)  # type: ignore[arg-type]
    tested = run(tested, report("predicted-failure"), repair(H))
    assert now(tested) is HostState.BURN_IN
    tested = run(tested, report("stress-test-passed"))
    assert now(tested) is HostState.CORDONED
    lifted = run(state, repair(H), uncordon(H), report("gpu-lost"), repair(H))
    assert now(lifted) is HostState.HEALTHY


def test_a_machine_in_use_cannot_be_another() -> None:
    assert "drain it first" in refused(started(EMPTY, submit("a", 8)), report("installed")).message


SMALL = fabric(zones=1, racks=2, hosts=2)
ONE_ZONE = loaded(SMALL)
HOUR_NS = 3_600 * SECOND_NS


def suspect(state: State = ONE_ZONE, now_ns: int = 0) -> State:
    return run(state, *[ReportHost(H, "link-flap")] * 3, now_ns=now_ns)


def test_gangs_take_hosts_last_that_a_burn_in_measured_as_slow() -> None:
    state = ONE_ZONE
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


def test_why_a_job_waits_for_a_suspect_is_said() -> None:
    state = started(suspect(), submit("a", 4))
    sentence = explain(state, "a", 0, SchedulingOptions()).sentence
    assert "4 are free, 1 of them suspect and for preemptible jobs only" in sentence


def test_trouble_keeps_a_suspect_longer() -> None:
    state = run(suspect(), ReportHost(H, "thermal"), now_ns=HOUR_NS)
    state = settled(state, state.judge_ns)
    assert now(state) is HostState.SUSPECT  # looked at in vain
    assert now(settled(state, state.judge_ns)) is HostState.HEALTHY


def test_the_early_life_of_a_host_ends() -> None:
    state = run(ONE_ZONE, ReportHost(H, "gpu-lost"), ReportHost(H, "installed"))
    state = run(state, ReportHost(H, "stress-test-passed"), now_ns=7)
    assert state.early == 1
    assert settled(state, 31 * DAY_NS).early == 0


def test_a_gang_leaves_a_retiring_host_when_it_has_just_saved() -> None:
    state = started(ONE_ZONE, submit("a", 2, pp=2))
    (host, _), half_ns = hosts_of(state, "a"), 900 * SECOND_NS
    state = run(state, ReportHost(host, "predicted-failure"), now_ns=half_ns)
    assert now(state, host) is HostState.RETIRING
    plan = decide(state, half_ns, SchedulingOptions())
    assert (plan.actions, plan.next_decision_ns) == ((), 2 * half_ns)
    state = schedule(state, 2 * half_ns)
    assert host not in hosts_of(state, "a")
    assert now(state, host) is HostState.IN_REPAIR


def test_a_gang_that_can_go_nowhere_stays_and_nobody_looks_in_vain() -> None:
    state = started(ONE_ZONE, submit("a", 4))
    state = run(state, ReportHost(H, "predicted-failure"))
    for now_ns in (0, 1_800 * SECOND_NS):
        plan = decide(state, now_ns, SchedulingOptions())
        assert (plan.actions, plan.next_decision_ns) == ((), None)
    assert now(run(state, end("a"))) is HostState.IN_REPAIR


def test_an_interrupted_gang_leaves_its_retiring_hosts_at_once() -> None:
    state = started(ONE_ZONE, submit("a", 2))
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
    state = settled(fails(ONE_ZONE, 5), 5 * HOUR_NS)
    assert lemon_signals(state.record(0), state.health.lemons, 5 * HOUR_NS)
    assert now(state) is HostState.HEALTHY


def test_a_host_that_becomes_a_lemon_is_said_to_be_one_once_until_it_is_back() -> None:
    excluded = [ReportHost(H, "excluded", f"job-{i}") for i in range(3)]
    trouble = ReportHost(H, "thermal")
    state = run(fails(ONE_ZONE, 2), *excluded, now_ns=HOUR_NS + 2)
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
    state = ONE_ZONE
    for number, value in enumerate((40, 100, 98, 102)):
        name = state.loaded_fabric.hosts[number]
        passed = ReportHost(name, "stress-test-passed")
        state = run(state, passed, ReportHost(name, "measured", f"memory={value}"), now_ns=5)
    state = run(state, ReportHost(state.loaded_fabric.hosts[1], "probed", "fan-fault: f"), now_ns=6)
    month = settled(state, 31 * DAY_NS)
    states = [month.host(index).state for index in range(4)]
    assert states == [*[HostState.HEALTHY] * 2, *[HostState.GOLDEN] * 2]
    fast = run(month, ReportHost(H, "measured", "memory=99"), now_ns=32 * DAY_NS)
    assert now(settled(fast, 32 * DAY_NS)) is HostState.GOLDEN
    quiet = run(month, ReportHost(state.loaded_fabric.hosts[1], "probed"), now_ns=32 * DAY_NS)
    assert settled(quiet, 32 * DAY_NS).host(1).state is HostState.GOLDEN


@pytest.mark.parametrize(
    ("action", "then"),
    [(LemonAction.RETIRE, HostState.IN_REPAIR), (LemonAction.RMA, HostState.RMA)],
)
def test_a_lemon_leaves(action: LemonAction, then: HostState) -> None:
    state = run(fails(ONE_ZONE, 2), of_lemons(action))
    state = run(state, *[ReportHost(H, "excluded", f"job-{i}") for i in range(3)], now_ns=HOUR_NS)
    state = run(state, ReportHost(H, "thermal"), now_ns=2 * HOUR_NS)
    state = settled(state, 2 * HOUR_NS)
    assert now(state) is then
    if then is HostState.RMA:
        assert "lemon: excl_jobid_count 3, tickets 2 in 28 days" in state.host(0).reason


def test_a_repaired_lemon_serves_until_the_next_trouble() -> None:
    state = run(fails(ONE_ZONE, 2), of_lemons(LemonAction.RETIRE))
    assert now(settled(state, HOUR_NS * 3)) is HostState.HEALTHY


def test_the_seven_signals_are_counted_over_their_days() -> None:
    record, policy = HostRecord(), LemonPolicy()
    stopped = [DailyCount.OUT, DailyCount.MULTI, DailyCount.SINGLE, DailyCount.SINGLE]
    for each in (*stopped, DailyCount.TICKET, *[DailyCount.START] * 4):
        record = record.counted(each, 0)
    for at, signal in enumerate(("xid 79", "xid 79", "xid 48", "job a")):
        record = record.record_signal(signal, at)
    found = seven_signals(record, policy, DAY_NS)
    assert (found.excl_jobid_count, found.xid_cnt, found.tickets, found.out_count) == (1, 2, 1, 1)
    assert (found.multi_node_node_fails, found.single_node_node_fails) == (1, 2)
    assert found.single_node_failure_percent == 50
    assert "single_node_failure_percent 50" in lemon_text(record, policy, DAY_NS)
    later = seven_signals(record, policy, 30 * DAY_NS)
    assert set(map(later.__getattribute__, type(later).__dataclass_fields__)) == {0}


def test_gangs_that_a_host_stops_are_told_apart_by_size() -> None:
    state = started(ONE_ZONE, submit("a", 1))
    (alone,) = hosts_of(state, "a")
    index = SMALL.index_by_name[alone]
    record = run(state, ReportHost(alone, "gpu-lost")).record(index)
    assert {m.kind for m in record.days} == {DailyCount.START, DailyCount.OUT, DailyCount.SINGLE}
    pair = started(ONE_ZONE, submit("a", 2))
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


FLAP = "link-flap"


def policy(action: PreventionAction, ratio: float, **more: float) -> LoadHealth:
    prevention = PreventionPolicy(action, ((FLAP, ratio),), **more)  # type: ignore[arg-type]
    return LoadHealth(HealthPolicy(prevention=prevention))


def suspected(action: PreventionAction, ratio: float, hosts: int = 2) -> tuple[State, HostMoved]:
    """A gang of so many of four hosts, the first of which has become suspect, and its move."""
    state = started(run(ONE_ZONE, policy(action, ratio)), submit("a", hosts))
    host = hosts_of(state, "a")[0]
    state = run(state, *[ReportHost(host, FLAP)] * 2)
    (move,) = [e for e in admitted(state, ReportHost(host, FLAP)) if isinstance(e, HostMoved)]
    return run(state, ReportHost(host, FLAP)), move


def test_a_swap_is_priced_against_the_failures_until_the_next_stop() -> None:
    state = started(ONE_ZONE, submit("a", 2))
    costs = replace(OPEN.preemption.costs, checkpoint_s=1000, restart_s=100, detect_s=20)
    terms = replace(OPEN.preemption, costs=costs)
    state = run(state, LoadTenants(replace(OPEN, preemption=terms)))
    gpus = state.loaded_fabric.gpus_per_host
    risk = NextStop(1, 0.01, math.inf).risk(1, 9)
    assert risk == pytest.approx(8 / 10)  # of 10 failures 9 are its own, 1 would be anyway
    swap = priced_swap(state, job(state, "a"), risk, repair_s=50)
    assert swap.loss_s == pytest.approx(0.8 * (500 + 100 + 20) * 2 * gpus)
    assert swap.price_s == pytest.approx((100 * 2 + 0.2 * 50) * gpus)
    assert swap.pays
    assert not priced_swap(state, job(state, "a"), 0.1, repair_s=50).pays


def test_a_gang_that_ends_soon_has_less_to_lose() -> None:
    assert NextStop(1, 0.01, 1).risk(1, 9) == pytest.approx(0.8 * (1 - math.exp(-0.1)))
    assert NextStop(1, 0.01, math.inf).risk(1, 1) == 0  # a host like all others


def test_a_policy_that_shows_says_what_a_swap_is_worth_and_moves_nothing() -> None:
    state, move = suspected(PreventionAction.SHOW, 1000)
    assert "% above that of another host: staying is expected to cost" in move.reason
    host = state.loaded_fabric.index_by_name[move.host]
    assert state.host(host).state is HostState.SUSPECT
    assert host in job(state, "a").hosts


def test_a_gang_leaves_at_its_checkpoint_where_the_policy_swaps_and_it_pays() -> None:
    state, move = suspected(PreventionAction.SWAP, 1000)
    host = state.loaded_fabric.index_by_name[move.host]
    assert state.host(host).state is HostState.RETIRING
    assert "a swap" in move.reason
    assert host in job(state, "a").hosts
    state = settled(state, 1800 * SECOND_NS)
    assert host not in job(state, "a").hosts
    assert state.host(host).state is HostState.IN_REPAIR


@pytest.mark.parametrize(("ratio", "hosts"), [(1.5, 2), (1000, 4)])
def test_a_gang_stays_where_it_does_not_pay_or_no_host_is_free(ratio: float, hosts: int) -> None:
    state, move = suspected(PreventionAction.SWAP, ratio, hosts)
    index = state.loaded_fabric.index_by_name[move.host]
    assert state.host(index).state is HostState.SUSPECT
    assert ("a swap" in move.reason) is (hosts == 2)


def test_nothing_is_said_while_the_policy_is_off_or_nothing_runs_there() -> None:
    _, move = suspected(PreventionAction.OFF, 1000)
    assert move.reason == FLAP
    assert preventive_swap(run(ONE_ZONE, policy(PreventionAction.SWAP, 9)), 0, FLAP, 0) is None


def test_an_early_life_multiplies_what_is_stated() -> None:
    state = started(run(ONE_ZONE, policy(PreventionAction.SHOW, 3, early_ratio=2)), submit("a", 2))
    index = state.loaded_fabric.index_by_name[hosts_of(state, "a")[0]]
    old = preventive_swap(state, index, FLAP, 0)
    records = {index: replace(state.record(index), service_ns=1)}
    new = preventive_swap(replace(state, records=records), index, FLAP, 2)
    assert (old.risk, new.risk) == (pytest.approx(2 / 4), pytest.approx(5 / 7))


def test_what_became_of_suspect_hosts_outweighs_what_was_stated() -> None:
    stated, stop = PreventionPolicy(ratios=((FLAP, 10),), evidence=20), NextStop(90, 0.01, math.inf)
    assert failure_risk(stated, None, FLAP, stop) == pytest.approx(9 / 100)
    assert failure_risk(stated, None, "thermal", stop) == 0
    # Half of them failed, after a day: 100 times as often as others.
    seen = SuspicionCount(FLAP, 60, 30, 30 * DAY_NS)
    logged = (0.5 * 100 - 1) / 190
    assert failure_risk(stated, seen, FLAP, stop) == pytest.approx((20 * 0.09 + 60 * logged) / 80)
    harmless = SuspicionCount(FLAP, 980, 0, 0)
    assert failure_risk(stated, harmless, FLAP, stop) == pytest.approx(0.09 / 50)


def test_the_log_counts_how_times_of_suspicion_end() -> None:
    host, other = ONE_ZONE.loaded_fabric.hosts[:2]
    state = run(ONE_ZONE, *[ReportHost(host, FLAP)] * 3, *[ReportHost(other, FLAP)] * 3)
    assert not state.faults.suspicions
    state = run(state, ReportHost(host, "gpu-lost"), now_ns=DAY_NS // 2)
    state = run(state, repair(host), now_ns=DAY_NS // 2)
    state = settled(state, DAY_NS)  # the other one is cleared
    assert state.faults.suspicions == (SuspicionCount(FLAP, 2, 1, DAY_NS // 2),)
    state = run(state, *[ReportHost(host, FLAP)] * 3, now_ns=DAY_NS)
    state = run(state, ReportHost("z0-r0", "tor-down"), now_ns=2 * DAY_NS)  # not the host's fault
    assert state.faults.suspicions == (SuspicionCount(FLAP, 3, 1, DAY_NS // 2),)
    last = ONE_ZONE.loaded_fabric.hosts[-1]  # retires, so whether it would have failed is not known
    state = run(state, *[ReportHost(last, FLAP)] * 3, now_ns=2 * DAY_NS)
    state = run(state, ReportHost(last, "predicted-failure"), now_ns=2 * DAY_NS)
    assert state.host(state.fabric.host_count - 1).state is HostState.IN_REPAIR
    assert state.faults.suspicions == (SuspicionCount(FLAP, 3, 1, DAY_NS // 2),)
