"""Pages: stable while jobs come and go, and good for one query only."""

from __future__ import annotations

import base64
import json

import pytest

from scheduler.core import HostState, JobState, State
from scheduler.core.model.lifecycle import WindowState
from scheduler.wire.listing import BadOrder, BadToken, Query, hosts, jobs, windows
from tests.build import cancel, cordon, loaded, run, started, submit
from tests.windows import remove_window, set_window

FULL = started(loaded(), submit("big", 8))
TEN = run(FULL, *(submit(f"j{i}", 1 + i % 2) for i in range(10)))


EVERYTHING = Query()


def names(state: State, query: Query = EVERYTHING, size: int = 100, token: str = "") -> list[str]:
    return [job.name for job in jobs(state, query, size, token).items]


@pytest.mark.parametrize("order", ["", "create_time", "create_time desc", "name", "name desc"])
@pytest.mark.parametrize("size", [1, 3, 11, 100])
def test_pages_put_together_are_the_whole_list(order: str, size: int) -> None:
    query = Query(order_by=order)
    found: list[str] = []
    page = jobs(TEN, query, size, "")
    found += [job.name for job in page.items]
    while page.next_token:
        page = jobs(TEN, query, size, page.next_token)
        found += [job.name for job in page.items]
    expected = ["big", *(f"j{i}" for i in range(10))]
    assert found == (expected[::-1] if order.endswith("desc") else expected)


def test_a_job_that_goes_takes_no_other_with_it_and_one_that_comes_repeats_none() -> None:
    page = jobs(TEN, Query(order_by="name"), 4, "")
    state = run(TEN, cancel("j2"), submit("a-new"), submit("j2x"))
    rest = names(state, Query(order_by="name"), 100, page.next_token)
    assert [job.name for job in page.items] == ["big", "j0", "j1", "j2"]
    assert rest == ["j2x", "j3", "j4", "j5", "j6", "j7", "j8", "j9"]


def test_a_filter_and_states_narrow_the_list() -> None:
    query = Query(frozenset({JobState.QUEUED}), 'name = "j*" AND NOT name = j3')
    assert names(TEN, query) == [f"j{i}" for i in range(10) if i != 3]


@pytest.mark.parametrize(
    "other",
    [
        Query(filter="name = j1"),
        Query(order_by="name"),
        Query(frozenset({JobState.QUEUED})),
    ],
)
def test_a_token_is_good_for_its_own_query_only(other: Query) -> None:
    token = jobs(TEN, Query(), 2, "").next_token
    with pytest.raises(BadToken):
        jobs(TEN, other, 2, token)
    with pytest.raises(BadToken):
        hosts(TEN, Query(), 2, token)


def test_a_token_made_by_hand_is_refused() -> None:
    digest = Query().digest
    forged: list[object] = [
        *(["jobs", digest], ["jobs", digest, "x"], ["jobs", digest, None], ["jobs", digest, []]),
        *({}, 3, "jobs", [["jobs"], digest, 1], "[" * 5_000),
    ]
    tokens = [json.dumps(parts) if parts != "[" * 5_000 else str(parts) for parts in forged]
    for token in [*(base64.urlsafe_b64encode(t.encode()).decode() for t in tokens), "é", "x", "="]:
        with pytest.raises(BadToken):
            jobs(TEN, Query(), 2, token)


@pytest.mark.parametrize("order", ["size", "name asc desc", "name up", "desc"])
def test_an_unknown_order_is_refused(order: str) -> None:
    with pytest.raises(BadOrder, match="must be create_time or name"):
        jobs(TEN, Query(order_by=order), 2, "")


def test_hosts_are_found_by_state_domain_and_job() -> None:
    state = run(TEN, cordon("z1-r0-h0"))

    def found(query: Query) -> list[str]:
        page = hosts(state, query, 100, "")
        return [state.loaded_fabric.hosts[host.index] for host in page.items]

    assert found(Query(filter="state = CORDONED")) == ["z1-r0-h0"]
    assert found(Query(filter="domains:z1-r0")) == ["z1-r0-h0", "z1-r0-h1"]
    assert found(Query(filter='job = ""')) == []
    assert len(found(Query(job="big"))) == 8
    assert found(Query(frozenset({HostState.FAILED}))) == []


BOOKED = run(
    loaded(),
    *(set_window(f"w{i}", f"z{i % 2}", start_s=60 * (9 - i), end_s=900) for i in range(4)),
    set_window("held", "z0-r0-h0", start_s=900, end_s=960, tenant="default"),
)


def windows_of(state: State, query: Query = EVERYTHING, token: str = "") -> list[str]:
    return [booking.window.name for booking in windows(state, query, 9, token).items]


@pytest.mark.parametrize("order", ["", "start_time", "name", "name desc"])
def test_pages_of_windows_put_together_are_the_whole_list(order: str) -> None:
    query, found = Query(order_by=order), list[str]()
    page = windows(BOOKED, query, 2, "")
    found += [b.window.name for b in page.items]
    while page.next_token:
        page = windows(BOOKED, query, 2, page.next_token)
        found += [b.window.name for b in page.items]
    expected = {
        "": ["w0", "w1", "w2", "w3", "held"],
        "start_time": ["w3", "w2", "w1", "w0", "held"],
        "name": ["held", "w0", "w1", "w2", "w3"],
        "name desc": ["w3", "w2", "w1", "w0", "held"],
    }
    assert found == expected[order]


def test_a_window_that_goes_between_pages_hides_no_other() -> None:
    page = windows(BOOKED, Query(), 2, "")
    after = run(BOOKED, remove_window("w1"), set_window("late", "z1"))
    assert windows_of(after, token=page.next_token) == ["w2", "w3", "held", "late"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind = RESERVATION", ["held"]),
        ("hosts:z1-*", ["w1", "w3"]),
        ("tenant = default", ["held"]),
        ('start_time >= "1970-01-01T00:08Z"', ["w0", "w1", "held"]),
        ('end_time = "1970-01-01T00:16Z"', ["held"]),
        ("state = OPEN", []),
    ],
)
def test_windows_are_found_by_what_they_are(text: str, found: list[str]) -> None:
    assert windows_of(BOOKED, Query(filter=text)) == found
    assert windows_of(BOOKED, Query(frozenset({WindowState.OPEN}))) == []


def test_a_token_of_jobs_is_none_of_windows() -> None:
    with pytest.raises(BadToken):
        windows(BOOKED, Query(), 2, jobs(TEN, Query(), 2, "").next_token)
