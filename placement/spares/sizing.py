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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, lgamma, log, log1p

FAILURES_PER_HOST_DAY = 3.79e-3  # Llama 3 405B: 419 interruptions of 2,048 hosts in 54 days
REPAIR_DAYS = 1.0
EPSILON = 0.01
OFTEN_OUT = 0.05  # of its time: from here on hosts are counted one by one
_LEAST = 1e-9  # a smaller epsilon counts as this: sums are good to about 1e-12


@dataclass(frozen=True, slots=True)
class Sizing:
    """By which rule spares are sized, and what stands by already.

    `epsilon`: how often a zone may run out of spares, as a share of the time. `racks`:
    whole racks held in each zone of a gang on top, against the loss of a switch.
    `others`, `held`: by outermost domain, hosts of other gangs that share their spares
    with this one, and those spares. `in_zone`: spares stand by in each zone of a gang even
    where it cuts more for it. `clumping`: c of the variance, mean + c mean^2, of hosts out
    in a zone; 0 = each fails for itself.
    """

    failures_per_host_day: float = FAILURES_PER_HOST_DAY
    repair_days: float = REPAIR_DAYS
    epsilon: float = EPSILON
    racks: int = 0
    others: tuple[int, ...] = ()
    held: tuple[int, ...] = ()
    in_zone: bool = False
    clumping: float = 0.0

    def size(self, hosts: int) -> int:
        """Spares for so many hosts of one zone, whole racks aside."""
        rate, days = self.failures_per_host_day, self.repair_days
        return size_spares(hosts, rate, days, self.epsilon, self.clumping)

    def wish(self, hosts: int, zone: int | None = None) -> int:
        """Spares that `hosts` hosts of a gang want beside those that stand by in the zone."""
        if not hosts or zone is None or not self.others:
            return self.size(hosts)
        return max(0, self.size(hosts + self.others[zone]) - self.held[zone])

    def short(self, hosts: int, spares: int) -> float:
        """Share of the time in which `spares` are not enough for `hosts`."""
        rate, days = self.failures_per_host_day, self.repair_days
        return short_of_spares(hosts, spares, rate, days, self.clumping)


BY_DEFAULT = Sizing()


def size_spares(
    hosts: int,
    failures_per_host_day: float = FAILURES_PER_HOST_DAY,
    repair_days: float = REPAIR_DAYS,
    epsilon: float = EPSILON,
    clumping: float = 0.0,
) -> int:
    """Smallest k that the hosts out of service exceed with probability at most epsilon.

    Terms are taken from logarithms: exp(-mean) is 0 from a mean of 745 on. Sums of
    them are good to about 1e-12, and an epsilon below 1e-9 counts as that.
    """
    out = failures_per_host_day * repair_days
    least = max(epsilon, _LEAST)
    if hosts * out <= 0:
        return 0
    share = out / (1 + out)
    if clumping > 0:
        return _quantile(_clumped(hosts * out, clumping), least)
    if share < OFTEN_OUT:
        return _quantile(_poisson(hosts * out), least)
    # More machines never make fewer spares enough for less: bisection.
    low, high = 0, 1
    while _tail(_binomial(hosts + high, share), high) > least:
        low, high = high, 2 * high
    while low < high:
        k = (low + high) // 2
        low, high = (low, k) if _tail(_binomial(hosts + k, share), k) <= least else (k + 1, high)
    return low


def short_of_spares(
    hosts: int,
    spares: int,
    failures_per_host_day: float,
    repair_days: float,
    clumping: float = 0.0,
) -> float:
    """Probability that more than `spares` hosts are out, as `size_spares` counts them."""
    out = failures_per_host_day * repair_days
    if hosts * out <= 0:
        return 0.0
    share = out / (1 + out)
    if clumping > 0:
        return _tail(_clumped(hosts * out, clumping), spares)
    if share < OFTEN_OUT:
        return _tail(_poisson(hosts * out), spares)
    return _tail(_binomial(hosts + spares, share), spares)


def standby_pool(machines: int, probability: float, epsilon: float = EPSILON) -> int:
    """Quantile of Binomial(machines, probability): spares for one window at the end of
    which the pool is full again, each machine failing in it with this probability.

    Source: ByteRobust (2025): 4 for 1,024 machines at 1 %.
    """
    return _quantile(_binomial(machines, probability), max(epsilon, _LEAST))


def _quantile(chances: Iterator[float], epsilon: float) -> int:
    below = 0.0
    for k, chance in enumerate(chances):
        below += chance
        if 1 - below <= epsilon:
            return k
    return 0  # of nothing


def _tail(chances: Iterator[float], k: int) -> float:
    """What lies above `k`."""
    below = sum(chance for _, chance in zip(range(k + 1), chances, strict=False))
    return max(0.0, 1 - below)


def _poisson(mean: float) -> Iterator[float]:
    """P(0), P(1), ..., for ever."""
    k = 0
    while True:
        yield exp(k * log(mean) - mean - lgamma(k + 1))
        k += 1


def _clumped(mean: float, clumping: float) -> Iterator[float]:
    """P(0), P(1), ... of the negative binomial with variance mean + clumping x mean^2."""
    shape, k = 1 / clumping, 0
    at_least, more = shape * log(shape / (shape + mean)), log(mean / (shape + mean))
    while True:
        ways = lgamma(k + shape) - lgamma(shape) - lgamma(k + 1)
        yield exp(ways + at_least + k * more)
        k += 1


def _binomial(n: int, p: float) -> Iterator[float]:
    """P(0), ..., P(n)."""
    if not 0 < p < 1:
        yield from [0.0] * (n if p >= 1 else 0)
        yield 1.0
        return
    for k in range(n + 1):
        ways = lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
        yield exp(ways + k * log(p) + (n - k) * log1p(-p))
