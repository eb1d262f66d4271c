"""CLP as OR-Tools brings it along, by its own interface in C.

pywraplp hands over new columns entry by entry, for each of which CLP moves all of its matrix: to
four hundred columns in a hundred rows, 24 more take 12 ms, and to go on from the last basis less
than one. Here columns and rows are handed over many at a time, and read off as arrays.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from ortools.linear_solver import pywraplp  # which loads the library

from placement.fabric.tree import Ints
from placement.interrupts import Kept

Floats = npt.NDArray[np.float64]
LIBRARIES: Final = Path(pywraplp.__file__).parents[1] / ".libs"
DUAL, PRIMAL = 0, 1  # of ClpSolve::SolveType
PRESOLVE_OFF: Final = 1
# With more columns a basis stays feasible: the primal simplex needs a few steps where presolve
# and the dual would begin again. With other bounds its prices do, and the dual needs fewer.
MORE_COLUMNS, OTHER_BOUNDS = PRIMAL, DUAL
OPTIMAL, STOPPED = 0, 3  # of ClpSimplex::status()
BASIC, AT_LOW = 1, 3  # of ClpSimplex::Status
MOST_STEPS: Final = 2**31 - 1
TIMES: Final = 5  # that a program is begun again: Ctrl-C stops one that another thread has solved

_ctrl_c = Kept()


def _library() -> str:
    """Whatever it is called on this system."""
    return next((str(path) for path in sorted(LIBRARIES.glob("libClp.*"))), "libClp.so.1")


def _declared(library: Any) -> Any:
    """Functions that take or return more than whole numbers."""
    for name in ("Clp_newModel", "ClpSolve_new", "Clp_getRowPrice", "Clp_getColSolution"):
        getattr(library, name).restype = ctypes.c_void_p
    library.Clp_getObjValue.restype = ctypes.c_double
    return library


# Short calls keep Python's lock: to get it back from another thread may take far longer.
_clp, _long = _declared(ctypes.PyDLL(_library())), ctypes.CDLL(_library())


class Program:
    """min cost x, low <= A x <= high, x >= 0, growing by columns and by rows."""

    def __init__(self) -> None:
        self._model = ctypes.c_void_p(_clp.Clp_newModel())
        weakref.finalize(self, _clp.Clp_deleteModel, self._model)
        _clp.Clp_setLogLevel(self._model, 0)
        self._low = self._high = np.empty(0)
        self.columns = 0

    @property
    def rows(self) -> int:
        return len(self._low)

    def add_columns(self, costs: Floats, entries: Floats | Ints) -> None:
        """Shape of `entries`: (columns, rows)."""
        many = len(costs)
        arrays = np.zeros(many), np.full(many, np.inf), costs, *_sparse(entries)
        _clp.Clp_addColumns(self._model, many, *_at(arrays))
        self.columns += many

    def add_rows(self, low: Floats, high: Floats, entries: Floats) -> None:
        """Shape of `entries`: (rows, columns)."""
        arrays = low, high, *_sparse(entries)
        _clp.Clp_addRows(self._model, len(low), *_at(arrays))
        self._low, self._high = np.append(self._low, low), np.append(self._high, high)

    def set_bounds(self, row: int, low: float, high: float) -> None:
        """Other bounds of a row."""
        self._low[row], self._high[row] = low, high
        low_, high_ = _at((self._low, self._high))
        _clp.Clp_chgRowLower(self._model, low_)
        _clp.Clp_chgRowUpper(self._model, high_)

    def solve(self, algorithm: int) -> bool:
        """From the last basis on; whether it was. Where it was stopped half way, say by Ctrl-C, it
        begins again."""
        options = ctypes.c_void_p(_clp.ClpSolve_new())
        _clp.ClpSolve_setPresolveType(options, PRESOLVE_OFF, -1)
        _clp.ClpSolve_setSolveType(options, algorithm, -1)
        with _ctrl_c:
            _long.Clp_initialSolveWithOptions(self._model, options)
            for _ in range(TIMES):
                if _clp.Clp_status(self._model) != STOPPED:
                    break
                self._forget_basis()
                _long.Clp_initialSolve(self._model)
        _clp.ClpSolve_delete(options)
        return bool(_clp.Clp_status(self._model) == OPTIMAL)

    def _forget_basis(self) -> None:
        """And that it may take no more steps, which is how it was stopped."""
        basis = np.repeat(np.array([AT_LOW, BASIC], dtype=np.uint8), [self.columns, self.rows])
        _clp.Clp_copyinStatus(self._model, *_at([basis]))
        _clp.Clp_setMaximumIterations(self._model, MOST_STEPS)

    @property
    def cost(self) -> float:
        return float(_clp.Clp_getObjValue(self._model))

    @property
    def duals(self) -> Floats:
        """Of the rows."""
        return _read(_clp.Clp_getRowPrice(self._model), self.rows)

    @property
    def values(self) -> Floats:
        """Of the columns."""
        return _read(_clp.Clp_getColSolution(self._model), self.columns)


def _sparse(entries: Floats | Ints) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Floats]:
    """Where each vector begins, and the places and values of what is not zero."""
    vector, place = np.nonzero(entries)
    starts = np.searchsorted(vector, np.arange(len(entries) + 1)).astype(np.int32)
    return starts, place.astype(np.int32), entries[vector, place].astype(np.float64)


def _at(arrays: Sequence[npt.NDArray[Any]]) -> list[ctypes.c_void_p]:
    """Where they begin; whoever asks keeps them."""
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


def _read(address: int, count: int) -> Floats:
    return np.array((ctypes.c_double * count).from_address(address))
