"""Proofs for gangs of several roles, role by role.

No layout of the gang cuts less inside a role than the best layout of that role alone, which may
have all the room. What two roles send each other stays inside domains at most as far as domains
hold both: a blocks of the one and b of the other share a domain of c hosts only if a + b <= c. The
sum of these bounds holds for the gang.
See docs/engine.md, "Gangs of several roles".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.fabric.tree import Ints
from placement.objective.cut import cut_by_axis
from placement.proof.cell_proofs import CellProof
from placement.workload.request import Request
from placement.workload.roles import blocks_of_roles
from placement.workload.traffic import Pattern, axis_traffic


class RoleProof:
    """The proofs of all roles, which continue from call to call. Bounds are doubled cuts in bytes
    that no layout beats."""

    def __init__(self, request: Request, gpus: int, capacities: Sequence[int], states: int) -> None:
        """`states`: of the pricing table of a role, at most."""
        self._request, self._gpus, self._capacities = request, gpus, capacities
        self._proofs = [CellProof(r.request, gpus, capacities, states) for r in request.roles]
        self._known = [0] * len(self._proofs)

    def by_sizes(self, entries: int) -> int:
        """Return a bound from sizes alone, by tables of up to so many entries."""
        for number, proof in enumerate(self._proofs):
            self._known[number] = max(self._known[number], proof.by_sizes(entries))
        return self._bound

    def prove(self, layout: Ints, cost: int, rounds: int, known: int) -> tuple[int, Ints | None]:
        """Prove by about so many rounds a role; no layout follows from it."""
        blocks = blocks_of_roles(self._request, self._gpus)
        for number, (proof, part) in enumerate(zip(self._proofs, blocks, strict=True)):
            own, before = self._request.roles[number].request, self._known[number]
            paid = 2 * sum(b for _, b in cut_by_axis(own, self._gpus, layout[part]))
            if before < paid:
                self._known[number] = proof.prove(layout[part], paid, rounds, before)[0]
        return max(known, self._bound), None

    @property
    def _bound(self) -> int:
        return sum(self._known) + 2 * self._between_roles

    @property
    def _between_roles(self) -> int:
        """Bytes between roles that leave domains at least."""
        least = 0
        for traffic in axis_traffic(self._request):
            if traffic.pattern is Pattern.PAIRS:
                near = traffic.ranks // self._gpus
                far = traffic.size // self._gpus - near
                apart = near * far - most_pairs(near, far, self._capacities)
                least += traffic.edge_bytes * self._gpus**2 * max(0, apart)
        return least


def most_pairs(near: int, far: int, capacities: Sequence[int]) -> int:
    """Bound from above the pairs of a block of `near` and one of `far` that share a domain.

    A domain with t blocks of both holds t^2/4 pairs at most, and of a few blocks of one role no
    more of them than there are. That is convex in t, so that the largest domains, filled one after
    the other, hold the most pairs.
    """
    room = np.sort(np.asarray(capacities))[::-1]
    filled = np.diff(np.minimum(np.cumsum(room), near + far), prepend=0)
    few, many = sorted((near, far))
    ahead = np.minimum(filled // 2, few)
    return int(np.sum(ahead * np.minimum(filled - ahead, many)))
