"""place(): where a gang goes, or why it goes nowhere now or ever."""

from __future__ import annotations

from functools import lru_cache

from muster.structs import replace, struct
from placement.errors import BadInput
from placement.fabric import hostset
from placement.fabric.constraints import check, labelled, room_text, wish_text, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, sizes_of
from placement.gang_placer import GangPlacer, SpreadPlacer
from placement.notes import request_notes, spare_notes
from placement.objective.cut import cut, no_cuts
from placement.objective.step_time import refuse_precision
from placement.part_of_host import choose_gpus
from placement.replace.near import Hint, swapped_near
from placement.replace.swaps import choose_swaps
from placement.spares.holding import (
    Holding,
    hold_spares,
    standing_by,
)
from placement.spares.sizing import BY_DEFAULT, Sizing
from placement.tiers.fragmentation import NO_PREFERENCE, Preference
from placement.tiers.objectives import measure
from placement.tiers.seating import Hosts
from placement.tiers.shape import NoRoom, contract, placed_inside
from placement.tiers.single_domain import single_domains
from placement.tiers.step_clock import step_clock
from placement.time_placer import SMALL_GANG, TimePlacer
from placement.workload.memory import refuse_too_large
from placement.workload.request import (
    NO_SPARES,
    Answer,
    Infeasible,
    Insufficient,
    Limits,
    Objective,
    Placement,
    Request,
    StepBound,
    Undecided,
)
from placement.workload.role_domains import RoleRules, place_by_role
from placement.workload.segments import (
    Segments,
    is_undecided,
    parted,
    role_rules,
    segments_of,
    segments_text,
    usable_for,
)

MOST_NAMED = 4  # domains in a refusal
PLACERS: dict[Objective, type[GangPlacer]] = {
    Objective.CUT: GangPlacer,
    Objective.SPREAD: SpreadPlacer,
    Objective.TIME: TimePlacer,
}


