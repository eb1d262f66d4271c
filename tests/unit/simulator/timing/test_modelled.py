"""Replays under time models, small enough to follow by hand."""

import pytest

from muster.structs import replace
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from placement.workload.training import Batch, ModelShape
from scheduler.core import SchedulingOptions, Tenants, replay
from scheduler.core.fold.attempts import AttemptLeft, EffectReader
from scheduler.core.model.events import (
    FabricLoaded,
    GangSwapped,
    HostMoved,
    JobEnded,
    JobStarted,
    JobSubmitted,
)
from scheduler.core.model.job import JobSpec
from scheduler.core.model.lifecycle import JobState
from scheduler.core.model.scheduling_options import Overrun
from scheduler.core.policies.tenants import Restarts
from simulator.failures import Outage, parse
from simulator.kernel import SimulationKernel
from simulator.launcher import SimulatedLauncher
from simulator.replay import NO_ADVANCE
from simulator.timing import PARTS, ModelledTiming, TimeModel, load_time_model
from simulator.timing.flat import FlatTiming
from simulator.timing.network import ALONE, GangLoad, NetworkModel, UplinkLoad
from simulator.timing.store import CheckpointStore, Crowding
from simulator.traces.record import SECOND_NS, TraceJob
from tests.build import fabric_spec, placed, request, spec
from tests.replays import World, down, machine, replayed, trace_job, up

HOUR = 3600
FORGIVING = Tenants(restarts=Restarts(avoid_s=0))  # a gang takes back the host that stopped it
# 10 s to notice, 5 + 3 + 2 + 10 s to start again, 1,000 s of work and 4 s of writing by turns
PLAIN = (
    "default,detection.default_s=10,detection.by_cause.quick=0,process_start_s=5,"
    "checkpoint.interval_s=1000,checkpoint.gb_per_gpu=1,checkpoint.write_gb_per_s=0.5,"
    "checkpoint.load_gb_per_s=1,checkpoint.stall_s=0,warmup_s=10"
)


def times(more: str = "") -> TimeModel:
    found = load_time_model(PLAIN + more)
    point = found.communicators[0].model_copy(update={"gpus": 2, "seconds": 3})
    return found.model_copy(update={"communicators": [point]})


def split(world: World) -> dict[str, float]:
    """Host-seconds by what they went into, without what is 0."""
    assert world.modelled
    parts = {name: getattr(world.modelled.host_time, name) / SECOND_NS for name in PARTS}
    return {name: value for name, value in parts.items() if value}


def test_writes_come_between_intervals_and_never_at_the_end() -> None:
    def end_s(run_s: int) -> float:
        return replayed(machine(2), [trace_job("a", 0, run_s, 2)], times=times()).ends_s()["a"]

    assert end_s(1_000) == 1_000
    assert end_s(1_001) == 1_005
    assert end_s(3_000) == 3_008


def test_an_interruption_by_hand() -> None:
    """Fails at 2,500 s: 2 x 1,004 s are saved, 492 s are not. 10 s unnoticed, 5 + 3 + 2 +
    10 s to start, then 1,600 s of work with one write."""
    world = interrupted(down(2_500, "z0-h0"))

    assert world.of(HostMoved)[0].time_ns == 2_510 * SECOND_NS
    assert world.ends_s() == {"a": 2_510 + 20 + 1_600 + 4}
    assert split(world) == {
        "productive": 2 * HOUR,
        "rework": 2 * 492,
        "restart": 2 * 20,
        "checkpoint": 2 * 3 * 4,
        "detection": 2 * 10,
    }


def interrupted(*outages: Outage, more: str = "") -> World:
    """An hour of a gang of two hosts of three."""
    job = trace_job("a", 0, HOUR, gpus=2)
    return replayed(machine(3), [job], outages=outages, times=times(more), tenants=FORGIVING)


def test_detection_depends_on_the_cause_and_a_process_that_crashes_starts_again_in_place() -> None:
    quick = interrupted(replace(down(2_500, "z0-h0"), cause="quick"))
    assert quick.ends_s() == {"a": 2_500 + 20 + 1_600 + 4}

    crashed = interrupted(down(2_500, "z0-h0"), up(2_500, "z0-h0"))
    assert [event.swaps for event in crashed.of(GangSwapped)] == [()]
    assert crashed.ends_s() == {"a": 2_510 + 20 + 1_600 + 4}


