"""What the fields of all files share: how a value is refused, and a choice among words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from scheduler.files.errors import short


def wrong_value(message: str, inside: str = "") -> PydanticCustomError:
    """Make the refusal of a value. `inside`: the key inside the value that is at fault, where one
    is."""
    return PydanticCustomError("muster", "{message}", {"message": message, "inside": inside})


def choice(value: Any, known: Iterable[str], other: str = "") -> str:
    """Return `value`, one of `known`. `other`: what it may be besides. Raises:
    PydanticCustomError."""
    names = list(known)
    if value not in names:
        beside = f", or {other}" if other else ""
        raise wrong_value(f"must be one of {', '.join(names)}{beside}, not {short(value)}")
    return str(value)


def one_of(*names: str) -> BeforeValidator:
    """Return a validator that accepts these names: `Annotated[str, one_of("a", "b")]`."""
    return BeforeValidator(partial(choice, known=names))
