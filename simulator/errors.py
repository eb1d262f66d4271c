"""Input that cannot be replayed; the text is what the user is told."""

from __future__ import annotations

from pathlib import Path


class ReplayError(ValueError):
    """A trace, a failure model or an option that cannot be used."""


def at(path: Path, line: int, message: str) -> ReplayError:
    """The error that names its place in a file."""
    return ReplayError(f"{path}:{line}: {message}")
