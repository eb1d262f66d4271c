"""Filters of lists and watches: the part of AIP-160 that they need.

    expression = factor {"AND" factor}
    factor     = term {"OR" term}                 OR binds tighter than AND, as AIP-160 has it
    term       = ["NOT"] (restriction | "(" expression ")")
    restriction = field ("=" | "!=" | "<" | "<=" | ">" | ">=" | ":") value

A star at the end of a value matches what begins so, at its begin what ends so; `:*` asks
whether a field is set, or a map has a key. In quotes \\* is a star that stands for itself. Times
are RFC 3339, with or without quotes. What is not understood is refused, never ignored: AIP-160's
lists of restrictions without AND, functions, `-` for NOT and stars inside a value are.
Nothing is evaluated but comparisons, and length and depth are bounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Final, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.timestamp_pb2 import Timestamp

from muster.structs import struct
from placement import BadInput
from scheduler.files.timeparse import TIME, parse_time

LONGEST = 4_096  # characters
DEEPEST = 32  # parentheses and NOTs inside each other

Item = TypeVar("Item")
Test = Callable[[Any], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|=|<|>|:)|(?P<paren>[()])
    |(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d[\d:.]*(?:Z|[+-]\d\d:\d\d)?)|(?P<word>@?[\w./*-]+)
    |"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>(?:[^'\\]|\\.)*)')""",
    re.VERBOSE,
)
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class BadFilter(ValueError):
    """A filter that cannot be understood; the message says where."""


@struct(frozen=True, slots=True)
class TextField:
    """A field that holds a text. `words`: values that stand for another one, found out when the
    filter is read."""

    of: Callable[[Any], str]
    words: Mapping[str, Callable[[], str]] = field(default_factory=dict)


@struct(frozen=True, slots=True)
class NumberField:
    """A field that holds a number, in filters with decimals only where it is not whole."""

    of: Callable[[Any], float]
    is_whole: bool = True


@struct(frozen=True, slots=True)
class TimeField:
    """A field that holds a time in ns, written as `"2026-11-21T06:00Z"`. None: unset, and then
    it is equal to no time, neither before nor after any."""

    of: Callable[[Any], int | None]


@struct(frozen=True, slots=True)
class ChoiceField:
    """A field that holds one of some words, with or without the prefix that the .proto file gives
    them, in capitals or not."""

    of: Callable[[Any], str]
    known: Collection[str]
    prefix: str = ""


@struct(frozen=True, slots=True)
class MapField:
    """A field that holds texts by key: `labels.team = "nlp"`, `labels:team`."""

    of: Callable[[Any], Mapping[str, str]]


@struct(frozen=True, slots=True)
class NamesField:
    """A field that holds several texts: `domains:z0`."""

    of: Callable[[Any], Collection[str]]


Field = TextField | NumberField | TimeField | ChoiceField | MapField | NamesField


def fields_of(kind: Descriptor, names: str, **others: str) -> dict[str, Field]:
    """Return fields that messages of this kind have, for filters of messages. `names`: with spaces
    between; `others`: those that a filter calls otherwise, by what it calls them."""
    named = {name: name for name in names.split()} | others
    return {word: _field_of(kind.fields_by_name[name]) for word, name in named.items()}


def _field_of(of: FieldDescriptor) -> Field:
    get = operator.attrgetter(of.name)
    if of.is_repeated:
        return NamesField(get)
    if of.message_type is Timestamp.DESCRIPTOR:
        return TimeField(lambda item: get(item).ToNanoseconds() if item.HasField(of.name) else None)
    if of.enum_type is not None:
        prefix = of.enum_type.values[0].name.removesuffix("UNSPECIFIED")
        words = {v.number: v.name.removeprefix(prefix) for v in of.enum_type.values}
        return ChoiceField(lambda item: words[get(item)], [*words.values()][1:], prefix)
    if of.type == FieldDescriptor.TYPE_STRING:
        return TextField(get)
    return NumberField(get, is_whole=of.type != FieldDescriptor.TYPE_DOUBLE)


