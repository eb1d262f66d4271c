"""Sweeps and twins over a Dask cluster: the same answers."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scheduler.cli.program import load_commands
from simulator import study
from simulator.experiment_file import load_experiment_file
from simulator.pool import run_all
from tests.commands import invoke
from tests.refusals import refusal
from tests.studies import write
from tests.twins import backup

pytest.importorskip("distributed", reason="needs Dask (the extra dask)")

# A cluster of its own process: its threads outlive what pytest takes for the end of a test.
CLUSTER = """\
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@contextmanager
def dask_cluster(folder: Path) -> Iterator[str]:
    """The address of its scheduler."""
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        try:
            yield cluster.stdout.readline().strip()
        finally:
            cluster.communicate("\n")


@pytest.mark.slow
def test_points_are_those_of_one_process(tmp_path: Path) -> None:
    grid = load_experiment_file(str(write(tmp_path)))
    stores = [study.PointStore(tmp_path / name) for name in ("here", "two", "dask")]
    waiting, _ = study.split(grid, stores[0])
    with dask_cluster(tmp_path) as address:
        for store, processes, dask in zip(stores, (1, 2, 1), (None, None, address), strict=True):
            study.run_points(waiting[:2], store, processes, dask)

    for point in waiting[:2]:
        logs = [(store.get(point.name) or {})["totals"]["log_sha256"] for store in stores]
        assert len(set(logs)) == 1


@pytest.mark.slow
def test_runs_of_a_twin_are_those_of_one_process(tmp_path: Path) -> None:
    backup(tmp_path / "lab.db")
    load_commands()
    asked = ["twin", "--from", str(tmp_path / "lab.db"), "--change", "spares 1 a zone"]
    asked += ["--horizon", "2d", "--seeds", "2", "--format", "json", "--processes"]

    here, two = (invoke(*asked, count) for count in ("1", "2"))
    assert not here.stderr
    assert two.stdout == here.stdout
    assert "4 runs in " in two.stderr
    with dask_cluster(tmp_path) as address:
        there = invoke(*asked, "1", "--dask", address)
    assert there.stdout == here.stdout
    assert "times as fast as one process" in there.stderr


def test_a_scheduler_that_is_not_there_or_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.pool.CONNECT_S", 0.2)

    def told() -> str:
        return refusal(lambda: list(run_all(str, ["a"], 1, "tcp://127.0.0.1:1")))

    assert "no scheduler answers at tcp://127.0.0.1:1" in told()
    monkeypatch.setattr("simulator.pool.importlib.util.find_spec", lambda _: None)
    assert "--dask: needs Dask, which is not installed" in told()
