"""Immutable values that cost little to make.

A frozen dataclass sets each of its fields by a call of `object.__setattr__`, so one of four
fields takes five times as long to make as one that is not frozen. Nearly all that a decision
does is to make such values, dozens for each job. `value` is `dataclasses.dataclass`, and mypy
takes it for that: an assignment to a field of a frozen one is an error before anything runs.
At run time it is not looked for again, except in the development mode of the interpreter
(`python -X dev`), where a frozen value is a frozen dataclass.

All else is a dataclass: equality, hash, fields, `replace`, and what reads and writes them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:
    from collections.abc import Callable
    from dataclasses import dataclass

    _T = TypeVar("_T")

    def value(*, frozen: bool, slots: bool = False) -> Callable[[type[_T]], type[_T]]:
        """A dataclass. `frozen`: hashable by its fields, and nobody assigns to one."""
        if sys.flags.dev_mode:
            return dataclass(frozen=frozen, slots=slots)
        return dataclass(unsafe_hash=frozen, slots=slots)
