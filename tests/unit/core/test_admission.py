"""How commands are admitted: what is refused, updates, etags and retries."""

from dataclasses import replace

import pytest

from placement.workload.request import Collective
from scheduler.core import Code, HostState, State, replay
from scheduler.core.admission.etag import host_etag, job_etag
from scheduler.core.model import requests
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    HoldJob,
    LoadTenants,
    MoveHost,
    MoveLink,
    ReleaseJob,
    ReportHost,
    RequeueJob,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.events import (
    JobEnded,
    JobsReserved,
    JobSubmitted,
    JobUpdated,
    RequestAnswered,
)
from scheduler.core.model.lifecycle import HostMove, JobState, LinkMove
from scheduler.core.model.requests import RequestId, parse_request_id
from scheduler.core.policies.tenants import PriorityClass, Tenant, Tenants
from tests.build import (
    admitted,
    cancel,
    cordon,
    drain,
    end,
    exactly,
    fabric,
    fail,
    job,
    loaded,
    refused,
    repair,
    request,
    run,
    spec,
    started,
    submit,
    uncordon,
)
from tests.windows import set_window

EMPTY = loaded(fabric(2, 2, 2))  # 8 hosts
A_RUNS = started(EMPTY, submit("a", 4))
A_STOPPED = run(A_RUNS, fail("z0-r0-h0"))
A_ENDED = run(A_RUNS, end("a"))


def with_spec(**changes: object) -> SubmitJob:
    return replace(submit("a"), spec=replace(spec("a"), **changes))  # type: ignore[arg-type]


def test_a_submit_is_one_event() -> None:
    (event,) = admitted(EMPTY, submit("a", 2, request_id="r1"), 7)
    assert event == JobSubmitted(7, "uid-a", spec("a", 2), event.request_id)
    assert parse_request_id(event.request_id).id == "r1"


@pytest.mark.parametrize("name", ["a", "A1", "llama-3.1_405b", "9", "x" * 128])
def test_good_names(name: str) -> None:
    assert admitted(EMPTY, submit(name))


@pytest.mark.parametrize("name", ["", " a", "a b", "-a", "a-", ".", "a\n", "ä", "x" * 129, "a/b/c"])
def test_bad_names(name: str) -> None:
    answer = refused(EMPTY, submit(name))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["name"]


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (with_spec(time_limit_s=0), "time_limit_s"),
        (with_spec(time_limit_s=-5), "time_limit_s"),
        (with_spec(request=request(tp=4, dp=3)), "parallelism"),
        (with_spec(request=request(tp=8, dp=2, traffic={"dp": -1})), "traffic.dp"),
        (
            with_spec(request=request(pp=8, collectives={"pp": Collective.HIERARCHICAL})),
            "collectives.pp",
        ),
    ],
)
def test_invalid_jobs_name_the_field(command: SubmitJob, field: str) -> None:
    answer = refused(EMPTY, command)
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == [field]
    assert answer.message == f"{field}: {answer.violations[0].message}"


@pytest.mark.parametrize("state", [run(EMPTY, submit("a", 4)), A_RUNS, A_STOPPED])
def test_a_live_job_can_be_cancelled(state: State) -> None:
    (event,) = admitted(state, cancel("a"), 5)
    has_started = state.jobs["a"].attempt > 0
    assert event == JobEnded(5, "a", JobState.CANCELLED, has_started=has_started)


@pytest.mark.parametrize("outcome", [JobState.COMPLETED, JobState.FAILED])
def test_an_ended_job_cannot_be_cancelled(outcome: JobState) -> None:
    answer = refused(run(A_RUNS, end("a", outcome)), cancel("a"))
    assert answer.code is Code.PRECONDITION
    assert f"already {outcome}" in answer.message


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (A_ENDED, end("a", JobState.FAILED)),
        (run(EMPTY, submit("a")), end("a")),
        (A_RUNS, end("a", attempt=2)),
        (A_ENDED, end("a", attempt=2)),
    ],
    ids=["other outcome", "queued", "attempt to come", "ended before"],
)
def test_an_end_that_cannot_be(state: State, command: EndJob) -> None:
    assert refused(state, command).code is Code.PRECONDITION


