"""Failure models: rates, ages, scopes, lemons and repairs, each against its distribution.

Seeds are fixed. A count of n is held to four standard deviations of a Poisson count.
"""

import math
from collections import Counter
from itertools import islice, takewhile
from random import Random
from statistics import fmean, median

import pytest

from placement.fabric.tree import Fabric
from simulator.failures import Outage, merged, parse
from simulator.failures.cause import (
    FailureCause,
    LemonHosts,
    Precursor,
    RepairTime,
    failure_units,
)
from simulator.failures.presets import LLAMA3, PRESETS
from simulator.failures.process import outages
from simulator.traces.record import SECOND_NS
from tests.build import regular
from tests.refusals import refusal

DAY_NS = 86_400 * SECOND_NS
FABRIC = regular(("zone", 2), ("rack", 10), ("host", 2))


def downs(text: str, days: float, seed: int = 3, fabric: Fabric = FABRIC) -> list[Outage]:
    stream = takewhile(lambda o: o.time_ns < days * DAY_NS, parse(text)(fabric, seed))
    return [o for o in stream if o.is_down]


def assert_poisson(count: int, mean: float) -> None:
    assert abs(count - mean) < 4 * math.sqrt(mean), f"{count} where {mean:.0f} are due"


def test_early_life_fails_most_when_new() -> None:
    text = "weibull:rate=2,shape=0.5,repair_h=0"
    new = downs(text, 20)
    aged = downs(f"{text},age_days=2000", 20)

    # H(t) = (t / scale)^shape, scale = mean / Gamma(1 + 1/shape): 20 of 500 days, 40 hosts
    first_failures = 40 * (1 - math.exp(-((20 / (500 / 2)) ** 0.5)))
    assert len({o.host for o in new}) == pytest.approx(first_failures, abs=4 * math.sqrt(10))
    assert len(new) > 3 * len(aged)


def test_the_first_life_of_a_new_host_is_weibull() -> None:
    first: dict[str, float] = {}
    for seed in range(20):
        for outage in downs("weibull:rate=100,shape=2,repair_h=0", 60, seed):
            first.setdefault(f"{seed}{outage.host}", outage.time_ns / DAY_NS)

    # median = scale ln(2)^(1/2), mean 10 days = scale Gamma(1.5); 800 lives
    expected = 10 / math.gamma(1.5) * math.sqrt(math.log(2))
    assert len(first) == 800
    assert median(first.values()) == pytest.approx(expected, rel=0.07)


def test_a_rack_takes_all_its_hosts_at_once_and_brings_them_back_at_once() -> None:
    stream = list(islice(parse("poisson:rate=5,repair_h=3,scope=rack,cause=tor")(FABRIC, 1), 400))
    by_time: dict[tuple[int, bool], set[str]] = {}
    for outage in stream:
        by_time.setdefault((outage.time_ns, outage.is_down), set()).add(outage.host)

    racks = {frozenset(hosts) for hosts in failure_units(FABRIC, "rack")}
    assert {frozenset(hosts) for hosts in by_time.values()} <= racks
    assert len(by_time) > 150


@pytest.mark.parametrize(
    ("model", "units"),
    [("poisson:", 40), ("poisson:scope=rack,", 20), ("weibull:shape=0.7,age_days=1000,", 40)],
)
def test_rates_are_those_of_each_unit_in_the_long_run(model: str, units: int) -> None:
    """Renewal theorem: after many lives of Weibull the rate is one over the mean life."""
    hits = {o.time_ns for o in downs(f"{model}rate=50,repair_h=0", 1_000)}

    assert_poisson(len(hits), 50 / 1000 * units * 1_000)


def test_a_power_feed_is_a_group_of_racks_of_one_zone() -> None:
    units = failure_units(FABRIC, "rack", 4)

    assert [len(hosts) for hosts in units] == [8, 8, 4, 8, 8, 4]
    assert all(len({host[:2] for host in hosts}) == 1 for hosts in units)


@pytest.mark.parametrize("model", ["poisson:", "weibull:shape=0.8,age_days=500,"])
def test_lemons_fail_so_many_times_as_often(model: str) -> None:
    lemons = set(LemonHosts(0.05, 30).choose(FABRIC.hosts, 3))
    hit = Counter(o.host in lemons for o in downs(f"{model}rate=20,repair_h=0,lemons=5%x30", 2_000))

    assert len(lemons) == 2
    assert hit[True] == pytest.approx(20 * 30 / 1000 * 2 * 2_000, rel=0.1)
    assert hit[False] == pytest.approx(20 / 1000 * 38 * 2_000, rel=0.1)


