"""The elements of a JSON array, one after the other, of a text of any length: no more than one of
them, and the piece of text that it ends in, is held at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.traces.record import FieldError

MOST_CHARACTERS = 16 * 2**20  # of one element: a quote that never ends must not eat memory
PIECE = 2**16  # characters that are read at a time
BLANKS = re.compile(r"[ \t\r\n]*")
CUT = 8  # a word or escape that the end of the text cuts is found at most so long before it


def elements(pieces: Iterable[tuple[int, str]], key: str = "") -> Iterator[tuple[int, Any]]:
    """Yield (line, value) of each element of a JSON array. `pieces`: the text in parts, each with
    its line. `key`: of the object whose first array under it is meant; what follows is not read.

    Raises: FieldError when the text is no array, or does not end as one.
    """
    text = _Text(iter(pieces))
    text.open(key)
    mark = text.next_mark()
    while mark != "]":
        line = text.line_at(text.at)
        yield line, text.value()
        mark = text.next_mark()
        if mark not in (",", "]"):
            raise text.fault("a comma is missing" if mark else "it ends too early")
        if mark == ",":
            text.at += 1
            text.next_mark()
    text.at += 1
    if not key and text.next_mark():
        raise text.fault("more follows it")


def object_of(value: Any, path: str) -> Mapping[str, Any]:
    """Return a value that must be an object. `path`: where it stands. Raises: FieldError."""
    if not isinstance(value, dict):
        raise FieldError(path, "must be a JSON object", str(value)[:40])
    return value


@dataclass(slots=True)
class _Text:
    """Text that is read in pieces. `held`: what is held of it, from `line` on; `at`: the place that
    is read next."""

    pieces: Iterator[tuple[int, str]]
    held: str = ""
    line: int = 1
    at: int = 0

    def open(self, key: str) -> None:
        """Go to the first element."""
        find = re.compile(rf'"{key}"\s*:\s*\[').search if key else re.compile(r"\s*\[").match
        while (found := find(self.held)) is None:
            if (not key and self.held.strip()) or not self._read_more():
                break
        if found is None:
            if key:
                raise FieldError(key, "is no array of the file")
            raise FieldError("file", "must be one JSON array", self.held.strip()[:40], line=1)
        self.at = found.end()

    def next_mark(self) -> str:
        """Return the next character that is no blank; "" at the end of the text."""
        while True:
            if (blanks := BLANKS.match(self.held, self.at)) is not None:
                self.at = blanks.end()
            if self.at < len(self.held) or not self._read_more():
                return self.held[self.at : self.at + 1]

    def value(self) -> Any:
        """Return the value that begins here, and pass it."""
        while True:
            try:
                value, end = json.JSONDecoder().raw_decode(self.held, self.at)
            except json.JSONDecodeError as error:
                is_cut = error.pos >= len(self.held) - CUT or error.msg.startswith("Unterminated")
                if not is_cut or not self._read_more():
                    self.at = error.pos
                    raise self.fault(error.msg) from None
            except RecursionError:
                raise self.fault("it is nested too deep") from None
            else:
                if end < len(self.held) or not self._read_more():  # where a number may go on
                    self.at = end
                    return value

    def _read_more(self) -> bool:
        """Read a piece of text in place of what was passed; return False at the end."""
        self.line, self.held, self.at = self.line_at(self.at), self.held[self.at :], 0
        parts, length = [self.held], 0
        for _, text in self.pieces:
            parts.append(text)
            length += len(text)
            if length >= PIECE:
                break
        self.held = "".join(parts)
        if len(self.held) > MOST_CHARACTERS + PIECE:
            raise FieldError("record", f"is longer than {MOST_CHARACTERS:,} characters")
        return length > 0

    def line_at(self, place: int) -> int:
        """Return the line of a place in the text that is held."""
        return self.line + self.held.count("\n", 0, place)

    def fault(self, message: str) -> FieldError:
        """Return the error at the place that is read."""
        return FieldError("file", f"must be one JSON array: {message}", line=self.line_at(self.at))
