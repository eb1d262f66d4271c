"""The best layout of a search, and what is proved of it. See docs/engine.md, "The search"."""

from __future__ import annotations

from muster.structs import replace, struct
from placement.fabric.tree import Ints


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
