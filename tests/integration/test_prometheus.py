"""A real Prometheus scrapes a real `muster serve`; every query of the dashboard is run."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from scheduler.client import Client, ServiceError
from scheduler.v1 import job_pb2
from scripts.dashboard import DASHBOARD
from tests.build import exactly, spec
from tests.e2e.processes import ServerProcess, free_port

PROMETHEUS = shutil.which("prometheus")
RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "muster.rules.yml"
RANGE = "30s"  # what Grafana would put for $__rate_interval

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not here (Debian: apt install prometheus)"
)


class Prometheus:
    """A server of its own, scraping one address five times a second."""

    def __init__(self, folder: Path, target: str) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "200ms", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "muster", "static_configs": [{"targets": [target]}]}],
        }
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(config), encoding="utf-8")
        assert PROMETHEUS is not None
        command = [PROMETHEUS, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
        command += [f"--web.listen-address={self._url.removeprefix('http://')}"]
        with (folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def get(self, path: str, **query: str) -> Any:
        """The data of an answer. Raises: URLError, also for a query that fails."""
        with urlopen(f"{self._url}/api/v1/{path}?{urlencode(query)}", timeout=60) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        return list(self.get("query", query=expr)["result"])

    def until(self, expr: str) -> None:
        """Return once the query has a result; fails after a minute."""
        for _ in range(600):
            try:
                if self.query(expr):
                    return
            except URLError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"nothing came of {expr}")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


def load(address: str) -> None:
    """A job that starts, one that waits, a failure with its swap, an end, a refusal."""
    with Client(address) as client:
        client.create_job(spec("a", 3, spares=exactly(1)))
        client.create_job(spec("b", 12, dp=12))
        _until(client, "a", 1)
        client.report_host(client.get_job("a").placement.hosts[0], "nic-down")
        _until(client, "a", 2)
        client.create_job(spec("c", 16))
        client.report_link("z1", 0.5)
        client.end_job("a", job_pb2.JOB_STATE_COMPLETED)
        with pytest.raises(ServiceError):
            client.get_job("nobody")


def _until(client: Client, name: str, attempt: int) -> None:
    for _ in range(6_000):
        job = client.get_job(name)
        if job.attempt == attempt and job.state == job_pb2.JOB_STATE_RUNNING:
            return
        time.sleep(0.01)
    raise AssertionError(f"{name} does not run")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has seen a server before and after its load."""
    folder = tmp_path_factory.mktemp("prometheus")
    target = f"127.0.0.1:{free_port()}"
    muster = ServerProcess(folder)
    muster.start("--metrics", target, "--metrics-per-job")
    found = Prometheus(folder, target)
    try:
        found.until("muster_ready == 1")
        load(muster.address)
        # Rates need two scrapes after the load: three have seen the job that has ended.
        found.until('sum_over_time(muster_jobs_ended_total{outcome="completed"}[5m]) >= 3')
        yield found
    finally:
        found.stop()
        muster.end()


def _queries() -> list[tuple[str, str]]:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return [(p["title"], t["expr"]) for p in panels for t in p.get("targets", ())]


def test_every_query_of_the_dashboard_has_data(prometheus: Prometheus) -> None:
    empty = []
    for title, expr in _queries():
        asked = expr.replace("$__rate_interval", RANGE).replace("$job", "muster")
        assert "$" not in asked
        if not prometheus.query(asked):
            empty.append((title, asked))
    assert not empty


def test_the_variable_of_the_dashboard_finds_the_job(prometheus: Prometheus) -> None:
    assert prometheus.get("label/job/values", **{"match[]": "muster_build_info"}) == ["muster"]


def test_rules_are_loaded_and_evaluated(prometheus: Prometheus) -> None:
    for _ in range(600):
        groups = prometheus.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        if all(rule["health"] != "unknown" for rule in rules):
            break
        time.sleep(0.1)
    assert {rule["health"] for rule in rules} == {"ok"}
    assert len(rules) > 10


def test_the_numbers_are_those_of_the_server(prometheus: Prometheus) -> None:
    def value(expr: str) -> float:
        (found,) = prometheus.query(expr)
        return float(found["value"][1])

    assert value("sum(muster_hosts)") == 16
    assert value('sum(muster_hosts{state="failed"})') == 1
    assert value('muster_host_failures_total{signal="nic-down"}') == 1
    assert value('sum(muster_gpus{use="running"})') == 12 * 8
    assert value('muster_jobs{state="queued"}') == 1
    assert value("muster_log_version") == value("sum(muster_events_total)") + 1  # the fabric
