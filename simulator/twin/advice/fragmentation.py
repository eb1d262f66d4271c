"""What it costs today that free hosts do not lie together: shadow prices of slots.

A slot of a kind of gang is room for it in one outermost domain. Where there is none, while all
free hosts together would do, a gang that comes lies across domains and is slower by its step there,
for as long as it runs; one that is bound to a domain waits, and its hosts stand idle. Gangs come as
they did in the log, so that an hour of it has a price: the shadow price of the slot that is
missing. That of a free host in a domain is what an hour costs less with one more there.

    cost an hour = sum over kinds without a slot: arrivals an hour x GPU-hours that one loses
                   + GPUs of gangs that wait for such a slot now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from muster.structs import struct
from placement.fabric import hostset
from placement.fabric.constraints import labelled
from placement.fabric.tree import Fabric
from placement.workload.request import Request
from scheduler.core import State
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import JobState
from simulator.timing import TimeModel
from simulator.timing.network import NetworkModel
from simulator.twin.fork import ClusterFork
from simulator.twin.workload import WEEK_H, Workload

HOUR_S = 3600


@struct(frozen=True, slots=True)
class GangKind:
    """Gangs of one request. `per_hour`: that come; `run_h`: how long one runs; `waiting`: that wait
    now and are bound to one domain. `free`: hosts for it in each outermost domain."""

    request: Request
    hosts: int
    gpus: int
    per_hour: float
    run_h: float
    waiting: int
    free: tuple[int, ...]
    stretch: float

    @property
    def is_bound(self) -> bool:
        where = self.request.where
        return bool(where.same) or where.max_zones == 1

    @property
    def slots(self) -> int:
        """Gangs that start within domains."""
        return sum(free // self.hosts for free in self.free)

    @property
    def slots_in_one_piece(self) -> int:
        return sum(self.free) // self.hosts

    @property
    def gpu_h_without(self) -> float:
        """GPU-hours an hour that are lost as long as there is no slot."""
        gpu_h = self.gpus * self.run_h
        if self.is_bound:
            return self.gpus * self.waiting
        return self.per_hour * gpu_h * (1 - 1 / self.stretch)

    def cost(self, more: Sequence[int] = ()) -> float:
        """The cost of an hour, with so many hosts more in each domain."""
        free = [a + b for a, b in zip(self.free, more, strict=True)] if more else self.free
        if sum(free) < self.hosts or max(free, default=0) >= self.hosts:
            return 0.0
        return self.gpu_h_without


def gang_kinds(fork: ClusterFork, workload: Workload, times: TimeModel) -> list[GangKind]:
    """Kinds of gangs of several hosts that come or wait. Cost: a step time for each kind."""
    state, fabric = fork.state, fork.state.built_fabric
    network = NetworkModel(fabric, times.network.comm_share)
    per_hour = sum(workload.rates) / WEEK_H / max(1, len(workload.arrived))
    come: dict[Request, list[int]] = {}
    for at in workload.arrived:
        sample = workload.samples[at]
        come.setdefault(sample.spec.request, []).append(sample.run_ns)
    waiting: dict[Request, int] = {}
    for job in state.jobs.values():
        if job.state is JobState.QUEUED and job.attempt == 0:
            waiting[job.spec.request] = waiting.get(job.spec.request, 0) + 1
    kinds = []
    for request in dict.fromkeys((*come, *waiting)):
        hosts = request.hosts_needed(fabric.gpus_per_host)
        if hosts < 2:
            continue
        runs = come.get(request, ())
        free = _free(state, fabric, request)
        kinds.append(
            GangKind(
                request,
                hosts,
                request.parallelism.world_size,
                per_hour * len(runs),
                sum(runs) / max(1, len(runs)) / SECOND_NS / HOUR_S,
                waiting.get(request, 0),
                tuple(mask.bit_count() for mask in free),
                _stretch(network, fabric, request, hosts, free),
            )
        )
    return sorted(kinds, key=lambda kind: kind.hosts)


def _free(state: State, fabric: Fabric, request: Request) -> list[int]:
    """Free hosts that do for it, by outermost domain."""
    masks = [0] * fabric.zone_count
    usable = labelled(fabric, request.where, state.free)
    for host in hostset.members(usable):
        masks[fabric.zone_of(host)] |= 1 << host
    return masks


def _stretch(
    network: NetworkModel, fabric: Fabric, request: Request, hosts: int, free: Sequence[int]
) -> float:
    """How much longer a step is for a gang that lies across the domains with most free hosts; 1
    where it need not."""
    fullest = sorted(free, key=int.bit_count, reverse=True)
    chosen = [host for mask in fullest for host in hostset.members(mask)][:hosts]
    if len(chosen) < hosts or (fullest and fullest[0].bit_count() >= hosts):
        return 1.0
    return max(1.0, network.load(request, fabric.names(chosen)).stretch)


def fragmentation(
    fork: ClusterFork,
    workload: Workload,
    times: TimeModel,
    gpu_hour: float | None,
    currency: str | None,
) -> dict[str, Any]:
    """The answer for programs. `gpu_hour`: its price; None: costs are GPU-hours."""
    state, fabric = fork.state, fork.state.built_fabric
    price = 1.0 if gpu_hour is None else gpu_hour
    kinds = gang_kinds(fork, workload, times)
    domains = fabric.tiers[0].domains if fabric.tiers else ("all",)
    now = sum(kind.cost() for kind in kinds)
    free = [mask.bit_count() for mask in _all_free(state, fabric)]
    one = [[int(at == each) for each in range(len(domains))] for at in range(len(domains))]
    points = _points(kinds, domains, state, fabric)
    once = state.tenants.preemption.costs
    lost_h = (once.restart_s + once.checkpoint_s / 2) / HOUR_S
    for point in points:
        point["cost_per_hour"] *= price
        saved = now * price - point["cost_per_hour"]
        point["moves_cost"] = point["hosts"] * fabric.gpus_per_host * lost_h * price
        point["pays_back_h"] = point["moves_cost"] / saved if saved > 0 else None
    _mark_front(points)
    best = min(
        (point for point in points if point["pays_back_h"] is not None),
        key=lambda point: point["pays_back_h"],
        default=None,
    )
    return {
        "question": "what fragmentation costs now",
        "currency": currency,
        "source": fork.source,
        "version": state.version,
        "fabric": {"name": fabric.name, "hosts": fabric.host_count, "free_hosts": sum(free)},
        "cost_per_hour": now * price,
        "cost_per_day": 24 * now * price,
        "kinds": _by_size(kinds, price),
        "domains": [
            {
                "name": name,
                "free": free[at],
                "price_of_a_host": (now - sum(kind.cost(one[at]) for kind in kinds)) * price,
            }
            for at, name in enumerate(domains)
        ],
        "stranded_gpus": _stranded_gpus(state, fabric),
        "points": points,
        "advice": None if best is None else {key: best[key] for key in ("domain", "hosts")},
        "fitted": workload.sentences(),
        "times": times.source,
    }


def _all_free(state: State, fabric: Fabric) -> list[int]:
    masks = [0] * max(1, fabric.zone_count)
    for host in hostset.members(state.free):
        masks[fabric.zone_of(host)] |= 1 << host
    return masks


def _by_size(kinds: Sequence[GangKind], price: float) -> list[dict[str, Any]]:
    """Kinds of one size together: slots of the one with fewest, the price of all."""
    rows = []
    for hosts in sorted({kind.hosts for kind in kinds}):
        alike = [kind for kind in kinds if kind.hosts == hosts]
        least = min(alike, key=lambda kind: kind.slots)
        rows.append(
            {
                "hosts": hosts,
                "gpus": least.gpus,
                "per_day": 24 * sum(kind.per_hour for kind in alike),
                "slots": least.slots,
                "slots_in_one_piece": least.slots_in_one_piece,
                "stretch": max(kind.stretch for kind in alike),
                "price_of_a_slot": sum(kind.cost() for kind in alike) * price,
            }
        )
    return rows


def _points(
    kinds: Sequence[GangKind], domains: Sequence[str], state: State, fabric: Fabric
) -> list[dict[str, Any]]:
    """Hosts freed in a domain by moving gangs to free hosts elsewhere: none, and what each size
    lacks; with the cost of an hour then."""
    free = [mask.bit_count() for mask in _all_free(state, fabric)]
    own = [int(np.count_nonzero(fabric.tiers[0].domain_by_host == at)) for at in range(len(free))]
    now = sum(kind.cost() for kind in kinds)
    points: list[dict[str, Any]] = [{"domain": None, "hosts": 0, "cost_per_hour": now}]
    for at, name in enumerate(domains):
        elsewhere = sum(free) - free[at]
        for hosts in sorted({kind.hosts - free[at] for kind in kinds}):
            if not 0 < hosts <= min(elsewhere, own[at] - free[at]):
                continue
            more = _moved(free, at, hosts)
            cost = sum(kind.cost(more) for kind in kinds)
            points.append({"domain": name, "hosts": hosts, "cost_per_hour": cost})
    return points


def _moved(free: Sequence[int], at: int, hosts: int) -> list[int]:
    """What each domain has more once gangs on so many hosts of one lie on free hosts elsewhere,
    those of the domains with fewest first."""
    more, left = [0] * len(free), hosts
    more[at] = hosts
    for each in sorted(range(len(free)), key=lambda i: free[i]):
        if each != at:
            taken = min(left, free[each])
            more[each] -= taken
            left -= taken
    return more


def _mark_front(points: Sequence[dict[str, Any]]) -> None:
    for point in points:
        mine = point["hosts"], point["cost_per_hour"]
        others = ((other["hosts"], other["cost_per_hour"]) for other in points)
        point["is_on_front"] = not any(
            other != mine and other[0] <= mine[0] and other[1] <= mine[1] for other in others
        )


def _stranded_gpus(state: State, fabric: Fabric) -> int:
    """GPUs of hosts that jobs share which no job has: gangs cannot take them."""
    return sum(
        int(fabric.by_host.gpus[host]) - len(state.gpus_taken(host)) for host in state.shared
    )
