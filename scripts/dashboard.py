"""Write deploy/grafana/muster.json from panels.py; --check says whether it is current."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from scripts.panels import ROWS, Panel, Query

DASHBOARD = Path(__file__).parent.parent / "deploy" / "grafana" / "muster.json"
WIDTH, HEIGHT = 24, 8
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """The whole file."""
    return {
        "title": "muster",
        "uid": "muster",
        "tags": ["muster"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_datasource(), _jobs()]},
        "panels": list(_panels()),
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
    }


def _jobs() -> dict[str, Any]:
    return {
        "name": "job",
        "label": "Cluster",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": "label_values(muster_build_info, job)", "refId": "job"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    """Rows of panels, three abreast; six numbers in the first."""
    ids, y = count(1), 0
    for title, panels in ROWS.items():
        yield {"id": next(ids), "type": "row", "title": title, "gridPos": _at(0, y, WIDTH, 1)}
        y += 1
        is_stat = panels[0].kind == "stat"
        width, height = (4, 4) if is_stat else (8, HEIGHT)
        for place, panel in enumerate(panels):
            x = place * width % WIDTH
            row = y + place * width // WIDTH * height
            yield {"id": next(ids), "gridPos": _at(x, row, width, height), **_panel(panel)}
        y += -(-len(panels) * width // WIDTH) * height


def _at(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stack else "none"}
        custom = {
            "fillOpacity": 30 if panel.stack else 0,
            "stacking": stacking,
            "showPoints": "never",
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "targets": list(_targets(panel.queries)),
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0, "custom": custom},
            "overrides": [],
        },
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}} if panel.kind == "stat" else {},
    }


def _targets(queries: Sequence[Query]) -> Iterator[dict[str, Any]]:
    for letter, query in zip("ABCDEFGH", queries, strict=False):
        yield {
            "refId": letter,
            "datasource": _DATASOURCE,
            "expr": query.expr,
            "legendFormat": query.legend or "__auto",
        }


def text() -> str:
    return json.dumps(dashboard(), indent=2) + "\n"


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        DASHBOARD.write_text(text(), encoding="utf-8")
        return 0
    is_current = DASHBOARD.read_text(encoding="utf-8") == text()
    if not is_current:
        print("deploy/grafana/muster.json is old: run python -m scripts.dashboard")
    return 0 if is_current else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
