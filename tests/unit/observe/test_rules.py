"""The alert rules, by promtool: each fires when it should, and not when it should not."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.observe.catalogue import METRICS, PER_JOB, MetricKind
from scripts import dashboard
from tests.cases import case

DEPLOY = Path(__file__).resolve().parents[3] / "deploy" / "prometheus"
RULES = DEPLOY / "muster.rules.yml"
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not here (Debian: apt install prometheus)"
)

GROUPS = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS: list[dict[str, Any]] = [rule for group in GROUPS for rule in group["rules"]]


@dataclass(frozen=True)
class Case:
    """`series`: by minute, in promtool's notation, with $ for what differs. `fires`, `silent`: what
    stands there where the alert fires at the time `at`, and where it does not; "" without a $."""

    alert: str
    at: str
    series: dict[str, str]
    fires: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()


FREE, RUNNING = 'muster_gpus{use="free"}', 'muster_gpus{use="running"}'
OLDEST, STARTED = "muster_oldest_wait_seconds", 'muster_events_total{type="JobStarted"}'
STUCK = {OLDEST: "0+60x180", STARTED: "5x180", FREE: "50x180", RUNNING: "50x180"}
DISK = {
    'node_filesystem_avail_bytes{mountpoint="/var/lib/postgresql"}': "$x60",
    'node_filesystem_size_bytes{mountpoint="/var/lib/postgresql"}': "100x60",
    'node_filesystem_avail_bytes{mountpoint="/"}': "1x60",
    'node_filesystem_size_bytes{mountpoint="/"}': "100x60",
}
DECIDED = 'muster_stage_seconds_count{stage="decide"}'
DECISIONS = {"muster_log_version": "0+5x60", DECIDED: "7x60", "muster_leader": "1x60"}
SPARES = {"muster_spare_hosts": "0x60", FREE: "0x60", RUNNING: "8x60"}
APPENDS = {  # 60 a minute, some of which take longer than 0.25 s
    f'muster_stage_seconds_bucket{{stage="append",le="{le}"}}': values
    for le, values in {"0.05": "$", "0.25": "$", "1.0": "0+60x60", "+Inf": "0+60x60"}.items()
}
RPC, LEADER = 'muster_rpc_total{code="%s"}', 'muster_leader{instance="%s"}'
FAILED = {'muster_hosts{state="healthy"}': "1000x60", "muster_host_failures_total": "$"}
CALLS = {RPC % "OK": "0+90x60", RPC % "UNKNOWN": "0+$x60"}
REFUSED = {'muster_withheld_hosts{cause="refused"}': "1x20 $x40"}
EXPIRES = {'muster_credential_expiry_seconds{kind="token"}': "$-60x60"}
FORBIDDEN = {'muster_refused_messages_total{door="kubernetes"}': "$x10 3x60"}
COMMITS = {
    "muster_commit_conflicts_total": "0+$x60",
    'muster_stage_seconds_count{stage="commit"}': "0+10x60",
}
CASES = [
    Case("MusterDown", "3m", {'up{job="muster"}': "1 1 0x9"}, silent=("",)),
    Case("MusterDown", "5m", {'up{job="muster"}': "1 1 0x9"}, fires=("",)),
    Case("MusterDown", "9m", {'up{job="other"}': "0x9"}, silent=("",)),
    Case("MusterNotReady", "6m", {"muster_ready": "$"}, ("0x20",), ("0 0 1x20",)),
    Case("MusterNoLeader", "5m", {LEADER % "a": "0x9", LEADER % "b": "$x9"}, ("0",), ("1",)),
    Case("MusterTwoLeaders", "5m", {LEADER % "a": "1x9", LEADER % "b": "$x9"}, ("1",), ("0",)),
    Case("MusterCallsFail", "30m", CALLS, ("10",), ("2",)),
    Case(
        "MusterWatchesLag", "9m", {"muster_watch_lag_changes": "6000 6000 $x20"}, ("6000",), ("0",)
    ),
    Case("MusterLogSlow", "30m", APPENDS, ("0+54x60",), ("0+60x60",)),
    Case(
        "MusterStoreNearFull", "30m", {"muster_store_disk_used_ratio": "$x60"}, ("0.96",), ("0.94",)
    ),
    Case("MusterStoreNearFull", "60m", {"muster_store_free_bytes": "9e9-20e6x60"}, fires=("",)),
    Case("MusterStoreNearFull", "30m", DISK, ("4",), ("6",)),
    Case("MusterQueueStuck", "90m", STUCK, fires=("",)),
    Case("MusterQueueStuck", "90m", STUCK | {FREE: "5x180", RUNNING: "95x180"}, silent=("",)),
    Case("MusterQueueStuck", "90m", STUCK | {STARTED: "0+1x180"}, silent=("",)),
    Case("MusterQueueStuck", "90m", STUCK | {OLDEST: "600x180"}, silent=("",)),
    Case("MusterDecisionsStopped", "40m", DECISIONS | {"muster_leader": "$x60"}, ("1",), ("0",)),
    Case("MusterDecisionsStopped", "40m", DECISIONS | {DECIDED: "0+1x60"}, silent=("",)),
    Case("MusterHostsRefused", "40m", REFUSED, ("1",), ("0",)),
    Case("MusterCredentialExpires", "20m", EXPIRES, ("1000000",), ("2000000", "-9000000")),
    Case("MusterApiForbids", "20m", FORBIDDEN, ("0",), ("3",)),
    Case("MusterNoSpareInZone", "20m", SPARES | {RUNNING: "$x60"}, ("8",), ("0",)),
    Case("MusterNoSpareInZone", "20m", SPARES | {"muster_spare_hosts": "1x60"}, silent=("",)),
    Case("MusterNoSpareInZone", "20m", SPARES | {FREE: "8x60"}, silent=("",)),
    Case("MusterConflicts", "50m", COMMITS, ("3",), ("1",)),
    Case("MusterFailureStorm", "12m", FAILED, ("0x9 5x50",), ("0x9 1x50",)),
    Case("MusterFailureStorm", "40m", FAILED, silent=("0x9 5x50",)),
]


def _tests(tried: Case) -> Iterator[dict[str, Any]]:
    firing = f'count(ALERTS{{alertname="{tried.alert}",alertstate="firing"}}) or vector(0)'
    for fires, values in ((1, tried.fires), (0, tried.silent)):
        for value in values:
            yield {
                "interval": "1m",
                "name": f"{tried.alert} {tried.at} {fires} {value}",
                "input_series": [
                    {"series": name, "values": series.replace("$", value)}
                    for name, series in tried.series.items()
                ],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": tried.at, "exp_samples": [{"value": fires}]}
                ],
            }


def _promtool(*arguments: str) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_rules_and_configuration_are_sound(tmp_path: Path) -> None:
    """The configuration also with the keys that it has as comments, for TLS and a token."""
    text = (DEPLOY / "prometheus.yml").read_text(encoding="utf-8")
    for name in ("muster-token", "muster-ca.pem"):
        (tmp_path / name).write_text("")
        text = text.replace(f"/etc/prometheus/{name}", str(tmp_path / name))
    every_key = tmp_path / "prometheus.yml"
    every_key.write_text(re.sub(r"(?m)^    # ( *[a-z_]+:.*)$", r"    \1", text))
    shutil.copy(RULES, tmp_path)
    _promtool("check", "rules", str(RULES))
    _promtool("check", "config", str(DEPLOY / "prometheus.yml"))
    _promtool("check", "config", str(every_key))
    (scrape,) = yaml.safe_load(every_key.read_text(encoding="utf-8"))["scrape_configs"]
    assert {"scheme", "authorization", "tls_config"} <= set(scrape)


@pytest.mark.slow
@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [test for each in CASES for test in _tests(each)],
    }
    file = tmp_path / "rules.test.yml"
    file.write_text(yaml.safe_dump(tests), encoding="utf-8")
    _promtool("test", "rules", str(file))


def test_every_alert_has_a_case_of_each_kind_and_says_what_and_what_to_do() -> None:
    names = {rule["alert"] for rule in ALERTS}
    assert {each.alert for each in CASES if each.fires} == names
    assert {each.alert for each in CASES if each.silent} == names
    for rule in ALERTS:
        with case(rule=rule):
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert rule["annotations"]["summary"]
            assert len(rule["annotations"]["runbook"].split()) > 15


# --- deploy/grafana/muster.json is what its script writes, and Grafana can read it ---


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
    expected = """
        build_info cut_off_hosts fabric_info ready credential_expiry_seconds refused_messages_total
        replay_seconds store_disk_used_ratio task_restarts_total withheld_hosts
        writer_queue_entries placements_total host_repairs_total host_signals_total
    """
    assert left_out == {f"muster_{name}" for name in expected.split()}


@needs_promtool
def test_replicas_of_a_cluster_count_once_and_clusters_add_up(tmp_path: Path) -> None:
    """Two clusters of two servers each: 3 jobs wait in one, 4 in the other."""
    labels = 'job="{}",instance="{}",tenant="t",state="queued"'
    series = [
        {"series": f"muster_jobs{{{labels.format(job, server)}}}", "values": f"{jobs}x10"}
        for job, jobs in {"a": 3, "b": 4}.items()
        for server in range(2)
    ]
    panels = json.loads(dashboard.text())["panels"]
    (target,) = next(panel["targets"] for panel in panels if panel["title"] == "Jobs waiting")
    asked = {
        "expr": target["expr"].replace("$job", ".*"),
        "eval_time": "5m",
        "exp_samples": [{"labels": "{}", "value": 7}],
    }
    file = tmp_path / "dashboard.test.yml"
    tests = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [asked]}]}
    file.write_text(yaml.safe_dump(tests), encoding="utf-8")
    _promtool("test", "rules", str(file))
