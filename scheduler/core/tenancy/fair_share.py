"""Fair share: which tenant is furthest below what it is due.

At each level of the tree siblings are compared: tenants that hold less than
their guarantee come first, then the one with the least usage for its weight. Usage is what
has been used, fading with time, plus what would be used if the present hosts were held
for ever; so a start moves its tenant back at once, and history counts as much as a
half-life of holding.

Jobs are whole, so shares cannot be: of eight hosts two to one is five to three or six to
two, and usage alone would settle at one of them for ever, whose history then says just what
its present does. So tenants that differ by less than a job are taken for equal, and of those
the one that has used least goes first: over time the rounding evens out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from heapq import heapify, heappop, heappush

from scheduler.core.model.records.tenant import standing
from scheduler.core.model.state import State
from scheduler.core.tenancy.ownership import half_life_ns
from scheduler.core.tenancy.quota import QuotaBook

Rank = tuple[int, ...]  # a place at each level, from the top; the least is served next
Excess = tuple[int, ...]  # beyond its share at each level, from the top
_SCALE = 1_000  # keeps weights apart when usage is small


class FairShares:
    """Usage by tenant, inner ones included. Mutable: starts are added as they are made.

    `past`: what has been used so far; `used`: the same, with what would be used if all hosts were
    held for ever.
    """

    def __init__(self, state: State, now_ns: int, book: QuotaBook) -> None:
        self._tenants = state.tenants
        self._half_life_ns = half_life_ns(state.tenants)
        self._book = book
        self._place, self._path = state.tenants.place_by_name, state.tenants.path_by_name
        self._own_past: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self.past = dict.fromkeys(self._place, 0)
        for name, account in state.accounts.items():
            self._own_past[name] = past = account.used_at(now_ns, self._half_life_ns)
            self._held[name] = account.held
            self._add(self.past, name, past)
        self.used = self._used_with({})

    def _used_with(self, started: Mapping[str, int]) -> dict[str, int]:
        used = dict.fromkeys(self._place, 0)
        for name in dict.fromkeys((*self._held, *started)):
            held = self._held.get(name, 0) + started.get(name, 0)
            more = self._own_past.get(name, 0) + standing(held, self._half_life_ns)
            self._add(used, name, more)
        return used

    def holding(self, started: Mapping[str, int]) -> FairShares:
        """Return the shares as the next decision counts them, once tenants hold these hosts as
        well."""
        shares = copy(self)
        shares.used = self._used_with(started)
        return shares

    def excess(self, leaf: str) -> Excess:
        """Return how far the tenant, and each above it from the top, has used more than its share:
        in thousandths of what it and its siblings have used together; negative below its share."""
        path, tenants = self._path[leaf], self._tenants
        excess = []
        for above, name in zip(("", *path), path, strict=False):
            siblings = [each for each in tenants.tenants if each.parent == above]
            used = sum(self.past[each.name] for each in siblings) or 1
            weight = tenants.by_name[name].weight
            due = weight * _SCALE // sum(each.weight for each in siblings)
            excess.append(self.past[name] * _SCALE // used - due)
        return tuple(excess)

    def record_allocation(self, leaf: str, hosts: int) -> None:
        """Record that the tenant `leaf` starts something on that many hosts."""
        self._add(self.used, leaf, standing(hosts, self._half_life_ns))

    def _add(self, usage: dict[str, int], leaf: str, more: int) -> None:
        for name in self._path[leaf]:
            usage[name] += more

    def ranks(self, needed_by_leaf: Mapping[str, int]) -> dict[str, Rank]:
        """Rank the tenants that have jobs, by how many hosts the next job of each needs. Given: how
        many hosts its next job needs.

        Cost: O(tenants log tenants).
        """
        below: dict[str, set[str]] = {}
        for leaf in needed_by_leaf:
            for above, name in zip(("", *self._path[leaf]), self._path[leaf], strict=False):
                below.setdefault(above, set()).add(name)
        ranks: dict[str, Rank] = {}
        if needed_by_leaf:
            self._rank("", below, needed_by_leaf, ranks)
        return ranks

    def _rank(
        self,
        above: str,
        below: Mapping[str, set[str]],
        needed_by_leaf: Mapping[str, int],
        ranks: dict[str, Rank],
    ) -> int:
        """Rank what is below a tenant. The answer: how many hosts its next job needs."""
        needed: dict[str, int] = {}
        inner: dict[str, dict[str, Rank]] = {}
        for name in below[above]:
            if name in below:
                inner[name] = {}
                needed[name] = self._rank(name, below, needed_by_leaf, inner[name])
            else:
                needed[name] = needed_by_leaf[name]
        order = list(self._ordered(needed))
        for place, name in enumerate(order):
            for leaf, deeper in inner.get(name, {name: ()}).items():
                ranks[leaf] = (place, *deeper)
        return needed[order[0]]

    def _ordered(self, needed: Mapping[str, int]) -> Iterator[str]:
        """Siblings, the one to serve next first."""
        owed = [name for name in needed if self._book.is_within_guarantee(name)]
        borrowing = [name for name in needed if not self._book.is_within_guarantee(name)]
        yield from self._evened(owed, needed)
        yield from self._evened(borrowing, needed)

    def _evened(self, names: Iterable[str], needed: Mapping[str, int]) -> Iterator[str]:
        """By usage for their weight, those that a job parts by what they have used."""

        def weighed(name: str, usage: int) -> int:
            return usage * _SCALE // self._tenants.by_name[name].weight

        waiting = [(weighed(n, self.used[n]), self._place[n], n) for n in names]
        waiting.sort(reverse=True)
        # Of each, its usage once its next job runs: nobody beyond that of another goes first.
        ends = [
            (used + weighed(n, standing(needed[n], self._half_life_ns)), n)
            for used, _, n in waiting
        ]
        heapify(ends)
        near: list[tuple[int, int, int, str]] = []
        done = set[str]()
        while waiting or near:
            while ends and ends[0][1] in done:
                heappop(ends)
            while waiting and waiting[-1][0] <= ends[0][0]:
                used, place, name = waiting.pop()
                heappush(near, (weighed(name, self.past[name]), used, place, name))
            name = heappop(near)[-1]
            done.add(name)
            yield name