@pytest.mark.parametrize("outcome", [JobState.CANCELLED, JobState.QUEUED, JobState.RUNNING])
def test_an_outcome_is_completed_or_failed(outcome: JobState) -> None:
    answer = refused(A_RUNS, end("a", outcome))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["outcome"]


H = "z0-r0-h0"


@pytest.mark.parametrize("move", [HostMove.EMPTY, HostMove.FAIL, HostMove.REPAIR])
def test_operators_cordon_uncordon_and_drain(move: HostMove) -> None:
    answer = refused(EMPTY, MoveHost(H, move))
    assert answer.code is Code.INVALID
    assert [v.field for v in answer.violations] == ["move"]


@pytest.mark.parametrize(
    ("before", "again"),
    [
        ([cordon(H)], cordon(H)),
        ([], uncordon(H)),
        ([fail(H)], fail(H, "nic-down")),
        ([], repair(H)),
        ([cordon(H)], repair(H)),
        ([drain(H)], drain(H)),
        ([cordon(H)], drain(H)),
    ],
)
def test_what_is_already_so_changes_nothing(before: list[Command], again: Command) -> None:
    """A cordoned host without a gang is drained."""
    assert admitted(run(EMPTY, *before), again) == ()


def test_draining_a_spare_cordons_it() -> None:
    state = started(EMPTY, submit("a", 2, spares=exactly(1)))
    (spare,) = job(state, "a").spares
    name = state.loaded_fabric.hosts[spare]
    assert run(state, drain(name)).host(spare).state is HostState.CORDONED


# --- updates ---------------------------------------------------------------------


FULL = started(EMPTY, submit("big", 8))
WAITING = run(FULL, submit("a", 2), submit("b", 2), now_ns=5)
LABELS = (("team", "nlp"),)


def update(name: str = "b", **changes: object) -> UpdateJob:
    return UpdateJob(name, tuple(changes), **changes)  # type: ignore[arg-type]


def test_a_larger_priority_moves_a_job_to_the_front() -> None:
    state = run(WAITING, update(priority=7), now_ns=9)
    assert state.index.queue == ("b", "a")
    job = state.jobs["b"]
    assert (job.priority, job.spec.priority, job.update_ns) == (7, 7, 9)
    assert (job.sequence, job.state_ns) == (WAITING.jobs["b"].sequence, 5)


def test_only_the_fields_that_are_named_change() -> None:
    event = UpdateJob("b", ("time_limit_s",), priority=7, time_limit_s=60, labels=LABELS)
    job = run(WAITING, event).jobs["b"]
    assert (job.spec.time_limit_s, job.spec.priority, job.spec.labels) == (60, 0, ())


def test_a_time_limit_can_be_taken_back() -> None:
    state = run(WAITING, update(time_limit_s=60), update(time_limit_s=None))
    assert state.jobs["b"].spec.time_limit_s is None


def test_single_labels_change_and_go_and_the_rest_stay() -> None:
    before = (("mine", "1"), ("old", "2"), ("team", "nlp"))
    given = (("new", "3"), ("not-named", "4"), ("team", "vision"))
    command = UpdateJob("big", (), labels=given, label_keys=("new", "old", "team"))
    state = run(FULL, update("big", labels=before), command)
    assert state.jobs["big"].spec.labels == (("mine", "1"), ("new", "3"), ("team", "vision"))


def test_a_label_more_than_a_job_may_have_is_refused() -> None:
    full = tuple((f"k{i:02}", "") for i in range(64))
    state = run(FULL, update("big", labels=full))
    one_more = UpdateJob("big", (), labels=(("x", ""),), label_keys=("x",))
    assert refused(state, one_more).violations[0].field == "labels"
    swapped = UpdateJob("big", (), labels=(("x", ""),), label_keys=("x", "k00"))
    assert len(run(state, swapped).jobs["big"].spec.labels) == 64


