"""A fabric: a tree of tiers above the hosts, and the bandwidth of each uplink.

Hosts are numbered in tree order, and that number is the host everywhere inside
muster; names appear at the edges only. A tier keeps one array: the domain of
each host. Nothing else of the network enters the cut (docs/engine.md, "The problem").

Hosts need not be alike: GPUs, network cards and links inside are kept by host. A gang lies
on hosts with one number of GPUs, and `view_for_gpus` is the fabric as such a gang sees it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from muster.structs import replace, struct
from placement.fabric import hostset
from placement.fabric.calibration import NIC, SCALE_UP
from placement.fabric.gpus import ASSUMED, ASSUMED_SCALE_UP_GBPS, Gpu
from placement.fabric.hostset import HostSet, Mask
from placement.fabric.labels import Labels
from placement.fabric.power import Power
from placement.fabric.storage import Storage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints: TypeAlias = npt.NDArray[np.int64]
    Floats: TypeAlias = npt.NDArray[np.float64]
else:  # numpy is loaded where a fabric is built, not where its presets are named
    Ints: TypeAlias = Any
    Floats: TypeAlias = Any

Uplink: TypeAlias = tuple[int, int]  # tier and domain below it
GpuGroups: TypeAlias = tuple[tuple[int, ...], ...]
SCALE_UP_GBPS = ASSUMED_SCALE_UP_GBPS


@struct(frozen=True, slots=True, eq=False)
class Tier:
    """One level of the tree above the hosts.

    `domain_by_host`: shape (hosts,), index into `domains`.
    `uplink_bytes_per_s`: shape (domains,), one direction; injection / oversubscription, or what
    is left of it (links.py).
    `is_scale_up`: shape (domains,): whether GPUs of a domain talk over NVLink, whichever
    hosts of it they are in. None where no domain of the tier is like that.
    `latency_s`: seconds that a message from one domain to another takes beside its bytes, on top of
    what the tiers inside add.
    """

    name: str
    domains: tuple[str, ...]
    domain_by_host: Ints
    uplink_bytes_per_s: Floats
    is_scale_up: Mask | None = None
    latency_s: float = 0.0

    def count(self, hosts: Ints | Mask | slice) -> Ints:
        """Count how many of these hosts are in each domain. Shape: (domains,)."""
        import numpy as np

        return np.bincount(self.domain_by_host[hosts], minlength=len(self.domains))

    def nth(self, hosts: Ints) -> Ints:
        """Return for each of these hosts, in ascending order, how many hosts of its domain come
        before it."""
        return nth_of_each(self.domain_by_host[hosts])


def nth_of_each(values: Ints) -> Ints:
    """Return for each value how many equal values come before it. Values ascend."""
    import numpy as np

    return np.arange(len(values)) - np.searchsorted(values, values)


@lru_cache(maxsize=64)
def sizes_of(tier: Tier) -> Ints:
    """Return the number of hosts of each domain, not to be written to."""
    sizes = tier.count(slice(None))
    sizes.flags.writeable = False
    return sizes


@struct(frozen=True, slots=True, eq=False)
class Hardware:
    """The hardware of each host: GPUs, and what one GPU sends in one direction, out of the host
    over its network card and inside over NVLink. Each of shape (hosts,). `gpu_groups`: by host, its
    GPUs by NUMA node, neighbours on a network card side by side; none: all of them in order.
    `kinds`: of GPU; `kind_by_host`: shape (hosts,), index into `kinds`; None: all are of the first.
    `is_kind_assumed`: whether the file names no GPU for some hosts."""

    gpus: Ints
    nic_gbps: Floats
    scale_up_gbps: Floats
    gpu_groups: tuple[GpuGroups, ...] = ()
    kinds: tuple[Gpu, ...] = ()
    kind_by_host: Ints | None = None
    is_kind_assumed: bool = False

    def kinds_of(self, hosts: Sequence[int] | Ints) -> tuple[Gpu, ...]:
        """Return the kinds of GPU that these hosts have."""
        if self.kind_by_host is None:
            return self.kinds
        import numpy as np

        present = np.unique(self.kind_by_host[np.asarray(hosts, dtype=np.int64)])
        return tuple(self.kinds[kind] for kind in present.tolist())

    def groups(self, host: int) -> GpuGroups:
        """Return the GPUs of a host by NUMA node."""
        stated = self.gpu_groups[host] if self.gpu_groups else ()
        return stated or (tuple(range(int(self.gpus[host]))),)


@struct(frozen=True, eq=False)
class Fabric:
    """Tiers outermost first, hosts in tree order. `spec` rebuilds the value.

    `gpus_per_host`: of the hosts that a gang takes unless it asks for others; `nic_gbps`,
    `scale_up_gbps`: of one GPU of these, one direction: out of its host, and inside it.
    `by_host`: the same of every host. `labels`: the hosts of each value of each label.
    `links`: the share that is left of uplinks, by tier and domain, and `barred`: uplinks that
    no gang may cross, of the outermost domains where nothing joins them; `base`: the fabric as it
    was built, where that is another (links.py). `latency_s`: seconds that a message between hosts
    takes beside its bytes, wherever they are. `power`: caps of what hosts draw together.
    `stores`: what its file says of the storage that gangs share, the usual store first.
    """

    name: str
    kind: str
    gpus_per_host: int
    nic_gbps: float
    tiers: tuple[Tier, ...]
    hosts: tuple[str, ...]
    spec: Mapping[str, Any]
    by_host: Hardware
    scale_up_gbps: float = SCALE_UP_GBPS
    labels: Labels = field(default_factory=dict)
    links: tuple[tuple[Uplink, float], ...] = ()
    barred: tuple[Uplink, ...] = ()
    base: Fabric | None = None
    latency_s: float = 0.0
    power: Power | None = None
    stores: tuple[Storage, ...] = ()

    @property
    def as_built(self) -> Fabric:
        """This fabric with all links up."""
        return self.base or self

    @property
    def is_joined(self) -> bool:
        """Whether links join the outermost domains."""
        return bool(self.spec.get("joined", True))

    @property
    def routing(self) -> str:
        """Routing of its switches, in the words of network.routing; "" for flows that are spread
        perfectly."""
        return str(self.spec.get("routing", ""))

    @property
    def host_count(self) -> int:
        return len(self.hosts)

    @property
    def host_tier(self) -> str:
        """The name that the file gives to hosts."""
        tiers = self.spec.get("tiers")
        return str(tiers[-1]["name"]) if tiers else "host"

    @cached_property
    def gpu_count(self) -> int:
        return int(self.by_host.gpus.sum())

    @cached_property
    def is_mixed(self) -> bool:
        """Whether any host has another number of GPUs than `gpus_per_host`."""
        return bool((self.by_host.gpus != self.gpus_per_host).any())

    @cached_property
    def is_undivided(self) -> bool:
        """Whether all hosts are in one domain, so that no gang crosses an uplink."""
        return all(len(tier.domains) == 1 for tier in self.tiers)

    @cached_property
    def has_like_cards(self) -> bool:
        """Whether the network cards of all hosts have the speed `nic_gbps`."""
        return bool((self.by_host.nic_gbps == self.nic_gbps).all())

    @cached_property
    def injection_bytes_per_s(self) -> Floats:
        """Bytes per second that each host sends over its network cards. Shape: (hosts,)."""
        return self.by_host.gpus * self.by_host.nic_gbps * 1e9 / 8

    @cached_property
    def has_latency(self) -> bool:
        """Whether messages take time beside that of their bytes."""
        return bool(self.latency_s) or any(tier.latency_s for tier in self.tiers)

    def latency_between(self, near: Ints, far: Ints) -> Floats:
        """Return the seconds that messages between these hosts take beside their bytes; 0 over
        NVLink. Shape: of both."""
        import numpy as np

        joined = self.scale_up_by_host
        total = np.where(joined[near] != joined[far], self.latency_s, 0.0)
        for tier in self.tiers:
            domain = tier.domain_by_host
            total += np.where(domain[near] != domain[far], tier.latency_s, 0.0)
        return total

    @cached_property
    def has_scale_up_tier(self) -> bool:
        return bool(self.tiers) and self.tiers[-1].is_scale_up is not None

    @cached_property
    def scale_up_by_host(self) -> Ints:
        """A number for each host, equal for hosts that reach each other over NVLink: those of a
        scale-up rack, else each host by itself. Shape: (hosts,)."""
        import numpy as np

        alone = np.arange(self.host_count)
        if not self.has_scale_up_tier:
            return alone
        rack = self.tiers[-1]
        domain, is_joined = rack.domain_by_host, np.asarray(rack.is_scale_up)
        first = np.searchsorted(domain, np.arange(len(rack.domains)))
        return np.where(is_joined[domain], first[domain], alone)

    @cached_property
    def index_by_name(self) -> dict[str, int]:
        if self.base is not None:
            return self.base.index_by_name
        return {name: i for i, name in enumerate(self.hosts)}

    @cached_property
    def digest(self) -> str:
        """Text that identifies this fabric as built; with equal links, fabrics of one digest place
        equally."""
        if self.base is not None:
            return self.base.digest
        spec = dict(self.spec)
        if not spec.get("gpus") and spec.get("gpu") == ASSUMED:
            del spec["gpu"]  # as a fabric that names none, whose logs are older than the key
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
        if self.gpus_per_host != self.spec.get("gpus_per_host", self.gpus_per_host):
            text += f" seen with {self.gpus_per_host}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Fabric) or self.digest != other.digest:
            return False
        return (self.links, self.barred) == (other.links, other.barred)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.digest, self.links, self.barred))

    def indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of the hosts of these names. Raises: KeyError on a name that this
        fabric does not have."""
        by_name = self.index_by_name
        return tuple([by_name[name] for name in names])

    def names(self, hosts: Sequence[int]) -> tuple[str, ...]:
        return tuple(map(self.hosts.__getitem__, hosts))

    def domain(self, host: int, tier: int = 0) -> str:
        """Return the domain that holds `host` on `tier`; the host itself below the last tier."""
        if tier >= len(self.tiers):
            return self.hosts[host]
        level = self.tiers[tier]
        return level.domains[int(level.domain_by_host[host])]

    @property
    def zone_count(self) -> int:
        """Number of outermost domains; 1 for a fabric without tiers."""
        return len(self.tiers[0].domains) if self.tiers else 1

    def zone_of(self, host: int) -> int:
        """Return the number of the outermost domain of `host`."""
        return int(self.tiers[0].domain_by_host[host]) if self.tiers else 0


