"""Tables of lists: which columns, in which order, and how wide."""

import pytest

from scheduler.cli.render.messages import host_ranges, host_text, hosts_text, jobs_table
from scheduler.cli.render.tables import Column, ListTable, View
from scheduler.core.names import HIDDEN
from scheduler.v1 import host_pb2, job_pb2, placement_pb2

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


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        (["priority"], ["a", "bb"]),
        (["-priority"], ["bb", "a"]),
        (["hosts"], ["a", "bb"]),
        (["tenant", "-name"], ["bb", "a"]),
    ],
)
def test_numbers_sort_by_value(keys: list[str], names: list[str]) -> None:
    assert [job.name for job in jobs_table(JOBS).order(JOBS, keys)] == names


def test_an_unknown_column_is_named_beside_those_that_there_are() -> None:
    with pytest.raises(KeyError, match="'colour' is not one of name, tenant, user, state"):
        shown(View(names=("colour",)))


@pytest.mark.parametrize("width", [100, 120, 150])
def test_free_text_is_cut_to_fit_a_terminal(width: int) -> None:
    lines = shown(View(width=width))
    assert max(map(len, lines)) == width
    assert lines[2].endswith("...")


def test_nothing_but_free_text_is_cut() -> None:
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


def test_a_host_of_a_gang_that_has_no_block_is_a_spare() -> None:
    host = host_pb2.Host(name="h1", state=host_pb2.HOST_STATE_HEALTHY, job="a")
    assert hosts_text([host]).splitlines()[1].split()[:5] == ["h1", "healthy", "-", "a", "spare"]


def test_a_host_of_a_job_that_the_caller_may_not_see_is_called_no_spare() -> None:
    host = host_pb2.Host(name="h1", state=host_pb2.HOST_STATE_HEALTHY, job=HIDDEN)
    assert hosts_text([host]).splitlines()[1].split()[:5] == ["h1", "healthy", "-", HIDDEN, "-"]
    (row,) = [row for row in host_text(host).splitlines() if row.startswith("job")]
    assert row.split() == ["job", HIDDEN]
