"""The file of a snapshot: named parts behind a header, under one digest.

    muster replay snapshot 2 SHA256        of everything after this line
    {"parts": [["state", 4711], ...], ...}  JSON, what it is a snapshot of (header.py)
    ...                                     the parts, deflated, of so many bytes

The first two lines are there to be read by people: `head -n 2 FILE`. Nothing of it is code.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.files.atomic_file import written
from scheduler.files.errors import InputError, Problem

TITLE = "muster replay snapshot"
FORMAT = 2  # 1: spares that jobs state could not be replaced


@dataclass(frozen=True, slots=True)
class Content:
    """What a file holds."""

    header: dict[str, Any]
    parts: dict[str, bytes]


def write(path: Path, header: Mapping[str, Any], parts: Mapping[str, bytes]) -> None:
    """All of it or nothing: whoever dies meanwhile leaves the file that was there before.

    Raises: InputError, OSError.
    """
    packed = {name: zlib.compress(part, 1) for name, part in parts.items()}
    lengths = [[name, len(part)] for name, part in packed.items()]
    head = json.dumps({"parts": lengths, **header}).encode()
    body = b"".join((head, b"\n", *packed.values()))
    first = f"{TITLE} {FORMAT} {hashlib.sha256(body).hexdigest()}\n"
    with written(path, "--snapshot") as file:
        file.write(first.encode() + body)


def check_target(path: Path) -> None:
    """Raises: InputError when no snapshot can, or may, be written there: only another one is
    replaced."""
    try:
        with path.open("rb") as file:
            begins = file.read(len(TITLE)) if path.is_file() else b""
        wrong = "" if TITLE.encode().startswith(begins) else "holds something else"
    except FileNotFoundError:
        wrong = "" if path.parent.is_dir() else f"there is no folder {path.parent}"
    except OSError as error:
        wrong = f"cannot be written: {error.strerror or error}"
    if wrong:
        raise InputError(Problem("--snapshot", wrong, str(path)))


def read(path: Path) -> Content:
    """Raises: InputError on a file that is damaged, or no snapshot of this version."""
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise refused(path, f"cannot be read: {error.strerror or error}") from None
    first, _, body = whole.partition(b"\n")
    _check(path, first, body)
    try:
        head, _, rest = body.partition(b"\n")
        header: dict[str, Any] = json.loads(head)
        parts = {}
        for name, length in header.pop("parts"):
            parts[name] = zlib.decompress(rest[:length])
            rest = rest[length:]
        return Content(header, parts)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
        raise refused(path, "is not what muster writes") from None


def _check(path: Path, first: bytes, body: bytes) -> None:
    title, _, rest = first.decode("utf-8", "replace").partition(f"{TITLE} ")
    number, _, digest = rest.partition(" ")
    if title or not number.isdecimal():
        raise refused(path, "is no snapshot of a replay")
    if number != str(FORMAT):
        raise refused(path, f"has format {number[:20]}, this muster reads format {FORMAT}")
    if hashlib.sha256(body).hexdigest() != digest:
        raise refused(path, "is damaged or cut short: its digest is another")


def refused(path: Path, message: str) -> InputError:
    """It cannot be gone on from."""
    return InputError(Problem("--resume", message, str(path)))