P = ParamSpec("P")
Result = TypeVar("Result")


def of_built(
    function: Callable[Concatenate[Fabric, P], Result],
) -> Callable[Concatenate[Fabric, P], Result]:
    """Decorate a function so that it gets the fabric as built, for results that do not depend on
    links."""

    @wraps(function)
    def wrapper(fabric: Fabric, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return function(fabric.as_built, *args, **kwargs)

    return wrapper


@of_built
@lru_cache(maxsize=64)
def above(fabric: Fabric, depth: int) -> tuple[Ints, ...]:
    """Return, for each tier down to `depth`, which of its domains each domain of tier `depth` lies
    in; not to be written to."""
    import numpy as np

    inner = fabric.tiers[depth]
    domains = []
    for tier in fabric.tiers[: depth + 1]:
        domain = np.zeros(len(inner.domains), dtype=np.int64)
        domain[inner.domain_by_host] = tier.domain_by_host
        domain.flags.writeable = False
        domains.append(domain)
    return tuple(domains)


@of_built
@lru_cache(maxsize=64)
def masks(fabric: Fabric, tier: int) -> tuple[HostSet, ...]:
    """Return the hosts of each domain of a tier."""
    by_domain = [0] * len(fabric.tiers[tier].domains)
    for host, domain in enumerate(fabric.tiers[tier].domain_by_host.tolist()):
        by_domain[domain] |= 1 << host
    return tuple(by_domain)


def hosts_by_kind(fabric: Fabric) -> list[tuple[Gpu, HostSet]]:
    """Return the hosts of each kind of GPU."""
    by_host = fabric.by_host
    if (kind := by_host.kind_by_host) is None:
        return [(by_host.kinds[0], hostset.full(fabric.host_count))]
    return [(gpu, hostset.from_mask(kind == n)) for n, gpu in enumerate(by_host.kinds)]


def with_rates(fabric: Fabric, rates: Mapping[str, Mapping[str, float]]) -> Fabric:
    """Return the fabric whose GPUs of these names compute at so many times their usual rate."""
    kinds = tuple(
        replace(gpu, rates=tuple(rates[gpu.name].items())) if gpu.name in rates else gpu
        for gpu in fabric.by_host.kinds
    )
    return replace(fabric, by_host=replace(fabric.by_host, kinds=kinds))


def with_goodput(fabric: Fabric, shares: Mapping[str, float]) -> Fabric:
    """Return the fabric whose links of these layers carry so much of what they carried before."""
    inside, cards = shares.get(SCALE_UP, 1.0), shares.get(NIC, 1.0)
    hardware = replace(
        fabric.by_host,
        nic_gbps=fabric.by_host.nic_gbps * cards,
        scale_up_gbps=fabric.by_host.scale_up_gbps * inside,
    )
    tiers = tuple(
        replace(tier, uplink_bytes_per_s=tier.uplink_bytes_per_s * shares.get(tier.name, 1.0))
        for tier in fabric.tiers
    )
    return replace(
        fabric,
        by_host=hardware,
        tiers=tiers,
        nic_gbps=fabric.nic_gbps * cards,
        scale_up_gbps=fabric.scale_up_gbps * inside,
    )


@lru_cache(maxsize=64)
def view_for_gpus(fabric: Fabric, gpus: int) -> Fabric:
    """Return the fabric as a gang on hosts of so many GPUs sees it, at the speeds of the slowest
    such host where one number stands for all of them."""
    if gpus == fabric.gpus_per_host:
        return fabric
    own, mine = fabric.by_host, fabric.by_host.gpus == gpus
    nic, scale_up = float(own.nic_gbps[mine].min()), float(own.scale_up_gbps[mine].min())
    base = fabric.base and view_for_gpus(fabric.base, gpus)
    return replace(fabric, gpus_per_host=gpus, nic_gbps=nic, scale_up_gbps=scale_up, base=base)


@lru_cache(maxsize=64)
def innermost(fabric: Fabric) -> Fabric:
    """Return the fabric with the innermost tier as its only one."""
    last = len(fabric.tiers) - 1
    return replace(
        fabric,
        tiers=fabric.tiers[-1:],
        spec={"innermost_of": fabric.digest},
        links=tuple(((0, n), share) for (depth, n), share in fabric.links if depth == last),
        barred=tuple((0, n) for depth, n in fabric.barred if depth == last),
        base=fabric.base and innermost(fabric.base),
    )
