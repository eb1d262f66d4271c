"""Measured steps of public runs, one of each source, beside what muster estimates.

The constants of the step were fitted to these runs among others (docs/steptime.md), so the rows
show that nothing was lost on the way from the fit to an estimate; errors on families that a fit has
not seen are on that page. Rows 31h and 31i are of runs that no fit has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from placement.objective.step_time import step_time
from scheduler.files.step_table import row_of

GPT3 = {
    **{"layers": 96, "hidden": 12288, "ffn": 49152, "heads": 96, "kv_heads": 96, "vocab": 51200},
    **{"seq": 2048, "gated": 0, "tied": 1},
}
BLOOM = {
    **{"layers": 70, "hidden": 14336, "ffn": 57344, "heads": 112, "kv_heads": 112},
    **{"vocab": 250_880, "seq": 2048, "gated": 0, "tied": 1},
}
MPT_7B = {
    **{"layers": 32, "hidden": 4096, "ffn": 16384, "heads": 32, "kv_heads": 32, "vocab": 50432},
    **{"seq": 2048, "gated": 0, "tied": 1},
}
LLAMA3_8B = {
    **{"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv_heads": 8, "vocab": 128_256},
    "seq": 8192,
}
DEEPSEEK_V3 = {
    **{"layers": 61, "hidden": 7168, "ffn": 18432, "heads": 128, "kv_heads": 128, "head_dim": 128},
    **{"vocab": 129_280, "seq": 4096, "experts": 256, "topk": 8, "expert_ffn": 2048},
    **{"shared_experts": 1, "dense_layers": 3, "params_b": 671.025},
}
# What most rows share; batches are in sequences.
USUAL = {"id": "run", "vp": 1, "tp": 1, "pp": 1, "cp": 1, "ep": 1, "gpus_per_node": 8}
RUNS: dict[str, tuple[Mapping[str, object], str]] = {
    "39": (
        GPT3 | {"gpu": "H100", "tp": 4, "pp": 8, "vp": 12, "dp": 16, "precision": "fp8"},
        "1 of 2048, sp",
    ),
    "39b": (
        GPT3 | {"gpu": "H100", "tp": 4, "pp": 8, "vp": 6, "dp": 4, "precision": "fp8"},
        "1 of 256, sp",
    ),
    "39c": (
        DEEPSEEK_V3
        | {"gpu": "GB200", "gpus_per_node": 4, "pp": 4, "vp": 4, "ep": 64, "dp": 64}
        | {"precision": "mxfp8"},
        "1 of 4096",
    ),
    "39d": (
        MPT_7B | {"gpu": "A100", "dp": 8, "precision": "bf16", "fsdp_or_zero": "zero3"},
        "6 of 96, sp",
    ),
    "39e": (
        BLOOM
        | {"gpu": "A100", "network_gbps_per_gpu": 50, "tp": 4, "pp": 12, "dp": 8}
        | {"precision": "bf16", "recompute": "full"},
        "2 of 2048",
    ),
    "39f": (
        GPT3
        | {"layers": 80, "gpu": "A100", "tp": 8, "pp": 8, "vp": 2, "dp": 24}
        | {"precision": "fp16", "fsdp_or_zero": "ddp", "recompute": "full"},
        "2 of 2304",
    ),
    "39g": (
        GPT3
        | {"gpu": "A100", "tp": 8, "pp": 8, "vp": 3, "dp": 1}
        | {"precision": "fp16", "fsdp_or_zero": "ddp", "recompute": "full"},
        "1 of 64",
    ),
    "39h": (
        LLAMA3_8B | {"gpu": "H100-500W", "dp": 8, "precision": "bf16", "fsdp_or_zero": "zero3"},
        "2 of 16",
    ),
}


def estimated_s(shape: Mapping[str, object], batch: str) -> float:
    """Seconds of the step of a run; `batch` as `1 of 2048, sp`: sequences, and split over tp."""
    sequences, _, split = batch.partition(", ")
    micro, _, whole = sequences.partition(" of ")
    cells = {**USUAL, **shape, "micro_batch": micro, "global_batch": whole}
    cells |= {"sp": int(split == "sp"), "gpus": 1}
    for axis in ("tp", "pp", "cp", "dp"):
        cells["gpus"] = int(str(cells["gpus"])) * int(str(cells[axis]))
    row = row_of(0, {key: str(value) for key, value in cells.items()})
    assert row.request is not None, row.note
    assert row.fabric is not None
    hosts = range(row.request.hosts_needed(row.fabric.gpus_per_host))
    return step_time(row.fabric, row.request, hosts).seconds


OURS = {number: partial(estimated_s, *run) for number, run in RUNS.items()}
