"""How often hosts fail and how long repairs take: a fold over the log.

Failures of a fleet are taken for a Poisson process whose rate has a gamma distribution.
Before anything is seen it is the operator's rate, as if seen for so many host-days; n
failures in t host-days then make it

    rate = (prior rate x prior host-days + n) / (prior host-days + t)

which is the mean of the posterior, Gamma(prior failures + n, prior host-days + t). Times to
repair are taken for exponential in the same way: all time out of service, of hosts that are
out still as well, over the repairs that ended.

Hosts that share a feed, a switch or a release fail together. How much more the number out in
a zone varies than if each failed for itself is the ratio of its variance to its mean,
over time and zones; it counts by the zone-repairs that it was seen for, one for each time to
repair of each zone, against `prior_repairs` of the operator's.
"""

from __future__ import annotations

from msgspec import Struct

from muster.structs import replace
from placement import Sizing
from scheduler.core.model.lifecycle import HostState
from scheduler.core.policies.spares import DAY_S, SparePolicy

SECOND_NS = 1_000_000_000  # as in job, which stands on this
DAY_NS = DAY_S * SECOND_NS

DOWN = frozenset({HostState.FAILED, HostState.IN_REPAIR, HostState.RMA})


class SuspicionCount(Struct, frozen=True):
    """Times that a host was suspect for `signal`: how many are over, how many of them ended as the
    host failed, and the host-time of these until then."""

    signal: str
    ended: int
    failures: int
    failed_ns: int


class FailureRates(Struct, frozen=True):
    """Sums over the failures and repairs of the fleet in the log. `since_ns`: when the fleet was
    first seen. `down`: hosts out by failure at `at_ns`; `out_ns`: host-time that failures had taken
    by then. `by_zone`: hosts out in each outermost domain; `square_ns`: the integral of the sum of
    their squares. `more_ns`: host-time by which the fleet was larger than now while it was seen,
    negative where it was smaller. `suspicions`: times that hosts were suspect, by signal."""

    failures: int = 0
    repairs: int = 0
    down: int = 0
    out_ns: int = 0
    at_ns: int = 0
    since_ns: int = 0
    by_zone: tuple[int, ...] = ()
    square_ns: int = 0
    more_ns: int = 0
    suspicions: tuple[SuspicionCount, ...] = ()

    def out_by(self, now_ns: int) -> int:
        """Return the host-time out of service until `now_ns`."""
        return self.out_ns + self.down * max(0, now_ns - self.at_ns)

    def squares_by(self, now_ns: int) -> int:
        """Return the integral of the squares of the hosts out by zone until `now_ns`."""
        return self.square_ns + sum(n * n for n in self.by_zone) * max(0, now_ns - self.at_ns)

    def dispersion(self, now_ns: int) -> float:
        """Variance to mean of the hosts out in a zone so far; 1 before any was out."""
        zones, seen_ns = len(self.by_zone), now_ns - self.since_ns
        mean = self.out_by(now_ns) / (zones * seen_ns) if zones and seen_ns > 0 else 0.0
        if not mean:
            return 1.0
        return self.squares_by(now_ns) / (zones * seen_ns) / mean - mean


NO_FAULTS = FailureRates()


def loaded(now_ns: int, zones: int) -> FailureRates:
    """Return rates of a fleet in which nothing has failed yet."""
    return FailureRates(at_ns=now_ns, since_ns=now_ns, by_zone=(0,) * zones)


def record_move(
    faults: FailureRates, was_down: bool, is_down: bool, now_ns: int, zone: int
) -> FailureRates:
    """Return the rates after a host of this outermost domain went from one state to another."""
    change = is_down - was_down
    if not change:
        return faults
    out = faults.by_zone
    return replace(
        faults,
        failures=faults.failures + (change > 0),
        repairs=faults.repairs + (change < 0),
        down=faults.down + change,
        out_ns=faults.out_by(now_ns),
        at_ns=max(faults.at_ns, now_ns),
        by_zone=(*out[:zone], out[zone] + change, *out[zone + 1 :]),
        square_ns=faults.squares_by(now_ns),
    )


def record_suspicion(
    faults: FailureRates, signal: str, suspect_ns: int, *, has_failed: bool
) -> FailureRates:
    """Count a time of `suspect_ns` that a host was suspect for `signal`, which is over."""
    counts = {count.signal: count for count in faults.suspicions}
    old = counts.get(signal) or SuspicionCount(signal, 0, 0, 0)
    counts[signal] = SuspicionCount(
        signal,
        old.ended + 1,
        old.failures + has_failed,
        old.failed_ns + (suspect_ns if has_failed else 0),
    )
    return replace(faults, suspicions=tuple(counts.values()))


def regrouped(
    faults: FailureRates, by_zone: tuple[int, ...], more: int, now_ns: int
) -> FailureRates:
    """Return the rates of a fleet with `more` hosts from now on (negative: fewer), of which so many
    are out in each zone."""
    return replace(
        faults,
        down=sum(by_zone),
        out_ns=faults.out_by(now_ns),
        at_ns=max(faults.at_ns, now_ns),
        by_zone=by_zone,
        square_ns=faults.squares_by(now_ns),
        more_ns=faults.more_ns - more * max(0, now_ns - faults.since_ns),
    )


def mean_repair_ns(policy: SparePolicy, faults: FailureRates) -> int:
    """Return how long a host is out of service on average, as seen until the last failure or
    repair. The mean stays the same while nothing happens, for promises rely on it."""
    out_ns, repairs = 0, 0
    if policy.prior_host_days:
        out_ns, repairs = faults.out_ns, faults.repairs
    weight = policy.prior_repairs + repairs
    prior_ns = policy.repair_s * SECOND_NS
    return (prior_ns * policy.prior_repairs + out_ns) // weight if weight else prior_ns


def sizing(policy: SparePolicy, faults: FailureRates, hosts: int, now_ns: int) -> Sizing:
    """Return the sizing of spares by the prior and `hosts` hosts seen until `now_ns`."""
    rate, repair_s = policy.failures_per_host_day, float(policy.repair_s)
    excess = policy.dispersion - 1
    if policy.prior_host_days:
        out_ns = faults.out_by(now_ns)
        seen_ns = max(0, hosts * (now_ns - faults.since_ns) + faults.more_ns - out_ns)
        prior = policy.prior_host_days
        rate = (rate * prior + faults.failures) / (prior + seen_ns / DAY_NS)
        repair_s = (repair_s * policy.prior_repairs + out_ns / SECOND_NS) / (
            policy.prior_repairs + faults.repairs
        )
        weight = len(faults.by_zone) * (now_ns - faults.since_ns) / SECOND_NS / repair_s
        seen = faults.dispersion(now_ns) - 1
        excess = (excess * policy.prior_repairs + seen * weight) / (policy.prior_repairs + weight)
    mean = hosts / max(1, len(faults.by_zone)) * rate * repair_s / DAY_S
    return Sizing(
        rate,
        repair_s / DAY_S,
        policy.epsilon,
        policy.racks,
        in_zone=policy.in_zone,
        clumping=max(0.0, excess) / mean if mean else 0.0,
        per_zone=policy.per_zone,
    )
