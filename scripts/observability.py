"""Renew the tables of docs/observability.md: metrics from the catalogue, alerts from the rules.

--check says whether the page is current.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from scheduler.observe.catalogue import METRICS, PER_JOB, Metric

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "observability.md"
RULES = ROOT / "deploy" / "prometheus" / "muster.rules.yml"


def metrics_table() -> str:
    rows = ["| metric | kind | labels | what it is |", "|---|---|---|---|"]
    rows += [_row(metric) for metric in METRICS]
    return "\n".join(rows)


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    note = " Only with `--metrics-per-job`." if metric in PER_JOB else ""
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text}{note} |"


def alerts_table() -> str:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rows = ["| alert | severity | after | what to do |", "|---|---|---|---|"]
    rows += [
        f"| {rule['alert']} | {rule['labels']['severity']} | {rule['for']}"
        f" | {rule['annotations']['runbook']} |"
        for group in groups
        for rule in group["rules"]
    ]
    return "\n".join(rows)


def page() -> str:
    """The page with its tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("metrics", metrics_table()), ("alerts", alerts_table())):
        begin, end = f"<!-- {name}: made by scripts/observability.py -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        section = f"{begin}\n{table}\n{end}"
        text, made = pattern.subn(lambda _, section=section: section, text)  # type: ignore[misc]
        if made != 1:
            raise SystemExit(f"{PAGE.name} has no place for {name}")
    return text


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    is_current = PAGE.read_text(encoding="utf-8") == page()
    if not is_current:
        print("docs/observability.md is old: run python -m scripts.observability")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
