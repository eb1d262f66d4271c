"""Blocks that must lie in one domain, of segments and of roles, against all layouts of tiny gangs:
what keeps them, what they cut at least, whether there is room at all."""

import random
from dataclasses import replace
from itertools import product

import pytest

from muster.verify import Refused, verify
from placement import at_random, bound_proofs, choose_swaps, chosen, has_room, legal_sizes, place
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, broken
from placement.fabric.links import with_links
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.replace.near import Hint
from placement.workload.request import (
    Infeasible,
    Insufficient,
    Limits,
    Objective,
    Placement,
    SpareRule,
)
from placement.workload.roles import request_of_roles
from placement.workload.segments import parted
from scheduler.files.certificates import certificate
from tests.build import place_checked, regular, request
from tests.property.kept_together import ROLES, SEGMENTS, Kept


def of_each_kind(first: int, many: int) -> pytest.MarkDecorator:
    """So many seeds of gangs in segments, and of gangs of roles."""
    kinds = {"segments": SEGMENTS, "roles": ROLES}
    return pytest.mark.parametrize(
        ("kind", "seed"),
        [
            pytest.param(kind, seed, id=f"{name}-{seed}")
            for (name, kind), seed in product(kinds.items(), range(first, first + many))
        ],
    )


@of_each_kind(0, 28)
def test_gang_starts_where_its_blocks_lie_together_and_only_there(kind: Kept, seed: int) -> None:
    fabric, free, req = next(kind.cases(seed))
    answer = place(fabric, hostset.of(free), req)
    layouts = list(kind.layouts(fabric, free, req))
    assert has_room(fabric, hostset.of(free), req) == bool(layouts)
    if not layouts:
        assert isinstance(answer, Insufficient | Infeasible)
        if isinstance(answer, Infeasible):
            assert not any(kind.layouts(fabric, list(range(fabric.host_count)), req))
        return
    assert isinstance(answer, Placement)
    assert kind.keeps(fabric, req, answer.hosts)
    assert parted(fabric, req, answer.hosts) == []
    assert violations(fabric, hostset.of(free), req, answer) == []
    least = min(cut(fabric, req, hosts)[0].bytes_per_step for hosts in layouts)
    assert answer.lower_bound <= least <= answer.cut
    if kind is SEGMENTS:
        assert answer.cut == least  # so small a gang is placed as well as can be
        if answer.inner is not None:
            uncut = [c for c in (cut(fabric, req, h) for h in layouts) if not c[0].bytes_per_step]
            assert answer.inner.bytes_per_step <= min(c[1].bytes_per_step for c in uncut)


@of_each_kind(60, 14)
def test_what_is_not_kept_is_named_and_refused_by_the_checker(kind: Kept, seed: int) -> None:
    fabric, free, req, answer = kind.placed(seed)
    rng = random.Random(seed)
    for _ in range(20):
        hosts = tuple(rng.sample(free, req.hosts_needed(2)))
        is_kept = kind.keeps(fabric, req, hosts)
        if not req.where.same:
            assert (parted(fabric, req, hosts) == []) == is_kept
        if kind is ROLES:
            cuts = cut(fabric, req, hosts)
            made = replace(answer, hosts=hosts, cuts=cuts, lower_bound=0, inner=None)
            content = certificate(fabric, hostset.of(free), req, made)
            if is_kept:
                assert verify(content).name == "job"
            else:
                with pytest.raises(Refused):
                    verify(content)


@of_each_kind(90, 20)
def test_swaps_and_other_placers_keep_blocks_together(kind: Kept, seed: int) -> None:
    fabric, free, req, answer = kind.placed(seed)
    rng = random.Random(seed)
    for choose in (lambda free, many: free[-many:], at_random("x")):
        other = chosen(fabric, hostset.of(free), req, choose, 0)
        assert other is not None
        assert kind.keeps(fabric, req, other.hosts)
    lost = rng.randrange(len(answer.hosts))
    everything = hostset.full(fabric.host_count) & ~hostset.of(answer.hosts)
    found = choose_swaps(fabric, req, answer.hosts, [lost], 0, everything)
    swapped = [
        (*answer.hosts[:lost], host, *answer.hosts[lost + 1 :])
        for host in hostset.members(everything)
    ]
    may = [hosts for hosts in swapped if kind.keeps(fabric, req, hosts)]
    assert (found is not None) == bool(may)
    if found is not None:
        assert tuple({**dict(enumerate(answer.hosts)), **dict(found.joined)}.values()) in may


@of_each_kind(130, 14)
def test_gang_stays_where_it_was_and_moves_where_a_host_is_lost(kind: Kept, seed: int) -> None:
    fabric, free, req, first = kind.placed(seed)
    slack = 9.0 if kind is ROLES else 0.0
    again = place_checked(fabric, hostset.of(free), req, hint=Hint(first.hosts, slack))
    assert (again.moved, again.hosts) == (0, first.hosts)
    lost = random.Random(seed).choice(first.hosts)
    left = [host for host in free if host != lost]
    answer = place(fabric, hostset.of(left), req, hint=Hint(first.hosts))
    assert isinstance(answer, Placement) == any(kind.layouts(fabric, left, req))
    if isinstance(answer, Placement):
        assert kind.keeps(fabric, req, answer.hosts)
        assert violations(fabric, hostset.of(left), req, answer) == []


