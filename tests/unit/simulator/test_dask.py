"""A sweep over a Dask cluster: the same points."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.files.errors import InputError
from simulator import sweep
from simulator.experiment_file import load_experiment_file
from simulator.pool import run_all
from tests.studies import write

pytest.importorskip("distributed", reason="needs Dask (the extra dask)")

# A cluster of its own process: its threads outlive what pytest takes for the end of a test.
CLUSTER = """\
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


@pytest.mark.slow
def test_points_are_those_of_one_process(tmp_path: Path) -> None:
    grid = load_experiment_file(str(write(tmp_path)))
    here, there = sweep.PointStore(tmp_path / "here"), sweep.PointStore(tmp_path / "there")
    waiting, _ = sweep.split(grid, here)
    sweep.run_points(waiting[:3], here, 1)
    script = tmp_path / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        try:
            assert cluster.stdout is not None
            sweep.run_points(waiting[:3], there, 1, cluster.stdout.readline().strip())
        finally:
            cluster.communicate("\n")

    for point in waiting[:3]:
        one, two = here.get(point.name), there.get(point.name)
        assert one is not None
        assert two is not None
        assert one["totals"]["log_sha256"] == two["totals"]["log_sha256"]


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.pool.CONNECT_S", 0.2)

    with pytest.raises(InputError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1"):
        list(run_all(str, ["a"], 1, "tcp://127.0.0.1:1"))
