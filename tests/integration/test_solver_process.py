"""Solvers in a process: Ctrl-C is heard, nothing is printed, nothing heavy is loaded."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf

import numpy as np
import pytest

from placement.solver import ColumnLp, IntegerProgram


def solve_linear_programs() -> None:
    program = ColumnLp()
    program.add_rows(np.ones(40), np.full(40, inf))
    program.add_columns(np.ones(40), np.eye(40, dtype=np.int64))
    for k in range(200):
        program.add_columns(np.array([0.99 - k / 1000]), np.ones((1, 40), dtype=np.int64))
        assert program.solve() is not None


def solve_integer_programs() -> None:
    for least in range(1, 33):
        program = IntegerProgram()
        x, y = program.variable(4, 2), program.variable(4, 3)
        program.row(least, 100, [(x, 3), (y, 5)])
        assert program.solve(1) is not None


@pytest.mark.parametrize("solve", [solve_linear_programs, solve_integer_programs])
def test_every_ctrl_c_is_heard_while_programs_are_solved_side_by_side(
    solve: Callable[[], None],
) -> None:
    sent = heard = 0

    def hear(*_: object) -> None:
        nonlocal heard
        heard += 1

    before = signal.signal(signal.SIGINT, hear)
    try:
        with ThreadPoolExecutor(2) as pool:
            busy = [pool.submit(solve) for _ in range(6)]
            while not all(each.done() for each in busy):
                signal.raise_signal(signal.SIGINT)
                sent += 1
                time.sleep(0.001)
            for each in busy:
                each.result()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == sent > 0


@pytest.mark.parametrize("solve", [solve_linear_programs, solve_integer_programs])
def test_ctrl_c_is_heard_after_programs_were_solved(solve: Callable[[], None]) -> None:
    # A shell that starts tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        solve()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_solvers_print_nothing_and_load_no_pandas() -> None:
    """In a process of their own: banners come once."""
    script = (
        "import sys\n"
        "import numpy as np\n"
        "from placement.solver import ColumnLp, IntegerProgram\n"
        "linear, integer = ColumnLp(), IntegerProgram()\n"
        "linear.add_rows(np.ones(2), np.ones(2))\n"
        "integer.row(1, 2, [(integer.variable(2, 1), 1)])\n"
        "assert linear.solve() and integer.solve(1)\n"
        "assert 'pandas' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
