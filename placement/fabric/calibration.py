"""What a cluster measured of itself, in place of what makers state and muster assumes.

    calibration:
      fabric: roce-24k                           # that it was measured on
      rates: {H100: {bf16: 0.94, fp8: 1.05}}     # of compute, times what muster comes with
      goodput: {scale-up: 0.83, nic: 0.92, zone: 0.7}   # of links, as parts of what the file states

`muster calibrate` writes it; `measured` beside these keys says from what, and has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from placement.errors import BadInput
from placement.fabric.gpus import PRECISIONS, Gpu, find_gpu

if TYPE_CHECKING:
    from placement.fabric.tree import Fabric

SCALE_UP, NIC = "scale-up", "nic"  # layers of links that are no tier
KEYS = ("fabric", "rates", "goodput", "measured")
LEAST, MOST = 0.05, 3.0  # beyond, something else was measured


def calibrated(fabric: Fabric, content: Any, own: Mapping[str, Gpu]) -> Fabric:
    """Return the fabric with these rates and goodputs.

    Raises: BadInput naming the key, also where it was measured on another fabric.
    """
    if not isinstance(content, Mapping):
        raise BadInput("calibration", f"must be a file or a mapping with {', '.join(KEYS)}")
    _only(content, "calibration", KEYS)
    if content.get("fabric") != fabric.name:
        raise BadInput(
            "calibration.fabric",
            f"was measured on {content.get('fabric')!r}; this fabric is {fabric.name!r}",
        )
    rates = _rates(content.get("rates", {}), fabric, own)
    shares = _shares(content.get("goodput", {}), [tier.name for tier in fabric.tiers])
    return with_rates(with_goodput(fabric, shares), rates)


def with_rates(fabric: Fabric, rates: Mapping[str, Mapping[str, float]]) -> Fabric:
    """Return the fabric whose GPUs of these names compute at so many times their usual rate."""
    kinds = tuple(
        replace(gpu, rates=tuple(rates[gpu.name].items())) if gpu.name in rates else gpu
        for gpu in fabric.by_host.kinds
    )
    return replace(fabric, by_host=replace(fabric.by_host, kinds=kinds))


def with_goodput(fabric: Fabric, shares: Mapping[str, float]) -> Fabric:
    """Return the fabric whose links of these layers carry so much of what they did."""
    inside, cards = shares.get(SCALE_UP, 1.0), shares.get(NIC, 1.0)
    hardware = replace(
        fabric.by_host,
        nic_gbps=fabric.by_host.nic_gbps * cards,
        scale_up_gbps=fabric.by_host.scale_up_gbps * inside,
    )
    tiers = tuple(
        replace(tier, uplink_bytes_per_s=tier.uplink_bytes_per_s * shares.get(tier.name, 1.0))
        for tier in fabric.tiers
    )
    return replace(
        fabric,
        by_host=hardware,
        tiers=tiers,
        nic_gbps=fabric.nic_gbps * cards,
        scale_up_gbps=fabric.scale_up_gbps * inside,
    )


def _rates(
    content: Any, fabric: Fabric, own: Mapping[str, Gpu]
) -> Mapping[str, Mapping[str, float]]:
    rates: dict[str, dict[str, float]] = {}
    has = {gpu.name for gpu in fabric.by_host.kinds}
    for name, by_precision in _mapping(content, "calibration.rates").items():
        path, gpu = f"calibration.rates.{name}", find_gpu(str(name), own)
        if gpu is None or gpu.name not in has:
            raise BadInput(path, f"{fabric.name} has no such GPU; it has {', '.join(sorted(has))}")
        _only(_mapping(by_precision, path), path, PRECISIONS)
        rates[gpu.name] = {
            precision: _share(value, f"{path}.{precision}")
            for precision, value in by_precision.items()
        }
    return rates


def _shares(content: Any, tiers: Sequence[str]) -> Mapping[str, float]:
    path = "calibration.goodput"
    _only(_mapping(content, path), path, (SCALE_UP, NIC, *tiers))
    return {layer: _share(value, f"{path}.{layer}") for layer, value in content.items()}


def _mapping(content: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise BadInput(path, f"must be a mapping, not {content!r}")
    return content


def _only(content: Mapping[str, Any], path: str, known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            raise BadInput(f"{path}.{key}", f"unknown key; known are {', '.join(known)}")


def _share(value: Any, path: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not LEAST <= value <= MOST:
        raise BadInput(path, f"must be a number from {LEAST:g} to {MOST:g}, not {value!r}")
    return float(value)
