"""A fabric as a network of this machine: namespaces, bridges, veth pairs and their rates.

A host is a namespace; racks, zones and the top are bridges in the keeper's own namespace; a link is
a veth pair that is shaped at both ends. The port of a link at its upper end names it: what comes in
there goes up, what goes out there goes down.

    host nic ---- n7 d3 u3 ---- w3 d0        bridge d3 of a rack, d0 the top

Rates count payload: a packet of 1,448 bytes of data is 1,514 bytes on the wire.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import IPv4Address

from muster.structs import struct
from placement import BadInput
from placement.fabric.tree import Fabric

MOST_HOSTS = 256
LEAST_BITS_PER_S = 1e6  # below, one packet takes longer than 12 ms and shaping is coarse
CORE_BITS_PER_S = 200e6  # of payload that a core carries over several bridges and two shapers
FAST_BITS_PER_S = 1e9  # of servers, clients and databases, which no fabric file has
WIRE = 1514 / 1448
SMALL = 256  # bytes: packets below pass first, so that ACKs do not wait behind data
QUEUE_BYTES = 4 << 20
NETWORK, SCALE_UP_NETWORK = IPv4Address("10.88.0.0"), IPv4Address("10.89.0.0")
CLIENT = "client"
DATABASE, STANDBY = "database", "standby"  # of PostgreSQL, with more than one server


@struct(frozen=True, slots=True)
class LabLink:
    """A veth pair. `name`: the host, domain or program below it. `node`: the namespace of its lower
    end, "" for a bridge of the keeper. `port`: its upper end, in the keeper's namespace."""

    name: str
    node: str
    lower: str
    port: str
    bridge: str
    bits_per_s: float


@struct(frozen=True, slots=True)
class LabNode:
    """A namespace with a name that users know and an address."""

    name: str
    namespace: str
    address: str


@struct(frozen=True, slots=True)
class LabPlan:
    """The plan of a lab's network. Nodes are in the order of the fabric's hosts, then servers, the
    client, the databases.

    `inside`: by domain, its hosts. `scale`: of rates, against the fabric file.
    """

    nodes: tuple[LabNode, ...]
    links: tuple[LabLink, ...]
    bridges: tuple[str, ...]
    inside: dict[str, tuple[str, ...]]
    scale: float

    def node(self, name: str) -> LabNode:
        """Return the node of this name. Raises: BadInput."""
        found = next((node for node in self.nodes if node.name == name), None)
        if found is None:
            raise BadInput("host", f"no host {name!r} in this lab; {self._like()}")
        return found

    def link(self, name: str) -> LabLink:
        """Return the link of this name. Raises: BadInput."""
        found = next((link for link in self.links if link.name == name), None)
        if found is None:
            raise BadInput("link", f"no host or domain {name!r} in this lab; {self._like()}")
        return found

    @property
    def hosts(self) -> tuple[LabNode, ...]:
        return tuple(node for node in self.nodes if node.namespace[0] == "h")

    @property
    def servers(self) -> tuple[LabNode, ...]:
        return tuple(n for n in self.nodes if n.namespace[0] == "p" and n.name.startswith("server"))

    def addresses(self, name: str) -> tuple[str, ...]:
        """Return the addresses of a node, or of all hosts of a domain. Raises: BadInput."""
        return tuple(self.node(host).address for host in self.inside.get(name, (name,)))

    def _like(self) -> str:
        names = [*list(self.inside)[:2], self.nodes[0].name, self.nodes[-1].name]
        return f"names are such as {', '.join(names)}"


