"""Switches and cables of a fabric: what stands between the NICs, layer by layer.

They are derived from tiers, hosts and oversubscription by the rules of docs/fabric.md, "Where the
switches come from", which has their names too.

Source: RoCE (2024): RTSW 16 + 16, CTSW 192 + 28, ATSW 28 x 128; DGX SuperPOD: counts of
2 to 64 scalable units.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from muster.structs import replace, struct
from placement import BadInput
from placement.fabric.tree import Fabric, Ints

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

RADIX = 64  # ports of a 400G InfiniBand switch (QM9700)
MESH = "roce"
LAYER_NAMES = {MESH: ("rtsw", "ctsw", "atsw"), "infiniband": ("leaf", "spine", "core")}
_ALMOST = 1e-9  # 16 / 2.0 must not round up to 9 ports


class Striping(StrEnum):
    """How uplinks divide over InfiniBand switches above them.

    EVEN: as many switches as give every pair equally many cables. MINIMAL: as few
    switches as have the ports, with one cable more between some pairs.
    """

    EVEN = "even"
    MINIMAL = "minimal"


@struct(frozen=True, slots=True, eq=False)
class Cables:
    """The cables from one layer to the next, in order of the lower switch.

    `lower`, `upper`: shape (cables,), switches of the two layers. `number`: which of the
    cables between the same two.
    """

    lower: Ints
    upper: Ints
    number: Ints

    def __len__(self) -> int:
        return len(self.lower)

    def part(self, rows: Mask) -> Cables:
        """Return the cables of these rows."""
        return Cables(self.lower[rows], self.upper[rows], self.number[rows])


NONE = Cables(*(np.empty(0, dtype=np.int64) for _ in range(3)))


@struct(frozen=True, slots=True, eq=False)
class Layer:
    """One layer of switches.

    Switch (d * rails + r) * per_rail + i is number i of rail r in domain d.
    `domain_by_host`: shape (hosts,). `nics`, and `oversubscription`, nominal, of what leaves
    the domain upwards: shape (domains,). `width`: switches above that one switch reaches.
    `uplinks`: none at the top.
    """

    name: str
    tier: str
    domains: tuple[str, ...]
    domain_by_host: Ints
    nics: Ints
    oversubscription: Floats
    rails: int
    per_rail: int = 1
    width: int = 0
    uplinks: Cables = NONE

    @property
    def per_domain(self) -> int:
        return self.rails * self.per_rail

    @property
    def switch_count(self) -> int:
        return len(self.domains) * self.per_domain

    @property
    def domain_by_switch(self) -> Ints:
        return np.arange(self.switch_count) // self.per_domain

    def switch_name(self, switch: int) -> str:
        """Return the name of a switch: the domain that it serves, its layer, its number there."""
        domain, number = divmod(switch, self.per_domain)
        stem = f"{self.domains[domain]}-" if self.domains[domain] else ""
        width = len(str(self.per_domain - 1))
        return f"{stem}{self.name}" + (f"{number:0{width}d}" if self.per_domain > 1 else "")


@struct(frozen=True, eq=False)
class Links:
    """The switches and cables of a fabric, leaves first. Units: bytes per second, one direction.

    `leaf_by_gpu`: shape (gpus,), GPU g is slot g mod G of host g // G. `rails`: 1 where all NICs of
    a host share a leaf. `live_leaf`: shape (leaves,), false where it failed. `is_whole`: nothing
    has failed.
    """

    fabric: Fabric
    layers: tuple[Layer, ...]
    rails: int
    link_bytes_per_s: float
    leaf_by_gpu: Ints
    live_leaf: Mask
    is_whole: bool = True

    @property
    def is_mesh(self) -> bool:
        """Whether every switch of a domain reaches all switches above; otherwise rails and planes
        are apart."""
        return self.fabric.kind == MESH

    @cached_property
    def domain_by_leaf(self) -> tuple[Ints, ...]:
        """Return, by layer, the domain around each leaf. Shape: (leaves,)."""
        leaves = self.layers[0]
        host = np.zeros(len(leaves.domains), dtype=np.int64)
        host[leaves.domain_by_host] = np.arange(self.fabric.host_count)
        domain = [layer.domain_by_host[host] for layer in self.layers]
        return tuple(np.repeat(by_domain, leaves.per_domain) for by_domain in domain)

    @cached_property
    def nics_by_leaf(self) -> Ints:
        return np.bincount(self.leaf_by_gpu, minlength=self.layers[0].switch_count)

    @cached_property
    def switch_by_name(self) -> dict[str, tuple[int, int]]:
        """(layer, switch) of each name."""
        return {
            layer.switch_name(switch): (level, switch)
            for level, layer in enumerate(self.layers)
            for switch in range(layer.switch_count)
        }

    def up_ports(self, level: int) -> Ints:
        """Return the number of upward cables of each switch of a layer."""
        layer = self.layers[level]
        return np.bincount(layer.uplinks.lower, minlength=layer.switch_count)

    def down_ports(self, level: int) -> Ints:
        """Return the number of cables from below of each switch of a layer, NICs at the leaves."""
        if level == 0:
            return np.where(self.live_leaf, self.nics_by_leaf, 0)
        upper = self.layers[level - 1].uplinks.upper
        return np.bincount(upper, minlength=self.layers[level].switch_count)

    def around(self, level: int, leaves: Ints) -> Mask:
        """Return whether each switch of this layer and each leaf share a domain. Shape: (switches,
        leaves)."""
        switch_domain = self.layers[level].domain_by_switch[:, None]
        return np.asarray(switch_domain == self.domain_by_leaf[level][leaves])

    def link_name(self, level: int, link: int, is_up: bool = True) -> str:
        """Return the name of cable `link` above layer `level`, or of NIC `link` where that is -1,
        in the direction of travel."""
        number = ""
        if level < 0:
            host, slot = divmod(link, self.fabric.gpus_per_host)
            lower, above = f"{self.fabric.hosts[host]}:nic{slot}", int(self.leaf_by_gpu[link])
        else:
            cables = self.layers[level].uplinks
            lower = self.layers[level].switch_name(int(cables.lower[link]))
            above = int(cables.upper[link])
            number = f"/{cables.number[link]}" if cables.number.any() else ""
        upper = self.layers[level + 1].switch_name(above)
        return (f"{lower}/{upper}" if is_up else f"{upper}/{lower}") + number


@lru_cache(maxsize=8)
def links(fabric: Fabric, striping: Striping = Striping.EVEN) -> Links:
    """Return the switches and cables of `fabric`; `striping` concerns InfiniBand only.

    Raises: BadInput when hosts differ in GPUs or network cards: no rule says then which switches
    they have. Cost: O(cables), 10 ms for 24,576 GPUs.
    """
    if fabric.is_mixed or np.ptp(fabric.by_host.nic_gbps):
        raise BadInput(
            "domains", "hosts differ in GPUs or network cards: switches are derived for equal ones"
        )
    if not fabric.is_joined:
        raise BadInput("joined", "is false: switches are derived for one network, not for several")
    gpus, is_mesh = fabric.gpus_per_host, fabric.kind == MESH
    rails = 1 if is_mesh else gpus
    # One layer a tier, and one more where outermost domains are to be joined.
    depth = len(fabric.tiers) + (not fabric.tiers or len(fabric.tiers[0].domains) > 1)
    layers = [_bare(fabric, level, rails) for level in range(depth)]
    for low, high in pairwise(range(depth)):
        is_top = high == depth - 1
        layers[low] = _wired(layers[low], layers[high], is_mesh, is_top, striping)
        planes = 1 if is_mesh else layers[low].per_rail
        layers[high] = replace(layers[high], per_rail=layers[low].width * planes)
    rail = np.arange(fabric.host_count * gpus) % gpus % rails
    leaf = np.repeat(layers[0].domain_by_host, gpus) * rails + rail
    live = np.ones(layers[0].switch_count, dtype=np.bool_)
    return Links(fabric, tuple(layers), rails, fabric.nic_gbps * 1e9 / 8, leaf, live)


def _bare(fabric: Fabric, level: int, rails: int) -> Layer:
    """Layer `level` with its domains and no cables yet."""
    known = LAYER_NAMES[fabric.kind]
    name = known[level] if level < len(known) else f"layer{level + 1}"
    if level == len(fabric.tiers):
        nowhere = np.zeros(fabric.host_count, dtype=np.int64)
        nics = np.array([fabric.host_count * fabric.gpus_per_host])
        return Layer(name, "fabric", ("",), nowhere, nics, np.ones(1), rails)
    tier = fabric.tiers[-1 - level]
    nics = np.bincount(tier.domain_by_host) * fabric.gpus_per_host
    built = fabric.as_built.tiers[-1 - level].uplink_bytes_per_s
    ratio = np.round(nics * fabric.nic_gbps * 1e9 / 8 / built, 9)
    return Layer(name, tier.name, tier.domains, tier.domain_by_host, nics, ratio, rails)


def _wired(low: Layer, high: Layer, is_mesh: bool, is_top: bool, striping: Striping) -> Layer:
    """`low` with its cables upwards.

    A lower switch reaches a set of `width` upper ones, those from set x width on: all of a
    mesh, else the plane of its own that its rail has. Cables are dealt out to a set in turn.
    """
    wanted = low.nics / low.oversubscription
    each = np.maximum(1, np.ceil(wanted / low.per_domain - _ALMOST)).astype(np.int64)
    count = np.repeat(each, low.per_domain)
    above = np.zeros(len(low.domains), dtype=np.int64)
    above[low.domain_by_host] = high.domain_by_host
    above = reached = np.repeat(above, low.per_domain)
    width = int(count.min())
    if not is_mesh:
        rail, plane = np.divmod(np.arange(low.switch_count) % low.per_domain, low.per_rail)
        reached = (above * low.rails + rail) * low.per_rail + plane
        down = RADIX if is_top else _down_ports(high, np.bincount(above, count))
        width = _width(int(np.bincount(reached, count).max()), count, down, striping)
    lower = np.repeat(np.arange(low.switch_count), count)
    number = _places(lower) // width
    upper = reached[lower] * width + _places(reached[lower]) % width
    return replace(low, width=width, uplinks=Cables(lower, upper, number))


def _places(keys: Ints) -> Ints:
    """For each entry: how many before it have the same key."""
    order, counts = np.argsort(keys, kind="stable"), np.bincount(keys)
    places = np.empty_like(order)
    places[order] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places


def _down_ports(high: Layer, below: Ints) -> int:
    """Ports that an InfiniBand switch below the top turns downwards.

    All ports divide as the cables `below` its layer do to those above it.
    """
    ratio = float((below * high.oversubscription / high.nics).min())
    return max(1, int(RADIX * ratio / (1 + ratio) + _ALMOST))


def _width(fullest: int, count: Ints, down: int, striping: Striping) -> int:
    """Switches that take the cables of the fullest set, `down` ports each. `count`: cables
    of each lower switch."""
    fewest, most = -(-fullest // down), int(count.min())
    if striping is Striping.EVEN:
        for width in range(fewest, most + 1):
            if not (count % width).any():
                return width
    return min(fewest, most)
