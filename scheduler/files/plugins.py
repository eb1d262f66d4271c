"""Readers of other programs' files, found by entry points and loaded when they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from statistics import median
from typing import Any, Generic, TypeVar

from muster.structs import struct
from scheduler.files.errors import InputError, Problem

Plugin = TypeVar("Plugin")


class Plugins(Mapping[str, Plugin], Generic[Plugin]):
    """Plugins that the entry points of one group name, loaded when asked for."""

    def __init__(self, group: str) -> None:
        self._group = group

    def __getitem__(self, name: str) -> Plugin:
        """Raises: KeyError; InputError when the package that has it cannot be loaded."""
        entry = _entries(self._group)[name]
        try:
            plugin: Plugin = entry.load()
        except Exception as error:  # whatever a package of somebody else's may raise
            message = f"{entry.value} cannot be loaded: {error}"
            raise InputError(Problem(name, message)) from error
        return plugin

    def __iter__(self) -> Iterator[str]:
        return iter(_entries(self._group))

    def __len__(self) -> int:
        return len(_entries(self._group))


@cache
def _entries(group: str) -> dict[str, EntryPoint]:
    """Entry points by name, read once: packages are not installed while a process runs."""
    return {entry.name: entry for entry in entry_points(group=group)}


IMPORTERS: Plugins[Any] = Plugins("muster.importers")


def importer(name: str) -> Any:
    """Return what reads files of this kind. Raises: InputError when none is installed."""
    if name not in IMPORTERS:
        message = f"no reader of the group muster.importers is installed as {name}"
        raise InputError(Problem("", message))
    return IMPORTERS[name]


FEWEST_STEPS = 5  # of which the first are left out: caches, compilation, connections
WARM_UP_SHARE = 10  # one part in so many


@struct(frozen=True, slots=True)
class RunSteps:
    """The seconds of the steps of one run, in their order. `source`: the file, or the job."""

    source: str
    framework: str
    seconds: tuple[float, ...]

    @property
    def typical_s(self) -> float:
        """Median seconds of a step, without the first tenth of the steps, and at least without the
        first one."""
        left_out = max(1, len(self.seconds) // WARM_UP_SHARE)
        return median(self.seconds[left_out:] or self.seconds)


@struct(frozen=True, slots=True)
class Sizes:
    """Measurements of one collective at several sizes: (bytes, microseconds, GB/s of bus bandwidth)
    each. `hosts`: as the program names them, none where it does not."""

    source: str
    collective: str
    rows: tuple[tuple[int, float, float], ...]
    hosts: tuple[str, ...]
