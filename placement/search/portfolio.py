"""Portfolios: techniques of a search or a proof by name, in turns of growing shares of the work.

A technique takes the best layout so far and its bound, and returns them with a better layout or
bound, or as they are. Limits may leave out techniques by name, which is how
`python -m bench.placement --mode ablation` measures what each of them buys.
See docs/engine.md, "The search".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from muster.structs import replace, struct
from placement.fabric.tree import Ints
from placement.workload.request import SHARES, Limits

ONCE = (1,)  # shares of a technique that is run in the first turn alone, with all of the work


@struct(frozen=True, slots=True)
class Incumbent:
    """The best layout so far, its cost, and a cost that no layout beats, in one unit."""

    layout: Ints
    cost: int
    bound: int

    @property
    def is_closed(self) -> bool:
        """Whether it is proved that no layout costs less."""
        return self.cost <= self.bound

    def offer(self, layout: Ints, cost: int) -> Incumbent:
        """Take this layout instead if it costs less."""
        return replace(self, layout=layout, cost=cost) if cost < self.cost else self

    def raise_bound(self, bound: int) -> Incumbent:
        """Keep this bound, as far as the cost, if it is better."""
        bound = min(self.cost, bound)
        return replace(self, bound=bound) if bound > self.bound else self


class Technique(NamedTuple):
    """One way to a better layout or bound, by one part in so many of the work that limits allow.

    `improve`: takes the incumbent and that number. `shares`: the number for each turn; 0 for a turn
    without the technique. Turns beyond those of `SHARES` come after the last one of full limits.
    """

    name: str
    improve: Callable[[Incumbent, int], Incumbent]
    shares: tuple[int, ...] = SHARES


def run_turns(best: Incumbent, portfolio: Sequence[Technique], limits: Limits) -> Incumbent:
    """Run the techniques in their order, turn by turn, until no layout costs less than the best."""
    turns = max((len(technique.shares) for technique in portfolio), default=0)
    if limits.turns < len(SHARES):
        turns = min(turns, limits.turns)
    for turn in range(turns):
        for name, improve, shares in portfolio:
            if best.is_closed:
                return best
            if any(shares[turn : turn + 1]) and limits.may_use(name):
                best = improve(best, shares[turn])
    return best
