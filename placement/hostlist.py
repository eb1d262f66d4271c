"""Hostlist ranges: `z0-r[000-011]-h[0-1]` names 24 hosts.

The notation is Slurm's: a bracket holds comma-separated numbers and ranges, and
leading zeros are kept. Several names may share a line, separated by commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

from placement.errors import BadInput

_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
LONGEST = 1_000_000  # hosts in one expression: beyond any fabric, short of exhausting memory


def expand(text: str) -> list[str]:
    """The host names that `text` stands for, in the order written.

    Raises: BadInput on an unclosed bracket, an empty or a descending range.
    """
    return [name for part in _split(text) for name in _expand_one(part)]


def _split(text: str) -> Iterator[str]:
    """Split at commas outside brackets."""
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
    if not part:
        raise BadInput("", "empty host name")
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
