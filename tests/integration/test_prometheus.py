"""A real Prometheus scrapes a real `muster serve`; every query of the dashboard is run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
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
from tests.serving import RUNNING
from tests.waiting import wait_until

PROMETHEUS = shutil.which("prometheus")
RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "muster.rules.yml"
RANGE = "30s"  # what Grafana would put for $__rate_interval

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="prometheus is not here (Debian: apt install prometheus)"
)


class Prometheus:
    """A server of its own, scraping one address ten times a second."""

    def __init__(self, folder: Path, target: str) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "100ms", "evaluation_interval": "1s"},
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
        """Return once the query has a result."""

        def has_come() -> bool:
            with suppress(URLError):
                return bool(self.query(expr))
            return False

        wait_until(has_come, within_s=60)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)


def load(address: str) -> None:
    """A job that starts, one that waits, a failure with its swap, an end, a refusal."""
    with Client(address) as client:
        client.create_job(spec("a", 3, spares=exactly(1)))
        client.create_job(spec("b", 12, dp=12))
        wait_until(lambda: client.get_job("a").state == RUNNING)
        client.report_host(client.get_job("a").placement.hosts[0], "nic-down")
        wait_until(lambda: client.get_job("a").attempt == 2)
        client.create_job(spec("c", 16))
        client.report_link("z1", 0.5)
        client.end_job("a", job_pb2.JOB_STATE_COMPLETED)
        with pytest.raises(ServiceError):
            client.get_job("nobody")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One that has seen a server before and after its load."""
    folder = tmp_path_factory.mktemp("prometheus")
    target = f"127.0.0.1:{free_port()}"
    found = Prometheus(folder, target)
    muster = ServerProcess(folder)
    muster.start("--metrics", target, "--metrics-per-job")
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
    assert prometheus.get("label/job/values", **{"match[]": "muster_build_info"}) == ["muster"]


def test_rules_are_loaded_and_evaluated(prometheus: Prometheus) -> None:
    def healths() -> list[str]:
        groups = prometheus.get("rules")["groups"]
        found = [rule["health"] for group in groups for rule in group["rules"]]
        return found if "unknown" not in found else []

    found = wait_until(healths, within_s=60)
    assert ({*found}, len(found) > 10) == ({"ok"}, True)
