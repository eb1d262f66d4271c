"""The step as what is minimised: no peer's layout is faster, no layout beats the bound."""

import random
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from placement import consecutive, place
from placement.fabric import hostset
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from placement.objective.cut import cut
from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_time import Pipeline, step_time
from placement.tiers.step_clock import LEAST_PRICE, RESOLUTION, StepClock
from placement.workload.request import Objective, Placement, Request
from placement.workload.traffic import FULL_PRICE
from placement.workload.training import Batch
from scheduler.files.job import job_from_mapping
from tests.build import place_checked, regular, request
from tests.integration.placement.jobs import DENSE, EXPERTS, job_with_model

ROOT = Path(__file__).parents[3]


def _request(axes: dict[str, int], model: dict[str, Any], sequences: int) -> Request:
    return job_with_model(axes, sequences, model, objective="time")


JOBS = {
    "dense": _request({"tp": 2, "pp": 2, "dp": 2}, DENSE, 4),
    "one micro-batch": _request({"tp": 2, "pp": 4}, DENSE, 1),
    "replicas": _request({"tp": 2, "dp": 4}, DENSE, 4),
    "experts": _request({"ep": 8}, EXPERTS, 8),
    "experts and stages": _request({"ep": 4, "pp": 2}, EXPERTS, 8),
}


def _fabric(
    zone: float, rack: float, zones: int = 2, racks: int = 2, hosts: int = 2, gpus: int = 2
) -> Fabric:
    tiers = ("zone", zones, {"oversubscription": zone}), ("rack", racks, {"oversubscription": rack})
    return regular(*tiers, ("host", hosts), gpus=gpus, nic_gbps=50)


@pytest.mark.parametrize("job", JOBS)
def test_layouts_of_other_schedulers_are_never_faster(job: str) -> None:
    fabric, request = _fabric(7, 2, zones=4, racks=3, hosts=4), JOBS[job]
    rng = random.Random(job)
    for _ in range(5):
        free = np.array(sorted(rng.sample(range(48), 24)))
        answer = place_checked(fabric, hostset.of(free.tolist()), request)
        assert answer.step is not None
        by_cut = place_checked(
            fabric, hostset.of(free.tolist()), replace(request, objective=Objective.CUT)
        )
        for hosts in (by_cut.hosts, free[:4], consecutive(fabric)(free, 4)):
            peer = step_time(fabric, request, hosts).seconds
            assert answer.step.seconds <= peer * (1 + 1 / RESOLUTION)
            assert answer.step.least_seconds <= peer * (1 + 1e-9)


def test_bytes_that_hide_have_the_least_price() -> None:
    fabric, request = _fabric(7, 1), JOBS["dense"]
    clock = StepClock(fabric, request)
    prices = dict(clock.prices(clock.step((0, 4, 1, 5))))
    share = fitted_constants().exposed["tp"] * (1 + float(Pipeline.of(request).bubble))
    assert prices["tp"] == pytest.approx(FULL_PRICE * share, abs=1)  # the rest hides behind GEMMs
    assert prices["pp"] < FULL_PRICE
    # Of two stages, which keep two micro-batches under way, each waits for half of a round trip.
    many = _request({"tp": 2, "pp": 2, "dp": 2}, DENSE, 4_000)
    clock = StepClock(fabric, many)
    assert dict(clock.prices(clock.step((0, 4, 1, 5))))["pp"] == pytest.approx(500, abs=1)
    # With chunks more are under way, and only the first micro-batch of many waits, unless messages
    # take longer than compute.
    many = replace(many, batch=Batch(4_000, 1, 2))
    clock = StepClock(fabric, many)
    assert dict(clock.prices(clock.step((0, 2, 1, 3))))["pp"] == LEAST_PRICE
    assert dict(clock.prices(clock.step((0, 4, 1, 5))))["pp"] > LEAST_PRICE


def test_a_network_that_never_holds_up_the_step_gives_its_bound() -> None:
    fabric, request = _fabric(1, 1), JOBS["experts"]
    answer = place_checked(fabric, hostset.of(range(8)), request)
    assert answer.step is not None
    assert answer.step.seconds == answer.step.least_seconds


def test_hosts_with_faster_cards_count_for_the_bound_and_are_taken() -> None:
    """The slow ones come first by name."""
    tiers = [{"name": "zone"}, {"name": "rack"}, {"name": "host"}]
    slow = {"name": "a", "domains": [{"name": "a0", "hosts": 4, "nic_gbps": 100}]}
    fast = {"name": "b", "domains": [{"name": "b0", "hosts": 4, "nic_gbps": 400}]}
    spec = {"name": "f", "gpus_per_host": 2, "tiers": tiers, "domains": [slow, fast]}
    built = from_spec(spec)
    gang = replace(
        request(tp=2, dp=4, traffic={"dp": 10**11}), compute_s=0.1, objective=Objective.TIME
    )
    answer = place_checked(built, hostset.of(range(8)), gang)
    assert answer.step is not None
    assert answer.hosts == (4, 5, 6, 7)
    assert answer.step.seconds == answer.step.least_seconds
    mixed = place_checked(built, hostset.of([0, 1, 2, 4, 5, 6]), gang)
    assert mixed.step is not None
    assert mixed.step.seconds == pytest.approx(4 * answer.step.seconds, rel=0.01)
    assert mixed.step.least_seconds == answer.step.least_seconds


