"""Means, intervals, money and words of a study."""

from pathlib import Path
from typing import Any

import pytest

from simulator.twin.answer import sentence
from simulator.twin.prices import load_prices, uplink_gbps
from simulator.twin.study import SeedMean
from tests.refusals import file_refusal
from tests.twins import cluster


def test_an_interval_is_students() -> None:
    found = SeedMean.of([1.0, 2.0, 3.0])
    assert found.mean == 2
    assert found.half == pytest.approx(4.303 / 3**0.5)
    assert SeedMean.of([5.0]).data() == {"mean": 5, "low": None, "high": None}


def test_money_is_what_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(
        "currency: EUR\ngpu_hour: 2\nhost_month: 730\nuplink_gbps_month: 73\n"
        "spare_host_month: 73\nrepair: 100\nrepair_contract_month: 7.3\n"
    )
    fabric = cluster()
    run = {"all_gpu_h": 1280, "spare_gpu_h": 80, "repairs": 3, "effective_gpu_h": 1000}
    bill = load_prices(str(path)).of(run, fabric, horizon_h=10)
    # 16 hosts of 8 GPUs at 400 Gbit/s, 7:1, for 10 hours
    assert uplink_gbps(fabric) == pytest.approx(16 * 8 * 400 / 7)
    assert bill == pytest.approx(
        {
            "gpus": 2560,
            "hosts": 160,
            "uplinks": 51_200 / 7,
            "spares": 1,
            "repairs": 300,
            "repair_contract": 1.6,
            "total": 3022.6 + 51_200 / 7,
            "per_effective_gpu_h": (3022.6 + 51_200 / 7) / 1000,
        }
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host_month: 3\n", "gpu_hour"),
        ("gpu_hour: -1\n", "prices.yaml:1: gpu_hour: must be from 0"),
        ("gpu_hour: 1\nhost: 3\n", "prices.yaml:2: host: unknown key 'host'"),
    ],
)
def test_a_faulty_price_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in file_refusal(load_prices, tmp_path / "prices.yaml", text)


def estimate(mean: float, half: float | None) -> dict[str, float | None]:
    return SeedMean(mean, half).data()


def answer(more: tuple[float, float | None], waits: tuple[float, float | None]) -> dict[str, Any]:
    base = {
        "name": "as it is",
        "figures": {
            "effective_gpu_h": estimate(1000, 5),
            "effective_share": estimate(0.8, 0.1),
            "wait_mean_s": estimate(600, 5),
        },
        "money": {"per_effective_gpu_h": estimate(2.5, 0.1)},
    }
    other = {
        **base,
        "name": "policy fifo",
        "money": {"per_effective_gpu_h": estimate(2.25, 0.1)},
        "money_differences": {"per_effective_gpu_h": estimate(-0.25, 0.01)},
        "differences": {"effective_gpu_h": estimate(*more), "wait_mean_s": estimate(*waits)},
    }
    return {
        "scenarios": [base, other],
        "seeds": [0] if more[1] is None else [0, 1, 2],
        "horizon_s": 30 * 86_400,
        "currency": "EUR",
    }


@pytest.mark.parametrize(
    ("more", "waits", "said"),
    [
        ((50, 10), (-60, 5), "does 50 more effective GPU-hours in 30 d 00 h, 5.00 %; jobs wait"),
        ((50, 10), (-60, 5), "jobs wait 1 min less on average."),
        ((-50, 10), (60, 90), "does 50 fewer effective GPU-hours in 30 d 00 h, 5.00 %;"),
        ((-50, 10), (60, 90), "jobs wait 1 min longer on average, which may be chance."),
        ((5, 10), (0, 0), "no more and no fewer effective GPU-hours in 30 d 00 h than 3 seeds"),
        ((0, 0), (0, 0), "does as many effective GPU-hours in 30 d 00 h as without; jobs wait as"),
        ((7, None), (0, None), "does +7 effective GPU-hours in 30 d 00 h, under one seed"),
        ((50, 10), (0, 0), "An effective GPU-hour costs 2.250 EUR, where it is 2.500 now."),
    ],
)
def test_the_answer_is_a_sentence(
    more: tuple[float, float | None], waits: tuple[float, float | None], said: str
) -> None:
    text = sentence(answer(more, waits))
    assert text.startswith("With policy fifo, the cluster does ")
    assert said in text
