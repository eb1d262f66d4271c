"""Lists: what filters let pass, and pages that are stable and good for one query only."""

import base64
import re
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pytest

from scheduler.core import HostState, Job, JobState, State
from scheduler.core.model.commands import LoadTenants, UpdateJob
from scheduler.core.policies.tenants import Tenant, Tenants
from scheduler.service.pagination import tenants_page, windows_page
from scheduler.v1 import service_pb2, window_pb2
from scheduler.wire.lists.filters import (
    DEEPEST,
    LONGEST,
    BadFilter,
    ChoiceField,
    Field,
    MapField,
    NamesField,
    NumberField,
    TextField,
    TimeField,
    parse,
)
from scheduler.wire.lists.listing import Query, hosts, jobs
from scheduler.wire.lists.paging import BadOrder, BadToken, page, parse_order
from tests.build import cancel, cordon, loaded, run, started, submit
from tests.cases import case
from tests.windows import set_window


@dataclass(frozen=True)
class Thing:
    name: str = "a"
    state: str = "RUNNING"
    priority: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    domains: tuple[str, ...] = ()
    start_ns: int = 0
    seen_ns: int | None = None


FIELDS: dict[str, Field] = {
    "name": TextField(lambda thing: thing.name),
    "state": ChoiceField(lambda thing: thing.state, ("QUEUED", "RUNNING"), "STATE_"),
    "priority": NumberField(lambda thing: thing.priority),
    "labels": MapField(lambda thing: thing.labels),
    "domains": NamesField(lambda thing: thing.domains),
    "start": TimeField(lambda thing: thing.start_ns),
    "seen": TimeField(lambda thing: thing.seen_ns),
}
THINGS = (
    Thing("eval-1", "RUNNING", 5, {"team": "nlp", "a/b.c": "x"}, ("z0", "z0-r1"), 60 * 10**9),
    Thing("eval-2", "QUEUED", -1, {"team": "vision"}, ("z1",), seen_ns=1),
    Thing("train", "QUEUED", 10, {}, ("z0",)),
)


def test_what_passes() -> None:
    for text, found in [
        ("", "012"),
        ("   ", "012"),
        ("state = RUNNING", "0"),
        ("state != RUNNING", "12"),
        ('name = "eval-*"', "01"),
        ("name = eval-*", "01"),
        ("name != 'eval-*'", "2"),
        ("name:rai", "2"),
        ('name = "eval-1"', "0"),
        ("name > eval-1", "12"),
        ("priority >= 5", "02"),
        ("priority = -1", "1"),
        ("priority < 0", "1"),
        ("labels.team = nlp", "0"),
        ("labels.team = *", "01"),
        ("labels.team != nlp", "12"),
        ("labels:team", "01"),
        ("NOT labels:team", "2"),
        ("labels.a/b.c = x", "0"),
        ("domains:z0", "02"),
        ("domains:z0-*", "0"),
        ("state = QUEUED AND labels:team", "1"),
        ("state = RUNNING OR priority = 10", "02"),
        # OR binds tighter than AND.
        ("state = QUEUED AND name = train OR name = eval-1", "2"),
        ("(state = QUEUED AND name = train) OR name = eval-1", "02"),
        ("NOT (name = train OR state = RUNNING)", "1"),
        ("NOT NOT name = train", "2"),
        ('start = "1970-01-01T00:01Z"', "0"),
        ('start < "1970-01-01 00:01:00+00:00"', "12"),
        ('start >= "1970-01-01T01:00+01:00"', "012"),
        ("start = 1970-01-01T00:01:00Z", "0"),
        ("start > 1970-01-01T00:00:59.999999999Z AND state = RUNNING", "0"),
        ("start >= 1970-01-01T00:01:00.000000001Z", ""),
        ("seen = 1970-01-01T00:00:00.000000001Z", "1"),
        ("seen > 1970-01-01T00:00Z", "1"),
        ("seen != 1970-01-01T00:00Z", "012"),
        ("seen:*", "1"),
        ("state = STATE_RUNNING", "0"),
        ('name = "*-2"', "1"),
        ("name = *a*", "012"),
        ("name != *n", "01"),
        ("name:*", "012"),
        ("name:ev*", "01"),
        ("labels.team:*", "01"),
        ("labels.team:n*", "0"),
        ("labels.team = *sion", "1"),
        ("NOT labels.team:*", "2"),
        ("labels:*", "01"),
        ("labels:a/*", "0"),
        ("domains:*-r1", "0"),
        (r'name = "\*"', ""),
    ]:
        test = parse(text, FIELDS)
        passed = "".join(str(i) for i, thing in enumerate(THINGS) if test(thing))
        assert (text, passed) == (text, found)


