"""Arnold's mixed-integer program (2025): the spread of pipeline and data-parallel groups.

Rows are pipeline replicas; y[q] a domain is used, x[g, q] row g touches it, a[g, q] hosts of
row g in it, T the most domains of a row:

    min alpha sum y + beta T,   sum_q a[g, q] = n[g],   sum_g a[g, q] <= c[q] y[q],
    a[g, q] <= n[g] x[g, q],    sum_q x[g, q] <= T

sum y bounds the spread of a data-parallel group, for each meets every row. Inside a domain
ranks are consecutive. A time limit ends the search; what it has found by then counts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bench.graph import Task
from bench.rank_order import replicas
from placement.fabric.tree import Ints

ALPHAS = (0.0, 0.3, 0.8)  # dense jobs, mixtures of experts, and DP above all
SECONDS = 1.5
MOST_CELLS = 20_000  # rows x domains that are worth a try


def arnold(task: Task, alphas: tuple[float, ...] = ALPHAS) -> Iterator[Ints]:
    rows = replicas(task)
    if len(rows) * len(task.capacities) > MOST_CELLS:
        raise ValueError(f"{len(rows)} rows x {len(task.capacities)} domains: not tried")
    for alpha in alphas:
        held = solve([len(r) for r in rows], list(task.capacities), alpha, SECONDS)
        if held is not None:
            yield _consecutive(task, rows, held)


def solve(
    sizes: list[int], capacities: list[int], alpha: float, seconds: float
) -> list[list[int]] | None:
    """Hosts of each row in each domain; None when nothing was found in time."""
    from ortools.linear_solver import pywraplp

    solver = pywraplp.Solver.CreateSolver("SCIP")
    solver.SetTimeLimit(int(1000 * seconds))
    domains = range(len(capacities))
    used = [solver.BoolVar("") for _ in domains]
    most = solver.IntVar(1, len(capacities), "")
    hosts = [[solver.IntVar(0, min(n, capacities[q]), "") for q in domains] for n in sizes]
    for row, n in zip(hosts, sizes, strict=True):
        touched = [solver.BoolVar("") for _ in domains]
        solver.Add(solver.Sum(row) == n)
        solver.Add(solver.Sum(touched) <= most)
        for a, x in zip(row, touched, strict=True):
            solver.Add(a <= n * x)
    for q in domains:
        solver.Add(solver.Sum([row[q] for row in hosts]) <= capacities[q] * used[q])
    solver.Minimize(alpha * solver.Sum(used) + (1 - alpha) * most)
    status = solver.Solve()
    if status not in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE):
        return None
    return [[round(a.solution_value()) for a in row] for row in hosts]


def _consecutive(task: Task, rows: list[Ints], held: list[list[int]]) -> Ints:
    part = np.empty(task.blocks, dtype=np.int64)
    for row, counts in zip(rows, held, strict=True):
        part[row] = np.repeat(np.arange(len(counts)), counts)
    return part
