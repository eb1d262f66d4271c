"""The elements of a JSON array, one after the other, of a text of any length.

The text is cut where an element ends, by brackets and quotes alone; what is between two
cuts is then parsed by itself. So one bad element is reported with its line and the next are
read all the same, and no more than one element is held at a time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from simulator.traces.record import FieldError

OPENING, CLOSING = ("[", "{"), ("]", "}")
MOST_CHARACTERS = 16 * 2**20  # of one element: a quote that never ends must not eat memory
# Strings, which hide brackets and commas, or a quote whose string has no end here.
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|["\[\]{},]')


def elements(pieces: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each element of a JSON array. `pieces`: the text in parts, each with
    its line.

    Raises: FieldError when the text is no array, or does not end as one.
    """
    splitter = _Splitter()
    for line, text in pieces:
        yield from splitter.feed(line, text)
    splitter.close()


def elements_under(key: str, pieces: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of each element of the first array under `key`; the rest is not read.

    Raises: FieldError when there is none, or it does not end.
    """
    opening = re.compile(rf'"{key}"\s*:\s*(?=\[)')
    parts = iter(pieces)
    first = next((each for each in parts if opening.search(each[1])), None)
    if first is None:
        raise FieldError(key, "is no array of the file")
    rest = opening.split(first[1], maxsplit=1)[1]
    splitter = _Splitter(is_part=True)
    for line, text in chain([(first[0], rest)], parts):
        yield from splitter.feed(line, text)
        if splitter.is_over:
            return
    splitter.close()


def value_of(text: str) -> Any:
    """Parse a JSON text. Raises: FieldError when it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FieldError("record", "must be JSON", str(error)) from None


def object_of(value: Any, path: str) -> Mapping[str, Any]:
    """Return a value that must be an object. `path`: where it stands. Raises: FieldError."""
    if not isinstance(value, dict):
        raise FieldError(path, "must be a JSON object", str(value)[:40])
    return value


class _Splitter:
    """`_held`: the element so far, which began on `_line`; `_depth`: open brackets. `is_part`: what
    follows the array is not read."""

    def __init__(self, *, is_part: bool = False) -> None:
        self._is_part = is_part
        self._held: list[str] = []
        self._length = 0
        self._line = 0
        self._depth = 0
        self.is_over = False
        self._rest = ""  # from the quote of a string that goes on in the next piece

    def feed(self, line: int, text: str) -> Iterator[tuple[int, str]]:
        """`line`: that of the first character; one string goes over no line."""
        text, self._rest = self._rest + text, ""
        start = 0
        for token in TOKEN.finditer(text):
            mark = token.group()
            if mark == '"' and text.find("\n", token.start()) < 0:
                self._rest = text[token.start() :]
                text = text[: token.start()]
                break
            if mark in OPENING:
                self._depth += 1
                if self._depth > 1:
                    continue
                self._begin(text[start : token.end()])
            elif mark in CLOSING:
                self._depth -= 1
                if self._depth > 0:
                    continue
                yield from self._last(line, text[start : token.start()])
                if self._is_part:
                    return
            elif mark == "," and self._depth == 1:
                yield self._cut(line, text[start : token.start()])
            else:
                continue
            line += text.count("\n", start, token.end())
            start = token.end()
        self._hold(line, text[start:])

    def _begin(self, text: str) -> None:
        if text.strip() != "[" or self.is_over:
            raise _no_array(text)

    def _last(self, line: int, text: str) -> Iterator[tuple[int, str]]:
        """Yield the element before the bracket that ends the array; nothing, if it is empty."""
        if self._depth < 0:
            raise _no_array(text)
        self.is_over = True
        if self._held or text.strip():
            yield self._cut(line, text)

    def _cut(self, line: int, text: str) -> tuple[int, str]:
        element = self._line or _line_of(line, text), "".join((*self._held, text)).strip()
        self._held, self._length, self._line = [], 0, 0
        return element

    def _hold(self, line: int, text: str) -> None:
        if not self._held and not text.strip():
            return
        if not self._depth:
            raise _no_array(text)
        self._line = self._line or _line_of(line, text)
        self._held.append(text)
        self._length += len(text)
        if self._length + len(self._rest) > MOST_CHARACTERS:
            raise FieldError("record", f"is longer than {MOST_CHARACTERS:,} characters")

    def close(self) -> None:
        if self._rest or not self.is_over:
            raise FieldError("file", "must be one JSON array: it ends too early")


def _line_of(line: int, text: str) -> int:
    """The line of the first character that is not blank, where the text begins on `line`."""
    return line + text.count("\n", 0, len(text) - len(text.lstrip()))


def _no_array(text: str) -> FieldError:
    return FieldError("file", "must be one JSON array", text.strip()[:40])
