"""Published failure rates, as causes.

Rates are failures per 1,000 days of a host of 8 GPUs. Where a source counts causes, so do
these: a count over (hosts x days) of the run. Repair times are nowhere published with
them; they are those of InfiniteHBD's fault log (SIGCOMM 2025: an LLM cluster of 400
servers, 174 days), class by class: mean and, from mean and median, the sigma of a
lognormal. Failures of software leave the host as it was: it is back at once.
"""

from __future__ import annotations

from muster.structs import replace
from simulator.failures.cause import FailureCause, RepairTime

GPU = RepairTime(191.2, "lognormal", 1.84)  # 59 intervals, median 35 h
CABLE = RepairTime(113.3, "lognormal", 1.41)  # 32, median 42 h
NIC = RepairTime(464.2, "lognormal", 1.93)  # 16, median 72 h
HARDWARE = RepairTime(256.9, "lognormal", 1.65)  # 138, median 66 h
OTHER = RepairTime(79.4, "lognormal", 1.92)  # 169, median 13 h: unknown, failed stress tests
ANY = RepairTime(157.9, "lognormal", 1.78)  # all 312, median 33 h
RESTART = RepairTime(0, "fixed")  # nothing is broken but the process

# Llama 3 (2024), table 5: unexpected interruptions of 2,048 hosts in 54 days. The printed
# percentages contradict the counts; the counts add up to 419.
LLAMA3_HOST_DAYS = 2_048 * 54
LLAMA3 = (
    ("faulty-gpu", 148, GPU),
    ("gpu-hbm3", 72, GPU),
    ("software-bug", 54, RESTART),
    ("network-switch-cable", 35, CABLE),
    ("host-maintenance", 32, OTHER),
    ("gpu-sram", 19, GPU),
    ("gpu-system-processor", 17, GPU),
    ("nic", 7, NIC),
    ("nccl-watchdog", 7, RESTART),
    ("silent-data-corruption", 6, OTHER),
    ("gpu-thermal", 6, GPU),
    ("ssd", 3, HARDWARE),
    ("power-supply", 3, HARDWARE),
    ("server-chassis", 2, HARDWARE),
    ("io-expansion-board", 2, HARDWARE),
    ("dependency", 2, RESTART),
    ("cpu", 2, HARDWARE),
    ("system-memory", 2, HARDWARE),
)

# FT-HSDP (2026): 2.3 per 1,000 host-days over 678 events on 32K H100, shares in percent.
FT_HSDP_RATE = 2.3
FT_HSDP = (
    ("gpu-hbm3", 22.9, GPU),
    ("pcie-device", 18.0, HARDWARE),
    ("nccl-timeout", 9.0, RESTART),
    ("faulty-gpu", 7.4, GPU),
    ("software", 7.1, RESTART),
    ("host-maintenance", 6.2, OTHER),
    ("kernel", 5.8, RESTART),
    ("reboot", 5.6, RESTART),
    ("silent-data-corruption", 5.5, OTHER),
    ("network", 5.3, CABLE),
    ("other", 7.2, OTHER),
)

# Kokolis et al. (HPCA 2025): node failures of jobs of more than 128 GPUs, all causes.
RSC1_RATE, RSC2_RATE = 6.50, 2.34

PRESETS: dict[str, tuple[FailureCause, ...]] = {
    "llama3": tuple(
        FailureCause(name, 1000 * count / LLAMA3_HOST_DAYS, repair)
        for name, count, repair in LLAMA3
    ),
    "ft-hsdp": tuple(
        FailureCause(name, FT_HSDP_RATE * share / 100, repair) for name, share, repair in FT_HSDP
    ),
    "rsc1": (FailureCause("rsc1-host", RSC1_RATE, ANY),),
    "rsc2": (FailureCause("rsc2-host", RSC2_RATE, ANY),),
}


def preset(name: str, scale: float = 1.0) -> tuple[FailureCause, ...]:
    """Return the causes of a preset, each `scale` times as often."""
    return tuple(replace(cause, rate=cause.rate * scale) for cause in PRESETS[name])
