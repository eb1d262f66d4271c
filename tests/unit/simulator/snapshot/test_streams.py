"""Failures of a replay that goes on under other ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count, islice

from simulator.failures import Outage
from simulator.snapshot.streams import Stream, outages
from tests.replays import down, up

OLD, NEW = Stream("old", 1, 0), Stream("new", 1, 0, from_ns=100 * 10**9, past=2)
OLD_OUTAGES = [down(10, "a"), down(20, "b"), down(110, "c"), up(130, "a"), up(140, "c")]


def found(new: Iterable[Outage], old: Iterable[Outage] = OLD_OUTAGES) -> Iterator[Outage]:
    return outages([OLD, NEW], lambda stream: old if stream is OLD else new)


def test_one_stream_is_as_it_is() -> None:
    assert list(outages([OLD], lambda _: OLD_OUTAGES)) == OLD_OUTAGES


def test_what_is_down_comes_back_and_nothing_else_comes() -> None:
    old = [*OLD_OUTAGES, up(150, "b")]

    assert list(found([], old)) == [up(130, "a"), up(150, "b")]


def test_the_new_ones_count_from_there() -> None:
    assert next(found([down(5, "d")])) == down(105, "d")


def test_a_host_that_is_down_twice_comes_back_once_with_the_later_repair() -> None:
    new = [down(10, "a"), up(50, "a")]

    assert list(found(new)) == [up(150, "a")]


def test_a_host_that_never_comes_back_is_not_waited_for() -> None:
    """The old stream goes on for ever without repairing b."""
    endless = (outage for at in count(10) for outage in (down(at * 1e6, "c"), up(at * 1e6, "c")))
    old = iter([down(10, "a"), down(20, "b"), up(130, "a"), *islice(endless, 10**4)])

    assert list(found([], old)) == [up(130, "a")]


def test_a_third_stream_follows_on_the_second() -> None:
    third = Stream("third", 1, 0, from_ns=200 * 10**9, past=1)
    by_name = {"old": OLD_OUTAGES[:2], "new": [down(50, "c"), up(150, "c")], "third": []}

    streams = [OLD, NEW, third]
    assert list(outages(streams, lambda s: by_name[str(s.failures)])) == [up(250, "c")]
