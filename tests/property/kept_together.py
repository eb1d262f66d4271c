"""Tiny gangs with blocks that must lie in one domain, and by the words of the job file alone
whether they do: segments of a gang, and constraints of its roles."""

import random
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import NamedTuple

from muster.structs import replace
from placement import place
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import Constraints, RoleConstraints
from placement.fabric.tree import Fabric
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, GangRole, Placement, Request
from placement.workload.roles import blocks_of_roles, request_of_roles
from placement.workload.segments import role_rules, segments_of
from tests.build import request, two_tiers

Hosts = tuple[int, ...]
Case = tuple[Fabric, list[int], Request]  # with the free hosts
TIERS = {"zone": 0, "rack": 1}
ORDERS = ("tp-cp-ep-pp-dp", "tp-pp-ep-dp-cp", "tp-dp-ep-cp-pp", "ep-tp-pp-dp-cp")


class Kept(NamedTuple):
    """One kind of such gangs. `draw`: a gang, or None; `keeps`: whether hosts are as it asks."""

    draw: Callable[[random.Random, Fabric], Request | None]
    keeps: Callable[[Fabric, Request, Hosts], bool]
    refused: str  # begins the field of each refusal
    has_nvlink: bool = False

    def cases(self, seed: int) -> Iterator[Case]:
        """Gangs that the engine takes; a refusal names the key."""
        rng, wrong = random.Random(seed), list[str]()
        while True:
            fabric = _fabric(rng, self.has_nvlink)
            try:
                req = self.draw(rng, fabric)
            except BadInput as error:
                wrong.append(error.field)
                continue
            assert all(field.startswith(self.refused) for field in wrong)
            if req is not None:
                gang = req.hosts_needed(2)
                many = rng.randint(gang, min(fabric.host_count, 8 if gang < 6 else max(gang, 7)))
                yield fabric, sorted(rng.sample(range(fabric.host_count), many)), req

    def layouts(self, fabric: Fabric, free: list[int], req: Request) -> Iterator[Hosts]:
        layouts = permutations(free, req.hosts_needed(2))
        return (hosts for hosts in layouts if self.keeps(fabric, req, hosts))

    def placed(self, seed: int) -> tuple[Fabric, list[int], Request, Placement]:
        """The first case that has room."""
        for fabric, free, req in self.cases(seed):
            answer = place(fabric, hostset.of(free), req)
            if isinstance(answer, Placement):
                return fabric, free, req, answer
        raise AssertionError


def _fabric(rng: random.Random, has_nvlink: bool) -> Fabric:
    """Two zones of racks of one to four hosts, two GPUs each."""
    has_nvlink = has_nvlink and rng.random() < 0.5
    rack = {"scale_up": {"gbps_per_gpu": 7200}} if has_nvlink else {}
    racks = [[rng.randint(1, 4) for _ in range(rng.randint(1, 2))] for _ in range(2)]
    return two_tiers(*racks, gpus=2, zone={"oversubscription": 2}, rack=rack)


def _gang_in_segments(rng: random.Random, fabric: Fabric) -> Request | None:
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
    req = replace(req, where=Constraints(within=within, segment=segment))
    if fabric.host_count < req.hosts_needed(2) or segments_of(fabric, req) is None:
        return None
    return req


def _keeps_segments(fabric: Fabric, req: Request, hosts: Hosts) -> bool:
    """Groups of ranks, and runs of hosts."""
    p = req.parallelism
    for axis, name in req.where.within:
        depth = {**TIERS, "host": 2}[name]
        for group in p.groups(axis):
            if len({fabric.domain(hosts[rank // 2], depth) for rank in group}) > 1:
                return False
    segment = req.where.segment or 1
    runs = (hosts[i : i + segment] for i in range(0, len(hosts), segment))
    return all(len({fabric.domain(host, 1) for host in run}) == 1 for run in runs)


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


def _gang_of_roles(rng: random.Random, fabric: Fabric) -> Request | None:
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
    req = request_of_roles(roles, Request(Parallelism(), spares=NO_SPARES, where=where))
    if not bound or req.hosts_needed(2) > min(6, fabric.host_count):
        return None
    role_rules(fabric, req)
    return req


def _keeps_roles(fabric: Fabric, req: Request, hosts: Hosts) -> bool:
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
        shape = {r.name: r.request for r in req.roles}[own.role]
        alone = replace(shape, where=Constraints(within=own.within, segment=own.segment))
        if not _keeps_segments(fabric, alone, hosts[parts[own.role]]):
            return False
    return True


SEGMENTS = Kept(_gang_in_segments, _keeps_segments, "constraints.", has_nvlink=True)
ROLES = Kept(_gang_of_roles, _keeps_roles, "roles.")
