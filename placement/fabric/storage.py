"""The storage that all gangs of a fabric share, as its file states it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.structs import struct
from placement.errors import BadInput, positive

_KEYS = ("write_gb_per_s", "read_gb_per_s", "capacity_tb")


@struct(frozen=True, slots=True)
class Storage:
    """Storage that gangs share: GB/s that all hosts together write and read, and TB that it holds;
    0 where not stated."""

    write_gb_per_s: float
    read_gb_per_s: float
    capacity_tb: float


def read_storage(value: Any) -> Storage | None:
    """Read `storage` of a fabric file. Raises: BadInput with the field's path."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or "write_gb_per_s" not in value:
        raise BadInput("storage", "must be {write_gb_per_s: N}, and read_gb_per_s, capacity_tb")
    for key, number in value.items():
        if key not in _KEYS:
            raise BadInput(f"storage.{key}", f"unknown key; known are {', '.join(_KEYS)}")
        positive(number, f"storage.{key}")
    return Storage(*(float(value.get(key, 0)) for key in _KEYS))