def test_a_gang_on_a_host_that_failed_unnoticed_stands_still() -> None:
    """The host is free when it fails at 95 s and is heard of at 105 s; the gang starts on it
    at 100 s."""
    jobs = [trace_job("first", 0, 1), trace_job("a", 100, 500, 2)]
    world = replayed(machine(3), jobs, outages=[down(95, "z0-h0")], times=times())
    started = next(event for event in world.of(JobStarted) if event.name == "a")

    assert "z0-h0" in started.hosts
    assert world.ends_s()["a"] == 105 + 20 + 500
    assert split(world)["detection"] == 2 * 5


@pytest.mark.parametrize(
    ("kind", "same_hosts", "load_s"),
    [
        ("remote", False, 2.0),  # 2 GB at 1 GB/s
        ("peer", False, 1.0),  # each host its GB
        ("local", True, 1.0),
        ("local", False, 4.0),  # the disk went with the host: 2 GB at 0.5 GB/s
    ],
)
def test_what_a_load_takes(kind: str, same_hosts: bool, load_s: float) -> None:
    outages = [down(2_500, "z0-h0"), *([up(2_500, "z0-h0")] if same_hosts else [])]
    more = f",checkpoint.kind={kind},checkpoint.remote_gb_per_s=0.5"

    assert split(interrupted(*outages, more=more))["restart"] == 2 * (5 + 3 + load_s + 10)


def test_the_state_of_a_model_is_counted_by_its_parameters() -> None:
    """Llama 3 405B: 405.9 B x 12 bytes over 2 TB/s are 2.4 s, and 7.6 s of stall: 10 s."""
    from placement.workload.flops import parameter_count
    from scripts.published.traffic import LLAMA3_RUNS

    request, roce = LLAMA3_RUNS[1], machine(2_048, 8)
    timing = ModelledTiming(roce, load_time_model("llama3"))
    timing.expect("a", 1_000 * SECOND_NS, request, 2_048)
    timing.begin(placed("a", roce.hosts))

    write_s = 12 * parameter_count(request.model) / 2e12 + 7.6
    assert write_s == pytest.approx(10, abs=0.05)
    assert timing.end_ns("a", 0) == pytest.approx((1_000 + 2 * write_s) * SECOND_NS)


def spread(name: str, run_s: float, hosts: int, submit_s: float = 0, nbytes: int = 10) -> TraceJob:
    """A gang in pairs of replicas that send much between hosts."""
    request = Request(Parallelism(dp=8 * hosts), traffic=(("dp", nbytes),), spares=NO_SPARES)
    spec = JobSpec(name, request, 0, None)
    return TraceJob(
        name, round(submit_s * SECOND_NS), round(run_s * SECOND_NS), 0, 8 * hosts, spec=spec
    )


def test_a_gang_over_a_narrow_uplink_takes_as_much_longer() -> None:
    narrow = fabric(oversubscription=64)
    world = replayed(narrow, [spread("a", 1_000, 16)], times=load_time_model("default"))
    hosts = next(e.hosts for e in world.log if isinstance(e, JobStarted))
    stretch = NetworkModel(narrow, 0.3).load(spread("a", 1, 16).spec.request, hosts).stretch  # type: ignore[union-attr]

    assert stretch > 1.05
    assert world.ends_s()["a"] == pytest.approx(1_000 * stretch, rel=1e-5)
    assert split(world)["network"] == pytest.approx(16 * 1_000 * (stretch - 1), rel=1e-3)
    flat = load_time_model("default,network.is_modelled=false")
    assert replayed(narrow, [spread("a", 1_000, 16)], times=flat).ends_s()["a"] == 1_000


