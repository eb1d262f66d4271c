"""Hostlist ranges: `z0-r[000-011]-h[0-1]` names 24 hosts.

The notation is Slurm's: a bracket holds comma-separated numbers and ranges, and
leading zeros are kept. Several names may share a line, separated by commas; as in Slurm, nothing
between two commas, or after the last, is no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, product

from placement.errors import BadInput

_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_DIGITS = re.compile(r"([0-9]{1,18})")
LONGEST = 1_000_000  # hosts in one expression: beyond any fabric, short of exhausting memory


def expand(text: str, field: str = "") -> list[str]:
    """Return the host names that `text` stands for, in the order written.

    Raises: BadInput naming `field` on an unclosed bracket, an empty or a descending range.
    """
    try:
        names = [name for part in split(text) if part for name in _expand_one(part)]
        if not names:
            raise BadInput("", "empty host name")
        return names
    except BadInput as error:
        raise BadInput(field, error.message) from None


def numbered(stem: str, letter: str, count: int) -> list[str]:
    """Return names for so many domains or hosts that a fabric file counts and does not list."""
    width = len(str(count - 1))
    return [f"{stem}{letter}{i:0{width}d}" for i in range(count)]


def split(text: str) -> Iterator[str]:
    """Split a text at commas outside brackets."""
    depth, start = 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise BadInput("", f"unbalanced brackets in {text!r}")
        if char == "," and depth == 0:
            yield text[start:i].strip()
            start = i + 1
    if depth:
        raise BadInput("", f"unbalanced brackets in {text!r}")
    yield text[start:].strip()


def _expand_one(part: str) -> Iterator[str]:
    pieces = _BRACKET.split(part)
    choices = [_numbers(p, part) if i % 2 else [p] for i, p in enumerate(pieces)]
    size = 1
    for choice in choices:
        size *= len(choice)
    if size > LONGEST:
        raise BadInput("", f"{part!r} names more than {LONGEST:,} hosts")
    return ("".join(chosen) for chosen in product(*choices))


def _numbers(body: str, part: str) -> list[str]:
    names: list[str] = []
    for item in body.split(","):
        match = _RANGE.fullmatch(item.strip())
        if not match:
            raise BadInput("", f"{item!r} is not a number or range in {part!r}")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise BadInput("", f"range {item} runs backwards in {part!r}")
        if len(names) + int(last) - int(first) >= LONGEST:
            raise BadInput("", f"{part!r} names more than {LONGEST:,} hosts")
        names += [str(i).zfill(len(first)) for i in range(int(first), int(last) + 1)]
    return names


def fold(names: Sequence[str]) -> str:
    """Write names as ranges where they count up, in their order: `expand(fold(x)) == x`.

    Cost: O(names), 2 us each.
    """
    parts: list[str] = []
    for (before, after, has_number), group in groupby(
        _runs(names), key=lambda run: (run[0], run[3], bool(run[1]))
    ):
        ranges = [first if first == last else f"{first}-{last}" for _, first, last, _ in group]
        if not has_number:
            parts += [before] * len(ranges)
        elif len(ranges) == 1 and ranges[0].isdigit():
            parts.append(f"{before}{ranges[0]}{after}")
        else:
            parts.append(f"{before}[{','.join(ranges)}]{after}")
    return ",".join(parts)


def _runs(names: Sequence[str]) -> Iterator[tuple[str, str, str, str]]:
    """(before, first, last, after) of each run of names that count up in one number."""
    start: list[str] = []
    last: list[str] = []
    position = 0  # of the number that counts, 0 while the run is one name
    for name in names:
        pieces = _DIGITS.split(name)
        step = _counts_up(last, pieces)
        if step and position in (0, step):
            position = step
        else:
            if start:
                yield _run(start, last, position)
            start, position = pieces, 0
        last = pieces
    if start:
        yield _run(start, last, position)


def _counts_up(before: list[str], after: list[str]) -> int:
    """Where `after` is one more than `before` and alike in the rest; 0 nowhere."""
    if len(before) != len(after):
        return 0
    apart = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(apart) != 1 or not apart[0] % 2:
        return 0
    number = before[apart[0]]
    return apart[0] if after[apart[0]] == str(int(number) + 1).zfill(len(number)) else 0


def _run(start: list[str], last: list[str], position: int) -> tuple[str, str, str, str]:
    at = position or len(start) - 2  # a name alone may join others in its last number
    if at < 1:
        return "".join(start), "", "", ""
    return "".join(start[:at]), start[at], last[at], "".join(start[at + 1 :])
