"""The alert rules, by promtool: each fires when it should, and not when it should not."""

import json
import re
import shutil
import subprocess
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
    """Series by minute, in promtool's notation, and how many alerts fire when."""

    alert: str
    fires: int
    at: str
    series: dict[str, str]


def _all(name: str, values: str, *label_sets: str) -> dict[str, str]:
    return {f'{name}{{job="m",instance="i"{labels}}}': values for labels in label_sets or ("",)}


def _zone(spare: int, free: int, running: int) -> dict[str, str]:
    return {
        **_all("muster_spare_hosts", f"{spare}x60", ',zone="z0"'),
        **_all("muster_gpus", f"{free}x60", ',zone="z0",use="free"'),
        **_all("muster_gpus", f"{running}x60", ',zone="z0",use="running"'),
    }


def _withheld(values: str) -> dict[str, str]:
    return _all("muster_withheld_hosts", values, ',source="slurm",cause="refused"')


def _postgres_disk(free: int) -> dict[str, str]:
    disks = {
        **_all("node_filesystem_avail_bytes", f"{free}x60", ',mountpoint="/var/lib/postgresql"'),
        **_all("node_filesystem_size_bytes", "100x60", ',mountpoint="/var/lib/postgresql"'),
    }
    root = _all("node_filesystem_avail_bytes", "1x60", ',mountpoint="/"')
    return {**disks, **root, **_all("node_filesystem_size_bytes", "100x60", ',mountpoint="/"')}


def _expiry(values: str) -> dict[str, str]:
    return _all("muster_credential_expiry_seconds", values, ',kind="token"')


def _forbidden(values: str) -> dict[str, str]:
    return _all("muster_refused_messages_total", values, ',door="kubernetes"')


def _stuck(wait_s: str, starts: str, free: int) -> dict[str, str]:
    return {
        **_all("muster_oldest_wait_seconds", wait_s, ',tenant="t"'),
        **_all("muster_events_total", starts, ',type="JobStarted"'),
        **_all("muster_gpus", f"{free}x180", ',zone="z0",use="free"'),
        **_all("muster_gpus", f"{100 - free}x180", ',zone="z0",use="running"'),
    }


def _appends(slow: int) -> dict[str, str]:
    """60 appends a minute, so many of which take longer than 0.25 s."""
    name = "muster_stage_seconds_bucket"
    return {
        **_all(
            name, f"0+{60 - int(slow)}x60", ',stage="append",le="0.05"', ',stage="append",le="0.25"'
        ),
        **_all(name, "0+60x60", ',stage="append",le="1.0"', ',stage="append",le="+Inf"'),
    }


def _plans(conflicts: int) -> dict[str, str]:
    return {
        **_all("muster_commit_conflicts_total", f"0+{conflicts}x60"),
        **_all("muster_stage_seconds_count", "0+10x60", ',stage="commit"'),
    }


def _failures(values: str) -> dict[str, str]:
    return {
        **_all("muster_host_failures_total", values, ',signal="nic-down"'),
        **_all("muster_hosts", "1000x60", ',zone="z0",state="healthy"'),
    }


def _decisions(decided: str, leader: int = 1) -> dict[str, str]:
    return {
        **_all("muster_log_version", "0+5x60"),
        **_all("muster_stage_seconds_count", decided, ',stage="decide"'),
        **_all("muster_leader", f"{leader}x60"),
    }


def _leaders(*values: str) -> dict[str, str]:
    return {f'muster_leader{{job="m",instance="i{n}"}}': v for n, v in enumerate(values)}


def _calls(unknown: int) -> dict[str, str]:
    name = "muster_rpc_total"
    return _all(name, "0+90x60", ',code="OK"') | _all(name, f"0+{unknown}x60", ',code="UNKNOWN"')


