"""Where other schedulers place a gang, for make bench-time: hosts in the order of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bench.steps.instances import StepInstance
from placement import by_spread, consecutive, place
from placement.fabric.tree import Ints
from placement.tiers.single_domain import single_domains
from placement.workload.request import Objective, Placement, Request

Peer = Callable[[StepInstance, Ints, int], Sequence[int] | Ints]


def placed(inst: StepInstance, request: Request) -> Placement:
    answer = place(inst.fabric, inst.free, request)
    assert isinstance(answer, Placement), answer
    return answer


def _by_name(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    return free[:gang]


def _random(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    return np.random.default_rng(0).permutation(free)[:gang]


def _slurm_tree(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    """topology/tree: the fewest switches; nodes are handed out in the order of their names."""
    return np.sort(consecutive(inst.fabric)(free, gang))


def _slurm_block(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    """topology/block: the smallest aggregate of 1, 2, 4, ... neighbouring blocks that holds the
    job, of those the one with the fewest free nodes; in it the blocks with most free nodes, whole
    ones first; nodes in the order of their names. A block is an innermost domain."""
    block = inst.fabric.tiers[-1].domain_by_host[free]
    width, blocks = 1, len(inst.fabric.tiers[-1].domains)
    inside = np.arange(len(free))
    while True:
        aggregate = block // width
        held = np.bincount(aggregate)
        fits = np.flatnonzero(held >= gang)
        if len(fits):
            inside = np.flatnonzero(aggregate == fits[np.argmin(held[fits])])
            break
        if width >= blocks:
            break
        width *= 2
    by_block = np.bincount(block[inside], minlength=blocks)
    fullest = np.argsort(-by_block, kind="stable")
    needed = int(np.searchsorted(np.cumsum(by_block[fullest]), gang)) + 1
    return free[inside][np.isin(block[inside], fullest[:needed])][:gang]


def _kueue(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    """Topology-aware scheduling: the fewest domains, best fit, ranks in their order."""
    return consecutive(inst.fabric)(free, gang)


def _volcano(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    """The smallest HyperNode that holds the job, anywhere in it."""
    inside = single_domains(inst.fabric, free, gang, gang)
    return (inside[0][0] if inside else free)[:gang]


def _arnold(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    return placed(inst, by_spread(inst.request)).hosts


def _by_cut(inst: StepInstance, free: Ints, gang: int) -> Sequence[int] | Ints:
    return placed(inst, replace(inst.request, objective=Objective.CUT)).hosts


PEERS: dict[str, Peer] = {
    "by name": _by_name,
    "random": _random,
    "Slurm tree": _slurm_tree,
    "Slurm block": _slurm_block,
    "Kueue TAS": _kueue,
    "Volcano HyperNode": _volcano,
    "Arnold": _arnold,
    "muster, objective cut": _by_cut,
}
