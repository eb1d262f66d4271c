"""Long-lived tasks are kept alive here, and parts of the server say here that they are.

A task that `Tasks` keeps and that ends with an error, or is cancelled by anybody but its owner,
begins again after a pause that doubles; it is counted and logged. A part that beats too seldom is
told by `muster health`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, TypeVar

from scheduler.observe.counters import Counts

PREFIX: Final = "muster-"  # of the names of all tasks that are kept
FIRST_PAUSE_S: Final = 0.2  # before a task begins again
MOST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0  # a task that ran for so long begins again after the first pause

PARTS: Final = ("agents", "planner", "launcher", "store", "console")

log = logging.getLogger("muster.server")

Work = Callable[[], Coroutine[Any, Any, None]]
Found = TypeVar("Found")


class Heartbeats:
    """When each part of the server last said that it is alive; use it from any thread.

    `restarts`: of kept tasks, by name. `refused`: messages of agents and reports of ranks
    that could not be read, and calls that Kubernetes forbade.
    `cut_off`: silent hosts that are taken for cut off, by domain.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.restarts = Counts()
        self.refused = Counts({("agents",): 0, ("ranks",): 0, ("kubernetes",): 0})
        self.cut_off = Counts()
        self._clock = clock
        self._due_s: dict[str, float] = {}  # by part, when the next beat must have come
        self._troubles: dict[str, str] = {}

    def beat(self, part: str, within_s: float) -> None:
        """Note that the part is alive, and beats again within so many seconds."""
        self._due_s[part] = self._clock() + within_s

    def rest(self, part: str) -> None:
        """Expect no beat of the part until it beats again: of the planner of a follower, for
        one."""
        self._due_s.pop(part, None)

    def tell(self, part: str, trouble: str) -> None:
        """Note what keeps a part that is alive from working; "" when it works again."""
        self._troubles[part] = trouble

    def states(self) -> dict[str, str]:
        """Return the parts that should be alive, each with "" or a sentence on what is wrong."""
        now_s = self._clock()
        silent = {
            part: f"silent for {now_s - due_s:.0f} s longer than it may be" if now_s > due_s else ""
            for part, due_s in list(self._due_s.items())
        }
        return {part: text or self._troubles.get(part, "") for part, text in silent.items()}


class Tasks:
    """Tasks of one owner, from `keep` and `start` until `close` or the end of the block."""

    def __init__(self, beats: Heartbeats) -> None:
        self._beats = beats
        self._works: dict[str, Work] = {}
        self._pauses_s: dict[str, float] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._kept: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, asyncio.TimerHandle] = {}

    async def __aenter__(self) -> Tasks:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def keep(self, name: str, work: Work) -> None:
        """Run `work` until it returns; begin it again whenever it ends in any other way."""
        self._works[name] = work
        self._beats.restarts.setdefault((name,), 0)
        self._begin(name)

    def drop(self, name: str) -> None:
        """End a kept task for good."""
        self._works.pop(name, None)
        self._pauses_s.pop(name, None)
        if timer := self._again.pop(name, None):
            timer.cancel()
        if task := self._kept.pop(name, None):
            task.cancel()

    def start(self, work: Coroutine[Any, Any, Found]) -> asyncio.Task[Found]:
        """Start work that ends by itself; an error that nobody awaits is logged."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._has_ended)
        return task

    async def close(self) -> None:
        """End all tasks, and return when they have ended."""
        for name in list(self._works):
            self.drop(name)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _begin(self, name: str) -> None:
        self._again.pop(name, None)
        task = asyncio.create_task(self._works[name](), name=PREFIX + name)
        began_s = time.monotonic()
        self._kept[name] = task
        self._running.add(task)
        task.add_done_callback(lambda task: self._has_stopped(name, task, began_s))

    def _has_stopped(self, name: str, task: asyncio.Task[None], began_s: float) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._kept.get(name) is not task:  # its owner has ended it
            if error is not None:
                log.error("%s failed as it ended", name, exc_info=error)
            return
        del self._kept[name]
        if not task.cancelled() and error is None:
            self._works.pop(name, None)
            return
        lasted_s = time.monotonic() - began_s
        pause_s = FIRST_PAUSE_S if lasted_s > STEADY_S else self._pauses_s.get(name, FIRST_PAUSE_S)
        self._pauses_s[name] = min(2 * pause_s, MOST_PAUSE_S)
        self._beats.restarts[name,] += 1
        ending = "was cancelled" if error is None else f"failed ({error!r})"
        log.error("%s %s; it begins again in %g s", name, ending, pause_s, exc_info=error)
        self._again[name] = asyncio.get_running_loop().call_later(pause_s, self._begin, name)

    def _has_ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task failed", exc_info=error)
