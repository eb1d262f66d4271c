"""What a cluster measured of itself, in place of what makers state and muster assumes.

    calibration:
      fabric: roce-24k                           # that it was measured on
      rates: {H100: {bf16: 0.94, fp8: 1.05}}     # of compute, times what muster comes with
      goodput: {scale-up: 0.83, nic: 0.92, zone: 0.7}   # of links, as parts of what the file states

`muster calibrate` writes it; `measured` beside these keys says from what, and has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement.errors import BadInput, refuse_unknown_keys
from placement.fabric.gpus import PRECISIONS, Gpu, find_gpu

SCALE_UP, NIC = "scale-up", "nic"  # layers of links that are no tier
KEYS = ("fabric", "rates", "goodput", "measured")
LEAST, MOST = 0.05, 3.0  # beyond, something else was measured


def read_calibration(
    content: Any, name: str, kinds: Sequence[Gpu], tiers: Sequence[str], own: Mapping[str, Gpu]
) -> tuple[Mapping[str, Mapping[str, float]], Mapping[str, float]]:
    """Return rates by GPU and precision, and goodput by layer, of the fabric of this name.

    Raises: BadInput naming the key, also where it was measured on another fabric.
    """
    if not isinstance(content, Mapping):
        raise BadInput("calibration", f"must be a file or a mapping with {', '.join(KEYS)}")
    refuse_unknown_keys(content, "calibration", KEYS)
    if content.get("fabric") != name:
        raise BadInput(
            "calibration.fabric",
            f"was measured on {content.get('fabric')!r}; this fabric is {name!r}",
        )
    rates = _rates(content.get("rates", {}), name, kinds, own)
    return rates, _shares(content.get("goodput", {}), tiers)


def _rates(
    content: Any, fabric: str, kinds: Sequence[Gpu], own: Mapping[str, Gpu]
) -> Mapping[str, Mapping[str, float]]:
    rates: dict[str, dict[str, float]] = {}
    has = {gpu.name for gpu in kinds}
    for name, by_precision in _mapping(content, "calibration.rates").items():
        path, gpu = f"calibration.rates.{name}", find_gpu(str(name), own)
        if gpu is None or gpu.name not in has:
            raise BadInput(path, f"{fabric} has no such GPU; it has {', '.join(sorted(has))}")
        refuse_unknown_keys(_mapping(by_precision, path), path, PRECISIONS)
        rates[gpu.name] = {
            precision: _share(value, f"{path}.{precision}")
            for precision, value in by_precision.items()
        }
    return rates


def _shares(content: Any, tiers: Sequence[str]) -> Mapping[str, float]:
    path = "calibration.goodput"
    refuse_unknown_keys(_mapping(content, path), path, (SCALE_UP, NIC, *tiers))
    return {layer: _share(value, f"{path}.{layer}") for layer, value in content.items()}


def _mapping(content: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise BadInput(path, f"must be a mapping, not {content!r}")
    return content


def _share(value: Any, path: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not LEAST <= value <= MOST:
        raise BadInput(path, f"must be a number from {LEAST:g} to {MOST:g}, not {value!r}")
    return float(value)
