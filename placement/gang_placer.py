"""One gang on hosts that may all take it, with its spares: by cut or spread.

First the zone step with its certificate, unless one domain holds the gang; then hosts inside each
zone, and the spares beside them. Several placements may come of it: what the request minimises
decides, then the cuts, then the least harm to what stays free; or, near an old placement, how few
blocks move.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import islice
from math import ceil

import numpy as np

from muster.structs import struct
from placement.bound.size_relaxation import by_sizes
from placement.fabric.tree import Fabric, Ints
from placement.graph.hypergraph import block_graph
from placement.grid.block_grid import BlockGrid, block_grid, group_grid
from placement.grid.layout import Layout, layout_cost
from placement.notes import request_notes, spare_notes
from placement.objective.cut import cut
from placement.replace.near import Hint, Near
from placement.search.exact_assignment import MOST_BLOCKS, keep_spares
from placement.search.portfolio import Incumbent
from placement.spares.holding import (
    Holding,
    hold_spares,
    reserve_by_zone,
    wished_spares,
)
from placement.spares.sizing import Sizing
from placement.tiers.bound_proofs import inner_bound, proved
from placement.tiers.fragmentation import NO_PREFERENCE, Preference, move_to_preferred, rate_harm
from placement.tiers.graph_zones import solve_ragged
from placement.tiers.grid_zones import solve_zones
from placement.tiers.objectives import (
    like_zones,
    measure,
    solve_spread,
    spread_notes,
)
from placement.tiers.seating import Hosts, Seating, ZoneChoice
from placement.tiers.single_domain import single_domains
from placement.tiers.step_clock import step_clock
from placement.workload.request import (
    Limits,
    Placement,
    Request,
    StepBound,
    TierBound,
    TierCut,
)

MOST_ZONES = 400  # beyond, zones are small and packed as racks are


@struct(frozen=True, slots=True)
class PlacementOption:
    """One way to place the gang, with its spares."""

    hosts: Hosts
    held: Holding
    cuts: tuple[TierCut, ...]


class GangPlacer:
    """Places one gang by the least cut. `free`: host indices, ascending. `stand_by`: those of them
    that a site keeps as spares of whatever zones the gang takes; None where it insists on none."""

    def __init__(
        self,
        fabric: Fabric,
        request: Request,
        limits: Limits,
        free: Ints,
        most_spares: int,
        hint: Hint | None,
        sizing: Sizing,
        preference: Preference = NO_PREFERENCE,
        stand_by: Ints | None = None,
    ) -> None:
        self.fabric = fabric
        self.request = request
        self.limits = limits
        self.all_free = self.free = free
        self.gang = request.hosts_needed(fabric.gpus_per_host)
        self.most_spares = most_spares
        self.is_strict = stand_by is not None
        if stand_by is not None:
            self.free = np.setdiff1d(free, stand_by, assume_unique=True)
        self.hint = hint
        self.sizing = sizing
        self.preference = preference
        self.notes: list[str] = []

    @cached_property
    def grid(self) -> BlockGrid | None:
        """The blocks as a grid; None where the ranks form no grid of hosts."""
        return block_grid(self.request, self.fabric.gpus_per_host)

    def place(self) -> Placement:
        layouts, bound, near = self._candidates()
        options = [self._option(hosts) for hosts in layouts]
        best = self._suited(self._best(options))
        if near is not None:
            self.notes += near.notes(best.hosts)
        top = best.cuts[0].bytes_per_step if best.cuts else 0
        lower = min(top, ceil(bound))
        return Placement(
            hosts=best.hosts,
            spares=best.held.spares,
            cuts=best.cuts,
            lower_bound=lower,
            is_optimal=lower == top,
            notes=(
                *request_notes(self.fabric, self.request),
                *self.notes,
                *self._objective_notes(best, options),
                *spare_notes(self.fabric, best.held),
            ),
            moved=None if self.hint is None else self.hint.count_moved(best.hosts),
            inner=self._inner(best.cuts),
            step=self._step(best.hosts),
        )

    def _candidates(self) -> tuple[list[Hosts], Fraction, Near | None]:
        """Where the blocks may lie, a bound on the outermost cut in bytes, and what is near
        the hint."""
        if self.hint is None and self._inside and self._inside[0][1] >= len(self.fabric.tiers):
            # In one innermost domain nothing is cut, whichever block lies where.
            inside: list[Hosts] = [tuple(self._inside[0][0][: self.gang].tolist())]
            layouts = inside if self._has_like_hosts else self._add_candidates(inside)
            return layouts, Fraction(0), None
        seating, ways_there, bound = self._ways()
        ways = list(ways_there)
        if self.hint is None:
            return self._add_candidates(seating.seated(ways)), bound, None
        near = Near(self.fabric, self.request, self.free, self.hint)
        return self._near_options(near, seating, ways, ceil(bound)), bound, near

    def _near_options(
        self, near: Near, seating: Seating, ways: Sequence[ZoneChoice], bound: int
    ) -> list[Hosts]:
        """Layouts near the hint. `bound`: on the outermost cut."""
        fresh = [seating.zone_by_block(way) for way in ways]
        return near.options(fresh, bound, self.limits)

    def _add_candidates(self, layouts: list[Hosts]) -> list[Hosts]:
        """Add candidates that the objective asks for, which zones by the cut do not know."""
        return layouts

    def _objective_notes(
        self, best: PlacementOption, options: Sequence[PlacementOption]
    ) -> list[str]:
        """State what the objective came to."""
        return []

    @property
    def _has_like_hosts(self) -> bool:
        """Whether all free hosts have the same GPUs and network cards."""
        if len(self.fabric.by_host.kinds_of(self.free)) > 1:
            return False
        if self.fabric.has_like_cards:
            return True
        cards = self.fabric.by_host.nic_gbps[self.free]
        return bool((cards == cards[0]).all())

    @cached_property
    def _inside(self) -> list[tuple[Ints, int]]:
        """Free hosts of single domains that may take the whole gang."""
        spares = 0 if self.is_strict else self._reserved([self.gang])[0]
        return single_domains(self.fabric, self.free, self.gang, self.gang + spares)

    def _inner(self, cuts: tuple[TierCut, ...]) -> TierBound | None:
        if not any(cut.bytes_per_step for cut in cuts[1:]) or not self.limits.rounds:
            return None
        if self.grid is None:
            return None
        return inner_bound(self.fabric, self.all_free, self.grid, cuts)

    def _step(self, hosts: Hosts) -> StepBound | None:
        if not self.request.has_step_time:
            return None
        clock = step_clock(self.fabric, self.request)
        seconds, least = clock.step(hosts).seconds, clock.on_one_switch.seconds
        if not self.request.where.is_shape:  # then other hosts than these could have been taken
            least = clock.bound(self.all_free)
        return StepBound(seconds, min(seconds, least))

    def layouts(self) -> list[Hosts]:
        """Return layouts by the objective, before its candidates are added; one, where nothing is
        to be proved."""
        seating, ways, _ = self._ways()
        return seating.seated([*islice(ways, None if self.limits.rounds else 1)])

    def _option(self, hosts: Hosts) -> PlacementOption:
        cuts = cut(self.fabric, self.request, hosts)
        held = hold_spares(
            self.fabric, self.request, self.all_free, hosts, self.most_spares, self.sizing
        )
        return PlacementOption(hosts, held, cuts)

    def _best(self, options: list[PlacementOption]) -> PlacementOption:
        """Choose by what the request minimises, then the cut between zones, then spares, then the
        cuts inside, then harm. Near an old placement the objective has been met already."""
        if len(options) == 1:
            return options[0]
        values = self._values(options) if self.hint is None else [0] * len(options)
        ranked = zip(values, options, strict=True)
        return min(ranked, key=lambda each: (each[0], *self._rank(each[1])))[1]

    def _values(self, options: Sequence[PlacementOption]) -> Sequence[float]:
        """Return what the request minimises, of each option."""
        return [measure(self.fabric, self.request, o.hosts, o.cuts) for o in options]

    def _suited(self, best: PlacementOption) -> PlacementOption:
        """As good a placement on hosts that it prefers, with no fewer spares."""
        if not self.preference or self.hint is not None:
            return best
        others = move_to_preferred(self.fabric, self.free, best.hosts, self.preference)

        def key(option: PlacementOption) -> tuple[float | int, ...]:
            value = measure(self.fabric, self.request, option.hosts, option.cuts)
            cuts = (tier.bytes_per_step for tier in option.cuts)
            return (value, *cuts, option.held.lacking, self.preference.cost(option.hosts))

        return min([best, *map(self._option, others)], key=key)

    def _rank(self, option: PlacementOption) -> tuple[int, ...]:
        cuts = [tier.bytes_per_step for tier in option.cuts]
        left = rate_harm(self.fabric, self.all_free, option.hosts + option.held.spares)
        return (*cuts[:1], option.held.lacking, *cuts[1:], *left, *option.hosts)

    def _ways(self) -> tuple[Seating, Iterable[ZoneChoice], Fraction]:
        """Where the blocks may go, and a bound on the outermost cut in bytes."""
        if self._inside:
            seating = self._seating(self.grid or BlockGrid.shapeless(self.gang))
            return seating, seating.inside(self._inside), Fraction(0)
        tier = self.fabric.tiers[0]
        free_by_zone = tier.count(self.free)
        if np.count_nonzero(free_by_zone) > MOST_ZONES:
            return self._everywhere(free_by_zone.tolist())
        capacities = [int(n) for n in free_by_zone]
        wanted = [0] * len(capacities) if self.is_strict else self._reserved(capacities)
        grid, step = self._zones(capacities, wanted)
        kind = like_zones(self.fabric, self.request)
        seating = self._seating(grid)
        layout = self._with_room(grid, step.layout, capacities, wanted)
        ways = seating.in_zones(layout, np.array(wanted), kind)
        bound = step.bound
        if self.is_strict:  # of those that keep spares in each zone: others may cut less
            room = tier.count(self.all_free).tolist()
            bound = by_sizes(grid, room) if self.grid and self.limits.rounds else 0
        return seating, ways, grid.to_bytes(bound)

    def _with_room(
        self, grid: BlockGrid, layout: Layout, capacities: Sequence[int], wanted: Sequence[int]
    ) -> Layout:
        """Return the layout, or one of a small gang that cuts no more and leaves its zones room
        for more of their spares."""
        used = np.bincount(layout.ravel(), minlength=len(capacities))
        is_full = bool((used > np.array(capacities) - wanted)[used > 0].any())
        if not is_full or self.gang > MOST_BLOCKS:
            return layout
        graph = block_graph(self.request, self.fabric.gpus_per_host)
        if graph is None or not self.limits.rounds:
            return layout
        wished = partial(wished_spares, self.request, self.gang, self.most_spares, self.sizing)
        lacking = [
            np.array([max(0, wished(n, zone) + n - room) for n in range(room + 1)])
            for zone, room in enumerate(capacities)
        ]
        known, rounds = grid.by_block(layout), self.limits.rounds
        other = keep_spares(graph, capacities, known, lacking, rounds)
        return layout if other is None else np.asarray(other[grid.block])

    def _reserved(self, capacities: list[int]) -> list[int]:
        """Spares that zones of these capacities should keep."""
        return reserve_by_zone(self.request, capacities, self.gang, self.most_spares, self.sizing)

    def _everywhere(self, capacities: list[int]) -> tuple[Seating, Iterable[ZoneChoice], Fraction]:
        """Over very many small zones, which are packed as inner tiers are."""
        grid = self.grid or BlockGrid.shapeless(self.gang)
        seating, bound = self._seating(grid), 0
        if self.grid and self.limits.rounds:
            zones = np.repeat(np.arange(len(capacities)), capacities)[: grid.size]
            cost = layout_cost(grid, zones.reshape(grid.rows, grid.width))
            bound = max(by_sizes(grid, capacities), proved(grid, capacities, cost))
        return seating, seating.inside([(self.free, 0)]), grid.to_bytes(bound)

    def _seating(self, grid: BlockGrid) -> Seating:
        return Seating(self.fabric, self.request, self.free, grid, self.limits)

    def _zones(self, capacities: list[int], wanted: list[int]) -> tuple[BlockGrid, Incumbent]:
        """The outermost tier. `wanted`: spares by zone."""
        if (grid := self.grid) is None:
            gpus = self.fabric.gpus_per_host
            return solve_ragged(self.request, gpus, capacities, self.cut_limits)
        reserved = [c - w for c, w in zip(capacities, wanted, strict=True)]
        return grid, self._solve_grid(grid, capacities, reserved)

    def _solve_grid(
        self, grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int]
    ) -> Incumbent:
        return solve_zones(grid, capacities, reserved, self.cut_limits)

    @property
    def cut_limits(self) -> Limits:
        """The work that may be spent on the cut of the outermost tier."""
        return self.limits


class SpreadPlacer(GangPlacer):
    """Places a gang so that its groups lie in few zones; the cut breaks ties."""

    @cached_property
    def grid(self) -> BlockGrid | None:
        """The blocks as a grid of groups; None where the ranks form no grid of hosts."""
        return group_grid(self.request, self.fabric.gpus_per_host)

    def _objective_notes(
        self, best: PlacementOption, options: Sequence[PlacementOption]
    ) -> list[str]:
        return spread_notes(self.fabric, self.request, self.free, best.hosts)

    def _with_room(
        self, grid: BlockGrid, layout: Layout, capacities: Sequence[int], wanted: Sequence[int]
    ) -> Layout:
        return layout  # layouts of an equal cut may spread more

    def _zones(self, capacities: list[int], wanted: list[int]) -> tuple[BlockGrid, Incumbent]:
        if self.grid is None:
            self.notes.append("the ranks form no grid of hosts: placed by the cut alone")
        return super()._zones(capacities, wanted)

    def _solve_grid(
        self, grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int]
    ) -> Incumbent:
        return solve_spread(self.request, grid, capacities, reserved, self.limits)
