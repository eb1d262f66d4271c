"""How many spares a zone needs.

A zone of n hosts that fail at rate r and take time T to repair has Poisson(n r T)
of them out at any moment (Palm's theorem, M/G/inf). The zone holds the smallest k
that this exceeds with probability at most epsilon: 5 for 384 hosts at the Llama 3
rate, one day of repair and 1 %.
"""

from __future__ import annotations

from math import exp, lgamma, log

FAILURES_PER_HOST_DAY = 3.79e-3  # Llama 3 405B: 419 interruptions of 2,048 hosts in 54 days
REPAIR_DAYS = 1.0
EPSILON = 0.01


def size_spares(
    hosts: int,
    failures_per_host_day: float = FAILURES_PER_HOST_DAY,
    repair_days: float = REPAIR_DAYS,
    epsilon: float = EPSILON,
) -> int:
    """Smallest k with P(Poisson(hosts x rate x repair) > k) <= epsilon.

    Terms are taken from logarithms: exp(-mean) is 0 from a mean of 745 on. Sums of
    them are good to about 1e-12, and an epsilon below 1e-9 counts as that.
    """
    mean = hosts * failures_per_host_day * repair_days
    if mean <= 0:
        return 0
    k, below = 0, exp(-mean)
    while 1 - below > max(epsilon, 1e-9):
        k += 1
        below += exp(k * log(mean) - mean - lgamma(k + 1))
    return k
