"""Failure models and files: reproducible, independent streams, named errors."""

from itertools import islice, takewhile
from pathlib import Path

import pytest

from scheduler.files.errors import InputError
from simulator.failures import Outage, merged, parse
from simulator.traces.record import SECOND_NS
from tests.replays import machine

FABRIC = machine(10)
HOSTS = FABRIC.hosts
DAY_NS = 86_400 * SECOND_NS


def outages(text: str, seed: int = 0, count: int = 200) -> list[Outage]:
    return list(islice(parse(text)(FABRIC, seed), count))


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


def test_the_rate_is_per_thousand_host_days() -> None:
    stream = parse("poisson:rate=50,repair_h=0.001")(FABRIC, 1)
    days = 4_000
    downs = [o for o in takewhile(lambda o: o.time_ns < days * DAY_NS, stream) if o.is_down]

    assert len(downs) == pytest.approx(50 / 1000 * len(HOSTS) * days, rel=0.07)


def test_repairs_are_exponential_or_fixed() -> None:
    def repairs(text: str) -> list[float]:
        since: dict[str, int] = {}
        spans = []
        for outage in outages(text, count=4_000):
            if outage.is_down:
                since[outage.host] = outage.time_ns
            else:
                spans.append((outage.time_ns - since[outage.host]) / 3600 / SECOND_NS)
        return spans

    fixed = repairs("poisson:rate=1,repair_h=5,repair=fixed")
    exponential = repairs("poisson:rate=1,repair_h=5")

    # a failure of a host that is down already prolongs its outage: rare at this rate
    assert sorted(fixed)[len(fixed) // 2] == pytest.approx(5)
    assert sum(exponential) / len(exponential) == pytest.approx(5, rel=0.1)
    assert min(exponential) < 1 < 10 < max(exponential)


def test_one_cause_does_not_shift_another() -> None:
    alone = outages("poisson:rate=1,repair_h=2,cause=gpu", count=40)
    both = outages("poisson:rate=1,repair_h=2,cause=gpu; poisson:rate=1,repair_h=2,cause=nic")
    gpu = [o for o in both if o.cause == "gpu"]

    assert {o.cause for o in both} == {"gpu", "nic"}
    assert gpu[:40] == alone


def test_changing_the_repair_time_leaves_the_failures_where_they_were() -> None:
    def downs(repair: str) -> list[tuple[int, str]]:
        stream = outages(f"poisson:rate=1,repair_h={repair}", count=60)
        return [(o.time_ns, o.host) for o in stream if o.is_down][:25]

    assert downs("0.5") == downs("0.25")


def test_overlapping_outages_of_a_host_are_one() -> None:
    first = [Outage(1, "a", True, "x"), Outage(5, "a", False, "x")]
    second = [Outage(3, "a", True, "y"), Outage(9, "a", False, "y")]

    assert [(o.time_ns, o.is_down) for o in merged([first, second])] == [(1, True), (9, False)]


def test_a_file_is_read_in_time_order(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("time_s,host,state,cause\n90,z0-h1,up,\n\n1.5,z0-h1,down,gpu-lost\n")

    assert outages(str(path)) == [
        Outage(1_500_000_000, "z0-h1", True, "gpu-lost"),
        Outage(90 * SECOND_NS, "z0-h1", False, "gpu-lost"),
    ]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("soon,z0-h1,down,x", "time_s: must be a number, not 'soon'"),
        ("-1,z0-h1,down,x", "time_s: must not be negative: '-1'"),
        ("1,z9,down,x", "host: must be a host of this fabric, not 'z9'"),
        ("1,z0-h1,broken,x", "state: must be down or up, not 'broken'"),
        ("1,z0-h1,down", "columns: must be 4, not '3'"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_field(tmp_path: Path, row: str, told: str) -> None:
    path = tmp_path / "outages.csv"
    path.write_text(f"time_s,host,state,cause\n1,z0-h0,down,x\n{row}\n")

    with pytest.raises(InputError) as raised:
        outages(str(path))

    assert str(raised.value) == f"{path}:3: {told}"


def test_a_file_without_its_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text("1,z0-h0,down,x\n")

    with pytest.raises(
        InputError, match=r"outages\.csv:1: header: must be time_s,host,state,cause"
    ):
        outages(str(path))


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
        ("nowhere.csv", "'nowhere.csv' is neither a file nor a model like poisson:"),
    ],
)
def test_a_bad_model_is_named(text: str, told: str) -> None:
    with pytest.raises(InputError) as raised:
        parse(text)

    assert str(raised.value).startswith("--failures: ")
    assert told in str(raised.value)
