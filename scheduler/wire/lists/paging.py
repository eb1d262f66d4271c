"""Pages of lists: the order that a request asks for, and tokens that say where a page ended.

A token names the place behind the last item of a page by that item's values, so it stays good
when the item is gone. It is sealed, for clients that read or build tokens come to depend on what
is in them: SIV with keys that anybody may know (AIP-158). It is good for its own list alone, the
one with the same kind, filter and order.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b, shake_256
from itertools import islice
from typing import Any, Final, Generic, TypeVar

from muster.structs import struct

Item = TypeVar("Item")
Key = tuple[Any, ...]  # numbers and texts

NO_TOKEN: Final = "is not the next_page_token of a list with these states, filter and order"
_KEY: Final = b"muster page 1"
_SEAL_BYTES: Final = 12


class BadToken(ValueError):
    """A page token that this list did not give out."""


class BadOrder(ValueError):
    """An order that this list does not have."""


@struct(frozen=True, slots=True)
class Page(Generic[Item]):
    """One page of a list. `next_token` is empty on the last page."""

    items: tuple[Item, ...]
    next_token: str


@struct(frozen=True, slots=True)
class Order(Generic[Item]):
    """The fields that a list is sorted by, the most significant first, each with whether it
    descends. No two items are equal in all of them."""

    fields: tuple[tuple[Callable[[Item], Any], bool], ...]
    names: tuple[str, ...] = ()  # of those that the request asks for

    def key(self, item: Item) -> Key:
        return tuple(of(item) for of, _ in self.fields)

    def sort(self, items: list[Item]) -> None:
        for of, descends in reversed(self.fields):
            items.sort(key=of, reverse=descends)

    def is_after(self, key: Key, last: Key) -> bool:
        """Return whether `key` sorts behind `last`. Raises: TypeError when they are not
        comparable."""
        for value, before, (_, descends) in zip(key, last, self.fields, strict=True):
            if value != before:
                return bool(value < before if descends else value > before)
        return False


def parse_order(
    text: str, known: Mapping[str, Callable[[Item], Any]], *unique: Callable[[Item], Any]
) -> Order[Item]:
    """Parse an order, `"priority desc, name"`: fields with commas between them, ascending unless
    `desc` says otherwise (AIP-132). Empty: by the first that is known. `unique` decides between
    items that are equal in all of them, in the direction of the last; no two items are equal in it.

    Raises: BadOrder.
    """
    fields, names, descends = [], list[str](), False
    for part in text.split(",") if text.strip() else [next(iter(known))]:
        name, *direction = part.split() or [""]
        if name not in known or direction not in ([], ["asc"], ["desc"]):
            choice = ", ".join(known)
            raise BadOrder(f"{part.strip()!r} is not one of {choice}, with or without asc or desc")
        if name in names:
            raise BadOrder(f"{name} is there twice")
        names.append(name)
        descends = direction == ["desc"]
        fields.append((known[name], descends))
    return Order((*fields, *((of, descends) for of in unique)), tuple(names))


def page(
    scope: object,
    items: Iterable[Item],
    order: Order[Item],
    size: int,
    token: str,
    known_to: Key | None = None,
) -> Page[Item]:
    """Return the first `size` of the items behind the place that `token` names.

    `scope`: what list it is, as JSON values; tokens are good for no other. `items`: in `order`.
    `known_to`: items behind this place were not looked for, and the page ends there; None: all are
    here.

    Raises: BadToken.
    """
    last = place_of(scope, token)

    def is_due(item: Item) -> bool:
        key = order.key(item)
        try:
            is_behind = last is None or order.is_after(key, last)
        except (TypeError, ValueError):  # of a release whose lists had another order
            raise BadToken(NO_TOKEN) from None
        return is_behind and (known_to is None or not order.is_after(key, known_to))

    due = tuple(islice(filter(is_due, items), size + 1))
    if len(due) > size:
        return Page(due[:size], token_at(scope, order.key(due[size - 1])))
    return Page(due, "" if known_to is None else token_at(scope, known_to))


def place_of(scope: object, token: str) -> Key | None:
    """Return the place behind which a page begins; None for the first page."""
    return _read_token(scope, token) if token else None


def token_at(scope: object, last: Key) -> str:
    """Return the token of the page that begins behind this place."""
    text = json.dumps(last).encode()
    seal = _seal(scope, text)
    return base64.urlsafe_b64encode(seal + _masked(seal, text)).decode().rstrip("=")


def _read_token(scope: object, token: str) -> Key:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadToken(NO_TOKEN) from None
    seal, text = raw[:_SEAL_BYTES], _masked(raw[:_SEAL_BYTES], raw[_SEAL_BYTES:])
    if _seal(scope, text) != seal:
        raise BadToken(NO_TOKEN)
    return tuple(json.loads(text))


def _seal(scope: object, text: bytes) -> bytes:
    said = json.dumps(scope).encode() + b"\n" + text
    return blake2b(said, key=_KEY, digest_size=_SEAL_BYTES).digest()


def _masked(seal: bytes, text: bytes) -> bytes:
    mask = shake_256(_KEY + seal).digest(len(text))
    return bytes(a ^ b for a, b in zip(text, mask, strict=True))