@with_gang_view
@lru_cache(maxsize=4096)
def impossible(fabric: Fabric, request: Request) -> Infeasible | None:
    """Return the proof that `request` never fits `fabric`, however empty; None if it may.

    Raises: BadInput when the ranks do not fill whole hosts, or need more memory than the job says a
    GPU has, or a precision that the GPUs lack, or when its constraints name a tier or label that is
    not there.
    """
    gang, required = _hosts_and_spares(fabric, request)
    fabric, everything = fabric.as_built, hostset.full(fabric.host_count)
    if usable_for(fabric, request, everything, gang + required).bit_count() >= gang + required:
        return None
    if is_undecided(fabric, request, everything):
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
    """Place a gang: return its hosts in block order and spares, with the cut and how far from
    optimal it can be.

    `hint`: where the gang was; the answer moves few of its blocks. `most_spares`: the most spares
    that an *auto* rule may hold; `sizing`: how many it asks for. `preference`: which hosts are
    taken first and last where every cut is the same; unused with a hint or segments.

    Raises: BadInput as `impossible`, or when the hint is of another size. Cost: 16,384 ranks on
    3,072 hosts in about half a second.
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

    is_by_cut = _is_by_cut(request) and hint is None and not preference
    segments, rules = segments_of(fabric, request), role_rules(fabric, request)
    insists = sizing.is_strict and request.spares.is_auto and hint is None

    def solve(inside: HostSet) -> Placement:
        is_simple = is_by_cut and rules is None and (segments is None or fabric.is_undivided)
        if is_simple and (uncut := _on_one_switch(fabric, inside, gang)) is not None:
            notes = request_notes(fabric, request)
            return Placement(uncut, cuts=no_cuts(fabric), is_optimal=True, notes=notes)
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
        placer = PLACERS[request.objective](
            fabric, request, limits, hosts, most, hint, sizing, preference, stand_by
        )
        best = placer.place()
        if rules is None or not parted(fabric, request, best.hosts):
            return best
        blocks = hostset.of(placer.free.tolist())  # without those that stand by
        by_role = _RolePlacer(fabric, request, rules, limits, inside, blocks, most, hint, sizing)
        return by_role.place(best)

    try:
        answer = placed_inside(fabric, room, request, gang + required, solve)
    except NoRoom as lack:
        return _crowded(fabric, room, request, sizing, lack.depth)
    if gpus:
        return replace(answer, gpus=choose_gpus(fabric, answer.hosts[0], (), gpus) or ())
    return answer


def _is_by_cut(request: Request) -> bool:
    """Whether a gang is as well off wherever nothing is cut: it neither asks for seconds of a step
    nor for spares."""
    is_by_cut = request.objective is Objective.CUT and not request.has_step_time
    return is_by_cut and request.spares.hosts == 0


def _on_one_switch(fabric: Fabric, inside: HostSet, gang: int) -> Hosts | None:
    """Return the first hosts of the innermost domain that takes the gang, all hosts where nothing
    divides them; None: no such domain does."""
    if fabric.is_undivided:
        return hostset.first(inside, gang)
    if gang > sizes_of(fabric.tiers[-1]).max():
        return None
    for hosts, depth in single_domains(fabric, hostset.indices(inside), gang, gang)[:1]:
        return tuple(hosts[:gang].tolist()) if depth >= len(fabric.tiers) else None
    return None


@struct(frozen=True, slots=True)
class _SegmentPlacer:
    """A placement of a gang whose segments lie in one domain each: it is placed on slots
    (tiers/shape.py), at first on all that there are, whose bound is that of the gang; then
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
        hosts = tuple(small.expand(answer.hosts, old, self.limits).tolist())
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
class _RolePlacer:
    """A placement of a gang whose roles have constraints: hosts are shared out among the roles by
    domain (workload/role_domains.py), and each is placed on its own. `free`: all hosts that are
    free; `inside`: those of them that blocks may take."""

    fabric: Fabric
    request: Request
    rules: RoleRules
    limits: Limits
    free: HostSet
    inside: HostSet
    most_spares: int
    hint: Hint | None
    sizing: Sizing

    def place(self, loose: Placement) -> Placement:
        """Return the best of a few. `loose`: the placement without constraints of roles, whose
        bounds hold with them as well. Raises: NoRoom."""
        old = () if self.hint is None else self.hint.hosts
        layouts = dict.fromkeys(filter(None, (self._near(like) for like in (loose.hosts, old, ()))))
        if self.hint is not None:
            swapped = swapped_near(self.fabric, self.request, self.inside, self.hint)
            layouts |= dict.fromkeys([swapped] if swapped else [])
        if not layouts:
            raise NoRoom(0)
        hosts = self._improved(self._best(list(layouts)))
        cuts = cut(self.fabric, self.request, hosts)
        held = hold_spares(
            *(self.fabric, self.request, hostset.indices(self.free), hosts),
            *(self.most_spares, self.sizing),
        )
        lower = min(cuts[0].bytes_per_step, loose.lower_bound)
        first_cut = next((each.tier for each in cuts if each.bytes_per_step), "")
        inner = loose.inner if loose.inner and loose.inner.tier == first_cut else None
        step = loose.step
        if step is not None:
            seconds = step_clock(self.fabric, self.request).step(hosts).seconds
            step = StepBound(seconds, min(seconds, step.least_seconds))
        is_optimal = lower == cuts[0].bytes_per_step
        bound = "the bound is that of the gang without the constraints of its roles"
        notes = (
            *request_notes(self.fabric, self.request),
            *([] if is_optimal else [bound]),
            *spare_notes(self.fabric, held),
        )
        moved = None if self.hint is None else self.hint.count_moved(hosts)
        return Placement(
            *(hosts, held.spares, cuts, lower, is_optimal, notes, moved), inner=inner, step=step
        )

    def _near(self, like: Hosts) -> Hosts | None:
        """Return hosts of the gang, much like those of a placement; None where no way was found."""
        # Nothing is to be proved of a role.
        searched = replace(self.limits, rounds=0, trees=max(1, self.limits.trees))

        def place_role(role: int, hosts: HostSet) -> Hosts | None:
            part, hint = self.request.roles[role].request, self.hint
            if hint is not None:
                hint = replace(hint, hosts=tuple(self.rules.part(hint.hosts, role)))
            answer = place(self.fabric, hosts, replace(part, spares=NO_SPARES), searched, hint)
            return answer.hosts if isinstance(answer, Placement) else None

        return place_by_role(self.fabric, self.rules, self.inside, like, place_role)

    def _improved(self, hosts: Hosts) -> Hosts:
        """Return a small gang with its roles, then its blocks, one after the other where they cut
        less."""
        if self.hint is not None or len(hosts) > SMALL_GANG:
            return hosts
        for part in [*self.rules.blocks, *([block] for block in range(len(hosts)))]:
            stays = hostset.of(host for block, host in enumerate(hosts) if block not in part)
            swaps = choose_swaps(self.fabric, self.request, hosts, part, 0, self.inside & ~stays)
            if swaps is not None:
                joined = dict(swaps.joined)
                other = tuple(joined.get(block, host) for block, host in enumerate(hosts))
                hosts = self._best([hosts, other])
        return hosts

    def _best(self, layouts: list[Hosts]) -> Hosts:
        """Return the layout of the least cut, or whatever else is minimised; beside an old
        placement that which moves the fewest blocks, of those about as good."""
        every = [cut(self.fabric, self.request, hosts) for hosts in layouts]
        each = zip(layouts, every, strict=True)
        values = [measure(self.fabric, self.request, hosts, cuts) for hosts, cuts in each]
        if self.hint is not None:
            most = min(values) * (1 + self.hint.slack)
            moves = [self.hint.count_moved(hosts) for hosts in layouts]
            values = [0 if value <= most else value for value in values]
        else:
            moves = [0] * len(layouts)
        bytes_cut = [[tier.bytes_per_step for tier in cuts] for cuts in every]
        ranked = zip(values, moves, bytes_cut, layouts, strict=True)
        return min(ranked)[3]


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
