"""However many answers are lost, callers die or ask at once: a job is made once, and stays found.

The clusters here are small models of the register that a server keeps of requests. Every call may
fail before or after it did its work, be carried out much later, end the caller, or be the moment at
which another caller begins.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Queue
from threading import Thread, local
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.client import ServiceError, route
from scheduler.client.route import NotRouted, Routed, Router, Unknown
from scheduler.core import JobSpec
from scheduler.v1 import fabric_pb2, job_pb2, placement_pb2
from tests.build import spec

JOB = spec("job", 2)
SILENT = ServiceError("UNAVAILABLE", "silent")


class Died(Exception):
    """The caller is no more."""


@dataclass
class Model:
    """A cluster. `done`: what each request did: the uid of a job, or who it was left to."""

    name: str
    step_s: float = 1.0
    refuses: bool = False
    steps: Callable[[], float] | None = None
    done: dict[str, tuple[str, str]] = field(default_factory=dict)
    uids: list[str] = field(default_factory=list)

    def offer(self, request_id: str) -> job_pb2.Job:
        verb, what = self.done.get(request_id, ("", ""))
        if verb == "made":
            return job_pb2.Job(uid=what)
        if verb == "left":
            raise ServiceError(
                "FAILED_PRECONDITION", "", "WRONG_STATE", metadata={"elsewhere": what}
            )
        if self.uids:
            raise ServiceError("ALREADY_EXISTS", "a job of this name lives", "ALREADY_EXISTS")
        answer = job_pb2.Job()
        answer.answer.outcome = placement_pb2.OUTCOME_PLACED
        answer.answer.placement.step_time.FromNanoseconds(
            int((self.steps() if self.steps else self.step_s) * 10**9)
        )
        return answer

    def leave(self, request_id: str, elsewhere: str) -> None:
        if self.done.setdefault(request_id, ("left", elsewhere)) != ("left", elsewhere):
            raise _used(request_id)

    def create(self, request_id: str) -> job_pb2.Job:
        verb, what = self.done.get(request_id, ("", ""))
        if verb == "left":
            raise _used(request_id)
        if verb == "made":
            return job_pb2.Job(uid=what)
        if self.uids:
            raise ServiceError("ALREADY_EXISTS", "a job of this name lives", "ALREADY_EXISTS")
        if self.refuses:
            raise ServiceError("RESOURCE_EXHAUSTED", "too many", "EXHAUSTED")
        uid = f"{self.name}:{request_id}"
        self.done[request_id] = ("made", uid)
        self.uids.append(uid)
        return job_pb2.Job(uid=uid)


def _used(request_id: str) -> ServiceError:
    return ServiceError("INVALID_ARGUMENT", "used", "INVALID", ((("request_id"), "used"),))


@dataclass
class Net:
    """What becomes of each call. `late`: calls that have not arrived yet."""

    draw: Callable[[Any], Any]
    models: dict[str, Model]
    is_calm: bool = False
    faults: int = 12
    depth: int = 0
    late: list[Callable[[], object]] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    found: list[Routed] = field(default_factory=list)

    def call(self, name: str, work: Callable[[], Any]) -> Any:
        if self.is_calm:
            return work()
        if name in self.down:
            raise SILENT
        fate = self.draw(st.sampled_from(FATES)) if self.faults > 0 else "well"
        self.faults -= fate != "well"
        match fate:
            case "before":
                raise SILENT
            case "after":
                _quietly(work)
                raise SILENT
            case "late":
                self.late.append(work)
                raise SILENT
            case "dies":
                raise Died
            case "falls":
                self.down.add(name)
                raise SILENT
            case "rises":
                self.down.clear()
            case "arrives" if self.late:
                _quietly(self.late.pop(0))
            case "another" if self.depth < 2:
                self.depth += 1
                self.run()
                self.depth -= 1
        self.check()
        return work()

    def run(self, *, is_new: bool = False) -> None:
        clusters = {name: At(self, model) for name, model in self.models.items()}
        try:
            outcome = Router(clusters, is_new).submit(JOB, "job")
        except Died:
            return
        if isinstance(outcome, Routed):
            self.found.append(outcome)
        self.check()

    def check(self) -> None:
        uids = [uid for model in self.models.values() for uid in model.uids]
        assert len(uids) <= 1, uids
        for each in self.found:
            assert self.models[each.cluster].uids == [each.job.uid]


FATES = ("well", "well", "before", "after", "late", "dies", "falls", "rises", "arrives", "another")


def _quietly(work: Callable[[], object]) -> None:
    with suppress(ServiceError):
        work()


@dataclass
class At:
    """A cluster as a caller sees it."""

    net: Net | Turns
    model: Model

    def get_fabric(self) -> fabric_pb2.Fabric:
        answer = fabric_pb2.Fabric(name=self.model.name, uid=self.model.name)
        return self.net.call(self.model.name, lambda: answer)  # type: ignore[no-any-return]

    def offer(self, spec: JobSpec, request_id: str) -> job_pb2.Job:
        work = lambda: self.model.offer(request_id)  # noqa: E731
        return self.net.call(self.model.name, work)  # type: ignore[no-any-return]

    def leave_job(self, spec: JobSpec, request_id: str, elsewhere: str) -> None:
        self.net.call(self.model.name, lambda: self.model.leave(request_id, elsewhere))

    def create_job(self, spec: JobSpec, request_id: str) -> job_pb2.Job:
        work = lambda: self.model.create(request_id)  # noqa: E731
        return self.net.call(self.model.name, work)  # type: ignore[no-any-return]


@pytest.fixture(autouse=True, scope="module")
def _one_after_the_other() -> Any:
    """What comes in which order is hypothesis's to choose."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route, "in_parallel", lambda calls: [call() for call in list(calls)])
        yield


