"""A replay on disk: what people look at, and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.structs import struct
from simulator.report.text import markdown


@struct(frozen=True, slots=True)
class ReportFolder:
    """A folder for people and notebooks: also totals.json, report_data.json and summary.md.

    `has_pages`: index.html and its figures as PNG and SVG as well.
    """

    folder: Path
    has_pages: bool = True

    def finish(self, totals: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Write what is known at the end only, once nothing grows any more."""
        self._write("totals.json", json.dumps(totals, indent=2) + "\n")
        self._write("report_data.json", json.dumps(data) + "\n")
        self._write("summary.md", markdown(dict(totals)))
        if self.has_pages:
            from simulator.report.run_page import write_run

            write_run(self.folder, totals, data)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8", newline="")
