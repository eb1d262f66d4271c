"""Constraints of roles against all layouts of tiny gangs: what keeps them, what they cut at least,
whether there is room at all."""

import random
from collections.abc import Iterator
from itertools import permutations

import pytest

from muster.structs import replace
from muster.verify import Refused, verify
from placement import BadInput, at_random, choose_swaps, chosen, has_room, place
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, RoleConstraints
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.replace.near import Hint
from placement.workload.parallelism import Parallelism
from placement.workload.request import (
    NO_SPARES,
    GangRole,
    Infeasible,
    Insufficient,
    Placement,
    Request,
    SpareRule,
)
from placement.workload.roles import blocks_of_roles, request_of_roles
from placement.workload.segments import parted, role_rules
from scheduler.files.certificates import certificate

TIERS = {"zone": 0, "rack": 1}


def _fabric(rng: random.Random) -> Fabric:
    """Two zones of racks of one to four hosts, two GPUs each."""
    racks = [[rng.randint(1, 4) for _ in range(rng.randint(1, 2))] for _ in range(2)]
    domains = [
        {
            "name": f"z{z}",
            "domains": [{"name": f"z{z}r{r}", "hosts": n} for r, n in enumerate(hosts)],
        }
        for z, hosts in enumerate(racks)
    ]
    tiers = [{"name": name} for name in (*TIERS, "host")]
    return from_spec({"name": "f", "gpus_per_host": 2, "tiers": tiers, "domains": domains})


def _constraints(rng: random.Random, name: str, hosts: int, names: list[str]) -> RoleConstraints:
    def tier() -> str:
        return rng.choice([*TIERS])

    others = [(tier(), (rng.choice([n for n in names if n != name]),))]
    draw = rng.random()
    return RoleConstraints(
        name,
        same=tier() if rng.random() < 0.4 else "",
        within=(("pp", tier()),) if draw < 0.3 else (),
        segment=2 if 0.3 < draw < 0.5 and not hosts % 2 else 0,
        beside=tuple(others) if rng.random() < 0.25 else (),
        avoid=tuple(others) if rng.random() < 0.3 else (),
    )


def _gang(rng: random.Random) -> Request:
    """Two or three roles on two to six hosts."""
    names = ["a", "b", "c"][: rng.randint(2, 3)]
    roles, sizes = list[GangRole](), [rng.choice([(1, 1), (2, 1), (1, 2), (1, 3)]) for _ in names]
    for n, (pp, dp) in enumerate(sizes):
        to = names[(n + 1) % len(names)]
        traffic = tuple((axis, rng.choice([1, 40])) for axis in ("pp", "dp"))
        shape = Request(Parallelism(tp=2, pp=pp, dp=dp), traffic, spares=NO_SPARES)
        roles.append(GangRole(names[n], shape, ((to, rng.choice([8, 900])),)))
    own = (_constraints(rng, n, pp * dp, names) for n, (pp, dp) in zip(names, sizes, strict=True))
    bound = tuple(each for each in own if each.is_any())
    where = Constraints(roles=bound, same=rng.choice(["", "", "", "zone"]))
    return request_of_roles(roles, Request(Parallelism(), spares=NO_SPARES, where=where))