def test_what_is_not_understood_is_refused_with_its_place() -> None:
    for text, message in [
        ("size = 3", "at 1, 'size': is not a field; fields are name, state"),
        ("state = runs", "at 9, 'runs': is not one of QUEUED, RUNNING"),
        ("state < RUNNING", "is compared with = or !="),
        ("priority = many", "is not a whole number"),
        ("priority = ٣", "is not a whole number"),
        ("priority : 3", "a number is not compared with ':'"),
        ("domains = z0", "a list is compared with ':'"),
        ("labels = team", "is compared with ':'"),
        ("name", "at its end: a comparison such as = was expected"),
        ("name =", "at its end: a value was expected"),
        ("name = a name = b", "at 10, 'name': AND, OR or the end was expected"),
        ("name = a AND", "at its end: one of name"),
        ("(name = a", "at its end: a closing parenthesis"),
        ("name = a)", "AND, OR or the end"),
        ("name == a", "a value was expected"),
        ('name = "a', "at 8: '\"' is not understood"),
        ("name = e*1", "a star stands at the begin or at the end of a value"),
        ("name > e*", "a star stands after =, != or ':'"),
        ("labels.team:n*p", "a star stands at the begin or at the end"),
        ("start = yesterday", "must be a date and time such as 2026-11-21T06:00Z"),
        ("start = 1970-01-01T00:01:00.1234567891Z", "must be a date and time"),
        ('start:"1970-01-01T00:01Z"', "a time is not compared with ':'"),
        ("name = a; drop", "at 9: ';' is not understood"),
        ("a" * (LONGEST + 1), "is longer than"),
        ("(" * (DEEPEST + 2) + "name = a", "nested deeper than"),
        ("NOT " * (DEEPEST + 2) + "name = a", "nested deeper than"),
    ]:
        with case(text=text), pytest.raises(BadFilter, match=re.escape(message)):
            parse(text, FIELDS)


def test_a_key_without_a_value_is_there_and_stars_are_part_of_a_value_when_escaped() -> None:
    thing = Thing(labels={"spot": ""})
    found = {text: parse(text, FIELDS)(thing) for text in ("labels.spot:*", "labels.spot:a*")}
    assert found == {"labels.spot:*": True, "labels.spot:a*": False}
    test = parse(r'name = "a \"b\" \\"', FIELDS)
    assert test(Thing('a "b" \\'))
    assert parse(r'name = "\*a"', FIELDS)(Thing("*a"))
    assert not parse(r'name = "\*a"', FIELDS)(Thing("ba"))
    assert parse(r'name = "*\*"', FIELDS)(Thing("ba*"))


# --- pages -----------------------------------------------------------------------


FULL = started(loaded(), submit("big", 8))
TEN = run(FULL, *(submit(f"j{i}", 1 + i % 2) for i in range(10)))
EVERYTHING = Query()


def names(state: State, query: Query = EVERYTHING, size: int = 100, token: str = "") -> list[str]:
    return [job.name for job in jobs(state, query, size, token).items]


def test_pages_put_together_are_the_whole_list() -> None:
    for size in [1, 3, 11, 100]:
        for order in ["", "create_time", "create_time desc", "name", "name desc"]:
            with case(size=size, order=order):
                found, token = list[str](), ""
                while not found or token:
                    page = jobs(TEN, Query(order_by=order), size, token)
                    found, token = [*found, *(job.name for job in page.items)], page.next_token
                expected = ["big", *(f"j{i}" for i in range(10))]
                assert found == (expected[::-1] if order.endswith("desc") else expected)


def test_a_page_in_order_of_arrival_looks_at_its_own_jobs_alone() -> None:
    looked = list[str]()

    def is_seen(job: Job) -> bool:
        looked.append(job.name)
        return True

    for order, step in [("create_time", 1), ("create_time desc", -1)]:
        looked.clear()
        query = Query(frozenset({JobState.QUEUED, JobState.RUNNING}), order_by=order)
        token = jobs(TEN, query, 3, "", is_seen).next_token
        page = jobs(TEN, query, 3, token, is_seen)
        first = ["big", *(f"j{i}" for i in range(10))][::step]
        assert [job.name for job in page.items] == first[3:6]
        assert looked == first[:4] + first[3:7]


def test_a_job_that_goes_takes_no_other_with_it_and_one_that_comes_repeats_none() -> None:
    page = jobs(TEN, Query(order_by="name"), 4, "")
    state = run(TEN, cancel("j2"), submit("a-new"), submit("j2x"))
    rest = names(state, Query(order_by="name"), 100, page.next_token)
    assert [job.name for job in page.items] == ["big", "j0", "j1", "j2"]
    assert rest == ["j2x", "j3", "j4", "j5", "j6", "j7", "j8", "j9"]


def test_a_token_is_good_for_its_own_query_only() -> None:
    token = jobs(TEN, Query(), 2, "").next_token
    with pytest.raises(BadToken):
        hosts(TEN, Query(), 2, token)
    queued = Query(frozenset({JobState.QUEUED}))
    for other in (Query(filter="name = j1"), Query(order_by="name"), queued):
        with case(other=other), pytest.raises(BadToken):
            jobs(TEN, other, 2, token)


