"""Pages that need no network: one of a run, one that compares runs, one of a sweep.

matplotlib is imported when a page is made, never before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_comparison", "write_run", "write_sweep"]


def write_run(folder: Path, totals: Mapping[str, Any], story: Mapping[str, Any]) -> None:
    """Write the page of a run and its figures into its report folder."""
    from simulator.pages.run import write_run as write

    write(folder, totals, story)


def write_comparison(folder: Path, found: Mapping[str, Any]) -> None:
    """Write the page that compares runs whose reports lie below this folder."""
    from simulator.pages.compare import write_comparison as write

    write(folder, found)


def write_sweep(folder: Path, table: Mapping[str, Any]) -> None:
    """Write the page of a sweep."""
    from simulator.pages.sweep import write_sweep as write

    write(folder, table)