def _keeps(fabric: Fabric, req: Request, hosts: tuple[int, ...]) -> bool:
    """By the words of the job file alone."""
    parts = dict(zip([r.name for r in req.roles], blocks_of_roles(req, 2), strict=True))

    def lies_in(names: list[str], tier: str) -> set[str]:
        return {fabric.domain(h, TIERS[tier]) for name in names for h in hosts[parts[name]]}

    if req.where.same and len(lies_in([*parts], req.where.same)) > 1:
        return False
    for own in req.where.roles:
        if own.same and len(lies_in([own.role], own.same)) > 1:
            return False
        if any(len(lies_in([own.role, *names], tier)) > 1 for tier, names in own.beside):
            return False
        for tier, names in own.avoid:
            if any(lies_in([own.role], tier) & lies_in([name], tier) for name in names):
                return False
        part, shape = hosts[parts[own.role]], {r.name: r.request for r in req.roles}
        p, groups = shape[own.role].parallelism, list[tuple[list[int], str]]()
        for axis, tier in own.within:
            groups += [([part[rank // 2] for rank in group], tier) for group in p.groups(axis)]
        for first in range(0, len(part), own.segment) if own.segment else ():
            groups.append((list(part[first : first + own.segment]), "rack"))
        if any(len({fabric.domain(h, TIERS[tier]) for h in group}) > 1 for group, tier in groups):
            return False
    return True


def _layouts(fabric: Fabric, free: list[int], req: Request) -> Iterator[tuple[int, ...]]:
    layouts = permutations(free, req.hosts_needed(2))
    return (hosts for hosts in layouts if _keeps(fabric, req, hosts))


def _cases(seed: int) -> Iterator[tuple[Fabric, list[int], Request]]:
    """Gangs that the engine takes; a refusal names the key."""
    rng, wrong = random.Random(seed), list[str]()
    while True:
        fabric, req = _fabric(rng), _gang(rng)
        gang = req.hosts_needed(2)
        if not req.where.roles or gang > min(6, fabric.host_count):
            continue
        try:
            role_rules(fabric, req)
        except BadInput as error:
            wrong.append(error.field)
            continue
        assert all(field.startswith("roles.") for field in wrong)
        many = rng.randint(gang, min(fabric.host_count, 8 if gang < 6 else 7))
        yield fabric, sorted(rng.sample(range(fabric.host_count), many)), req


def _placed(seed: int) -> tuple[Fabric, list[int], Request, Placement]:
    for fabric, free, req in _cases(seed):
        answer = place(fabric, hostset.of(free), req)
        if isinstance(answer, Placement):
            return fabric, free, req, answer
    raise AssertionError


@pytest.mark.parametrize("seed", range(60))
def test_gang_starts_where_its_roles_keep_their_constraints_and_only_there(seed: int) -> None:
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
    assert violations(fabric, hostset.of(free), req, answer) == []
    least = min(cut(fabric, req, hosts)[0].bytes_per_step for hosts in layouts)
    assert answer.lower_bound <= least <= answer.cut


@pytest.mark.parametrize("seed", range(60, 90))
def test_broken_constraint_of_a_role_is_named_and_refused_by_the_checker(seed: int) -> None:
    fabric, free, req, answer = _placed(seed)
    rng = random.Random(seed)
    for _ in range(20):
        hosts = tuple(rng.sample(free, req.hosts_needed(2)))
        made = replace(answer, hosts=hosts, cuts=cut(fabric, req, hosts), lower_bound=0, inner=None)
        is_kept = _keeps(fabric, req, hosts)
        if not req.where.same:
            assert (parted(fabric, req, hosts) == []) == is_kept
        content = certificate(fabric, hostset.of(free), req, made)
        if is_kept:
            assert verify(content).name == "job"
        else:
            with pytest.raises(Refused):
                verify(content)


@pytest.mark.parametrize("seed", range(90, 130))
def test_swaps_and_other_placers_keep_constraints_of_roles(seed: int) -> None:
    fabric, free, req, answer = _placed(seed)
    rng = random.Random(seed)
    other = chosen(fabric, hostset.of(free), req, at_random("x"), 0)
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


@pytest.mark.parametrize("seed", range(130, 150))
def test_gang_with_constraints_of_roles_stays_where_it_was(seed: int) -> None:
    fabric, free, req, first = _placed(seed)
    again = place(fabric, hostset.of(free), req, hint=Hint(first.hosts, slack=9.0))
    assert isinstance(again, Placement)
    assert again.moved == 0


@pytest.mark.parametrize("seed", range(150, 180))
def test_gang_moves_as_little_as_its_roles_let_it_when_a_host_is_lost(seed: int) -> None:
    fabric, free, req, first = _placed(seed)
    lost = random.Random(seed).choice(first.hosts)
    left = [host for host in free if host != lost]
    answer = place(fabric, hostset.of(left), req, hint=Hint(first.hosts))
    assert isinstance(answer, Placement) == any(_layouts(fabric, left, req))
    if isinstance(answer, Placement):
        assert _keeps(fabric, req, answer.hosts)
        assert violations(fabric, hostset.of(left), req, answer) == []


@pytest.mark.parametrize("seed", range(180, 200))
def test_spares_are_required_beside_constraints_of_roles(seed: int) -> None:
    fabric, free, req = next(_cases(seed))
    req = replace(req, spares=SpareRule(hosts=1), where=replace(req.where, same=""))
    req = request_of_roles(req.roles, req)
    answer = place(fabric, hostset.of(free), req)
    fits = any(_layouts(fabric, free, req)) and len(free) > req.hosts_needed(2)
    assert isinstance(answer, Placement) == fits
    if isinstance(answer, Placement):
        assert len(answer.spares) == 1
        assert violations(fabric, hostset.of(free), req, answer) == []
