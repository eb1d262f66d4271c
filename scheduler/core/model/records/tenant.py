"""What is known of a tenant beyond its entry in the tenants file: since when it is there, and what
it has used, fading with time; all in integers.

Usage is host-nanoseconds, each counted half after one half-life: the integral of the
hosts held, weighted by 2^(-age / half-life). Between two events a tenant holds the same
hosts, so an account is closed form and is touched only when its tenant holds others.

Factors are fixed-point numbers with 64 binary digits, found by multiplying square roots
of 1/2, one for each digit of the exponent: the same on every machine, and wrong by less
than a part in a thousand million. Stores hold accounts to the last bit and compare them with
their log, so the order of these products is part of their format.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import compress
from math import isqrt
from typing import Final

from msgspec import Struct

from scheduler.core.policies.tenants import Tenants

_BITS: Final = 64
_ONE: Final = 1 << _BITS
_LOG2_E: Final = 26_613_026_195_688_644_983  # 1 / ln 2, times 2^64
_DIGITS: Final = 32


def _roots() -> tuple[int, ...]:
    """2^(-1/2), 2^(-1/4), 2^(-1/8), ... in fixed point."""
    roots = [isqrt(_ONE * _ONE // 2)]
    while len(roots) < _DIGITS:
        roots.append(isqrt(roots[-1] * _ONE))
    return tuple(roots)


_ROOTS: Final = _roots()
_TRUTH: Final = bytes.maketrans(b"01", bytes((0, 1)))


class UsageAccount(Struct, frozen=True):
    """Account of the hosts that a tenant holds and has used. `held`: hosts held since `as_of_ns`.
    `used`: host-ns as they counted then. `part_gpus`: GPUs of jobs on parts of hosts; together they
    count as the hosts in `held` that they would fill."""

    held: int = 0
    used: int = 0
    as_of_ns: int = 0
    part_gpus: int = 0

    def used_at(self, now_ns: int, half_life_ns: int) -> int:
        """Host-nanoseconds as they count at `now_ns`. Cost: 2 us."""
        kept = usage_decay(now_ns - self.as_of_ns, half_life_ns)
        since = self.held * half_life_ns * (_ONE - kept) * _LOG2_E >> 2 * _BITS
        return (self.used * kept >> _BITS) + since

    def having(self, more: int, now_ns: int, half_life_ns: int, part_gpus: int = 0) -> UsageAccount:
        """Return the account after `more` hosts were taken (negative: given back), of which
        `part_gpus` GPUs are of jobs on parts of hosts."""
        used = self.used_at(now_ns, half_life_ns)
        return UsageAccount(self.held + more, used, now_ns, self.part_gpus + part_gpus)


def hosts_filled(part_gpus: int, gpus_per_host: int) -> int:
    """Return how many hosts GPUs on parts of hosts would fill, rounded up."""
    return -(-part_gpus // gpus_per_host)


def usage_decay(elapsed_ns: int, half_life_ns: int) -> int:
    """Return the factor by which usage decays, 2^(-elapsed / half-life), times 2^64."""
    halvings, rest = divmod(max(0, elapsed_ns), half_life_ns)
    if halvings >= _BITS:
        return 0
    share = _ONE >> halvings
    digits = (rest << _DIGITS) // half_life_ns
    is_one = f"{digits:0{_DIGITS}b}".encode().translate(_TRUTH)
    for root in compress(_ROOTS, is_one):
        share = share * root >> _BITS
    return share


def standing(held: int, half_life_ns: int) -> int:
    """Return the usage that a tenant tends to when it holds `held` hosts for ever."""
    return held * half_life_ns * _LOG2_E >> _BITS


class TenantMark(Struct, frozen=True):
    """When a tenant came and changed. `create_ns`: when a file first named it. `update_ns`: when
    one last changed it."""

    create_ns: int
    update_ns: int


def marked(
    mark: Callable[[str], TenantMark], was: Tenants, now: Tenants, time_ns: int
) -> dict[str, TenantMark]:
    """Return the records of all tenants of the tenants file `now`, which holds from `time_ns` on.
    `mark`: the records under the file `was`."""
    marks = {}
    for tenant in now.tenants:
        before = was.by_name.get(tenant.name)
        if before is None:
            marks[tenant.name] = TenantMark(time_ns, time_ns)
            continue
        known = mark(tenant.name)
        is_same = before == tenant
        marks[tenant.name] = known if is_same else TenantMark(known.create_ns, time_ns)
    return marks
