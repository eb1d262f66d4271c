"""Events as (type name, JSON) and back: the form of every log, live or simulated."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from scheduler.core.model.events import Event

_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    kind.__name__: msgspec.json.Decoder(kind) for kind in get_args(Event)
}
_encode = msgspec.json.Encoder().encode


class UndecodableEvent(ValueError):
    """A record that no event of this version was written as."""


def encode(event: Event) -> tuple[str, str]:
    """Return the name of the event's type, and its fields as JSON text. Cost: 1 us and more."""
    return type(event).__name__, _encode(event).decode()


def decode(type_name: str, body: str | bytes) -> Event:
    """Return the event that `encode` wrote.

    Raises: UndecodableEvent on an unknown type, a missing field or a value of the wrong kind.
    """
    decoder = _DECODERS.get(type_name)
    if decoder is None:
        raise UndecodableEvent(f"unknown event type {type_name!r}")
    try:
        event: Event = decoder.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UndecodableEvent(f"{type_name}: {error}") from None
    return event
