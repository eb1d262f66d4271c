"""The data of a run, against what the run itself says."""

import json
from typing import Any

import pytest

from placement.workload.request import SpareRule
from scheduler.core import State, apply
from scheduler.core.fold.apply import effects
from scheduler.core.fold.attempts import EffectReader
from scheduler.core.model.events import FabricLoaded, HostMoved
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.policies.costs import Costs
from simulator import failures
from simulator.collectors.failure_counts import FailureCounts
from simulator.collectors.invariants import InvariantViolated
from simulator.collectors.metrics import Metrics
from simulator.collectors.report_data import ReportData
from simulator.collectors.size_classes import LARGEST, label
from simulator.experiment import Experiment
from simulator.failures import Outage
from simulator.replay import Replay
from simulator.timing import EMPTY, TimeAccount, load_time_model
from tests.build import regular
from tests.replays import down, machine, replayed, trace_job, up

COSTS = Costs(checkpoint_s=600, restart_s=60)
FABRIC = regular(("zone", 4), ("host", 4))


def collected(*given: Any, **more: Any) -> tuple[dict[str, Any], Metrics]:
    """The data of a replay, and its totals; arguments as of `replayed`."""
    world = replayed(*given, costs=COSTS, **more)
    data, reader, state = ReportData(world.fabric), EffectReader(), State.empty()
    for event in world.log:
        state = apply(state, event)
        data.feed(event, reader.read(event, state), state)
    for row in world.rows.values():
        data.ended(row)
    return data.data(world.metrics.settled()), world.metrics


def test_parts_of_host_time_add_up_to_all_of_it_and_agree_with_the_totals() -> None:
    jobs = [trace_job(f"j{i}", i * 700, 500 + 97 * i % 9000, 8 * (1 + i % 7)) for i in range(50)]
    model = "poisson:rate=900,repair_h=2,cause=gpu;poisson:rate=400,repair_h=1,cause=switch"
    outages = failures.parse(model)(FABRIC, 5)
    data, metrics = collected(FABRIC, jobs, outages=outages, spares=SpareRule(hosts=1))
    parts, spent = data["host_s"], metrics.spent().hosts
    assert sum(parts.values()) == pytest.approx(16 * data["span_s"], rel=1e-12)
    assert all(part >= 0 for part in parts.values())
    assert parts["repeated"] > 0 < parts["spare"]
    assert parts["kept"] * 1e9 == pytest.approx(spent.productive)
    ran = sum(parts[each] for each in ("kept", "repeated", "unnoticed", "restarting"))
    assert ran * 1e9 == pytest.approx(spent.running)
    held = ran + parts["stopped"] + parts["spare"]
    assert held * 1e9 == pytest.approx(spent.holding)
    assert sum(c["failures"] for c in data["faults"]["causes"]) == metrics.host_failures
    assert {c["cause"] for c in data["faults"]["causes"]} == {"gpu", "switch"}
    assert sum(found["jobs"] for found in data["sizes"]) == 50
    assert json.loads(json.dumps(data)) == data


def test_with_a_time_model_the_waterfall_has_what_it_knows() -> None:
    """Writes and slow starts, which the scheduler takes for work, have bars of their own."""
    jobs = [trace_job(f"j{i}", i * 700, 9_000, 8 * (1 + i % 7)) for i in range(20)]
    outages = failures.parse("poisson:rate=900,repair_h=2")(FABRIC, 5)
    times = load_time_model("default,checkpoint.interval_s=600,checkpoint.stall_s=20")
    data, metrics = collected(FABRIC, jobs, outages=outages, times=times)
    parts, known = data["host_s"], metrics.parts()["host_s"]

    pairs = (("kept", "productive"), ("repeated", "rework"), ("unnoticed", "detection"))
    pairs += (("restarting", "restart"), ("saving", "checkpoint"), ("slowed", "network"))
    assert {bar: parts[bar] for bar, _ in pairs} == {bar: known[name] for bar, name in pairs}
    assert known["checkpoint"] > 0 < known["rework"]
    assert metrics.spent().hosts.productive / 1e9 > known["productive"]
    assert sum(parts.values()) == pytest.approx(16 * data["span_s"], rel=1e-12)


def test_parts_that_do_not_add_up_are_no_story() -> None:
    data, effects = ReportData(machine(2)), EffectReader()
    with pytest.raises(ValueError, match="begins with its fabric"):
        data.data(EMPTY)
    Replay(
        Experiment(machine(2)),
        [trace_job("a", 0, 100)],
        lambda event, state: data.feed(event, effects.read(event, state), state),
    ).run()
    with pytest.raises(InvariantViolated, match="the parts are"):
        data.data(TimeAccount(productive=10**15))


def test_what_waits_and_what_idles() -> None:
    """One host of two: b wants both and waits 100 s while one idles; none idles after."""
    data, _ = collected(machine(2), [trace_job("a", 0, 100), trace_job("b", 0, 50, gpus=2)])

    assert [size["class"] for size in data["sizes"]] == ["1 GPU", "2-8 GPUs"]
    assert label(len(LARGEST)) == "over 4,096 GPUs"
    assert data["host_s"]["idle_wanted"] == 100
    assert data["host_s"]["idle_unwanted"] == 0
    assert data["timeline"]["series"]["queued_jobs"][:101] == [1.0] * 100 + [0.0]
    assert data["timeline"]["series"]["queued_hosts"][0] == 2
    assert [found["job"] for found in data["longest_waits"]] == ["b", "a"]


@pytest.mark.parametrize(("later", "down_s"), [([up(300, "z0-h2")], 200), ([], 900)])
def test_a_host_that_fails_is_out_of_service_until_repaired(
    later: list[Outage], down_s: float
) -> None:
    data, _ = collected(machine(3), [trace_job("a", 0, 1000)], outages=[down(100, "z0-h2"), *later])

    assert data["host_s"]["down"] == down_s
    (cause,) = data["faults"]["causes"]
    assert cause == {"cause": "test", "failures": 1, "stopped_gangs": 0, "down_host_s": down_s}


def test_the_signal_is_no_part_of_a_cause() -> None:
    """A colon in the words of a person or a policy does not part a signal from a cause."""
    state = apply(State.empty(), FabricLoaded(0, machine(2).spec))
    for signal, reason, cause in (
        ("host-down", "host-down: gpu: row 3", "gpu: row 3"),
        ("gpu-lost", "gpu-lost", "gpu-lost"),
        ("", "silent: no heartbeat", "silent: no heartbeat"),
        ("", "", "unknown"),
    ):
        event = HostMoved(1, "z0-h0", HostMove.FAIL, reason, signal=signal)
        counts = FailureCounts()
        counts.feed(1, effects(state, event, apply(state, event)), ())
        assert [each["cause"] for each in counts.data(2)["causes"]] == [cause]


def test_a_spare_that_steps_in_is_counted() -> None:
    jobs, outages = [trace_job("a", 0, 1000, gpus=2)], [down(700, "z0-h0")]
    data, _ = collected(machine(3), jobs, outages=outages, spares=SpareRule(hosts=1))

    assert data["faults"]["spares_used"] == 1
    assert data["faults"]["answers"] == [
        {"answer": "swapped to a spare", "gangs": 1, "stood_s": 0.0}
    ]
    # 700 s run, 600 of them saved; 60 s to restart, then 400 s
    assert data["host_s"]["repeated"] == 2 * 100
    assert data["host_s"]["restarting"] == 2 * 60
    assert data["span_s"] == 700 + 60 + 400
