"""Changes go to so many watches at a time; nobody who does not read keeps the others waiting."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from scheduler.core import State
from scheduler.core.fold.effects import HostsChange
from scheduler.engine.feed import (
    AT_A_TIME,
    RESUMING_AT_A_TIME,
    Feed,
    FellBehind,
    Subscription,
    Turns,
)

Watch = AsyncIterator[HostsChange]


def publish(feed: Feed, *versions: int) -> None:
    for version in versions:
        feed.publish(HostsChange(version, 0, (), State.empty()))


async def one_by_one(subscription: Subscription[HostsChange]) -> Watch:
    async for changes in subscription:
        for each in changes:
            yield each


def watches(feed: Feed, count: int) -> list[Subscription[HostsChange]]:
    return [feed.subscribe(HostsChange, 0) for _ in range(count)]


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_turns_are_given_in_the_order_in_which_they_were_asked_for() -> None:
    turns, taken = Turns(2), list[int]()

    async def one(number: int) -> int:
        turn = await turns.take()
        taken.append(number)
        return turn

    asked = [asyncio.create_task(one(number)) for number in range(5)]
    await settled()
    assert taken == [0, 1]
    turns.done(await asked[1])
    await settled()
    assert taken == [0, 1, 2]
    turns.done(await asked[0])
    turns.done(await asked[2])
    await settled()
    assert taken == [0, 1, 2, 3, 4]


async def test_who_is_gone_takes_no_turn() -> None:
    turns = Turns(1)
    turn = await turns.take()
    gone, stays = (asyncio.create_task(turns.take()) for _ in range(2))
    await settled()
    gone.cancel()
    turns.done(turn)
    assert await stays
    assert gone.cancelled()


async def test_turns_that_are_held_begin_late_and_one_by_one() -> None:
    turns = Turns(2)
    with turns.slow_turns(), turns.slow_turns():
        asked = [asyncio.create_task(turns.take()) for _ in range(3)]
        await settled()
        assert not any(task.done() for task in asked)
        began_s = time.monotonic()
        turns.done(await asked[0])
        assert time.monotonic() - began_s < 1
        assert not asked[1].done()  # two places are free, but they are held
        turns.done(await asked[1])
    await settled()
    assert asked[2].done()


async def test_no_more_watches_are_sent_a_change_at_a_time() -> None:
    feed = Feed(depth=100)
    begun: list[Watch] = [one_by_one(w) for w in watches(feed, AT_A_TIME + 3)]
    publish(feed, 1)
    reading = [asyncio.create_task(anext(watch)) for watch in begun]
    await settled()
    assert [task.done() for task in reading] == [True] * AT_A_TIME + [False] * 3
    more = [asyncio.create_task(anext(watch)) for watch in begun[:3]]  # they have taken theirs
    await settled()
    assert all(task.done() for task in reading)
    for task in more:
        task.cancel()


async def test_readers_that_do_not_read_keep_others_waiting_for_a_moment_only() -> None:
    feed = Feed(depth=100)
    begun: list[Watch] = [one_by_one(w) for w in watches(feed, 3 * AT_A_TIME + 1)]
    publish(feed, 1)
    async with asyncio.timeout(60):
        found = await asyncio.gather(*(anext(watch) for watch in begun))
    assert [told.version for told in found] == [1] * len(begun)


async def test_who_is_half_way_to_being_cut_off_waits_for_no_turn() -> None:
    feed = Feed(depth=10)
    begun: list[Watch] = [one_by_one(w) for w in watches(feed, AT_A_TIME + 1)]
    publish(feed, *range(1, 7))
    reading = [asyncio.create_task(anext(watch)) for watch in begun]
    await settled()
    assert [task.result().version for task in reading] == [1] * len(begun)


async def test_a_watch_is_cut_off_while_it_waits_for_its_turn() -> None:
    feed = Feed(depth=4)
    *others, last = watches(feed, AT_A_TIME + 1)
    begun: list[Watch] = [one_by_one(w) for w in others]
    publish(feed, 1)
    for watch in begun:
        await anext(watch)
    waiting = asyncio.create_task(anext(one_by_one(last)))
    await settled()
    publish(feed, *range(2, 10))
    with pytest.raises(FellBehind):
        await waiting


async def read(subscription: Subscription[HostsChange], count: int) -> list[int]:
    """Versions of the next changes."""
    changes = one_by_one(subscription)
    return [(await anext(changes)).version for _ in range(count)]


async def test_a_watch_resumes_out_of_memory_as_far_as_the_ring_goes_back() -> None:
    feed = Feed(depth=2, kept=5)
    feed.restart(10)
    publish(feed, *range(11, 24))
    assert [feed.has(HostsChange, version) for version in (10, 17, 18, 23)] == [0, 0, 1, 1]
    assert await read(feed.subscribe(HostsChange, 18), 5) == [19, 20, 21, 22, 23]
    assert await read(feed.subscribe(HostsChange, 21), 2) == [22, 23]
    with pytest.raises(FellBehind):
        feed.subscribe(HostsChange, 17)


async def test_nothing_before_a_restart_is_read_and_watches_of_then_must_resume() -> None:
    feed = Feed(depth=5)
    publish(feed, *range(1, 4))
    before = feed.subscribe(HostsChange, 1)
    feed.restart(7)
    publish(feed, 8)
    with pytest.raises(FellBehind):
        await read(before, 1)
    assert not feed.has(HostsChange, 6)
    assert await read(feed.subscribe(HostsChange, 7), 1) == [8]


async def test_changes_that_a_watch_had_out_of_the_log_do_not_come_again() -> None:
    feed = Feed(depth=5)
    subscription = feed.subscribe(HostsChange, 2)
    publish(feed, *range(1, 4))
    assert await read(subscription, 1) == [3]


async def test_a_watch_that_resumes_may_be_further_behind_than_one_that_has_caught_up() -> None:
    feed = Feed(depth=2, kept=100)
    publish(feed, *range(1, 51))
    subscription = feed.subscribe(HostsChange, 0)
    assert (subscription.pending, subscription.lag, feed.lag) == (50, 0, 0)
    publish(feed, 51)
    assert await read(subscription, 51) == list(range(1, 52))
    publish(feed, *range(52, 56))
    with pytest.raises(FellBehind):
        await read(subscription, 3)


async def test_a_watch_that_resumes_more_slowly_than_memory_forgets_is_cut_off() -> None:
    feed = Feed(depth=2, kept=5)
    publish(feed, *range(1, 6))
    subscription = feed.subscribe(HostsChange, 0)
    publish(feed, 6)
    with pytest.raises(FellBehind):
        await read(subscription, 1)


async def test_watches_that_resume_leave_turns_to_the_others() -> None:
    feed = Feed(depth=100)
    publish(feed, 1)
    resuming: list[Watch] = [
        one_by_one(feed.subscribe(HostsChange, 0)) for _ in range(RESUMING_AT_A_TIME + 3)
    ]
    reading = [asyncio.create_task(anext(watch)) for watch in resuming]
    live: Watch = one_by_one(feed.subscribe(HostsChange, 1))
    publish(feed, 2)
    hearing = asyncio.create_task(anext(live))
    await settled()
    assert [task.done() for task in reading] == [True] * RESUMING_AT_A_TIME + [False] * 3
    assert hearing.result().version == 2
    for task in reading:
        task.cancel()


async def test_a_watch_takes_all_that_has_gathered_up_to_so_many_at_a_time() -> None:
    feed = Feed(depth=10)
    batches = aiter(feed.subscribe(HostsChange, 0, most=3))
    publish(feed, *range(1, 6))
    taken = [[each.version for each in await anext(batches)] for _ in range(2)]
    assert taken == [[1, 2, 3], [4, 5]]
