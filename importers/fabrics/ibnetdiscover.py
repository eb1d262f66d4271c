"""The output of ibnetdiscover: switches, adapters and the cables between them.

Source: ibnetdiscover(8), "Topology file format". The tree is derived in
`cabling`. Adapters that carry no host's name, and the aggregation nodes inside
switches, are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from importers.fabrics.cabling import Cable, network
from muster.structs import replace
from scheduler.files.errors import refusal
from scheduler.files.fabrics.network import Choices, TopologyNetwork
from scheduler.files.yaml12 import MOST_PROGRAM_BYTES, read_text

_NODE = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*(?:#\s*"([^"]*)".*)?')
_PORT = re.compile(
    r'\[(\d+)\](?:\[ext \d+\])?(?:\([0-9a-fA-F]+\))?\s*"([^"]+)"\[(\d+)\](?:\[ext \d+\])?'
    r'(?:\([0-9a-fA-F]+\))?\s*(?:#\s*(?:"([^"]*)")?(.*))?'
)
_OTHER = re.compile(
    r"#|(vendid|devid|sysimgguid|switchguid|caguid|rtguid)=|DR path|Non-Chassis|Chassis|$"
)
_RATE = re.compile(r"\b(\d+)x(SDR|DDR|QDR|FDR10|FDR|EDR|HDR|NDR|XDR)\b")
LANE_GBPS = {
    "SDR": 2.5, "DDR": 5, "QDR": 10, "FDR10": 10, "FDR": 14,
    "EDR": 25, "HDR": 50, "NDR": 100, "XDR": 200,
}  # fmt: skip
_SWITCH_NAME = re.compile(r"[^;:]*;([^;:]+):[^;:]*")  # MF0;LEAF-01:MQM9700/U1
_VENDOR = re.compile(r"Mellanox|ConnectX|InfiniHost|Aggregation Node", re.IGNORECASE)


Port = tuple[str, str]  # GUID of the node, number of the port


@dataclass(slots=True)
class _Found:
    """Descriptions by GUID, Gbit/s by the two ends of a cable."""

    names: dict[str, str] = field(default_factory=dict)
    gbps: dict[tuple[Port, Port], float] = field(default_factory=dict)


def read(path: str, choices: Choices) -> TopologyNetwork:
    """Read the network of an ibnetdiscover file. Raises: InputError. Cost: 0.5 s for 3,072 hosts of
    8 adapters."""
    parsed = _Found()
    node = ""
    for number, row in enumerate(read_text(path, MOST_PROGRAM_BYTES).splitlines(), start=1):
        text = row.strip()
        if port := _PORT.match(text):
            if not node:
                raise refusal("a port comes before any Switch or Ca", path, number)
            _port(parsed, node, port)
        elif start := _NODE.fullmatch(text):
            node = start[2]
            parsed.names[node] = start[3] or parsed.names.get(node, "")
        elif not _OTHER.match(text):
            raise refusal(f"{text[:40]!r} is not a line of ibnetdiscover", path, number)
    return _network(parsed, choices, path)


def _port(parsed: _Found, node: str, port: re.Match[str]) -> None:
    """One line below a node; both ends list a cable."""
    here, peer = (node, port[1]), (port[2], port[3])
    parsed.names.setdefault(port[2], port[4] or "")
    rate = _RATE.search(port[5] or "")
    gbps = int(rate[1]) * LANE_GBPS[rate[2]] if rate else 0.0
    cable = (here, peer) if here < peer else (peer, here)
    parsed.gbps[cable] = max(gbps, parsed.gbps.get(cable, 0.0))


def _network(parsed: _Found, choices: Choices, path: str) -> TopologyNetwork:
    switches = {
        guid: _switch_name(text) or guid
        for guid, text in parsed.names.items()
        if guid.startswith("S-")
    }
    host_of = {
        guid: _host_name(text) for guid, text in parsed.names.items() if guid.startswith("H-")
    }
    keep = re.compile(choices.hosts or ".*")
    hosts = {f"host {name}": name for name in host_of.values() if name and keep.fullmatch(name)}
    key_of = {guid: f"host {name}" for guid, name in host_of.items()}
    key_of.update((guid, guid) for guid in switches)
    cables = [
        Cable(key_of[a], key_of[b], gbps)
        for ((a, _), (b, _)), gbps in parsed.gbps.items()
        if all(key_of.get(end, "") in switches or key_of.get(end, "") in hosts for end in (a, b))
    ]
    made = network(switches, hosts, cables)
    if not made.hosts:
        raise refusal("has no host with a name on a switch", path)
    return replace(made, notes=(*_omissions(parsed, host_of), *made.notes))


def _omissions(parsed: _Found, host_of: Mapping[str, str]) -> list[str]:
    texts = Counter(parsed.names[guid] or guid for guid, name in host_of.items() if not name)
    if not texts:
        return []
    shown = ", ".join(f"{count:,} x {text!r}" for text, count in texts.most_common(3))
    return [f"left out: adapters that name no host ({shown})"]


def _switch_name(text: str) -> str:
    """`MF0;LEAF-01:MQM9700/U1` is LEAF-01; what a vendor writes on every switch is no name."""
    inside = _SWITCH_NAME.fullmatch(text)
    name = inside[1] if inside else text
    return "" if _VENDOR.search(name) else name.strip()


def _host_name(text: str) -> str:
    """`node001 mlx5_0` and `node001 HCA-1` are adapters of node001."""
    words = text.split()
    if not words or len(words) > 2 or _VENDOR.search(text):
        return ""
    return words[0]
