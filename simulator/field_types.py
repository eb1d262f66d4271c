"""Amounts in the simulator's own files, checked with the words that job files use."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from scheduler.files.errors import short
from scheduler.files.field_types import wrong_value

MOST = 1e12


def _amount(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_value(f"must be a number, not {short(value)}")
    if not 0 <= value <= MOST:  # also false for nan
        raise wrong_value(f"must be from 0 to {MOST:g}, is {short(value)}")
    return float(value)


def _positive(value: Any) -> float:
    amount = _amount(value)
    if not amount:
        raise wrong_value("must be more than 0")
    return amount


Amount = Annotated[float, BeforeValidator(_amount)]
Positive = Annotated[float, BeforeValidator(_positive)]
