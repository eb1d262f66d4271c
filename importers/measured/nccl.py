"""read_sizes(): what nccl-tests measured, by size, and the hosts that it ran on."""

from __future__ import annotations

import math
import re

from scheduler.files.errors import InputError, Problem
from scheduler.files.plugins import Sizes
from scheduler.files.yaml12 import read_text

_RANK = re.compile(r"^#\s+Rank\s+\d+.*\bon\s+(\S+)\s+device")
# size, count, type and what follows: the name of the reduction and the root are not everywhere.
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s+(.*)$")
_COLLECTIVE = re.compile(r"(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv)")


def read_sizes(path: str) -> Sizes:
    """Return size in bytes, microseconds and GB/s of bus bandwidth of each row, out of place.

    Raises: InputError where there is no row, or with its line where one is damaged.
    """
    rows, hosts, called = [], [], _COLLECTIVE.search(path.rsplit("/", 1)[-1])
    for number, line in enumerate(read_text(path).splitlines(), 1):
        if found := _RANK.match(line):
            hosts.append(found[1])
        called = called or _COLLECTIVE.search(line)
        if (row := _ROW.match(line)) is None:
            continue
        figures = [part for part in row[4].split() if re.fullmatch(r"-?[0-9.]+|N/A", part)]
        if figures and figures[0] == "-1":
            figures = figures[1:]  # the root of a collective that has none
        try:
            micros, bus = float(figures[0]), float(figures[2])
        except (IndexError, ValueError):
            message = (
                "a row of nccl-tests has a time, an algorithm and a bus bandwidth after its type"
            )
            raise InputError(Problem("", message, path, number)) from None
        if not (math.isfinite(micros) and math.isfinite(bus)):
            raise InputError(Problem("", "a time or a bandwidth is too large", path, number))
        if int(row[1]) and micros > 0 and bus > 0:
            rows.append((int(row[1]), micros, bus))
    if not rows:
        raise InputError(Problem("", "has no row of nccl-tests", path))
    name = called[1] if called else ""
    return Sizes(path, name, tuple(rows), tuple(dict.fromkeys(hosts)))
