"""How many hosts the power of a hall feeds, and how fast a job trains on them.

Each choice holds all GPUs to so many watts, so that hosts draw less and more of them run, and each
of them is slower. Racks and the hall have caps, of the fabric file or of the question; a regular
fabric is made as large as the hall feeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil, prod
from typing import Any

from muster.structs import replace, struct
from placement import BadInput, place
from placement.fabric import hostset
from placement.fabric.gpus import Gpu, with_power_limit
from placement.fabric.hostset import HostSet
from placement.fabric.power import Power, PowerCap
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric, hosts_by_kind, masks, with_goodput
from placement.objective.step_time import step_time
from placement.workload.request import Placement, Request

# A DGX H100 draws at most 10.2 kW, of which eight GPUs of 700 W are 5.6 (its data sheet, 2023).
HOST_PER_GPUS = 10.2 / 5.6
UPLINK_SLACK = 0.01  # by which a step may be longer than with uplinks that carry all hosts send
MOST_RATIO = 64  # of what hosts send to what their uplink carries


@struct(frozen=True, slots=True)
class HallQuestion:
    """A planner's question. `hall_kw` None: the caps are those of the fabric file; `rack_kw` None:
    racks have no cap of their own. `host_kw`: of a host whose GPUs have no limit."""

    request: Request
    fabric: Fabric
    hall_kw: float | None = None
    host_kw: float | None = None


@struct(frozen=True, slots=True)
class HallChoice:
    """One way to use the power.

    `gpus`: each kind, held to `watts`. `host_kw`: that a host draws at most. `held_back_by`: the
    caps that keep other hosts off, "" where all run. `gangs`: as many of the job as the hosts make,
    in parts. `step_s`: None where the job does not fit, or says not how long it computes; `reason`:
    why. `uplink_ratio`: what hosts of an outermost domain send to what its uplink has to carry so
    that no step is longer by more than 1 %; None where no gang crosses one.
    """

    rack_kw: float | None
    watts: float
    gpus: tuple[Gpu, ...]
    host_kw: float
    racks: int
    hosts: int
    kw: float
    held_back_by: str
    gangs: float = 0.0
    step_s: float | None = None
    tokens_per_s: float | None = None
    uplink_ratio: float | None = None
    uplink_gbps: float | None = None
    reason: str = ""


def hall_choice(question: HallQuestion, rack_kw: float | None, watts: float) -> HallChoice:
    """Return what the hall holds and trains with GPUs held to `watts`. Raises: BadInput."""
    fabric = question.fabric
    drawn_kw = max(kw for kw, _ in _draws(fabric, question.host_kw, watts))
    if question.hall_kw is not None:
        fabric = from_spec(_grown(fabric.spec, drawn_kw, question.hall_kw, rack_kw))
    kinds = tuple(with_power_limit(gpu, watts) for gpu in fabric.by_host.kinds)
    power = _power(fabric, _draws(fabric, question.host_kw, watts), question.hall_kw, rack_kw)
    fabric = replace(fabric, by_host=replace(fabric.by_host, kinds=kinds), power=None)
    every = hostset.full(fabric.host_count)
    runs = power.within(every, 0)
    racks = sum(1 for group in power.groups if group & runs) if fabric.tiers else 0
    chosen = HallChoice(
        rack_kw,
        watts,
        kinds,
        drawn_kw,
        racks,
        runs.bit_count(),
        power.draw(runs),
        _binding_caps(power, runs, every),
    )
    return _with_job(chosen, fabric, runs, question.request)


def _draws(
    fabric: Fabric, host_kw: float | None, watts: float
) -> tuple[tuple[float, HostSet], ...]:
    """Return the hosts that draw so many kW each with their GPUs held to `watts`. Raises: BadInput
    where they draw nothing then."""
    draws = []
    for gpu, of_kind in hosts_by_kind(fabric):
        gpus_kw = int(fabric.by_host.gpus[hostset.members(of_kind)[0]]) / 1000
        stated = fabric.power.kinds if fabric.power else ((host_kw, of_kind),)
        for kw, hosts in stated:
            if hosts & of_kind:
                whole_kw = kw or HOST_PER_GPUS * gpus_kw * gpu.watts
                if whole_kw < gpus_kw * gpu.watts:
                    least = f"{gpus_kw * gpu.watts:.4g} kW ({gpu.name})"
                    message = f"must be more than its GPUs draw, {least}, not {whole_kw:g}"
                    raise BadInput("--host-kw" if host_kw else "power_kw", message)
                left_kw = whole_kw - gpus_kw * max(0.0, gpu.watts - watts)
                draws.append((left_kw, hosts & of_kind))
    return tuple(draws)


def _grown(
    spec: Mapping[str, Any], host_kw: float, hall_kw: float, rack_kw: float | None
) -> Mapping[str, Any]:
    """Return a regular fabric with as many hosts in a rack as its power feeds, and outermost
    domains for all that the hall feeds; one that lists its domains stays as it is."""
    if "domains" in spec:
        return spec
    tiers = [dict(tier) for tier in spec["tiers"]]
    if rack_kw is not None:
        in_rack, has = int(rack_kw / host_kw + 1e-9), tiers[-1]["count"]
        if len(tiers) < 2:
            raise BadInput("--rack-kw", "the fabric has no tier above its hosts")
        if not in_rack:
            raise BadInput("--rack-kw", f"{rack_kw:g} kW feed no host, which draws {host_kw:.4g}")
        if tiers[-2].get("scale_up") and in_rack < has:
            needs = f"its {has} hosts, all of them over NVLink, draw {has * host_kw:.4g}"
            raise BadInput("--rack-kw", f"{rack_kw:g} kW feed no {tiers[-2]['name']}: {needs}")
        if not tiers[-2].get("scale_up"):
            tiers[-1]["count"] = in_rack
    wanted, inside = int(hall_kw / host_kw + 1e-9), prod(tier["count"] for tier in tiers[1:])
    tiers[0]["count"] = max(tiers[0]["count"], ceil(wanted / inside))
    return {**spec, "tiers": tiers}


def _power(
    fabric: Fabric,
    draws: tuple[tuple[float, HostSet], ...],
    hall_kw: float | None,
    rack_kw: float | None,
) -> Power:
    """Return the caps of the fabric file, or those of the hall and its racks, on these draws."""
    if hall_kw is None:
        assert fabric.power is not None
        return replace(fabric.power, kinds=draws)
    every = hostset.full(fabric.host_count)
    groups = masks(fabric, len(fabric.tiers) - 1) if fabric.tiers else (every,)
    racks = () if rack_kw is None else groups
    name = fabric.tiers[-1].name if fabric.tiers else "rack"
    caps = [PowerCap(name, hosts, rack_kw or 0.0) for hosts in racks]
    return Power(draws, (*caps, PowerCap("hall", every, hall_kw)), groups)


def _binding_caps(power: Power, runs: HostSet, every: HostSet) -> str:
    """Return the kinds of caps that leave no host more room, as `rack (4 of 16), hall`."""
    dark = every & ~runs
    if not dark:
        return ""
    least_kw = min(kw for kw, hosts in power.kinds if hosts & dark)
    kinds = [cap.name.split(" ")[0].split("=")[0] for cap in power.caps]
    full = Counter(
        kind
        for kind, cap in zip(kinds, power.caps, strict=True)
        if cap.hosts & dark and power.draw(cap.hosts & runs) + least_kw > cap.kw
    )
    many = Counter(kinds)
    shown = (
        f"{kind} ({n:,} of {many[kind]:,})" if many[kind] > 1 else kind for kind, n in full.items()
    )
    return ", ".join(shown)


def _with_job(chosen: HallChoice, fabric: Fabric, runs: HostSet, request: Request) -> HallChoice:
    """Return the choice with the step of the job on the hosts that run."""
    answer = place(fabric, runs, request)
    if not isinstance(answer, Placement):
        return replace(chosen, reason=answer.reason)
    step = step_time(fabric, request, answer.hosts)
    gangs = chosen.hosts / (len(answer.hosts) + len(answer.spares))
    model, batch = request.model, request.batch
    assert model is not None
    assert batch is not None
    tokens = batch.global_sequences * model.sequence
    ratio, gbps = _uplinks(fabric, request, answer)
    return replace(
        chosen,
        gangs=gangs,
        step_s=step.seconds,
        tokens_per_s=gangs * tokens / step.seconds,
        uplink_ratio=ratio,
        uplink_gbps=gbps,
    )


def _uplinks(
    fabric: Fabric, request: Request, answer: Placement
) -> tuple[float | None, float | None]:
    """Return the largest power of two by which uplinks of the outermost domains may carry less than
    their hosts send, and the Gbit/s of the widest then; None where the gang crosses none."""
    if not fabric.tiers or len({fabric.zone_of(host) for host in answer.hosts}) == 1:
        return None, None
    outermost = fabric.tiers[0]
    sent = [
        float(fabric.injection_bytes_per_s[outermost.domain_by_host == number].sum())
        for number in range(len(outermost.domains))
    ]
    widest = max(range(len(sent)), key=sent.__getitem__)
    stated = sent[widest] / float(outermost.uplink_bytes_per_s[widest])

    def seconds(ratio: float) -> float:
        narrowed = with_goodput(fabric, {outermost.name: stated / ratio})
        return step_time(narrowed, request, answer.hosts).seconds

    ratio, most_s = 1, seconds(1) * (1 + UPLINK_SLACK)
    while ratio < MOST_RATIO and seconds(2 * ratio) <= most_s:
        ratio *= 2
    return ratio, sent[widest] * 8 / 1e9 / ratio
