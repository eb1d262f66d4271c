"""Certificates: the checker refuses none that the engine writes, and all that were tampered with.

Whoever tampers is given the digests for nothing: they are made anew after each change, so that it
is the arithmetic which refuses.
"""

import json
import random
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.bound import CutBound, Refused, grid_of
from muster.certificate import SEALED, Malformed, digest
from muster.verify import crossing, verify
from placement import place
from placement.fabric import hostset
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.workload.request import Placement, Request
from placement.workload.training import Batch, Sync
from scheduler.files.certificates import certificate
from tests.build import place_checked, request, training
from tests.property.grids import requests

Content = dict[str, Any]


def fabric(sizes: list[int], free: list[int], has_nvlink_racks: bool = False) -> tuple[Fabric, int]:
    """Zones of so many hosts with two GPUs, the first of each free, in racks of three."""
    zones = [
        {
            "name": f"z{z}",
            "domains": [
                {"name": f"z{z}r{r}", "hosts": min(3, size - 3 * r)} for r in range(-(-size // 3))
            ],
        }
        for z, size in enumerate(sizes)
    ]
    rack = {"name": "rack", **({"scale_up": {"gbps_per_gpu": 7200}} if has_nvlink_racks else {})}
    tiers = [{"name": "zone", "oversubscription": 7}, rack, {"name": "host"}]
    built = from_spec({"name": "f", "gpus_per_host": 2, "tiers": tiers, "domains": zones})
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


@settings(deadline=None, max_examples=40)
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


@settings(deadline=None, max_examples=60)
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


def cut_is_smaller(content: Content, rng: random.Random) -> None:
    claim = content["claims"]["cuts"][0]
    axis, sent = rng.choice(sorted(claim["by_axis"].items()))
    less = rng.randint(1, sent)
    claim["bytes"] -= less
    claim["by_axis"][axis] -= less


def total_is_another(content: Content, rng: random.Random) -> None:
    rng.choice(content["claims"]["cuts"])["bytes"] += rng.choice((1, 2, 100))


def bound_is_above_the_cut(content: Content, rng: random.Random) -> None:
    bound = content["claims"]["bounds"][0]
    bound["bytes"] = bound["engine_bytes"] = content["claims"]["cuts"][0]["bytes"] + rng.randint(
        1, 9
    )


def bound_falls(content: Content, rng: random.Random) -> None:
    bound = content["claims"]["bounds"][0]
    bound["engine_bytes"] = rng.randrange(bound["bytes"])


def nothing_proves_it(content: Content, rng: random.Random) -> None:
    content["claims"]["bounds"][0]["proof"] = {"by": "nothing"}


def prices_are_nothing(content: Content, rng: random.Random) -> None:
    charge = content["claims"]["bounds"][0]["proof"]["charge"]
    rows = [0] * next(t["size"] for t in content["job"]["traffic"] if t["axis"] == "pp")
    content["claims"]["bounds"][0]["proof"] = {
        "by": "prices",
        "charge": charge,
        "scale": rng.randint(1, 99),
        "counters": [],
        "prices": [{"rows": rows, "counters": []}],
        "tree": 0,
    }


def host_is_taken_twice(content: Content, rng: random.Random) -> None:
    hosts = content["claims"]["hosts"]
    one, other = rng.sample(range(len(hosts)), 2)
    hosts[one] = hosts[other]


def host_is_not_free(content: Content, rng: random.Random) -> None:
    names, free = content["fabric"]["hosts"], [v for v, n in content["free"] for _ in range(n)]
    hosts = content["claims"]["hosts"]
    busy = [name for name, is_free in zip(names, free, strict=True) if not is_free]
    hosts[rng.randrange(len(hosts))] = rng.choice(busy)


def host_is_missing(content: Content, rng: random.Random) -> None:
    content["claims"]["hosts"].pop(rng.randrange(len(content["claims"]["hosts"])))


def host_is_unknown(content: Content, rng: random.Random) -> None:
    hosts = content["claims"]["hosts"]
    hosts[rng.randrange(len(hosts))] += "x"


def first_host_is_cordoned(content: Content, rng: random.Random) -> None:
    """The free set is another."""
    content["free"] = [[0, len(content["fabric"]["hosts"])]]


def hosts_have_other_gpus(content: Content, rng: random.Random) -> None:
    content["fabric"]["gpus"] = [[rng.choice((1, 3, 4, 8)), len(content["fabric"]["hosts"])]]


def axis_sends_more(content: Content, rng: random.Random) -> None:
    axes = content["claims"]["cuts"][0]["by_axis"]
    traffic = [t for t in content["job"]["traffic"] if t["axis"] in axes]
    rng.choice(traffic)["edge_bytes"] += rng.randint(1, 9)


def gang_must_lie_in_one_zone(content: Content, rng: random.Random) -> None:
    content["job"][rng.choice(("same",))] = "zone"


def gang_may_lie_in_one_zone(content: Content, rng: random.Random) -> None:
    content["job"]["max_zones"] = 1


CHANGES: tuple[Callable[[Content, random.Random], None], ...] = (
    cut_is_smaller,
    total_is_another,
    bound_is_above_the_cut,
    bound_falls,
    nothing_proves_it,
    prices_are_nothing,
    host_is_taken_twice,
    host_is_not_free,
    host_is_missing,
    host_is_unknown,
    first_host_is_cordoned,
    hosts_have_other_gpus,
    axis_sends_more,
    gang_must_lie_in_one_zone,
    gang_may_lie_in_one_zone,
)


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


def step_is_another(content: Content, rng: random.Random) -> None:
    claim = content["claims"]["step"]
    claim["seconds"] = _scaled(claim["seconds"], _near_one(rng))


def step_bound_passes_the_step(content: Content, rng: random.Random) -> None:
    claim = content["claims"]["step"]
    more = Fraction(*claim["seconds"]) + Fraction(1, rng.randint(1, 10**6))
    claim["least_seconds"] = claim["engine_least_seconds"] = [more.numerator, more.denominator]


def step_bound_falls(content: Content, rng: random.Random) -> None:
    claim = content["claims"]["step"]
    share = Fraction(rng.randint(0, 999), 1000)
    claim["engine_least_seconds"] = _scaled(claim["least_seconds"], share)


def compute_is_longer(content: Content, rng: random.Random) -> None:
    """So much that no link is busy as long."""
    facts = content["job"]["step"]
    facts["compute_s"] = _scaled(facts["compute_s"], Fraction(rng.randint(10**4, 10**6)))


def pipeline_is_longer(content: Content, rng: random.Random) -> None:
    content["job"]["step"]["pipeline"]["stages"] += rng.randint(1, 9)


def step_is_left_out(content: Content, rng: random.Random) -> None:
    rng.choice((content["job"], content["claims"]))["step"] = None


def hosts_are_faster(content: Content, rng: random.Random) -> None:
    """All links: of a step that waits for any of them."""
    links, by = content["fabric"]["links"], rng.randint(2, 9)
    for runs in (links["scale_up"], links["nic"], *links["uplinks"]):
        for pair in runs:
            pair[0] *= by


STEP_CHANGES: tuple[Callable[[Content, random.Random], None], ...] = (
    step_is_another,
    step_bound_passes_the_step,
    step_bound_falls,
    compute_is_longer,
    pipeline_is_longer,
    step_is_left_out,
    hosts_are_faster,
)


@pytest.mark.parametrize("change", STEP_CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_the_step_is_refused(change: Callable[..., None]) -> None:
    for seed, content in enumerate(5 * timed_and_inner()):
        changed = deepcopy(content)
        change(changed, random.Random(f"{change.__name__}/{seed}"))
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


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_that_matters_is_refused(change: Callable[..., None]) -> None:
    for seed, content in enumerate(4 * written()):
        changed = deepcopy(content)
        change(changed, random.Random(f"{change.__name__}/{seed}"))
        with pytest.raises(Refused):
            verify(sealed(changed))


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
