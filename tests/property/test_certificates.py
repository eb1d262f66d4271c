"""Certificates: the checker refuses none that the engine writes, and all that were tampered with.

Whoever tampers is given the digests for nothing: they are made anew after each change, so that it
is the arithmetic which refuses.
"""

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.bound import CutBound, Refused, grid_of
from muster.certificate import SEALED, Malformed, digest
from muster.verify import crossing, verify
from placement import place
from placement.fabric import hostset
from placement.fabric.links import with_links
from placement.fabric.tree import Fabric
from placement.grid.block_grid import block_grid
from placement.objective.step_time import step_time
from placement.tiers.stage_bands import banded_layouts
from placement.tiers.step_clock import step_clock
from placement.workload.request import Placement, Request
from placement.workload.traffic import axis_traffic
from placement.workload.training import Batch, Sync
from scheduler.files.certificates import certificate
from tests.build import place_checked, request, training, two_tiers
from tests.property.grids import requests

Content = dict[str, Any]


def fabric(sizes: list[int], free: list[int], has_nvlink_racks: bool = False) -> tuple[Fabric, int]:
    """Zones of so many hosts with two GPUs, the first of each free, in racks of three."""
    racks = [[min(3, size - first) for first in range(0, size, 3)] for size in sizes]
    rack = {"scale_up": {"gbps_per_gpu": 7200}} if has_nvlink_racks else {}
    built = two_tiers(*racks, gpus=2, zone={"oversubscription": 7}, rack=rack)
    begin = [sum(sizes[:z]) for z in range(len(sizes))]
    hosts = [first + i for first, n in zip(begin, free, strict=True) for i in range(n)]
    return built, hostset.of(hosts)


