"""Peers that look at ranks and free capacity only: what schedulers ship.

Each gives candidates: the domain of every block.
"""

from __future__ import annotations

import random

import numpy as np

from bench.graph import Task
from placement.fabric.tree import Ints


def fewest_domains(task: Task) -> list[Ints]:
    """Fewest domains, ranks consecutive: Kueue by size with a best-fit last, Slurm in order."""
    kept = task.narrowed()
    index = {d: i for i, d in enumerate(task.domains)}
    in_order = [index[d] for d in kept.domains]
    by_size = sorted(in_order, key=lambda i: -task.capacities[i])
    before = sum(task.capacities[i] for i in by_size[:-1])
    rest = task.blocks - before
    others = [i for i in range(len(task.capacities)) if i not in by_size[:-1]]
    last = min((i for i in others if task.capacities[i] >= rest), key=lambda i: task.capacities[i])
    return [_consecutive(task, order) for order in ([*by_size[:-1], last], in_order)]


def _consecutive(task: Task, order: list[int]) -> Ints:
    filled = np.repeat(order, [task.capacities[i] for i in order])
    return filled[: task.blocks]


def best_fit(task: Task) -> list[Ints]:
    """Replica by replica into the fullest domain that holds it; split when none does."""
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


def randomly(task: Task) -> list[Ints]:
    """Free hosts in random order, as a scheduler without topology hands them out."""
    slots = list(np.repeat(np.arange(len(task.capacities)), task.capacities))
    return [np.array(random.Random(task.seed).sample(slots, task.blocks))]


def replicas(task: Task) -> list[Ints]:
    """Blocks of each data-parallel replica, stage after stage."""
    p = task.request.parallelism
    first = np.arange(task.blocks) * task.gpus
    dp = first // p.stride("dp") % p.dp if p.dp > 1 else np.zeros(task.blocks, dtype=np.int64)
    pp = first // p.stride("pp") % p.pp if p.pp > 1 else np.zeros(task.blocks, dtype=np.int64)
    order = np.lexsort((first, pp, dp))
    return np.split(order, np.flatnonzero(np.diff(dp[order])) + 1)
