"""`muster stragglers` on a live job: who is slow, and the report of it."""

from __future__ import annotations

import json
from pathlib import Path

from scheduler.v1 import host_pb2, service_pb2
from tests.integration.test_verbs import muster
from tests.serving import RUNNING, create, serving


async def test_a_slow_host_is_found_and_reported(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a", hosts=4))
        job = await served.until("a", RUNNING)
        slow = job.placement.hosts[2]
        rows = [
            f"{step},{rank},{1.15 if 16 <= rank < 24 else 1 + 0.001 * ((rank + step) % 7)}"
            for step in range(6)
            for rank in range(32)
        ]
        times = tmp_path / "times.csv"
        times.write_text("step,rank,seconds\n" + "\n".join(rows) + "\n")
        for _ in range(3):
            done = await muster(served, "stragglers", "a", str(times), "--report", "-o", "json")
            assert done.exit_code == 0, done.output
        (suspect,) = json.loads(done.output.splitlines()[0])["suspects"]
        assert (suspect["kind"], suspect["name"]) == ("host", slow)
        assert suspect["confidence"] > 0.99
        host = await served.stub.GetHost(service_pb2.GetHostRequest(name=slow))
        assert host.state == host_pb2.HOST_STATE_RETIRING  # three in an hour: docs/lifecycle.md
        assert "straggler" in host.reason
        assert list((await served.get("a")).straggler_hosts) == [slow]
        table = await muster(served, "stragglers", "a", str(times))
        assert f"host  {slow}" in table.output
        times.write_text("step,rank,seconds\n1,99,1\n")
        wrong = await muster(served, "stragglers", "a", str(times))
        assert (wrong.exit_code, "has rank 99" in wrong.output) == (1, True), wrong.output
