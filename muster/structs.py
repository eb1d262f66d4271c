"""Immutable values that C makes, compares, hashes and replaces.

A frozen dataclass sets each field by a call of its own: 1.6 us for a value of five fields, and
6 us for `dataclasses.replace`. A `struct` is declared and checked as the same dataclass, and is a
Struct of msgspec: 0.15 us and 0.4 us. `fields`, `asdict` and `replace` of `dataclasses` take it
as one of theirs.

What a value has derived from itself and kept (`derived_from`) is passed on by `replace` where none
of the fields that it comes from is changed; else the next version finds it anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

__all__ = ["Derived", "derived_from", "replace", "struct"]

_T = TypeVar("_T")
_V = TypeVar("_V")


class Derived(Generic[_V]):
    """A property that a value computes once. The answer stands in its dictionary, where it is
    looked for before this is. It is a `cached_property` without the lock that one of Python 3.11
    takes, which costs more than most of what is found here. `sources`: fields that it comes from;
    None: any."""

    def __init__(self, find: Callable[[Any], _V], sources: frozenset[str] | None = None) -> None:
        self.find, self.name, self.sources = find, find.__name__, sources
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


if TYPE_CHECKING:  # the same declaration and call, whose names and types are checked
    from dataclasses import dataclass as struct
    from dataclasses import replace
else:
    from dataclasses import MISSING, dataclass, fields

    import msgspec
    from msgspec.structs import replace as _replaced

    def replace(value: _T, /, **changes: Any) -> _T:
        """`value` with these fields changed. Raises: TypeError on a field that it does not have."""
        following = _replaced(value, **changes)
        if type(value) in _DERIVING:
            kept = value.__dict__.copy()  # another thread may add to it
            if kept:
                for name in _outdated(type(value), *changes):
                    kept.pop(name, None)
                following.__dict__.update(kept)
        return following

    _DERIVING: set[type] = set()  # those that pass on what they have derived

    @lru_cache(maxsize=4_096)
    def _outdated(kind: type, *changed: str) -> tuple[str, ...]:
        """The derived properties of a class that come from one of these fields, or from any."""
        return tuple(
            name
            for name, prop in vars(kind).items()
            if isinstance(prop, Derived)
            and (prop.sources is None or not prop.sources.isdisjoint(changed))
        )

    def struct(
        *, frozen: bool, slots: bool = False, eq: bool = True, order: bool = False
    ) -> Callable[[type], type]:
        """Make a Struct of a class that is declared like a dataclass. Without `slots` it has a
        dictionary for what it finds out about itself. Methods may not call `super()`. Raises:
        TypeError on what only a dataclass can do."""

        def make(cls: type) -> type:
            names = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
            described = dataclass(init=False, repr=False, eq=False, match_args=False)(cls)
            for field in fields(described):
                if not (field.init and field.repr and field.compare and field.hash is None):
                    raise TypeError(f"{cls.__name__}.{field.name} is no field of a struct")
                if field.default_factory is not MISSING:
                    names[field.name] = msgspec.field(default_factory=field.default_factory)
                elif field.default is not MISSING:
                    names[field.name] = field.default
            made: Any = type(msgspec.Struct)(
                cls.__name__,
                (msgspec.Struct, *(base for base in cls.__bases__ if base is not object)),
                names | {"__qualname__": cls.__qualname__},
                frozen=frozen,
                eq=eq,
                order=order,
                dict=not slots,
                cache_hash=frozen and eq,
            )
            made.__dataclass_fields__ = described.__dataclass_fields__
            if any(isinstance(prop, Derived) and prop.sources for prop in vars(cls).values()):
                _DERIVING.add(made)
            return made

        return make