def fitting_scale(fabric: Fabric) -> float:
    """Return the share of its rates at which this machine carries all network cards at once, as one
    over a whole number."""
    carried = CORE_BITS_PER_S * (os.cpu_count() or 1)
    return 1 / max(1, -(-float(fabric.injection_bytes_per_s.sum()) * 8 // carried))


def plan_lab(fabric: Fabric, scale: float, servers: int) -> LabPlan:
    """Plan the network of a lab for a fabric. `scale`: of all rates; `servers`: 0 to 3, more than
    one with a database.

    Raises: BadInput on a fabric that is too large, or a scale at which links are too slow.
    """
    if fabric.host_count > MOST_HOSTS:
        raise BadInput(
            "fabric",
            f"{fabric.name} has {fabric.host_count:,} hosts; a lab has at most {MOST_HOSTS}:"
            " write a fabric file with fewer domains and the same ratios",
        )
    if not 0 < scale <= 1:
        raise BadInput("scale", f"must be above 0 and at most 1, is {scale:g}")
    depth = len(fabric.tiers)
    nodes = [LabNode(name, f"h{i}", str(NETWORK + 256 + i)) for i, name in enumerate(fabric.hosts)]
    programs = [f"server{i + 1}" for i in range(servers)] + [CLIENT]
    programs += [DATABASE, STANDBY] if servers > 1 else []
    nodes += [LabNode(name, f"p{i}", str(NETWORK + 1 + i)) for i, name in enumerate(programs)]
    if taken := set(fabric.hosts) & set(programs):
        raise BadInput("fabric", f"has a host called {min(taken)}, a name that the lab itself uses")
    links: list[LabLink] = []
    bridges, number = ["d0"], {(-1, 0): 0}
    inside: dict[str, tuple[str, ...]] = {}
    for level, tier in enumerate(fabric.tiers):
        for domain, name in enumerate(tier.domains):
            members = [int(h) for h in (tier.domain_by_host == domain).nonzero()[0]]
            above = (level - 1, int(fabric.tiers[level - 1].domain_by_host[members[0]]))
            above = above if level else (-1, 0)
            number[level, domain] = at = len(bridges)
            bridges.append(f"d{at}")
            rate = float(tier.uplink_bytes_per_s[domain]) * 8 * scale
            links.append(LabLink(name, "", f"u{at}", f"w{at}", f"d{number[above]}", rate))
            inside.setdefault(name, tuple(fabric.names(members)))
    for host, node in enumerate(nodes[: fabric.host_count]):
        last = (depth - 1, int(fabric.tiers[-1].domain_by_host[host]) if depth else 0)
        rate = float(fabric.injection_bytes_per_s[host]) * 8 * scale
        links.append(
            LabLink(node.name, node.namespace, "nic", f"n{host}", f"d{number[last]}", rate)
        )
    slowest = min(links, key=lambda link: link.bits_per_s)
    if slowest.bits_per_s < LEAST_BITS_PER_S:
        works = scale * LEAST_BITS_PER_S / slowest.bits_per_s
        raise BadInput(
            "scale",
            f"the link of {slowest.name} would carry {slowest.bits_per_s / 1e6:.3g} Mbit/s, and"
            f" below 1 Mbit/s packets are too coarse: --scale 1/{int(1 / works) or 1} works",
        )
    for node in nodes[fabric.host_count :]:
        port = f"n{node.namespace}"
        links.append(LabLink(node.name, node.namespace, "nic", port, "d0", FAST_BITS_PER_S))
    if fabric.has_scale_up_tier:
        links += _scale_up_links(fabric, scale, nodes, bridges)
    return LabPlan(tuple(nodes), tuple(links), tuple(bridges), inside, scale)


def _scale_up_links(
    fabric: Fabric, scale: float, nodes: list[LabNode], bridges: list[str]
) -> Iterator[LabLink]:
    """NVLink of racks: a second card of each host, on a bridge for each rack."""
    inside = fabric.by_host.gpus * fabric.by_host.scale_up_gbps * 1e9 * scale
    made: dict[int, str] = {}
    for host, first in enumerate(fabric.scale_up_by_host.tolist()):
        if first not in made:
            made[first] = f"s{first}"
            bridges.append(made[first])
        node, rate = nodes[host], float(inside[host])
        yield LabLink(
            f"{node.name}/nvlink", node.namespace, "nvlink", f"v{host}", made[first], rate
        )


def scale_up_address(address: str) -> str:
    """Return the address of a host on the NVLink of its rack."""
    return str(SCALE_UP_NETWORK + (int(IPv4Address(address)) - int(NETWORK)))


@struct(frozen=True, slots=True)
class Commands:
    """Lines for `ip -batch` and `tc -batch`, to be run in one namespace ("": the keeper's)."""

    namespace: str
    ip: tuple[str, ...]
    tc: tuple[str, ...]


def commands_of(plan: LabPlan) -> list[Commands]:
    """Return all commands that make the network, those of the keeper's namespace first."""
    ip = [f"link add {bridge} type bridge mcast_snooping 0" for bridge in plan.bridges]
    ip += [f"link set {bridge} up" for bridge in plan.bridges]
    ip += [f"netns add {node.namespace}" for node in plan.nodes]
    tc: list[str] = []
    inside: dict[str, Commands] = {}
    for node in plan.nodes:
        lines = ("link set lo up", f"addr add {node.address}/16 dev nic")
        inside[node.namespace] = Commands(node.namespace, lines, ())
    for link in plan.links:
        where = f" netns {link.node}" if link.node else ""
        ip.append(f"link add {link.port} type veth peer name {link.lower}{where}")
        ip.append(f"link set {link.port} master {link.bridge} gso_max_segs 1 up")
        tc += shape(link.port, link.bits_per_s)
        if not link.node:
            below = f"d{link.lower[1:]}"
            ip.append(f"link set {link.lower} master {below} gso_max_segs 1 up")
            tc += shape(link.lower, link.bits_per_s)
            continue
        own = inside[link.node]
        up = [f"link set {link.lower} gso_max_segs 1 up"]
        if link.lower == "nvlink":
            address = scale_up_address(plan.node(link.name.removesuffix("/nvlink")).address)
            up.append(f"addr add {address}/16 dev nvlink")
        inside[link.node] = Commands(
            link.node, (*own.ip, *up), (*own.tc, *shape(link.lower, link.bits_per_s))
        )
    return [Commands("", tuple(ip), tuple(tc)), *inside.values()]


def shape(device: str, bits_per_s: float) -> list[str]:
    """Return lines that let a device send at this rate, small packets first."""
    lines = [f"qdisc replace dev {device} root handle 1: htb default 20"]
    lines += classes(device, bits_per_s, "add")
    lines.append(f"qdisc add dev {device} parent 1:10 bfifo limit {QUEUE_BYTES}")
    lines.append(f"qdisc add dev {device} parent 1:20 bfifo limit {QUEUE_BYTES}")
    lines.append(
        f"filter add dev {device} parent 1: protocol ip prio 1 u32"
        f" match u16 0x0000 0x{0xFFFF - (SMALL - 1):04x} at 2 flowid 1:10"
    )
    lines.append(
        f"filter add dev {device} parent 1: protocol arp prio 2 u32 match u32 0 0 flowid 1:10"
    )
    return lines


def classes(device: str, bits_per_s: float, verb: str = "change") -> list[str]:
    """Return lines that give a device its rate."""
    rate = round(bits_per_s * WIRE)
    burst = max(3_000, round(rate / 8 / 1_000))  # a millisecond: finer than the kernel's timer
    whole = f"rate {rate}bit ceil {rate}bit burst {burst} cburst {burst}"
    part = f"rate {rate // 2}bit ceil {rate}bit burst {burst} cburst {burst} quantum 1514"
    return [
        f"class {verb} dev {device} parent 1: classid 1:1 htb {whole}",
        f"class {verb} dev {device} parent 1:1 classid 1:10 htb {part} prio 0",
        f"class {verb} dev {device} parent 1:1 classid 1:20 htb {part} prio 1",
    ]
