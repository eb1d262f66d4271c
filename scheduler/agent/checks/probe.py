"""Reads what a host says of its own health, and judges it by the limits of its makers.

`python probe.py GPUS MEMORY [SYS]` prints JSON: what was read, in words, and what is wrong, as
signals of the health tables. It is a program of its own, for the driver of a broken GPU may never
answer (prober.py), and stands on the standard library; NVML is read by `pynvml` of nvidia-ml-py
where that is installed. MEMORY is a file with what was read last: of counters the growth counts.

Sources of the limits:
- NVIDIA, GPU Memory Error Management, "RMA policy": the row-remapping failure flag (nine errors in
  one bank, a row that was remapped before, 512 rows in all) and the flag of the SRAM threshold each
  meet the criteria for RMA; a remapping that is pending needs a reset.
- NVIDIA/DCGM, dcgm_gpu_hardware_limits.h: 8 PCIe replays a minute; 63 retired pages, before Ampere.
- NVIDIA/NVSentinel, docs/nic-health-monitor.md: any link_downed, local_link_integrity_errors and
  excessive_buffer_overrun_errors; symbol_error beyond 120 an hour, the bit error rate of 1e-12 that
  InfiniBand allows; link_error_recovery beyond 5 a minute; roce_slow_restart beyond 10 a second.
  That CRC errors of Ethernet are held to the rate of symbol errors is ours.
- NVIDIA, NVML API reference: bits of clocks event reasons; GetMarginTemperature, degrees below the
  limit at which the GPU slows down; GetFanSpeed is the speed that is intended and says nothing of a
  fan that is stuck, so that fans are judged by the kernel's hwmon.
- Linux, Documentation/hwmon/sysfs-interface.rst (fan, power and their alarms) and
  Documentation/ABI/testing: sysfs-bus-pci (link width), sysfs-class-net (carrier_down_count).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

NVIDIA, GPU_CLASSES = "0x10de", ("0x0300", "0x0302")  # of PCI: display and 3D controllers
MOST_RETIRED_PAGES: Final = 63
HEAT_BITS: Final = {0x20: "slowed by heat", 0x40: "halved by heat"}
POWER_BRAKE_BIT: Final = 0x80
_HOUR_S = 3_600
_LEAST_HOURS = 1 / 6  # over which a rate is taken


class CounterLimit(NamedTuple):
    """Growth that is reported as `signal`: more than `most_per_hour`. `outlasts_boot`: the counter
    does not begin anew when the host boots."""

    signal: str
    most_per_hour: int = 0
    outlasts_boot: bool = False


COUNTERS: Final = {
    "corrected DRAM errors": CounterLimit("ecc-correctable", outlasts_boot=True),
    "corrected SRAM errors": CounterLimit("sram-correctable", outlasts_boot=True),
    "uncorrectable DRAM errors": CounterLimit("ecc-uncorrectable", outlasts_boot=True),
    "uncorrectable SRAM errors": CounterLimit("sram-uncorrectable", outlasts_boot=True),
    "PCIe replays": CounterLimit("pcie-replays", 8 * 60),
    "NVLink replays and recoveries": CounterLimit("nvlink-errors"),
    "link_downed": CounterLimit("link-flap"),
    "symbol_error": CounterLimit("link-errors", 120),
    "link_error_recovery": CounterLimit("link-errors", 5 * 60),
    "local_link_integrity_errors": CounterLimit("link-errors"),
    "excessive_buffer_overrun_errors": CounterLimit("link-errors"),
    "roce_slow_restart": CounterLimit("link-errors", 10 * _HOUR_S),
    "rx_crc_errors": CounterLimit("link-errors", 120),
    "carrier_down_count": CounterLimit("nic-flap"),
}
# Parts that were there since the host has booted, and what it means that they are not.
LINKS, PORT, NIC = "active NVLinks", "active port", "RDMA device"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong. `signal`: as the health tables name it. `gpu`: None where it is of
    no single GPU. `value`: errors since the last probe, 0 where none are counted."""

    signal: str
    detail: str
    gpu: int | None = None
    value: int = 0


