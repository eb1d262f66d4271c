"""place(): where a gang goes.

In steps: is it possible at all; does one domain hold the whole gang; else the zone step
with its certificate; then hosts inside each zone, and the spares beside them. Several
placements may come of it; the least cut on every tier, then the least harm to what stays
free decides, or, near an old placement, how few blocks move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from itertools import islice, product
from math import ceil

import numpy as np

from muster.structs import replace, struct
from placement.baselines import by_spread, consecutive
from placement.bound.size_relaxation import by_sizes
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import check, labelled, room_text, wish_text, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Ints, innermost
from placement.graph.hypergraph import block_graph
from placement.grid.block_grid import BlockGrid, block_grid
from placement.grid.layout import Layout, layout_cost
from placement.notes import request_notes, spare_notes
from placement.objective.cut import cut, no_cuts
from placement.objective.step_time import refuse_precision
from placement.part_of_host import choose_gpus
from placement.replace.near import Hint, Near
from placement.search.exact_assignment import MOST_BLOCKS, keep_spares
from placement.spares.holding import (
    Holding,
    hold_spares,
    reserve_by_zone,
    standing_by,
    wished_spares,
)
from placement.spares.sizing import BY_DEFAULT, Sizing
from placement.tiers.contraction import contract
from placement.tiers.fragmentation import rate_harm
from placement.tiers.graph_zones import solve_ragged
from placement.tiers.grid_zones import ZoneStep, solve_zones
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
from placement.tiers.shape import NoRoom, placed_inside
from placement.tiers.single_domain import single_domains
from placement.tiers.stage_bands import banded_layouts
from placement.tiers.step_clock import MOST_PRICINGS, NEVER, step_clock
from placement.workload.memory import refuse_too_large
from placement.workload.request import (
    Answer,
    Infeasible,
    Insufficient,
    Limits,
    Objective,
    Placement,
    Request,
    StepBound,
    TierBound,
    TierCut,
    Undecided,
)
from placement.workload.segments import Segments, segments_of, segments_text, usable_for

BY_CUT = (Objective.CUT, Objective.TIME)  # zones are laid out by the cut, at prices or not
MOST_SUBSETS = 2  # of the free hosts, on which the least cut is looked for once steps are short
SMALL_GANG = 64  # blocks, whose steps are reckoned often enough to be shortened by exchanges
TREES_A_STEP = 20  # slicing trees in the time of one exchange: some 0.4 ms
MOST_NAMED = 4  # domains in a refusal
MOST_ZONES = 400  # beyond, zones are small and packed as racks are


@with_gang_view
@lru_cache(maxsize=4096)
def impossible(fabric: Fabric, request: Request) -> Infeasible | None:
    """Proof that `request` never fits `fabric`, however empty; None if it may.

    Raises: BadInput when the ranks do not fill whole hosts, or need more memory than the
    job says a GPU has, or a precision that the GPUs lack, or when its constraints name a tier or
    label that is not there.
    """
    gang, required = _hosts_and_spares(fabric, request)
    fabric, everything = fabric.as_built, hostset.full(fabric.host_count)
    if usable_for(fabric, request, everything, gang + required).bit_count() >= gang + required:
        return None
    wish = wish_text(fabric, request.where)
    has = room_text(fabric, request.where, everything) or f"{fabric.host_count:,} in all"
    has = ", ".join(filter(None, (has, segments_text(fabric, request, everything))))
    return Infeasible(f"needs {_hosts(gang, required)}{wish}; {fabric.name} has {has}")


@lru_cache(maxsize=4096)
def _hosts_and_spares(fabric: Fabric, request: Request) -> tuple[int, int]:
    """Hosts for the gang, and spares without which it cannot start. Raises: BadInput."""
    check(fabric, request.where)
    for number, shape in enumerate([role.request for role in request.roles] or [request]):
        try:
            refuse_too_large(shape)
            refuse_precision(fabric, shape)
        except BadInput as error:
            field = f"roles.{number}.{error.field}" if request.roles else error.field
            raise BadInput(field, error.message) from None
    segments_of(fabric, request)
    gang = request.hosts_needed(fabric.gpus_per_host)
    required = request.spares.required(gang)
    if required and request.part_gpus(fabric.gpus_per_host):
        raise BadInput("spares", "a job on a part of a host has no spares: it restarts elsewhere")
    return gang, required


@with_gang_view
def place(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    limits: Limits | None = None,
    hint: Hint | None = None,
    *,
    most_spares: int | None = None,
    sizing: Sizing = BY_DEFAULT,
    preference: Preference = NO_PREFERENCE,
) -> Answer:
    """Hosts in block order and spares, with the cut and how far from optimal it can be.

    `hint`: where the gang was; the answer moves few of its blocks. `most_spares` caps
    what an *auto* rule may hold, `sizing` is what it asks for.
    `preference`: which hosts are taken first and last where every cut is the same; unused with
    a hint or segments.

    Raises: BadInput as `impossible`, or when the hint is of another size.
    Cost: 16,384 ranks on 3,072 hosts in about half a second.
    """
    limits = limits or Limits()
    gang, required = _hosts_and_spares(fabric, request)
    if hint is not None:
        hint.check(gang, fabric)
    room = usable_for(fabric, request, free, gang + required)
    if room.bit_count() < gang + required:
        never = impossible(fabric, request)
        return never or _insufficient(fabric, free, request, gang, required)
    if not limits.rounds and not limits.trees:
        return Undecided("the limits allow no search")
    if gpus := request.part_gpus(fabric.gpus_per_host):
        most_spares = 0

    is_any_as_good = _is_any_as_good(fabric, request) and hint is None and not preference
    segments = segments_of(fabric, request)
    insists = sizing.is_strict and request.spares.is_auto and hint is None

    def solve(inside: HostSet) -> Placement:
        if is_any_as_good:
            any_hosts = hostset.first(inside, gang)
            notes = request_notes(fabric, request)
            return Placement(any_hosts, cuts=no_cuts(fabric), is_optimal=True, notes=notes)
        most = inside.bit_count() - gang
        most = max(required, most if most_spares is None else min(most_spares, most))
        must_keep = 0
        if insists:  # however few the gang leaves
            must_keep = inside.bit_count() if most_spares is None else most_spares
        if segments is not None:
            asked = fabric, request, segments, limits, inside, most, hint, sizing, must_keep
            return _SegmentPlacer(*asked).place()
        hosts, stand_by = hostset.indices(inside), None
        if must_keep:
            stand_by = standing_by(fabric, request, hosts, gang, must_keep, sizing)
            if len(hosts) - len(stand_by) < gang:
                raise NoRoom(0)
        return _Placer(
            fabric, request, limits, hosts, most, hint, sizing, preference, stand_by
        ).place()

    try:
        answer = placed_inside(fabric, room, request, gang + required, solve)
    except NoRoom as lack:
        return _crowded(fabric, room, request, sizing, lack.depth)
    if gpus:
        return replace(answer, gpus=choose_gpus(fabric, answer.hosts[0], (), gpus) or ())
    return answer


def _is_any_as_good(fabric: Fabric, request: Request) -> bool:
    """Whether the gang and all that stays free are as well off on any hosts: nothing is cut, and
    the request neither asks for seconds of a step nor for spares."""
    is_by_cut = request.objective is Objective.CUT and not request.has_step_time
    return fabric.is_undivided and is_by_cut and request.spares.hosts == 0


@struct(frozen=True, slots=True)
class _SegmentPlacer:
    """A placement of a gang whose segments lie in one domain each: it is placed on slots
    (tiers/contraction.py), at first on all that there are, whose bound is that of the gang; then
    on fewer, where that leaves spares beside the segments and cuts no more."""

    fabric: Fabric
    request: Request
    segments: Segments
    limits: Limits
    free: HostSet
    most_spares: int
    hint: Hint | None
    sizing: Sizing
    must_keep: int = 0  # spares at most that no domain of a segment may lack

    def place(self) -> Placement:
        whole = self._on_slots(self.free)
        assert whole is not None  # for these hosts have room for all segments
        answer, hosts, held = whole
        most = max(self.most_spares, self.must_keep)
        if len(held.spares) < min(held.wished, most) or held.elsewhere:
            roomy = self._on_slots(self._thinned())
            if roomy is not None and (self.must_keep or self._as_good(roomy[0], answer)):
                _, hosts, held = roomy
            elif self.must_keep:
                raise NoRoom(self.segments.inner.depth)
        cuts = cut(self.fabric, self.request, hosts)
        first_cut = next((each.tier for each in cuts if each.bytes_per_step), "")
        is_inside = answer.inner is not None and answer.inner.tier == first_cut
        top = cuts[0].bytes_per_step
        lower = min(top, answer.lower_bound)
        return Placement(
            hosts=hosts,
            spares=held.spares,
            cuts=cuts,
            lower_bound=lower,
            is_optimal=lower == top,
            notes=(
                *request_notes(self.fabric, self.request),
                *spare_notes(self.fabric, held, self.segments.inner.depth),
            ),
            moved=None if self.hint is None else self.hint.count_moved(hosts),
            inner=answer.inner if is_inside else None,
            step=self._step(answer, hosts),
        )

    def _on_slots(self, free: HostSet) -> tuple[Placement, Hosts, Holding] | None:
        small = contract(self.fabric, free, self.request, self.segments)
        old: Hosts = () if self.hint is None else self.hint.hosts
        hint = None
        if self.hint is not None:
            hint = replace(self.hint, hosts=small.old_slots(old))
        answer = place(small.fabric, small.free, small.request, self.limits, hint)
        if not isinstance(answer, Placement):
            return None
        hosts = tuple(small.expand(answer.hosts, old, self.limits.trees).tolist())
        spares = hostset.indices(self.free), hosts, self.most_spares, self.sizing
        held = hold_spares(self.fabric, self.request, *spares, at=self.segments.inner.depth)
        return answer, hosts, held

    def _thinned(self) -> HostSet:
        """Without the hosts that a domain full of segments should keep as spares."""
        level, free = self.segments.inner, hostset.indices(self.free)
        tier = self.fabric.tiers[level.depth]
        room = tier.count(free)
        room -= [self.sizing.size(n // level.blocks * level.blocks) for n in room.tolist()]
        return hostset.of(free[tier.nth(free) < room[tier.domain_by_host[free]]].tolist())

    def _as_good(self, answer: Placement, other: Placement) -> bool:
        if answer.step is not None and other.step is not None:
            if answer.step.seconds > other.step.seconds * (1 + 1e-3):
                return False
            if self.request.objective is Objective.TIME:
                return True
        return [c.bytes_per_step for c in answer.cuts] <= [c.bytes_per_step for c in other.cuts]

    def _step(self, answer: Placement, hosts: Hosts) -> StepBound | None:
        if answer.step is None:
            return None
        clock, is_innermost = step_clock(self.fabric, self.request), len(self.fabric.tiers) - 1
        seconds, least = clock.step(hosts).seconds, answer.step.least_seconds
        is_rack = self.segments.inner.depth == is_innermost or not self.fabric.has_scale_up_tier
        if self.request.where.is_shape or not is_rack:  # other hosts, or slots that share NVLink
            least = clock.on_one_switch.seconds
        return StepBound(seconds, min(seconds, least))


@struct(frozen=True, slots=True)
class _Option:
    """One way to place the gang, with its spares."""

    hosts: Hosts
    held: Holding
    cuts: tuple[TierCut, ...]


class _Placer:
    """One placement in the making. `free`: host indices, ascending. `stand_by`: those of them that
    a site keeps as spares of whatever zones the gang takes; None where it insists on none."""

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
        elif self.request.objective is Objective.TIME:
            self.notes += self._trade_notes(best, options)
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
                *spread_notes(self.fabric, self.request, self.free, best.hosts),
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
            layouts = inside if self._has_like_hosts else self._as_asked(inside)
            return layouts, Fraction(0), None
        seating, ways_there, bound = self._ways()
        ways = list(ways_there)
        if self.hint is None:
            return self._as_asked(seating.seated(ways)), bound, None
        near = Near(self.fabric, self.request, self.free, self.hint)
        if self.request.objective is Objective.TIME:
            better = self._in_less_time(seating.seated(ways))
            return near.in_time(better, self.limits), bound, near
        fresh = [seating.zone_by_block(way) for way in ways]
        return near.options(fresh, ceil(bound), self.limits), bound, near

    @property
    def _cut_limits(self) -> Limits:
        """One turn for the cut where it comes second, after the step."""
        is_second = self.request.objective is Objective.TIME
        return replace(self.limits, turns=1) if is_second else self.limits

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

    def _as_asked(self, layouts: list[Hosts]) -> list[Hosts]:
        """Add candidates where the step decides, which zones by the cut do not know."""
        if self.request.objective is Objective.TIME:
            return self._in_less_time(layouts)
        return layouts

    def _of_least_cut(
        self, fabric: Fabric, free: Ints, limits: Limits, prices: tuple[tuple[str, int], ...] = ()
    ) -> list[Hosts]:
        """By the cut on some of the hosts, at prices of bytes, or on other tiers."""
        by_cut = replace(self.request, objective=Objective.CUT, prices=prices)
        return self._solved(fabric, by_cut, free, limits)

    def _solved(self, fabric: Fabric, request: Request, free: Ints, limits: Limits) -> list[Hosts]:
        """Return layouts of a request of another objective; one, where nothing is to be proved."""
        placer = _Placer(*(fabric, request, limits, free, self.most_spares, None, self.sizing))
        seating, ways, _ = placer._ways()
        return seating.seated([*islice(ways, None if limits.rounds else 1)])

    def _in_less_time(self, layouts: list[Hosts]) -> list[Hosts]:
        """Where the step waits for uplinks: what other schedulers place (hosts by name, the fewest
        domains in either order), stages in bands, the least cuts at the prices that bytes have,
        until these are the same again, also where innermost domains are not used up; at last
        Arnold's spread."""
        clock, tried = step_clock(self.fabric, self.request), set()
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
        shortest = [NEVER] * len(subsets)  # delays of layouts on each

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

    def _trade_notes(self, best: _Option, options: list[_Option]) -> list[str]:
        """State what was given up, also beside what other schedulers place."""
        hosts = [option.hosts for option in options]
        if best.cuts and step_clock(self.fabric, self.request).delay(best.hosts):
            hosts += self._tidy_hosts(self.fabric, self.free)
        return trade_notes(self.fabric, self.request, best.hosts, hosts)

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
        cuts inside, then harm. Of steps, those within `cut_slack` of the shortest are equal. Near
        an old placement the objective has been met already."""
        if len(options) == 1:
            return options[0]
        values: list[float | int] = [0] * len(options)
        if self.hint is None and self.request.objective is Objective.TIME:
            clock = step_clock(self.fabric, self.request)
            delays = [clock.delay(option.hosts) for option in options]
            shortest = min(delays)
            values = [d if d > shortest + clock.slack else 0 for d in delays]
        elif self.hint is None:
            values = [measure(self.fabric, self.request, o.hosts, o.cuts) for o in options]
        ranked = zip(values, options, strict=True)
        return min(ranked, key=lambda each: (each[0], *self._rank(each[1])))[1]

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
        if not is_full or self.gang > MOST_BLOCKS or self.request.objective not in BY_CUT:
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

    def _zones(self, capacities: list[int], wanted: list[int]) -> tuple[BlockGrid, ZoneStep]:
        """The outermost tier by the request's objective. `wanted`: spares by zone."""
        gpus, is_by_cut = self.fabric.gpus_per_host, self.request.objective in BY_CUT
        if (grid := self.grid) is None:
            if not is_by_cut:
                self.notes.append("the ranks form no grid of hosts: placed by the cut alone")
            return solve_ragged(self.request, gpus, capacities, self._cut_limits)
        reserved = [c - w for c, w in zip(capacities, wanted, strict=True)]
        if is_by_cut:
            return grid, solve_zones(grid, capacities, reserved, self._cut_limits)
        return grid, solve_spread(self.request, grid, capacities, reserved, self.limits)


