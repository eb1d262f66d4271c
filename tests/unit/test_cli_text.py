"""What people read: numbers with a unit that fits, messages, and tables of lists."""

import pytest

from scheduler.cli.render.messages import (
    answer_text,
    host_ranges,
    host_text,
    hosts_text,
    job_text,
    jobs_table,
    tenants_table,
    to_mapping,
)
from scheduler.cli.render.tables import Column, ListTable, View
from scheduler.cli.render.text import gbps_text, seconds_text
from scheduler.core.names import HIDDEN
from scheduler.v1 import advice_pb2, host_pb2, job_pb2, placement_pb2, service_pb2, tenant_pb2
from scheduler.wire.durations import duration, duration_of_ns


def test_seconds() -> None:
    for seconds, told in {
        0: "0 s",
        4e-9: "< 0.01 us",
        2.5e-6: "2.5 us",
        0.0123: "12.3 ms",
        0.99949: "999 ms",
        0.99951: "1 s",
        999.6: "16.7 min",
        7_199: "120 min",
        7_200: "2 h",
        44_800: "12.4 h",
        172_800: "2 d",
        4.48e10: "518,519 d",
    }.items():
        assert seconds_text(seconds) == told


def test_bandwidths() -> None:
    for gbps, told in {
        400: "400 Gbit/s",
        999.96: "1,000 Gbit/s",
        3_200: "3.2 Tbit/s",
        4_915_200: "4,915 Tbit/s",
    }.items():
        assert gbps_text(gbps) == told


def test_a_job_shows_its_time_limit() -> None:
    job = job_pb2.Job(spec=job_pb2.JobSpec(time_limit=duration(7_200)))
    assert "time limit  2 h" in job_text(job)
    assert "time limit" not in job_text(job_pb2.Job())


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
    reasons = advice_pb2.Reason(), advice_pb2.Reason(passing_time_limit=duration(60))
    assert [to_mapping(each)["passing_time_limit_s"] for each in reasons] == ["0", "60"]


def test_a_dry_run_says_whom_it_would_stop() -> None:
    answer = placement_pb2.Answer(
        outcome=placement_pb2.OUTCOME_PLACED, preempted_jobs=2, shrunk_jobs=1
    )
    rows = [row.split(maxsplit=1) for row in answer_text(answer).splitlines()]
    assert rows == [["outcome", "placed"], ["preempts", "2 jobs"], ["shrinks", "1 job"]]


# --- tables of lists: which columns, in which order, and how wide --------------------

RUNNING, QUEUED = job_pb2.JOB_STATE_RUNNING, job_pb2.JOB_STATE_QUEUED
JOBS = [
    job_pb2.Job(
        name="a",
        tenant="nlp",
        state=RUNNING,
        priority=9,
        placement=placement_pb2.Placement(host_count=1_024, hosts=["h01", "h02", "h03"]),
    ),
    job_pb2.Job(name="bb", tenant="nlp", state=QUEUED, priority=100, reason="waits " * 20),
]


def shown(view: View, jobs: list[job_pb2.Job] = JOBS) -> list[str]:
    return jobs_table(jobs).text(jobs, view).splitlines()


def test_columns_are_those_that_are_named_in_this_order() -> None:
    lines = shown(View(names=("state", "host-list", "HOSTS", "name")))
    assert [line.split() for line in lines] == [
        ["STATE", "HOST", "LIST", "HOSTS", "NAME"],
        ["running", "h[01-03]", "1,024", "a"],
        ["queued", "-", "-", "bb"],
    ]


def test_users_are_a_column_where_a_job_has_one_or_where_it_is_wide() -> None:
    assert "USER" not in shown(View())[0]
    assert "USER" in shown(View(is_wide=True))[0]
    assert "USER" in shown(View(), [job_pb2.Job(name="a", user="ada")])[0]


def test_headers_may_be_left_out() -> None:
    assert [line.split()[0] for line in shown(View(has_heads=False))] == ["a", "bb"]
    assert shown(View(has_heads=False), []) == []
    assert shown(View(), []) == ["no jobs"]


def test_numbers_sort_by_value() -> None:
    for keys, names in (
        (["priority"], ["a", "bb"]),
        (["-priority"], ["bb", "a"]),
        (["hosts"], ["a", "bb"]),
        (["tenant", "-name"], ["bb", "a"]),
    ):
        assert [job.name for job in jobs_table(JOBS).order(JOBS, keys)] == names


def test_an_unknown_column_is_named_beside_those_that_there_are() -> None:
    with pytest.raises(KeyError, match="'colour' is not one of name, tenant, user, state"):
        shown(View(names=("colour",)))


def test_free_text_alone_is_cut_to_fit_a_terminal() -> None:
    for width in (100, 120, 150):
        lines = shown(View(width=width))
        assert max(map(len, lines)) == width
        assert lines[2].endswith("...")
    lines = shown(View(width=20))
    assert lines[2].endswith("  waits wai...")
    assert "1,024" in lines[1]


def test_a_terminal_shows_states_in_colours() -> None:
    lines = shown(View(is_coloured=True))
    assert "\x1b[32mrunning\x1b[0m" in lines[1]
    assert "\x1b" not in lines[0]
    plain = ListTable((Column("NAME", str), Column("STATE", str)), "none")
    assert "\x1b" not in plain.text(["odd"], View(is_coloured=True))


def test_hosts_are_shown_as_ranges() -> None:
    assert host_ranges([f"z0-r001-h{n:02}" for n in range(1, 17)]) == "z0-r001-h[01-16]"
    assert host_ranges([]) == "-"
    racks = [f"r{n}-h{m}" for n in range(10) for m in (1, 3)]
    assert host_ranges(racks).endswith(",r7-h[1,3] and 2 more ranges")


def test_a_host_of_a_gang_that_has_no_block_is_a_spare_unless_its_job_is_hidden() -> None:
    for job, block in (("a", "spare"), (HIDDEN, "-")):
        host = host_pb2.Host(name="h1", state=host_pb2.HOST_STATE_HEALTHY, job=job)
        assert f"job    {job}\n" in host_text(host)
        assert (f"block  {block}\n" in host_text(host)) is (block != "-")
        assert hosts_text([host]).splitlines()[1].split()[:5] == ["h1", "healthy", "-", job, block]
