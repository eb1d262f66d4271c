"""Knobs of the time model with their sources.

`default` are round figures of a cluster of some thousand GPUs; `llama3` a 16,384-GPU run
on RoCE. Where nothing is published the line says so.
"""

from __future__ import annotations

from typing import Any

DEFAULT = "default"

# FT-HSDP (2026): initialising communicators takes 17 s at 16K GPUs, 30 s at 22K, 100 s at
# 64K, 200 s at 98K. MegaScale (2024): less than 30 s above 10K.
_COMMUNICATORS = [
    {"gpus": 16_384, "seconds": 17},
    {"gpus": 22_528, "seconds": 30},
    {"gpus": 65_536, "seconds": 100},
    {"gpus": 98_304, "seconds": 200},
]

PRESETS: dict[str, dict[str, Any]] = {
    DEFAULT: {
        # ByteRobust (2025): inspections find a lost GPU in 10 s, a NIC in 30 s, a switch in
        # 60 s; without them NCCL's timeout of 10 minutes.
        "detection": {"default_s": 30, "by_cause": {"nccl-watchdog": 600, "nccl-timeout": 600}},
        "process_start_s": 60,  # not published
        "communicators": _COMMUNICATORS,
        "checkpoint": {
            "interval_s": 1800,
            "kind": "remote",
            # fp32 master, first and second moment: 12 bytes a parameter
            "bytes_per_parameter": 12,
            "gb_per_gpu": 1,  # Llama 3 (2024): 1 MB to 4 GB a GPU
            "write_gb_per_s": 2000,  # Llama 3: 2 TB/s sustained, 7 TB/s peak
            "load_gb_per_s": 2000,
            "remote_gb_per_s": 2000,
            "stall_s": 0,
        },
        "warmup_s": 30,  # not published
        # Arnold (2025): communication is 30 to 50 % of a step.
        "network": {"is_modelled": True, "comm_share": 0.3},
    },
    "llama3": {
        "detection": {
            "default_s": 30,
            "by_cause": {
                "faulty-gpu": 10,
                "gpu-hbm3": 10,
                "gpu-sram": 10,
                "gpu-system-processor": 10,
                "network-switch-cable": 60,
                "nccl-watchdog": 600,
                # found by replays of the suspected steps, not by a counter: not published
                "silent-data-corruption": 3600,
            },
        },
        # FT-HSDP: a cold restart takes about 200 s at 16K GPUs; less 17 s of communicators,
        # 3 s of loading and the warm-up.
        "process_start_s": 150,
        "checkpoint": {
            # Young's interval for w = 10 s and 3.79 failures per 1,000 host-days on 2,048
            # hosts: sqrt(2 x 10 s x 3.09 h) = 472 s. The interval is not published.
            "interval_s": 472,
            # 405B x 12 B at 2 TB/s take 2.4 s; with the stall a write blocks for 10 s.
            "stall_s": 7.6,
        },
    },
}
