"""Gangs of several roles, as a trainer, its rollout workers and a reward model.

A role is a gang by itself, with its own parallelism and traffic; the ranks of one role follow
those of the role before. What a role sends to another is spread evenly over all pairs of a rank of
the one and a rank of the other, in whole bytes. All roles start together or none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from muster.structs import replace
from placement.errors import BadInput
from placement.workload.parallelism import Parallelism
from placement.workload.request import GangRole, Request


def request_of_roles(roles: Sequence[GangRole], gang: Request) -> Request:
    """Return `gang` with these roles and as many ranks as they have together; where the gang may
    lie, each role may, as far as its own constraints let it.

    Raises: BadInput on a name that is given twice, and bytes for, or constraints with, no other
    role.
    """
    names = [role.name for role in roles]
    for number, role in enumerate(roles):
        if role.name in names[:number]:
            raise BadInput(f"roles.{number}.name", f"{role.name} is the name of two roles")
        named = [("sends", to) for to, _ in role.sends]
        named += [
            each for own in gang.where.roles if own.role == role.name for each in own.named_roles
        ]
        for key, to in named:
            if to == role.name or to not in names:
                others = ", ".join(name for name in names if name != role.name) or "none"
                raise BadInput(f"roles.{number}.{key}", f"{to} is no other role; others: {others}")
    if gang.where.within or gang.where.segment:
        name = "segment" if gang.where.segment else "within"
        message = f"is not for a gang of roles: each role has its own, as roles.0.{name}"
        raise BadInput(f"constraints.{name}", message)
    if gang.where.roles and gang.where.max_zones > 1:
        raise BadInput("constraints.max_zones", "must be 1 beside constraints of roles")
    ranks = sum(role.request.parallelism.world_size for role in roles)
    placed = (
        replace(role, request=replace(role.request, where=gang.where.of_role(role.name)))
        for role in roles
    )
    return replace(gang, parallelism=Parallelism(dp=ranks), roles=tuple(placed))


def ranks_of_roles(request: Request) -> list[range]:
    """Return the ranks of each role in the gang."""
    sizes = [role.request.parallelism.world_size for role in request.roles]
    return [range(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]


def blocks_of_roles(request: Request, gpus_per_host: int) -> list[slice]:
    """Return the blocks of each role in the gang."""
    return [
        slice(ranks.start // gpus_per_host, ranks.stop // gpus_per_host)
        for ranks in ranks_of_roles(request)
    ]
