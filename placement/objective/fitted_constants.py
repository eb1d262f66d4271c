"""Constants of the step: shares of peaks, exposed shares of communication, and their intervals.

They stand in fitted_constants.toml, which `make fit-steps` writes: each with its interval, what it
was fitted on and where it is from. What a cluster measured of itself may replace them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from muster.structs import struct

SIXTEEN_BITS = ("bf16", "fp16", "fp32")
# GPUs of one make: where one was not measured, those of its kin say how it does.
KINS = {
    "A100-40GB": "A100",
    "H100-500W": "H100",
    "H100-PCIe": "H100",
    "H200": "H100",
    "H200-NVL": "H100",
    "GB200": "B200",
    "B300": "B200",
    "GB300": "B200",
    "MI300X": "MI325X",
    "MI355X": "MI325X",
    "Gaudi3": "Gaudi2",
    "TPU-v5p": "TPU-v6e",
}


@struct(frozen=True, slots=True)
class Rates:
    """Shares of a GPU's peaks that kernels reach while they run."""

    gemm: float
    attention: float
    is_measured: bool = False


@struct(frozen=True, slots=True, eq=False)
class FittedConstants:
    """All constants of the step.

    `gemm`: shares of the peak, by class of precision, then `class:GPU`; `attention`: by GPU,
    "" for any other. `short_tokens`, `narrow_columns`, `expert_tokens`: tokens or columns at
    which GEMMs take twice as long as large ones. `expert_share`: rate of experts' GEMMs, as a
    share of others'. `misaligned`: times slower. `layer_bytes`: of a layer, column and token.
    `exposed`: shares of an axis' time that the step waits for: dp of what it sends in all, the
    others of activations; `tp_whole` where sequences are not split over tp.
    `intervals`: what 8 of 10 held-out runs took, times the estimate, by kind of job. `measured`:
    keys of `gemm` that have runs of their own. `resolution`: share of the step by which two
    placements of a job must differ to be told apart.
    """

    gemm: Mapping[str, float]
    attention: Mapping[str, float]
    short_tokens: float
    narrow_columns: float
    misaligned: float
    layer_bytes: float
    expert_share: float
    expert_tokens: float
    exposed: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    resolution: float
    measured: frozenset[str]

    def rates(self, gpu: str, precision: str) -> Rates:
        """Return the rates of a GPU, of its kin where it was not measured, else of any."""
        kind, kin = precision_class(precision), KINS.get(gpu, gpu)
        keys = (f"{kind}:{gpu}", f"{kind}:{kin}", kind)
        gemm = next(self.gemm[key] for key in keys if key in self.gemm)
        heads = next(self.attention[key] for key in (gpu, kin, "") if key in self.attention)
        return Rates(gemm, heads, keys[0] in self.measured)

    def interval(self, *, has_experts: bool, is_measured: bool) -> tuple[float, float]:
        """Return the least and most that 8 of 10 runs take, as parts of the estimate."""
        kind = "experts" if has_experts else "dense" if is_measured else "unmeasured"
        return self.intervals[kind]


def precision_class(precision: str) -> str:
    """Return the class of a precision: precisions of one width have the same rates."""
    if precision in SIXTEEN_BITS:
        return "bf16"
    return "fp4" if precision == "nvfp4" else "fp8"


@lru_cache(maxsize=1)
def fitted_constants() -> FittedConstants:
    """Read the constants of fitted_constants.toml, once."""
    text = Path(__file__).with_name("fitted_constants.toml").read_text(encoding="utf-8")
    return read_constants(tomllib.loads(text))


def read_constants(content: Mapping[str, Any]) -> FittedConstants:
    """Read the content of a file of constants, whose entries say their value under `value`."""

    def values(section: str) -> dict[str, Any]:
        return {name: entry["value"] for name, entry in content[section].items()}

    return FittedConstants(
        gemm=values("gemm"),
        attention=values("attention"),
        exposed=values("exposed"),
        intervals={kind: tuple(ends) for kind, ends in values("interval").items()},
        resolution=content["resolution"]["value"],
        measured=frozenset(key for key, entry in content["gemm"].items() if entry.get("rows")),
        **values("kernel"),
    )
