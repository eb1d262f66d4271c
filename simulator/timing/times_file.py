"""The knobs of the time model, as `--times` gives them: a preset or a file, then changes.

    --times llama3
    --times times.yaml,checkpoint.interval_s=1800,detection.default_s=600

A file holds any of these; what it leaves out is as in the preset `default`:

    detection:                  # from the failure to the scheduler hearing of it
      default_s: 30
      by_cause: {nccl-watchdog: 600}
    process_start_s: 60         # from the decision to all ranks running
    communicators:              # initialising them, by GPUs; between points in proportion
      - {gpus: 16384, seconds: 17}
    checkpoint:
      interval_s: 1800          # of work, from the end of one write to the next
      kind: remote              # remote | local | peer
      bytes_per_parameter: 12
      gb_per_gpu: 1             # of jobs whose model is not known
      write_gb_per_s: 2000      # remote: of the store, shared by all gangs; else of a host
      load_gb_per_s: 2000
      remote_gb_per_s: 2000     # local: what a gang that lost a host reads its state with
      stall_s: 0                # of each write, beside the transfer
    warmup_s: 30                # first steps after a start are slower: so much in all
    network:
      is_modelled: true         # false: every placement is equally fast
      comm_share: 0.3           # of a step, for jobs whose model is not known

The first attempt of a job pays neither start nor load: recorded run times contain them.
A host moves no more than its network cards carry.
`local`: a write goes to the host's own disk, and in the background to remote storage, from
where a gang that lost a host has to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from scheduler.core.policies.costs import Costs
from scheduler.files.errors import InputError, Problem
from scheduler.files.field_types import one_of, wrong_value
from scheduler.files.job_keys import Count, Flag, Keys, checked_keys
from scheduler.files.yaml12 import Document, load, parse
from simulator.field_types import Amount, Positive

KINDS = ("remote", "local", "peer")


class DetectionParameters(Keys):
    default_s: Amount
    by_cause: dict[str, Amount] = Field(default_factory=dict)


class CommunicatorPoint(Keys):
    gpus: Count
    seconds: Amount


class CheckpointParameters(Keys):
    interval_s: Positive
    kind: Annotated[str, one_of(*KINDS)]
    bytes_per_parameter: Positive
    gb_per_gpu: Amount
    write_gb_per_s: Positive
    load_gb_per_s: Positive
    remote_gb_per_s: Positive
    stall_s: Amount


def _share(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise wrong_value(f"must be from 0 to less than 1, not {value!r}")
    return value


class NetworkParameters(Keys):
    is_modelled: Flag
    comm_share: Annotated[float, BeforeValidator(_share)]


class TimeModel(Keys):
    """All parameters of the time model. `source`: what they were read from, for the record."""

    detection: DetectionParameters
    process_start_s: Amount
    communicators: list[CommunicatorPoint]
    checkpoint: CheckpointParameters
    warmup_s: Amount
    network: NetworkParameters
    source: str = ""

    @property
    def costs(self) -> Costs:
        """The costs that the scheduler counts with: whole seconds, for a gang of any size."""
        start_s = round(self.process_start_s + self.warmup_s)
        interval_s = max(1, round(self.checkpoint.interval_s))
        return Costs(interval_s, start_s, round(self.detection.default_s))

    def detection_s(self, cause: str) -> float:
        return self.detection.by_cause.get(cause, self.detection.default_s)

    def init_s(self, gpus: int) -> float:
        """Return seconds of a start, by lines between points, in proportion to GPUs beyond them."""
        points = [(point.gpus, point.seconds) for point in self.communicators]
        if not points:
            return 0.0
        if gpus <= points[0][0]:
            return points[0][1] * gpus / points[0][0]
        for (low, low_s), (high, high_s) in pairwise(points):
            if gpus <= high:
                return low_s + (high_s - low_s) * (gpus - low) / (high - low)
        return points[-1][1] * gpus / points[-1][0]


def load_time_model(text: str) -> TimeModel:
    """Read a time model. Raises: InputError naming file, line and field."""
    base, *changes = text.split(",")
    document = _base(base)
    values = _over(PRESETS[DEFAULT], document.mapping())
    for change in changes:
        values = _changed(values, change)
    times = checked_keys(TimeModel, document, values | {"source": text})
    sizes = [point.gpus for point in times.communicators]
    if sizes != sorted(set(sizes)):
        raise document.error(("communicators", "must be in order of gpus, each once"))
    return times


def _base(name: str) -> Document:
    if name in PRESETS:
        return Document(PRESETS[name], f"--times {name}")
    if not Path(name).is_file():
        known = ", ".join(PRESETS)
        raise InputError(Problem("--times", f"{name!r} is neither a file nor one of {known}"))
    document = load(name)
    if "source" in document.mapping():
        raise document.error(("source", "is not a setting"))
    return document


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings key by key; anything else is replaced."""
    both = dict(below)
    for key, value in above.items():
        inner = both.get(key)
        is_deep = isinstance(inner, Mapping) and isinstance(value, Mapping)
        both[key] = _over(inner, value) if isinstance(inner, Mapping) and is_deep else value
    return both


def _changed(values: Mapping[str, Any], change: str) -> dict[str, Any]:
    """`checkpoint.interval_s=1800` put in its place; wrong names are found later."""
    path, equals, value = change.strip().partition("=")
    if not equals or not path:
        message = f"{change.strip()!r} is not a change like checkpoint.interval_s=1800"
        raise InputError(Problem("--times", message))
    nested: Any = parse(value, "--times").value
    for key in reversed(path.split(".")):
        nested = {key: nested}
    return _over(values, nested)


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
