"""Bad input, named by field. The rooms that read files add the file and the line."""

from __future__ import annotations

from collections.abc import Iterable
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


def refuse_unknown_keys(item: Iterable[Any], path: str, known: Iterable[str]) -> None:
    """Raises: BadInput of the first key of `item` that is not among `known`."""
    names = tuple(known)
    for key in item:
        if key not in names:
            field = f"{path}.{key}" if path else str(key)
            raise BadInput(field, f"unknown key; known are {', '.join(names)}")


def positive_integer(value: Any, path: str) -> int:
    """Return `value`. Raises: BadInput of `path` unless it is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadInput(path, f"must be a whole number of at least 1, not {value!r}")
    return value
