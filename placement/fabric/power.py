"""What hosts draw, and what racks, rows and halls may draw together.

`power_kw` of the fabric file is what a host of a gang draws, of all or by GPU; `power_caps_kw` are
caps of domains of a tier, or of hosts with the same value of a label, such as a row or a feed. A
host that no gang holds counts as off, and so do the GPUs that nobody has of a host that jobs share.
Which hosts may run together is then a matter of sets: `Power.within` leaves of the free hosts those
that may all be switched on beside the held ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from muster.structs import struct
from placement.errors import BadInput, positive
from placement.fabric import hostset
from placement.fabric.hostset import HostSet

if TYPE_CHECKING:
    from placement.fabric.gpus import Gpu
    from placement.fabric.labels import Labels

KW = "number of kW above 0"
NO_IDLE: Mapping[int, float] = {}


@struct(frozen=True, slots=True)
class PowerCap:
    """A limit on what some hosts draw together, in kW. `name`: such as `rack z0-r1` or `row=7`."""

    name: str
    hosts: HostSet
    kw: float


@struct(frozen=True, slots=True)
class Power:
    """The power that hosts draw, and the caps on it. `kinds`: the hosts that draw so many kW each;
    `caps`: those of the fewest hosts first; `groups`: the hosts of each innermost domain;
    `gpu_kw`: the hosts of whose kW one GPU is so much.

    `idle` of a method: how many GPUs of a host draw nothing, or which parts of them; of hosts that
    are not in it, none.
    """

    kinds: tuple[tuple[float, HostSet], ...]
    caps: tuple[PowerCap, ...]
    groups: tuple[HostSet, ...]
    gpu_kw: tuple[tuple[float, HostSet], ...] = ()

    def draw(self, hosts: HostSet, idle: Mapping[int, float] = NO_IDLE) -> float:
        """Return what these hosts draw together, in kW."""
        whole_kw = sum(kw * (hosts & of_kind).bit_count() for kw, of_kind in self.kinds)
        if not idle:
            return whole_kw
        spared = (host for host in hostset.members(hosts) if host in idle)
        return whole_kw - sum(
            min(_kw_of(self.kinds, host), idle[host] * _kw_of(self.gpu_kw, host)) for host in spared
        )

    def spared_part(self, host: int, watts: int) -> float:
        """Return the part of the power of a GPU of this host that it does not draw when it is held
        to so many watts; 0 watts are no limit."""
        kw = _kw_of(self.gpu_kw, host)
        return max(0.0, 1 - watts / 1000 / kw) if watts and kw else 0.0

    def exceeded_cap(
        self, hosts: HostSet, started: HostSet, idle: Mapping[int, float] = NO_IDLE
    ) -> PowerCap | None:
        """Return a cap that these hosts exceed together, of the caps that apply to the hosts
        `started`, or None."""
        touched = (cap for cap in self.caps if cap.hosts & started)
        return next((cap for cap in touched if self.draw(hosts & cap.hosts, idle) > cap.kw), None)

    def within(self, free: HostSet, held: HostSet, idle: Mapping[int, float] = NO_IDLE) -> HostSet:
        """Return free hosts that may all run beside the held ones: under each cap as many as it has
        power for, from the innermost domains with the most free hosts."""

        def kw_of(host: int) -> float:
            return self.draw(1 << host, {host: idle.get(host, 0)})

        for cap in self.caps:
            mine = free & cap.hosts
            left_kw = cap.kw - self.draw(held & cap.hosts, idle)
            if self.draw(mine) <= left_kw or self.draw(mine, idle) <= left_kw:
                continue
            free &= ~mine | hostset.choose_below(left_kw, mine, self.groups, kw_of)
        return free


def _kw_of(kinds: tuple[tuple[float, HostSet], ...], host: int) -> float:
    return next((kw for kw, of_kind in kinds if hostset.has(of_kind, host)), 0.0)


def read_power(
    spec: Mapping[str, Any],
    tiers: Mapping[str, Mapping[str, HostSet]],
    labels: Labels,
    kinds: Sequence[tuple[Gpu, HostSet]],
) -> Power:
    """Read `power_kw` and `power_caps_kw`. `tiers`: hosts by domain, outermost tier first; `kinds`:
    the hosts of each GPU.

    Raises: BadInput with the field's path.
    """
    caps = spec.get("power_caps_kw")
    if caps is None:
        raise BadInput("power_kw", "is of use with power_caps_kw alone, which is missing")
    if "power_kw" not in spec:
        raise BadInput("power_kw", "is required with power_caps_kw: what a host draws")
    draws = _draws(spec["power_kw"], kinds)
    if not isinstance(caps, Mapping) or not caps:
        known = ", ".join([*tiers, *labels])
        raise BadInput("power_caps_kw", f"must map tiers or labels to kW; there are {known}")
    found = []
    for key, value in caps.items():
        members, at = tiers.get(key) or labels.get(key), f"power_caps_kw.{key}"
        if members is None:
            known = ", ".join([*tiers, *labels])
            raise BadInput(at, f"no tier or label {key!r}; there are {known}")
        if not isinstance(value, Mapping):
            value = dict.fromkeys(members, value)
        for name, kw in value.items():
            if name not in members:
                raise BadInput(f"{at}.{name}", f"no {key} {name!r}")
            where = f"{at}.{name}" if isinstance(caps[key], Mapping) else at
            shown = f"{key} {name}" if key in tiers else f"{key}={name}"
            found.append(PowerCap(shown, members[name], positive(kw, where, KW)))
    found.sort(key=lambda cap: cap.hosts.bit_count())
    innermost = tuple(tiers[list(tiers)[-1]].values()) if tiers else ()
    whole = tuple(hosts for _, hosts in draws)
    gpu_kw = tuple((gpu.watts / 1000, hosts) for gpu, hosts in kinds)
    return Power(draws, tuple(found), innermost or whole, gpu_kw)


def _draws(value: Any, kinds: Sequence[tuple[Gpu, HostSet]]) -> tuple[tuple[float, HostSet], ...]:
    if not isinstance(value, Mapping):
        kw, every = positive(value, "power_kw", KW), 0
        for _, hosts in kinds:
            every |= hosts
        return ((kw, every),)
    names = [gpu.name for gpu, _ in kinds]
    for name in value:
        if name not in names:
            raise BadInput(f"power_kw.{name}", f"no host has it; there are {', '.join(names)}")
    for name in names:
        if name not in value:
            raise BadInput("power_kw", f"says nothing of hosts with {name}")
    return tuple(
        (positive(value[gpu.name], f"power_kw.{gpu.name}", KW), hosts) for gpu, hosts in kinds
    )