def parse(text: str, fields: Mapping[str, Field]) -> Test:
    """Parse a filter into a test of one item. An empty filter lets everything pass.

    Raises: BadFilter.
    """
    if len(text) > LONGEST:
        raise BadFilter(f"is longer than {LONGEST:,} characters")
    tokens = _tokens(text)
    if not tokens:
        return lambda _: True
    parser = _Parser(tokens, fields)
    test = parser.expression(0)
    if parser.next is not None:
        raise parser.refuse("AND, OR or the end was expected")
    return test


@struct(frozen=True, slots=True)
class _Token:
    """`kind`: op, paren, word, time or string. `at`: characters before it. `stars`: places in
    `text` of stars that stand for anything."""

    kind: str
    text: str
    at: int
    stars: tuple[int, ...] = ()

    @property
    def is_any(self) -> bool:
        return self.text == "*" and bool(self.stars)


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise BadFilter(f"at {at + 1}: {text[at]!r} is not understood")
        kind = str(match.lastgroup)
        token, is_plain = match[kind], True
        if kind in ("double", "single"):
            parts = re.findall(r"\\?(.)", token, re.DOTALL)
            stars = [part == "*" for part in re.findall(r"\\?.", token, re.DOTALL)]
            kind, token, is_plain = "string", "".join(parts), False
        if is_plain:
            stars = [character == "*" for character in token]
        places = tuple(place for place, is_star in enumerate(stars) if is_star)
        tokens.append(_Token(kind, token, match.start(match.lastgroup or 0), places))
        at = match.end()
    return tokens


