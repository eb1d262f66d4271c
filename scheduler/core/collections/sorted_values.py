"""An immutable sorted list of values whose next version costs one part of it, not all.

The values lie in chunks, as the names of a NameList do: with n of them and chunks of at most 512
a change is O(512 + n / 256), 3 us with 8,000 values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

_V = TypeVar("_V", bound=Any)

MOST: Final = 512  # values of a chunk; a longer one becomes two
_LAST = itemgetter(-1)


class SortedValues(Generic[_V]):
    """Immutable sorted sequence of values, no two of them equal."""

    __slots__ = ("_chunks",)

    def __init__(self, values: Iterable[_V] = ()) -> None:
        in_order, half = tuple(sorted(values)), MOST // 2
        self._chunks = tuple(in_order[at : at + half] for at in range(0, len(in_order), half))

    def having(self, value: _V) -> SortedValues[_V]:
        """Return a copy with `value`."""
        chunks = self._chunks
        at = min(self._chunk(value), len(chunks) - 1)
        chunk = chunks[at] if chunks else ()
        inside = bisect_left(chunk, value)
        longer = (*chunk[:inside], value, *chunk[inside:])
        parts = (longer,) if len(longer) <= MOST else (longer[: MOST // 2], longer[MOST // 2 :])
        return self._next(max(0, at), parts)

    def without(self, value: _V) -> SortedValues[_V]:
        """Return a copy without `value`. Raises: KeyError when it is absent."""
        at = self._chunk(value)
        chunk = self._chunks[at] if at < len(self._chunks) else ()
        inside = bisect_left(chunk, value)
        if chunk[inside : inside + 1] != (value,):
            raise KeyError(value)
        shorter = chunk[:inside] + chunk[inside + 1 :]
        return self._next(at, (shorter,) if shorter else ())

    def _chunk(self, value: Any) -> int:
        """The chunk that it is in, or the first that ends after it."""
        return bisect_left(self._chunks, value, key=_LAST)

    def _next(self, at: int, parts: tuple[tuple[_V, ...], ...]) -> SortedValues[_V]:
        following: SortedValues[_V] = SortedValues.__new__(SortedValues)
        following._chunks = (*self._chunks[:at], *parts, *self._chunks[at + 1 :])
        return following

    def since(self, least: Any) -> Iterator[_V]:
        """Yield the values that are not below `least`, in order. Cost: O(n / 256), and a step for
        each that is read."""
        at = self._chunk(least)
        for chunk in self._chunks[at : at + 1]:
            yield from chunk[bisect_left(chunk, least) :]
        yield from chain.from_iterable(self._chunks[at + 1 :])

    def before(self, end: Any) -> Iterator[_V]:
        """Yield the values below `end`, the largest first. Cost: as of `since`."""
        at = self._chunk(end)
        for chunk in self._chunks[at : at + 1]:
            yield from reversed(chunk[: bisect_left(chunk, end)])
        yield from chain.from_iterable(map(reversed, reversed(self._chunks[:at])))

    def __iter__(self) -> Iterator[_V]:
        return chain.from_iterable(self._chunks)