@dataclass
class Readings:
    """Readings of one probe. `counters`: by part of the host and name. `parts`: how many of
    something were there, which should not become fewer. `gpus`: the number on PCIe; `gpu_of`: by
    the part that counters name. `celsius`, `watts`, `fans`: of GPUs, fans in percent."""

    counters: dict[tuple[str, str], int] = field(default_factory=dict)
    parts: dict[tuple[str, str], int] = field(default_factory=dict)
    gpus: int = 0
    gpu_of: dict[str, int] = field(default_factory=dict)
    celsius: list[int] = field(default_factory=list)
    watts: list[int] = field(default_factory=list)
    fans: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def note(self, part: str, name: str, count: int | None) -> None:
        """Keep a counter; None where it could not be read."""
        if count is not None:
            self.counters[part, name] = count

    def find(self, signal: str, detail: str, gpu: int | None = None) -> None:
        self.findings.append(Finding(signal, detail, gpu))

    def text(self) -> str:
        """Return what was read in words: `8 GPUs, 31 to 44 C, 70 to 82 W, 9 ports`."""
        ports = sum(count for (_, name), count in self.parts.items() if name == PORT)
        words = [
            f"{self.gpus} GPU{'s' * (self.gpus != 1)}" if self.gpus else "no NVIDIA GPU",
            *(f"{_range(values)} {unit}" for values, unit in self._measured() if values),
            *([f"{ports} active RDMA port{'s' * (ports != 1)}"] if ports else []),
        ]
        return ", ".join(words)

    def _measured(self) -> Iterable[tuple[list[int], str]]:
        return ((self.celsius, "C"), (self.watts, "W"), (self.fans, "% of fan speed"))


