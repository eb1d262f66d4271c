"""The outermost tier: which zone carries which block, and how good that is.

Slicing trees find layouts from above, `bounds` proves from below, in turns and with
growing effort, until the two meet or the work allowed is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import floor

import numpy as np

from placement.bound.charging import Form, by_sizes, forms
from placement.fabric.tree import Ints
from placement.graph.hypergraph import grid_graph
from placement.grid.block_grid import BlockGrid
from placement.grid.groups import Groups, groups_of
from placement.grid.layout import Layout, ZonePattern, layout_cost, patterns_of
from placement.proof.branch_and_price import ROUNDS_EACH, Prover
from placement.proof.split_groups import Parted
from placement.search.bands import band_trees
from placement.search.count_annealing import counts_cost, is_counted, transferred
from placement.search.grid_slicing import FEW_TREES, SLACK, SMALL, slice_grid
from placement.search.integer_cover import covering_slots, laid_out
from placement.search.multilevel import PROPOSALS, WIDE, refined
from placement.speculative import ahead
from placement.workload.request import Limits

FEW_PATTERNS = 140  # columns of the integer master
STUCK = 5  # times what half of the work has proved: a gap that the other half will not close
MANY_NODES = 16  # of a proof, before it may be given up
TRANSFERS = 50  # proposals of annealing of counts, for each tree and run
MOST_RUNS = 12  # of these, two at a time
MOST_ONCE = 16_000_000  # entries of tables of sizes for an unproved layout: half a second
SLACKS = (SLACK, 0.01)  # of a search that strays, and of one that stays near: neither finds all
MANY_ZONES, MANY_BLOCKS = 16, 1_500  # beyond which more trees are tried, and fewer
NEARLY = 0.96  # of a quick layout's cut: a bound that a better one may meet
CLOSE = 0.99  # of a layout's cut: a bound that as much work again may bring up to it
MOST_AGAIN = 6  # times, as long as each leaves no more than this of the gap:
CLOSING = 0.85


@dataclass(frozen=True, slots=True)
class ZoneStep:
    """A layout, its doubled cut, and a doubled cut that no layout beats."""

    layout: Layout
    cost: int
    bound: int


class _Proof:
    """A prover of one form, and the best it has proved in units of the grid."""

    def __init__(self, form: Form, capacities: Sequence[int], best: ZoneStep) -> None:
        self.form = form
        self.start = best
        seeds = patterns_of(best.layout, len(capacities))
        self.prover = Prover(
            form.charged,
            capacities,
            seeds,
        )
        self.bound = 0
        self._told = self.prover.cover

    def fresh_cover(self) -> Sequence[ZonePattern]:
        """What a node's program chose last, if nobody has asked since."""
        is_told, self._told = self._told is self.prover.cover, self.prover.cover
        return [] if is_told else self._told

    def prove(self, cost: int, rounds: int) -> int:
        """The bound after so many more rounds against a layout of this cost."""
        doubled = self.prover.prove(cost * self.form.parts, rounds)
        self.bound = max(self.bound, self.form.whole(doubled))
        return self.bound


def solve_zones(
    grid: BlockGrid,
    capacities: Sequence[int],
    reserved: Sequence[int],
    limits: Limits,
) -> ZoneStep:
    """The least cut over zones with `capacities` free hosts.

    `reserved`: the same, less the spares one would like to keep in each zone; kept where
    that costs no cut. The zones must hold the grid, and no single zone can.
    """
    best = _solved(grid, capacities, limits)
    layout = _with_spares(grid, capacities, reserved, best)
    return ZoneStep(_in_name_order(layout, capacities), best.cost, best.bound)


