"""The next version of a value that finds things out about itself.

What a version has derived from itself and kept (`derived_from`) is passed on where none of the
fields that it comes from is changed; else the next version finds it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from muster.structs import Derived

__all__ = ["derived_from", "evolve"]

_T = TypeVar("_T")
_V = TypeVar("_V")


class _DerivedFrom(Derived[_V]):
    """What is found from the fields `sources` alone."""

    def __init__(self, find: Callable[[Any], _V], sources: frozenset[str]) -> None:
        super().__init__(find)
        self.sources = sources


def derived_from(*sources: str) -> Callable[[Callable[[Any], _V]], Derived[_V]]:
    """A property that is derived once and kept while these fields stay the same."""

    def derive(find: Callable[[Any], _V]) -> Derived[_V]:
        return _DerivedFrom(find, frozenset(sources))

    return derive


if TYPE_CHECKING:  # the same call, whose names and types are checked
    from dataclasses import replace as evolve
else:

    def evolve(value: _T, /, **changes: Any) -> _T:
        """`value` with these fields changed. For a `struct` without slots. Raises: TypeError on
        a field that it does not have."""
        following = structs.replace(value, **changes)
        # The one look at what another thread may add to: whoever reads it finds things out.
        kept = value.__dict__.copy()
        if kept:
            for name in _outdated(type(value), *changes):
                kept.pop(name, None)
            following.__dict__.update(kept)
        return following


@lru_cache(maxsize=1_024)
def _outdated(kind: type, *changed: str) -> tuple[str, ...]:
    """The derived properties of a class that come from one of these fields."""
    return tuple(
        name
        for name, value in vars(kind).items()
        if isinstance(value, _DerivedFrom) and not value.sources.isdisjoint(changed)
    )
