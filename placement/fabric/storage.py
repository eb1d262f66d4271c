"""The storage that all gangs of a fabric share, as its file states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.structs import struct
from placement.errors import BadInput, positive

_FIGURES = ("write_gb_per_s", "read_gb_per_s", "capacity_tb")
_KEYS = (*_FIGURES, "hold_jobs")


@struct(frozen=True, slots=True)
class Storage:
    """Storage that gangs share: GB/s that all hosts together write and read, and TB that it holds;
    0 where not stated. `hold_jobs`: jobs wait whose datasets it cannot serve beside those of
    running gangs."""

    write_gb_per_s: float
    read_gb_per_s: float
    capacity_tb: float
    hold_jobs: bool = False


def read_storage(value: Any) -> Storage | None:
    """Read `storage` of a fabric file. Raises: BadInput with the field's path."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or "write_gb_per_s" not in value:
        known = "read_gb_per_s, capacity_tb, hold_jobs"
        raise BadInput("storage", f"must be {{write_gb_per_s: N}}, and {known}")
    for key, number in value.items():
        if key not in _KEYS:
            raise BadInput(f"storage.{key}", f"unknown key; known are {', '.join(_KEYS)}")
        if key in _FIGURES:
            positive(number, f"storage.{key}")
    if not isinstance(hold_jobs := value.get("hold_jobs", False), bool):
        raise BadInput("storage.hold_jobs", f"must be true or false, not {hold_jobs!r}")
    if hold_jobs and "read_gb_per_s" not in value:
        raise BadInput("storage.read_gb_per_s", "is required with hold_jobs: what it reads")
    write, read, capacity = (float(value.get(key, 0)) for key in _FIGURES)
    return Storage(write, read, capacity, hold_jobs)
