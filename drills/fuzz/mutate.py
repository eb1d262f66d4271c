"""Wrong input made from right input: texts and messages, changed a little at random.

All chance comes from the Random that is handed in: hypothesis gives one that it can
shrink, the long run one with a seed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

DEEPEST = 5  # messages inside each other

NUMBERS: Final = (
    *("0", "1", "-1", "2", "8", "64", "1e9", "1.5", "-0", "nan", "inf", "-inf", "1e400", "0x10"),
    *("2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808"),
    *("1" * 30, "9" * 500, "1_000", "٣", "1e-400", "00", "+1", "true", "null", "~", ""),
)
TEXTS: Final = (
    *("", " ", "a", "é", "\u202e", "\U0001f600", "a b", "a\nb", "\x00", "\ufeff", "..", "/", "*"),
    *("%", "2%", "auto", "-", "z0", "z0-r0", "z0-r0-h0", "z9-r9-h9", "x" * 300, "{}", "[]", "'"),
    *('"', "\\", "$(a)", "a[0-3]", "a[0-99999999]", "a[3-0]", "gpu-lost", "repaired", "tp", "dp"),
)
PUNCTUATION: Final = (
    *"\n\t ,:;=-[]{}()'\"\\#&*!|>%@`$<",
    *("\r\n", "\x00", "\x7f", "é", "\xff"),
)

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_WORD = re.compile(r"[A-Za-z_][\w-]*")


def text(random: Random, seeds: Sequence[str], words: Sequence[str]) -> bytes:
    """Return one of `seeds` with one to eight changes; seldom no text at all.

    `words`: keys and values that the format knows.
    """
    found = random.choice(seeds)
    for _ in range(random.choice((1, 1, 1, 2, 3, 5, 8))):
        found = random.choice(_CHANGES)(random, found, words)
    raw = found.encode("utf-8", "surrogatepass")
    if random.random() < 0.02:
        raw = _bytes(random, raw)
    return raw[:100_000]


def raw(random: Random, seed: bytes) -> bytes:
    """Return `seed` with some bytes changed, cut off or repeated; seldom none of it."""
    found = seed
    for _ in range(random.choice((1, 1, 2, 3))):
        found = _bytes(random, found)
    at = random.randrange(len(found) + 1)
    return random.choice(
        (found, found, found, found[:at], found + found[at:], random.randbytes(at))
    )


def _bytes(random: Random, raw: bytes) -> bytes:
    """Some bytes are others, or are not there."""
    changed = bytearray(raw)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(changed) + 1)
        changed[at : at + random.randint(0, 3)] = random.randbytes(random.randint(0, 3))
    return bytes(changed)


def _place(random: Random, found: str) -> int:
    return random.randrange(len(found) + 1)


def _drop(random: Random, found: str, _: Sequence[str]) -> str:
    at = _place(random, found)
    return found[:at] + found[at + random.choice((1, 1, 2, 5, 20)) :]


def _insert(random: Random, found: str, words: Sequence[str]) -> str:
    at = _place(random, found)
    pool: Sequence[str] = random.choice((PUNCTUATION, TEXTS, NUMBERS, words or TEXTS))
    return found[:at] + random.choice(pool) + found[at:]


def _renumber(random: Random, found: str, _: Sequence[str]) -> str:
    return _swap(random, found, _NUMBER, NUMBERS)


def _reword(random: Random, found: str, words: Sequence[str]) -> str:
    return _swap(random, found, _WORD, random.choice((TEXTS, NUMBERS, words or TEXTS)))


def _swap(random: Random, found: str, what: re.Pattern[str], pool: Sequence[str]) -> str:
    places = [match.span() for match in what.finditer(found)]
    if not places:
        return found + random.choice(pool)
    start, end = random.choice(places)
    return found[:start] + random.choice(pool) + found[end:]


def _repeat_line(random: Random, found: str, _: Sequence[str]) -> str:
    rows = found.split("\n")
    at = random.randrange(len(rows))
    rows.insert(random.randrange(len(rows) + 1), rows[at])
    return "\n".join(rows)


def _drop_line(random: Random, found: str, _: Sequence[str]) -> str:
    rows = found.split("\n")
    del rows[random.randrange(len(rows))]
    return "\n".join(rows)


def _indent(random: Random, found: str, _: Sequence[str]) -> str:
    rows = found.split("\n")
    at = random.randrange(len(rows))
    rows[at] = random.choice(("  ", "\t", " ", "- ", "")) + rows[at].lstrip()
    return "\n".join(rows)


def _nest(random: Random, found: str, _: Sequence[str]) -> str:
    at, depth = _place(random, found), random.choice((2, 2, 2, 40, 2_000))
    opening, closing = random.choice((("[", "]"), ("{", "}"), ("(", ")"), ("{a: ", "}")))
    return found[:at] + opening * depth + closing * depth + found[at:]


def _cut(random: Random, found: str, _: Sequence[str]) -> str:
    at = _place(random, found)
    return random.choice((found[:at], found[at:]))


_CHANGES: Final[tuple[Callable[[Random, str, Sequence[str]], str], ...]] = (
    *(_drop, _insert, _insert, _renumber, _renumber, _reword, _reword),
    *(_repeat_line, _drop_line, _indent, _cut, _nest),
)


# --- messages ----------------------------------------------------------------------


class Messages:
    """Random messages of any type. `names`: texts that mean something to the callee."""

    def __init__(self, random: Random, names: Sequence[str]) -> None:
        self._random = random
        self._names = names

    def any_of(self, kind: type[Message]) -> Message:
        """Make a message with each field set at random."""
        message = kind()
        self._fill(message, 0, self._random.random())
        return message

    def changed(self, valid: Message) -> Message:
        """Return a copy of `valid` in which one to three fields are others."""
        message = type(valid)()
        message.CopyFrom(valid)
        for _ in range(self._random.choice((0, 1, 1, 2, 3))):
            self._change(message, 0)
        return message

    def garbled(self, valid: Message) -> Message | None:
        """Change some bytes of the wire form of `valid` and parse it; None: it cannot be parsed."""
        message = type(valid)()
        try:
            message.ParseFromString(_bytes(self._random, valid.SerializeToString()))
        except DecodeError:
            return None
        return message

    def _fill(self, message: Message, depth: int, density: float) -> None:
        for field in message.DESCRIPTOR.fields:
            if self._random.random() < density:
                self._set(message, field, depth)

    def _change(self, message: Message, depth: int) -> None:
        """One field, here or further in."""
        fields: Sequence[Any] = message.DESCRIPTOR.fields
        if not fields:
            return
        field = self._random.choice(fields)
        is_plain = field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated
        if is_plain and message.HasField(field.name) and self._random.random() < 0.8:
            self._change(getattr(message, field.name), depth + 1)
            return
        message.ClearField(field.name)
        if self._random.random() < 0.8:
            self._set(message, field, depth)

    def _set(self, message: Message, field: Any, depth: int) -> None:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            self._set_map(getattr(message, field.name), entry, depth)
        elif field.is_repeated:
            self._set_list(getattr(message, field.name), field, depth)
        elif entry is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            if depth < DEEPEST:
                self._fill(inner, depth + 1, self._random.random())
        else:
            setattr(message, field.name, self._value(field))

    def _set_list(self, items: Any, field: FieldDescriptor, depth: int) -> None:
        for _ in range(self._random.choice((0, 1, 1, 2, 3, 70))):
            if field.message_type is None:
                items.append(self._value(field))
            elif depth < DEEPEST:
                self._fill(items.add(), depth + 1, self._random.random())

    def _set_map(self, items: Any, entry: Any, depth: int) -> None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        for _ in range(self._random.choice((0, 1, 1, 2, 70))):
            if value.message_type is None:
                items[self._value(key)] = self._value(value)
            elif depth < DEEPEST:
                self._fill(items[self._value(key)], depth + 1, self._random.random())

    def _value(self, field: Any) -> Any:
        random = self._random
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_STRING:
                pool = random.choice((self._names, self._names, TEXTS, NUMBERS))
                found = random.choice(pool)
                return found.encode() if field.type == FieldDescriptor.TYPE_BYTES else found
            case FieldDescriptor.CPPTYPE_BOOL:
                return random.random() < 0.5
            case FieldDescriptor.CPPTYPE_ENUM:
                known = [value.number for value in field.enum_type.values]
                return random.choice((*known, *known, 99, -1, 2**31 - 1, -(2**31)))
            case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
                return random.choice((0.0, 0.5, 1.0, -1.0, 1e308, float("nan"), float("inf")))
            case FieldDescriptor.CPPTYPE_INT32:
                return random.choice((0, 1, 2, 4, 8, 16, 9, 100, -1, 2**31 - 1, -(2**31)))
            case FieldDescriptor.CPPTYPE_UINT32 | FieldDescriptor.CPPTYPE_UINT64:
                return random.choice((0, 1, 8, 2**31, 2**32 - 1))
        return random.choice((0, 1, 2, 8, 60, 3_600, -1, 2**31, 2**53, 2**63 - 1, -(2**63)))
