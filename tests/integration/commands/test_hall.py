"""`muster hall`: power against racks, hosts, uplinks and the speed of a job."""

from pathlib import Path
from typing import Any

import pytest

from placement.fabric.gpus import catalogue, with_power_limit
from tests.commands import MODEL, answer, invoke, refusal

FABRIC = """\
name: small
gpus_per_host: 8
gpu: H100
nic_gbps: 400
{more}
tiers:
  - {{name: zone, count: 2, oversubscription: 7}}
  - {{name: rack, count: 4}}
  - {{name: host, count: {hosts}}}
"""
JOB = f"{MODEL}name: job\nparallelism: {{tp: 8, pp: 2, dp: 4}}\nbatch: {{global_sequences: 64}}\n"
CAPS = "power_kw: 10.2\npower_caps_kw: {rack: 31, zone: 80}"


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB)
    Path("plain.yaml").write_text(FABRIC.format(more="kind: roce", hosts=4))
    Path("capped.yaml").write_text(FABRIC.format(more=CAPS, hosts=4))


def choices(fabric: str, *options: str, job: str = "job.yaml") -> Any:
    return answer("hall", job, "--fabric", fabric, *options)["choices"]


def test_a_hall_holds_as_many_hosts_as_its_power_feeds() -> None:
    options = ("--mw", "1", "--host-kw", "10", "--watts", "700")
    (found,) = choices("plain.yaml", *options)
    assert (found["hosts"], found["kw"], found["held_back_by"]) == (100, 1000, "hall")
    assert found["racks"] == 25
    assert found["gangs"] == pytest.approx(100 / 8)
    tokens = 64 * 8192 / found["step_seconds"]
    assert found["tokens_per_second"] == pytest.approx(tokens * 100 / 8)
    narrow, wide = choices("plain.yaml", *options, "--rack-kw", "32", "--rack-kw", "72")
    assert (narrow["rack_kw"], narrow["racks"], narrow["hosts"]) == (32, 34, 100)
    assert (wide["rack_kw"], wide["racks"], wide["hosts"]) == (72, 15, 100)


def test_a_lower_limit_runs_more_hosts_and_each_is_slower() -> None:
    full, limited = choices(
        "plain.yaml", "--mw", "1", "--host-kw", "10.2", "--watts", "700", "--watts", "600"
    )
    assert limited["host_kw"] == pytest.approx(10.2 - 0.8)
    assert (full["hosts"], limited["hosts"]) == (98, 106)
    assert limited["step_seconds"] > full["step_seconds"]
    share = limited["gpus"]["H100"]["bf16"] / full["gpus"]["H100"]["bf16"]
    assert share == pytest.approx((600 / 700) ** (1 / 3))


def test_caps_of_the_fabric_file_say_what_holds_hosts_back() -> None:
    full, roomy, *less = choices("capped.yaml")
    assert full["hosts"] == 14  # of a zone of 16, racks feed 12 and the zone 7
    assert full["held_back_by"] == "rack (4 of 8), zone (2 of 2)"
    assert roomy["hosts"] == 16
    # Limits that nobody names go down to half.
    assert [each["gpu_watts"] for each in (full, roomy, *less)] == [700, 600, 500, 400]


def test_a_kind_that_is_sold_with_that_limit_is_taken() -> None:
    h100 = catalogue()["H100"]
    assert with_power_limit(h100, 500) is catalogue()["H100-500W"]
    assert with_power_limit(h100, 700) is h100
    assert with_power_limit(h100, 400).peak("bf16") / h100.peak("bf16") == pytest.approx(
        835 / 989,
        rel=0.02,  # of an H100 NVL, by its maker
    )


def test_uplinks_that_suffice_lengthen_no_step_by_more_than_a_percent() -> None:
    Path("wide.yaml").write_text(JOB.replace("dp: 4", "dp: 16"))
    options = ("--mw", "1", "--watts", "700")
    (found,) = choices("plain.yaml", *options, job="wide.yaml")
    ratio = found["uplink_ratio"]
    assert found["uplink_gbps"] == pytest.approx(16 * 8 * 400 / ratio)
    steps = {}
    for over in (1, ratio, 2 * ratio):
        text = FABRIC.format(more="kind: roce", hosts=4).replace(": 7}", f": {over}}}")
        Path("over.yaml").write_text(text.replace("zone, count: 2", "zone, count: 7"))
        (one,) = choices("over.yaml", *options, job="wide.yaml")
        steps[over] = one["step_seconds"]
    assert steps[ratio] <= 1.01 * steps[1]


def test_the_table_names_the_best_if_any_fits() -> None:
    command = ("hall", "job.yaml", "--fabric", "plain.yaml", "--mw")
    text = invoke(*command, "1").stdout
    assert "held back by" in text
    assert "most tokens: GPUs of" in text
    assert "hosts draw 1.82 times their GPUs" in text
    assert "500 W: H100-500W with 0.92 of the peak and 0.61 of the memory bandwidth" in text
    assert "the job fits in none of these" in invoke(*command, "0.05").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("plain.yaml", "--mw: is needed: small states no power_caps_kw"),
        ("plain.yaml --mw nan", "--mw: must be a positive number, not nan"),
        ("plain.yaml --rack-kw 72", "--rack-kw: needs --mw"),
        ("plain.yaml --mw 1 --watts 90", "--watts: must be 350 to 700 for H100, not 90"),
        ("plain.yaml --mw 1 --rack-kw 9", "--rack-kw: 9 kW feed no host, which draws 10.2"),
        (
            "plain.yaml --mw 1 --host-kw 5",
            "--host-kw: must be more than its GPUs draw, 5.6 kW (H100), not 5",
        ),
        ("capped.yaml --mw 1", "--mw: conflicts with power_caps_kw of small"),
        ("nvl72-24k --mw 9 --rack-kw 72", "--host-kw: is needed: hosts in racks of NVLink"),
        (
            "nvl72-24k --mw 9 --rack-kw 72 --host-kw 7",
            "--rack-kw: 72 kW feed no rack: its 18 hosts, all of them over NVLink",
        ),
    ],
)
def test_bad_options_are_named(words: str, message: str) -> None:
    assert message in refusal("hall", "job.yaml", "--fabric", *words.split())


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (
            "name: j\nparallelism: {tp: 8}\ntraffic: {tp: 9}\n",
            "job.yaml: model: is needed: the step follows from the work of its GPUs",
        ),
        (JOB + "compute_time_s: 3\n", "job.yaml:6: compute_time_s: conflicts with a power limit"),
    ],
)
def test_jobs_whose_compute_is_not_known_are_refused(job: str, message: str) -> None:
    Path("job.yaml").write_text(job)
    assert message in refusal("hall", "job.yaml", "--fabric", "plain.yaml", "--mw", "1")
