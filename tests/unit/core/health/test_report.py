"""Every row of the tables of signals and XIDs does what it says."""

import msgspec
import pytest

from muster.structs import replace
from scheduler.core import HostState, State, replay
from scheduler.core.model.commands import LoadHealth, ReportHost
from scheduler.core.model.events import HostMoved, HostSignalled
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import HostMove, Mover
from scheduler.core.model.requests import parse_request_id
from scheduler.core.policies.health import HealthPolicy, HealthRule
from scheduler.core.policies.health_signals import DAY_S, SIGNALS, XID, Effect, Signal, Threshold
from scheduler.core.policies.xids import XIDS, Blame
from tests.build import (
    admitted,
    cordon,
    drain,
    fabric,
    job,
    loaded,
    refused,
    repair,
    run,
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


def test_a_switch_takes_its_rack_in_one_report_and_brings_back_no_other_host() -> None:
    state = started(run(EMPTY, ReportHost("z0-r0-h1", "gpu-lost")), submit("a", 5))
    first, *events = admitted(state, ReportHost("z0-r0", "tor-down", "power", "r1"), 5)
    assert isinstance(first, HostSignalled)
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


def test_logs_without_the_second_event_replay_as_they_did() -> None:
    old = [HostMoved(1, H, m) for m in (HostMove.CORDON, HostMove.FAIL, HostMove.REPAIR)]
    state = replay([*old, HostMoved(2, H, HostMove.CORDON)], EMPTY)
    assert now(state) is HostState.CORDONED


def test_a_machine_in_use_cannot_be_another() -> None:
    assert "drain it first" in refused(started(EMPTY, submit("a", 8)), report("installed")).message
