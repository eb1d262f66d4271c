"""What is wrong with a user's input, and where. Light to import: the CLI catches it."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from muster.structs import struct

MOST_SHOWN = 20
MOST_CHARACTERS = 2_000  # of one problem, which may quote what it was given
# What the name of a file to write, given by a user, may run into.
WRONG_PATHS = (
    FileExistsError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


def one_line(text: str) -> str:
    """Escape foreign text for one line of a terminal: it can neither end the line nor colour the
    next."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def short(value: object) -> str:
    """Return a value of a file for a message: cut short, and written as in the file."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return reprlib.repr(value)


@struct(frozen=True, slots=True)
class Problem:
    """One fault of an input. `field` is a dotted path into the input; `line` counts from 1, 0 = not
    known."""

    field: str
    message: str
    source: str = ""
    line: int = 0

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.source and self.line else self.source
        whole = ": ".join(part for part in (place, self.field, self.message) if part)
        if len(whole) > MOST_CHARACTERS:  # the place is at its begin, what is wrong at its end
            half = MOST_CHARACTERS // 2
            whole = f"{whole[:half]} ... {whole[-half:]}"
        return one_line(whole)


class InputError(ValueError):
    """A file or a value that its user has to correct.

    `str()` is one line per problem, `FILE:LINE: field: message`, as far as known.
    """

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.found = problems

    @property
    def problems(self) -> tuple[tuple[str, str], ...]:
        """The faults, (field, message) each."""
        return tuple((problem.field, problem.message) for problem in self.found)

    def __str__(self) -> str:
        lines = [str(problem) for problem in self.found[:MOST_SHOWN]]
        if len(self.found) > MOST_SHOWN:
            lines.append(f"... and {len(self.found) - MOST_SHOWN} more")
        return "\n".join(lines)


def line_of(lines: Mapping[str, int], field: str) -> int:
    """Return the line of `field`, or of the nearest thing around it; 0 where neither has one."""
    while field:
        if field in lines:
            return lines[field]
        field = field.rpartition(".")[0]
    return 0


def input_error(
    faults: Iterable[tuple[str, str]], source: str = "", lines: Mapping[str, int] | None = None
) -> InputError:
    """Make an error of (field, message) pairs, each with its line, in the order of the file."""
    problems = [Problem(field, text, source, line_of(lines or {}, field)) for field, text in faults]
    return InputError(*sorted(problems, key=lambda problem: problem.line))


def unwritable(path: Path, option: str, error: OSError) -> Exception:
    """Return the error of a file that cannot be written, under the option that names it: an
    InputError where the name is at fault, else, of a full disk say, an OSError."""
    message = f"cannot be written: {error.strerror or error}"
    if isinstance(error, WRONG_PATHS):
        return InputError(Problem(option, message, str(path)))
    return OSError(error.errno, message, str(path))


def refusal(message: str, source: str, line: int = 0, field_name: str = "") -> InputError:
    """Make an error that names the place in the file."""
    return InputError(Problem(field_name, message, source, line))
