"""deploy/grafana/muster.json is what its script writes, and Grafana can read it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from scheduler.observe.catalogue import METRICS, PER_JOB, MetricKind
from scripts import dashboard


def _panels() -> list[dict[str, object]]:
    return list(json.loads(dashboard.text())["panels"])


def test_the_committed_file_is_current() -> None:
    assert dashboard.DASHBOARD.read_text(encoding="utf-8") == dashboard.text()


def test_panels_have_their_own_numbers_and_do_not_overlap() -> None:
    panels = json.loads(dashboard.text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= dashboard.WIDTH
        cells = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & taken
        taken |= cells


def test_every_metric_asked_for_is_in_the_catalogue_and_most_are_asked_for() -> None:
    known = {metric.name for metric in METRICS}
    for metric in METRICS:
        if metric.kind is MetricKind.HISTOGRAM:
            known |= {f"{metric.name}_{end}" for end in ("bucket", "sum", "count")}
    asked = set(re.findall(r"\bmuster_\w+", dashboard.text())) - {"muster_build_info"}
    assert asked <= known
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    left_out = {m.name for m in METRICS} - bare - {m.name for m in PER_JOB}
    assert left_out == {
        "muster_build_info",
        "muster_cut_off_hosts",
        "muster_fabric_info",
        "muster_ready",
        "muster_refused_messages_total",
        "muster_replay_seconds",
        "muster_store_disk_used_ratio",
        "muster_task_restarts_total",
        "muster_withheld_hosts",
        "muster_writer_queue_entries",
        "muster_placements_total",
        "muster_host_repairs_total",
        "muster_host_signals_total",
    }


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not here (Debian: apt install prometheus)"
)
def test_replicas_of_a_cluster_count_once_and_clusters_add_up(tmp_path: Path) -> None:
    """Two clusters of two servers each: 3 jobs wait in one, 4 in the other."""
    wait = {"a": 3, "b": 4}
    series = [
        {
            "series": f'muster_jobs{{job="{job}",instance="{i}",tenant="t",state="queued"}}',
            "values": f"{jobs}x10",
        }
        for job, jobs in wait.items()
        for i in range(2)
    ]
    (expr,) = [
        target["expr"]
        for panel in json.loads(dashboard.text())["panels"]
        if panel["title"] == "Jobs waiting"
        for target in panel["targets"]
    ]
    asked = {
        "expr": expr.replace("$job", ".*"),
        "eval_time": "5m",
        "exp_samples": [{"labels": "{}", "value": 7}],
    }
    file = tmp_path / "dashboard.test.yml"
    tests = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}]}
    file.write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
