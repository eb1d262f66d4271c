"""The next version of a value with many fields, of which an event changes few.

`dataclasses.replace` reads and sets every field by itself: 4 us for a state, of which a
decision makes several. A class without slots keeps its fields in one dictionary, which is
copied whole: 1 us. What a version has derived from itself and kept (`derived_from`) is passed
on where none of the fields that it comes from is changed; else the next version finds it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

__all__ = ["Derived", "derived_from", "evolve"]

_T = TypeVar("_T")
_V = TypeVar("_V")


class Derived(Generic[_V]):
    """What a value finds out about itself once, from the fields `sources` alone. The answer
    stands in its dictionary, where it is looked for before this is."""

    def __init__(self, find: Callable[[Any], _V], sources: frozenset[str]) -> None:
        self.find, self.sources, self.name = find, sources, find.__name__
        self.__doc__ = find.__doc__

    @overload
    def __get__(self, value: None, kind: type) -> Derived[_V]: ...

    @overload
    def __get__(self, value: object, kind: type) -> _V: ...

    def __get__(self, value: object | None, kind: type) -> Derived[_V] | _V:
        if value is None:
            return self
        answer = value.__dict__[self.name] = self.find(value)
        return answer


def derived_from(*sources: str) -> Callable[[Callable[[Any], _V]], Derived[_V]]:
    """A property that is derived once and kept while these fields stay the same."""

    def derive(find: Callable[[Any], _V]) -> Derived[_V]:
        return Derived(find, frozenset(sources))

    return derive


if TYPE_CHECKING:  # the same call, whose names and types are checked
    from dataclasses import replace as evolve
else:

    def evolve(value: _T, /, **changes: Any) -> _T:
        """`value` with these fields changed. For dataclasses without slots and
        __post_init__. Raises: TypeError on a field that it does not have."""
        kind = type(value)
        following = object.__new__(kind)
        # The one look at what another thread may add to: whoever reads it finds things out.
        kept = value.__dict__.copy()
        for name in _outdated(kind, *changes):
            kept.pop(name, None)
        kept.update(changes)
        object.__setattr__(following, "__dict__", kept)
        return following


@lru_cache(maxsize=1_024)
def _outdated(kind: type, *changed: str) -> tuple[str, ...]:
    """The derived properties of a class that come from one of these fields. Raises: TypeError on
    a field that it does not have."""
    if unknown := set(changed) - {field.name for field in fields(kind)}:
        raise TypeError(f"{kind.__name__} has no {', '.join(sorted(unknown))}")
    return tuple(
        name
        for name, value in vars(kind).items()
        if isinstance(value, Derived) and not value.sources.isdisjoint(changed)
    )
