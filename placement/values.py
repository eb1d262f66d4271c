"""Immutable values that cost little to make.

A frozen dataclass sets each of its fields by a call of `object.__setattr__`, so one of four
fields takes five times as long to make as one that is not frozen. Nearly all that a decision
does is to make such values, dozens for each job. `value` is `dataclasses.dataclass`, and mypy
takes it for that: an assignment to a field of a frozen one is an error before anything runs.
At run time it is not looked for again, except in the development mode of the interpreter
(`python -X dev`), where a frozen value is a frozen dataclass.

One with slots goes to another process as the call that makes it, in half the time and two thirds
of the bytes. All else is a dataclass: equality, hash, fields, `replace`, and what reads and writes
them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from collections.abc import Callable
    from dataclasses import dataclass, fields
    from operator import attrgetter

    _T = TypeVar("_T")

    def value(*, frozen: bool, slots: bool = False) -> Callable[[type[_T]], type[_T]]:
        """A dataclass. `frozen`: hashable by its fields, and nobody assigns to one."""
        frozen_how = "frozen" if sys.flags.dev_mode else "unsafe_hash"
        made = dataclass(slots=slots, **{frozen_how: frozen})
        return (lambda kind: _packed(made(kind))) if slots else made

    def _packed(kind: type[_T]) -> type[_T]:
        """The class, whose values are pickled as class and fields."""
        names = [field.name for field in fields(kind)]
        if len(names) > 1:
            values = attrgetter(*names)
            kind.__reduce__ = lambda value: (kind, values(value))
        else:
            kind.__reduce__ = lambda value: (kind, tuple(getattr(value, name) for name in names))
        return kind
