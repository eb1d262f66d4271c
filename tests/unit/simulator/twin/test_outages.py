"""Failures of whole racks and zones, fitted to what hosts' records keep of them."""

from itertools import takewhile

import pytest

from scheduler.core import State, Tenants, replay
from simulator.failures.cause import FailureCause, Precursor, RepairTime
from simulator.failures.process import outages
from simulator.twin.outages import CAUSE, fit_failures
from tests.replays import replayed
from tests.twins import DAY_NS, MONDAY_NS, cluster, jobs

FABRIC = cluster(zones=4, hosts=16)  # racks of 8


def lived(*causes: FailureCause, days: float = 20) -> tuple[State, int]:
    """A cluster some days on, in which these failed."""
    broke = sorted(
        outage
        for cause in causes
        for outage in takewhile(lambda o: o.time_ns < days * DAY_NS, outages(cause, FABRIC, 2))
    )
    trace = list(jobs(days, 4))
    more = {"tenants": Tenants(), "has_assumed_limits": True}
    log = replayed(FABRIC, trace, outages=broke, **more).log
    log = [event for event in log if event.time_ns <= MONDAY_NS]
    return replay(log), log[-1].time_ns


RACKS = FailureCause("switch", 20, RepairTime(6), scope="rack")
HOSTS = FailureCause("gpu", 5, RepairTime(6))


def test_racks_that_failed_fail_again_at_their_rate() -> None:
    state, now_ns = lived(RACKS, HOSTS)
    fitted = fit_failures(state, now_ns)
    (group,) = fitted.groups
    assert group.tier == "rack"
    assert group.seen >= 2
    assert group.domain_days == pytest.approx(8 * (now_ns - state.faults.since_ns) / DAY_NS)
    assert any("whole racks failed" in each for each in fitted.sentences())
    days = 400
    found = list(takewhile(lambda o: o.time_ns < days * DAY_NS, fitted.outages(state, 1)))
    down = [outage for outage in found if outage.is_down]
    together = [outage for outage in down if outage.cause != CAUSE]
    by_time = {
        time: [o for o in together if o.time_ns == time] for time in {o.time_ns for o in together}
    }
    assert all(len(hosts) >= 6 for hosts in by_time.values())  # but those that are out already
    expected = 8 * days * group.per_1000_days / 1000
    assert len(by_time) == pytest.approx(expected, rel=0.35)
    rate = len(down) / 64 / days
    assert rate == pytest.approx(max(fitted.per_host_day, group.per_host_day), rel=0.35)


def test_hosts_that_fail_each_for_itself_make_no_group() -> None:
    state, now_ns = lived(FailureCause("gpu", 10, RepairTime(6)))
    assert state.faults.failures > 5
    assert fit_failures(state, now_ns).groups == ()


def test_failures_that_followed_a_signal_follow_it_again() -> None:
    told = FailureCause("gpu", 30, RepairTime(6), precursor=Precursor("link-flap", 0.8, 0.5, 6))
    state, now_ns = lived(told)
    fitted = fit_failures(state, now_ns)
    (count,) = fitted.announced
    assert count.signal == "link-flap"
    assert 0 < count.failures < count.ended
    assert count.failed_ns / count.failures < DAY_NS / 2
    assert any("failures followed link-flap, which had" in each for each in fitted.sentences())
    days = 4_000
    found = list(takewhile(lambda o: o.time_ns < days * DAY_NS, fitted.outages(state, 1)))
    reports = [o for o in found if o.signal == "link-flap" and o.is_down]
    failures = [o for o in found if not o.signal and o.is_down]
    due = fitted.per_host_day * FABRIC.host_count * days
    assert len(failures) == pytest.approx(due, rel=0.1)
    announced = due * count.failures / fitted.failures
    assert len(reports) == pytest.approx(announced * count.ended / count.failures, rel=0.15)
