"""One gang on hosts that may all take it, with its spares: by the time of a step.

Layouts of the least cut come first. Where steps wait for uplinks, others are added, technique by
technique, until the step is nearly as short as on one switch.
See docs/engine.md, "The tiers".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np

from muster.structs import replace
from placement.baselines import by_spread, consecutive
from placement.fabric.tree import Fabric, Ints, innermost
from placement.gang_placer import GangPlacer, PlacementOption, SpreadPlacer
from placement.kernels import INFINITE
from placement.replace.near import Near
from placement.search.portfolio import ONCE, Incumbent, Technique, run_turns
from placement.tiers.objectives import trade_notes
from placement.tiers.seating import Hosts, Seating, ZoneChoice
from placement.tiers.stage_bands import banded_layouts
from placement.tiers.step_clock import MOST_PRICINGS, StepClock, step_clock
from placement.workload.request import Limits, Objective, Request

MOST_SUBSETS = 2  # of the free hosts, on which the least cut is looked for once steps are short
SMALL_GANG = 64  # blocks, whose steps are reckoned often enough to be shortened by exchanges
TREES_A_STEP = 20  # slicing trees in the time of one exchange: some 0.4 ms
NOT_BOUNDED = -1  # below any delay


class TimePlacer(GangPlacer):
    """Places a gang for the shortest step; of steps within `cut_slack` of the shortest, for the
    least cut."""

    @cached_property
    def clock(self) -> StepClock:
        return step_clock(self.fabric, self.request)

    @property
    def cut_limits(self) -> Limits:
        """One turn for the cut, which comes second."""
        return replace(self.limits, turns=1)

    def _near_options(
        self, near: Near, seating: Seating, ways: Sequence[ZoneChoice], bound: int
    ) -> list[Hosts]:
        return near.in_time(self._add_candidates(seating.seated(ways)), self.limits)

    def _objective_notes(
        self, best: PlacementOption, options: Sequence[PlacementOption]
    ) -> list[str]:
        """State what was given up, also beside what other schedulers place."""
        if self.hint is not None:
            return []
        hosts = [option.hosts for option in options]
        if best.cuts and self.clock.delay(best.hosts):
            hosts += self.tidy_hosts(self.fabric, self.free)
        return trade_notes(self.fabric, self.request, best.hosts, hosts)

    def _values(self, options: Sequence[PlacementOption]) -> Sequence[float]:
        """Steps within `cut_slack` of the shortest are equal."""
        delays = [self.clock.delay(option.hosts) for option in options]
        most = min(delays) + self.clock.slack
        return [delay if delay > most else 0 for delay in delays]

    def _add_candidates(self, layouts: list[Hosts]) -> list[Hosts]:
        """Add layouts that may shorten the step, where it waits for uplinks."""
        return _StepSearch(self, layouts).solved()

    def tidy_hosts(self, fabric: Fabric, free: Ints) -> list[Hosts]:
        """Return what other schedulers would place: hosts by name, then the fewest domains, in the
        order in which they were filled and by name."""
        fewest = consecutive(fabric)(free, self.gang)
        return [
            tuple(free[: self.gang].tolist()),
            tuple(fewest.tolist()),
            tuple(np.sort(fewest).tolist()),
        ]

    def of_least_cut(
        self, fabric: Fabric, free: Ints, limits: Limits, prices: tuple[tuple[str, int], ...] = ()
    ) -> list[Hosts]:
        """Return layouts of the least cut on some of the hosts, at prices of bytes, or on other
        tiers."""
        by_cut = replace(self.request, objective=Objective.CUT, prices=prices)
        return self.solved(fabric, by_cut, free, limits)

    def solved(self, fabric: Fabric, request: Request, free: Ints, limits: Limits) -> list[Hosts]:
        """Return layouts of a request of another objective; one, where nothing is to be proved."""
        kind = SpreadPlacer if request.objective is Objective.SPREAD else GangPlacer
        rest = self.most_spares, None, self.sizing
        return kind(fabric, request, limits, free, *rest).layouts()


class _StepSearch:
    """Layouts that may shorten the step of a gang, technique by technique: hosts that other
    schedulers take, stages in bands, the least cuts at the prices that bytes have, Arnold's spread,
    exchanges of blocks, and at last what cuts least on the hosts of the shortest steps.

    The incumbent has the hosts of the least delay as its layout; its bound is the delay below which
    more search is not worth its time.
    """

    def __init__(self, placer: TimePlacer, layouts: Sequence[Hosts]) -> None:
        self._placer, self._clock = placer, placer.clock
        self._layouts = list(layouts)
        self._first = min(layouts, key=self._clock.delay)
        self._unproved = replace(placer.limits, rounds=0)

    def solved(self) -> list[Hosts]:
        """Return the layouts, those that are given and those that are found."""
        placer, clock, limits = self._placer, self._clock, self._placer.limits
        enough = clock.good_delay(placer.free)
        best = Incumbent(np.array(self._first), clock.delay(self._first), NOT_BOUNDED)
        if best.cost <= enough:
            return self._layouts
        # All of these are tried, for of equal steps the one that cuts less is taken.
        best = run_turns(best, self._starts(), limits).raise_bound(enough)
        best = run_turns(best, self._searches(), limits)
        if limits.may_use("least cuts on hosts of short steps"):
            self._cut_less(clock.delay(_hosts(best)) + clock.slack)
        return self._layouts

    def _starts(self) -> list[Technique]:
        starts = [
            Technique("hosts by name", self._by_name, ONCE),
            Technique("hosts of the fewest domains", self._in_fewest_domains, ONCE),
        ]
        if self._placer.grid is not None:
            starts.insert(1, Technique("stages in bands", self._in_bands, ONCE))
        return starts

    def _searches(self) -> list[Technique]:
        searches = [Technique("least cuts at prices of bytes", self._price, ONCE)]
        if not self._placer.request.roles:
            searches.append(Technique("least spread", self._spread_little, ONCE))
        if self._placer.gang <= SMALL_GANG:
            searches.append(Technique("exchanges of blocks", self._exchange, ONCE))
        return searches

    @cached_property
    def _subsets(self) -> list[tuple[Fabric, Ints]]:
        """Fabrics and free hosts on which layouts are looked for: all, and some of them that share
        uplinks with fewer others or have better ones; on NVLink racks also as if racks were all
        tiers, for what leaves racks may cost more than what goes far."""
        placer, may_use = self._placer, self._placer.limits.may_use
        needed = placer.gang + placer.request.spares.required(placer.gang)
        whole, free = placer.fabric, placer.free
        thinner = [*self._clock.thin_hosts(free, needed)]
        if len(thinner) > 1 and not may_use("fewer hosts of a thin uplink"):
            thinner = thinner[:1]
        better = [*self._clock.behind_better_links(free, needed)]
        if better and not may_use("hosts behind better links"):
            better = []
        trees = [whole]
        if whole.has_scale_up_tier and may_use("racks without outer tiers"):
            trees.append(innermost(whole))
        return [*product(trees, thinner), *product(trees[:1], better)]

    @cached_property
    def _shortest(self) -> list[int]:
        """The least delay of the layouts that were found on each subset, which changes."""
        return [INFINITE] * len(self._subsets)

    def _offered(
        self, best: Incumbent, layouts: Sequence[Hosts], subset: int | None = None
    ) -> Incumbent:
        """Keep the layouts, which were found on this subset if one is given."""
        self._layouts += layouts
        for hosts in layouts:
            delay = self._clock.delay(hosts)
            best = best.offer(np.array(hosts), delay)
            if subset is not None:
                self._shortest[subset] = min(self._shortest[subset], delay)
        return best

    def _by_name(self, best: Incumbent, share: int) -> Incumbent:
        return self._offered(
            best, self._placer.tidy_hosts(self._placer.fabric, self._placer.free)[:1]
        )

    def _in_bands(self, best: Incumbent, share: int) -> Incumbent:
        placer = self._placer
        if placer.grid is None:
            return best
        bands = banded_layouts(placer.fabric, placer.grid, placer.free, self._first)
        return self._offered(best, [*bands])

    def _in_fewest_domains(self, best: Incumbent, share: int) -> Incumbent:
        for k, (tree, free) in enumerate(self._subsets):
            best = self._offered(best, self._placer.tidy_hosts(tree, free)[1:], k)
        return best

    def _price(self, best: Incumbent, share: int) -> Incumbent:
        """Cut least at the prices that bytes have in the best layout, until these are the same
        again."""
        clock, tried = self._clock, set[tuple[tuple[str, int], ...]]()
        for _ in range(MOST_PRICINGS):
            prices = clock.prices(clock.step(_hosts(best)))
            if prices in tried or best.is_closed:
                break
            tried.add(prices)
            for k, (tree, free) in enumerate(self._subsets):
                found = self._placer.of_least_cut(tree, free, self._unproved, prices)
                best = self._offered(best, found, k)
        return best

    def _spread_little(self, best: Incumbent, share: int) -> Incumbent:
        placer = self._placer
        limits = replace(self._unproved, trees=placer.limits.first.trees, turns=1)
        spread = by_spread(placer.request)
        return self._offered(best, placer.solved(placer.fabric, spread, placer.free, limits))

    def _exchange(self, best: Incumbent, share: int) -> Incumbent:
        tries = self._placer.limits.trees // TREES_A_STEP
        return self._offered(best, [self._clock.shorten(_hosts(best), self._placer.free, tries)])

    def _cut_less(self, most: int) -> None:
        """Add the least cuts, bytes that hide behind compute and all, on the subsets where steps
        have at most this delay, the shortest first."""
        placer = self._placer
        as_short = np.argsort(self._shortest, kind="stable")
        for k in [k for k in as_short if self._shortest[k] <= most][:MOST_SUBSETS]:
            free = self._subsets[k][1]
            self._layouts += placer.of_least_cut(placer.fabric, free, placer.cut_limits)


def _hosts(best: Incumbent) -> Hosts:
    return tuple(best.layout.tolist())
