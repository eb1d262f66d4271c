"""An immutable ordered list of names whose next version costs one part of it, not all.

The names lie in chunks. A change copies one chunk and the list of chunks: with n names and
chunks of at most 512 that is O(512 + n / 256), 4 us with 20,000 names, where copying them
all takes 100. A place is found by bisection, first among the chunks, then inside one.

Once somebody has asked for the names by group (of a queue: by tenant), every next version
keeps those as well, each a list of its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, chain
from typing import Any, Final, overload

from scheduler.core.collections.persistent_map import PersistentMap, with_entry, without_entry

MOST: Final = 512  # names of a chunk; a longer one becomes two
BLOCK: Final = 32  # names of a block, as it is made; it may grow to twice as many

Key = Callable[[str], Any]


class Chunk(tuple[str, ...]):
    """Names that follow one another. `cached`, `runs`: facts about the jobs of these names,
    which hold for as long as the names stand together."""

    cached: Any = None
    runs: Any = None
    _blocks: tuple[Chunk, ...] | None = None

    @property
    def blocks(self) -> tuple[Chunk, ...]:
        """Return the names in shorter pieces, nearly all of which the next version of the chunk
        shares; the chunk itself where it is short."""
        if self._blocks is None:
            if len(self) <= 2 * BLOCK:
                return (self,)
            self._blocks = tuple(_cut(self))
        return self._blocks

    @cached_property
    def block_ends(self) -> list[int]:
        """The place of the first name behind each block."""
        return list(accumulate(map(len, self.blocks)))

    def spliced(self, at: int, count: int, names: tuple[str, ...]) -> Chunk:
        """Return the chunk with these names in the place of so many old ones."""
        changed = Chunk((*self[:at], *names, *self[at + count :]))
        if self._blocks is not None:
            changed._blocks = self._spliced_blocks(self._blocks, at, count, names)
        return changed

    def _spliced_blocks(
        self, blocks: tuple[Chunk, ...], at: int, count: int, names: tuple[str, ...]
    ) -> tuple[Chunk, ...]:
        for k, block in enumerate(blocks):
            if at < len(block) or k + 1 == len(blocks):
                now = (*block[:at], *names, *block[at + count :])
                pieces = (Chunk(now),) if len(now) <= 2 * BLOCK else _cut(now)
                return (*blocks[:k], *(p for p in pieces if p), *blocks[k + 1 :])
            at -= len(block)
        return ()


def _cut(names: tuple[str, ...]) -> Iterator[Chunk]:
    return (Chunk(names[at : at + BLOCK]) for at in range(0, len(names), BLOCK))


class NameList(Sequence[str]):
    """Immutable list of names in chunks, which later versions share. It equals any sequence of the
    same names in the same order. `cached`, `runs`: as of chunks."""

    __slots__ = ("_chunks", "_groups", "_size", "cached", "runs")

    def __init__(self, names: Iterable[str] = ()) -> None:
        every = tuple(names)
        half = MOST // 2
        self._chunks = tuple(Chunk(every[at : at + half]) for at in range(0, len(every), half))
        self._size = len(every)
        self._groups: PersistentMap[str, NameList] | None = None
        self.cached: Any = None
        self.runs: Any = None

    def by_group(self, group: Callable[[str], str]) -> Mapping[str, NameList]:
        """The names of each group, in order. Cost: O(names) once, O(1) for next versions."""
        if self._groups is None:
            names: dict[str, list[str]] = {}
            for name in self:
                names.setdefault(group(name), []).append(name)
            self._groups = PersistentMap({key: NameList(part) for key, part in names.items()})
        return self._groups

    def having(self, name: str, value: Any, key: Key, group: str) -> NameList:
        """Return the list with `name` of `group` inserted before the first key that is not smaller
        than `key`."""
        longer = self._longer(name, value, key)
        if (groups := self._groups) is not None:
            part = groups.get(group, _NONE)._longer(name, value, key)
            longer._groups = with_entry(groups, group, part)
        return longer

    def _longer(self, name: str, value: Any, key: Key) -> NameList:
        at, inside = self._place(value, key)
        chunk = self._chunks[at] if self._chunks else Chunk()
        longer = chunk.spliced(inside, 0, (name,))
        parts: tuple[Chunk, ...] = (longer,)
        if len(longer) > MOST:
            parts = Chunk(longer[: MOST // 2]), Chunk(longer[MOST // 2 :])
        return self._next(at, parts, self._size + 1)

    def without(self, name: str, value: Any, key: Key, group: str) -> NameList:
        """Return the list without `name` of `group`, whose key is `key`. Raises: KeyError when it
        is absent."""
        shorter = self._shorter(name, value, key)
        if (groups := self._groups) is not None:
            part = groups[group]._shorter(name, value, key)
            shorter._groups = (
                with_entry(groups, group, part) if part else without_entry(groups, group)
            )
        return shorter

    def _shorter(self, name: str, value: Any, key: Key) -> NameList:
        at, inside = self._place(value, key)
        chunk = self._chunks[at] if self._chunks else Chunk()
        if chunk[inside : inside + 1] != (name,):
            raise KeyError(name)
        shorter = chunk.spliced(inside, 1, ())
        return self._next(at, (shorter,) if shorter else (), self._size - 1)

    def appended(self, name: str) -> NameList:
        """Return the list with `name` behind all others, whatever their order."""
        last = self._chunks[-1] if self._chunks else Chunk()
        if len(last) >= MOST:
            return self._next(len(self._chunks), (Chunk((name,)),), self._size + 1)
        at = max(0, len(self._chunks) - 1)
        return self._next(at, (Chunk((*last, name)),), self._size + 1)

    def dropped(self, name: str) -> NameList:
        """Return the list without `name`, which may not be in it. Cost: 10 us of 3,000."""
        for at, chunk in enumerate(self._chunks):
            if name in chunk:
                shorter = chunk.spliced(chunk.index(name), 1, ())
                return self._next(at, (shorter,) if shorter else (), self._size - 1)
        return self

    def _place(self, value: Any, key: Key) -> tuple[int, int]:
        """Chunk, and place in it, of the first name whose key is not smaller than `value`;
        the end of the last chunk when there is none."""
        chunks = self._chunks
        if chunks and key(chunks[-1][-1]) < value:  # as most that come: one look, not seventeen
            return len(chunks) - 1, len(chunks[-1])
        at = bisect_left(chunks, value, hi=max(0, len(chunks) - 1), key=lambda c: key(c[-1]))
        return at, bisect_left(chunks[at], value, key=key) if chunks else 0

    def _next(self, at: int, parts: tuple[Chunk, ...], size: int) -> NameList:
        following = NameList.__new__(NameList)
        following._chunks = (*self._chunks[:at], *parts, *self._chunks[at + 1 :])
        following._size = size
        following._groups = following.cached = following.runs = None
        return following

    @property
    def parts(self) -> tuple[Chunk, ...]:
        """Return the names in chunks, most of which later versions of the list share."""
        return self._chunks

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...

    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        """Cost: O(1) for the first and the last, O(names) otherwise."""
        if at == 0 and self._chunks:
            return self._chunks[0][0]
        if at == -1 and self._chunks:
            return self._chunks[-1][-1]
        return tuple(self)[at]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._chunks)

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NameList | tuple) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Names({tuple(self)!r})"


_NONE: Final = NameList()
