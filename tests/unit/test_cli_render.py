"""What the CLI makes of messages: the keys of its JSON."""

from __future__ import annotations

from scheduler.cli.render.messages import answer_text, to_mapping
from scheduler.v1 import advice_pb2, job_pb2, placement_pb2, service_pb2
from scheduler.wire.durations import duration, duration_of_ns


def test_durations_are_numbers_with_their_unit_in_the_key() -> None:
    job = job_pb2.Job(spec=job_pb2.JobSpec(name="a", time_limit=duration(90), labels={"k": "v"}))
    job.spec.checkpoint.interval.CopyFrom(duration(600))
    job.goodput.parts.add(duration=duration_of_ns(3_000_001))
    found = to_mapping(job)
    assert (found["spec"]["time_limit_s"], found["spec"]["labels"]) == ("90", {"k": "v"})
    assert found["spec"]["checkpoint"] == {"interval_s": "600", "peers": 0}
    assert found["goodput"]["parts"][0]["time_ns"] == "3000001"
    spares = service_pb2.ListSparesResponse(mean_repair_duration=duration(5_400))
    assert to_mapping(spares)["repair_hours"] == 1.5


def test_no_passing_time_limit_is_zero() -> None:
    assert to_mapping(advice_pb2.Reason())["passing_time_limit_s"] == "0"
    found = to_mapping(advice_pb2.Reason(passing_time_limit=duration(60)))
    assert found["passing_time_limit_s"] == "60"


def test_a_dry_run_says_whom_it_would_stop() -> None:
    answer = placement_pb2.Answer(
        outcome=placement_pb2.OUTCOME_PLACED, preempted_jobs=2, shrunk_jobs=1
    )
    rows = [row.split(maxsplit=1) for row in answer_text(answer).splitlines()]
    assert rows == [["outcome", "placed"], ["preempts", "2 jobs"], ["shrinks", "1 job"]]
