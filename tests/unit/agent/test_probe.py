"""What a probe reads of a host, with a stand-in for NVML and for /sys, and what it finds wrong."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.agent.checks import probe as module
from scheduler.agent.checks.probe import Finding, Memory, Readings, judge, probe
from scheduler.core.policies.health_signals import SIGNALS


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"error {value}")
        self.value = value


LOST, UNSUPPORTED = 15, 3


class FakeNvml:
    """As the module of nvidia-ml-py: `gpus` says of each GPU what functions answer; what it leaves
    out is not supported."""

    NVMLError = NVMLError
    NVML_ERROR_GPU_IS_LOST = LOST
    NVML_NVLINK_MAX_LINKS = 3

    def __init__(self, *gpus: dict[str, Any]) -> None:
        self.gpus = list(gpus)
        self.error: int | None = None

    def nvmlInit(self) -> None:
        if self.error is not None:
            raise NVMLError(self.error)

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def c_nvmlEccSramErrorStatus_v1_t(self) -> SimpleNamespace:
        return SimpleNamespace(bThresholdExceeded=0)

    def nvmlDeviceGetSramEccErrorStatus(self, handle: int, status: SimpleNamespace) -> None:
        status.bThresholdExceeded = self.gpus[handle].get("SramThreshold", 0)

    def __getattr__(self, function: str) -> Any:
        name = function.removeprefix("nvmlDeviceGet")

        def ask(handle: int, *arguments: int) -> Any:
            answer = self.gpus[handle].get(name)
            if answer is None:
                raise NVMLError(self.gpus[handle].get("error", UNSUPPORTED))
            return answer(*arguments) if callable(answer) else answer

        return ask


def well(number: int = 0, **more: Any) -> dict[str, Any]:
    """What a GPU that has nothing answers."""
    return {
        "UUID": f"GPU-{number}",
        "Temperature": 40 + number,
        "TemperatureThreshold": 90,
        "PowerUsage": 71_000,
        "EnforcedPowerLimit": 700_000,
        "RemappedRows": (0, 0, 0, 0),
        "PcieReplayCounter": 0,
        "MemoryErrorCounter": lambda kind, counter, place: 0,
        "CurrentClocksEventReasons": 1,
        **more,
    }


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def add_gpu(root: Path, number: int, *, lanes: int = 16, slot_lanes: int = 16) -> None:
    """A GPU behind a port, which /sys/bus/pci/devices names by a link."""
    device = root / f"devices/pci0000:{number:02x}/0000:{number:02x}:00.0"
    write(device.parent / "max_link_width", slot_lanes)
    files = {"vendor": "0x10de", "class": "0x030200"}
    files |= {"current_link_width": str(lanes), "max_link_width": "16"}
    for name, text in files.items():
        write(device / name, text)
    listed = root / "bus/pci/devices"
    listed.mkdir(parents=True, exist_ok=True)
    (listed / device.name).symlink_to(device)


def set_port(root: Path, state: str = "4: ACTIVE", **counters: int) -> None:
    port = root / "class/infiniband/mlx5_0/ports/1"
    write(port / "state", state)
    for name, count in counters.items():
        folder = "hw_counters" if name == "roce_slow_restart" else "counters"
        write(port / folder / name, count)


class ProbedHost:
    """A host with a clock of its own that is probed now and then."""

    def __init__(self, folder: Path, nvml: Any = None, gpus: int = 0) -> None:
        self.sys, self.memory = folder / "sys", folder / "probe.json"
        self.nvml, self.gpus = nvml, gpus
        self.boot, self.at_s = "first", 1_000.0

    def probe(self, after_s: float = 600.0) -> list[Finding]:
        self.at_s += after_s
        readings = Readings()
        module.read_pcie(self.sys, readings)
        module.read_nvml(self.nvml, readings)
        module.read_nics(self.sys, readings)
        module.read_sensors(self.sys, readings)
        before = Memory.load(self.memory)
        judge(readings, self.gpus, before, self.boot, self.at_s).save(self.memory)
        self.text = readings.text()
        return readings.findings


def test_what_is_read_is_said_in_words(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path, gpus=8)
    assert host.probe() == host.probe() == []
    assert host.text == "no NVIDIA GPU"
    host = ProbedHost(tmp_path, FakeNvml(well(0), well(1, NumFans=1, FanSpeed_v2=30)), gpus=2)
    add_gpu(host.sys, 1)
    add_gpu(host.sys, 2)
    set_port(host.sys)
    assert host.probe() == []
    assert host.text == "2 GPUs, 40 to 41 C, 71 W, 30 % of fan speed, 1 active RDMA port"


def test_gpus_that_are_not_on_pcie_are_lost(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path, gpus=2)
    add_gpu(host.sys, 1)
    assert host.probe() == [Finding("gpu-lost", "1 of 2 GPUs are on PCIe")]
    next((host.sys / "bus/pci/devices").iterdir()).unlink()
    assert host.probe() == [Finding("gpu-lost", "0 of 2 GPUs are on PCIe")]


def test_lanes_are_lost_unless_the_slot_never_had_them(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path)
    add_gpu(host.sys, 1, lanes=8)
    add_gpu(host.sys, 2, lanes=8, slot_lanes=8)
    assert host.probe() == [Finding("pcie-degraded", "0000:01:00.0 has 8 of 16 lanes")]


@pytest.mark.parametrize(
    ("answers", "signal", "detail"),
    [
        ({"RemappedRows": (0, 9, 0, 1)}, "row-remap-failure", "a row could not be remapped"),
        ({"RemappedRows": (0, 1, 1, 0)}, "row-remap-pending", "a row is remapped at the next"),
        ({"RetiredPages": lambda cause: [0] * (40 - cause)}, "row-remap-failure", "79 pages"),
        ({"SramThreshold": 1}, "sram-threshold", "the flag of the SRAM threshold is set"),
        ({"Temperature": 90}, "thermal", "90 C, the limit is 90 C"),
        (
            {"Temperature": 85, "TemperatureThreshold": None, "MarginTemperature": -2},
            "thermal",
            "85 C, the limit is 83 C",
        ),
        ({"CurrentClocksEventReasons": 0x60}, "thermal", "clocks slowed by heat, halved by heat"),
        ({"CurrentClocksEventReasons": 0x84}, "power-fault", "clocks halved by power brake"),
        ({"PowerUsage": 710_000}, "power-fault", "draws 710 W while idle, the limit is 700 W"),
        ({"UUID": None, "error": LOST}, "gpu-lost", "NVML: error 15"),
    ],
)
def test_what_nvml_says_is_wrong_names_the_gpu(
    tmp_path: Path, answers: dict[str, Any], signal: str, detail: str
) -> None:
    host = ProbedHost(tmp_path, FakeNvml(well(0), well(1, **answers)))
    (finding,) = host.probe()
    assert (finding.signal, finding.gpu) == (signal, 1)
    assert finding.detail.startswith(detail)


def test_a_gpu_below_the_limits_of_its_maker_is_well(tmp_path: Path) -> None:
    pages: Any = lambda cause: [0] * 31  # noqa: E731
    edge = well(
        0, Temperature=89, PowerUsage=700_000, RetiredPages=pages, RemappedRows=(3, 8, 0, 0)
    )
    assert ProbedHost(tmp_path, FakeNvml(edge)).probe() == []


def test_an_old_driver_is_asked_what_it_can_answer(tmp_path: Path) -> None:
    old = {"Temperature": 50, "CurrentClocksThrottleReasons": 0x40}
    (finding,) = ProbedHost(tmp_path, FakeNvml(old)).probe()
    assert finding == Finding("thermal", "clocks halved by heat", 0)


def test_a_driver_that_is_not_there_is_a_lost_gpu_where_there_are_gpus(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path, FakeNvml())
    host.nvml.error = 9
    assert host.probe() == []
    add_gpu(host.sys, 1)
    assert host.probe() == [Finding("gpu-lost", "NVML does not answer: error 9")]


def test_errors_of_memory_count_from_the_first_probe_also_over_boots(tmp_path: Path) -> None:
    counts = {(0, 2): 50, (1, 7): 0}

    def counter(kind: int, _: int, place: int) -> int:
        return counts.get((kind, place), 0)

    host = ProbedHost(tmp_path, FakeNvml(well(0, MemoryErrorCounter=counter)))
    assert host.probe() == []
    counts[0, 2] = 62
    host.boot, host.at_s = "second", 0.0
    assert host.probe() == [Finding("ecc-correctable", "12 corrected DRAM errors", 0, 12)]
    assert host.probe() == []
    counts[1, 7] = 1
    assert host.probe() == [Finding("sram-uncorrectable", "1 uncorrectable SRAM errors", 0, 1)]


def test_replays_count_beyond_eight_a_minute(tmp_path: Path) -> None:
    gpu = well(0)
    host = ProbedHost(tmp_path, FakeNvml(gpu))
    host.probe()
    gpu["PcieReplayCounter"] = 80
    assert host.probe(600) == []
    gpu["PcieReplayCounter"] = 161
    assert host.probe(600) == [Finding("pcie-replays", "81 PCIe replays", 0, 81)]
    gpu["PcieReplayCounter"] = 161 + 480
    assert host.probe(3_600) == []
    gpu["PcieReplayCounter"] = 161 + 480 + 80
    assert host.probe(1) == []  # a rate is taken over ten minutes at least
    gpu["PcieReplayCounter"] = 2_000
    host.boot = "second"
    assert host.probe() == []


def test_nvlinks_that_were_there_are_missed(tmp_path: Path) -> None:
    gpu = well(0, NvLinkState=lambda link: int(link < 2), NvLinkErrorCounter=lambda link, kind: 1)
    host = ProbedHost(tmp_path, FakeNvml(gpu))
    assert host.probe() == []
    gpu["NvLinkState"] = lambda link: int(link < 1)
    gpu["NvLinkErrorCounter"] = lambda link, kind: 4
    errors = Finding("nvlink-errors", "4 NVLink replays and recoveries", 0, 4)
    down = Finding("nvlink-down", "1 of 2 links", 0)
    assert host.probe() == [errors, down]
    assert host.probe() == [down]


@pytest.mark.parametrize(
    ("name", "allowed", "signal"),
    [
        ("link_downed", 0, "link-flap"),
        ("local_link_integrity_errors", 0, "link-errors"),
        ("excessive_buffer_overrun_errors", 0, "link-errors"),
        ("symbol_error", 20, "link-errors"),
        ("link_error_recovery", 50, "link-errors"),
        ("roce_slow_restart", 6_000, "link-errors"),
    ],
)
def test_counters_of_a_port_have_limits(
    tmp_path: Path, name: str, allowed: int, signal: str
) -> None:
    host = ProbedHost(tmp_path)
    set_port(host.sys, **{name: 7})
    assert host.probe() == []
    set_port(host.sys, **{name: 7 + allowed})
    assert host.probe(600) == []
    set_port(host.sys, **{name: 8 + 2 * allowed})
    more, words = allowed + 1, name.replace("_", " ")
    assert host.probe(600) == [Finding(signal, f"mlx5_0/1: {more:,} {words}", None, more)]
    set_port(host.sys, **{name: 0})  # somebody resets it
    assert host.probe() == []


def test_a_port_is_missed_where_it_was_active_since_the_boot(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path)
    set_port(host.sys, "1: DOWN")
    assert host.probe() == []
    set_port(host.sys)
    assert host.probe() == []
    set_port(host.sys, "1: DOWN")
    assert host.probe() == host.probe() == [Finding("link-down", "mlx5_0/1 is not active")]
    (host.sys / "class/infiniband/mlx5_0").rename(tmp_path / "gone")
    assert host.probe() == [Finding("nic-down", "mlx5_0 is gone")]
    host.boot = "second"
    assert host.probe() == []


def test_cards_on_a_bus_count_and_others_do_not(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path)
    for name in ("eth0", "lo"):
        write(host.sys / f"class/net/{name}/carrier_down_count", 1)
        write(host.sys / f"class/net/{name}/statistics/rx_crc_errors", 0)
    write(host.sys / "class/net/eth0/device/vendor", "0x15b3")
    assert host.probe() == []
    for name in ("eth0", "lo"):
        write(host.sys / f"class/net/{name}/carrier_down_count", 3)
        write(host.sys / f"class/net/{name}/statistics/rx_crc_errors", 21)
    assert host.probe() == [
        Finding("nic-flap", "eth0: 2 carrier down count", None, 2),
        Finding("link-errors", "eth0: 21 rx crc errors", None, 21),
    ]


def test_fans_and_supplies_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path)
    chip = host.sys / "class/hwmon/hwmon3"
    readings = {"fan1_input": 900, "fan1_min": 1_000, "fan2_input": 4_000, "fan2_min": 1_000}
    readings |= {"fan3_fault": 1, "fan4_alarm": 0, "power1_crit_alarm": 1, "temp1_alarm": 1}
    for name, number in readings.items():
        write(chip / name, number)
    write(chip / "name", "bmc")
    assert host.probe() == [
        Finding("power-fault", "bmc: power1 says crit alarm"),
        Finding("fan-fault", "bmc: fan3 says fault"),
        Finding("fan-fault", "bmc: fan1 turns 900 times a minute, at least 1,000"),
    ]


def test_a_memory_that_cannot_be_read_is_begun_anew(tmp_path: Path) -> None:
    host = ProbedHost(tmp_path)
    set_port(host.sys, link_downed=7)
    for text in ("", "[]", '{"boot_id": "first"}', '{"boot_id": 1, "at_s": "x"}'):
        host.memory.write_text(text)
        assert host.probe() == []
    set_port(host.sys, link_downed=8)
    assert [finding.signal for finding in host.probe()] == ["link-flap"]


def test_every_signal_of_a_probe_is_one_that_its_agent_may_report() -> None:
    for limit in module.COUNTERS.values():
        assert SIGNALS[limit.signal].is_trouble


def test_the_program_stands_on_the_standard_library_and_prints_json(tmp_path: Path) -> None:
    root = tmp_path / "sys"
    add_gpu(root, 1)
    command = [sys.executable, "-I", "-S", module.__file__, "2"]
    command += [str(tmp_path / "memory"), str(root)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    lost = {"signal": "gpu-lost", "detail": "1 of 2 GPUs are on PCIe", "gpu": None, "value": 0}
    assert said == {"readings": "1 GPU", "findings": [lost]}
    assert (tmp_path / "memory").exists()


def test_a_probe_of_this_machine_reads_something(tmp_path: Path) -> None:
    readings = probe(module.load_nvml(), Path("/sys"), 0, tmp_path / "memory")
    assert "GPU" in readings.text()
    assert Memory.load(tmp_path / "memory").boot_id