CASES = [
    Case("MusterDown", 0, "3m", {'up{job="muster",instance="a"}': "1 1 0x9"}),
    Case("MusterDown", 1, "5m", {'up{job="muster",instance="a"}': "1 1 0x9"}),
    Case("MusterDown", 0, "9m", {'up{job="other",instance="a"}': "0x9"}),
    Case("MusterNotReady", 1, "6m", _all("muster_ready", "0x20")),
    Case("MusterNotReady", 0, "6m", _all("muster_ready", "0 0 1x20")),
    Case("MusterNoLeader", 1, "5m", _leaders("0x9", "0x9")),
    Case("MusterNoLeader", 0, "5m", _leaders("0x9", "1x9")),
    Case("MusterTwoLeaders", 1, "5m", _leaders("1x9", "1x9")),
    Case("MusterTwoLeaders", 0, "5m", _leaders("1x9", "0x9")),
    Case("MusterCallsFail", 1, "30m", _calls(unknown=10)),
    Case("MusterCallsFail", 0, "30m", _calls(unknown=2)),
    Case("MusterWatchesLag", 1, "9m", _all("muster_watch_lag_changes", "6000x20")),
    Case("MusterWatchesLag", 0, "9m", _all("muster_watch_lag_changes", "6000 6000 0x20")),
    Case("MusterLogSlow", 1, "30m", _appends(slow=6)),
    Case("MusterLogSlow", 0, "30m", _appends(slow=0)),
    Case("MusterStoreNearFull", 1, "30m", _all("muster_store_disk_used_ratio", "0.96x60")),
    Case("MusterStoreNearFull", 0, "30m", _all("muster_store_disk_used_ratio", "0.94x60")),
    Case("MusterStoreNearFull", 1, "60m", _all("muster_store_free_bytes", "9e9-20e6x60")),
    Case("MusterStoreNearFull", 1, "30m", _postgres_disk(free=4)),
    Case("MusterStoreNearFull", 0, "30m", _postgres_disk(free=6)),
    Case("MusterQueueStuck", 1, "90m", _stuck("0+60x180", "5x180", free=50)),
    Case("MusterQueueStuck", 0, "90m", _stuck("0+60x180", "5x180", free=5)),
    Case("MusterQueueStuck", 0, "90m", _stuck("0+60x180", "0+1x180", free=50)),
    Case("MusterQueueStuck", 0, "90m", _stuck("600x180", "5x180", free=50)),
    Case("MusterDecisionsStopped", 1, "40m", _decisions("7x60")),
    Case("MusterDecisionsStopped", 0, "40m", _decisions("0+1x60")),
    Case("MusterDecisionsStopped", 0, "40m", _decisions("7x60", leader=0)),
    Case("MusterHostsRefused", 1, "40m", _withheld("1x60")),
    Case("MusterHostsRefused", 0, "40m", _withheld("1x20 0x40")),
    Case("MusterCredentialExpires", 1, "20m", _expiry("1000000-60x60")),
    Case("MusterCredentialExpires", 0, "20m", _expiry("2000000-60x60")),
    Case("MusterCredentialExpires", 0, "20m", _expiry("-9000000-60x60")),
    Case("MusterApiForbids", 1, "20m", _forbidden("0x10 3x60")),
    Case("MusterApiForbids", 0, "20m", _forbidden("3x60")),
    Case("MusterNoSpareInZone", 1, "20m", _zone(spare=0, free=0, running=8)),
    Case("MusterNoSpareInZone", 0, "20m", _zone(spare=1, free=0, running=8)),
    Case("MusterNoSpareInZone", 0, "20m", _zone(spare=0, free=8, running=8)),
    Case("MusterNoSpareInZone", 0, "20m", _zone(spare=0, free=0, running=0)),
    Case("MusterConflicts", 1, "50m", _plans(conflicts=3)),
    Case("MusterConflicts", 0, "50m", _plans(conflicts=1)),
    Case("MusterFailureStorm", 1, "12m", _failures("0x9 5x50")),
    Case("MusterFailureStorm", 0, "12m", _failures("0x9 1x50")),
    Case("MusterFailureStorm", 0, "40m", _failures("0x9 5x50")),
]


def _test(case: Case) -> dict[str, Any]:
    firing = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "name": f"{case.alert} {case.at} {case.fires}",
        "input_series": [{"series": name, "values": v} for name, v in case.series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": case.at, "exp_samples": [{"value": case.fires}]}
        ],
    }


def _promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=60)


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
    for kind, path in (
        ("rules", RULES),
        ("config", DEPLOY / "prometheus.yml"),
        ("config", every_key),
    ):
        done = _promtool("check", kind, str(path))
        assert done.returncode == 0, done.stdout + done.stderr
    (scrape,) = yaml.safe_load(every_key.read_text(encoding="utf-8"))["scrape_configs"]
    assert {"scheme", "authorization", "tls_config"} <= set(scrape)


@pytest.mark.slow
@needs_promtool
def test_alerts_fire_when_they_should(tmp_path: Path) -> None:
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": list(map(_test, CASES)),
    }
    file = tmp_path / "rules.test.yml"
    file.write_text(yaml.safe_dump(tests), encoding="utf-8")
    done = _promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_case_of_each_kind() -> None:
    names = {rule["alert"] for rule in ALERTS}
    for fires in (0, 1):
        assert {case.alert for case in CASES if case.fires == fires} == names


def test_every_alert_says_what_and_what_to_do() -> None:
    for rule in ALERTS:
        with case(rule=rule):
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert rule["annotations"]["summary"]
            assert len(rule["annotations"]["runbook"].split()) > 15


# --- deploy/grafana/muster.json is what its script writes, and Grafana can read it ---


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
        "muster_credential_expiry_seconds",
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
