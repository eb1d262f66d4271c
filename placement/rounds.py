"""The inner loop of a walk round a ring over areas: `go_round`.

What its steps are, and why no layout costs less, is said in `placement.curves`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from placement.compiled import Kernel
from placement.fabric import Ints

NEVER = 1 << 60


class Steps(NamedTuple):
    """What steps cost by the area where they begin, areas twice in a row: shapes (2 areas,) of
    `curve`, half of a strip, (sizes x 2 areas,) of the others but `any_gap`, (sizes,).

    `gap`: n hosts between strips that are single runs, `any_gap`: between any two. Of strips
    that hold q hosts more than any zone: `bent`, whose curves move far enough anyway, `torn`,
    and `shared`, torn with what the strips on both sides pay for it.
    """

    curve: Ints
    gap: Ints
    any_gap: Ints
    bent: Ints
    torn: Ints
    shared: Ints


class Paid(NamedTuple):
    """At least, by hosts so far and the area begun with: lines of `areas`.

    Where a single run `begins`, and the same with half of it; where a torn strip may begin that
    is not `shared` on its left (`alone`). Where a single run `ended`; a torn one that
    is followed by anything (`torn`), by a gap or another torn one (`torn_left`), or by
    the single run that shares its border (`shared`).
    """

    begins: Ints
    half: Ints
    alone: Ints
    ended: Ints
    torn: Ints
    torn_left: Ints
    shared: Ints


def _least(into: Ints, to: int, paid: Ints, at: int, step: Ints, begin: int, areas: int) -> None:
    """A line of costs, or what another one comes to with a step."""
    into, paid, step = into[to : to + areas], paid[at : at + areas], step[begin : begin + areas]
    for k in range(areas):
        cost = paid[k] + step[k]
        if cost < into[k]:
            into[k] = cost


def _least_of(into: Ints, to: int, paid: Ints, at: int, more: int, areas: int) -> None:
    into, paid = into[to : to + areas], paid[at : at + areas]
    for k in range(areas):
        cost = paid[k] + more
        if cost < into[k]:
            into[k] = cost


def _go_round(steps: Steps, paid: Paid, areas: int, total: int, most: int) -> None:
    """All lines but the first are filled."""
    for t in range(total + 1):
        now = t * areas
        for n in range(1, min(most, t) + 1):
            _least_of(paid.ended, now, paid.half, now - n * areas, 0, areas)
        for k in range(now, now + areas):
            paid.ended[k] += steps.curve[t % areas + k - now]
        for q in range(1, len(steps.torn) // (2 * areas)):
            then = t - most - q
            if then >= 0:
                at, step = then * areas, (2 * q * areas) + then % areas
                _least(paid.ended, now, paid.begins, at, steps.bent, step, areas)
                _least(paid.torn, now, paid.alone, at, steps.torn, step, areas)
                _least(paid.torn_left, now, paid.ended, at, steps.torn, step, areas)
                _least(paid.shared, now, paid.ended, at, steps.shared, step, areas)
        _least_of(paid.torn_left, now, paid.torn, now, 0, areas)
        _least_of(paid.alone, now, paid.torn_left, now, 0, areas)
        for ended in (paid.ended, paid.torn, paid.shared):
            _least_of(paid.begins, now, ended, now, 0, areas)
        for n in range(1, t + 1):
            at = (t - n) * areas
            step = 2 * n * areas + (t - n) % areas
            _least(paid.begins, now, paid.ended, at, steps.gap, step, areas)
            _least_of(paid.begins, now, paid.torn_left, at, steps.any_gap[n], areas)
            _least_of(paid.alone, now, paid.torn_left, at, steps.any_gap[n], areas)
            _least_of(paid.alone, now, paid.ended, at, steps.any_gap[n], areas)
        for k in range(now, now + areas):
            paid.half[k] = paid.begins[k] + steps.curve[t % areas + k - now]


go_round = Kernel(_go_round, _least, _least_of)


def least_round(steps: Steps, total: int, most: int) -> int:
    """Of a closed walk over `total` hosts that takes some single run of at most `most` hosts."""
    areas = len(steps.curve) // 2
    paid = Paid(*np.full((7, (total + 1) * areas), NEVER))
    paid.begins[:areas] = 0
    work = total * areas * (most + 2 * total)
    go_round.run(work, steps, paid, areas, total, most)
    return int(paid.begins[-areas:].min())