def test_gangs_that_share_an_uplink_slow_each_other_until_one_ends() -> None:
    """Two gangs of 8 hosts on the free halves of two zones, one of them half as long."""
    narrow = fabric(oversubscription=64)
    network = NetworkModel(narrow, 0.3)
    timing = ModelledTiming(narrow, load_time_model("default"))
    hosts = {
        "a": tuple(f"z{i // 4}-h{i % 4}" for i in range(8)),
        "b": tuple(f"z{i // 4}-h{4 + i % 4}" for i in range(8)),
    }
    request = spread("x", 1, 8).spec.request  # type: ignore[union-attr]
    load = network.load(request, hosts["a"])
    shared = load.stretch_with({sent.link: sent.mean for sent in load.sent})
    for name, names in hosts.items():
        timing.expect(name, 100 * SECOND_NS, request, 8)
        timing.begin(placed(name, names))

    assert shared > load.stretch > 1
    assert set(timing.changed()) == {"a", "b"}
    assert timing.end_ns("a", 0) == pytest.approx(100 * shared * SECOND_NS, rel=1e-5)

    half_ns = round(50 * shared * SECOND_NS)
    timing.leave(AttemptLeft(placed("b", hosts["b"]), half_ns, JobState.FAILED))

    assert timing.changed() == ("a",)
    expected_s = 50 * shared + 50 * load.stretch
    assert timing.end_ns("a", half_ns) == pytest.approx(expected_s * SECOND_NS, rel=1e-4)


def test_the_parts_add_up_to_what_was_held() -> None:
    narrow = fabric(oversubscription=64)
    jobs = [spread(f"j{i}", 50_000 + 977 * i, 3 + i % 4, 1_000 * i) for i in range(12)]
    outages = parse("poisson:rate=400,repair_h=2;poisson:rate=100,repair_h=0,cause=quick")
    world = replayed(
        narrow, jobs, outages=outages(narrow, 1), times=times(), until_s=400_000, decision_ns=5
    )
    assert world.modelled
    account = world.metrics.spent()
    told = world.metrics.parts() | world.metrics.totals(narrow.host_count)

    assert world.metrics.restarts > 20
    assert all(value >= 0 for value in told["host_s"].values())
    assert sum(told["host_s"].values()) * SECOND_NS == pytest.approx(account.hosts.total)
    assert sum(told["job_s"].values()) * SECOND_NS == pytest.approx(account.time.total)
    assert told["host_s"]["checkpoint"] > 0 < told["host_s"]["network"]
    assert told["goodput"] < account.share  # which takes writes and slow steps for work


def test_a_job_whose_restart_outlasts_its_limit_is_given_up() -> None:
    """The first attempt saves 1,000 s and loses 96 s. The next loads for 200 s and more, so that
    it would not reach its checkpoint in 1,100 s, nor would any after it."""
    limits = SchedulingOptions(policy="fifo", overrun=Overrun.REQUEUE)
    job = trace_job("a", 0, 5_000, 2, limit_s=1_100)
    slow = times(",checkpoint.load_gb_per_s=0.01")
    world = replayed(machine(2), [job], times=slow, options=limits, until_s=100_000)

    (end,) = world.of(JobEnded)
    assert (end.outcome, end.reason) == (JobState.CANCELLED, NO_ADVANCE)
    assert end.time_ns == 2_200 * SECOND_NS
    assert len(world.of(JobStarted)) == 2

    patient = replace(job, time_limit_ns=1_300 * SECOND_NS)
    world = replayed(machine(2), [patient], times=slow, options=limits, until_s=100_000)
    assert world.rows["a"].outcome is JobState.COMPLETED


# --- writes of checkpoints -----------------------------------------------------------

# 96 s of work and 4 s of writing by turns, of a gang of two hosts with a GPU each.
TIMES = (
    "default,checkpoint.interval_s=96,checkpoint.gb_per_gpu=1,checkpoint.write_gb_per_s=0.5,"
    "checkpoint.load_gb_per_s=0.5,checkpoint.stall_s=0"
)


def store(gpus: int, changes: str) -> CheckpointStore:
    return CheckpointStore(machine(4, gpus), load_time_model(f"default{changes}").checkpoint)


@pytest.mark.parametrize(
    ("hosts", "kind", "write_s"),
    [
        (1, "remote", 20.0),  # 8 TB by eight cards of 50 GB/s; the store would take 4 s
        (2, "remote", 20.0),
        (8, "remote", 32.0),  # 64 TB: the store is slower than 64 cards
        (2, "peer", 20.0),
        (2, "local", 4.0),  # its own disks, 2 TB/s each
    ],
)
def test_a_host_writes_no_faster_than_its_cards(hosts: int, kind: str, write_s: float) -> None:
    point = store(8, f",checkpoint.gb_per_gpu=1000,checkpoint.kind={kind}")
    assert point.write_s(request(tp=8, dp=hosts)) == pytest.approx(write_s)