def test_lemons_leave_the_failures_of_others_where_they_were() -> None:
    plain = downs("poisson:rate=20,repair_h=0", 300)
    rotten = downs("poisson:rate=20,repair_h=0,lemons=5%x30", 300)

    assert set(plain) < set(rotten)


@pytest.mark.parametrize(
    ("repair", "mean_h", "median_h"),
    [
        (RepairTime(5, "exponential"), 5, 5 * math.log(2)),
        (RepairTime(5, "fixed"), 5, 5),
        (RepairTime(5, "lognormal", 1.2), 5, 5 * math.exp(-(1.2**2) / 2)),
        (RepairTime(0, "exponential"), 0, 0),
    ],
)
def test_repairs_have_their_mean_and_median(
    repair: RepairTime, mean_h: float, median_h: float
) -> None:
    random = Random(5)
    drawn = [repair.draw_s(random) / 3600 for _ in range(20_000)]

    assert fmean(drawn) == pytest.approx(mean_h, rel=0.05)
    assert median(drawn) == pytest.approx(median_h, rel=0.05)


def test_a_crash_without_repair_goes_down_and_up_at_one_moment() -> None:
    first, second = islice(parse("poisson:rate=5,repair_h=0")(FABRIC, 1), 2)

    assert (first.is_down, second.is_down) == (True, False)
    assert (first.time_ns, first.host) == (second.time_ns, second.host)


def test_the_llama3_preset_has_the_counts_of_table_5() -> None:
    host_days = 2_048 * 54
    expected = {name: count for name, count, _ in LLAMA3}

    assert sum(expected.values()) == 419
    assert {c.name: c.rate * host_days / 1000 for c in PRESETS["llama3"]} == pytest.approx(expected)


def test_presets_have_the_published_rate() -> None:
    for name, rate in {"llama3": 3.79, "rsc1": 6.5, "rsc2": 2.34, "ft-hsdp": 2.3}.items():
        assert sum(cause.rate for cause in PRESETS[name]) == pytest.approx(rate, abs=0.005)


def test_adding_a_cause_shifts_no_other() -> None:
    alone = downs("llama3", 3_000)
    more = downs("llama3; poisson:rate=1,repair_h=0,scope=rack,cause=tor", 3_000)

    # a host that is down for another reason already does not go down again
    kept = [o for o in more if o.cause != "tor"]
    assert set(kept) <= set(alone)
    assert len(kept) > 0.97 * len(alone)


def test_an_unknown_scope_names_the_tiers() -> None:
    found = refusal(parse("poisson:rate=1,repair_h=1,scope=pod"), FABRIC, 0)
    assert "scope: 'pod' is not a tier of regular; tiers are zone, rack" in found


def test_reports_come_before_as_many_failures_as_announced_and_some_for_nothing() -> None:
    told = FailureCause("gpu", 100, RepairTime(0), precursor=Precursor("link-flap", 0.5, 0.25, 12))
    days = 1_000
    plain = FailureCause("gpu", 100, RepairTime(0))

    def seen(cause: FailureCause) -> list[Outage]:
        stream = outages(cause, FABRIC, 5)
        return list(takewhile(lambda o: o.time_ns < days * DAY_NS, stream))

    found = seen(told)
    failures = [o for o in found if not o.signal]
    reports = [o for o in found if o.signal == "link-flap" and o.is_down]
    assert [o.time_ns for o in found] == sorted(o.time_ns for o in found)
    assert failures == seen(plain)  # what announces them shifts none
    due = 100 / 1000 * 40 * days
    assert_poisson(len(reports), due * 0.5 / 0.25)
    ends = [o for o in found if o.signal and not o.is_down]
    assert_poisson(len(ends), due * 0.5 * 3)  # of those that no failure follows
    by_host: dict[str, list[int]] = {}
    for o in reports:
        by_host.setdefault(o.host, []).append(o.time_ns)
    downs = [o for o in failures if o.is_down]
    announced = sum(
        any(o.time_ns - DAY_NS <= at <= o.time_ns for at in by_host.get(o.host, ())) for o in downs
    )
    # A report for nothing comes within the day before by chance: 0.15 a host-day.
    assert announced / len(downs) == pytest.approx(0.5 + 0.5 * (1 - math.exp(-0.15)), abs=0.05)


