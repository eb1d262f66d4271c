"""Values of the simulator's own files, checked with the words that job files use."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from scheduler.files.errors import short

MOST = 1e12


def _refusal(message: str) -> PydanticCustomError:
    return PydanticCustomError("muster", "{message}", {"message": message})


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal(f"must be a number, not {short(value)}")
    if not 0 <= value <= MOST:  # also false for nan
        raise _refusal(f"must be from 0 to {MOST:g}, is {short(value)}")
    return float(value)


def _positive(value: Any) -> float:
    amount = _amount(value)
    if not amount:
        raise _refusal("must be more than 0")
    return amount


def _choice(value: Any, known: Iterable[str]) -> str:
    names = list(known)
    if value not in names:
        raise _refusal(f"must be one of {', '.join(names)}, not {short(value)}")
    return str(value)


def one_of(*names: str) -> BeforeValidator:
    """For `Annotated[str, one_of("a", "b")]`."""
    return BeforeValidator(partial(_choice, known=names))


Amount = Annotated[float, BeforeValidator(_amount)]
Positive = Annotated[float, BeforeValidator(_positive)]
