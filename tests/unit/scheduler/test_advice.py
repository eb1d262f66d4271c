"""Reasons as messages and as tables, and the cache that saves walks of the queue."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from threading import TIMEOUT_MAX, Event

import pytest

from scheduler.cli.render.names import as_typed
from scheduler.cli.render.reason import explain_text, proposal_text, slots_text
from scheduler.core import SchedulingOptions, State, explain
from scheduler.core.defrag.proposal import propose
from scheduler.core.explain.explain import Reasons
from scheduler.core.explain.forecast import Forecast, forecasts
from scheduler.core.explain.slots import Asker, slots
from scheduler.core.explain.whatif import what_if
from scheduler.core.policies.costs import Costs
from scheduler.service import forecasts as service_forecasts
from scheduler.service.forecasts import ForecastCache
from scheduler.v1 import advice_pb2
from scheduler.wire import reasons
from scheduler.wire.reasons import (
    FRESH_NS,
    ReasonCache,
    explained,
    proposal_to_proto,
    slots_to_proto,
    what_if_to_proto,
)
from tests.build import end, fabric, job, loaded, run, started, submit
from tests.waiting import wait_until

HOUR = 3_600
OPTIONS = SchedulingOptions()
TEN = loaded(fabric(1, 1, 10))
BUSY = started(TEN, submit("a", 6, limit_s=2 * HOUR), submit("b", 4))
QUEUE = run(BUSY, *(submit(f"w{i}", 2) for i in range(50)))


def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The versions for which a walk begins from here on."""
    begun: list[int] = []

    def counted(state, now_ns, limits):  # type: ignore[no-untyped-def]
        begun.append(state.version)
        return Reasons(state, now_ns, limits)

    monkeypatch.setattr(reasons, "Reasons", counted)
    return begun


def test_one_walk_serves_all_who_ask_until_a_change_or_five_seconds_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, begun = ReasonCache(), walks(monkeypatch)
    with pytest.raises(KeyError):
        cache.explain(QUEUE, "nobody", 0, OPTIONS)
    for name in ("w49", "w3", "a", "w49"):
        assert cache.explain(QUEUE, name, 0, OPTIONS) == explain(QUEUE, name, 0, OPTIONS)
    assert begun == [QUEUE.version]
    later = run(QUEUE, submit("last", 1))
    cache.explain(later, "w0", 0, OPTIONS)
    cache.explain(later, "w0", FRESH_NS - 1, OPTIONS)
    cache.explain(later, "w0", FRESH_NS, OPTIONS)
    assert begun == [QUEUE.version, later.version, later.version]


def test_lists_look_at_the_begin_of_a_queue_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasons, "FAR", 3)
    said = ReasonCache().sentences(QUEUE, ["w2", "w3", "w49"], 0, OPTIONS)
    far = "stands behind the first 3 of the queue"
    near = explain(QUEUE, "w2", 0, OPTIONS).sentence
    assert said == {"w2": near, "w3": far, "w49": far}


def test_the_message_and_the_table_say_what_the_reason_says() -> None:
    reason = explain(QUEUE, "w0", 0, OPTIONS)
    message = explained(QUEUE, reason, job(QUEUE, "w0")).reason
    assert message.sentence == reason.sentence
    assert message.cause == advice_pb2.WAIT_REASON_HOSTS
    assert message.missing_hosts == 2
    assert [(room.domain, room.free_hosts) for room in message.rooms] == [("z0", 0)]
    (obstacle,) = message.obstacles
    assert (obstacle.name, obstacle.hosts) == ("tenants/default/jobs/a", 6)
    assert obstacle.basis == advice_pb2.END_BASIS_STATED
    assert obstacle.clear_time.ToNanoseconds() == reason.start_ns
    assert message.start_time.ToNanoseconds() == reason.start_ns
    text = explain_text(as_typed(explained(QUEUE, reason, job(QUEUE, "w0"))))
    rows = [line.split() for line in text.splitlines()]
    assert ["missing", "2", "hosts"] in rows
    assert ["running", "a", "6", "1970-01-01T02:00:00Z", "(by", "its", "limit)"] in rows
    assert rows[-1] == ["z0", "0", "0"]


def test_a_long_list_of_obstacles_is_cut_short() -> None:
    state = run(loaded(fabric(1, 1, 30)), *(submit(f"j{i}", 1, limit_s=60) for i in range(30)))
    state = run(started(state), submit("all", 30))
    answer = explained(state, explain(state, "all", 0, OPTIONS), job(state, "all"))
    assert "and 10 more" in explain_text(as_typed(answer))


