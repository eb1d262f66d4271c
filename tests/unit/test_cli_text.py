"""Numbers as people read them: a unit that fits, three or four digits."""

import pytest

from scheduler.cli.render.messages import answer_text, tenants_table, to_mapping
from scheduler.cli.render.text import gbps_text, seconds_text
from scheduler.v1 import advice_pb2, job_pb2, placement_pb2, service_pb2, tenant_pb2
from scheduler.wire.durations import duration, duration_of_ns


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (4e-9, "< 0.01 us"),
        (2.5e-6, "2.5 us"),
        (0.0123, "12.3 ms"),
        (0.99949, "999 ms"),
        (0.99951, "1 s"),
        (999.4, "999 s"),
        (999.6, "16.7 min"),
        (7_199, "120 min"),
        (7_200, "2 h"),
        (44_800, "12.4 h"),
        (172_800, "2 d"),
        (4.48e10, "518,519 d"),
    ],
)
def test_seconds(seconds: float, told: str) -> None:
    assert seconds_text(seconds) == told


@pytest.mark.parametrize(
    ("gbps", "told"),
    [
        (400, "400 Gbit/s"),
        (999.96, "1,000 Gbit/s"),
        (3_200, "3.2 Tbit/s"),
        (409_600, "409.6 Tbit/s"),
        (4_915_200, "4,915 Tbit/s"),
    ],
)
def test_bandwidths(gbps: float, told: str) -> None:
    assert gbps_text(gbps) == told


def test_a_tenant_whose_parent_a_filter_leaves_out_stands_at_the_left() -> None:
    found = [
        tenant_pb2.Tenant(name="vision", parent="research"),
        tenant_pb2.Tenant(name="video", parent="vision"),
    ]
    rows = tenants_table(found, "default").text(found).splitlines()

    assert [row.partition("  0 ")[0].rstrip() for row in rows[1:]] == ["vision", "  video"]


# --- what the CLI makes of messages --------------------------------------------------


def test_durations_are_numbers_with_their_unit_in_the_key() -> None:
    job = job_pb2.Job(spec=job_pb2.JobSpec(name="a", time_limit=duration(90), labels={"k": "v"}))
    job.spec.checkpoint.interval.CopyFrom(duration(600))
    job.goodput.parts.add(duration=duration_of_ns(3_000_001))
    found = to_mapping(job)
    assert (found["spec"]["time_limit_s"], found["spec"]["labels"]) == ("90", {"k": "v"})
    assert found["spec"]["checkpoint"] == {"interval_s": "600", "peers": 0, "keep": 0, "store": ""}
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
