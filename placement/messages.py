"""Integer programs as messages that OR-Tools reads at once (`MPModelProto`).

To set a program entry by entry takes a call for each, and the library that writes messages takes
one for each column and row. Here numpy lays out what is as good: columns are records of one
length, and so is what rows begin with, for whole numbers get four bytes each, however small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

import numpy as np
import numpy.typing as npt

from placement.fabric.tree import Ints

Floats = npt.NDArray[np.float64]
SHIFTS, MORE = np.array([0, 7, 14, 21]), np.array([128, 128, 128, 0])  # seven bits a byte
# Each field comes after its number and, if it has no fixed length, its length in bytes.
LENGTH = ("u1", 4)
COLUMN = np.dtype(
    {
        "names": ["begin", "length", "1", "low", "2", "high", "3", "cost", "4", "is_whole"],
        "formats": ["u1", "u1", "u1", "<f8", "u1", "<f8", "u1", "<f8", "u1", "u1"],
    }
)
ROW = np.dtype(
    {
        "names": ["begin", "length", "2", "low", "3", "high", "6", "columns"],
        "formats": ["u1", LENGTH, "u1", "<f8", "u1", "<f8", "u1", LENGTH],
    }
)
FACTORS = np.dtype({"names": ["7", "length"], "formats": ["u1", LENGTH]})
NUMBER, FACTOR = 4, 8  # bytes of a column's number and of a factor


class Message:
    """What OR-Tools takes for a message: it asks for the bytes and nothing else."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def SerializeToString(self) -> bytes:
        return self._encoded


def program(
    costs: Floats,
    most: Sequence[float],
    bounds: Sequence[tuple[float, float]],
    entries: Floats,
) -> Message:
    """Whole columns from 0 to `most`, rows within `bounds`. Shape of `entries`: (rows, columns)."""
    columns = np.zeros(len(costs), COLUMN)
    columns["begin"], columns["length"] = 0x1A, COLUMN.itemsize - 2
    columns["1"], columns["2"], columns["3"], columns["4"] = 0x09, 0x11, 0x19, 0x20
    columns["high"], columns["cost"], columns["is_whole"] = most, costs, True
    return Message(b"".join([columns.tobytes(), *_rows(bounds, entries)]))


def _rows(bounds: Sequence[tuple[float, float]], entries: Floats) -> Iterator[bytes]:
    """A row's bounds, the numbers of its columns, and their factors."""
    row, column = np.nonzero(entries)
    many = np.bincount(row, minlength=len(bounds))
    rows, middle = np.zeros(len(bounds), ROW), np.zeros(len(bounds), FACTORS)
    rows["begin"], rows["2"], rows["3"], rows["6"], middle["7"] = 0x22, 0x11, 0x19, 0x32, 0x3A
    rows["low"], rows["high"] = np.array(bounds).reshape(-1, 2).T
    fixed = ROW.itemsize - 1 - NUMBER + FACTORS.itemsize
    rows["length"] = _encoded(fixed + many * (NUMBER + FACTOR))
    rows["columns"], middle["length"] = _encoded(many * NUMBER), _encoded(many * FACTOR)
    ends = np.cumsum(many)
    order = np.arange(1, len(bounds) + 1)
    parts = zip(
        _cut(rows.tobytes(), order * ROW.itemsize),
        _cut(_encoded(column).tobytes(), ends * NUMBER),
        _cut(middle.tobytes(), order * FACTORS.itemsize),
        _cut(entries[row, column].tobytes(), ends * FACTOR),
        strict=True,
    )
    return chain.from_iterable(parts)


def _cut(encoded: bytes, ends: Ints) -> Iterator[bytes]:
    """Parts up to each of these places."""
    return (encoded[a:b] for a, b in pairwise([0, *ends.tolist()]))


def _encoded(numbers: Ints) -> npt.NDArray[np.uint8]:
    """Four bytes each."""
    parts: Ints = numbers[:, None] >> SHIFTS & 127 | MORE
    return parts.astype(np.uint8)