def test_a_what_if_shows_where_it_would_run_and_who_else_is_touched() -> None:
    name = "w0"
    answer = explained(QUEUE, explain(QUEUE, name, 0, OPTIONS), job(QUEUE, name))
    found = what_if(QUEUE, name, ["cancel b"], 0, OPTIONS)
    answer.what_if.CopyFrom(what_if_to_proto(QUEUE, found))
    text = explain_text(as_typed(answer))
    assert "result       would start now on 2 hosts in z0" in text
    assert "cut zone     0 B per step" in text
    assert "also starts  w1" in text
    assert "stops        b" in text
    still = what_if(QUEUE, name, ["cordon z0"], 0, OPTIONS)
    answer.what_if.CopyFrom(what_if_to_proto(QUEUE, still))
    assert "would still wait" in explain_text(as_typed(answer))


def test_a_proposal_shows_each_gang_and_what_its_move_costs() -> None:
    state = loaded(fabric(2, 2, 2))
    for name, hosts in (("a", 1), ("b", 1), ("c", 2), ("e", 2)):
        state = started(state, submit(name, hosts))
    state = run(state, end("c"))
    found = propose(state, 4, 0, OPTIONS, Costs())
    text = proposal_text(as_typed(proposal_to_proto(state, found, "5e", applied=False)))
    rows = [line.split() for line in text.splitlines()]
    assert rows[0] == found.sentence.split()
    assert rows[3][:4] == ["e", "1.3", "as", "now"]
    assert text.endswith("not applied: --apply --etag 5e applies them")
    idle = propose(state, 1, 0, OPTIONS, Costs())
    assert proposal_text(as_typed(proposal_to_proto(state, idle, "", applied=False))) == (
        "nothing to move: z0 has 2 hosts free"
    )


def test_slots_are_a_table_with_a_line_for_each_domain() -> None:
    found = slots(QUEUE, 0, OPTIONS, Asker(), (8, 16))
    rows = [line.split() for line in slots_text(slots_to_proto(found, 8, 7)).splitlines()]
    assert rows[0][-5:] == ["8", "16", "FREE", "HOSTS", "USABLE"]
    assert rows[1] == ["total", "0", "0", "0", "0"]
    assert rows[3] == ["z0", "0", "0", "0", "0"]
    found = slots(TEN, 0, OPTIONS, Asker(), (8, 40))
    text = slots_text(slots_to_proto(found, 8, 7))
    assert ["total", "10", "2", "10", "10"] in [line.split() for line in text.splitlines()]
    assert text.endswith("largest for tenant default: 80 GPUs")


# --- a forecast is kept --------------------------------------------------------------


def _whole(cache: ForecastCache, state: State) -> Forecast:
    """The forecast of that version, once it is there."""
    made = partial(cache.of, state, 0, OPTIONS)
    wait_until(lambda: (last := made()).until_ns is None and len(last.waiting) == len(state.jobs))
    return made()


def test_a_version_has_one_forecast_of_its_own() -> None:
    cache, state = ForecastCache(), run(loaded(), submit("a"))
    first = _whole(cache, state)
    assert list(first.starts) == ["a"]
    assert cache.of(state, 5, OPTIONS) is first
    assert len(_whole(cache, run(state, submit("b"))).waiting) == 2


def test_starts_that_are_foreseen_do_not_regress() -> None:
    state = loaded()
    for name in ("a", "b", "c"):
        state = run(state, submit(name))
    steps = list(forecasts(state, 0, OPTIONS))
    for before, after in pairwise(steps):
        assert before.starts.items() <= after.starts.items()
    assert steps[-1].until_ns is None


def test_nobody_waits_for_the_end_of_a_long_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    first, may_end = Forecast(frozenset("ab"), {}, 5), Event()

    def begun(*_: object) -> Iterator[Forecast]:
        yield first
        may_end.wait()

    monkeypatch.setattr(service_forecasts, "SHORT_S", 0.0)
    monkeypatch.setattr(service_forecasts, "WAIT_S", TIMEOUT_MAX)
    monkeypatch.setattr(service_forecasts, "forecasts", begun)
    cache = ForecastCache()
    assert cache.of(loaded(), 0, OPTIONS) is first
    may_end.set()
    cache.close()


def test_a_closed_cache_begins_no_forecast_and_one_stops_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_forecasts, "WAIT_S", 0.0)
    cache, state = ForecastCache(), run(loaded(), submit("a"))
    cache.close()
    assert cache.of(state, 7, OPTIONS) == Forecast(frozenset(), {}, 7)
    monkeypatch.setattr(service_forecasts, "BUDGET_S", 0.0)
    ahead = service_forecasts.bounded_forecast(state, 0, OPTIONS)
    assert (ahead.starts, ahead.until_ns) == ({}, 0)