@st.composite
def certificates(draw: st.DrawFn) -> Content | None:
    """Of a random gang on random zones; None where it has no room."""
    gang = draw(requests(most=36))
    if draw(st.booleans()):
        gang = draw(timed(gang))
    sizes = draw(st.lists(st.integers(1, 14), min_size=2, max_size=6))
    built, free = fabric(
        sizes, [draw(st.integers(size // 2, size)) for size in sizes], draw(st.booleans())
    )
    answer = place(built, free, gang)
    return certificate(built, free, gang, answer) if isinstance(answer, Placement) else None


@st.composite
def timed(draw: st.DrawFn, gang: Request) -> Request:
    """Of which the step is known: bytes by hand, from a thousandth of compute to far more."""
    size = draw(st.sampled_from((10**5, 10**8, 10**10)))
    sync = draw(st.sampled_from(list(Sync)))
    return replace(
        gang,
        traffic=tuple((axis, each * size + each) for axis, each in gang.traffic),
        compute_s=draw(st.sampled_from((0.001, 0.25, 3.0))),
        batch=Batch(draw(st.sampled_from((8, 48, 500))), 1, draw(st.sampled_from((1, 2)))),
        training=training(sync=sync.value, data_parallel=draw(st.sampled_from(("fsdp", "ddp")))),
    )


@settings(max_examples=20)
@given(content=certificates())
def test_no_certificate_of_the_engine_is_refused(content: Content | None) -> None:
    if content is None:
        return
    report = verify(json.loads(json.dumps(content)))
    bounds = content["claims"]["bounds"]
    assert report.bounds == {b["tier"]: (b["bytes"], b["engine_bytes"]) for b in bounds}
    claim = content["claims"]["step"]
    assert (report.step is None) == (claim is None)
    if report.step is not None:
        assert report.step[1] > 0, "the bound of a step is never nothing"


def test_small_gangs_are_confirmed_in_full() -> None:
    """What sizes or branches of the engine prove is written down whole."""
    for content in written():
        assert verify(content).is_whole
    kinds = {content["claims"]["bounds"][0]["proof"]["by"] for content in written()}
    assert kinds == {"sizes", "prices"}


@cache
def written() -> tuple[Content, ...]:
    """Certificates of gangs that cross zones, some by sizes and some by prices."""
    gangs: list[tuple[Request, list[int]]] = [
        (request(tp=2, pp=2, dp=5, traffic={"dp": 3, "pp": 2}), [5, 4, 3]),
        (request(tp=2, pp=2, dp=6, traffic={"dp": 4, "pp": 3}), [5, 4, 4]),
        (request(tp=2, pp=3, dp=7, traffic={"dp": 5, "pp": 2}), [9, 8, 7, 2]),
        (request(tp=2, pp=4, dp=5, traffic={"dp": 3, "pp": 7}), [9, 8, 7, 2]),
        (request(tp=2, pp=3, cp=2, dp=4, traffic={"dp": 3, "pp": 2, "cp": 9}), [11, 9, 7]),
        (request(tp=4, pp=5, dp=5, traffic={"tp": 30, "dp": 3, "pp": 2}), [17, 16, 15, 13]),
    ]
    found = []
    for gang, room in gangs:
        built, free = fabric([n + 2 for n in room], room)
        answer = place_checked(built, free, gang)
        assert answer.lower_bound
        found.append(certificate(built, free, gang, answer))
    return tuple(found)


def sealed(content: Content) -> Content:
    """With the digests that it should have."""
    content["digests"] = {part: digest(content[part]) for part in SEALED}
    return content


# --- what steps and their bounds rest on -----------------------------------------


@st.composite
def steps(draw: st.DrawFn) -> Request:
    return draw(timed(draw(requests(most=36))))


@settings(max_examples=40)
@given(request=steps(), seed=st.integers(0, 99), has_racks=st.booleans())
def test_no_layout_is_faster_than_its_bound(request: Request, seed: int, has_racks: bool) -> None:
    random, blocks = np.random.default_rng(seed), request.hosts_needed(2)
    sizes = [max(2, blocks // 2), max(3, blocks // 3), blocks, 4]
    built, free = fabric(sizes, sizes, has_racks)
    shares = (float(random.choice((0, 0.1, 0.5, 1))) for _ in built.tiers[0].domains)
    built = with_links(built, dict(zip(built.tiers[0].domains, shares, strict=True)))
    hosts = hostset.indices(free)
    least = step_clock(built, request).bound(hosts)
    for _ in range(4):
        layout = random.permutation(hosts)[:blocks].tolist()
        assert step_time(built, request, layout).seconds >= least * (1 - 1e-9)
    grid, layout = block_grid(request, 2), hosts[:blocks].tolist()
    assert step_time(built, request, layout).seconds >= least * (1 - 1e-9)
    for banded in banded_layouts(built, grid, hosts, layout) if grid else ():
        assert len(set(banded) & set(hosts.tolist())) == blocks
        assert step_time(built, request, banded).seconds >= least * (1 - 1e-9)


@settings(max_examples=60)
@given(request=steps(), seed=st.integers(0, 99), chunks=st.integers(1, 3))
def test_hops_are_no_less_than_the_busiest_link(request: Request, seed: int, chunks: int) -> None:
    request = replace(request, batch=Batch(48, 1, chunks))
    axis_traffic(request)
    blocks = request.hosts_needed(2)
    built, free = fabric([blocks, 4, 3], [blocks, 4, 3])
    layout = np.random.default_rng(seed).permutation(hostset.indices(free))[:blocks].tolist()
    for axis in step_time(built, request, layout).axes:
        if axis.load.traffic.axis == "pp" and axis.load.hops:
            assert sum(axis.load.hops) >= axis.load.seconds * (1 - 1e-9)


# --- whatever the prices are ---------------------------------------------------


def any_counter(rng: random.Random, rows: int, most: int) -> dict[str, int]:
    row = rng.randrange(-1, rows)
    if rng.random() < 0.5:
        return {"row": row, "least": rng.randrange(most + 2)}
    run, rise = rng.randint(1, 6), rng.randint(1, 4)
    return {"row": row, "rise": rise, "run": run, "top": rng.randint(1, run)}


def any_tree(rng: random.Random, counters: int, leaves: int, depth: int) -> Any:
    if depth == 0 or not counters or rng.random() < 0.3:
        return rng.randrange(leaves)
    below, above = (any_tree(rng, counters, leaves, depth - 1) for _ in range(2))
    which, at_most = rng.randrange(counters), rng.randrange(5)
    return {"counter": which, "at_most": at_most, "below": below, "above": above}


def any_proof(rng: random.Random, rows: int, most: int) -> dict[str, Any]:
    """Prices as somebody might invent them."""
    charge = rng.choice(("own", "shared"))
    if rng.random() < 0.1:
        return {"by": "sizes", "charge": charge}
    scale = rng.randint(1, 4)
    counters = [any_counter(rng, rows, most) for _ in range(rng.randrange(4))]
    prices = [
        {
            "rows": [rng.randint(-2, 12) * scale for _ in range(rows)],
            "counters": [
                [i, rng.randint(-9, 9)] for i in range(len(counters)) if rng.random() < 0.7
            ],
        }
        for _ in range(rng.randint(1, 3))
    ]
    tree = any_tree(rng, len(counters), len(prices), 3)
    proof = {"by": "prices", "charge": charge, "scale": scale, "counters": counters}
    return {**proof, "prices": prices, "tree": tree}


@settings(max_examples=40)
@given(
    gang=requests(most=6),
    room=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    seed=st.integers(0),
)
def test_no_proof_goes_above_the_best_layout_there_is(
    gang: Request, room: list[int], seed: int
) -> None:
    """All layouts are counted, and 50 inventions of a liar are put to the checker."""
    built, free = fabric(room, room)
    answer = place(built, free, gang)
    if not isinstance(answer, Placement):
        return
    content = certificate(built, free, gang, answer)
    traffic, blocks = content["job"]["traffic"], content["job"]["ranks"] // 2
    layouts = product(range(len(room)), repeat=blocks)
    fitting = (each for each in layouts if all(each.count(z) <= n for z, n in enumerate(room)))
    best = min(
        sum(crossing(axis, [zone for zone in each for _ in range(2)]) for axis in traffic)
        for each in fitting
    )
    assert content["claims"]["cuts"][0]["bytes"] >= best
    grid, rng = grid_of(traffic, 2), random.Random(seed)
    for _ in range(50):
        proof = any_proof(rng, grid.rows, max(room))
        try:
            doubled = CutBound(grid, sorted(room, reverse=True), proof).bound()
        except Refused:
            continue
        assert doubled * grid.unit <= 2 * best, proof


# --- changes that matter ------------------------------------------------------

CHANGES = (
    "cut is smaller",
    "total is another",
    "bound is above the cut",
    "bound falls",
    "nothing proves it",
    "prices are nothing",
    "host is taken twice",
    "host is not free",
    "host is missing",
    "host is unknown",
    "free set is another",
    "hosts have other GPUs",
    "axis sends more",
    "gang must lie in one zone",
    "gang may lie in one zone",
)


def change(what: str, content: Content, rng: random.Random) -> None:
    claims, job, names = content["claims"], content["job"], content["fabric"]["hosts"]
    cut, bound, hosts = claims["cuts"][0], claims["bounds"][0], claims["hosts"]
    one, other = rng.sample(range(len(hosts)), 2)
    match what:
        case "cut is smaller":
            axis, sent = rng.choice(sorted(cut["by_axis"].items()))
            less = rng.randint(1, sent)
            cut["bytes"] -= less
            cut["by_axis"][axis] -= less
        case "total is another":
            rng.choice(claims["cuts"])["bytes"] += rng.choice((1, 2, 100))
        case "bound is above the cut":
            bound["bytes"] = bound["engine_bytes"] = cut["bytes"] + rng.randint(1, 9)
        case "bound falls":
            bound["engine_bytes"] = rng.randrange(bound["bytes"])
        case "nothing proves it":
            bound["proof"] = {"by": "nothing"}
        case "prices are nothing":
            stages = next(t["size"] for t in job["traffic"] if t["axis"] == "pp")
            prices = [{"rows": [0] * stages, "counters": []}]
            nothing = {"by": "prices", "scale": rng.randint(1, 99), "counters": [], "tree": 0}
            bound["proof"] = {**nothing, "charge": bound["proof"]["charge"], "prices": prices}
        case "host is taken twice":
            hosts[one] = hosts[other]
        case "host is not free":
            free = [is_free for is_free, many in content["free"] for _ in range(many)]
            hosts[one] = rng.choice(
                [n for n, is_free in zip(names, free, strict=True) if not is_free]
            )
        case "host is missing":
            hosts.pop(one)
        case "host is unknown":
            hosts[one] += "x"
        case "free set is another":
            content["free"] = [[0, len(names)]]
        case "hosts have other GPUs":
            content["fabric"]["gpus"] = [[rng.choice((1, 3, 4, 8)), len(names)]]
        case "axis sends more":
            sending = [t for t in job["traffic"] if t["axis"] in cut["by_axis"]]
            rng.choice(sending)["edge_bytes"] += rng.randint(1, 9)
        case "gang must lie in one zone":
            job["same"] = "zone"
        case "gang may lie in one zone":
            job["max_zones"] = 1


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_matters_is_refused(what: str) -> None:
    for seed, content in enumerate(2 * written()):
        changed = deepcopy(content)
        change(what, changed, random.Random(f"{what}/{seed}"))
        assert changed != content
        with pytest.raises(Refused):
            verify(sealed(changed))


# --- changes of the step, and of what an inner tier is proved to cut ---------------


@cache
def timed_and_inner() -> tuple[Content, ...]:
    """Certificates of gangs whose steps uplinks hold up, and of gangs in one zone."""
    mega = 10**9
    across = request(tp=2, pp=2, dp=6, traffic={"dp": 400 * mega, "pp": 3 * mega})
    across = replace(across, compute_s=0.1, batch=Batch(48))
    within = request(tp=2, pp=2, dp=6, traffic={"dp": 4 * mega, "pp": 3 * mega})
    within = replace(within, compute_s=0.1, batch=Batch(48))
    found = []
    for gang, room, racks in (
        (across, [5, 4, 4], False),
        (across, [5, 5, 5], True),
        (within, [14, 4, 4], False),
        (within, [14, 13], True),
    ):
        built, free = fabric([n + 2 for n in room], room, racks)
        answer = place_checked(built, free, gang)
        found.append(certificate(built, free, gang, answer))
    return tuple(found)


def test_steps_and_inner_bounds_are_confirmed() -> None:
    reports = [verify(content) for content in timed_and_inner()]
    assert all(report.step is not None for report in reports)
    assert [sorted(report.bounds) for report in reports] == [
        *2 * [["zone"]],
        *2 * [["rack", "zone"]],
    ]
    assert all(report.bounds["rack"][0] > 0 for report in reports[2:])


def _scaled(pair: list[int], by: Fraction) -> list[int]:
    scaled = Fraction(*pair) * by
    return [scaled.numerator, scaled.denominator]


def _near_one(rng: random.Random) -> Fraction:
    return 1 + rng.choice((-1, 1)) * Fraction(rng.randint(1, 1000), 10**6)


STEP_CHANGES = (
    "step is another",
    "step bound passes the step",
    "step bound falls",
    "compute is longer",
    "pipeline is longer",
    "step is left out",
    "all links are faster",
)


def change_step(what: str, content: Content, rng: random.Random) -> None:
    claim, facts = content["claims"]["step"], content["job"]["step"]
    links = content["fabric"]["links"]
    match what:
        case "step is another":
            claim["seconds"] = _scaled(claim["seconds"], _near_one(rng))
        case "step bound passes the step":
            more = Fraction(*claim["seconds"]) + Fraction(1, rng.randint(1, 10**6))
            claim["least_seconds"] = [more.numerator, more.denominator]
            claim["engine_least_seconds"] = claim["least_seconds"]
        case "step bound falls":
            share = Fraction(rng.randint(0, 999), 1000)
            claim["engine_least_seconds"] = _scaled(claim["least_seconds"], share)
        case "compute is longer":  # so much that no link is busy as long
            facts["compute_s"] = _scaled(facts["compute_s"], Fraction(rng.randint(10**4, 10**6)))
        case "pipeline is longer":
            facts["pipeline"]["stages"] += rng.randint(1, 9)
        case "step is left out":
            rng.choice((content["job"], content["claims"]))["step"] = None
        case "all links are faster":  # of a step that waits for any of them
            by = rng.randint(2, 9)
            for runs in (links["scale_up"], links["nic"], *links["uplinks"]):
                for pair in runs:
                    pair[0] *= by


@pytest.mark.parametrize("what", STEP_CHANGES)
def test_a_change_of_the_step_is_refused(what: str) -> None:
    for seed, content in enumerate(3 * timed_and_inner()):
        changed = deepcopy(content)
        change_step(what, changed, random.Random(f"{what}/{seed}"))
        assert changed != content
        with pytest.raises(Refused, match="step"):
            verify(sealed(changed))


def test_a_step_bound_that_does_not_follow_is_refused() -> None:
    """Where the step is above the bound, the bound is claimed to be a little nearer."""
    for content in timed_and_inner():
        claim = content["claims"]["step"]
        seconds, least = Fraction(*claim["seconds"]), verify(content).step
        assert least is not None
        if seconds < Fraction(*claim["least_seconds"]) * (1 + Fraction(1, 10**6)):
            continue
        more = (seconds + Fraction(*claim["least_seconds"])) / 2
        changed = deepcopy(content)
        for key in ("least_seconds", "engine_least_seconds"):
            changed["claims"]["step"][key] = [more.numerator, more.denominator]
        with pytest.raises(Refused, match="step bound"):
            verify(sealed(changed))


def test_a_bound_of_an_inner_tier_that_does_not_follow_is_refused() -> None:
    for content in timed_and_inner()[2:]:
        for more in range(1, 30):
            changed = deepcopy(content)
            (bound,) = (b for b in changed["claims"]["bounds"] if b["tier"] == "rack")
            bound["bytes"] += more
            bound["engine_bytes"] = max(bound["bytes"], bound["engine_bytes"])
            with pytest.raises(Refused, match="rack"):
                verify(sealed(changed))
        outside = deepcopy(content)
        outside["fabric"]["links"]["uplinks"].reverse()
        with pytest.raises((Refused, Malformed)):
            verify(sealed(outside))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of everything in the sealed parts that is no list or mapping."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, (*path, key))
    else:
        yield path


def test_no_value_is_another_than_the_digests_say() -> None:
    rng = random.Random(1)
    for content in written():
        for path in rng.sample(
            [p for p in leaves(content) if p[0] in SEALED and p[-1] != "step"], 60
        ):
            changed = deepcopy(content)
            at = changed
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = at[path[-1]] + ("x" if isinstance(at[path[-1]], str) else 1)
            with pytest.raises((Refused, Malformed)):
                verify(changed)
