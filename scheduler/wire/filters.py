"""Filters of lists: the part of AIP-160 that lists of jobs and hosts need.

    expression = factor {"AND" factor}
    factor     = term {"OR" term}                 OR binds tighter than AND, as AIP-160 has it
    term       = ["NOT"] (restriction | "(" expression ")")
    restriction = field ("=" | "!=" | "<" | "<=" | ">" | ">=" | ":") value

A value with a trailing * matches a prefix. What is not understood is refused, never
ignored. Nothing is evaluated but comparisons, and length and depth are bounded.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from placement import BadInput
from scheduler.files.timeparse import parse_time

LONGEST = 4_096  # characters
DEEPEST = 32  # parentheses and NOTs inside each other

Item = TypeVar("Item")
Test = Callable[[Any], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<op><=|>=|!=|=|<|>|:)|(?P<paren>[()])|(?P<word>[\w./*-]+)
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


@dataclass(frozen=True, slots=True)
class TextField:
    """A field that holds a text."""

    of: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class NumberField:
    """A field that holds a whole number."""

    of: Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class TimeField:
    """A field that holds a time in ns, written as `"2026-11-21T06:00Z"`."""

    of: Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class ChoiceField:
    """A field that holds one of some words, written in capitals."""

    of: Callable[[Any], str]
    known: Collection[str]


@dataclass(frozen=True, slots=True)
class MapField:
    """A field that holds texts by key: `labels.team = "nlp"`, `labels:team`."""

    of: Callable[[Any], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class NamesField:
    """A field that holds several texts: `domains:z0`."""

    of: Callable[[Any], Collection[str]]


Field = TextField | NumberField | TimeField | ChoiceField | MapField | NamesField


def parse(text: str, fields: Mapping[str, Field]) -> Test:
    """A test for one item. An empty filter lets everything pass.

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


@dataclass(frozen=True, slots=True)
class _Token:
    """`kind`: op, paren, word or string. `at`: characters before it."""

    kind: str
    text: str
    at: int


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip())
            raise BadFilter(f"at {at + 1}: {text[at]!r} is not understood")
        kind = str(match.lastgroup)
        found = match[kind]
        if kind in ("double", "single"):
            kind, found = "string", re.sub(r"\\(.)", r"\1", found, flags=re.DOTALL)
        tokens.append(_Token(kind, found, match.start(match.lastgroup or 0)))
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
        while self._took("word", "AND"):
            tests.append(self._factor(depth))
        return tests[0] if len(tests) == 1 else lambda item: all(test(item) for test in tests)

    def _factor(self, depth: int) -> Test:
        tests = [self._term(depth)]
        while self._took("word", "OR"):
            tests.append(self._term(depth))
        return tests[0] if len(tests) == 1 else lambda item: any(test(item) for test in tests)

    def _term(self, depth: int) -> Test:
        if depth > DEEPEST:
            raise self.refuse(f"is nested deeper than {DEEPEST} levels")
        if self._took("word", "NOT"):
            inner = self._term(depth + 1)
            return lambda item: not inner(item)
        if not self._took("paren", "("):
            return self._restriction()
        test = self.expression(depth + 1)
        if not self._took("paren", ")"):
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
        if self.next is None or self.next.kind not in ("word", "string"):
            raise self.refuse("a value was expected")
        value = self.next
        try:
            test = _test(field, key, op.text, value.text)
        except BadFilter as error:
            raise self.refuse(str(error)) from None
        self._at += 1
        return test

    def _took(self, kind: str, text: str) -> bool:
        found = self.next is not None and (self.next.kind, self.next.text) == (kind, text)
        self._at += found
        return found

    def _take(self, kind: str, expected: str) -> _Token:
        token = self.next
        if token is None or token.kind != kind:
            raise self.refuse(expected)
        self._at += 1
        return token


def _test(field: Field, key: str, op: str, value: str) -> Test:
    match field:
        case NumberField(of):
            return _number_test(of, op, value)
        case TimeField(of):
            return _moment_test(of, op, value)
        case ChoiceField(of, known):
            if value not in known:
                raise BadFilter(f"is none of {', '.join(known)}")
            return _equality(of, op, value)
        case TextField(of):
            return _text_test(of, op, value)
        case NamesField(names):
            if op != ":":
                raise BadFilter(f"a list is compared with ':', not with {op!r}")
            matches = _matcher(value)
            return lambda item: any(map(matches, names(item)))
        case MapField(values):
            return _map_test(values, key, op, value)


def _number_test(of: Callable[[Any], int], op: str, value: str) -> Test:
    if not re.fullmatch(r"-?[0-9]{1,18}", value, re.ASCII):
        raise BadFilter("is not a whole number")
    number = int(value)
    if op == ":":
        raise BadFilter("a number is not compared with ':'")
    compare = _COMPARISONS[op]
    return lambda item: compare(of(item), number)


def _moment_test(of: Callable[[Any], int], op: str, value: str) -> Test:
    if op == ":":
        raise BadFilter("a time is not compared with ':'")
    try:
        moment_ns = parse_time(value)
    except BadInput as error:
        raise BadFilter(error.message) from None
    compare = _COMPARISONS[op]
    return lambda item: compare(of(item), moment_ns)


def _equality(of: Callable[[Any], str], op: str, value: str) -> Test:
    if op not in ("=", "!="):
        raise BadFilter(f"a word is compared with = or !=, not with {op!r}")
    return lambda item: (of(item) == value) == (op == "=")


def _text_test(of: Callable[[Any], str], op: str, value: str) -> Test:
    if op in ("=", "!="):
        matches = _matcher(value)
        return lambda item: matches(of(item)) == (op == "=")
    if op == ":":
        return lambda item: value in of(item)
    compare = _COMPARISONS[op]
    return lambda item: compare(of(item), value)


def _map_test(of: Callable[[Any], Mapping[str, str]], key: str, op: str, value: str) -> Test:
    if not key:
        if op != ":":
            raise BadFilter("without a key is compared with ':', as in labels:team")
        matches = _matcher(value)
        return lambda item: any(map(matches, of(item)))
    test = _text_test(lambda item: of(item)[key], op, value)
    return lambda item: (key in of(item) and test(item)) or (op == "!=" and key not in of(item))


def _matcher(value: str) -> Callable[[str], bool]:
    """Equal, or with that prefix when the value ends in a star."""
    if value.endswith("*"):
        return lambda text: text.startswith(value[:-1])
    return lambda text: text == value
