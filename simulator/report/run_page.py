"""The page of one run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.report import html, theme
from simulator.report.run_charts import PARTS, Chart, charts
from simulator.report.text import duration, figures, headline

Values = Mapping[str, Any]


def write_run(folder: Path, totals: Values, data: Values) -> None:
    """index.html, and each of its figures as PNG and SVG under figures/."""
    drawn = charts(data)
    (folder / "figures").mkdir(exist_ok=True)
    for chart in drawn:
        theme.save(chart.figure, folder / "figures", chart.name)
    (folder / "index.html").write_text(run_page(totals, data, drawn), encoding="utf-8")


def run_page(totals: Values, data: Values, drawn: list[Chart]) -> str:
    numbers = _numbers(data)
    sections = [html.figure(chart, numbers.get(chart.name, "")) for chart in drawn]
    return html.page(
        f"Replay of {totals['trace']['file']}",
        headline(dict(totals)),
        [
            html.cards(figures(dict(totals))),
            *sections,
            "<h2>Jobs that waited longest</h2>",
            _longest(data),
            "<h2>What this rests on</h2>",
            html.listed(totals["assumptions"]),
            _files(totals),
        ],
    )


def _numbers(data: Values) -> dict[str, str]:
    """The numbers behind some figures, by chart."""
    return {
        "waits": html.details("numbers", _sizes(data)),
        "waterfall": html.details("numbers", _parts(data)),
        "cuts": html.details("numbers", _cuts(data)),
        "failures": html.details("numbers", _causes(data)),
    }


def _sizes(data: Values) -> str:
    head = ["size", "jobs", "host-hours", "wait p50", "wait p95", "wait p99", "slowdown p50", "p95"]
    rows = [
        [
            found["class"],
            f"{found['jobs']:,}",
            f"{found['host_s'] / 3600:,.0f}",
            *(duration(found["wait_s"][p]) for p in ("p50", "p95", "p99")),
            *(f"{found['slowdown'][p]:,.2f}" for p in ("p50", "p95")),
        ]
        for found in data["sizes"]
    ]
    return html.table(head, rows)


def _parts(data: Values) -> str:
    total = sum(data["host_s"].values()) or 1.0
    rows = [
        [
            words,
            f"{data['host_s'][key] / 3600:,.1f}",
            f"{100 * data['host_s'][key] / total:.3f} %",
        ]
        for key, words, _ in PARTS
    ]
    return html.table(["host-time", "host-hours", "share"], rows)


def _cuts(data: Values) -> str:
    head = ["size", "starts", "cut, bytes a step", "lower bound", "at the bound", "domains", "most"]
    rows = [
        [
            found["class"],
            f"{found['starts']:,}",
            f"{found['cut_bytes']:,}",
            f"{found['bound_bytes']:,}",
            f"{found['starts_at_bound']:,}",
            f"{found['domains']['mean']:.2f}",
            f"{found['domains']['most']:,}",
        ]
        for found in data["sizes"]
    ]
    return html.table(head, rows)


def _causes(data: Values) -> str:
    head = ["cause", "failures", "stopped a gang", "host-hours out of service"]
    rows = [
        [
            found["cause"],
            f"{found['failures']:,}",
            f"{found['stopped_gangs']:,}",
            f"{found['down_host_s'] / 3600:,.1f}",
        ]
        for found in data["faults"]["causes"]
    ]
    return html.table(head, rows)


def _longest(data: Values) -> str:
    head = ["job", "hosts", "wait", "ran", "attempts", "outcome"]
    rows = [
        [
            found["job"],
            f"{found['hosts']:,}",
            duration(found["wait_s"]),
            duration(found["run_s"]),
            f"{found['attempts']:,}",
            found["outcome"],
        ]
        for found in data["longest_waits"]
    ]
    return html.table(head, rows)


def _files(totals: Values) -> str:
    names = (
        "totals.json",
        "report_data.json",
        "jobs.csv",
        "events.csv",
        "events.jsonl",
        "summary.md",
    )
    links = ", ".join(f'<a href="{name}">{name}</a>' for name in names)
    return (
        f'<p class="pale">Beside this page: {links}, figures/. SHA-256 of events.jsonl:'
        f" <code>{totals['log_sha256']}</code></p>"
    )