class _Parser:
    """Reads tokens from the left; one method for each rule of the grammar."""

    def __init__(self, tokens: list[_Token], fields: Mapping[str, Field]) -> None:
        self._tokens = tokens
        self._fields = fields
        self._at = 0

    @property
    def next(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def refuse(self, message: str) -> BadFilter:
        if self.next is None:
            return BadFilter(f"at its end: {message}")
        return BadFilter(f"at {self.next.at + 1}, {self.next.text!r}: {message}")

    def expression(self, depth: int) -> Test:
        tests = [self._factor(depth)]
        while self._accept("word", "AND"):
            tests.append(self._factor(depth))
        return tests[0] if len(tests) == 1 else lambda item: all(test(item) for test in tests)

    def _factor(self, depth: int) -> Test:
        tests = [self._term(depth)]
        while self._accept("word", "OR"):
            tests.append(self._term(depth))
        return tests[0] if len(tests) == 1 else lambda item: any(test(item) for test in tests)

    def _term(self, depth: int) -> Test:
        if depth > DEEPEST:
            raise self.refuse(f"is nested deeper than {DEEPEST} levels")
        if self._accept("word", "NOT"):
            inner = self._term(depth + 1)
            return lambda item: not inner(item)
        if not self._accept("paren", "("):
            return self._restriction()
        test = self.expression(depth + 1)
        if not self._accept("paren", ")"):
            raise self.refuse("a closing parenthesis was expected")
        return test

    def _restriction(self) -> Test:
        name = self._take("word", f"one of {', '.join(self._fields)} was expected")
        top, _, key = name.text.partition(".")
        field = self._fields.get(top)
        if field is None or (key and not isinstance(field, MapField)):
            self._at -= 1
            raise self.refuse(f"is not a field; fields are {', '.join(self._fields)}")
        op = self._take("op", "a comparison such as = was expected")
        if self.next is None or self.next.kind not in ("word", "time", "string"):
            raise self.refuse("a value was expected")
        try:
            test = _test(field, key, op.text, self.next)
        except BadFilter as error:
            raise self.refuse(str(error)) from None
        self._at += 1
        return test

    def _accept(self, kind: str, text: str) -> bool:
        is_next = self.next is not None and (self.next.kind, self.next.text) == (kind, text)
        self._at += is_next
        return is_next

    def _take(self, kind: str, expected: str) -> _Token:
        token = self.next
        if token is None or token.kind != kind:
            raise self.refuse(expected)
        self._at += 1
        return token


def _test(field: Field, key: str, op: str, value: _Token) -> Test:
    match field:
        case NumberField(of, is_whole):
            return _number_test(of, op, value.text, is_whole)
        case TimeField(of):
            return _moment_test(of, op, value)
        case ChoiceField(of, known, prefix):
            word = value.text.upper().removeprefix(prefix)
            if word not in known:
                raise BadFilter(f"is not one of {', '.join(known)}")
            if op not in ("=", "!="):
                raise BadFilter(f"a word is compared with = or !=, not with {op!r}")
            return lambda item: (of(item) == word) == (op == "=")
        case TextField(of, words):
            if value.text in words and op in ("=", "!="):
                meant = words[value.text]()
                return lambda item: (of(item) == meant) == (op == "=")
            return _text_test(of, op, value)
        case NamesField(names):
            if op != ":":
                raise BadFilter(f"a list is compared with ':', not with {op!r}")
            matches = _matcher(value)
            return lambda item: any(map(matches, names(item)))
        case MapField(values):
            return _map_test(values, key, op, value)


def _number_test(of: Callable[[Any], float], op: str, value: str, is_whole: bool) -> Test:
    decimals = "" if is_whole else r"(\.[0-9]{1,18})?"
    if not re.fullmatch(r"-?[0-9]{1,18}" + decimals, value, re.ASCII):
        raise BadFilter("is not a whole number" if is_whole else "is not a number")
    number = int(value) if is_whole else float(value)
    if op == ":":
        raise BadFilter("a number is not compared with ':'")
    compare = _COMPARISONS[op]
    return lambda item: compare(of(item), number)


def _moment_test(of: Callable[[Any], int | None], op: str, value: _Token) -> Test:
    if op == ":":
        if value.is_any:
            return lambda item: of(item) is not None
        raise BadFilter("a time is not compared with ':', but for ':*', that it is set")
    moment_ns = _moment_ns(value.text)
    compare = _COMPARISONS[op]

    def test(item: Any) -> bool:
        time_ns = of(item)
        return op == "!=" if time_ns is None else compare(time_ns, moment_ns)

    return test


def _moment_ns(text: str) -> int:
    """To the nanosecond, as answers have times. Raises: BadFilter."""
    fraction = re.fullmatch(r"(.*:\d\d)\.(\d{1,9})(\D.*)?", text, re.ASCII)
    whole = f"{fraction[1]}{fraction[3] or ''}" if fraction else text
    try:
        if "." in whole:
            raise BadInput("", "has more than nine digits of a second")
        return parse_time(whole) + (int(fraction[2].ljust(9, "0")) if fraction else 0)
    except BadInput:
        raise BadFilter(f"must be {TIME}, not {text!r}") from None


def _text_test(of: Callable[[Any], str], op: str, value: _Token) -> Test:
    if op in ("=", "!="):
        matches = _matcher(value)
        return lambda item: matches(of(item)) == (op == "=")
    if op == ":":
        if value.stars:
            matches = _matcher(value)
            return lambda item: bool(text := of(item)) and matches(text)
        return lambda item: value.text in of(item)
    if value.stars:
        raise BadFilter(f"a star stands after =, != or ':', not after {op!r}")
    compare = _COMPARISONS[op]
    return lambda item: compare(of(item), value.text)


def _map_test(of: Callable[[Any], Mapping[str, str]], key: str, op: str, value: _Token) -> Test:
    if not key:
        if op != ":":
            raise BadFilter("without a key is compared with ':', as in labels:team")
        matches = _matcher(value)
        return lambda item: any(map(matches, of(item)))
    if op == ":" and value.is_any:
        return lambda item: key in of(item)
    test = _text_test(lambda item: of(item)[key], op, value)
    return lambda item: (key in of(item) and test(item)) or (op == "!=" and key not in of(item))


def _matcher(value: _Token) -> Callable[[str], bool]:
    """Equal, or what a star at the begin or at the end lets pass."""
    text, last = value.text, len(value.text) - 1
    if any(0 < place < last for place in value.stars):
        raise BadFilter("a star stands at the begin or at the end of a value")
    is_open, is_cut = 0 in value.stars, last in value.stars
    if not (is_open or is_cut):
        return lambda candidate: candidate == text
    if text == "*":
        return lambda _: True
    inner = text[is_open : len(text) - is_cut]
    if is_open and is_cut:
        return lambda candidate: inner in candidate
    return lambda candidate: candidate.endswith(inner) if is_open else candidate.startswith(inner)
