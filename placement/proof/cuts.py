"""What whole zones keep and fractions of zones do not: rows for a linear program that breaks it.

See docs/engine.md, "The proof".
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from placement.bound.rounding import stairs
from placement.fabric.tree import Ints
from placement.proof.master import Counter, Floats, Range

VIOLATED = 0.05  # zones; a cut violated by less is not worth a row


class Stairs:
    """Staircases for zones that cover `target` together, each with at most `most`."""

    def __init__(self, target: int, most: int) -> None:
        self._rise, self._run, self._whole, self._top = stairs(target, most)
        self._most = most

    @cached_property
    def _climbed(self) -> Floats:
        """Steps that n = 0 .. most climb on each. Shape: (most + 1, staircases)."""
        steps, rest = np.divmod(np.arange(self._most + 1)[:, None] * self._rise, self._run)
        return np.asarray(steps + np.minimum(rest / self._top, 1.0))

    def fallen_short(self, row: int, held: Ints, share: Floats, zones: int) -> dict[Counter, Range]:
        """The staircase that the zones fall furthest short of, if they do.

        `held`: of `row` by each pattern, of which there is so much `share`.
        """
        if not len(self._rise):
            return {}
        missing = self._whole + 1 - share @ self._climbed[held]
        worst = int(np.argmax(missing))
        if missing[worst] <= VIOLATED:
            return {}
        rise, run, part = int(self._rise[worst]), int(self._run[worst]), int(self._top[worst])
        counter = Counter(row, rise=rise, run=run, top=part)
        climbed = int(counter.values(self._most + 1)[-1])
        return {counter: (part * (int(self._whole[worst]) + 1), climbed * zones)}
