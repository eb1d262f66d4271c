"""Makes a partition obey capacities: the step that peers without capacities need."""

from __future__ import annotations

import numpy as np

from bench.graph import Task
from placement.fabric.tree import Ints


def fitted(task: Task, part: Ints) -> tuple[Ints, bool]:
    """Return `part` within the capacities, and whether blocks had to be moved.

    Parts go to domains by size first: few tools know which part is which domain.
    """
    part = np.asarray(part, dtype=np.int64)
    count = len(task.capacities)
    if part.shape != (task.blocks,) or part.min() < 0 or part.max() >= count:
        raise ValueError("not a partition into these domains")
    room = np.array(task.capacities)
    if (np.bincount(part, minlength=count) <= room).all():
        return part, False
    by_size = np.argsort(-np.bincount(part, minlength=count), kind="stable")
    name = np.empty(count, dtype=np.int64)
    name[by_size] = np.argsort(-room, kind="stable")
    part = name[part]
    if (np.bincount(part, minlength=count) <= room).all():
        return part, False
    return _empty_overfull(task, part), True


def _empty_overfull(task: Task, part: Ints) -> Ints:
    """Move the cheapest block out of an overfull domain until none is overfull."""
    room = np.array(task.capacities) - np.bincount(part, minlength=len(task.capacities))
    pull = np.zeros((task.blocks, len(room)))  # weight from each block to each domain
    np.add.at(pull, (task.heads, part[task.tails]), task.weights)
    np.add.at(pull, (task.tails, part[task.heads]), task.weights)
    start, neighbour, weight = task.csr()
    for domain in np.flatnonzero(room < 0):
        while room[domain] < 0:
            inside = np.flatnonzero(part == domain)
            gain = pull[inside] - pull[inside, domain][:, None]
            gain[:, room <= 0] = -np.inf
            i, target = np.unravel_index(int(np.argmax(gain)), gain.shape)
            block = int(inside[i])
            part[block] = target
            room[domain] += 1
            room[target] -= 1
            near = slice(start[block], start[block + 1])
            pull[neighbour[near], domain] -= weight[near]
            pull[neighbour[near], target] += weight[near]
    return part
