"""A search of all states of a model, breadth first, so that a counterexample is a shortest one."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")


class Model(Protocol[S]):
    """A protocol as states and steps. A state is never changed."""

    def start(self) -> S:
        """Return the state in which the search begins."""

    def key(self, state: S) -> Hashable:
        """Return a key that is equal for states from which the same can follow."""

    def steps(self, state: S) -> Iterable[tuple[str, S]]:
        """Yield each possible next step in words, with the state after it. Raises: Broken."""

    def broken(self, state: S) -> str:
        """Return the invariant that does not hold; "" where all do."""

    def unsettled(self, state: S) -> str:
        """Return what never recovers though nothing fails any more; "" where everything does."""


class Broken(Exception):
    """A step broke an invariant."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A way to a broken invariant. `steps`: in words, from the start."""

    fault: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        rows = (f"{number:3} {step}" for number, step in enumerate(self.steps, 1))
        return "\n".join((self.fault, *rows))


@dataclass(frozen=True, slots=True)
class Found:
    """Result of a search. `depth`: steps from the start to the farthest state. `is_whole`: whether
    no state was left out."""

    states: int
    steps: int
    depth: int
    settled: int
    is_whole: bool
    cpu_s: float
    counterexample: Counterexample | None = None


def search(
    model: Model[S],
    *,
    most_cpu_s: float = float("inf"),
    settle_every: int = 1,
) -> Found:
    """Search all states, or up to the first that breaks an invariant. `settle_every`: of so many
    states one is checked to come right from there; 0: none."""
    return _Search(model, most_cpu_s, settle_every).run()


class _Search(Generic[S]):
    def __init__(self, model: Model[S], most_cpu_s: float, every: int) -> None:
        self._model, self._most_cpu_s, self._every = model, most_cpu_s, every
        self._came: dict[Hashable, tuple[Hashable, str] | None] = {}
        self._steps = self._settled = self._depth = 0
        self._began_s = time.process_time()

    def run(self) -> Found:
        state = self._model.start()
        key = self._model.key(state)
        self._came[key] = None
        if fault := self._fault(state):
            return self._conclude(fault, key)
        level = [(key, state)]
        while level:
            following: list[tuple[Hashable, S]] = []
            for before, here in level:
                if self._is_over():
                    return self._conclude("", None, is_whole=False)
                try:
                    for words, after in self._model.steps(here):
                        self._steps += 1
                        key = self._model.key(after)
                        if key in self._came:
                            continue
                        self._came[key] = (before, words)
                        if fault := self._fault(after):
                            return self._conclude(fault, key)
                        following.append((key, after))
                except Broken as error:
                    return self._conclude(str(error), before)
            level = following
            self._depth += bool(level)
        return self._conclude("", None)

    def _is_over(self) -> bool:
        return time.process_time() - self._began_s >= self._most_cpu_s

    def _fault(self, state: S) -> str:
        if fault := self._model.broken(state):
            return fault
        if not self._every or (len(self._came) - 1) % self._every:
            return ""
        self._settled += 1
        try:
            return self._model.unsettled(state)
        except Broken as error:
            return str(error)

    def _conclude(self, fault: str, key: Hashable, *, is_whole: bool = True) -> Found:
        counterexample = Counterexample(fault, self._path_to(key)) if fault else None
        return Found(
            len(self._came),
            self._steps,
            self._depth,
            self._settled,
            is_whole and not fault,
            time.process_time() - self._began_s,
            counterexample,
        )

    def _path_to(self, key: Hashable) -> tuple[str, ...]:
        words: list[str] = []
        while (came := self._came[key]) is not None:
            key, step = came
            words.append(step)
        return tuple(reversed(words))