@given(st.data(), st.integers(1, 5), st.booleans(), st.integers(1, 4))
@settings(deadline=None, max_examples=400)
def test_a_job_is_made_once(data: st.DataObject, count: int, is_new: bool, repeats: int) -> None:
    steps = data.draw(st.permutations(range(1, count + 1)))
    models = {f"c{i}": Model(f"c{i}", float(steps[i])) for i in range(count)}
    net = Net(data.draw, models)
    if data.draw(st.booleans()):
        net.down.add("c0")
    for number in range(repeats):
        refusing = data.draw(st.sets(st.sampled_from(sorted(models)), max_size=count - 1))
        for model in models.values():
            model.refuses = model.name in refusing
        net.run(is_new=is_new and number == 0)
    for work in net.late:
        _quietly(work)
        net.check()
    # All is well again: the job is where it was said to be, or is made now.
    net.is_calm = True
    for model in models.values():
        model.refuses = False
    net.run()
    assert net.found, "it is found, or made, once all answer"
    before = net.found[0].job.uid
    net.run()
    assert net.found[-1].job.uid == before
    assert net.found[-1].is_repeat


class Turns:
    """Callers that run at once, one call at a time, in an order that is drawn."""

    def __init__(self, draw: Callable[[Any], Any], models: dict[str, Model]) -> None:
        self._draw = draw
        self._models = models
        self._reports: Queue[tuple[int, object]] = Queue()
        self._grants: dict[int, Queue[str]] = {}
        self._who = local()

    def call(self, name: str, work: Callable[[], Any]) -> Any:
        self._reports.put((self._who.number, None))
        match self._grants[self._who.number].get(timeout=30):
            case "before":
                raise SILENT
            case "after":
                _quietly(work)
                raise SILENT
            case "dies":
                raise Died
        return work()

    def run(self, callers: int, faults: int) -> list[Routed]:
        """What those found who have found the job."""
        self._grants = {number: Queue() for number in range(callers)}
        for number in range(callers):
            Thread(target=self._caller, args=(number,), daemon=True).start()
        try:
            return self._serve(callers, faults)
        finally:  # whoever is still at a call
            for grants in self._grants.values():
                grants.put("dies")

    def _serve(self, callers: int, faults: int) -> list[Routed]:
        at_call, found = set[int](), list[Routed]()
        running = callers
        while True:
            while len(at_call) < running:
                number, outcome = self._reports.get(timeout=30)
                if outcome is None:
                    at_call.add(number)
                    continue
                running -= 1
                assert not isinstance(outcome, AssertionError), outcome
                found += [outcome] if isinstance(outcome, Routed) else []
            made = [uid for model in self._models.values() for uid in model.uids]
            assert len(made) <= 1, made
            if not running:
                return found
            number = self._draw(st.sampled_from(sorted(at_call)))
            fate = self._draw(st.sampled_from(MEANWHILE)) if faults > 0 else "well"
            faults -= fate != "well"
            at_call.remove(number)
            self._grants[number].put(fate)

    def _caller(self, number: int) -> None:
        self._who.number = number
        clusters = {name: At(self, model) for name, model in self._models.items()}
        try:
            self._reports.put((number, Router(clusters).submit(JOB, "job")))
        except Died as end:
            self._reports.put((number, end))
        except BaseException as error:  # the test fails of it, in its own thread
            self._reports.put((number, AssertionError(repr(error))))


MEANWHILE = ("well", "well", "well", "well", "before", "after", "dies")


