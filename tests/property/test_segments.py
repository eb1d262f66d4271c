"""Segments against all layouts of tiny gangs: what keeps them, what they cut at least, whether
there is room at all."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import pytest

from placement import at_random, bound_proofs, choose_swaps, chosen, has_room, legal_sizes, place
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, broken
from placement.fabric.links import with_links
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.replace.near import Hint
from placement.workload.request import (
    Infeasible,
    Insufficient,
    Limits,
    Objective,
    Placement,
    Request,
    SpareRule,
)
from placement.workload.segments import parted, segments_of
from tests.build import request

ORDERS = ("tp-cp-ep-pp-dp", "tp-pp-ep-dp-cp", "tp-dp-ep-cp-pp", "ep-tp-pp-dp-cp")


def _fabric(rng: random.Random) -> Fabric:
    """Two zones of NVLink racks of one to four hosts, two GPUs each."""
    joined = {"scale_up": {"gbps_per_gpu": 7200}} if rng.random() < 0.5 else {}
    racks = [[rng.randint(1, 4) for _ in range(rng.randint(1, 2))] for _ in range(2)]
    domains = [
        {
            "name": f"z{z}",
            "domains": [{"name": f"z{z}r{r}", "hosts": n} for r, n in enumerate(hosts)],
        }
        for z, hosts in enumerate(racks)
    ]
    tiers = [{"name": "zone", "oversubscription": 2}, {"name": "rack", **joined}, {"name": "host"}]
    return from_spec({"name": "f", "gpus_per_host": 2, "tiers": tiers, "domains": domains})


def _gang(rng: random.Random) -> Request:
    sizes = rng.choice(
        [{"ep": 4, "dp": 2}, {"tp": 2, "pp": 2, "dp": 2}, {"tp": 2, "ep": 2, "pp": 2},
         {"ep": 4, "pp": 2}, {"tp": 4, "pp": 2}, {"dp": 8}, {"pp": 5, "tp": 2},
         {"ep": 2, "cp": 2, "dp": 2}]
    )  # fmt: skip
    traffic = {axis: rng.choice([1, 3, 10, 40]) for axis in sizes}
    within = tuple(
        (axis, rng.choice(["rack", "zone", "host"])) for axis in sizes if rng.random() < 0.5
    )
    segment = rng.choice([0, 0, 2, 3]) if within else rng.choice([2, 2, 4])
    req = request(traffic=traffic, order=rng.choice(ORDERS), **sizes)
    return replace(req, where=Constraints(within=within, segment=segment))


def _keeps(fabric: Fabric, req: Request, hosts: tuple[int, ...]) -> bool:
    """By the words of the job file alone: groups of ranks, and runs of hosts."""
    p = req.parallelism
    for axis, name in req.where.within:
        depth = {"zone": 0, "rack": 1, "host": 2}[name]
        for group in p.groups(axis):
            if len({fabric.domain(hosts[rank // 2], depth) for rank in group}) > 1:
                return False
    segment = req.where.segment or 1
    runs = (hosts[i : i + segment] for i in range(0, len(hosts), segment))
    return all(len({fabric.domain(host, 1) for host in run}) == 1 for run in runs)


def _layouts(fabric: Fabric, free: list[int], req: Request) -> Iterator[tuple[int, ...]]:
    gang = req.hosts_needed(2)
    return (hosts for hosts in permutations(free, gang) if _keeps(fabric, req, hosts))


def _cases(seed: int) -> Iterator[tuple[Fabric, list[int], Request]]:
    """Gangs whose segments the engine takes; a refusal names the key."""
    rng, wrong = random.Random(seed), list[str]()
    while True:
        fabric, req = _fabric(rng), _gang(rng)
        gang = req.hosts_needed(2)
        if fabric.host_count < gang:
            continue
        try:
            has_segments = segments_of(fabric, req) is not None
        except BadInput as error:
            wrong.append(error.field)
            continue
        assert all(field.startswith("constraints.") for field in wrong)
        if has_segments:
            many = rng.randint(gang, min(fabric.host_count, max(gang, 7)))
            yield fabric, sorted(rng.sample(range(fabric.host_count), many)), req


@pytest.mark.parametrize("seed", range(40))
def test_the_least_cut_of_all_layouts_that_keep_segments_is_bounded(seed: int) -> None:
    fabric, free, req = next(_cases(seed))
    answer = place(fabric, hostset.of(free), req)
    layouts = list(_layouts(fabric, free, req))
    assert has_room(fabric, hostset.of(free), req) == bool(layouts)
    if not layouts:
        assert isinstance(answer, Insufficient | Infeasible)
        if isinstance(answer, Infeasible):
            assert not any(_layouts(fabric, list(range(fabric.host_count)), req))
        return
    assert isinstance(answer, Placement)
    assert _keeps(fabric, req, answer.hosts)
    assert parted(fabric, req, answer.hosts) == []
    assert violations(fabric, hostset.of(free), req, answer) == []
    least = min(cut(fabric, req, hosts)[0].bytes_per_step for hosts in layouts)
    assert answer.lower_bound <= least <= answer.cut
    assert answer.cut == least  # so small a gang is placed as well as can be
    if answer.inner is not None:
        uncut = [c for c in (cut(fabric, req, h) for h in layouts) if not c[0].bytes_per_step]
        assert answer.inner.bytes_per_step <= min(c[1].bytes_per_step for c in uncut)


@pytest.mark.parametrize("seed", range(40, 60))
def test_what_parts_a_segment_is_named(seed: int) -> None:
    fabric, free, req = next(_cases(seed))
    rng = random.Random(seed)
    for _ in range(20):
        hosts = tuple(rng.sample(free, req.hosts_needed(2)))
        assert bool(parted(fabric, req, hosts)) != _keeps(fabric, req, hosts)


@pytest.mark.parametrize("seed", range(60, 90))
def test_swaps_and_other_placers_keep_segments(seed: int) -> None:
    rng, cases = random.Random(seed), _cases(seed)
    fabric, free, req = next(cases)
    while not isinstance(answer := place(fabric, hostset.of(free), req), Placement):
        fabric, free, req = next(cases)
    for choose in (lambda free, many: free[-many:], at_random("x")):
        other = chosen(fabric, hostset.of(free), req, choose, 0)
        assert other is not None
        assert _keeps(fabric, req, other.hosts)
    lost = rng.randrange(len(answer.hosts))
    everything = hostset.full(fabric.host_count) & ~hostset.of(answer.hosts)
    found = choose_swaps(fabric, req, answer.hosts, [lost], 0, everything)
    swapped = [
        (*answer.hosts[:lost], host, *answer.hosts[lost + 1 :])
        for host in hostset.members(everything)
    ]
    may = [hosts for hosts in swapped if _keeps(fabric, req, hosts)]
    assert (found is not None) == bool(may)
    if found is not None:
        assert tuple({**dict(enumerate(answer.hosts)), **dict(found.joined)}.values()) in may


@pytest.mark.parametrize("seed", range(90, 110))
def test_segments_stay_near_where_they_were(seed: int) -> None:
    cases = _cases(seed)
    fabric, free, req = next(cases)
    while not isinstance(first := place(fabric, hostset.of(free), req), Placement):
        fabric, free, req = next(cases)
    again = place(fabric, hostset.of(free), req, hint=Hint(first.hosts))
    assert isinstance(again, Placement)
    assert again.moved == 0
    assert again.hosts == first.hosts


@pytest.mark.parametrize("seed", range(110, 130))
def test_spares_are_required_beside_segments(seed: int) -> None:
    fabric, free, req = next(_cases(seed))
    req = replace(req, spares=SpareRule(hosts=1))
    answer = place(fabric, hostset.of(free), req)
    fits = any(_layouts(fabric, free, req)) and len(free) > req.hosts_needed(2)
    assert isinstance(answer, Placement) == fits
    if isinstance(answer, Placement):
        assert len(answer.spares) == 1
        assert violations(fabric, hostset.of(free), req, answer) == []


@pytest.mark.parametrize("seed", range(130, 330))
def test_segments_keep_to_the_shape_and_to_one_side(seed: int) -> None:
    """Whether there is room at all, in one domain, in one zone, and on one side of an uplink."""
    rng = random.Random(seed)
    fabric, free, req = next(_cases(seed))
    shape = rng.choice([{"max_zones": 1}, {"same": "zone"}, {"same": "rack"}, {"max_zones": 2}, {}])
    uplinks = [name for tier in fabric.tiers for name in tier.domains]
    fabric = with_links(fabric, {}, rng.sample(uplinks, rng.randint(0 if shape else 1, 2)))
    req = replace(req, where=replace(req.where, **shape), spares=SpareRule(hosts=0))
    kept = [hosts for hosts in _layouts(fabric, free, req)
            if not broken(fabric, req.where, hostset.of(hosts))]  # fmt: skip
    for rule in (req.spares, SpareRule()):
        asked = replace(req, spares=rule)
        answer = place(fabric, hostset.of(free), asked)
        other = chosen(fabric, hostset.of(free), asked, at_random("x"), 2)
        assert isinstance(answer, Placement) == (other is not None) == bool(kept)
        assert has_room(fabric, hostset.of(free), asked) == bool(kept)
        for placed in (answer, other) if kept else ():
            assert isinstance(placed, Placement)
            assert violations(fabric, hostset.of(free), asked, placed) == []
            some = kept[:: -(-len(kept) // 100)]
            assert placed.lower_bound <= min(cut(fabric, req, h)[0].bytes_per_step for h in some)


def _regular(*tiers: tuple[str, int], gpus: int = 8) -> Fabric:
    named = [{"name": name, "count": count} for name, count in tiers]
    return from_spec({"name": "f", "gpus_per_host": gpus, "tiers": named})


def test_no_zone_that_holds_the_segments_is_proved() -> None:
    """Two zones of two racks of three hosts hold four pairs, but none of them three."""
    fabric = _regular(("zone", 2), ("rack", 2), ("host", 3))
    everything = hostset.full(fabric.host_count)
    req = request(tp=8, dp=6, traffic={"dp": 1})
    for where in (Constraints(max_zones=1, segment=2), Constraints(same="zone", segment=2)):
        answer = place(fabric, everything, replace(req, where=where))
        assert isinstance(answer, Infeasible)
        assert answer.reason.endswith("at most 6 in one zone, room for 2 segments of 2 hosts")
        assert not has_room(fabric, everything, replace(req, where=where))


def test_spares_in_other_racks_are_named_by_the_tier_of_the_segments() -> None:
    fabric = _regular(("zone", 1), ("rack", 4), ("host", 4))
    req = request(tp=8, dp=4, traffic={"dp": 1})
    req = replace(req, where=Constraints(segment=4), spares=SpareRule(hosts=1))
    answer = place(fabric, hostset.full(fabric.host_count), req)
    assert isinstance(answer, Placement)
    assert "1 spare is in racks that the gang does not use" in answer.notes


def test_fewer_replicas_may_need_larger_segments() -> None:
    """Segments of four hosts within groups of dp: three replicas need racks of twelve by twelve."""
    fabric = _regular(("zone", 1), ("rack", 4), ("host", 20))
    req = request(tp=8, dp=4, pp=20, order="tp-dp-pp-cp-ep", traffic={"dp": 1, "pp": 1})
    req = replace(req, where=Constraints(segment=4, within=(("dp", "rack"),)))
    assert legal_sizes(fabric, req, 2) == (2, 4)


def test_segments_inside_nvlink_racks_are_placed_by_time() -> None:
    """The racks alone are tried as well, of a fabric of slots."""
    joined = {"scale_up": {"gbps_per_gpu": 7200}}
    tiers = [{"name": "su", "count": 2}, {"name": "rack", "count": 4, **joined},
             {"name": "host", "count": 4}]  # fmt: skip
    fabric = from_spec({"name": "f", "gpus_per_host": 4, "tiers": tiers})
    traffic = {"dp": 10**11, "pp": 10**10, "ep": 10**10}
    req = request(tp=4, ep=4, pp=2, dp=4, traffic=traffic)
    req = replace(req, compute_s=0.01, objective=Objective.TIME, where=Constraints(segment=2))
    everything = hostset.full(fabric.host_count)
    answer = place(fabric, everything, req)
    assert isinstance(answer, Placement)
    assert violations(fabric, everything, req, answer) == []


def test_a_bound_inside_a_domain_is_told_where_the_gang_lies_in_one() -> None:
    """By time, segments on fewer slots may leave the domain that all of them lay in; a certificate
    asks for the bound of where they are."""
    fabric = _regular(("z", 2), ("y", 2), ("x", 2), ("host", 2))
    req = request(tp=8, ep=2, dp=4, traffic={"tp": 1, "dp": 10**9})
    req = replace(req, objective=Objective.TIME, where=Constraints(within=(("ep", "y"),)))
    req = replace(req, compute_s=1e-3, spares=SpareRule())
    free = hostset.full(fabric.host_count) & ~hostset.of([14])
    answer = place(fabric, free, req, Limits(rounds=1, trees=50))
    assert isinstance(answer, Placement)
    assert (answer.inner is None) == bool(answer.cut)
    for proof in bound_proofs(fabric, free, req, answer):
        assert proof.proof.least_bytes <= sum(c.bytes_per_step for c in answer.cuts
                                              if c.tier == proof.tier)  # fmt: skip