@pytest.mark.parametrize(
    ("gangs", "end_s"),
    [
        (1, 961 + 10 * 4),  # nobody to wait for
        (2, 1_001 * 100.16 / 100),  # the other one writes 4 % of the time: a write takes 4.16 s
        (50, 2 * 1_001),  # each asks for 4 %, two stores' worth: 100 s of the clock take 200 s
    ],
)
def test_gangs_that_share_the_store_write_longer(gangs: int, end_s: float) -> None:
    jobs = [trace_job(f"j{i}", 0, 961, 2) for i in range(gangs)]
    world = replayed(machine(2 * gangs), jobs, times=load_time_model(TIMES))

    assert world.ends_s()["j0"] == pytest.approx(end_s, rel=5e-4)
    waited_s = world.modelled.host_time.checkpoint / SECOND_NS / (2 * gangs)
    assert waited_s == pytest.approx(world.ends_s()["j0"] - 961, abs=1)
    assert world.modelled.host_time.network == 0


def test_a_gang_goes_on_at_full_pace_when_the_others_have_ended() -> None:
    jobs = [trace_job("a", 0, 961, 2), trace_job("b", 0, 193, 2)]
    world = replayed(machine(4), jobs, times=load_time_model(TIMES))
    ends_s = world.ends_s()

    assert ends_s["b"] == pytest.approx(201 * 1.0016, abs=0.01)
    assert ends_s["a"] - 1_001 == pytest.approx(ends_s["b"] - 201, abs=0.01)


def test_a_gang_that_writes_nothing_is_neither_slowed_nor_in_the_way() -> None:
    """The runs of all but one are shorter than the interval."""
    jobs = [trace_job("a", 0, 961, 2), *(trace_job(f"j{i}", 0, 90, 2) for i in range(9))]
    ends_s = replayed(machine(20), jobs, times=load_time_model(TIMES)).ends_s()

    assert ends_s["a"] == 1_001
    assert set(ends_s.values()) == {1_001, 90}


def test_who_is_crowded_is_named_as_writers_come_and_go() -> None:
    half = store(
        1, ",checkpoint.interval_s=1,checkpoint.gb_per_gpu=25,checkpoint.write_gb_per_s=50"
    )
    gang = request(tp=1, dp=1)  # writes for half a second, a third of its time

    assert half.crowding("nobody") == Crowding()
    assert list(half.begin("a", gang)) == ["a"]
    assert half.crowding("a").stretch == pytest.approx(1)
    assert list(half.begin("b", gang)) == ["a", "b"]
    assert half.crowding("a").stretch == pytest.approx(4 / 3)
    assert half.load_stretch(gang) == pytest.approx(5 / 3)
    assert list(half.end("b")) == ["a"]
    assert half.end("b") == ()
    assert half.crowding("a") == Crowding(1.0, pytest.approx(1 / 3))


MODEL = ModelShape(
    layers=16, hidden=2048, ffn=8192, heads=16, kv_heads=16, vocab=32_000, sequence=2048
)


def fabric(oversubscription: float = 8, zones: int = 2) -> Fabric:
    return from_spec(
        {
            "name": "two",
            "gpus_per_host": 8,
            "tiers": [
                {"name": "zone", "count": zones, "oversubscription": oversubscription},
                {"name": "host", "count": 8},
            ],
        }
    )


def gang(hosts: int, model: ModelShape | None = MODEL) -> Request:
    if model is None:
        return Request(Parallelism(dp=8 * hosts), traffic=(("dp", 1_000),))
    batch = Batch(global_sequences=hosts * 4)
    return Request(Parallelism(tp=8, dp=hosts), model=model, batch=batch)


def alternating(hosts: int) -> list[str]:
    """Every other rank in the other zone: the worst order for a ring."""
    return [f"z{i % 2}-h{i // 2}" for i in range(hosts)]


def in_order(hosts: int) -> list[str]:
    return [f"z{2 * i // hosts}-h{i % (hosts // 2)}" for i in range(hosts)]


# --- stretches of placements and of neighbours, against step times ------------------


