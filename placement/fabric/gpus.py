"""Accelerators: peaks by precision, memory, links and power, as their makers state them.

The catalogue is gpus.toml, which names the source of each figure. A fabric file may add entries of
its own under `gpus`, with the same keys.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from muster.structs import replace, struct
from placement.errors import BadInput, positive, refuse_unknown_keys

PRECISIONS = ("bf16", "fp16", "fp32", "fp8", "mxfp8", "nvfp4", "int8")
_FIGURES = ("memory_gb", "memory_gb_per_s", "scale_up_gbps", "watts")
_REQUIRED = ("memory_gb", "memory_gb_per_s", "tflops")


@struct(frozen=True, slots=True)
class Gpu:
    """One kind of accelerator.

    `tflops`: dense peak by precision. `memory_gb`: as sold; `memory_gb_per_s`: GB/s to it.
    `scale_up_gbps`: Gbit/s of one GPU in one direction inside its host or rack. `watts`: 0
    where nobody says. `sources`: of each figure, by its name. `rates`: of compute, times the usual
    rate of such a GPU, by precision, where a cluster has measured its own (calibration.py).
    """

    name: str
    memory_gb: float
    memory_gb_per_s: float
    scale_up_gbps: float
    watts: float
    tflops: tuple[tuple[str, float], ...]
    sources: tuple[tuple[str, str], ...] = ()
    rates: tuple[tuple[str, float], ...] = ()

    def peak(self, precision: str) -> float:
        """Return the dense peak in FLOP/s. Raises: BadInput where the GPU lacks the precision."""
        rate = dict(self.tflops).get(precision)
        if rate is None:
            has = ", ".join(known for known, _ in self.tflops)
            raise BadInput("model.dtype", f"{self.name} has no {precision}; it has {has}")
        return rate * 1e12

    def rate(self, precision: str) -> float:
        """Return the factor on the usual rate of such a GPU; 1 where it was not measured."""
        return dict(self.rates).get(precision, 1.0)


LEAST_POWER_SHARE = 0.5  # of what a GPU draws at most: makers let nobody hold it much lower


def with_power_limit(gpu: Gpu, watts: float) -> Gpu:
    """Return the GPU held to so many watts: the kind `NAME-<watts>W` of the catalogue where there
    is one, else with peaks that fall as its clock does. Unchanged where it draws no more than that,
    and with 0 watts, which are no limit.

    Dynamic power is C V^2 f, and the voltage falls with the clock, so the clock falls as the cube
    root of the power. What makers state of Hopper lies on both sides of that: 0.92 of the peak at
    500 W (0.89 by the rule), 0.84 at 400 W (0.83), 0.76 at 350 W (0.79), all against 700 W.
    """
    if not 0 < watts < gpu.watts:
        return gpu
    if (sold := catalogue().get(f"{gpu.name}-{watts:g}W")) is not None:
        return sold
    clock = (watts / gpu.watts) ** (1 / 3)
    peaks = tuple((precision, rate * clock) for precision, rate in gpu.tflops)
    return replace(gpu, watts=watts, tflops=peaks)


@lru_cache(maxsize=1)
def catalogue() -> Mapping[str, Gpu]:
    """Return the GPUs that muster knows, by name, in the order of gpus.toml."""
    text = Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8")
    return {name: _gpu(name, entry) for name, entry in tomllib.loads(text).items()}


@lru_cache(maxsize=1)
def _names() -> Mapping[str, str]:
    """The name that each spelling stands for: aliases, and any case."""
    text = Path(__file__).with_name("gpus.toml").read_text(encoding="utf-8")
    spelled = {
        name: [name, *entry.get("aliases", ())] for name, entry in tomllib.loads(text).items()
    }
    return {_plain(alias): name for name, aliases in spelled.items() for alias in aliases}


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").replace(" ", "-")


def find_gpu(name: str, own: Mapping[str, Gpu]) -> Gpu | None:
    """Find the GPU of this name, in any case: among a fabric's own entries, then in the
    catalogue."""
    for known in own.values():
        if _plain(known.name) == _plain(name):
            return known
    known_as = _names().get(_plain(name))
    return catalogue()[known_as] if known_as else None


def gpu_named(name: Any, path: str, own: Mapping[str, Gpu]) -> Gpu:
    """Find a GPU by name. Raises: BadInput, with similar names, where there is none."""
    if not isinstance(name, str) or not name:
        raise BadInput(path, f"must be the name of a GPU, such as H100, not {name!r}")
    if (found := find_gpu(name, own)) is not None:
        return found
    known = [*own, *catalogue()]
    near = get_close_matches(name.upper(), known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    raise BadInput(
        path, f"no GPU {name!r} in the catalogue ({hint}); `gpus` adds entries of your own"
    )


def read_gpus(value: Any) -> dict[str, Gpu]:
    """Read a fabric's own GPUs: `gpus: {X100: {memory_gb: 96, memory_gb_per_s: 4000, tflops: {bf16:
    500}}}`. Raises: BadInput naming the key."""
    if not isinstance(value, Mapping):
        raise BadInput("gpus", "must map names to entries with memory_gb, memory_gb_per_s, tflops")
    return {str(name): _checked(str(name), entry, f"gpus.{name}") for name, entry in value.items()}


def _checked(name: str, entry: Any, path: str) -> Gpu:
    if not isinstance(entry, Mapping):
        raise BadInput(path, f"must be a mapping with {', '.join(_REQUIRED)}")
    refuse_unknown_keys(entry, path, (*_FIGURES, "tflops", "source"))
    for key in _REQUIRED:
        if key not in entry:
            raise BadInput(f"{path}.{key}", "is required")
    for key in _FIGURES:
        if key in entry:
            positive(entry[key], f"{path}.{key}")
    tflops = entry["tflops"]
    if not isinstance(tflops, Mapping) or not tflops:
        raise BadInput(f"{path}.tflops", "must map precisions to TFLOP/s, as {bf16: 989.4}")
    for precision, rate in tflops.items():
        if precision not in PRECISIONS:
            raise BadInput(
                f"{path}.tflops.{precision}",
                f"unknown precision; known are {', '.join(PRECISIONS)}",
            )
        positive(rate, f"{path}.tflops.{precision}")
    return _gpu(name, {"source": "the fabric file", **entry})


def _gpu(name: str, entry: Mapping[str, Any]) -> Gpu:
    given = [key for key in (*_FIGURES, "tflops") if key in entry]
    sources = {**dict.fromkeys(given, entry["source"]), **entry.get("sources", {})}
    return Gpu(
        name,
        float(entry["memory_gb"]),
        float(entry["memory_gb_per_s"]),
        float(entry.get("scale_up_gbps", ASSUMED_SCALE_UP_GBPS)),
        float(entry.get("watts", 0)),
        tuple((known, float(rate)) for known, rate in entry["tflops"].items()),
        tuple(sources.items()),
    )


ASSUMED_SCALE_UP_GBPS = 3600.0  # NVLink 4 of an H100: 450 GB/s per direction and GPU
ASSUMED = "H100"  # where a fabric names no GPU; whoever shows a time says so
