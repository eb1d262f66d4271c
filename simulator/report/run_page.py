"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.report.html import write_page
from simulator.report.run_charts import PARTS, charts
from simulator.report.text import figures, headline

FILES = (
    "totals.json",
    "report_data.json",
    "jobs.csv",
    "events.csv",
    "events.jsonl",
    "summary.md",
)


def write_run(folder: Path, totals: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """index.html, and each of its figures as PNG and SVG under figures/."""
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