@of_each_kind(180, 14)
def test_spares_are_required_beside_blocks_that_lie_together(kind: Kept, seed: int) -> None:
    fabric, free, req = next(kind.cases(seed))
    req = replace(req, spares=SpareRule(hosts=1), where=replace(req.where, same=""))
    if req.roles:
        req = request_of_roles(req.roles, req)
    answer = place(fabric, hostset.of(free), req)
    fits = any(kind.layouts(fabric, free, req)) and len(free) > req.hosts_needed(2)
    assert isinstance(answer, Placement) == fits
    if isinstance(answer, Placement):
        assert len(answer.spares) == 1
        assert violations(fabric, hostset.of(free), req, answer) == []


@pytest.mark.parametrize("seed", range(130, 190))
def test_segments_keep_to_the_shape_and_to_one_side(seed: int) -> None:
    """Whether there is room at all, in one domain, in one zone, and on one side of an uplink."""
    rng = random.Random(seed)
    fabric, free, req = next(SEGMENTS.cases(seed))
    shape = rng.choice([{"max_zones": 1}, {"same": "zone"}, {"same": "rack"}, {"max_zones": 2}, {}])
    uplinks = [name for tier in fabric.tiers for name in tier.domains]
    fabric = with_links(fabric, {}, rng.sample(uplinks, rng.randint(0 if shape else 1, 2)))
    req = replace(req, where=replace(req.where, **shape), spares=SpareRule(hosts=0))
    kept = [hosts for hosts in SEGMENTS.layouts(fabric, free, req)
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


def test_no_zone_that_holds_the_segments_is_proved() -> None:
    """Two zones of two racks of three hosts hold four pairs, but none of them three."""
    fabric = regular(("zone", 2), ("rack", 2), ("host", 3))
    everything = hostset.full(fabric.host_count)
    req = request(tp=8, dp=6, traffic={"dp": 1})
    for where in (Constraints(max_zones=1, segment=2), Constraints(same="zone", segment=2)):
        answer = place(fabric, everything, replace(req, where=where))
        assert isinstance(answer, Infeasible)
        assert answer.reason.endswith("at most 6 in one zone, room for 2 segments of 2 hosts")
        assert not has_room(fabric, everything, replace(req, where=where))


def test_spares_in_other_racks_are_named_by_the_tier_of_the_segments() -> None:
    fabric = regular(("zone", 1), ("rack", 4), ("host", 4))
    req = request(tp=8, dp=4, traffic={"dp": 1})
    req = replace(req, where=Constraints(segment=4), spares=SpareRule(hosts=1))
    answer = place_checked(fabric, hostset.full(fabric.host_count), req)
    assert "1 spare is in racks that the gang does not use" in answer.notes


def test_fewer_replicas_may_need_larger_segments() -> None:
    """Segments of four hosts within groups of dp: three replicas need racks of twelve by twelve."""
    fabric = regular(("zone", 1), ("rack", 4), ("host", 20))
    req = request(tp=8, dp=4, pp=20, order="tp-dp-pp-cp-ep", traffic={"dp": 1, "pp": 1})
    req = replace(req, where=Constraints(segment=4, within=(("dp", "rack"),)))
    assert legal_sizes(fabric, req, 2) == (2, 4)


def test_segments_inside_nvlink_racks_are_placed_by_time() -> None:
    """The racks alone are tried as well, of a fabric of slots."""
    rack = ("rack", 4, {"scale_up": {"gbps_per_gpu": 7200}})
    fabric = regular(("su", 2), rack, ("host", 4), gpus=4)
    traffic = {"dp": 10**11, "pp": 10**10, "ep": 10**10}
    req = request(tp=4, ep=4, pp=2, dp=4, traffic=traffic)
    req = replace(req, compute_s=0.01, objective=Objective.TIME, where=Constraints(segment=2))
    everything = hostset.full(fabric.host_count)
    place_checked(fabric, everything, req)


def test_a_bound_inside_a_domain_is_told_where_the_gang_lies_in_one() -> None:
    """By time, segments on fewer slots may leave the domain that all of them lay in; a certificate
    asks for the bound of where they are."""
    fabric = regular(("z", 2), ("y", 2), ("x", 2), ("host", 2))
    req = request(tp=8, ep=2, dp=4, traffic={"tp": 1, "dp": 10**9})
    req = replace(req, objective=Objective.TIME, where=Constraints(within=(("ep", "y"),)))
    req = replace(req, compute_s=1e-3, spares=SpareRule())
    free = hostset.full(fabric.host_count) & ~hostset.of([14])
    answer = place_checked(fabric, free, req, Limits(rounds=1, trees=50))
    assert (answer.inner is None) == bool(answer.cut)
    for proof in bound_proofs(fabric, free, req, answer):
        assert proof.proof.least_bytes <= sum(c.bytes_per_step for c in answer.cuts
                                              if c.tier == proof.tier)  # fmt: skip
