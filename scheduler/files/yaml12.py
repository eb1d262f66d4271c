"""YAML as people expect it: no silent surprises, and a line number for every value.

PyYAML follows YAML 1.1, where `no` is false, `400e9` is a text and the last of two
equal keys wins. Here values are built from the parser's events instead:

- numbers, booleans and null by the YAML 1.2 core schema; everything else is text
- a repeated key, a tag, a key that is no plain text, a second document where one is read: refused
- nesting and the values that aliases stand for are bounded, so that a small file
  cannot stand for a huge value ("billion laughs")
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import yaml

from muster.structs import struct
from scheduler.files.errors import InputError, Problem, input_error, line_of, refusal

MOST_PROGRAM_BYTES = 1 << 30  # of what a program writes: `kubectl get nodes` spends 20 KB a node
MOST_BYTES = 64 << 20
DEEPEST = 32
MOST_ALIASED = 100_000  # values that aliases may add to a document
LONGEST_NUMBER = 400

_NULL = ("", "~", "null", "Null", "NULL")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@struct(frozen=True, slots=True)
class Document:
    """A file's value, and the line of each dotted path in it. `written`: the text of numbers and
    booleans by their path, as the file has it: `3e-4` or `1.10`."""

    value: Any
    source: str = ""
    lines: dict[str, int] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def mapping(self) -> dict[str, Any]:
        """Return the document as a mapping. Raises: InputError when it is anything else."""
        if isinstance(self.value, dict):
            return self.value
        kind = "empty" if self.value is None else f"a {_kind(self.value)}"
        raise InputError(
            Problem("", f"must be a mapping of keys to values, is {kind}", self.source)
        )

    def error(self, *problems: tuple[str, str]) -> InputError:
        """Return the error for faults of this document, by field."""
        return input_error(problems, self.source, self.lines)


def load(path: str | Path) -> Document:
    """Read a YAML file. Raises: InputError with the file, and the line where there is one."""
    return parse(read_text(path), str(path))


def read_text(path: str | Path, most_bytes: int = MOST_BYTES) -> str:
    """Return the text of a user's file.

    Raises: InputError when it is missing, a directory, too large or no text.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise InputError(Problem("", "no such file", str(path))) from None
    except IsADirectoryError:
        raise InputError(Problem("", "is a directory, not a file", str(path))) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(Problem("", f"cannot be read: {reason}", str(path))) from None
    return decoded(raw, str(path), most_bytes)


def decoded(raw: bytes, source: str, most_bytes: int = MOST_BYTES) -> str:
    """Decode the bytes of a user's file. Raises: InputError when they are too many or no text."""
    if len(raw) > most_bytes:
        most = f"{most_bytes >> 20} MiB" if most_bytes >> 20 else f"{most_bytes:,} bytes"
        raise InputError(Problem("", f"is larger than {most}", source))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(Problem("", "is not UTF-8 text", source, line)) from None


def parse(text: str, source: str = "") -> Document:
    """Parse the one document in `text`.

    Raises: InputError. Cost: about 5 us a value.
    """
    return next(_documents(text, source, is_single=True), Document(None, source))


def parse_all(text: str, source: str = "") -> list[Document]:
    """Parse the documents in `text`, which `---` separates, without empty ones. Raises:
    InputError."""
    documents = _documents(text, source, is_single=False)
    return [document for document in documents if document.value is not None]


