"""Which layer of the network each axis of a placement runs on, and how busy that is.

Layers from the inside: the links inside a host (scale-up, NVLink), the hosts' network
cards, then the uplinks of the fabric's tiers, innermost first. Meta calls choosing them
"assigning parallelism to topology layers" (RoCE, SIGCOMM 2024): a placement has chosen,
and this table says what it chose. All flows are spread perfectly over the links of a
layer; what hashing makes of them is in placement.network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.fabric.tree import Fabric, Ints
from placement.objective.cut import Floats, egress_by_axis
from placement.workload.request import Request
from placement.workload.traffic import AxisTraffic

SCALE_UP = "scale-up"
NIC = "nic"
HOST = "host"
EVERYWHERE = "fabric"
BYTES_PER_S = 1e9 / 8  # of one Gbit/s


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of link. `inside`: what a domain of it is called; `names`: the domains.

    `bytes_per_s`: out of each domain, one direction; shape (domains,).
    """

    name: str
    inside: str
    names: tuple[str, ...]
    bytes_per_s: Floats


@dataclass(frozen=True, slots=True)
class Load:
    """What one axis sends over one layer. `seconds`: of its busiest domain, alone on it."""

    layer: str
    domain: str
    bytes_per_step: int
    busiest_bytes_per_step: int
    seconds: float


@dataclass(frozen=True)
class AxisLoad:
    """One axis: the domain that holds each of its groups, and its loads from the inside.

    `runs_on`: the smallest kind of domain that no group leaves, "fabric" when some group
    crosses the outermost tier. `bytes_per_gpu`: sent per step by a rank, on average.
    """

    traffic: AxisTraffic
    runs_on: str
    bytes_per_gpu: float
    loads: tuple[Load, ...]

    @cached_property
    def slowest(self) -> Load | None:
        """The load that takes longest, the innermost of equals; None when silent."""
        return max(self.loads, key=lambda load: load.seconds, default=None)

    @property
    def seconds(self) -> float:
        return self.slowest.seconds if self.slowest else 0.0

    def on(self, layer: str) -> float:
        """Seconds on one layer."""
        return sum(load.seconds for load in self.loads if load.layer == layer)


def layers_of(fabric: Fabric) -> tuple[Layer, ...]:
    """The layers of a fabric, innermost first."""
    gpus = fabric.gpus_per_host
    per_host = np.full(fabric.host_count, gpus * BYTES_PER_S)
    tiers = [
        Layer(f"{tier.name} uplink", tier.name, tier.domains, tier.uplink_bytes_per_s)
        for tier in reversed(fabric.tiers)
    ]
    return (
        Layer(SCALE_UP, HOST, fabric.hosts, per_host * fabric.scale_up_gbps),
        Layer(NIC, HOST, fabric.hosts, per_host * fabric.nic_gbps),
        *tiers,
    )


def axis_loads(fabric: Fabric, request: Request, hosts: Sequence[int]) -> tuple[AxisLoad, ...]:
    """The axes wider than 1, in rank order, on the hosts of each block.

    Cost: 20 ms for 16,384 ranks on 3,072 hosts.
    """
    chosen = np.asarray(hosts, dtype=np.int64)
    layers = layers_of(fabric)
    sent = _sent_by_host(fabric, request, chosen)
    domains = [chosen, *(tier.domain_by_host[chosen] for tier in reversed(fabric.tiers))]
    leaving = [
        [out for _, out in egress_by_axis(request, fabric.gpus_per_host, domain, len(layer.names))]
        for layer, domain in zip(layers[1:], domains, strict=True)
    ]
    ranks = request.parallelism.world_size
    return tuple(
        _axis_load(traffic, ranks, layers, all_bytes, [per_layer[i] for per_layer in leaving])
        for i, (traffic, all_bytes) in enumerate(sent)
    )


def _sent_by_host(
    fabric: Fabric, request: Request, chosen: Ints
) -> list[tuple[AxisTraffic, Floats]]:
    """All bytes that each host's ranks send, by axis. Shape: (hosts of the fabric,)."""
    ranks = request.parallelism.world_size
    host_by_rank = np.repeat(chosen, fabric.gpus_per_host)

    def of_hosts(sent: Floats) -> Floats:
        return np.asarray(np.bincount(host_by_rank, sent, fabric.host_count), dtype=np.float64)

    per_rank = egress_by_axis(request, 1, np.arange(ranks), ranks)
    return [(traffic, of_hosts(sent)) for traffic, sent in per_rank]


def _axis_load(
    traffic: AxisTraffic, ranks: int, layers: Sequence[Layer], sent: Floats, leaving: list[Floats]
) -> AxisLoad:
    """`leaving`: what leaves each domain of the layers beyond the first."""
    used = [np.rint(sent - leaving[0]), *leaving]
    loads = [_load(layer, out) for layer, out in zip(layers, used, strict=True) if out.any()]
    # The first kind of domain that nothing leaves holds every group.
    homes = [layer.inside for layer, out in zip(layers[1:], leaving, strict=True) if not out.any()]
    runs_on = homes[0] if homes else EVERYWHERE
    return AxisLoad(traffic, runs_on, float(sent.sum()) / ranks, tuple(loads))


def _load(layer: Layer, out: Floats) -> Load:
    seconds = out / layer.bytes_per_s
    worst = int(np.argmax(seconds))
    return Load(
        layer.name,
        layer.names[worst],
        round(float(out.sum())),
        round(float(out[worst])),
        float(seconds[worst]),
    )