def _solved(grid: BlockGrid, capacities: Sequence[int], limits: Limits) -> ZoneStep:
    """The same whichever hosts of a zone and whichever zones of one size are used."""
    bound = sized = by_sizes(grid, capacities) if limits.rounds else 0
    is_small = grid.size <= SMALL and limits.rounds > 0
    # Of a small gang a proof takes no longer than one of its groups.
    groups = _fitting(grid, capacities) if limits.rounds and not is_small else None
    parted: Parted | None = None
    cases = [(grid, capacities)]
    if groups is not None:
        cases.append((groups.whole, groups.room(capacities)))
    trees = limits.trees // (25 if is_small else 4)
    searches = ahead([partial(_search, *case, trees, bound) for case in cases])
    best = next(searches)
    if best.cost <= bound or not limits.rounds:
        return best
    if groups is not None:
        whole = next(searches)
        best = _better(best, replace(whole, layout=groups.laid_out(whole.layout)))
        parted = Parted(groups, capacities, whole.layout)
        if parted.prove(whole.cost, floor(NEARLY * whole.cost), 1) >= NEARLY * whole.cost:
            return _of_groups(grid, parted, capacities, best, bound, limits)
    proof = _promising(grid, capacities, best)
    bound = max(bound, proof.bound)
    if parted is not None and bound < best.cost and parted.is_above(bound):
        # It is whole groups that lack a proof.
        return _of_groups(grid, parted, capacities, best, bound, limits)
    best = _by_program(proof, capacities, best, limits.trees)
    if is_small and bound < best.cost:
        best = _better(best, _refined(grid, capacities, best, limits.trees // 10, bound))
    if is_small and bound < best.cost:
        best = _better(best, _search(grid, capacities, limits.trees // 4, bound))
    if bound < best.cost:
        bound = max(bound, sized or by_sizes(grid, capacities, MOST_ONCE))
        best = _searched(grid, capacities, best, limits.trees, bound)
        best, proved = _proved(proof, capacities, best, limits)
        bound = max(bound, proved)
    return ZoneStep(best.layout, best.cost, bound)


def _fitting(grid: BlockGrid, capacities: Sequence[int]) -> Groups | None:
    """Its groups, if zones hold all of them unparted."""
    groups = groups_of(grid)
    if groups is None or sum(groups.room(capacities)) < groups.whole.size:
        return None
    return groups


def _of_groups(
    grid: BlockGrid,
    parted: Parted,
    capacities: Sequence[int],
    best: ZoneStep,
    bound: int,
    limits: Limits,
) -> ZoneStep:
    """The best layout that parts no group, or the best so far, and what no layout beats."""
    groups = parted.groups
    step = _solved(groups.whole, groups.room(capacities), limits)
    best = _better(best, replace(step, layout=groups.laid_out(step.layout)))
    proved = parted.prove(min(step.bound, best.cost), 0, limits.rounds)
    bound = max(bound, min(step.bound, proved))
    if proved < step.bound and bound < best.cost:
        bound = max(bound, _promising(grid, capacities, best).bound)
    return replace(best, bound=min(best.cost, bound))


def _promising(grid: BlockGrid, capacities: Sequence[int], best: ZoneStep) -> _Proof:
    """The way to charge zones that proves most in a few rounds; the first that proves all, and
    the grid's own on a tie."""
    ways = forms(grid)
    proofs: list[_Proof] = []
    calls = [partial(_tried, form, capacities, best, len(ways)) for form in ways]
    for proof in ahead(calls, are_long=grid.size > SMALL):
        proofs.append(proof)
        if proof.bound >= best.cost:
            break
    chosen = max(proofs, key=lambda proof: proof.bound)
    return chosen


def _tried(form: Form, capacities: Sequence[int], best: ZoneStep, ways: int) -> _Proof:
    """A proof of one form, begun."""
    proof = _Proof(form, capacities, best)
    proof.prove(best.cost, ROUNDS_EACH if ways > 1 else 1)
    return proof


def _proved(
    proof: _Proof, capacities: Sequence[int], best: ZoneStep, limits: Limits
) -> tuple[ZoneStep, int]:
    """The rest of the work: proving, and covering with what the proof came by."""
    grid, part, before = proof.form.grid, limits.rounds // 2, proof.bound
    bound = proof.prove(best.cost, part)
    best = _by_program(proof, capacities, best, limits.trees)
    if bound < best.cost:
        if is_counted(grid):
            best = _covered(grid, capacities, proof.prover, best, bound)
        else:
            trees = limits.trees if bound < CLOSE * best.cost else 0
            best = _better(best, _refined(grid, capacities, best, trees, bound))
        # A better layout may be proved by what is known; else there is no end in sight where
        # the bound is far off and has hardly risen.
        is_far = best.cost - bound > STUCK * (bound - before) and bound < CLOSE * best.cost
        is_stuck = is_far and proof.prover.made > MANY_NODES
        before = best.cost - bound
        bound = proof.prove(best.cost, 0 if is_stuck else limits.rounds - part)
        is_closing = best.cost - bound <= CLOSING * before
        if bound < WIDE * best.cost:
            bound = proof.prove(best.cost, 0 if is_stuck else limits.rounds)
        best = _by_program(proof, capacities, best, limits.trees)
        if is_counted(grid):
            best = _covered(grid, capacities, proof.prover, best, bound)
        near = WIDE if proof.prover.mirrored else CLOSE
        if is_closing and near * best.cost <= bound < best.cost:
            best, bound = _to_the_end(proof, capacities, best, limits)
    return best, bound


def _to_the_end(
    proof: _Proof, capacities: Sequence[int], best: ZoneStep, limits: Limits
) -> tuple[ZoneStep, int]:
    """As much work again, and again while that closes a good part of the gap."""
    for _ in range(MOST_AGAIN):
        open_ = best.cost - proof.bound
        bound = proof.prove(best.cost, limits.rounds)
        best = _by_program(proof, capacities, best, limits.trees)
        if best.cost <= bound or best.cost - bound > CLOSING * open_:
            break
    return best, bound


def _searched(
    grid: BlockGrid, capacities: Sequence[int], best: ZoneStep, trees: int, bound: int
) -> ZoneStep:
    """The best of two searches and, where counts tell the cut, of annealing them: two runs from the
    first layout, and two more from the best so far as long as something better is found."""
    search = partial(_searched_well, grid, capacities, trees, bound)
    calls = [partial(search, slack) for slack in SLACKS]
    for run in range(0, MOST_RUNS if is_counted(grid) else 1, 2):
        if is_counted(grid):
            anneal = partial(_annealed, grid, capacities, best, trees, bound)
            calls += [partial(anneal, run), partial(anneal, run + 1)]
        start, best = best, _best_of(best, calls, bound)
        if best.cost in (start.cost, bound):
            break
        calls = []
    return best


def _best_of(best: ZoneStep, calls: Sequence[Callable[[], ZoneStep]], target: int) -> ZoneStep:
    """Of the results, as many as it takes, and the best so far."""
    for found in ahead(calls):
        best = _better(best, found)
        if best.cost <= target:
            break
    return best


def _annealed(
    grid: BlockGrid, capacities: Sequence[int], start: ZoneStep, trees: int, bound: int, run: int
) -> ZoneStep:
    slots = transferred(grid, capacities, start.layout, TRANSFERS * trees, bound, run)
    return _of_counts(grid, slots, start)


def _of_counts(grid: BlockGrid, slots: Ints, best: ZoneStep) -> ZoneStep:
    """The better of the best so far and a layout with so many slots of each row in each zone."""
    if counts_cost(grid, slots) >= best.cost:
        return best
    return _better(best, _costed(grid, laid_out(grid, slots)))


def _refined(
    grid: BlockGrid, capacities: Sequence[int], best: ZoneStep, trees: int, bound: int
) -> ZoneStep:
    graph = grid_graph(grid, np.ones_like(best.layout, dtype=np.bool_))
    at = refined(graph, capacities, best.layout.ravel(), PROPOSALS * trees, bound // 2)
    return _costed(grid, at.reshape(best.layout.shape))


def _costed(grid: BlockGrid, layout: Layout) -> ZoneStep:
    """With what it costs; nothing is known of a bound."""
    return ZoneStep(layout, layout_cost(grid, layout), 0)


def _better(best: ZoneStep, other: ZoneStep) -> ZoneStep:
    return other if other.cost < best.cost else best


def _covered(
    grid: BlockGrid, capacities: Sequence[int], prover: Prover, best: ZoneStep, bound: int
) -> ZoneStep:
    """The better of the best layout so far and of what the integer master makes of its patterns and
    the prover's. Counts have to tell what a layout cuts: others cost more than their patterns."""
    if best.cost <= bound:
        return best
    known = patterns_of(best.layout, len(capacities))
    slots = covering_slots(grid, capacities, prover.good_patterns(FEW_PATTERNS), known)
    return best if slots is None else _of_counts(grid, slots, best)


def _by_program(proof: _Proof, capacities: Sequence[int], best: ZoneStep, trees: int) -> ZoneStep:
    """What a node's integer program chose, laid out, if that is better."""
    grid, cover = proof.form.grid, proof.fresh_cover()
    slots = covering_slots(grid, capacities, cover) if cover else None
    if slots is None or is_counted(grid):
        return best if slots is None else _of_counts(grid, slots, best)
    promised = counts_cost(grid, slots)
    found = _costed(grid, laid_out(grid, slots)) if promised < best.cost else best
    if promised < CLOSE * best.cost:
        # Counts do not tell the cut: there are better layouts with the same ones, or nearly so.
        found = _refined(grid, capacities, found, trees, proof.bound)
    return _better(best, found)


def _searched_well(
    grid: BlockGrid, room: Sequence[int], trees: int, target: int, slack: float
) -> ZoneStep:
    """More trees the more zones there are to be exchanged, and fewer the more blocks there are to
    be parted each time."""
    zones = sum(c > 0 for c in room)
    tries = (
        trees * max(MANY_ZONES, zones) // MANY_ZONES * MANY_BLOCKS // max(MANY_BLOCKS, grid.size)
    )
    return _search(grid, room, tries, target, slack)


def _search(
    grid: BlockGrid, room: Sequence[int], tries: int, target: int, slack: float = SLACK
) -> ZoneStep:
    cost, layout = slice_grid(grid, room, band_trees(grid, room), tries, target, slack=slack)
    return ZoneStep(layout, cost, target)


def _with_spares(
    grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int], best: ZoneStep
) -> Layout:
    """A layout of the same cut that fills as few zones as it can to the last host."""
    used = np.bincount(best.layout.ravel(), minlength=len(capacities))
    filled = [int(z) for z in np.argsort(-used, kind="stable") if used[z] > reserved[z]]
    room = list(reserved)
    for zone in filled:
        if sum(room) >= grid.size:
            step = _search(grid, room, FEW_TREES, best.cost)
            if step.cost <= best.cost:
                return step.layout
        room[zone] = capacities[zone]
    return best.layout


def _in_name_order(layout: Layout, capacities: Sequence[int]) -> Layout:
    """Among zones of equal capacity the first ones by name are used."""
    used = np.bincount(layout.ravel(), minlength=len(capacities))
    name = np.arange(len(capacities))
    for capacity in set(capacities):
        alike = [z for z, c in enumerate(capacities) if c == capacity]
        name[sorted(alike, key=lambda z: (-used[z], z))] = alike
    return np.asarray(name[layout])