def _range(values: list[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


# --- what the kernel says ------------------------------------------------------------------


def _word(path: Path) -> str:
    """Return the text of a small file, "" where there is none to be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    word = _word(path)
    return int(word) if word.removeprefix("-").isdecimal() else None


def read_pcie(sys_root: Path, readings: Readings) -> None:
    """Count GPUs, and find those whose link has fewer lanes than it and the port above it have."""
    for device in sorted((sys_root / "bus/pci/devices").glob("*")):
        if _word(device / "vendor") != NVIDIA or _word(device / "class")[:6] not in GPU_CLASSES:
            continue
        readings.gpus += 1
        above = device.resolve().parent
        lanes = _number(device / "current_link_width")
        widest = [_number(end / "max_link_width") for end in (device, above)]
        most = min((width for width in widest if width), default=0)
        if lanes is not None and lanes < most:
            readings.find("pcie-degraded", f"{device.name} has {lanes} of {most} lanes")


def read_nics(sys_root: Path, readings: Readings) -> None:
    """Read counters and states of RDMA ports, and of network cards on a bus."""
    for device in sorted((sys_root / "class/infiniband").glob("*")):
        readings.parts[device.name, NIC] = 1
        for port in sorted((device / "ports").glob("*")):
            name = f"{device.name}/{port.name}"
            readings.parts[name, PORT] = int(_word(port / "state").endswith("ACTIVE"))
            for folder in ("counters", "hw_counters"):
                _count(readings, name, (port / folder).glob("*"))
    for card in sorted((sys_root / "class/net").glob("*")):
        if (card / "device").exists():
            files = (card / "carrier_down_count", card / "statistics/rx_crc_errors")
            _count(readings, card.name, files)


def _count(readings: Readings, part: str, files: Iterable[Path]) -> None:
    for path in files:
        if path.name in COUNTERS:
            readings.note(part, path.name, _number(path))


def read_sensors(sys_root: Path, readings: Readings) -> None:
    """Find fans and power supplies whose own sensors say that something is wrong."""
    for chip in sorted((sys_root / "class/hwmon").glob("*")):
        name = _word(chip / "name") or chip.name
        for alarm in sorted(chip.glob("*_alarm")) + sorted(chip.glob("*_fault")):
            sensor, _, kind = alarm.name.partition("_")
            signal = {"fan": "fan-fault", "power": "power-fault"}.get(sensor.rstrip("0123456789"))
            if signal and _number(alarm) == 1:
                readings.find(signal, f"{name}: {sensor} says {kind.replace('_', ' ')}")
        for fan in sorted(chip.glob("fan*_input")):
            sensor = fan.name.removesuffix("_input")
            speed, least = _number(fan), _number(chip / f"{sensor}_min")
            if speed is not None and least and speed < least:
                detail = f"{name}: {sensor} turns {speed:,} times a minute, at least {least:,}"
                readings.find("fan-fault", detail)


# --- what NVML says ------------------------------------------------------------------------


def load_nvml() -> Any:
    """Return the module of nvidia-ml-py; None where it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


class NvmlGpu:
    """One GPU as NVML knows it; it is asked only what this driver and this GPU can answer."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml, self.index = nvml, index
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return the answer, None where there is none. Raises: NVMLError where the GPU is lost."""
        try:
            return getattr(self._nvml, function)(self._handle, *arguments)
        except AttributeError:
            return None
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == self._nvml.NVML_ERROR_GPU_IS_LOST:
                raise
            return None


def read_nvml(nvml: Any, readings: Readings) -> None:
    """Read each GPU; find those that are lost, too hot, held back, or at a limit of the maker."""
    if nvml is None:
        return
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        if readings.gpus:
            readings.find("gpu-lost", f"NVML does not answer: {error}")
        return
    for index in range(count):
        try:
            _read_gpu(NvmlGpu(nvml, index), nvml, readings)
        except nvml.NVMLError as error:
            readings.find("gpu-lost", f"NVML: {error}", index)


def _read_gpu(gpu: NvmlGpu, nvml: Any, readings: Readings) -> None:
    uuid, index = gpu.ask("nvmlDeviceGetUUID"), gpu.index
    part = uuid.decode() if isinstance(uuid, bytes) else uuid or f"GPU {index}"
    readings.gpu_of[part] = index
    _read_heat_and_power(gpu, nvml, readings)
    _, _, is_pending, has_failed = gpu.ask("nvmlDeviceGetRemappedRows") or (0, 0, 0, 0)
    if has_failed:
        readings.find("row-remap-failure", "a row could not be remapped", index)
    if is_pending:
        readings.find("row-remap-pending", "a row is remapped at the next reset", index)
    causes = (gpu.ask("nvmlDeviceGetRetiredPages", cause) for cause in (0, 1))
    retired = sum(len(pages) for pages in causes if pages)
    if retired >= MOST_RETIRED_PAGES:
        readings.find("row-remap-failure", f"{retired} pages are retired", index)
    if hasattr(nvml, "c_nvmlEccSramErrorStatus_v1_t"):
        status = nvml.c_nvmlEccSramErrorStatus_v1_t()
        gpu.ask("nvmlDeviceGetSramEccErrorStatus", status)
        if status.bThresholdExceeded:
            readings.find("sram-threshold", "the flag of the SRAM threshold is set", index)
    for kind, words in enumerate(("corrected", "uncorrectable")):
        for place, number in (("DRAM", 2), ("SRAM", 7)):  # NVML_MEMORY_LOCATION_
            count = gpu.ask("nvmlDeviceGetMemoryErrorCounter", kind, 1, number)
            readings.note(part, f"{words} {place} errors", count)
    readings.note(part, "PCIe replays", gpu.ask("nvmlDeviceGetPcieReplayCounter"))
    _read_nvlinks(gpu, part, nvml, readings)


def _read_heat_and_power(gpu: NvmlGpu, nvml: Any, readings: Readings) -> None:
    celsius, limit = (
        gpu.ask("nvmlDeviceGetTemperature", 0),
        gpu.ask("nvmlDeviceGetTemperatureThreshold", 1),  # at which it slows down
    )
    margin = gpu.ask("nvmlDeviceGetMarginTemperature") if limit is None else None
    if celsius is not None:
        readings.celsius.append(celsius)
        if (limit is not None and celsius >= limit) or (margin is not None and margin <= 0):
            words = f"{celsius} C, the limit is {limit or celsius + (margin or 0)} C"
            readings.find("thermal", words, gpu.index)
    bits = gpu.ask("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:  # its name before driver 535
        bits = gpu.ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    if slowed := ", ".join(words for bit, words in HEAT_BITS.items() if bits & bit):
        readings.find("thermal", f"clocks {slowed}", gpu.index)
    if bits & POWER_BRAKE_BIT:
        readings.find("power-fault", "clocks halved by power brake", gpu.index)
    drawn, most = gpu.ask("nvmlDeviceGetPowerUsage"), gpu.ask("nvmlDeviceGetEnforcedPowerLimit")
    if drawn is not None:
        readings.watts.append(round(drawn / 1_000))  # NVML counts milliwatts
        if most and drawn > most:
            words = f"draws {drawn / 1_000:.0f} W while idle, the limit is {most / 1_000:.0f} W"
            readings.find("power-fault", words, gpu.index)
    for fan in range(gpu.ask("nvmlDeviceGetNumFans") or 0):
        if (percent := gpu.ask("nvmlDeviceGetFanSpeed_v2", fan)) is not None:
            readings.fans.append(percent)


def _read_nvlinks(gpu: NvmlGpu, part: str, nvml: Any, readings: Readings) -> None:
    states = [
        gpu.ask("nvmlDeviceGetNvLinkState", link)
        for link in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 0))
    ]
    if any(states):
        readings.parts[part, LINKS] = sum(map(bool, states))
        errors = (
            gpu.ask("nvmlDeviceGetNvLinkErrorCounter", link, kind) or 0
            for link, is_active in enumerate(states)
            if is_active
            for kind in (0, 1)  # replays and recoveries
        )
        readings.counters[part, "NVLink replays and recoveries"] = sum(errors)


# --- since the last probe ------------------------------------------------------------------


@dataclass
class Memory:
    """Readings that the next probe compares with. `gpus`: the most that were ever on PCIe. `parts`:
    the most that were there since the host has booted."""

    boot_id: str = ""
    at_s: float = 0.0
    gpus: int = 0
    counters: dict[tuple[str, str], int] = field(default_factory=dict)
    parts: dict[tuple[str, str], int] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> Memory:
        """Return what the file says; nothing where it cannot be read."""
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            tables = ({(part, name): count for part, name, count in kept[key]} for key in _TABLES)
            return Memory(str(kept["boot_id"]), float(kept["at_s"]), int(kept["gpus"]), *tables)
        except (OSError, ValueError, KeyError, TypeError):
            return Memory()

    def save(self, path: Path) -> None:
        """Raises: OSError."""
        kept = asdict(self) | {
            key: [[*names, count] for names, count in getattr(self, key).items()] for key in _TABLES
        }
        new = path.with_suffix(".new")
        new.write_text(json.dumps(kept), encoding="utf-8")
        new.replace(path)


_TABLES = ("counters", "parts")


def judge(
    readings: Readings, wanted_gpus: int, before: Memory, boot_id: str, at_s: float
) -> Memory:
    """Add what is wrong beside the last readings, and return what to remember of these.

    `wanted_gpus`: of the host, as the fabric says; a host on which none was ever seen is taken for
    one without NVIDIA's. `at_s`: seconds since the host has booted."""
    is_same_boot = boot_id == before.boot_id
    most = max(before.gpus, readings.gpus)
    if most and readings.gpus < wanted_gpus:
        readings.find("gpu-lost", f"{readings.gpus} of {wanted_gpus} GPUs are on PCIe")
    hours = max(_LEAST_HOURS, (at_s - before.at_s) / _HOUR_S)
    for (part, name), count in readings.counters.items():
        known, limit = before.counters.get((part, name)), COUNTERS[name]
        if known is None or not (is_same_boot or limit.outlasts_boot):
            continue
        growth = count - known if count >= known else count  # somebody has set it to 0
        if growth > limit.most_per_hour * hours:
            gpu = readings.gpu_of.get(part)
            where = "" if gpu is not None else f"{part}: "
            detail = f"{where}{growth:,} {name.replace('_', ' ')}"
            readings.findings.append(Finding(limit.signal, detail, gpu, growth))
    parts = _most_of_each(before.parts if is_same_boot else {}, readings.parts)
    readings.findings += _missing(readings, parts)
    return Memory(boot_id, at_s, most, dict(readings.counters), parts)


def _most_of_each(
    before: dict[tuple[str, str], int], now: dict[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    return {key: max(before.get(key, 0), now.get(key, 0)) for key in {**before, **now}}


def _missing(readings: Readings, parts: dict[tuple[str, str], int]) -> Iterator[Finding]:
    """Yield what was there since the host has booted, and is not any more."""
    for (part, name), most in sorted(parts.items()):
        now = readings.parts.get((part, name), 0)
        if now >= most:
            continue
        if name == NIC:
            yield Finding("nic-down", f"{part} is gone")
        elif name == PORT and (part.partition("/")[0], NIC) in readings.parts:
            yield Finding("link-down", f"{part} is not active")
        elif name == LINKS and part in readings.gpu_of:
            yield Finding("nvlink-down", f"{now} of {most} links", readings.gpu_of[part])


def probe(nvml: Any, sys_root: Path, wanted_gpus: int, memory: Path) -> Readings:
    """Read the host once, and remember it. Raises: OSError."""
    readings = Readings()
    read_pcie(sys_root, readings)
    read_nvml(nvml, readings)
    read_nics(sys_root, readings)
    read_sensors(sys_root, readings)
    boot_id = _word(Path("/proc/sys/kernel/random/boot_id"))
    at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    judge(readings, wanted_gpus, Memory.load(memory), boot_id, at_s).save(memory)
    return readings


def main() -> None:
    os.nice(10)
    gpus, memory, *root = sys.argv[1:]
    readings = probe(load_nvml(), Path(*root or ["/sys"]), int(gpus), Path(memory))
    findings = [asdict(finding) for finding in readings.findings]
    sys.stdout.write(json.dumps({"readings": readings.text(), "findings": findings}))


if __name__ == "__main__":
    main()
