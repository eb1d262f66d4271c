"""One gang on hosts that may all take it, with its spares: by cut, spread or step time.

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
from itertools import islice, product
from math import ceil

import numpy as np

from muster.structs import replace, struct
from placement.baselines import by_spread, consecutive
from placement.bound.size_relaxation import by_sizes
from placement.fabric.tree import Fabric, Ints, innermost
from placement.graph.hypergraph import block_graph
from placement.grid.block_grid import BlockGrid, block_grid
from placement.grid.layout import Layout, layout_cost
from placement.kernels import INFINITE
from placement.notes import request_notes, spare_notes
from placement.objective.cut import cut
from placement.replace.near import Hint, Near
from placement.search.exact_assignment import MOST_BLOCKS, keep_spares
from placement.search.incumbent import Incumbent
from placement.spares.holding import (
    Holding,
    hold_spares,
    reserve_by_zone,
    wished_spares,
)
from placement.spares.sizing import Sizing
from placement.tiers.fragmentation import rate_harm
from placement.tiers.graph_zones import solve_ragged
from placement.tiers.grid_zones import solve_zones
from placement.tiers.inner_bound import inner_bound, proved
from placement.tiers.objectives import (
    like_zones,
    measure,
    solve_spread,
    spread_notes,
    trade_notes,
)
from placement.tiers.preference import NO_PREFERENCE, Preference, move_to_preferred
from placement.tiers.seating import Hosts, Seating, ZoneChoice
from placement.tiers.single_domain import single_domains
from placement.tiers.stage_bands import banded_layouts
from placement.tiers.step_clock import MOST_PRICINGS, StepClock, step_clock
from placement.workload.request import (
    Limits,
    Objective,
    Placement,
    Request,
    StepBound,
    TierBound,
    TierCut,
)

MOST_SUBSETS = 2  # of the free hosts, on which the least cut is looked for once steps are short
SMALL_GANG = 64  # blocks, whose steps are reckoned often enough to be shortened by exchanges
TREES_A_STEP = 20  # slicing trees in the time of one exchange: some 0.4 ms
MOST_ZONES = 400  # beyond, zones are small and packed as racks are


@struct(frozen=True, slots=True)
class _Option:
    """One way to place the gang, with its spares."""

    hosts: Hosts
    held: Holding
    cuts: tuple[TierCut, ...]


class GangPlacer:
    """One placement in the making, by the least cut. `free`: host indices, ascending. `stand_by`:
    those of them that a site keeps as spares of whatever zones the gang takes; None where it
    insists on none."""

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
        """None where the ranks form no grid of hosts."""
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

    def _objective_notes(self, best: _Option, options: Sequence[_Option]) -> list[str]:
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

    def _option(self, hosts: Hosts) -> _Option:
        cuts = cut(self.fabric, self.request, hosts)
        held = hold_spares(
            self.fabric, self.request, self.all_free, hosts, self.most_spares, self.sizing
        )
        return _Option(hosts, held, cuts)

    def _best(self, options: list[_Option]) -> _Option:
        """Choose by what the request minimises, then the cut between zones, then spares, then the
        cuts inside, then harm. Near an old placement the objective has been met already."""
        if len(options) == 1:
            return options[0]
        values = self._values(options) if self.hint is None else [0] * len(options)
        ranked = zip(values, options, strict=True)
        return min(ranked, key=lambda each: (each[0], *self._rank(each[1])))[1]

    def _values(self, options: Sequence[_Option]) -> Sequence[float]:
        """Return what the request minimises, of each option."""
        return [measure(self.fabric, self.request, o.hosts, o.cuts) for o in options]

    def _suited(self, best: _Option) -> _Option:
        """As good a placement on hosts that it prefers, with no fewer spares."""
        if not self.preference or self.hint is not None:
            return best
        others = move_to_preferred(self.fabric, self.free, best.hosts, self.preference)

        def key(option: _Option) -> tuple[float | int, ...]:
            value = measure(self.fabric, self.request, option.hosts, option.cuts)
            cuts = (tier.bytes_per_step for tier in option.cuts)
            return (value, *cuts, option.held.lacking, self.preference.cost(option.hosts))

        return min([best, *map(self._option, others)], key=key)

    def _rank(self, option: _Option) -> tuple[int, ...]:
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
            return solve_ragged(self.request, gpus, capacities, self._cut_limits)
        reserved = [c - w for c, w in zip(capacities, wanted, strict=True)]
        return grid, self._solve_grid(grid, capacities, reserved)

    def _solve_grid(
        self, grid: BlockGrid, capacities: Sequence[int], reserved: Sequence[int]
    ) -> Incumbent:
        return solve_zones(grid, capacities, reserved, self._cut_limits)

    @property
    def _cut_limits(self) -> Limits:
        """The work that the cut of the outermost tier may take."""
        return self.limits


class SpreadPlacer(GangPlacer):
    """A placement whose groups lie in few zones; the cut breaks ties."""

    def _objective_notes(self, best: _Option, options: Sequence[_Option]) -> list[str]:
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


class TimePlacer(GangPlacer):
    """A placement of the shortest step; of steps within `cut_slack` of it, of the least cut."""

    @cached_property
    def _clock(self) -> StepClock:
        return step_clock(self.fabric, self.request)

    @property
    def _cut_limits(self) -> Limits:
        """One turn for the cut, which comes second."""
        return replace(self.limits, turns=1)

    def _near_options(
        self, near: Near, seating: Seating, ways: Sequence[ZoneChoice], bound: int
    ) -> list[Hosts]:
        return near.in_time(self._add_candidates(seating.seated(ways)), self.limits)

    def _objective_notes(self, best: _Option, options: Sequence[_Option]) -> list[str]:
        """State what was given up, also beside what other schedulers place."""
        if self.hint is not None:
            return []
        hosts = [option.hosts for option in options]
        if best.cuts and self._clock.delay(best.hosts):
            hosts += self._tidy_hosts(self.fabric, self.free)
        return trade_notes(self.fabric, self.request, best.hosts, hosts)

    def _values(self, options: Sequence[_Option]) -> Sequence[float]:
        """Steps within `cut_slack` of the shortest are equal."""
        delays = [self._clock.delay(option.hosts) for option in options]
        most = min(delays) + self._clock.slack
        return [delay if delay > most else 0 for delay in delays]

    def _add_candidates(self, layouts: list[Hosts]) -> list[Hosts]:
        """Where the step waits for uplinks: what other schedulers place (hosts by name, the fewest
        domains in either order), stages in bands, the least cuts at the prices that bytes have,
        until these are the same again, also where innermost domains are not used up; at last
        Arnold's spread."""
        clock, tried = self._clock, set()
        best = min(layouts, key=clock.delay)
        if clock.is_good(best, self.free):
            return layouts
        layouts = [*layouts, *self._tidy_hosts(self.fabric, self.free)[:1]]
        if self.grid is not None:
            layouts += banded_layouts(self.fabric, self.grid, self.free, best)
        needed = self.gang + self.request.spares.required(self.gang)
        trees = [self.fabric]
        if self.fabric.has_scale_up_tier:  # what leaves racks may cost more than what goes far
            trees.append(innermost(self.fabric))
        thinner = clock.thin_hosts(self.free, needed)
        subsets = [
            *product(trees, thinner),
            *product(trees[:1], clock.behind_better_links(self.free, needed)),
        ]
        unproved = replace(self.limits, rounds=0)
        shortest = [INFINITE] * len(subsets)  # delays of layouts on each

        def add(subset: int, more: list[Hosts]) -> None:
            layouts.extend(more)
            shortest[subset] = min([shortest[subset], *map(clock.delay, more)])

        for k, (tree, free) in enumerate(subsets):
            add(k, self._tidy_hosts(tree, free)[1:])
        for _ in range(MOST_PRICINGS):
            best = min(layouts, key=clock.delay)
            prices = clock.prices(clock.step(best))
            if prices in tried or clock.is_good(best, self.free):
                break
            tried.add(prices)
            for k, (tree, free) in enumerate(subsets):
                add(k, self._of_least_cut(tree, free, unproved, prices))
        best = min(layouts, key=clock.delay)
        if not clock.is_good(best, self.free):
            bands = replace(unproved, trees=self.limits.first.trees, turns=1)
            if not self.request.roles:
                layouts += self._solved(self.fabric, by_spread(self.request), self.free, bands)
            best = min(layouts, key=clock.delay)
            if self.gang <= SMALL_GANG:
                best = clock.shorten(best, self.free, self.limits.trees // TREES_A_STEP)
                layouts.append(best)
        # The least cut on hosts where steps are as short, bytes that hide behind compute and all.
        most = clock.delay(best) + clock.slack
        as_short = [k for k in np.argsort(shortest, kind="stable") if shortest[k] <= most]
        for k in as_short[:MOST_SUBSETS]:
            layouts += self._of_least_cut(self.fabric, subsets[k][1], self._cut_limits)
        return layouts

    def _tidy_hosts(self, fabric: Fabric, free: Ints) -> list[Hosts]:
        """Return what other schedulers would place: hosts by name, then the fewest domains, in the
        order in which they were filled and by name."""
        fewest = consecutive(fabric)(free, self.gang)
        return [
            tuple(free[: self.gang].tolist()),
            tuple(fewest.tolist()),
            tuple(np.sort(fewest).tolist()),
        ]

    def _of_least_cut(
        self, fabric: Fabric, free: Ints, limits: Limits, prices: tuple[tuple[str, int], ...] = ()
    ) -> list[Hosts]:
        """By the cut on some of the hosts, at prices of bytes, or on other tiers."""
        by_cut = replace(self.request, objective=Objective.CUT, prices=prices)
        return self._solved(fabric, by_cut, free, limits)

    def _solved(self, fabric: Fabric, request: Request, free: Ints, limits: Limits) -> list[Hosts]:
        """Return layouts of a request of another objective; one, where nothing is to be proved."""
        placer = placer_of(request)(
            fabric, request, limits, free, self.most_spares, None, self.sizing
        )
        seating, ways, _ = placer._ways()
        return seating.seated([*islice(ways, None if limits.rounds else 1)])


def placer_of(request: Request) -> type[GangPlacer]:
    """The placer of the request's objective."""
    by_objective = {Objective.SPREAD: SpreadPlacer, Objective.TIME: TimePlacer}
    return by_objective.get(request.objective, GangPlacer)
