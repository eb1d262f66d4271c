"""Events as (type name, JSON) and back: the form of every log, live or simulated."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from scheduler.core.model.events import Event

_TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


class UndecodableEvent(ValueError):
    """A record that no event of this version was written as."""


def encode(event: Event) -> tuple[str, str]:
    """The name of the event's type, and its fields as JSON text."""
    type_name = type(event).__name__
    return type_name, _adapter(type_name).serializer.to_json(event).decode()


def decode(type_name: str, body: str | bytes) -> Event:
    """The event that `encode` wrote.

    Raises: UndecodableEvent on an unknown type, a missing field or a value of the
    wrong kind.
    """
    if type_name not in _TYPES:
        raise UndecodableEvent(f"unknown event type {type_name!r}")
    try:
        event: Event = _adapter(type_name).validate_json(body, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise UndecodableEvent(f"{type_name}.{where}: {first['msg']}") from None
    return event


@cache
def _adapter(type_name: str) -> TypeAdapter[Any]:
    return TypeAdapter(_TYPES[type_name])
