"""A replay on disk: what people look at, and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from muster.structs import struct
from simulator.report.html import write_page
from simulator.report.run_charts import PARTS, charts
from simulator.report.text import figures, headline


@struct(frozen=True, slots=True)
class ReportFolder:
    """The folder of a report, for people and notebooks, with totals.json and report_data.json.

    `has_pages`: index.html and its figures as PNG and SVG as well.
    """

    folder: Path
    has_pages: bool = True

    def finish(self, totals: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Write what is known only at the end of a run."""
        self._write("totals.json", json.dumps(totals, indent=2) + "\n")
        self._write("report_data.json", json.dumps(data) + "\n")
        if self.has_pages:
            write_run(self.folder, totals, data)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8", newline="")


FILES = (
    "totals.json",
    "report_data.json",
    "jobs.csv",
    "events.jsonl",
)


def write_run(folder: Path, totals: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Write index.html, and each of its figures as PNG and SVG under figures/."""
    write_page(
        folder,
        "run.html",
        charts(data),
        title=f"Replay of {totals['trace']['file']}",
        subtitle=headline(dict(totals)),
        figures=figures(dict(totals)),
        totals=totals,
        data=data,
        parts=PARTS,
        all_host_s=sum(data["host_s"].values()) or 1.0,
        files=FILES,
    )