def _insufficient(
    fabric: Fabric, free: HostSet, request: Request, gang: int, required: int
) -> Insufficient:
    """`free` counts hosts with the labels wanted."""
    free = labelled(fabric, request.where, free)
    count = free.bit_count()
    by_domain: tuple[tuple[str, int], ...] = ()
    if fabric.tiers:
        tier = fabric.tiers[0]
        free_by_domain = tier.count(hostset.indices(free)).tolist()
        by_domain = tuple(zip(tier.domains, free_by_domain, strict=True))
    short = gang + required - count
    wish = wish_text(fabric, request.where)
    has = room_text(fabric, request.where, free)
    if segments := segments_text(fabric, request, free):
        has = f"{has or f'{count:,} in all'}, {segments}"
    reason = f"needs {_hosts(gang, required)}{wish}; " + (
        f"free: {has}" if has else f"{count:,} are free, {short:,} too few"
    )
    return Insufficient(gang + required, count, by_domain, reason)


def _crowded(
    fabric: Fabric, free: HostSet, request: Request, sizing: Sizing, depth: int
) -> Insufficient:
    """Name the domains that are to keep spares, and what that leaves for the gang."""
    gang, hosts = request.hosts_needed(fabric.gpus_per_host), hostset.indices(free)
    tier = fabric.tiers[depth] if fabric.tiers else None
    room = tier.count(hosts).tolist() if tier else [len(hosts)]
    names = tier.domains if tier else (fabric.name,)
    kept = [
        f"{sizing.size(min(n, gang))} of {n} in {name}"
        for n, name in sorted(zip(room, names, strict=True), key=lambda each: -each[0])
        if n
    ]
    more = f" and {len(kept) - MOST_NAMED} more" if len(kept) > MOST_NAMED else ""
    racks = (
        f" and {sizing.racks} whole rack{'s' * (sizing.racks > 1)} each"
        if sizing.racks and not depth
        else ""
    )
    reason = (
        f"needs {_hosts(gang, 0)} beside spares in each of its {tier.name if tier else 'fabric'}s:"
        f" {', '.join(kept[:MOST_NAMED])}{more} of the free hosts{racks} stand by,"
        " which leaves too few"
    )
    by_domain = tuple(zip(names, room, strict=True)) if tier else ()
    return Insufficient(gang, len(hosts), by_domain, reason)


def _hosts(gang: int, required: int) -> str:
    spares = f" and {required:,} spare{'s' if required > 1 else ''}" if required else ""
    return f"{gang:,} hosts{spares}"