def _documents(text: str, source: str, *, is_single: bool) -> Iterator[Document]:
    builder = _Builder(text, source)
    try:
        for value in builder.documents(is_single=is_single):
            yield Document(value, source, builder.lines, builder.written)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, len(text.splitlines())) if mark else 0
        message = error.problem or error.context or "is not YAML"
        raise InputError(Problem("", _explain(message, text, line), source, line)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        raise InputError(
            Problem("", f"control character {code:#04x} is not allowed", source, line)
        ) from None


def _explain(message: str, text: str, line: int) -> str:
    rows = text.splitlines()
    if line and line <= len(rows) and "\t" in rows[line - 1][: _indent(rows[line - 1])]:
        return "a tab indents this line; YAML indents with spaces only"
    return f"not valid YAML: {message}"


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _kind(value: Any) -> str:
    return {list: "list", str: "text", bool: "boolean"}.get(type(value), "number")


class _Builder:
    """Builds documents from the events of the parser, top down."""

    def __init__(self, text: str, source: str) -> None:
        self._events = _Loader(text)
        self._source = source
        self._anchors: dict[str, tuple[Any, int]] = {}  # value, and how many values it holds
        self._built = 0
        self._aliased = 0
        self.lines: dict[str, int] = {}
        self.written: dict[str, str] = {}

    def documents(self, *, is_single: bool) -> Iterator[Any]:
        """Yield the value of each document; `lines` are those of the one at hand."""
        self._events.get_event()  # stream start
        while not self._events.check_event(yaml.StreamEndEvent):
            self._events.get_event()  # document start
            self.lines, self.written, self._anchors = {}, {}, {}
            value = self._value("", 0, None)
            self._events.get_event()  # document end
            if is_single and not self._events.check_event(yaml.StreamEndEvent):
                raise self._refuse(self._events.get_event(), "", "a second document starts here")
            yield value

    def _value(self, path: str, depth: int, line: int | None) -> Any:
        event = self._events.get_event()
        if path:
            self.lines[path] = line or _line(event)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        if depth > DEEPEST:
            raise self._refuse(event, path, f"is nested deeper than {DEEPEST} levels")
        before = self._built
        self._built += 1
        value = self._plain(event, path, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._built - before)
        return value

    def _plain(self, event: Any, path: str, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if event.tag not in (None, "!"):
            raise self._refuse(event, path, f"tag {event.tag} is not supported")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path, depth)
        return self._mapping(path, depth)

    def _sequence(self, path: str, depth: int) -> list[Any]:
        items: list[Any] = []
        while not self._events.check_event(yaml.SequenceEndEvent):
            items.append(self._value(_join(path, str(len(items))), depth + 1, None))
        self._events.get_event()
        return items

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        places: dict[str, int] = {}
        while not self._events.check_event(yaml.MappingEndEvent):
            event = self._events.get_event()
            if not isinstance(event, yaml.ScalarEvent):
                raise self._refuse(event, path, "a key must be plain text")
            key, line = event.value, _line(event)
            if key in values:
                message = f"is given twice, first in line {places[key]}"
                raise self._refuse(event, _join(path, key), message)
            places[key] = line
            values[key] = self._value(_join(path, key), depth + 1, line)
        self._events.get_event()
        return values

    def _alias(self, event: Any, path: str) -> Any:
        if event.anchor not in self._anchors:
            raise self._refuse(event, path, f"alias *{event.anchor} names nothing before it")
        value, size = self._anchors[event.anchor]
        self._aliased += size
        self._built += size
        if self._aliased > MOST_ALIASED:
            raise self._refuse(
                event, path, f"aliases stand for more than {MOST_ALIASED:,} values; write them out"
            )
        return value

    def _scalar(self, event: Any, path: str) -> Any:
        if event.tag not in _TEXT_TAGS:
            raise self._refuse(event, path, f"tag {event.tag} is not supported")
        text: str = event.value
        if event.tag is not None or not event.implicit[0]:
            return text
        if len(text) > LONGEST_NUMBER and text[0] in "+-.0123456789":
            raise self._refuse(event, path, f"is longer than {LONGEST_NUMBER} characters")
        value = _resolved(text)
        if isinstance(value, int | float):
            self.written[path] = text
        return value

    def _refuse(self, event: Any, path: str, message: str) -> InputError:
        return InputError(Problem(path, message, self._source, _line(event)))


def _resolved(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.fullmatch(text):
        return int(text)
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


@struct(frozen=True, slots=True)
class JsonFile:
    """The value of a file, and its text."""

    value: Any
    text: str
    source: str

    @staticmethod
    def load(path: str) -> JsonFile:
        """Read a JSON file. Raises: InputError with the line of what is no JSON."""
        text = read_text(path, MOST_PROGRAM_BYTES)
        try:
            return JsonFile(json.loads(text), text, path)
        except json.JSONDecodeError as error:
            raise refusal(f"is not JSON: {error.msg}", path, error.lineno) from None
        except ValueError as error:  # a number of thousands of digits
            raise refusal(f"is not JSON: {error}", path) from None
        except RecursionError:
            raise refusal("is nested too deep", path) from None

    def error(self, field: str, message: str) -> InputError:
        """Return the error of faults, each with its line. Lines are found only now: the text is
        read again as YAML, of which JSON is a part."""
        return refusal(message, self.source, line_of(self.lines(), field), field)

    def lines(self) -> Mapping[str, int]:
        """The line of every field; none where the YAML reader refuses the text."""
        try:
            return parse(self.text.replace("\t", " ")).lines
        except InputError:
            return {}