def test_labels_of_a_running_job_change_and_nothing_else_of_it() -> None:
    state = run(FULL, update("big", labels=LABELS))
    assert state.jobs["big"].spec.labels == LABELS
    assert replace(state.jobs["big"], spec=FULL.jobs["big"].spec) == FULL.jobs["big"]
    answer = refused(FULL, update("big", priority=1))
    assert answer.code is Code.PRECONDITION
    assert "only labels" in answer.message


def test_what_is_so_already_is_no_event() -> None:
    assert admitted(WAITING, update(priority=0, labels=())) == ()


@pytest.mark.parametrize(
    ("command", "code", "field"),
    [
        (update("nobody", priority=1), Code.NOT_FOUND, None),
        (update(time_limit_s=0), Code.INVALID, "time_limit_s"),
        (update(priority_class="gold"), Code.INVALID, "priority_class"),
        (UpdateJob("b", ("tenant",)), Code.INVALID, "tenant"),
        (update("gone", labels=LABELS), Code.PRECONDITION, None),
    ],
)
def test_bad_updates(command: UpdateJob, code: Code, field: str | None) -> None:
    state = run(WAITING, submit("gone"), cancel("gone"))
    answer = refused(state, command)
    assert answer.code is code
    assert [v.field for v in answer.violations] == ([field] if field else [])


def test_a_class_and_a_priority_are_not_both_kept() -> None:
    tenants = Tenants((Tenant("default"),), classes=(PriorityClass("gold", 9),))
    state = run(WAITING, LoadTenants(tenants))
    state = run(state, update(priority_class="gold"))
    assert state.jobs["b"].priority == 9
    assert [v.field for v in refused(state, update(priority=1)).violations] == ["priority"]
    assert run(state, update(priority=1, priority_class="")).jobs["b"].priority == 1


def test_a_job_that_may_no_longer_borrow_must_fit_what_its_tenant_can_have() -> None:
    tenants = Tenants(
        (Tenant("other", guaranteed_gpus=56), Tenant("default")),
        classes=(PriorityClass("spot", 0, is_preemptible=True),),
    )
    state = run(EMPTY, LoadTenants(tenants), submit("s", 4, priority_class="spot"))
    assert refused(state, update("s", priority_class="")).code is Code.INFEASIBLE


def test_an_update_makes_a_promise_to_the_job_void_but_labels_do_not() -> None:
    state = replay([JobsReserved(0, (("a", 50), ("b", 60)))], WAITING)
    assert dict(run(state, update(labels=LABELS)).reserved) == {"a": 50, "b": 60}
    assert dict(run(state, update(time_limit_s=9)).reserved) == {"a": 50}
    assert dict(run(state, update(priority=9)).reserved) == {"a": 50}


def test_an_update_is_one_event_with_the_whole_specification() -> None:
    (event,) = admitted(WAITING, replace(update(labels=LABELS), request_id="r"), 3)
    spec = replace(WAITING.jobs["b"].spec, labels=LABELS)
    assert event == JobUpdated(3, "b", spec, event.request_id)


# --- etags -------------------------------------------------------------------------


def etag(state: State, name: str) -> str:
    job = state.find(name)
    assert job is not None
    return job_etag(job)


def test_every_kind_of_change_gives_a_job_another_etag() -> None:
    state = run(EMPTY, submit("a", 2, spares=exactly(1)))
    tags = [etag(state, "a")]
    waiting = run(state, update("a", labels=LABELS), now_ns=1)
    tags.append(etag(waiting, "a"))
    tags.append(etag(run(waiting, update("a", labels=()), now_ns=1), "a"))  # the same moment
    state = started(waiting)
    tags.append(etag(state, "a"))
    names = state.loaded_fabric.names(state.jobs["a"].spares)
    state = run(state, fail(names[0]))
    tags.append(etag(state, "a"))
    names = state.loaded_fabric.names(state.jobs["a"].hosts)
    state = run(state, fail(names[0]))
    tags.append(etag(state, "a"))
    state = started(state)
    tags.append(etag(state, "a"))
    tags.append(etag(run(state, end("a")), "a"))
    assert len(set(tags)) == len(tags)


