"""What a zone cuts where replicas are staggered over hosts: a walk along all replicas at once.

Setting: data parallelism outermost, the pipeline inside it, and replicas that are not whole
hosts (`cells`, runs). A *strand* is a replica read from its first run to its last; there
the strand of the next replica goes on, so D strands in a ring are read side by side, row by
row, for `rows` rows, and then the same runs come again. A host is q neighbouring runs of
one strand, and strands of one *class*, every q-th, begin their hosts at the same rows.

What a zone holds is told by n_1 .. n_q, how many strands of each class it holds at a row.
Between two rows one class alone ends its hosts and begins others, and only its number
changes. Then:

- At a row the zone cuts the ring of replicas in twice as many places as it has arcs there,
  at least one where it holds some strands and not all. A class has n_i - n_(i-1) more
  strands than the class before it on the ring, and as many arcs begin there at least: the
  arcs are at least the sum of max(0, n_i - n_(i-1)) over the ring of classes.
- A strand that enters or leaves the zone inside a stage parts that stage's cells there.
  Where a stage is so short that one host at most ends inside it, that is all of what
  parts it, and the cost of parting it there is known (a *turn*).

A zone that holds some strands and not all at every row costs `rows` arcs. Any other one has
a row of which it holds nothing, or else all, and then the rest of the gang has such a row
and cuts the same. So it is enough to know the most hosts on a walk from nothing to nothing
for each cost below that of `rows` arcs: a dynamic program over (n_1 .. n_q, cost), exact
but for counts above a limit, where hosts are taken to cost nothing from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.fabric import Ints

MOST_ENTRIES = 1_300_000  # of the table: a row of it takes some milliseconds
MOST_FINE = 4  # cost units in which an arc is counted, at most
COARSE = 0.1  # of a turn: what is lost to rounding at most, where that can be had
FEWEST_SLOTS = 4  # of a class; a smaller table says nothing
NEVER = -(1 << 24)  # hosts on a walk that does not exist
ALL = 1 << 24  # no fewer hosts than there are


@dataclass(frozen=True, slots=True)
class Strands:
    """`strands` in a ring, read in `rows` rows; hosts are `classes` neighbouring runs.

    Doubled costs: `arc`, of an arc of neighbours at a row; `turns[s]`, of one strand that
    enters or leaves behind row s. `period`: after how many rows turns come again.
    """

    rows: int
    strands: int
    classes: int
    arc: int
    turns: tuple[int, ...]
    period: int

    @property
    def hosts(self) -> int:
        return self.rows * self.strands // self.classes

    def part_costs(self) -> Ints | None:
        """The least doubled cost of a zone with n = 0 .. all hosts; None if unknown."""
        if not self.arc:  # nothing is sent round the strands, and turns have no measure
            return None
        fine = self._fineness()
        budget = fine * self.rows
        limit = int((MOST_ENTRIES / budget) ** (1 / self.classes) + 1e-9)
        if limit < min(FEWEST_SLOTS, self.strands // self.classes + 1):
            return None
        unit = self.arc // fine
        most = _Walk(self, fine, budget, limit).most_hosts([turn // unit for turn in self.turns])
        hosts = np.arange(self.hosts + 1)
        cost = np.minimum(np.searchsorted(most, hosts) * unit, self.arc * self.rows)
        return np.asarray(np.minimum(cost, cost[::-1]))

    def _fineness(self) -> int:
        """Units of an arc in which turns are told well enough, few if possible."""
        turns = [turn for turn in set(self.turns) if turn]

        def lost(fine: int) -> float:
            unit = self.arc // fine
            return max((turn % unit / turn for turn in turns), default=0.0)

        tried = range(1, min(MOST_FINE, self.arc) + 1)
        return next((fine for fine in tried if lost(fine) <= COARSE), min(tried, key=lost))


class _Walk:
    """The table: most hosts so far, by strands held of each class and by cost."""

    def __init__(self, of: Strands, fine: int, budget: int, limit: int) -> None:
        self._of, self._budget = of, budget
        self._full = of.strands // of.classes
        self._slots = min(limit, self._full + 1)  # the last stands for all above it
        held = np.indices((self._slots,) * of.classes).reshape(of.classes, -1)
        arcs = np.maximum(0, held - np.roll(held, 1, axis=0)).sum(axis=0)
        is_part = (held > 0).any(axis=0) & (held < self._slots - 1).any(axis=0)
        paid = fine * np.maximum(arcs, is_part)
        # Vectors of one cost side by side, for what they pay is a shift along the costs.
        self._order = np.argsort(paid, kind="stable")
        self._back = np.argsort(self._order, kind="stable")
        costs, starts = np.unique(paid[self._order], return_index=True)
        ends = [*starts[1:].tolist(), len(paid)]
        self._paid = list(zip(costs.tolist(), starts.tolist(), ends, strict=True))

    def most_hosts(self, turns: Sequence[int]) -> Ints:
        """On a walk from nothing to nothing, by cost 0 .. budget - 1.

        The walk waits at nothing for free, so that one that is a period longer than the
        rows has all the rows to begin at."""
        of = self._of
        step = -pow(of.rows, -1, of.classes) % of.classes
        most = np.full((self._slots**of.classes, self._budget), NEVER, dtype=np.int32)
        most[0] = 0
        for row in range(of.rows + of.period - 1):
            most = self._turned(most, row * step % of.classes, turns[row % of.rows])
            most = self._rowed(most)
        return np.maximum.accumulate(most[0])

    def _turned(self, most: Ints, of_class: int, turn: int) -> Ints:
        """Any number of strands of one class enter or leave; those held begin a host each."""
        slots, budget = self._slots, self._budget
        paid = min(turn, budget)
        shape = (slots**of_class, slots, -1, budget)
        table = most.reshape(shape)
        lower, upper = (slice(None, budget - paid), slice(paid, None))
        for n in range(1, slots):
            into = table[:, n, :, upper]
            np.maximum(into, table[:, n - 1, :, lower], out=into)
        for n in range(slots - 2, -1, -1):
            into = table[:, n, :, upper]
            np.maximum(into, table[:, n + 1, :, lower], out=into)
        for n in range(1, slots):
            table[:, n] += n
        if slots <= self._full:
            last = table[:, -1]
            last[last >= 0] = ALL
        return most

    def _rowed(self, most: Ints) -> Ints:
        """Every vector pays for its arcs at this row."""
        by_cost = most[self._order]
        shifted = np.full_like(by_cost, NEVER)
        for paid, start, end in self._paid:
            if paid < self._budget:
                shifted[start:end, paid:] = by_cost[start:end, : self._budget - paid]
        return np.asarray(shifted[self._back])
