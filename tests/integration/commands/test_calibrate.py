"""`muster calibrate`: what was measured comes out again, and what is too little is refused."""

from pathlib import Path

import pytest

from placement.fabric.tree import with_goodput, with_rates
from placement.objective.step_time import step_time
from scheduler.files.errors import InputError
from scheduler.files.inputs import load_fabric, read_job
from tests.commands import MODEL, answer, invoke, refusal

FABRIC = """\
name: mine
gpus_per_host: 8
gpu: H100
nic_gbps: 400
tiers:
  - {name: zone, count: 2}
  - {name: rack, count: 4}
  - {name: host, count: 4}
"""
JOB = f"{MODEL}name: job\nparallelism: {{tp: TP, pp: 2, dp: 8}}\nbatch: {{global_sequences: 128}}\n"
CALIBRATE = ("calibrate", "--fabric", "mine.yaml")
FACTOR = 0.8


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(FABRIC)
    for tp in (2, 4):
        Path(f"tp{tp}.yaml").write_text(JOB.replace("TP", str(tp)))


def seconds(tp: int, factor: float, nic: float = 1.0) -> float:
    """Of a job on the first hosts, where GPUs and network cards are so much slower."""
    fabric = with_rates(load_fabric("mine.yaml"), {"H100": {"bf16": factor}})
    hosts = range(2 * tp)  # pp 2 x dp 8 x tp ranks on hosts of 8
    return step_time(
        with_goodput(fabric, {"nic": nic}), read_job(f"tp{tp}.yaml").spec.request, hosts
    ).seconds


def nccl(path: str, hosts: tuple[str, ...], gb_per_s: float, latency_us: float = 30) -> None:
    lines = [f"#  Rank {i} Group 0 Pid 1 on {host} device 0" for i, host in enumerate(hosts)]
    for size in (2**power for power in range(12, 33, 4)):
        micros = latency_us + 2 * size / gb_per_s / 1e3
        rates = f"{size / micros / 1e3:.4f} {2 * size / micros / 1e3:.4f}"
        lines.append(f"{size} {size // 4} float sum -1 {micros:.4f} {rates} 0")
    Path(path).write_text("\n".join(lines))


def test_rates_that_were_measured_come_out() -> None:
    steps = [f"--step=tp{tp}.yaml={seconds(tp, FACTOR)}" for tp in (2, 4)]
    found = answer(*CALIBRATE, *steps)
    assert found["rates"]["H100"]["bf16"] == pytest.approx(FACTOR, abs=2e-3)
    errors = found["measured"]["H100 bf16"]
    assert errors["error_after"] < 0.01 < errors["error_before"]


def test_goodput_of_each_layer_comes_out_and_the_fabric_takes_it() -> None:
    nccl("inside.txt", ("z0-r0-h0",), 405)
    nccl("cards.txt", ("z0-r0-h0", "z0-r0-h1"), 320)
    nccl("racks.txt", ("z0-r0-h0", "z0-r1-h0"), 240)
    files = (f"--nccl={name}.txt" for name in ("inside", "cards", "racks"))
    assert invoke(*CALIBRATE, *files, "--write", "cal.yaml").exit_code == 0
    Path("own.yaml").write_text(FABRIC + "calibration: cal.yaml\n")
    plain, own = load_fabric("mine.yaml"), load_fabric("own.yaml")
    assert own.scale_up_gbps / plain.scale_up_gbps == pytest.approx(0.9, abs=2e-3)
    assert own.by_host.nic_gbps[0] / 400 == pytest.approx(0.8, abs=2e-3)
    rack = own.tiers[1].uplink_bytes_per_s / plain.tiers[1].uplink_bytes_per_s
    assert rack.tolist() == pytest.approx([0.75] * 8, abs=2e-3)
    request = read_job("tp2.yaml").spec.request
    slower, usual = (step_time(each, request, range(4)).seconds for each in (own, plain))
    assert slower > usual
    again = answer(*CALIBRATE, "--nccl", "cards.txt")["measured"]
    assert again["nic"]["gb_per_s"] == pytest.approx(320, rel=1e-3)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("goodput: {pod: 0.9}\nfabric: mine", r"1: goodput\.pod: unknown key"),
        ("goodput: {nic: 90}\nfabric: mine", r"1: goodput\.nic: must be a number from 0\.05 to 3"),
        ("rates: {B200: {bf16: 1}}\nfabric: mine", r"1: rates\.B200: mine has no such GPU"),
        ("rates: {H100: {bf15: 1}}\nfabric: mine", r"1: rates\.H100\.bf15: unknown key"),
        ("goodput: {nic: 0.9}\nfabric: other", r"2: fabric: was measured on 'other'"),
    ],
)
def test_a_bad_calibration_names_its_key(content: str, says: str) -> None:
    Path("cal.yaml").write_text(content)
    Path("own.yaml").write_text(FABRIC + "calibration: cal.yaml\n")
    with pytest.raises(InputError, match=rf"cal\.yaml:{says}"):
        load_fabric("own.yaml")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give at least one"),
        (
            ("--step", "tp2.yaml=3", "--step", "tp2.yaml=3.1"),
            "calibrate: H100 in bf16: runs of 1 layout are too little to fit",
        ),
        (("--step", "tp2.yaml=soon"), "no number of seconds"),
        (("--step", "tp2.yaml=1", "--step", "tp4.yaml=90"), "the runs disagree"),
        (("--run", "tp2.yaml"), "--run: must be JOB=LOG"),
        (("--run", "tp2.yaml=few.log"), "2 steps are too little to fit"),
        (("--nccl", "pod=cards.txt"), "no layer 'pod'"),
        (("--nccl", "far.txt"), "far.txt: ran on node7, which mine does not have"),
        (("--nccl", "short.txt"), "short.txt: too little to fit"),
    ],
)
def test_too_little_is_refused(arguments: tuple[str, ...], says: str) -> None:
    nccl("cards.txt", ("z0-r0-h0", "z0-r0-h1"), 320)
    nccl("far.txt", ("node7",), 320)
    Path("short.txt").write_text("\n".join(Path("cards.txt").read_text().splitlines()[:4]))
    Path("few.log").write_text(2 * "train_step_timing in s: 3.0\n")
    assert says in refusal(*CALIBRATE, *arguments)
