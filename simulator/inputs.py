"""What a replay reads, and a digest that names it all: equal digests, equal logs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from scheduler.files.errors import InputError, Problem
from simulator.experiment import fabric_of
from simulator.options import FILES, TEXTS, Options, Value

FORMAT = 1  # of stored results; older ones are computed again


def digest(options: Options) -> str:
    """Return a text that identifies the inputs of a replay by content, code included: equal digests
    give equal logs.

    Files count by what is in them, so that they may be moved and may not be changed.
    """
    named = {key: value for key, value in options.items() if key not in FILES}
    content = {
        "format": FORMAT,
        "code": code_digest(),
        "options": named,
        "fabric": fabric_of(options).digest,
        "files": [_file_digest(Path(path)) for path in files(options)],
        "texts": [_unpathed(options[key]) for key in TEXTS],
    }
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def files(options: Options) -> Iterator[str]:
    """Return the files that a replay reads, beside its fabric, in a fixed order."""
    for key in ("trace", "tenants", "health", "windows"):
        if options[key] is not None:
            yield str(options[key])
    for key in TEXTS:
        yield from (piece for piece in _pieces(options[key]) if Path(piece).is_file())


def resolve_path(folder: Path, key: str, value: Value) -> Value:
    """Return the path of a file that is named relative to the experiment file."""
    if not isinstance(value, str) or key not in FILES:
        return value
    if key not in TEXTS:
        is_file = key != "fabric" or (folder / value).is_file()
        return str(folder / value) if is_file else value
    pieces = re.split(r"([;:,])", value)
    return "".join(
        str(folder / piece) if piece and (folder / piece).is_file() else piece for piece in pieces
    )


def _pieces(value: Value) -> list[str]:
    """Return the parts of a text that may name a file."""
    return [str(value), *re.split(r"[;:,]", str(value))] if value is not None else []


def _unpathed(value: Value) -> Value:
    """A text without the names of files, which count by content."""
    text = value
    for name in _pieces(value):
        if name and Path(name).is_file():
            text = str(text).replace(name, "FILE")
    return text


def _file_digest(path: Path) -> str:
    try:
        stat = path.stat()
        return _content_digest(path, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise InputError(Problem("", message, str(path))) from None


@lru_cache(maxsize=256)
def _content_digest(path: Path, mtime_ns: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@lru_cache(maxsize=1)
def code_digest() -> str:
    """Return a digest of the packages that decide, for other code may decide otherwise."""
    top = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for package in ("placement", "scheduler", "simulator"):
        for path in sorted((top / package).rglob("*.py")):
            name = path.relative_to(top).as_posix()
            if name.startswith("simulator/report/"):  # decides nothing
                continue
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
