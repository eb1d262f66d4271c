"""Inner loops as machine code: `Kernel`. The only module that imports numba.

A kernel is a plain function over flat arrays of numbers. numba takes a third of a second to
import, and a process that places one small gang is done before: so the first steps of a process
run as they are written, and what comes after them is compiled. Both take the same decisions, for
what decides is whole numbers, or floats in single operations of a fixed order: which of them
runs changes no answer.

Machine code is kept beside the module, or where NUMBA_CACHE_DIR says, or in the user's cache,
so that it is made once; where none of them can be written, each process makes its own. A log
line warns whoever waits for it. Where there is no numba, everything runs as it is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from threading import get_ident
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from placement.fabric.tree import Ints

P = ParamSpec("P")
R = TypeVar("R")
INFINITE = 1 << 60  # beyond any cost and any sum of costs
OPTIONS = {"_nrt": False}  # of numba: no memory is managed
PLAIN_STEPS = 1_000_000  # of kernels, run as they are written: a tenth of a second

log = logging.getLogger("muster.placement")


class _Process:
    """The work that this process has done without machine code, and whether that is enough."""

    def __init__(self) -> None:
        self.steps = 0
        self.has_told = False
        self.compiling_thread: int | None = None  # which alone compiles; None: any may

    def compiles(self, steps: int) -> bool:
        if self.compiling_thread not in (None, get_ident()):
            return False
        self.steps += steps
        return self.steps > PLAIN_STEPS and self.numba is not None

    @cached_property
    def numba(self) -> Any:
        try:
            import numba
        except ImportError:
            return None
        return numba

    def tell(self, dispatcher: Any) -> None:
        """Warn once that machine code is not there and somebody waits for it."""
        kept = getattr(dispatcher._cache, "_cache_file", None)
        if not self.has_told and (kept is None or not kept._load_index()):
            self.has_told = True
            log.warning("compiling the inner loops of placement, which takes half a minute or more")


_process = _Process()
kernels: list[Kernel[Any, Any]] = []


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Compile all that this thread runs in the block; other threads wait for no compiler meanwhile:
    they run loops as they are written."""
    _process.steps, _process.compiling_thread = PLAIN_STEPS, get_ident()
    try:
        yield
    finally:
        _process.compiling_thread = None


def refill(into: Ints, source: Ints) -> None:
    """Copy one array into another; a part of every kernel."""
    for k in range(len(into)):
        into[k] = source[k]


class Kernel(Generic[P, R]):
    """A loop that is compiled, and the functions that it calls.

    Arguments are numbers, one-dimensional arrays and named tuples of them; what the loop writes
    into arrays stays there. The loop makes no objects and no function returns an array, so that
    machine code need not count references, which would take most of its time.
    """

    def __init__(
        self, loop: Callable[P, R], *parts: Callable[..., object], inlines: bool = True
    ) -> None:
        """`inlines`: whether parts are put where they are called. To hand over named tuples of
        arrays takes as long as a few lines do; long parts take twice as long to compile so."""
        self._loop = loop
        self._parts = parts
        self._inlines = inlines
        kernels.append(self)

    def run(self, steps: int, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the loop, compiled if that pays. `steps`: about how often inner lines run."""
        if _process.compiles(steps):
            return self.compiled(*args, **kwargs)
        return self.plain(*args, **kwargs)

    def plain(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the loop uncompiled, over memory views, for reading a number from an array takes
        twice as long."""
        return self._loop(*map(_viewed, args), **kwargs)

    @cached_property
    def compiled(self) -> Callable[P, R]:
        """Compile the loop without fast arithmetic or threads: the same bytes as the plain loop."""
        numba = _process.numba
        for part in (refill, *self._parts):
            numba.extending.register_jitable(forceinline=self._inlines, **OPTIONS)(part)
        try:
            made: Any = numba.njit(cache=True, nogil=True, **OPTIONS)(self._loop)
        except RuntimeError:  # there is no folder to keep the machine code in
            made = numba.njit(nogil=True, **OPTIONS)(self._loop)
        self._forget_older(made._cache)
        _process.tell(made)
        return cast(Callable[P, R], made)

    def _forget_older(self, cache: Any) -> None:
        """Drop what was kept before a part was written, or this module, which says how a loop is
        compiled: numba looks at the loop's module alone."""
        kept = Path(getattr(getattr(cache, "_cache_file", None), "_index_path", ""))
        files = [Path(__file__), *(Path(part.__code__.co_filename) for part in self._parts)]
        with suppress(OSError):  # a folder that is read, not written, was filled by an installer
            if kept.is_file() and kept.stat().st_mtime < max(f.stat().st_mtime for f in files):
                cache.flush()


def _viewed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return memoryview(value.data)
    if isinstance(value, tuple):
        return type(value)(*map(_viewed, value))
    return value
