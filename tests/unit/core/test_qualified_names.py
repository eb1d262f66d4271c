"""Jobs that came without a tenant get it into their names, wherever the state has them."""

from muster.structs import replace
from scheduler.core import replay
from scheduler.core.collections.persistent_map import PersistentMap
from scheduler.core.model.commands import SetWindow
from scheduler.core.model.dependency import DependencyKind, DependencyTerm
from scheduler.core.model.events import JobsReserved, NamesQualified
from scheduler.core.model.records.host import HostRecord
from scheduler.core.model.window import Window, WindowKind
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.tenants import OPEN
from scheduler.core.tenancy.qualified_names import has_bare_names
from tests.build import cancel, end, loaded, run, started, submit

AWAY = Affinity(avoid=(("rack", ("b*", "ads/x")),), near="a")
HELD = Window("w", WindowKind.RESERVATION, 10**12, 2 * 10**12, ("z0",), jobs=("a", "ads/*"))


def test_every_name_of_the_state_is_full() -> None:
    state = started(loaded(), submit("old"), submit("a", 2))
    state = run(state, cancel("old"), submit("b", 1, affinity=AWAY), SetWindow(HELD))
    state = replay([JobsReserved(5, (("b", 10),), (("b", (("z0-r0-h0", 1),)),))], state)
    assert has_bare_names(state)
    after = replay([NamesQualified(7)], state)
    assert not has_bare_names(after)
    assert list(after.jobs) == ["default/a", "default/b"] == [j.name for j in after.jobs.values()]
    assert (list(after.index.queue), after.index.running) == (["default/b"], ("default/a",))
    assert [job.name for job in after.ended.values()] == ["default/old"]
    assert (dict(after.reserved), list(after.shares)) == ({"default/b": 10}, ["default/b"])
    assert after.jobs["default/b"].spec.tenant == OPEN.default
    wants = after.jobs["default/b"].spec.affinity
    assert wants == Affinity(avoid=(("rack", ("default/b*", "ads/x")),), near="default/a")
    assert after.windows["w"].window.jobs == ("default/a", "ads/*")
    assert (after.version, after.index.held) == (state.version + 1, state.index.held)


def test_sentences_of_jobs_say_the_full_name() -> None:
    state = started(loaded(), submit("train", 2))
    job = replace(state.jobs["train"], reason="preempted by train after 5 min (not train-2)")
    after = replay([NamesQualified(7)], replace(state, jobs={"train": job}))
    reason = after.jobs["default/train"].reason
    assert reason == "preempted by default/train after 5 min (not train-2)"


def test_records_of_hosts_say_the_full_name_of_who_excluded_them() -> None:
    state = started(loaded(), submit("job", 2))
    record = HostRecord(seen=(("xid 79", 1), ("job job", 2), ("job gone", 3)))
    after = replay([NamesQualified(7)], replace(state, records=PersistentMap({0: record})))
    assert after.records[0].seen == (("xid 79", 1), ("job default/job", 2), ("job gone", 3))


def test_names_that_are_full_stay() -> None:
    state = run(loaded(), submit("ads/x"))
    assert not has_bare_names(state)
    assert list(replay([NamesQualified(7)], state).jobs) == ["ads/x"]


def test_jobs_that_wait_for_others_wait_for_their_full_names() -> None:
    waits = submit("b")
    terms = (DependencyTerm(DependencyKind.AFTEROK, "a"), DependencyTerm(DependencyKind.SINGLETON))
    waits = replace(waits, spec=replace(waits.spec, dependencies=terms))
    state = run(started(loaded(), submit("a")), waits)
    after = replay([NamesQualified(7)], state)
    job = after.jobs["default/b"]
    assert [each.job for each in job.dependencies] == ["default/a"]
    assert [term.job for term in job.spec.dependencies] == ["default/a", ""]
    assert (list(after.index.deferred), list(after.index.dependants.values())) == (
        ["default/b"],
        [("default/b",)],
    )
    assert run(after, end("default/a")).jobs["default/b"].dependencies[0].is_met
