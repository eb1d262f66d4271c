"""The four fabrics of the placement benchmark, and flat ones of any number of zones."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric

FABRICS = ("roce-24k", "ib-24k", "roce-98k", "lingjun")
LINGJUN = Path("lingjun2023") / "topo.csv"

# Racks by size of the Lingjun tree (2023), and hosts below each of its three PSWs.
RACKS_BY_SIZE = {8: 68, 7: 23, 6: 15, 5: 7, 4: 2, 3: 1, 2: 3}
HOSTS_BY_PSW = (362, 306, 179)


@cache
def bench_fabric(name: str, traces: str = "") -> Fabric:
    """Return a fabric of the benchmark. `traces`: folder of the real traces; without it Lingjun is
    a generated equivalent."""
    if name == "roce-98k":
        return from_spec(_roce_98k())
    if name == "lingjun":
        path = Path(traces) / LINGJUN
        racks = _read_racks(path) if traces and path.is_file() else _generate_racks()
        return from_spec(_lingjun(racks))
    return preset(name)


@cache
def flat_zones(zones: int, racks: int = 192, hosts: int = 2) -> Fabric:
    """Return a fabric of any number of zones as in RoCE-24K, to measure time against zones."""
    tiers = [
        {"name": "zone", "count": zones, "oversubscription": 7},
        {"name": "rack", "count": racks},
        {"name": "host", "count": hosts},
    ]
    return from_spec({"name": f"roce-{zones}z", "gpus_per_host": 8, "tiers": tiers})


def _roce_98k() -> dict[str, Any]:
    return {
        "name": "roce-98k",
        "gpus_per_host": 8,
        "tiers": [
            {"name": "building", "count": 4, "oversubscription": 2.8},
            {"name": "zone", "count": 8, "oversubscription": 2.8},
            {"name": "rack", "count": 192},
            {"name": "host", "count": 2},
        ],
    }


Racks = dict[str, dict[str, int]]  # hosts by rack by PSW


def _read_racks(path: Path) -> Racks:
    """ASW names repeat below different PSWs, so a rack is (PSW, ASW)."""
    racks: Racks = defaultdict(lambda: defaultdict(int))
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            racks[row["PSW"]][row["ASW"]] += 1
    return {psw: dict(racks[psw]) for psw in sorted(racks)}


def _generate_racks() -> Racks:
    """The real histogram of rack sizes, dealt out at random below the three PSWs."""
    sizes = [size for size, count in RACKS_BY_SIZE.items() for _ in range(count)]
    random.Random("lingjun").shuffle(sizes)
    racks: Racks = {f"P{p}": {} for p in range(len(HOSTS_BY_PSW))}
    room = list(HOSTS_BY_PSW)
    for size in sizes:
        p = max(range(len(room)), key=lambda i: room[i])
        rack = f"S{len(racks[f'P{p}'])}"
        racks[f"P{p}"][rack] = size
        room[p] -= size
    return racks


def _lingjun(racks: Racks) -> dict[str, Any]:
    domains = [
        {
            "name": psw,
            "domains": [{"name": f"{psw}-{asw}", "hosts": n} for asw, n in sorted(below.items())],
        }
        for psw, below in racks.items()
    ]
    return {
        "name": "lingjun",
        "gpus_per_host": 8,
        "tiers": [{"name": "psw"}, {"name": "rack"}, {"name": "host"}],
        "domains": domains,
    }
