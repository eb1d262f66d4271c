"""Failure models and files: reproducible, independent streams, named errors."""

from itertools import islice

import pytest

from scheduler.files.errors import InputError
from simulator.failures import Outage, merged, parse
from simulator.failures.cause import FailureCause, LemonHosts, RepairTime
from tests.replays import machine

FABRIC = machine(10)
HOSTS = FABRIC.hosts


def outages(text: str, seed: int = 0, count: int = 200) -> list[Outage]:
    return list(islice(parse(text)(FABRIC, seed), count))


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
    ((found,),) = (part.causes for part in parse(text).parts)
    assert found == cause


def test_the_same_seed_gives_the_same_outages() -> None:
    text = "poisson:rate=20,repair_h=24"

    assert outages(text, seed=7) == outages(text, seed=7)
    assert outages(text, seed=7) != outages(text, seed=8)


def test_outages_come_in_time_order_and_each_host_alternates() -> None:
    stream = outages("poisson:rate=900,repair_h=24", count=2_000)

    assert [o.time_ns for o in stream] == sorted(o.time_ns for o in stream)
    for host in HOSTS:
        states = [o.is_down for o in stream if o.host == host]
        assert states == [i % 2 == 0 for i in range(len(states))]


def test_changing_the_repair_time_leaves_the_failures_where_they_were() -> None:
    def downs(repair: str) -> list[tuple[int, str]]:
        stream = outages(f"poisson:rate=1,repair_h={repair}", count=60)
        return [(o.time_ns, o.host) for o in stream if o.is_down][:25]

    assert downs("0.5") == downs("0.25")


def test_overlapping_outages_of_a_host_are_one() -> None:
    first = [Outage(1, "a", True, "x"), Outage(5, "a", False, "x")]
    second = [Outage(3, "a", True, "y"), Outage(9, "a", False, "y")]

    assert [(o.time_ns, o.is_down) for o in merged([first, second])] == [(1, True), (9, False)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("poisson:rate=6.5", "repair_h= is missing"),
        ("poisson:rate=6.5,rate=1,repair_h=1", "rate= is given twice"),
        ("poisson:repair_h=6", "rate= is missing"),
        ("poisson:rate=0,repair_h=1", "rate must be more than 0, not 0"),
        ("poisson:rate=fast,repair_h=1", "rate must be a number, not 'fast'"),
        ("poisson:rate=1,repair_h=nan", "repair_h must be a finite number below 1e15, not 'nan'"),
        ("poisson:rate=1,repair_h=1,color=2", "'color=2' is not one of rate=, repair_h=, repair="),
        (
            "poisson:rate=1,repair_h=1,repair=slow",
            "repair must be exponential, fixed or lognormal, not 'slow'",
        ),
        (
            "poisson:rate=1,repair_h=1;pareto:x=1",
            "unknown model 'pareto'; there are poisson, weibull",
        ),
        ("poisson:rate=1,repair_h=1;poisson:rate=2,repair_h=1", "'host-down' is named twice"),
        ("weibull:rate=1,repair_h=1", "shape= is missing"),
        ("poisson:rate=1,repair_h=1,shape=2", "'shape=2' is not one of rate="),
        ("poisson:rate=1,repair_h=1,lemons=5", "lemons must be like 1.2%x20, not '5'"),
        ("poisson:rate=1,repair_h=1,lemons=5%x1", "more than 1 x as often, not '5%x1'"),
        ("poisson:rate=1,repair_h=1,lemons=5%x2,scope=rack", "lemons are hosts"),
        ("poisson:rate=1,repair_h=1,group=1.5", "group must be a whole number, not 1.5"),
        ("poisson:rate=1,repair_h=1,sigma=2", "sigma= is of repair=lognormal"),
        ("llama3:rate=2", "'rate=2' is not one of scale=, lemons="),
        ("llama3:scale=0", "scale must be more than 0, not 0"),
        ("llama3;llama3", "cause 'faulty-gpu' is named twice"),
        ("nowhere.csv", "'nowhere.csv' is neither a file nor a model like poisson:"),
    ],
)
def test_a_bad_model_is_named(text: str, told: str) -> None:
    with pytest.raises(InputError) as raised:
        parse(text)

    assert str(raised.value).startswith("--failures: ")
    assert told in str(raised.value)
