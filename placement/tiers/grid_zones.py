"""The outermost tier of a gang whose blocks form a grid: which zone carries which block.

A search over layouts works from above and a proof from below, in turns and with growing effort,
until the two meet or the work that the limits allow is done. Where the blocks of an axis are best
kept together, the grid of its groups is solved instead, and what a layout costs that splits a
group is bounded beside it (`split_groups`).
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import floor

import numpy as np

from placement.bound.size_relaxation import ChargingForm, by_sizes, forms
from placement.graph.hypergraph import grid_graph
from placement.grid.block_grid import BlockGrid
from placement.grid.groups import Groups, groups_of
from placement.grid.layout import Layout, ZonePattern, layout_cost, patterns_of
from placement.proof.branch_and_price import Prover
from placement.proof.split_groups import Parted
from placement.search.exact_assignment import MOST_BLOCKS, assign_blocks
from placement.search.graph_slicing import SLACKS, SMALL, grid_sweeper, slice_grid
from placement.search.integer_cover import counts_cost, covering_slots, is_counted, laid_out
from placement.search.multilevel import PROPOSALS, refine
from placement.search.portfolio import ONCE, Incumbent, Technique, run_turns
from placement.speculative import run_ahead
from placement.workload.request import SHARES, Limits

NEARLY = 0.96  # of a quick layout's cut: a bound that a better one may meet
MOST_COLUMNS = 140  # of an integer program that chooses patterns


def solve_zones(
    grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int], limits: Limits
) -> Incumbent:
    """Place a grid with the least cut over zones with `capacities` free hosts.

    `reserved`: the same, less the spares one would like to keep in each zone; kept where that costs
    no cut. The zones must hold the grid, and no single zone can.
    """
    zones = _GridZones(grid, capacities, limits)
    best = zones.solved()
    if limits.rounds and grid.size <= MOST_BLOCKS:
        exactly = Technique("exact assignment", zones.assign_exactly, ONCE)
        best = run_turns(best, [exactly], limits)
    layout = _with_spares(grid, capacities, reserved, best, limits.first.trees)
    return Incumbent(_in_name_order(layout, capacities), best.cost, best.bound)


class _GridZones:
    """Searches and proofs of one grid over zones. The same whichever hosts of a zone and whichever
    zones of one size are used."""

    def __init__(self, grid: BlockGrid, capacities: Sequence[int], limits: Limits) -> None:
        self._grid, self._capacities, self._limits = grid, capacities, limits

    def solved(self) -> Incumbent:
        """Search and prove by turns, each with a larger share of the work than the one before; then
        go on with the proof for as much work again."""
        grid, capacities, limits = self._grid, self._capacities, self._limits
        bound = by_sizes(grid, capacities) if limits.rounds else 0
        best = _sliced(grid, capacities, limits.first.trees, bound)
        if best.is_closed or not limits.rounds:
            return best
        if (groups := self._groups()) is not None:
            best, is_known = self._of_groups(groups, best)
            if is_known or best.is_closed:
                return best
        best = best.raise_bound(by_sizes(grid, capacities, limits.part(SHARES[1]).entries))
        portfolio = [
            Technique("slicing trees", self.slice),
            Technique("moves of single blocks", self.move_blocks),
        ]
        is_small = grid.states(capacities) <= limits.states
        if is_small and not best.is_closed and limits.may_use("branch and price"):
            proof = _Proof.begun(grid, capacities, limits, best)
            best = best.raise_bound(proof.bound)
            covering = Technique("patterns of a whole node", proof.adopt_patterns, ONCE)
            best = run_turns(best, [covering], limits)
            portfolio += proof.portfolio
        return run_turns(best, portfolio, limits)

    def slice(self, best: Incumbent, share: int) -> Incumbent:
        """Return the better of `best` and what slicing trees come to."""
        grid, capacities, trees = self._grid, self._capacities, self._limits.trees // share
        slices = [partial(_sliced, grid, capacities, trees, best.bound, slack) for slack in SLACKS]
        for step in run_ahead(slices):
            best = best.offer(step.layout, step.cost)
            if best.is_closed:
                break
        return best

    def move_blocks(self, best: Incumbent, share: int) -> Incumbent:
        """Return the better of `best` and what moves of single blocks come to from there."""
        trees = self._limits.trees // share
        layout = _refined(self._grid, self._capacities, best.layout, best.bound, trees)
        return _offered(self._grid, best, layout)

    def assign_exactly(self, best: Incumbent, share: int) -> Incumbent:
        """Return the better of `best` and what is decided block by block."""
        grid, rounds = self._grid, self._limits.rounds // share
        graph, known = grid_graph(grid, grid.everywhere), best.layout.ravel()
        exact = assign_blocks(graph, self._capacities, known, -(-best.bound // 2), rounds)
        if exact is None:
            return best
        return _offered(grid, best, exact.layout).raise_bound(2 * exact.bound)

    def _groups(self) -> Groups | None:
        """Return the groups that are best kept together, where zones hold them whole and the table
        of their proof is small enough."""
        capacities, limits = self._capacities, self._limits
        groups = groups_of(self._grid) if self._grid.size > SMALL else None
        if groups is None or groups.whole.states(capacities) > limits.states:
            return None
        is_held = sum(groups.room(capacities)) >= groups.whole.size
        return groups if is_held and limits.may_use("whole groups") else None

    def _of_groups(self, groups: Groups, best: Incumbent) -> tuple[Incumbent, bool]:
        """The better of `best` and the best layout that splits no group, with a bound on all
        layouts; and whether that bound is close enough to stop."""
        grid, capacities, limits = self._grid, self._capacities, self._limits
        room = groups.room(capacities)
        whole = _sliced(groups.whole, room, limits.first.trees, best.bound)
        best = best.offer(groups.laid_out(whole.layout), whole.cost)
        parted = Parted(groups, capacities, whole.layout)
        enough = floor(NEARLY * whole.cost)
        if parted.prove(whole.cost, enough, 1) < enough:
            return best, False
        whole = _GridZones(groups.whole, room, limits).solved()
        best = best.offer(groups.laid_out(whole.layout), whole.cost)
        proved = parted.prove(min(whole.bound, best.cost), 0, limits.rounds)
        best = best.raise_bound(min(whole.bound, proved))
        if proved < whole.bound and not best.is_closed:
            best = best.raise_bound(_Proof.begun(grid, capacities, limits, best).bound)
        return best, True


class _Proof:
    """Branch and price over one way to charge zones, and layouts out of its patterns."""

    def __init__(
        self, form: ChargingForm, capacities: Sequence[int], limits: Limits, best: Incumbent
    ) -> None:
        self._form, self._grid, self._capacities = form, form.grid, capacities
        self._limits = limits
        self._prover = Prover(form.charged, capacities, patterns_of(best.layout, len(capacities)))
        self._cover: Sequence[ZonePattern] = self._prover.cover
        self.bound = 0

    @classmethod
    def begun(
        cls, grid: BlockGrid, capacities: Sequence[int], limits: Limits, best: Incumbent
    ) -> _Proof:
        """The way to charge zones that proves most in the rounds of a first turn; the first that
        proves all, and the grid's own on a tie."""

        def tried(form: ChargingForm) -> _Proof:
            proof = cls(form, capacities, limits, best)
            proof._prove(best.cost, limits.first.rounds)
            return proof

        ways = forms(grid)
        if len(ways) > 1 and not limits.may_use("charges shared by zones"):
            ways = ways[:1]
        proofs: list[_Proof] = []
        for proof in run_ahead([partial(tried, form) for form in ways]):
            proofs.append(proof)
            if proof.bound >= best.cost:
                break
        return max(proofs, key=lambda proof: proof.bound)

    @property
    def portfolio(self) -> list[Technique]:
        """How the proof goes on, and layouts out of the patterns that it chose whole, or uses."""
        techniques = [
            Technique("branch and price", self.prove, (*SHARES, 1)),
            Technique("patterns of a whole node", self.adopt_patterns, (*SHARES, 1)),
        ]
        if is_counted(self._grid):
            shares = (0, *SHARES[1:], 1)
            techniques.append(Technique("integer cover of patterns", self.choose_patterns, shares))
        return techniques

    def _prove(self, cost: int, rounds: int) -> None:
        doubled = self._prover.prove(cost * self._form.parts, rounds)
        self.bound = max(self.bound, self._form.cut_bound(doubled))

    def prove(self, best: Incumbent, share: int) -> Incumbent:
        """Prove with more rounds."""
        self._prove(best.cost, self._limits.rounds // share)
        return best.raise_bound(self.bound)

    def adopt_patterns(self, best: Incumbent, share: int) -> Incumbent:
        """Return `best`, or a better layout of patterns that a node has chosen whole since."""
        if self._prover.cover is self._cover:
            return best
        self._cover = self._prover.cover
        return self._covered(best, self._cover, (), share)

    def choose_patterns(self, best: Incumbent, share: int) -> Incumbent:
        """Return `best`, or a better layout of the patterns in use, by an integer program."""
        known = patterns_of(best.layout, len(self._capacities))
        return self._covered(best, self._prover.good_patterns(MOST_COLUMNS), known, share)

    def _covered(
        self,
        best: Incumbent,
        patterns: Sequence[ZonePattern],
        known: Sequence[ZonePattern],
        share: int,
    ) -> Incumbent:
        """The better of `best` and a layout of patterns that cover the grid."""
        grid, capacities = self._grid, self._capacities
        slots = covering_slots(grid, capacities, patterns, known)
        if slots is None or counts_cost(grid, slots) >= best.cost:
            return best
        layout = laid_out(grid, slots)
        if not is_counted(grid):
            # Counts do not tell the cut: there are better layouts with the same ones, or nearly so.
            layout = _refined(grid, capacities, layout, best.bound, self._limits.trees // share)
        return _offered(grid, best, layout)


def _sliced(
    grid: BlockGrid, room: Sequence[int], trees: int, target: int, slack: float = SLACKS[0]
) -> Incumbent:
    layout = slice_grid(grid, room, trees, target, slack)
    return Incumbent(layout, layout_cost(grid, layout), target)


def _refined(
    grid: BlockGrid, capacities: Sequence[int], layout: Layout, bound: int, trees: int
) -> Layout:
    """The layout after moves of single blocks. `bound`: a doubled cut that no layout beats."""
    graph, proposals = grid_sweeper(grid).graph, PROPOSALS * trees
    return refine(graph, capacities, layout.ravel(), proposals, bound // 2)


def _offered(grid: BlockGrid, best: Incumbent, layout: Layout) -> Incumbent:
    """The better of `best` and this layout, whose shape may be flat."""
    layout = layout.reshape(best.layout.shape)
    return best.offer(layout, layout_cost(grid, layout))


def _with_spares(
    grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int], best: Incumbent, trees: int
) -> Layout:
    """A layout of the same cut that fills as few zones as it can to the last host.

    Of 234 gangs of seed 101 that need several zones, zones lack 326 spares with this, 343 without;
    branch and price proves for nearly all of these that no layout of that cut has room for all.
    """
    used = np.bincount(best.layout.ravel(), minlength=len(capacities))
    filled = [int(z) for z in np.argsort(-used, kind="stable") if used[z] > reserved[z]]
    room = list(reserved)
    for zone in filled:
        if sum(room) >= grid.size:
            step = _sliced(grid, room, trees, best.cost)
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
