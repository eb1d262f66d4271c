"""How often hosts fail and how long repairs take: a fold over the log.

Failures of a fleet are taken for a Poisson process whose rate has a gamma distribution.
Before anything is seen it is the operator's rate, as if seen for so many host-days; n
failures in t host-days then make it

    rate = (prior rate x prior host-days + n) / (prior host-days + t)

which is the mean of the posterior, Gamma(prior failures + n, prior host-days + t). Times to
repair are taken for exponential in the same way: all time out of service, of hosts that are
out still as well, over the repairs that ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.spares import Sizing
from scheduler.core.lifecycle import HostState
from scheduler.core.spares.policy import DAY_S, SparePolicy

SECOND_NS = 1_000_000_000  # as in job, which stands on this
DAY_NS = DAY_S * SECOND_NS

DOWN = frozenset({HostState.FAILED, HostState.IN_REPAIR, HostState.RMA})


@dataclass(frozen=True, slots=True)
class Faults:
    """`since_ns`: when the fleet was first seen. `down`: hosts out by failure at `at_ns`;
    `out_ns`: host-time that failures had taken by then."""

    failures: int = 0
    repairs: int = 0
    down: int = 0
    out_ns: int = 0
    at_ns: int = 0
    since_ns: int = 0

    def out_by(self, now_ns: int) -> int:
        """Host-time out of service until `now_ns`."""
        return self.out_ns + self.down * max(0, now_ns - self.at_ns)


NO_FAULTS = Faults()


def loaded(now_ns: int) -> Faults:
    """Nothing has failed yet."""
    return Faults(at_ns=now_ns, since_ns=now_ns)


def moved(faults: Faults, before: HostState, now: HostState, now_ns: int) -> Faults:
    """A host went from one state to another."""
    change = (now in DOWN) - (before in DOWN)
    if not change:
        return faults
    return replace(
        faults,
        failures=faults.failures + (change > 0),
        repairs=faults.repairs + (change < 0),
        down=faults.down + change,
        out_ns=faults.out_by(now_ns),
        at_ns=max(faults.at_ns, now_ns),
    )


def sizing(policy: SparePolicy, faults: Faults, hosts: int, now_ns: int) -> Sizing:
    """What spares are sized by, once the fleet of so many hosts was seen until `now_ns`."""
    rate, repair_s = policy.failures_per_host_day, float(policy.repair_s)
    if policy.prior_host_days:
        out_ns = faults.out_by(now_ns)
        seen_ns = max(0, hosts * (now_ns - faults.since_ns) - out_ns)
        prior = policy.prior_host_days
        rate = (rate * prior + faults.failures) / (prior + seen_ns / DAY_NS)
        repair_s = (repair_s * policy.prior_repairs + out_ns / SECOND_NS) / (
            policy.prior_repairs + faults.repairs
        )
    return Sizing(rate, repair_s / DAY_S, policy.epsilon, policy.racks, in_zone=policy.in_zone)