def test_of_hosts_that_are_down_no_second_outage_and_no_report_comes() -> None:
    down = [Outage(1, "a", True, "x"), Outage(5, "a", False, "x")]
    again = [Outage(3, "a", True, "y"), Outage(9, "a", False, "y")]
    assert [(o.time_ns, o.is_down) for o in merged([down, again])] == [(1, True), (9, False)]
    told = [Outage(at, "a", True, "y", "link-flap") for at in (0, 3, 6)]
    assert [o.time_ns for o in merged([down, told]) if o.signal] == [0, 6]


# --- models as text ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            "poisson:rate=2,repair_h=5,repair=lognormal,sigma=0.5,scope=zone,group=2",
            FailureCause("host-down", 2, RepairTime(5, "lognormal", 0.5), scope="zone", group=2),
        ),
        (
            "weibull:rate=2,shape=0.7,age_days=9,repair_h=5,repair=fixed,cause=gpu,lemons=5%x30",
            FailureCause("gpu", 2, RepairTime(5, "fixed"), 0.7, 9, lemons=LemonHosts(0.05, 30)),
        ),
    ],
)
def test_every_part_of_a_model_is_read(text: str, cause: FailureCause) -> None:
    (found,) = parse(text).parts
    assert found == cause


def test_the_same_seed_gives_the_same_outages() -> None:
    text = "poisson:rate=20,repair_h=24"

    assert downs(text, 90, 7) == downs(text, 90, 7)
    assert downs(text, 90, 7) != downs(text, 90, 8)


def test_outages_come_in_time_order_and_each_host_alternates() -> None:
    stream = list(islice(parse("poisson:rate=900,repair_h=24")(FABRIC, 0), 2_000))

    assert [o.time_ns for o in stream] == sorted(o.time_ns for o in stream)
    for host in FABRIC.hosts:
        states = [o.is_down for o in stream if o.host == host]
        assert states == [i % 2 == 0 for i in range(len(states))]


def test_changing_the_repair_time_leaves_the_failures_where_they_were() -> None:
    half, quarter = (downs(f"poisson:rate=20,repair_h={hours}", 100) for hours in (0.5, 0.25))
    assert [(o.time_ns, o.host) for o in half] == [(o.time_ns, o.host) for o in quarter]


def test_a_bad_model_is_named() -> None:
    for text, told in {
        "poisson:rate=6.5": "repair_h: is required",
        "poisson:rate=6.5,rate=1,repair_h=1": "rate= is given twice",
        "poisson:rate=0,repair_h=1": "rate: must be more than 0",
        "poisson:rate=fast,repair_h=1": "rate: must be a number, not 'fast'",
        "poisson:rate=1,repair_h=nan": "repair_h: must be a number, not 'nan'",
        "poisson:rate=1,repair_h=1,repair=slow": "repair: must be one of exponential, fixed",
        "poisson:rate=1,repair_h=1;pareto:x=1": "unknown model 'pareto'; there are poisson,",
        "poisson:rate=1,repair_h=1;poisson:rate=2,repair_h=1": "'host-down' is named twice",
        "poisson:rate=1,repair_h=1,shape=2": "'shape=2' is not one of rate=",
        "poisson:rate=1,repair_h=1,lemons=5": "lemons must be like 1.2%x20, not '5'",
        "poisson:rate=1,repair_h=1,lemons=5%x1": "lemons.factor: must be more than 1",
        "poisson:rate=1,repair_h=1,lemons=5%x2,scope=rack": "lemons are hosts",
        "poisson:rate=1,repair_h=1,group=1.5": "group: must be a whole number",
        "poisson:rate=1,repair_h=1,sigma=2": "sigma: has an effect with lognormal alone",
        "llama3:rate=2": "'rate=2' is not one of scale=, lemons=",
        "llama3;llama3": "cause 'faulty-gpu' is named twice",
        "nowhere.csv": "'nowhere.csv' is neither a file nor a model like poisson:",
    }.items():
        found = refusal(parse, text)
        assert found.startswith("--failures: ")
        assert told in found
