"""An ML engineer's week with real processes: from submit to the last checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from placement.workload.request import NO_SPARES
from scheduler.core.model.job_array import parse_array
from scheduler.files.job import job_to_mapping
from scheduler.v1 import job_pb2
from tests.e2e.gangs import begins_at, gang, is_launched, local_server, until
from tests.e2e.processes import muster

COMPLETED, FAILED = job_pb2.JOB_STATE_COMPLETED, job_pb2.JOB_STATE_FAILED


def test_a_job_that_is_submitted_again_goes_on_where_the_last_one_was(tmp_path: Path) -> None:
    with local_server(tmp_path, racks=1, hosts=2, lease_s=15) as (server, client):
        short = gang("a", tmp_path, 1, steps=20, spares=NO_SPARES)
        client.create_job(short)
        done = until(client, "a", lambda job: job.state == COMPLETED)
        again = client.create_job(gang("a", tmp_path, 1, steps=40, spares=NO_SPARES))
        assert (again.lineage.resume.step, again.lineage.resume.job_uid) == (20, done.uid)
        until(client, "a", lambda job: job.uid == again.uid and job.state == COMPLETED)
        assert begins_at(client, "a") == 20
        shown = muster("job", "a", address=server.address).stdout
        assert "a: goes on from step 40, which job a saved" in shown
        (tmp_path / "again.yaml").write_text(yaml.safe_dump(job_to_mapping(short)))
        file = str(tmp_path / "again.yaml")
        anew = muster("submit", file, "--new-run", address=server.address)
        assert "a: begins at step 0" in anew.stdout
        until(client, "a", lambda job: job.uid != again.uid and job.state == COMPLETED)
        assert begins_at(client, "a") == 0


def test_a_chain_of_limited_jobs_is_one_run(tmp_path: Path) -> None:
    """What a task saved in the grace after its limit is where the next one begins."""
    with local_server(tmp_path, racks=1, hosts=1, lease_s=15) as (_, client):
        chain = gang("a", tmp_path, 1, steps=10**6, spares=NO_SPARES, limit_s=3)
        client.create_job(replace(chain, array=parse_array("0-1%1")))
        until(client, "a-0", lambda job: job.state == FAILED)
        saved = client.get_job("a-0").saved_checkpoint.step
        until(client, "a-1", is_launched(1))
        until(client, "a-1", lambda _: b"from step" in b"".join(client.tail_logs("a-1")))
        assert begins_at(client, "a-1") >= saved > 0
