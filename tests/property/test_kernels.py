"""Inner loops: compiled and as they are written, they come to the same."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import kernels as compiled
from placement.bound.pricing import Pricer
from placement.graph.hypergraph import Hypergraph, grid_graph
from placement.grid.isoperimetry import BlockAxis, _plane
from placement.kernels import Kernel
from placement.search.graph_slicing import Sweeper, best_of_trees, slice_grid
from placement.search.multilevel import Multilevel
from placement.search.segmentation import Segmenter
from placement.search.slicing_trees import TreeArrays, copy_of, plan_of
from placement.warmup import warm_up
from placement.workload.request import Request
from placement.workload.traffic import Pattern
from tests.build import request
from tests.property.grids import COLLECTIVE, graph_of, grid_of

GPUS = 2
PATTERNS = st.sampled_from((Pattern.RING, Pattern.HIERARCHICAL, Pattern.ALL_TO_ALL))


def both(work: Callable[[], object]) -> None:
    """The same answer by machine code and without."""
    with patch.object(Kernel, "run", lambda kernel, _, *args: kernel.plain(*args)):
        plain = work()
    with patch.object(Kernel, "run", lambda kernel, _, *args: kernel.compiled(*args)):
        assert repr(work()) == repr(plain)


@st.composite
def gangs(draw: st.DrawFn) -> Request:
    sizes = {axis: draw(st.integers(1, 4)) for axis in ("cp", "pp", "dp")}
    return request(
        tp=GPUS,
        **sizes,
        traffic={axis: draw(st.integers(0, 9)) for axis in sizes},
        collectives={"dp": draw(COLLECTIVE), "cp": draw(COLLECTIVE)},
    )


@settings(max_examples=40, deadline=None)
@given(gang=gangs(), seed=st.integers(0, 99), zones=st.integers(1, 4))
def test_layouts_are_the_same_bytes(gang: Request, seed: int, zones: int) -> None:
    grid = grid_of(gang, GPUS)
    rng = random.Random(seed)
    region = np.array([rng.random() < 0.8 for _ in range(grid.size)]).reshape(grid.rows, -1)
    room = [grid.size // zones + rng.randrange(1, 3) for _ in range(zones)]
    starts = [plan_of(range(zones), room, [axis]) for axis in (0, 1)]
    both(lambda: slice_grid(grid, room, 60, 0, region=region).tolist())
    pieces = grid_graph(grid, np.ones_like(region))
    both(lambda: _cut(pieces, room))
    search = Multilevel(pieces, room, 20, 0)
    start = np.repeat(np.arange(zones), room)[: grid.size]
    both(lambda: search.polished(start, str(seed)).tolist())
    both(lambda: search.make_layout(4, str(seed)).tolist())
    graph = graph_of(gang, GPUS)
    along = [np.arange(graph.blocks), np.array(rng.sample(range(graph.blocks), graph.blocks))]
    for sweeper in (Sweeper(graph, along), Sweeper(pieces, along)):
        both(lambda sweeper=sweeper: sweeper.searched(room, 40, 0).tolist())
        both(lambda sweeper=sweeper: _by_trees(sweeper, starts, room))
        built = sweeper._searched(copy_of(starts[0]), 40, 0, 0.1, 7)
        assert built.cost == sweeper.graph.cost(built.layout)  # counted move by move


def _by_trees(sweeper: Sweeper, starts: list[TreeArrays], room: list[int]) -> object:
    """The same search, every tree built and counted as a whole."""
    cost = sweeper.graph.cost
    return best_of_trees(sweeper.layout, cost, starts, room, 40, 0, sweeper.axes).tolist()


def _cut(pieces: Hypergraph, room: list[int]) -> list[object]:
    segmenter, domains = Segmenter(pieces, room), range(len(room))
    walks = segmenter.add([np.arange(pieces.blocks), np.arange(pieces.blocks)[::-1]])
    cuts = [segmenter.layout(walk, domains).tolist() for walk in walks]
    return [segmenter.costs(walks, domains).tolist(), cuts]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_prices_are_the_same_bytes(seed: int) -> None:
    rng = random.Random(seed)
    rows, width, capacity = rng.randint(1, 4), rng.randint(1, 9), rng.randint(1, 14)
    slopes = [
        tuple((rng.randint(1, 9), rng.randint(1, width)) for _ in range(rng.randint(1, 3)))
        for _ in range(rows - 1)
    ]
    slopes = [tuple(sorted(each)) for each in slopes]
    cost = np.array([[rng.randint(-9, 9) for _ in range(width + 1)] for _ in range(rows)])

    def work() -> object:
        pricer = Pricer(rows, width, capacity, slopes, [rng.randint(0, 2)] * (rows - 1))
        pricer.price(cost, np.zeros(capacity + 1, dtype=np.int64))
        return pricer.by_used.tolist(), pricer.patterns([capacity])

    state = rng.getstate()

    def again() -> object:
        rng.setstate(state)
        return work()

    both(again)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    patterns=st.tuples(PATTERNS, PATTERNS),
)
def test_planes_are_the_same_bytes(
    sizes: tuple[int, int], patterns: tuple[Pattern, Pattern]
) -> None:
    a, b = (BlockAxis("dp", n, 1, kind, 3) for n, kind in zip(sizes, patterns, strict=True))
    both(lambda: _plane.__wrapped__(a, b).tolist())


def test_loops_of_other_threads_wait_for_no_compiler() -> None:
    """While one thread compiles ahead, they run as they are written."""
    pytest.importorskip("numba")
    kernel = Kernel(_doubled)
    compiled.kernels.remove(kernel)
    with (
        patch.object(Kernel, "compiled", lambda self, number: -number),
        ThreadPoolExecutor(1) as other,
        compiled.compiling_ahead(),
    ):
        here, there = kernel.run(1, 5), other.submit(kernel.run, 1, 5).result()
    assert (here, there) == (-5, 10)


def test_a_small_gang_is_placed_without_numba() -> None:
    script = (
        "import sys; from placement.placer import place; from tests.build import flat, request;"
        "from placement.fabric import hostset; f = flat(6, 6, gpus=8);"
        "a = place(f, hostset.full(12), request(tp=8, pp=2, dp=4, traffic={'dp': 3, 'pp': 1}));"
        "assert a.is_optimal, a; print('numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_warming_up_leaves_nothing_to_compile() -> None:
    warm_up()
    for kernel in compiled.kernels:
        assert len(kernel.compiled.signatures) == 1  # type: ignore[attr-defined]


def test_without_a_folder_for_machine_code_it_is_made_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    numba = pytest.importorskip("numba")

    def no_folder(_: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(numba.core.dispatcher.Dispatcher, "enable_caching", no_folder)
    monkeypatch.setattr(compiled._process, "has_told", False)
    kernel = Kernel(_doubled)
    compiled.kernels.remove(kernel)
    assert kernel.compiled(21) == 42
    assert "compiling" in caplog.text


def _doubled(n: int) -> int:
    return 2 * n


def test_where_there_is_no_numba_loops_run_as_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = compiled._Process()
    monkeypatch.setattr(compiled, "_process", process)
    monkeypatch.setitem(sys.modules, "numba", None)
    kernel = Kernel(_doubled)
    compiled.kernels.remove(kernel)
    assert kernel.run(10 * compiled.PLAIN_STEPS, 21) == 42
    assert process.numba is None


def test_machine_code_is_made_anew_when_a_part_is_written_anew(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    part, loop = tmp_path / "part.py", tmp_path / "loop.py"
    loop.write_text(
        "from part import more\nfrom placement.kernels import Kernel\n"
        "def _loop(n: int) -> int:\n    return more(n)\n"
        "print(Kernel(_loop, more).compiled(20))\n"
    )
    for many in (1, 22):
        part.write_text(f"def more(n: int) -> int:\n    return n + {many}\n")
        search = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(
            [sys.executable, "-B", str(loop)], env=search, capture_output=True, text=True
        )
        assert done.stdout == f"{20 + many}\n", done.stderr
    assert list(tmp_path.glob("__pycache__/*.nbi"))