@given(st.data(), st.integers(2, 4), st.integers(2, 3), st.integers(0, 4))
@settings(deadline=None, max_examples=150)
def test_callers_at_once_make_one_job(
    data: st.DataObject, count: int, callers: int, faults: int
) -> None:
    models = {f"c{i}": Model(f"c{i}") for i in range(count)}
    # Whoever looks sees another best offer: the worst that can be for their agreement.
    drawn = iter(data.draw(st.lists(st.integers(1, count), max_size=30)))
    for model in models.values():
        model.steps = lambda: float(next(drawn, 1))
    found = Turns(data.draw, models).run(callers, faults)
    assert {each.job.uid for each in found} <= {uid for m in models.values() for uid in m.uids}
    calm = Net(data.draw, models, is_calm=True)
    calm.run()
    assert calm.found
    if not faults:
        assert len(found) == callers


@pytest.mark.parametrize(
    ("count", "majority", "half"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 3, 2), (5, 3, 3)]
)
def test_a_half_and_a_majority_share_a_cluster(count: int, majority: int, half: int) -> None:
    assert route.others_needed(count, is_new=False) + 1 == majority
    assert route.others_needed(count, is_new=True) + 1 == half
    assert majority + half > count


def test_what_is_said_when_clusters_are_lost() -> None:
    models = {name: Model(name) for name in ("a", "b", "c")}
    net = Net(lambda _: "well", models)
    clusters = {name: At(net, model) for name, model in models.items()}
    net.down = {"b", "c"}
    few = Router(clusters).submit(JOB, "job")
    assert isinstance(few, Unknown)
    assert "of 3 clusters, 2 must answer" in few.reason
    net.down = {"a"}
    skipped = Router(clusters).submit(JOB, "job")
    assert isinstance(skipped, Routed)
    assert (skipped.cluster, skipped.is_repeat) == ("b", False)
    assert [view.name for view in skipped.views if view.silence] == ["a"]
    net.down = {"b"}
    lost = Router(clusters).submit(JOB, "job")
    assert isinstance(lost, Unknown)
    assert lost.cluster == "b"
    net.down = set()
    again = Router(clusters).submit(JOB, "job")
    assert isinstance(again, Routed)
    assert (again.cluster, again.is_repeat) == ("b", True)


def test_a_cluster_that_refuses_is_not_the_last() -> None:
    models = {"a": Model("a", 1.0, refuses=True), "b": Model("b", 2.0)}
    net = Net(lambda _: "well", models)
    clusters = {name: At(net, model) for name, model in models.items()}
    made = Router(clusters).submit(JOB, "job")
    assert isinstance(made, Routed)
    assert (made.cluster, made.request_id) == ("b", "job#2")
    models = {"a": Model("a", refuses=True)}
    refused = Router({"a": At(net, models["a"])}).submit(JOB, "job")
    assert isinstance(refused, NotRouted)
    assert refused.reason == "no cluster takes the job: a: too many"


def test_the_job_is_not_sent_before_a_majority_has_agreed() -> None:
    models = {name: Model(name) for name in ("a", "b", "c")}
    fates = iter(["well"] * 6 + ["before"] * 2)
    net = Net(lambda _: next(fates), models)
    clusters = {name: At(net, model) for name, model in models.items()}
    assert isinstance(Router(clusters).submit(JOB, "job"), Unknown)
    assert not any(model.done for model in models.values())
    net.is_calm = True
    assert isinstance(Router(clusters).submit(JOB, "job"), Routed)


def test_a_lost_answer_is_found_out() -> None:
    """The chosen cluster made the job, and both its answers were lost: the third says so."""
    models = {name: Model(name) for name in ("a", "b")}
    fates = iter(["well"] * 5 + ["after"] * 2 + ["well"] * 9)
    net = Net(lambda _: next(fates), models)
    clusters = {name: At(net, model) for name, model in models.items()}
    routed = Router(clusters).submit(JOB, "job")
    assert isinstance(routed, Routed)
    assert (routed.cluster, routed.is_repeat, models["b"].uids) == ("a", True, [])


def test_half_of_the_clusters_are_enough_only_until_a_new_job_is_sent() -> None:
    """The half that was sent the job has made it and is silent; the other half is back."""
    models = {name: Model(name) for name in ("a", "b")}
    seen = ["well", "rises"]  # by the first look, in which a is down
    sent = ["before", "after", "well"]  # b has made the job, so it cannot leave it
    silent = ["well", "well", "before"]  # a answers the second look, b does not
    fates = iter([*seen, *sent, *silent, "well"])
    net = Net(lambda _: next(fates), models, down={"a"})
    clusters = {name: At(net, model) for name, model in models.items()}
    unknown = Router(clusters, is_new=True).submit(JOB, "job")
    assert isinstance(unknown, Unknown)
    assert "of 2 clusters, 2 must answer" in unknown.reason
    assert (models["a"].uids, models["b"].uids) == ([], ["b:job"])
    net.is_calm = True
    found = Router(clusters).submit(JOB, "job")
    assert isinstance(found, Routed)
    assert (found.cluster, found.is_repeat) == ("b", True)
