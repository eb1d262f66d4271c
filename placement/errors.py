"""Bad input, named by field. The rooms that read files add the file and the line."""

from __future__ import annotations

from typing import Any


class BadInput(ValueError):
    """A value that no fabric or job can have.

    `field` is a dotted path into the input ("parallelism.tp", "tiers.1.count").
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


def positive(value: Any, path: str, kind: str = "positive number") -> float:
    """Return `value` as a float. Raises: BadInput of `path` unless it is a number from 0 to 1e12,
    both excluded; `kind` says in its message what it must be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        raise BadInput(path, f"must be a {kind}, not {value!r}")
    return float(value)
