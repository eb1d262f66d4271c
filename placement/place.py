"""place(): the package's only entry point.

In steps: is it possible at all; does one domain hold the whole gang; else the zone step
with its certificate; then hosts inside each zone; then the spares beside them.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from placement import hostset
from placement.cut import cut
from placement.descend import Descent
from placement.fabric import Fabric, Ints
from placement.grid import BlockGrid, block_grids
from placement.holding import Holding, hold_spares, reserve_by_zone
from placement.hostset import HostSet
from placement.memory import memory_note, refuse_too_large
from placement.objective import solve_scored
from placement.ragged import solve_ragged
from placement.request import (
    Answer,
    Infeasible,
    Insufficient,
    Limits,
    Objective,
    Placement,
    Request,
    TierCut,
    Undecided,
)
from placement.spread import spread_note
from placement.traffic import axis_traffic
from placement.zones import ZoneStep, best_grid, solve_zones


def impossible(fabric: Fabric, request: Request) -> Infeasible | None:
    """Proof that `request` never fits `fabric`, however empty; None if it may.

    Raises: BadInput when the ranks do not fill whole hosts, or need more memory than the
    job says a GPU has.
    """
    refuse_too_large(request)
    gang = request.hosts_needed(fabric.gpus_per_host)
    required = request.spares.required(gang)
    if gang + required <= fabric.host_count:
        return None
    return Infeasible(
        f"needs {_hosts(gang, required)}; {fabric.name} has {fabric.host_count:,} in all"
    )


def place(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    limits: Limits | None = None,
    *,
    most_spares: int | None = None,
) -> Answer:
    """Hosts in block order and spares, with the cut and how far from optimal it can be.

    `most_spares` caps what an *auto* rule may hold.

    Raises: BadInput as `impossible`.
    Cost: 16,384 ranks on 3,072 hosts in about half a second.
    """
    limits = limits or Limits()
    never = impossible(fabric, request)
    if never is not None:
        return never
    gang = request.hosts_needed(fabric.gpus_per_host)
    required = request.spares.required(gang)
    if free.bit_count() < gang + required:
        return _insufficient(fabric, free, gang, required)
    if not limits.rounds and not limits.trees:
        return Undecided("the limits allow no search")
    hosts = np.flatnonzero(hostset.to_mask(free, fabric.host_count)).astype(np.int64)
    most = len(hosts) - gang if most_spares is None else min(most_spares, len(hosts) - gang)
    return _Placer(fabric, request, limits, hosts, gang).place(max(required, most))


class _Placer:
    """One placement in the making. `free`: host indices, ascending."""

    def __init__(
        self, fabric: Fabric, request: Request, limits: Limits, free: Ints, gang: int
    ) -> None:
        self.fabric = fabric
        self.request = request
        self.limits = limits
        self.free = free
        self.gang = gang
        self.notes: list[str] = []

    def place(self, most_spares: int) -> Placement:
        hosts, bound = self._gang(most_spares)
        cuts = cut(self.fabric, self.request, hosts)
        held = hold_spares(self.fabric, self.request, self.free, hosts, most_spares)
        top = cuts[0].bytes_per_step if cuts else 0
        lower = min(top, ceil(bound))
        return Placement(
            hosts=hosts,
            spares=held.spares,
            cuts=cuts,
            lower_bound=lower,
            is_optimal=lower == top,
            notes=(
                *self._silent_axes(cuts),
                *self._memory_notes(),
                *self.notes,
                *self._spare_notes(held),
            ),
        )

    def _gang(self, most_spares: int) -> tuple[tuple[int, ...], Fraction]:
        """Hosts by block, and a bound on the outermost cut in bytes."""
        inside = self._smallest_domain(most_spares)
        if inside is not None:
            return self._inside(*inside), Fraction(0)
        grids = block_grids(self.request, self.fabric.gpus_per_host)
        capacities = self._free_by_zone()
        if not grids:
            grid, step = solve_ragged(
                self.request, self.fabric.gpus_per_host, capacities, self.limits
            )
            if self.request.objective is not Objective.CUT:
                self.notes.append("the ranks form no grid of hosts: placed by the cut alone")
        else:
            wanted = reserve_by_zone(self.request, capacities, self.gang, most_spares)
            reserved = [c - w for c, w in zip(capacities, wanted, strict=True)]
            grid = best_grid(grids, capacities)
            step = self._zones(grid, capacities, reserved)
        descent = Descent(self.fabric, grid, self.limits.trees, grids)
        descent.into_zones(step.layout, self.free)
        return _by_block(grid, descent.host), grid.to_bytes(step.bound)

    def _zones(self, grid: BlockGrid, capacities: list[int], reserved: list[int]) -> ZoneStep:
        """The outermost tier by the request's objective."""
        if self.request.objective is Objective.CUT:
            return solve_zones(grid, capacities, reserved, self.limits)
        uplink = self.fabric.tiers[0].uplink_bytes_per_s
        step = solve_scored(self.request, grid, capacities, reserved, self.limits, uplink)
        if self.request.objective is Objective.SPREAD:
            zone = self.fabric.tiers[0].name
            note = spread_note(grid, step.layout, capacities, self.request.spread_alpha, zone)
            self.notes.append(note)
        return step

    def _free_by_zone(self) -> list[int]:
        tier = self.fabric.tiers[0]
        free = np.bincount(tier.domain_by_host[self.free], minlength=len(tier.domains))
        return [int(n) for n in free]

    def _smallest_domain(self, most_spares: int) -> tuple[Ints, int] | None:
        """Free hosts of one domain that holds the whole gang, and the tier below it.

        The deepest tier that has such a domain; there the one in the zone with room for
        the spares, with the fewest free hosts left, tier by tier, then by name.
        """
        room = self.gang + self._spares_wished(most_spares)
        if not self.fabric.tiers:
            return self.free, 0
        domains = [tier.domain_by_host[self.free] for tier in self.fabric.tiers]
        free_in = [np.bincount(d)[d] for d in domains]  # per free host, of its own domain
        for depth in range(len(domains) - 1, -1, -1):
            fits = free_in[depth] >= self.gang
            if not fits.any():
                continue
            has_room = fits & (free_in[0] >= room)
            candidates = np.flatnonzero(has_room if has_room.any() else fits)
            keys = [domains[depth][candidates]]
            keys += [free_in[k][candidates] for k in range(depth, -1, -1)]
            chosen = domains[depth][candidates[np.lexsort(keys)[0]]]
            return self.free[domains[depth] == chosen], depth + 1
        return None

    def _spares_wished(self, most_spares: int) -> int:
        wished = reserve_by_zone(self.request, [self.gang], self.gang, most_spares)
        return wished[0]

    def _inside(self, free: Ints, tier: int) -> tuple[int, ...]:
        """The whole gang inside one domain: nothing crosses the outermost tier."""
        if tier >= len(self.fabric.tiers):
            return tuple(free[: self.gang].tolist())
        grids = block_grids(self.request, self.fabric.gpus_per_host)
        grid = grids[0] if grids else BlockGrid.shapeless(self.gang)
        descent = Descent(self.fabric, grid, self.limits.trees, grids)
        descent.into(np.ones((grid.rows, grid.width), dtype=np.bool_), free, tier)
        return _by_block(grid, descent.host)

    def _silent_axes(self, cuts: tuple[TierCut, ...]) -> list[str]:
        """Axes that span hosts and carry no bytes: most likely something was left out."""
        gpus = self.fabric.gpus_per_host
        return [
            f"axis {axis.axis} spans hosts and has no traffic: it was placed as if silent"
            for axis in axis_traffic(self.request)
            if not axis.edge_bytes and axis.stride * axis.size > gpus
        ]

    def _memory_notes(self) -> list[str]:
        note = memory_note(self.request)
        return [note] if note else []

    def _spare_notes(self, held: Holding) -> list[str]:
        notes = []
        if len(held.spares) < held.wished:
            notes.append(f"{len(held.spares)} of {held.wished} spares held: no more hosts are free")
        if held.elsewhere:
            spares = "1 spare is" if held.elsewhere == 1 else f"{held.elsewhere} spares are"
            tier = self.fabric.tiers[0].name
            notes.append(f"{spares} in {tier}s that the gang does not use")
        return notes


def _by_block(grid: BlockGrid, host: Ints) -> tuple[int, ...]:
    hosts = np.empty(grid.size, dtype=np.int64)
    hosts[grid.block] = host
    return tuple(hosts.tolist())


def _insufficient(fabric: Fabric, free: HostSet, gang: int, required: int) -> Insufficient:
    count = free.bit_count()
    by_domain: tuple[tuple[str, int], ...] = ()
    if fabric.tiers:
        tier = fabric.tiers[0]
        mask = hostset.to_mask(free, fabric.host_count)
        free_by_domain = np.bincount(tier.domain_by_host[mask], minlength=len(tier.domains))
        by_domain = tuple(zip(tier.domains, free_by_domain.tolist(), strict=True))
    short = gang + required - count
    reason = f"needs {_hosts(gang, required)}; {count:,} are free, {short:,} too few"
    return Insufficient(gang + required, count, by_domain, reason)


def _hosts(gang: int, required: int) -> str:
    spares = f" and {required:,} spare{'s' if required > 1 else ''}" if required else ""
    return f"{gang:,} hosts{spares}"
