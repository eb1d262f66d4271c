"""A replay on disk: what people look at, and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.structs import struct
from simulator.collectors.tables import EVENTS, JOBS, write_parquet
from simulator.report.text import markdown


@struct(frozen=True, slots=True)
class ReportFolder:
    """A folder for people and notebooks: also totals.json, report_data.json and summary.md.

    `has_pages`: index.html and its figures as PNG and SVG as well. `has_parquet`: the two
    tables as Parquet too.
    """

    folder: Path
    has_pages: bool = True
    has_parquet: bool = False

    def finish(self, totals: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Write what is known at the end only, once nothing grows any more."""
        self._write("totals.json", json.dumps(totals, indent=2) + "\n")
        self._write("report_data.json", json.dumps(data) + "\n")
        self._write("summary.md", markdown(dict(totals)))
        if self.has_parquet:
            for name, columns in (("jobs", JOBS), ("events", EVENTS)):
                write_parquet(self.folder / f"{name}.csv", columns)
        if self.has_pages:
            from simulator.report.run_page import write_run

            write_run(self.folder, totals, data)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8", newline="")
