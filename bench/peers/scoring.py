"""Every peer on one instance: guarded, repaired, scored by the referee.

A peer runs in a process of its own that outlives the instance; one that crashes or
takes too long is killed, is a row "failed", and starts again on the next instance.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench.peers import bipartition, partitioners, rank_order
from bench.peers.graph import PartitioningTask
from placement.fabric.tree import Ints

SECONDS = 4.0  # after which no further candidate is begun
GRACE = 8.0  # after which the process is killed

Peer = Callable[[PartitioningTask], Iterable[Ints]]

PEERS: dict[str, Peer] = {
    "KaHIP": bipartition.kahip,
    "Mt-KaHyPar": partitioners.mt_kahypar,
    "KaMinPar": partitioners.kaminpar,
    "METIS": partitioners.metis,
    "Scotch": partitioners.scotch,
    "Kernighan-Lin": bipartition.kernighan_lin,
    "Arnold-MIP": rank_order.arnold,
    "bands alone": partitioners.bands,
    "best-fit": rank_order.best_fit,
    "fewest-domains": rank_order.fewest_domains,
    "random": rank_order.randomly,
}
MODULES = {"KaHIP": "kahip", "Mt-KaHyPar": "mtkahypar", "KaMinPar": "kaminpar", "METIS": "pymetis"}
PROGRAMS = {"Scotch": "scotch_gmap"}


@dataclass(frozen=True, slots=True)
class Score:
    """The best candidate of one peer. `cut` is None when it failed, `why` says how."""

    peer: str
    index: int
    cut: int | None
    is_repaired: bool
    seconds: float
    why: str = ""


def absent() -> dict[str, str]:
    """Return the peers that are not installed, and what is missing."""
    missing = {
        peer: f"module {name}"
        for peer, name in MODULES.items()
        if importlib.util.find_spec(name) is None
    }
    missing |= {
        peer: f"program {name}" for peer, name in PROGRAMS.items() if shutil.which(name) is None
    }
    return missing


class Guarded:
    """Runs one peer in a process of its own, so that a crash ends only that."""

    def __init__(self, peer: str, solve: Peer | None = None, grace: float = GRACE) -> None:
        self.peer = peer
        self._solve = solve or PEERS[peer]
        self._grace = grace
        self._process: Any = None
        self._ours: Connection | None = None

    def score(self, tasks: list[PartitioningTask]) -> Score:
        """Return the best result over `tasks`, which are alternatives."""
        began = time.perf_counter()
        best: tuple[int, bool] | None = None
        why = ""
        for task in tasks:
            candidates, trouble = self._ask(task)
            why = why or trouble
            for part in candidates:
                try:
                    inside, is_repaired = fitted(task, part)
                except ValueError as error:
                    why = why or str(error)
                    continue
                found = (task.score(inside), is_repaired)
                best = found if best is None else min(best, found)
        seconds = time.perf_counter() - began
        if best is None:
            return Score(self.peer, tasks[0].seed, None, False, seconds, why or "no candidate")
        return Score(self.peer, tasks[0].seed, best[0], best[1], seconds, why)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _ask(self, task: PartitioningTask) -> tuple[list[Ints], str]:
        """Candidates until the peer ends, fails, or is killed; those before that count."""
        if self._process is None:
            self._start()
        assert self._ours is not None
        candidates: list[Ints] = []
        deadline = time.monotonic() + self._grace
        try:
            self._ours.send(task)
            while True:
                if not self._ours.poll(max(0.0, deadline - time.monotonic())):
                    self.close()
                    return candidates, f"killed after {self._grace:g} s"
                kind, value = self._ours.recv()
                if kind == "end":
                    return candidates, value
                candidates.append(value)
        except (EOFError, OSError):
            self.close()
            return candidates, "crashed"

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._solve, theirs), daemon=True)
        self._process.start()
        theirs.close()
        if not self._ours.poll(60) or self._ours.recv() != ("ready", ""):
            raise RuntimeError(f"{self.peer} did not start")


def _serve(solve: Peer, theirs: Connection) -> None:
    theirs.send(("ready", ""))
    while True:
        try:
            task = theirs.recv()
        except EOFError:
            return
        until = time.monotonic() + SECONDS
        trouble = ""
        try:
            for part in solve(task):
                theirs.send(("part", np.asarray(part, dtype=np.int64)))
                if time.monotonic() > until:
                    break
        except Exception as error:  # a peer may fail in any way it likes
            trouble = f"{type(error).__name__}: {error}"[:200]
        theirs.send(("end", trouble))


def fitted(task: PartitioningTask, part: Ints) -> tuple[Ints, bool]:
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


def _empty_overfull(task: PartitioningTask, part: Ints) -> Ints:
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