def test_a_gang_inside_a_domain_is_as_fast_as_can_be() -> None:
    network = NetworkModel(fabric(), 0.3)

    assert network.load(gang(8), [f"z0-h{i}" for i in range(8)]) is ALONE
    assert network.load(gang(1), ["z1-h3"]) is ALONE
    wide = NetworkModel(fabric(oversubscription=1), 0.3)  # nor does any placement cost there
    assert wide.load(gang(8), alternating(8)) is ALONE


def test_a_worse_placement_takes_as_much_longer_as_its_step_does() -> None:
    """Against placement.objective.step_time on both fabrics."""
    narrow = fabric()
    best_s = step_time(machine(8, gpus=8), gang(8), range(8)).seconds
    hosts = alternating(8)
    expected = step_time(narrow, gang(8), narrow.indices(hosts)).seconds / best_s
    load = NetworkModel(narrow, 0.3).load(gang(8), hosts)

    assert load.stretch == pytest.approx(expected)
    assert load.stretch > NetworkModel(narrow, 0.3).load(gang(8), in_order(8)).stretch >= 1
    assert load.stretch_with({}) == pytest.approx(load.stretch)  # not stretched twice
    assert all(s.mean <= s.peak <= 1 for s in load.sent)


def test_without_a_model_the_share_of_communication_grows_with_the_slowest_uplink() -> None:
    """A ring of one rank a host and rail: every edge of the alternating order crosses, so
    a zone sends as much as its four used hosts do; 8 hosts share an eighth of their rate."""
    request = gang(8, model=None)
    load = NetworkModel(fabric(), 0.25).load(request, alternating(8))

    # 4 of 8 hosts send; the uplink has the rate of one host
    busy = load.sent[0].mean * load.stretch
    assert load.stretch == pytest.approx(0.75 + busy)
    assert load.stretch > 1
    assert NetworkModel(fabric(), 0.0).load(request, alternating(8)).stretch == 1


def test_neighbours_stretch_what_waits_once_the_uplink_is_full() -> None:
    load = GangLoad(
        1.0, 0.2, (UplinkLoad(("zone", 0), 0.6, 0.3), UplinkLoad(("zone", 1), 0.5, 0.3))
    )

    assert load.stretch_with({}) == 1
    assert load.stretch_with({("zone", 0): 0.4}) == 1  # 0.6 while talking + 0.4: just fits
    assert load.stretch_with({("zone", 0): 0.6}) == pytest.approx(1 + 0.2 * 0.2)
    assert load.stretch_with({("zone", 1): 0.9}) == pytest.approx(1.2)  # 0.3 + 0.9 on average


def test_the_same_shape_in_the_same_domains_is_computed_once() -> None:
    network = NetworkModel(fabric(), 0.3)
    first = network.load(gang(8), in_order(8))
    swapped = ["z0-h7", *in_order(8)[1:]]

    assert network.load(gang(8), swapped) is first
    assert network.load(replace(gang(8), batch=Batch(64)), swapped) is not first


# --- two numbers for every gang -----------------------------------------------------


def test_an_adopted_job_on_a_part_of_a_host_has_done_what_its_own_time_says() -> None:
    """It holds two GPUs of a host, whose time is shared among all that hold some."""
    state = replay(
        [
            FabricLoaded(0, fabric_spec()),
            JobSubmitted(0, "u", spec("part", gpus=2)),
            JobStarted(0, "part", 1, ("z0-r0-h0",), (), (), 0, gpus=(0, 1)),
            GangSwapped(2_400 * SECOND_NS, "part", 2, (), ()),
        ]
    )
    job = state.jobs["part"]
    done_s = job.goodput.time.productive // SECOND_NS
    timing = FlatTiming(lambda: state)
    timing.expect("part", 5_000 * SECOND_NS, job.request, 1)
    launcher = SimulatedLauncher(SimulationKernel(), lambda _: None, timing, EffectReader())
    launcher.adopt(state)

    restart_s = state.tenants.preemption.costs.overhead_ns(2) // SECOND_NS
    ends_s = timing.end_ns("part", 2_400 * SECOND_NS) // SECOND_NS
    assert (done_s > 0, ends_s) == (True, 2_400 + restart_s + 5_000 - done_s)