def test_what_happens_to_others_leaves_an_etag_alone() -> None:
    assert etag(run(WAITING, cancel("b"), cordon("z0-r0-h0")), "a") == etag(WAITING, "a")


def test_the_current_etag_is_taken() -> None:
    assert admitted(WAITING, CancelJob("b", etag=etag(WAITING, "b")))
    name = WAITING.loaded_fabric.hosts[0]
    tag = host_etag(name, WAITING.host(0), WAITING.holders(0))
    assert admitted(WAITING, MoveHost(name, HostMove.CORDON, etag=tag))


LOCKED = update("a", labels=(("lock", "held"),))
WINDOW = set_window("w", "z1", start_s=3_600, end_s=7_200)
LINK = MoveLink("z0", LinkMove.CORDON)
DONE = run(
    *(WAITING, cancel("b"), cordon("z0-r0-h0"), LOCKED, submit("c"), HoldJob("c"), submit("d", 8)),
    *(LINK, WINDOW, EndJob("big", JobState.FAILED)),
)


@pytest.mark.parametrize(
    "command",
    [
        CancelJob("b", etag="0"),
        replace(LOCKED, etag="0"),
        EndJob("big", JobState.FAILED, etag="0"),
        HoldJob("c", etag="0"),
        ReleaseJob("a", etag="0"),
        RequeueJob("d", etag="0"),
        MoveHost("z0-r0-h0", HostMove.CORDON, etag="0"),
        MoveHost("z0-r0-h1", HostMove.UNCORDON, etag="0"),
        replace(LINK, etag="0"),
        replace(WINDOW, etag="0"),
        replace(WINDOW, is_change=True, etag="0"),
    ],
    ids=str,
)
def test_a_stale_etag_is_refused_although_nothing_would_change(command: Command) -> None:
    """Else two clients that set one value on one etag would both be told that they have it."""
    assert admitted(DONE, replace(command, etag="")) == ()
    answer = refused(DONE, command)
    assert answer.code is Code.STALE
    assert "has changed since" in answer.message


def test_a_retry_by_its_request_id_does_not_trip_over_its_own_change() -> None:
    command = CancelJob("b", etag=etag(WAITING, "b"), request_id="r")
    assert admitted(run(WAITING, command), command) == ()
    assert refused(run(WAITING, command), replace(command, request_id="")).code is Code.STALE


# --- retries -----------------------------------------------------------------------

RETRIED: list[Command] = [
    ReportHost("z0-r0-h0", "link-flap", request_id="r"),
    ReportHost("z0-r0-h0", "gpu-lost", request_id="r"),
    MoveHost("z0-r0-h0", HostMove.CORDON, request_id="r"),
    MoveHost("z0-r0-h0", HostMove.DRAIN, request_id="r"),
    CancelJob("b", request_id="r"),
    EndJob("big", JobState.FAILED, request_id="r"),
    replace(update(priority=2), request_id="r"),
    submit("c", 2, request_id="r"),
]


@pytest.mark.parametrize("command", RETRIED, ids=lambda command: type(command).__name__)
def test_a_request_that_was_carried_out_does_nothing_again(command: Command) -> None:
    """And an id that did something else is refused."""
    state = run(WAITING, command)
    assert state.version > WAITING.version
    assert admitted(state, command) == ()
    used = run(WAITING, ReportHost("z1-r1-h1", "thermal", request_id="r"))
    answer = refused(used, command)
    assert answer.code is Code.INVALID
    assert answer.violations[0].field == "request_id"
    assert "thermal z1-r1-h1" in answer.message


