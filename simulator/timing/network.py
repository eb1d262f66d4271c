"""What a placement and its neighbours make of a step.

A gang alone: its step on these hosts over its step on a network without bottlenecks, both
by placement.objective.step_time. A job without a model has no compute to compare with: `comm_share`
of its step is taken to be communication that the network cards of its hosts bound, and
that grows as the slowest uplink takes longer than the cards.

Gangs that share an uplink (a fluid rule, in the spirit of Crux, SIGCOMM 2024): while a
gang talks, the others are taken to send what they send on average, for phases of different
jobs fall as they may. With u = own rate while talking + mean rates of the others, over the
bandwidth, what the gang waits for takes max(1, u) times as long; and when the mean rates
alone ask for more than the uplink has, no step is shorter than that makes it. Only
oversubscribed domains count: others carry whatever their hosts can send.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from muster.structs import replace, struct
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric, Ints, Tier
from placement.objective.axis_loads import BYTES_PER_S, NIC, SCALE_UP, axis_loads
from placement.objective.cut import egress_by_axis
from placement.objective.step_time import step_time
from placement.workload.request import Request

Link = tuple[str, int]  # tier and domain
ROUNDING = 1 + 1e-9
MOST_KNOWN = 1024


@struct(frozen=True, slots=True)
class UplinkLoad:
    """The load of a gang on an uplink, as a share of its bandwidth: while it talks (`peak`) and on
    average over a step (`mean`)."""

    link: Link
    peak: float
    mean: float


@struct(frozen=True, slots=True)
class GangLoad:
    """How the network slows a gang. `stretch`: its step alone, over its step without bottlenecks.
    `exposed`: the part of its step, without bottlenecks = 1, that waits for shared uplinks."""

    stretch: float = 1.0
    exposed: float = 0.0
    sent: tuple[UplinkLoad, ...] = ()

    def stretch_with(self, load_by_link: dict[Link, float]) -> float:
        """Return the stretch when other gangs load these uplinks by so much on average."""
        crowded = max((s.peak + load_by_link.get(s.link, 0.0) for s in self.sent), default=0.0)
        demand = max((s.mean + load_by_link.get(s.link, 0.0) for s in self.sent), default=0.0)
        waiting = self.exposed * (max(1.0, crowded) - 1)
        return max(self.stretch + waiting, self.stretch * demand)


ALONE = GangLoad()


class NetworkModel:
    """Loads of gangs on a fabric. Cost: 30 ms for 2,048 hosts, nothing when a gang of the
    same shape lay in the same domains before."""

    def __init__(self, fabric: Fabric, comm_share: float) -> None:
        self._fabric = fabric
        self._comm_share = comm_share
        self._tiers = [tier for tier in fabric.tiers if _is_narrow(fabric, tier)]
        self._known: dict[tuple[Request, bytes], GangLoad] = {}

    def load(self, request: Request, hosts: Sequence[str]) -> GangLoad:
        """Return the load of a gang with block i on `hosts[i]`."""
        if not self._tiers or len(hosts) == 1:
            return ALONE
        chosen = np.asarray(self._fabric.indices(hosts), dtype=np.int64)
        inside = [tier.domain_by_host[chosen] for tier in self._tiers]
        if all((domains == domains[0]).all() for domains in inside):
            return ALONE
        # Hosts of one domain are alike, so that the domains of the blocks say it all.
        key = request, np.stack(inside).tobytes()
        if key not in self._known:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._measured(request, chosen)
        return self._known[key]

    def _measured(self, request: Request, chosen: Ints) -> GangLoad:
        hosts = chosen.tolist()
        is_modelled = request.has_step_time
        alone = _with_model if is_modelled else self._without_model
        step, step_s, exposed_s, talking_s = alone(self._fabric, request, hosts)
        if step_s <= 0 or talking_s <= 0:
            return GangLoad(step)
        sent = tuple(
            UplinkLoad(link, min(1.0, busy_s / talking_s), busy_s / step_s)
            for link, busy_s in self._busy_s(request, chosen)
        )
        return GangLoad(step, exposed_s * step / step_s, sent)

    def _busy_s(self, request: Request, chosen: Ints) -> list[tuple[Link, float]]:
        """Seconds that each oversubscribed uplink is kept busy per step."""
        busy = []
        for tier in self._tiers:
            domains = tier.domain_by_host[chosen]
            count = len(tier.domains)
            by_axis = egress_by_axis(request, self._fabric.gpus_per_host, domains, count)
            total = sum((leaves for _, leaves in by_axis), np.zeros(count))
            seconds = total / tier.uplink_bytes_per_s
            busy += [((tier.name, int(d)), float(seconds[d])) for d in np.flatnonzero(total)]
        return busy

    def _without_model(
        self, fabric: Fabric, request: Request, hosts: Sequence[int]
    ) -> tuple[float, float, float, float]:
        """As `_with_model`, with the cards' time as `comm_share` of a step."""
        total = _seconds_by_layer(fabric, request, hosts)
        total.pop(SCALE_UP, None)
        cards_s, share = total.get(NIC, 0.0), self._comm_share
        if not cards_s or not share:
            return 1.0, 0.0, 0.0, 0.0
        slowest_s = max(total.values())
        step_s = cards_s / share + slowest_s - cards_s
        return step_s * share / cards_s, step_s, slowest_s, slowest_s


def _seconds_by_layer(fabric: Fabric, request: Request, hosts: Sequence[int]) -> dict[str, float]:
    loads = axis_loads(fabric, request, hosts)
    names = {load.layer for axis in loads for load in axis.loads}
    return {name: sum(axis.on(name) for axis in loads) for name in names}


def _with_model(
    fabric: Fabric, request: Request, hosts: Sequence[int]
) -> tuple[float, float, float, float]:
    """Stretch, seconds of a step, what of it waits for oversubscribed uplinks, and the
    time in which it sends over them."""
    narrow = {f"{tier.name} uplink" for tier in fabric.tiers if _is_narrow(fabric, tier)}
    step = step_time(fabric, request, hosts)
    out = [axis for axis in step.axes if any(load.layer in narrow for load in axis.load.loads)]
    exposed_s = sum(axis.exposed_s for axis in out)
    talking_s = max((axis.seconds for axis in out), default=0.0)
    stretch = step.seconds / _reference_s(fabric, request)
    return max(1.0, stretch), step.seconds, exposed_s, talking_s


@lru_cache(maxsize=256)
def _reference_s(fabric: Fabric, request: Request) -> float:
    """The step of the same gang on one switch that all its cards fit."""
    count = request.hosts_needed(fabric.gpus_per_host)
    tiers = [{"name": "zone", "count": 1}, {"name": "host", "count": count}]
    switch = from_spec({"name": "switch", "gpus_per_host": fabric.gpus_per_host, "tiers": tiers})
    switch = replace(switch, scale_up_gbps=fabric.scale_up_gbps, nic_gbps=fabric.nic_gbps)
    return step_time(switch, request, range(count)).seconds


def _is_narrow(fabric: Fabric, tier: Tier) -> bool:
    """Whether the hosts of some domain can send more than its uplink carries."""
    hosts = np.bincount(tier.domain_by_host, minlength=len(tier.domains))
    injected = hosts * (fabric.gpus_per_host * fabric.nic_gbps * BYTES_PER_S)
    return len(tier.domains) > 1 and bool((injected > tier.uplink_bytes_per_s * ROUNDING).any())
