"""Certificate files: a placement written down with what proves its bound, for a checker that
shares no code with the engine (`muster.verify`).

Where the engine's proof is too much to write down, or of a kind that the checker does not know, the
file says what it proves beside what is claimed. See docs/verify.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import groupby
from math import isfinite
from typing import Any

from muster.certificate import FORMAT, SEALED, digest
from muster.step import CLOSE, MEGASECOND, shown_step
from muster.structs import replace
from placement import BoundProof, bound_proofs, place
from placement.fabric import hostset
from placement.fabric.constraints import RoleConstraints, tier_of, with_gang_view
from placement.fabric.hostset import HostSet
from placement.fabric.tree import Fabric, Floats
from placement.objective.axis_loads import BYTES_PER_S
from placement.objective.cut import cut
from placement.objective.step_time import exposure, step_bound
from placement.workload.request import (
    NO_SPARES,
    Collective,
    Limits,
    Objective,
    Placement,
    Request,
    StepBound,
)
from placement.workload.roles import ranks_of_roles
from placement.workload.traffic import AxisTraffic, Pattern, axis_traffic
from placement.workload.training import DataParallel
from placement.workload.volumes import LAYERS_OF_CHUNK, state_share

OF_ROLE = ("first", "ranks", "to")  # of the traffic in a gang of roles alone


@with_gang_view
def certificate(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    placement: Placement,
    name: str = "job",
) -> dict[str, Any]:
    """Return the content of a certificate file for a new placement. `free`: hosts that the job
    could have been given.

    Cost: about that of the placement once more.
    """
    bounds = _bounds(bound_proofs(fabric, free, request, placement))
    return _sealed(fabric, free, request, placement, name, bounds)


@with_gang_view
def decided_certificate(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    hosts: tuple[int, ...],
    spares: tuple[int, ...],
    name: str,
    decision: Mapping[str, Any],
    limits: Limits | None = None,
    *,
    is_bounded: bool,
) -> dict[str, Any]:
    """Return the content of the certificate of a placement that was decided before, on `free`
    hosts, its own among them. `decision`: what the file says of that. `is_bounded`: whether it was
    the best of all placements on these hosts that was sought; the bound on the cut is proved anew
    then.

    Cost: about that of two placements.
    """
    limits = limits or Limits()
    bounds: list[dict[str, Any]] = []
    step, cuts = step_bound(fabric, request, hosts), cut(fabric, request, hosts)
    if is_bounded:
        least = replace(request, objective=Objective.CUT, spares=NO_SPARES)
        best = place(fabric, free, least, limits)
        if isinstance(best, Placement):
            bounds = _bounds(bound_proofs(fabric, free, request, best, limits)[:1])
            if step is not None and best.step is not None:
                step = replace(step, least_seconds=min(step.seconds, best.step.least_seconds))
    placement = Placement(hosts, spares, cuts, step=step)
    return _sealed(fabric, free, request, placement, name, bounds, decision)


def _bounds(proofs: Iterable[BoundProof]) -> list[dict[str, Any]]:
    """Return proofs for a certificate, none of which claims more than its proof shows."""
    return [
        {
            "tier": each.tier,
            "bytes": min(each.claimed, each.proof.least_bytes),
            "engine_bytes": each.claimed,
            "proof": each.proof.content,
        }
        for each in proofs
    ]


def _sealed(
    fabric: Fabric,
    free: HostSet,
    request: Request,
    placement: Placement,
    name: str,
    bounds: list[dict[str, Any]],
    decision: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    where, cuts = request.where, placement.cuts
    parts: dict[str, Any] = {
        "fabric": {
            "name": fabric.name,
            "digest": fabric.digest,
            "hosts": list(fabric.hosts),
            "gpus": _runs(fabric.by_host.gpus.tolist()),
            "tiers": [
                {"name": tier.name, "domain_by_host": _runs(tier.domain_by_host.tolist())}
                for tier in fabric.tiers
            ],
            "barred": [
                {"tier": fabric.tiers[depth].name, "domain": domain}
                for depth, domain in fabric.barred
            ],
            "labels": [
                {"label": f"{key}={value}", "has": _members(fabric, fabric.labels[key][value])}
                for key, value in where.labels
            ],
            "links": _links(fabric),
        },
        "free": _members(fabric, free),
        "job": {
            "name": name,
            "gpus_per_host": fabric.gpus_per_host,
            "ranks": request.parallelism.world_size,
            "labels": [f"{key}={value}" for key, value in where.labels],
            "same": fabric.tiers[tier_of(fabric, where.same, "same")].name if where.same else "",
            "max_zones": where.max_zones if fabric.tiers else 0,
            "segment": where.segment,
            "within": [{"axis": axis, "tier": _tier_name(fabric, t)} for axis, t in where.within],
            "traffic": [_axis(each) for each in axis_traffic(request, fabric.gpus_per_host)],
            "step": None,
            **({"roles": _roles(fabric, request)} if where.roles else {}),
        },
        "claims": {
            "hosts": list(fabric.names(placement.hosts)),
            "spares": list(fabric.names(placement.spares)),
            "cuts": [
                {"tier": each.tier, "bytes": each.bytes_per_step, "by_axis": dict(each.by_axis)}
                for each in cuts
            ],
            "bounds": bounds,
            "step": None,
            **({} if decision is None else {"decision": dict(decision)}),
        },
    }
    step = placement.step
    # Of the formula of a step the checker knows neither roles nor latency, rounds or trees.
    known = (Collective.RING, Collective.HIERARCHICAL)
    is_whole = all(used in known for _, used in request.collectives)
    is_checked = is_whole and not request.roles and not fabric.has_latency
    if step is not None and isfinite(step.seconds) and is_checked:
        parts["job"]["step"] = _facts_of_step(fabric, request, placement.hosts)
        parts["claims"]["step"] = _step_claim(step, _unsealed(parts))
    return {"format": FORMAT, "digests": {p: digest(parts[p]) for p in SEALED}, **parts}


def _roles(fabric: Fabric, request: Request) -> list[dict[str, Any]]:
    """Ranks of each role, and the constraints of those that have some."""
    own, roles = {each.role: each for each in request.where.roles}, list[dict[str, Any]]()
    for role, ranks in zip(request.roles, ranks_of_roles(request), strict=True):
        wanted, p = own.get(role.name, RoleConstraints(role.name)), role.request.parallelism
        within = [
            {"size": p.size(axis), "stride": p.stride(axis), "tier": _tier_name(fabric, tier)}
            for axis, tier in wanted.within
        ]
        roles.append(
            {
                "name": role.name,
                "first": ranks.start,
                "ranks": len(ranks),
                "same": _tier_name(fabric, wanted.same) if wanted.same else "",
                "segment": wanted.segment,
                "within": within,
                "beside": _named_by_tier(fabric, wanted.beside),
                "avoid": _named_by_tier(fabric, wanted.avoid),
            }
        )
    return roles


def _named_by_tier(
    fabric: Fabric, by_tier: Iterable[tuple[str, tuple[str, ...]]]
) -> list[dict[str, Any]]:
    return [{"tier": _tier_name(fabric, tier), "roles": list(roles)} for tier, roles in by_tier]


def _axis(traffic: AxisTraffic) -> dict[str, Any]:
    parts = {**asdict(traffic), "pattern": traffic.pattern.value}
    unsaid = () if traffic.ranks else OF_ROLE
    if traffic.pattern is not Pattern.TREE:
        unsaid = (*unsaid, "node")
    return {name: value for name, value in parts.items() if name not in unsaid}


def _links(fabric: Fabric) -> dict[str, Any]:
    """Speeds in bytes in a million seconds, of hosts and of the uplinks of domains."""
    own = fabric.by_host.gpus * fabric.by_host.scale_up_gbps * BYTES_PER_S
    return {
        "scale_up": _speeds(own),
        "nic": _speeds(fabric.injection_bytes_per_s),
        "joined": _runs(fabric.scale_up_by_host.tolist()),
        "uplinks": [_speeds(tier.uplink_bytes_per_s) for tier in fabric.tiers],
    }


def _speeds(bytes_per_s: Floats) -> list[list[int]]:
    return _runs([round(each * MEGASECOND) for each in bytes_per_s.tolist()])


def _facts_of_step(fabric: Fabric, request: Request, hosts: Sequence[int]) -> dict[str, Any]:
    rule, fastest = exposure(fabric, request, hosts=hosts), exposure(fabric, request)
    line, training = rule.pipeline, request.training
    axes = [traffic.axis for traffic in axis_traffic(request)]
    shares = {axis: state_share(request, axis) for axis in axes}
    seconds = {"compute_s": rule.compute_s, "least_compute_s": fastest.compute_s}
    seconds["most_compute_s"] = fastest.hiding_s
    last_layer = [0, 1] if request.model else [1, LAYERS_OF_CHUNK]
    return {
        **{name: list(value.as_integer_ratio()) for name, value in seconds.items()},
        "pipeline": asdict(line),
        "sync": training.sync.value,
        "gradients_alone": training.data_parallel is DataParallel.DDP,
        "state": {axis: [each.numerator, each.denominator] for axis, each in shares.items()},
        "exposed": {axis: list(share.as_integer_ratio()) for axis, share in rule.shares.items()},
        "last_layer": last_layer,
    }


def _step_claim(step: StepBound, content: dict[str, Any]) -> dict[str, Any]:
    claimed = Fraction(step.least_seconds)
    shown = min(claimed, shown_step(content)) if claimed else claimed
    if claimed <= shown * (1 + CLOSE):  # floats apart
        shown = claimed
    named = {"seconds": Fraction(step.seconds), "least_seconds": shown}
    named["engine_least_seconds"] = claimed
    return {name: [each.numerator, each.denominator] for name, each in named.items()}


def _unsealed(parts: dict[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "digests": dict.fromkeys(SEALED, ""), **parts}


def _tier_name(fabric: Fabric, name: str) -> str:
    return name if name == "host" else fabric.tiers[tier_of(fabric, name, "within")].name


def _members(fabric: Fabric, hosts: HostSet) -> list[list[int]]:
    return _runs(hostset.to_mask(hosts, fabric.host_count).astype(int).tolist())


def _runs(values: Sequence[int]) -> list[list[int]]:
    """Pairs of a value and how often it comes in a row."""
    return [[value, sum(1 for _ in same)] for value, same in groupby(values)]
