"""How many spares a zone needs.

A zone of n hosts that fail at rate r and take time T to repair has Poisson(n r T)
of them out at any moment (Palm's theorem, M/G/inf). The zone holds the smallest k
that this exceeds with probability at most epsilon: 5 for 384 hosts at the Llama 3
rate, one day of repair and 1 %.

Poisson lets more hosts be out than there are, which matters where each is out for long:
from 5 % of its time on, hosts and spares are counted one by one, k being the smallest
with P(Binomial(n + k, r T / (1 + r T)) > k) at most epsilon.

Both take hosts to fail each for itself. Where a feed, a switch or a software release takes many
at once, the number out varies more than that: its variance is mean + c mean^2, and it
is taken for negative binomial (Poisson with a mean that is gamma distributed).

All three are of the (a, b, 0) class (Panjer 1981): P(k) = (a + b / k) P(k - 1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from math import exp, log, log1p

from muster.structs import struct

FAILURES_PER_HOST_DAY = 3.79e-3  # Llama 3 405B: 419 interruptions of 2,048 hosts in 54 days
REPAIR_DAYS = 1.0
EPSILON = 0.01
OFTEN_OUT = 0.05  # of its time: from here on hosts are counted one by one
_LEAST = 1e-9  # a smaller epsilon counts as this: sums are good to 1e-10


@struct(frozen=True, slots=True)
class Sizing:
    """The rule by which spares are sized, and spares that stand by already.

    `epsilon`: how often a zone may run out of spares, as a share of the time. `racks`: whole racks
    held in each zone of a gang on top, against the loss of a switch. `others`, `held`: by outermost
    domain, hosts of other gangs that share their spares with this one, and those spares. `in_zone`:
    spares stand by in each zone of a gang even where it cuts more for it. `clumping`: c of the
    variance, mean + c mean^2, of hosts out in a zone; 0 = each fails for itself. `per_zone`: so
    many in each zone of gangs, whatever fails; None: as many as that asks for.
    """

    failures_per_host_day: float = FAILURES_PER_HOST_DAY
    repair_days: float = REPAIR_DAYS
    epsilon: float = EPSILON
    racks: int = 0
    others: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    in_zone: bool = False
    clumping: float = 0.0
    per_zone: int | None = None

    @property
    def is_strict(self) -> bool:
        """Whether a gang is placed only where all of its zones keep what is asked for."""
        return self.in_zone or self.per_zone is not None or self.racks > 0

    def size(self, hosts: int) -> int:
        """Return the spares for so many hosts of one zone, whole racks aside: the smallest k that
        the hosts out of service exceed with probability at most epsilon, 1e-9 if that is less."""
        if self.per_zone is not None:
            return self.per_zone if hosts else 0
        least = max(self.epsilon, _LEAST)
        if not self._counts_machines:
            return _quantile(self._chances(hosts, 0), least)
        # More machines never make fewer spares enough for less: bisection.
        high = 1
        while self.shortage_share(hosts, high) > least:
            high *= 2
        return bisect_left(range(high), True, key=lambda k: self.shortage_share(hosts, k) <= least)

    def shortage_share(self, hosts: int, spares: int) -> float:
        """Return the share of the time in which `spares` are not enough for `hosts`: the
        probability that more are out."""
        return max(0.0, 1 - sum(islice(self._chances(hosts, spares), spares + 1)))

    def spares_needed(self, hosts: int, zone: int | None = None) -> int:
        """Return how many spares `hosts` hosts of a gang need beside spares that stand by in the
        zone."""
        if not hosts or zone is None or not self.others:
            return self.size(hosts)
        return max(0, self.size(hosts + self.others[zone]) - self.held[zone])

    @property
    def _out(self) -> float:
        """Days out of service for each in it."""
        return self.failures_per_host_day * self.repair_days

    @property
    def _counts_machines(self) -> bool:
        return self.clumping <= 0 and self._out / (1 + self._out) >= OFTEN_OUT

    def _chances(self, hosts: int, spares: int) -> Iterator[float]:
        """P(0), P(1), ... of the hosts that are out at a moment."""
        mean, c = hosts * self._out, self.clumping
        if mean <= 0:
            return iter((1.0,))
        if self._counts_machines:
            return _binomial(hosts + spares, self._out / (1 + self._out))
        if c > 0:
            q = mean * c / (1 + mean * c)
            return _panjer(-log1p(mean * c) / c, q, (1 / c - 1) * q)
        return _panjer(-mean, 0.0, mean)


BY_DEFAULT = Sizing()


def _quantile(chances: Iterator[float], epsilon: float) -> int:
    """The smallest k that is exceeded with probability at most epsilon."""
    below = 0.0
    for k, chance in enumerate(chances):
        below += chance
        if 1 - below <= epsilon:
            return k
    return 0  # of nothing


def _binomial(n: int, p: float) -> Iterator[float]:
    odds = p / (1 - p)
    return _panjer(n * log1p(-p), -odds, (n + 1) * odds)


def _panjer(log_none: float, a: float, b: float) -> Iterator[float]:
    """P(0), P(1), ... as long as they are positive; `log_none`: the logarithm of P(0).

    In logarithms, for exp(-mean) is 0 from a mean of 745 on.
    """
    log_chance, k, ratio = log_none, 0, 1.0
    while ratio > 0:
        yield exp(log_chance)
        k += 1
        ratio = a + b / k
        log_chance += log(ratio) if ratio > 0 else 0.0