def test_a_request_that_changed_nothing_is_remembered() -> None:
    """Else its repeat would end the next job of that name, or heal a host that failed since."""
    gone = run(WAITING, cancel("b"))
    again = CancelJob("b", request_id="r")
    (event,) = admitted(gone, again)
    assert event == RequestAnswered(0, event.request_id, "cancelled b", gone.find("b").uid)
    later = run(gone, again, replace(submit("b", 1), uid="uid-b2"))
    assert admitted(later, again) == ()
    assert later.jobs["b"].uid == "uid-b2"
    healthy = ReportHost("z0-r0-h0", "repaired", request_id="r2")
    failed = run(run(WAITING, healthy), ReportHost("z0-r0-h0", "gpu-lost"))
    assert admitted(failed, healthy) == ()
    assert admitted(failed, replace(healthy, request_id="r3"))


def test_a_repeated_submit_is_answered_although_the_job_was_updated() -> None:
    first = submit("c", 2, request_id="r")
    state = run(WAITING, first, update("c", labels=LABELS))
    assert admitted(state, replace(first, uid="fresh")) == ()
    assert state.request("r").uid == state.jobs["c"].uid


def test_the_newest_requests_of_each_tenant_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """One tenant's requests do not flush those of another."""
    monkeypatch.setattr(requests, "REMEMBERED", 10)
    state = EMPTY
    for turn in range(50):
        asked = RequestId(f"a{turn}", "ads", "ada").text
        state = run(state, MoveHost("z0-r0-h0", _TURNS[turn % 2], request_id=asked))
        if turn == 0:
            asked = RequestId("b0", "bots", "bob").text
            state = run(state, MoveHost("z1-r1-h1", HostMove.CORDON, request_id=asked))
    assert state.request(RequestId("b0", "bots", "bob").text)
    assert state.request(RequestId("a49", "ads", "ada").text)
    assert not state.request(RequestId("a39", "ads", "ada").text)
    assert dict(state.index.request_counts) == {"ads": 10, "bots": 1}


_TURNS = (HostMove.CORDON, HostMove.UNCORDON)


@pytest.mark.parametrize("odd", ["", "r", "@", "@ads/", "@x/12/3:ab", "a:b/@c", "@/0/1:x:y"])
def test_an_id_of_a_request_is_taken_apart_as_it_was_made(odd: str) -> None:
    made = RequestId(odd, "ads", f"{odd}:/@", "0f")
    assert parse_request_id(made.text) == made
    assert made.key == made._replace(digest="ab").key
    assert made.key not in {made._replace(tenant="bots").key, made._replace(caller="eve").key}


def test_a_late_change_does_not_meet_the_next_job_of_the_name() -> None:
    first = WAITING.jobs["b"].uid
    again = replace(submit("b", 1), uid="uid-b2")
    state = run(WAITING, cancel("b"), again)
    second = state.jobs["b"].uid
    assert first != second
    assert admitted(state, CancelJob("b", uid=first)) == ()  # that one is cancelled already
    wrong = replace(update(priority=9), uid=first)
    assert refused(state, wrong).code is Code.PRECONDITION
    assert refused(state, EndJob("b", JobState.COMPLETED, uid=first)).code is Code.PRECONDITION
    for late in (HoldJob("b", uid=first), ReleaseJob("b", uid=first), RequeueJob("b", uid=first)):
        assert refused(state, late).code is Code.PRECONDITION
    assert refused(state, CancelJob("b", uid="other")).code is Code.NOT_FOUND
    assert admitted(state, CancelJob("b", uid=second))
    assert refused(state, CancelJob("a", uid=second)).code is Code.NOT_FOUND


def test_a_late_end_does_not_meet_the_next_gang_of_the_name() -> None:
    """Both are in their first attempt, so that does not tell them apart."""
    first = EndJob("a", JobState.COMPLETED, attempt=1, uid="uid-a")
    state = started(
        run(started(EMPTY, submit("a", 8)), first), replace(submit("a", 8), uid="uid-2")
    )
    assert state.jobs["a"].attempt == 1
    assert admitted(state, first) == ()
    assert refused(state, replace(first, outcome=JobState.FAILED)).code is Code.PRECONDITION
    assert admitted(state, replace(first, uid="uid-2"))
