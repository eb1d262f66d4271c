"""Failures of hosts at the rates of the log, and repairs of hosts that are down.

Rates are those by which the cluster sizes its spares: what failed, over the host-days that were
seen, with the operator's rate for as many host-days as the tenants file says. Repairs are
exponential. Domains fail as a whole at the rate at which they did: a day on which most of the
hosts of a rack or zone (three quarters, and three) failed is one failure of all of it, the
outermost that it holds for. Days are all that records keep of past failures, for four weeks. What
fails besides, each host for itself, keeps the whole rate of hosts what it is. Hosts that failed
while they were suspect for a signal are announced by it, as surely and as long before as they were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random

from muster.structs import struct
from scheduler.core import HostState, State
from scheduler.core.model.records.failure_rates import DAY_NS, DOWN, SuspicionCount, sizing
from scheduler.core.model.records.host import DAYS, DailyCount
from simulator.failures import Outage, merged
from simulator.failures.cause import DAY_S, FailureCause, Precursor, RepairTime
from simulator.failures.process import outages
from simulator.traces.record import SECOND_NS

CAUSE = "as in the log"
LEAST_TOGETHER = 3  # hosts of a domain that fail on one day, for it to be a failure of all of it
_OUT = DOWN | {HostState.NEW, HostState.BURN_IN}


@struct(frozen=True, slots=True)
class GroupFailures:
    """Failures of whole domains of a tier: `seen` in so many `domain_days`."""

    tier: str
    seen: int
    domain_days: float

    @property
    def per_1000_days(self) -> float:
        return 1000 * self.seen / self.domain_days

    @property
    def per_host_day(self) -> float:
        """Failures of a host per day that are failures of its domain, with which all its hosts
        fail."""
        return self.per_1000_days / 1000


@struct(frozen=True, slots=True)
class FittedFailures:
    """Failures of hosts as fitted to the log. `repair_s`: mean time out of service. `failures`,
    `repairs`, `host_days`: what of it was seen; `prior_host_days`, `prior_repairs`: as if seen
    beside that, at the rates of the tenants file. `dispersion`: variance to mean of hosts out in a
    zone, 1 = each fails for itself. `groups`: whole domains that failed, by tier. `announced`: how
    often hosts were suspect, by signals after which some of them failed."""

    per_host_day: float
    repair_s: float
    failures: int
    repairs: int
    host_days: float
    prior_host_days: int
    prior_repairs: int
    dispersion: float
    groups: tuple[GroupFailures, ...] = ()
    announced: tuple[SuspicionCount, ...] = ()

    def sentences(self) -> list[str]:
        """Say what the failures were fitted from."""
        rate = f"failures: {1000 * self.per_host_day:.3g} per 1,000 host-days, from"
        seen = f"{self.failures:,} in {self.host_days:,.1f} host-days of the log"
        prior = f"the operator's rate, which counts as {self.prior_host_days:,} host-days"
        repair = f"repairs: {self.repair_s / 3600:.3g} h on average, from"
        repaired = f"{self.repairs:,} of the log"
        before = f"the operator's, which counts as {self.prior_repairs:,}"
        sentences = [
            f"{rate} {seen} and {prior}" if self.prior_host_days else f"{rate} the operator",
            f"{repair} {repaired} and {before}"
            if self.prior_host_days
            else f"{repair} the operator",
        ]
        sentences += [
            f"whole {group.tier}s failed {group.seen:,} times in {group.domain_days:,.0f}"
            f" {group.tier}-days of the last four weeks: {group.per_1000_days:.3g} per 1,000"
            for group in self.groups
        ]
        sentences += [
            f"{count.failures:,} of {self.failures:,} failures followed {count.signal}, which had"
            f" made hosts suspect {count.ended:,} times"
            for count in self.announced
        ]
        if not self.groups and self.dispersion > 1.5 and self.failures > 9:
            sentences.append(
                f"hosts out in a zone varied {self.dispersion:.1f} times as much as if each failed"
                " for itself, which the twin takes them to do, for no whole domain failed"
            )
        return sentences

    def outages(self, state: State, seed: int) -> Iterator[Outage]:
        """Yield outages from now on, for ever, alike for a seed; hosts that are out return."""
        fabric = state.built_fabric
        down = [i for i, host in state.hosts.items() if host.state in _OUT]
        repair = RepairTime(self.repair_s / 3600)
        known = []
        for index in sorted(down):
            name = fabric.hosts[index]
            back_s = repair.draw_s(Random(f"{seed}/twin/back/{name}"))
            known.append(Outage(0, name, True, CAUSE))
            known.append(Outage(1 + round(back_s * SECOND_NS), name, False, CAUSE))
        known.sort(key=lambda outage: outage.time_ns)
        streams: list[Iterator[Outage]] = [iter(known)]
        elsewhere = sum(group.per_host_day for group in self.groups)
        for count in self.announced:
            cause = self._announced_cause(count, repair)
            elsewhere += cause.rate / 1000
            streams.append(outages(cause, fabric, seed))
        if self.per_host_day > elsewhere:
            cause = FailureCause(CAUSE, 1000 * (self.per_host_day - elsewhere), repair)
            streams.append(outages(cause, fabric, seed))
        for group in self.groups:
            name = f"{group.tier} failure, {CAUSE}"
            cause = FailureCause(name, group.per_1000_days, repair, scope=group.tier)
            streams.append(outages(cause, fabric, seed))
        return (outage for outage in merged(streams) if outage.time_ns)

    def _announced_cause(self, count: SuspicionCount, repair: RepairTime) -> FailureCause:
        """Return the failures that a signal announces, for as long as hosts were suspect for it."""
        rate = 1000 * self.per_host_day * count.failures / self.failures
        lead_h = count.failed_ns / count.failures / SECOND_NS / 3600
        precursor = Precursor(count.signal, 1, count.failures / count.ended, lead_h)
        name = f"after {count.signal}, {CAUSE}"
        return FailureCause(name, rate, repair, precursor=precursor)


def fit_failures(state: State, now_ns: int) -> FittedFailures:
    """Fit failures to the log so far. Cost: microseconds."""
    policy, faults = state.tenants.spares, state.faults
    hosts = state.built_fabric.host_count
    rates = sizing(policy, faults, hosts, now_ns)
    seen_ns = hosts * (now_ns - faults.since_ns) + faults.more_ns - faults.out_by(now_ns)
    return FittedFailures(
        rates.failures_per_host_day,
        rates.repair_days * DAY_S,
        faults.failures,
        faults.repairs,
        max(0, seen_ns) / DAY_NS,
        policy.prior_host_days,
        policy.prior_repairs,
        faults.dispersion(now_ns),
        tuple(_groups(state, now_ns)),
        tuple(count for count in faults.suspicions if count.failures),
    )


def _groups(state: State, now_ns: int) -> Iterator[GroupFailures]:
    """By tier, the outermost first. Cost: O(hosts)."""
    fabric = state.built_fabric
    seen_days = min(DAYS, max(1.0, (now_ns - state.faults.since_ns) / DAY_NS))
    failed: dict[int, set[int]] = defaultdict(set)  # hosts by day
    for index, record in state.records.items():
        for mark in record.days:
            if mark.kind == DailyCount.OUT:
                failed[mark.time_ns].add(index)
    for tier in fabric.tiers:
        size = Counter(tier.domain_by_host.tolist())
        seen = 0
        for hosts in failed.values():
            down = Counter(int(tier.domain_by_host[host]) for host in hosts)
            whole = {at for at, n in down.items() if n >= LEAST_TOGETHER and 4 * n >= 3 * size[at]}
            seen += len(whole)
            hosts -= {host for host in hosts if int(tier.domain_by_host[host]) in whole}
        if seen:
            yield GroupFailures(tier.name, seen, len(size) * seen_days)