def test_a_token_made_by_hand_is_refused_and_shows_nothing_of_what_is_in_it() -> None:
    token = jobs(TEN, Query(), 2, "").next_token
    raw = base64.urlsafe_b64decode(token + "==")
    changed = [raw[:i] + bytes([raw[i] ^ 1]) + raw[i + 1 :] for i in range(len(raw))]
    made = [b"3", b"[]", b"[" * 5_000, raw[:12], raw + b"]", *changed]
    tokens = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in made]
    for other in [*tokens, "é", "x", "=", f" {token}", f"{token}\n"]:
        with pytest.raises(BadToken):
            jobs(TEN, Query(), 2, other)
    token = jobs(TEN, Query(order_by="name"), 2, "").next_token
    assert b"j0" not in base64.urlsafe_b64decode(token + "==")
    assert re.fullmatch(r"[A-Za-z0-9_-]+", token)


def test_an_unknown_order_is_refused() -> None:
    for order, message in [
        ("size", "'size' is not one of create_time, update_time, name"),
        ("name asc desc", "'name asc desc' is not one of"),
        ("name up", "'name up' is not one of"),
        ("desc", "'desc' is not one of"),
        ("name,", "'' is not one of"),
        ("name, priority, name desc", "name is there twice"),
    ]:
        with case(order=order), pytest.raises(BadOrder, match=message):
            jobs(TEN, Query(order_by=order), 2, "")


@pytest.mark.parametrize(
    ("order_by", "key"),
    [
        ("first, second", lambda item: (item[0], item[1], item[2])),
        ("first desc, second asc", lambda item: (-item[0], item[1], item[2])),
        (" second  desc ,first", lambda item: (-item[1], item[0], item[2])),
        ("first,second desc", lambda item: (item[0], -item[1], -item[2])),
    ],
)
def test_several_fields_order_a_list_each_in_its_direction(order_by: str, key: Any) -> None:
    items = [(i % 2, i % 3, i) for i in range(12)]
    fields = {"first": itemgetter(0), "second": itemgetter(1)}
    order = parse_order(order_by, fields, itemgetter(2))
    ordered = list(reversed(items))
    order.sort(ordered)
    assert ordered == sorted(items, key=key)
    for size in (1, 2, 3, 12):
        found, token = list[tuple[int, int, int]](), ""
        while not found or token:
            part = page("things", ordered, order, size, token)
            found, token = [*found, *part.items], part.next_token
        assert found == ordered


def test_jobs_stand_by_priority_and_then_by_name_and_are_found_by_their_times() -> None:
    state = run(FULL, *(submit(f"p{i}", priority=i % 2) for i in range(4)))
    query = Query(filter="state = JOB_STATE_QUEUED", order_by="priority desc, name desc")
    assert names(state, query) == ["p3", "p1", "p2", "p0"]
    assert names(state, query, 3, jobs(state, query, 1, "").next_token) == ["p1", "p2", "p0"]
    state = run(TEN, UpdateJob("j3", ("priority",), priority=7), now_ns=90 * 10**9)
    assert names(state, Query(filter='update_time > "1970-01-01T00:01Z"')) == ["j3"]
    assert names(state, Query(filter='create_time > "1970-01-01T00:01Z"')) == []


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


def window_page(**request: Any) -> service_pb2.ListWindowsResponse:
    return windows_page(BOOKED, service_pb2.ListWindowsRequest(**request))


def windows_of(**request: Any) -> list[str]:
    return [window.name for window in window_page(**request).windows]


def test_windows_are_ordered_and_come_in_pages() -> None:
    for order, found in [
        ("", ["w0", "w1", "w2", "w3", "held"]),
        ("start_time", ["w3", "w2", "w1", "w0", "held"]),
        ("name", ["held", "w0", "w1", "w2", "w3"]),
        ("name desc", ["w3", "w2", "w1", "w0", "held"]),
    ]:
        assert (order, windows_of(order_by=order)) == (order, found)
        token = window_page(order_by=order, page_size=2).next_page_token
        assert windows_of(order_by=order, page_token=token) == found[2:]


def test_windows_are_found_by_what_they_are() -> None:
    for text, found in [
        ("kind = RESERVATION", ["held"]),
        ("hosts:z1-*", ["w1", "w3"]),
        ("tenant = default", ["held"]),
        ('start_time >= "1970-01-01T00:08Z"', ["w0", "w1", "held"]),
        ('end_time = "1970-01-01T00:16Z"', ["held"]),
        ("state = OPEN", []),
    ]:
        assert (text, windows_of(filter=text)) == (text, found)
    assert windows_of(states=[window_pb2.WINDOW_STATE_OPEN]) == []


def test_a_tenant_that_passes_no_more_moves_no_other_off_the_next_page() -> None:
    state = run(loaded(), LoadTenants(Tenants((Tenant("a"), Tenant("b"), Tenant("c")), "a")))
    state = started(state, *(submit(f"{each}/j", tenant=each) for each in "abc"))
    request = service_pb2.ListTenantsRequest(filter="held_gpus > 0", page_size=1)
    first = tenants_page(state, request, 0)
    request.page_token = first.next_page_token
    second = tenants_page(run(state, cancel("a/j")), request, 0)
    assert [t.name for each in (first, second) for t in each.tenants] == ["a", "b"]
