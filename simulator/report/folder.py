"""The report of a replay on disk: what people look at, and tables for notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.report.html import write_page
from simulator.report.run_charts import PARTS, charts
from simulator.report.text import figures, headline

FILES = ("totals.json", "report_data.json", "jobs.csv", "events.jsonl")


def write_report(
    folder: Path, totals: Mapping[str, Any], data: Mapping[str, Any], has_pages: bool = True
) -> None:
    """Write what is known only at the end of a run: totals.json and report_data.json, and with
    `has_pages` index.html with each of its figures as PNG and SVG under figures/."""
    (folder / "totals.json").write_text(json.dumps(totals, indent=2) + "\n", "utf-8", newline="")
    (folder / "report_data.json").write_text(json.dumps(data) + "\n", "utf-8", newline="")
    if has_pages:
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
