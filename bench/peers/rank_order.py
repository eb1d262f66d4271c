"""Peers that look at ranks and free capacity only: what schedulers ship, and Arnold (2025).

Each gives candidates: the domain of every block.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from bench.peers.graph import PartitioningTask
from placement.fabric.tree import Ints

ARNOLD_ALPHAS = (0.0, 0.3, 0.8)  # dense jobs, mixtures of experts, and DP above all
ARNOLD_SECONDS = 1.5
ARNOLD_MOST_CELLS = 20_000  # rows x domains that are worth a try


def fewest_domains(task: PartitioningTask) -> list[Ints]:
    """Place ranks in order on the fewest domains, as Kueue (by size, a best fit last) and Slurm (in
    order)."""
    kept = task.narrowed()
    index = {d: i for i, d in enumerate(task.domains)}
    in_order = [index[d] for d in kept.domains]
    by_size = sorted(in_order, key=lambda i: -task.capacities[i])
    before = sum(task.capacities[i] for i in by_size[:-1])
    rest = task.blocks - before
    others = [i for i in range(len(task.capacities)) if i not in by_size[:-1]]
    last = min((i for i in others if task.capacities[i] >= rest), key=lambda i: task.capacities[i])
    return [_consecutive(task, order) for order in ([*by_size[:-1], last], in_order)]


def _consecutive(task: PartitioningTask, order: list[int]) -> Ints:
    filled = np.repeat(order, [task.capacities[i] for i in order])
    return filled[: task.blocks]


def best_fit(task: PartitioningTask) -> list[Ints]:
    """Place replica by replica into the fullest domain that holds it; split a replica when none
    does."""
    room = np.array(task.capacities)
    part = np.empty(task.blocks, dtype=np.int64)
    for row in replicas(task):
        left = row
        while len(left):
            fits = np.flatnonzero(room >= len(left))
            chosen = fits[np.argmin(room[fits])] if len(fits) else np.argmax(room)
            taken, left = left[: room[chosen]], left[room[chosen] :]
            part[taken] = chosen
            room[chosen] -= len(taken)
    return [part]


def randomly(task: PartitioningTask) -> list[Ints]:
    """Place ranks on free hosts in random order, as a scheduler without topology does."""
    slots = list(np.repeat(np.arange(len(task.capacities)), task.capacities))
    return [np.array(random.Random(task.seed).sample(slots, task.blocks))]


def replicas(task: PartitioningTask) -> list[Ints]:
    """Return the blocks of each data-parallel replica, stage after stage."""
    p = task.request.parallelism
    first = np.arange(task.blocks) * task.gpus
    dp = first // p.stride("dp") % p.dp if p.dp > 1 else np.zeros(task.blocks, dtype=np.int64)
    pp = first // p.stride("pp") % p.pp if p.pp > 1 else np.zeros(task.blocks, dtype=np.int64)
    order = np.lexsort((first, pp, dp))
    return np.split(order, np.flatnonzero(np.diff(dp[order])) + 1)


def arnold(task: PartitioningTask, alphas: tuple[float, ...] = ARNOLD_ALPHAS) -> Iterator[Ints]:
    """Yield the layout of Arnold's program for each alpha.

    Rows are pipeline replicas; y[q] a domain is used, x[g, q] row g touches it, a[g, q] hosts of
    row g in it, T the most domains of a row:

        min alpha sum y + beta T,   sum_q a[g, q] = n[g],   sum_g a[g, q] <= c[q] y[q],
        a[g, q] <= n[g] x[g, q],    sum_q x[g, q] <= T

    sum y bounds the spread of a data-parallel group, for each meets every row. Inside a domain
    ranks are consecutive. A time limit ends the search; what it has found by then counts.
    """
    rows = replicas(task)
    if len(rows) * len(task.capacities) > ARNOLD_MOST_CELLS:
        raise ValueError(f"{len(rows)} rows x {len(task.capacities)} domains: not tried")
    for alpha in alphas:
        held = solve_arnold([len(r) for r in rows], list(task.capacities), alpha, ARNOLD_SECONDS)
        if held is not None:
            yield _rows_in_domains(task, rows, held)


def solve_arnold(
    sizes: list[int], capacities: list[int], alpha: float, seconds: float
) -> list[list[int]] | None:
    """Return the hosts of each row in each domain; None when nothing was found in time."""
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


def _rows_in_domains(task: PartitioningTask, rows: list[Ints], held: list[list[int]]) -> Ints:
    part = np.empty(task.blocks, dtype=np.int64)
    for row, counts in zip(rows, held, strict=True):
        part[row] = np.repeat(np.arange(len(counts)), counts)
    return part
