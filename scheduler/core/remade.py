"""The next version of a value with many fields, of which an event changes few.

`dataclasses.replace` reads and sets every field by itself: 4 us for a state, of which a
decision makes several. A class without slots keeps its fields in one dictionary, which is
copied whole: 1 us. What a version has found out about itself and kept (`found_from`) is passed
on where none of the fields that it comes from is changed; else the next version finds it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Found", "found_from", "remade"]

_T = TypeVar("_T")
_V = TypeVar("_V")


class Found(cached_property[_V]):
    """What a value finds out about itself once, from the fields `sources` alone."""

    sources: frozenset[str] = frozenset()


def found_from(*sources: str) -> Callable[[Callable[[Any], _V]], Found[_V]]:
    """A `cached_property` that the next version keeps while these fields are the same."""

    def found(find: Callable[[Any], _V]) -> Found[_V]:
        kept = Found(find)
        kept.sources = frozenset(sources)
        return kept

    return found


if TYPE_CHECKING:  # the same call, whose names and types are checked
    from dataclasses import replace as remade
else:

    def remade(value: _T, /, **changes: Any) -> _T:
        """`value` with these fields changed. For dataclasses without slots and
        __post_init__. Raises: TypeError on a field that it does not have."""
        following = object.__new__(type(value))
        fields = following.__dict__
        fields.update(value.__dict__)
        for name, sources in _found(type(value)):
            if name in fields and not sources.isdisjoint(changes):
                del fields[name]
        count = len(fields)
        fields.update(changes)
        if len(fields) != count:
            unknown = ", ".join(changes.keys() - value.__dict__.keys())
            raise TypeError(f"{type(value).__name__} has no {unknown}")
        return following


@lru_cache(maxsize=32)
def _found(kind: type) -> tuple[tuple[str, frozenset[str]], ...]:
    """What values of a class find out about themselves, and from which fields."""
    return tuple(
        (name, value.sources) for name, value in vars(kind).items() if isinstance(value, Found)
    )
