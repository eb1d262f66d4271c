"""Shapes of values in a certificate file: numbers, texts, lists and mappings.

Standard library alone, as `verify`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

MOST = 1 << 128  # of whole numbers: far beyond any price, and arithmetic stays quick
MOST_HOSTS = 1_000_000  # of a fabric, and ranks of a job


class Malformed(Exception):
    """The file is no certificate. `field` says where."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field, self.message = field, message


def digest(part: Any) -> str:
    """SHA-256 of a part as JSON, keys sorted, without blanks."""
    text = json.dumps(part, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def text(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise Malformed(path, f"must be a text, not {value!r:.40}")


def signed(value: Any, path: str, least: int = -MOST, most: int = MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(path, f"must be a whole number, not {value!r:.40}")
    if not least <= value <= most:
        raise Malformed(path, f"must be {least:,} to {most:,}, is {value:.6g}")


def non_negative(value: Any, path: str) -> None:
    signed(value, path, 0)


def count(value: Any, path: str) -> None:
    signed(value, path, 1, MOST_HOSTS)


def positive(value: Any, path: str) -> None:
    signed(value, path, 1)


def truth(value: Any, path: str) -> None:
    if not isinstance(value, bool):
        raise Malformed(path, f"must be true or false, not {value!r:.40}")


def ratio(value: Any, path: str) -> None:
    """A ratio of whole numbers, at least 0."""
    check(value, [non_negative], path)
    if len(value) != 2 or not value[1]:
        raise Malformed(path, "must be a numerator and a denominator above 0")


def word(*known: str) -> Callable[[Any, str], None]:
    """Return what accepts one of these words."""

    def accept(value: Any, path: str) -> None:
        if value not in known:
            raise Malformed(path, f"must be one of {', '.join(known)}, not {value!r:.40}")

    return accept


def share(value: Any, path: str) -> None:
    ratio(value, path)
    if value[0] > value[1]:
        raise Malformed(path, "must be 1 at most")


def one_of(value: Any, path: str, key: str, shapes: dict[str, Any]) -> None:
    if not isinstance(value, dict) or value.get(key) not in shapes:
        raise Malformed(path, f"must be a mapping whose {key} is {' or '.join(shapes)}")
    check(value, {key: text, **shapes[value[key]]}, path)


def check(value: Any, shape: Any, path: str = "") -> None:
    """Raises: Malformed unless `value` is like `shape`: a mapping of these keys (those that end
    in `?` may be missing), a list of such values, or what a function accepts."""
    if callable(shape):
        shape(value, path)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise Malformed(path, f"must be a list, not {value!r:.40}")
        for i, each in enumerate(value):
            check(each, shape[0], f"{path}.{i}")
    else:
        if not isinstance(value, dict):
            raise Malformed(path, f"must be a mapping, not {value!r:.40}")
        at = f"{path}." if path else ""
        known = {key.removesuffix("?"): each for key, each in shape.items()}
        for key in [*known, *value]:
            if key not in value and key in shape:
                raise Malformed(f"{at}{key}", "is missing")
            if key not in known:
                raise Malformed(f"{at}{key}", f"unknown key; known are {', '.join(known)}")
        for key, each in known.items():
            if key in value:
                check(value[key], each, f"{at}{key}")


def by_name(value: Any, path: str, of: Any = non_negative) -> None:
    if not isinstance(value, dict):
        raise Malformed(path, f"must be a mapping, not {value!r:.40}")
    for key, each in value.items():
        of(each, f"{path}.{key}")


def runs(pairs: list[list[int]], most: int, path: str) -> list[int]:
    """Pairs of a value and a count, written out."""
    if any(len(pair) != 2 for pair in pairs) or sum(pair[1] for pair in pairs) != most:
        raise Malformed(path, f"must be pairs of a value and a count, {most:,} in all")
    return [value for value, count in pairs for _ in range(count)]
