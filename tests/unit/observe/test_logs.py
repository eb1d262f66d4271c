"""Records as lines, for people and for programs."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scheduler.observe.logs import LogFormat, LogLevel, configure
from scheduler.v1 import service_pb2
from tests.serving import RUNNING, create, refused, serving


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.root
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


Captured = pytest.CaptureFixture[str]


def _records(capsys: Captured) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_record_is_an_object_with_its_facts(capsys: Captured) -> None:
    configure(LogFormat.JSON, LogLevel.INFO)
    logging.getLogger("muster.x").info("said\nso", extra={"version": 7, "job": "a"})
    (record,) = _records(capsys)
    assert record.pop("time").endswith("Z")
    said = {"level": "info", "logger": "muster.x", "message": "said\nso"}
    assert record == {**said, "version": 7, "job": "a"}


def test_text_stays_on_its_line(capsys: Captured) -> None:
    configure(LogFormat.TEXT, LogLevel.INFO)
    extra = {"version": 7, "job": "a b", "actor": "eve\nroot"}
    logging.getLogger("muster.x").info("one\ntwo", extra=extra)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith('INFO muster.x: one\\ntwo; version=7 job="a b" actor="eve\\nroot"')


def test_a_traceback_is_one_string_and_what_is_less_grave_is_left_out(capsys: Captured) -> None:
    configure(LogFormat.JSON, LogLevel.WARNING)
    logging.getLogger("muster.x").info("no")
    logging.getLogger("muster.x").warning("yes")
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("muster.x").exception("a bug")
    said, record = _records(capsys)
    assert said["message"] == "yes"
    assert "ValueError: broken" in record["traceback"]


async def test_every_event_and_every_call_that_is_refused_is_a_record(
    tmp_path: Path, capsys: Captured
) -> None:
    configure(LogFormat.JSON, LogLevel.INFO)
    async with serving(tmp_path) as served:
        await served.stub.CreateJob(create("a", request_id="secret-of-the-request"))
        job = await served.until("a", RUNNING)
        host = job.placement.hosts[0]
        await served.stub.CordonHost(service_pb2.CordonHostRequest(name=host))
        await refused(served.stub.GetJob(service_pb2.GetJobRequest(name="nobody")))
        await served.stub.ListHosts(service_pb2.ListHostsRequest())
    records = _records(capsys)
    events = [record for record in records if record["logger"] == "muster.log"]
    assert [(r["version"], r["event"], r.get("job"), r.get("host")) for r in events] == [
        (2, "JobSubmitted", "a", None),
        (3, "JobStarted", "a", None),
        (4, "HostMoved", None, host),
    ]
    assert [record["actor"] for record in events] == ["anonymous", "scheduler", "anonymous"]
    assert all(record["duration_ms"] > 0 for record in events)
    assert "secret" not in json.dumps(records)
    (call,) = [record for record in records if record["logger"] == "muster.rpc"]
    assert (call["method"], call["code"]) == ("SchedulerService/GetJob", "NOT_FOUND")
    assert (call["job"], call["actor"]) == ("nobody", "anonymous")
    assert call["message"].startswith("SchedulerService/GetJob NOT_FOUND: no job 'nobody'")