STAGES_OR_REPLICAS = _request({"tp": 2, "pp": 2, "dp": 2}, DENSE, 4)


@pytest.mark.parametrize("slack", [0.0, 0.02, 1.0])
def test_the_least_cut_wins_among_steps_within_the_slack(slack: float) -> None:
    fabric = _fabric(7, 1, hosts=1)
    request = replace(STAGES_OR_REPLICAS, cut_slack=slack)
    answer = place_checked(fabric, hostset.full(4), request)
    assert answer.step is not None
    layouts = [
        (step_time(fabric, request, hosts).seconds, cut(fabric, request, hosts)[0].bytes_per_step)
        for hosts in permutations(range(4))
    ]
    shortest = min(seconds for seconds, _ in layouts)
    allowed = [bytes_ for seconds, bytes_ in layouts if seconds <= shortest * (1 + slack + 1e-9)]
    assert answer.cut <= min(allowed)
    assert answer.step.least_seconds <= shortest * (1 + 1e-9)
    assert answer.step.seconds <= shortest * (1 + slack + 1 / RESOLUTION)


def test_llama_405b_sends_the_least_between_zones_and_the_answer_states_the_trade() -> None:
    job = yaml.safe_load((ROOT / "examples/llama3-405b.yaml").read_text())
    request, fabric = job_from_mapping(job).request, preset("roce-24k")
    everywhere = hostset.full(fabric.host_count)
    tidy = place(fabric, everywhere, request)
    fast = place(fabric, everywhere, replace(request, cut_slack=0.0))
    assert isinstance(tidy, Placement)
    assert isinstance(fast, Placement)
    assert tidy.step is not None
    assert fast.step is not None
    assert (tidy.cut, tidy.is_optimal) == (5_497_558_138_880, True)
    assert fast.cut > 2.5 * tidy.cut
    longer, fewer = tidy.step.seconds / fast.step.seconds - 1, 1 - tidy.cut / fast.cut
    assert 0 < longer < 0.003
    (given_up,) = [note for note in tidy.notes if "cut_slack" in note]
    assert f"{100 * longer:.1f} % longer" in given_up
    assert f"{100 * fewer:.0f} % fewer bytes between zones" in given_up
    (kept,) = [note for note in fast.notes if "cut_slack" in note]
    assert "more than cut_slack (0)" in kept


def test_experts_of_a_small_gang_step_no_longer_than_on_random_hosts() -> None:
    """One rank a host, on 20 free hosts of thin zones: the least cuts made one uplink of them
    the busiest by far, and their steps 9 % longer than the best of 60 random ones."""
    on = _fabric(8, 2, zones=4, hosts=4, gpus=1)
    sent = {"ep": 1_000_000_000, "dp": 1_250_000_000}
    gang = replace(
        request(ep=8, dp=2, traffic=sent),
        batch=Batch(64, 1),
        compute_s=0.4,
        objective=Objective.TIME,
    )
    rng = random.Random(6)
    by_zone = [rng.sample(range(8 * z, 8 * z + 8), k) for z, k in enumerate((5, 4, 6, 5))]
    free = sorted(host for hosts in by_zone for host in hosts)
    answer = place_checked(on, hostset.of(free), gang)
    drawn = (step_time(on, gang, rng.sample(free, 16)).seconds for _ in range(60))
    assert step_time(on, gang, answer.hosts).seconds <= min(drawn)


def test_two_stages_of_two_replicas_share_a_thin_rack() -> None:
    """Four blocks of one stage would send all they have for the next one over half of an uplink,
    four stages of one replica four rings; the square meets neither, and the step its bound."""
    fabric = _fabric(1, 2, zones=2, racks=4, hosts=4)
    job = _request({"tp": 2, "pp": 8, "dp": 4}, {**DENSE, "layers": 16}, 32)
    job = replace(job, batch=Batch(32, 1, 2))
    answer = place_checked(fabric, hostset.full(32), job)
    assert answer.step is not None
    assert answer.step.seconds == pytest.approx(answer.step.least_seconds)
    one_stage = step_time(fabric, job, [4 * s + d for d in range(4) for s in range(8)])
    assert one_stage.seconds > 1.01 * answer.step.seconds
