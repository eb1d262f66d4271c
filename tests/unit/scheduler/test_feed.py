"""Changes go to so many watches at a time; nobody who does not read keeps the others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler.core import State
from scheduler.core.fold.effects import HostsChange
from scheduler.engine.feed import AT_A_TIME, Feed, FellBehind, Subscription, Turns

Watch = AsyncIterator[HostsChange]


def change(version: int) -> HostsChange:
    return HostsChange(version, 0, (), State.empty())


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


async def test_no_more_watches_are_sent_a_change_at_a_time() -> None:
    feed = Feed(depth=100)
    begun: list[Watch] = [aiter(w) for w in watches(feed, AT_A_TIME + 3)]
    feed.publish(change(1))
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
    begun: list[Watch] = [aiter(w) for w in watches(feed, 3 * AT_A_TIME + 1)]
    feed.publish(change(1))
    async with asyncio.timeout(5):
        found = await asyncio.gather(*(anext(watch) for watch in begun))
    assert [told.version for told in found] == [1] * len(begun)


async def test_who_is_half_way_to_being_cut_off_waits_for_no_turn() -> None:
    feed = Feed(depth=10)
    begun: list[Watch] = [aiter(w) for w in watches(feed, AT_A_TIME + 1)]
    for version in range(1, 7):
        feed.publish(change(version))
    reading = [asyncio.create_task(anext(watch)) for watch in begun]
    await settled()
    assert [task.result().version for task in reading] == [1] * len(begun)


async def test_a_watch_is_cut_off_while_it_waits_for_its_turn() -> None:
    feed = Feed(depth=4)
    *others, last = watches(feed, AT_A_TIME + 1)
    begun: list[Watch] = [aiter(w) for w in others]
    feed.publish(change(1))
    for watch in begun:
        await anext(watch)
    waiting = asyncio.create_task(anext(aiter(last)))
    await settled()
    for version in range(2, 10):
        feed.publish(change(version))
    with pytest.raises(FellBehind):
        await waiting
