"""Switches derived from a fabric file, their names, and what max-flow proves of them."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from network.failures import links_without
from network.maxflow import Proof, proofs
from network.wiring import Layer, Links, Striping, links
from placement.errors import BadInput
from placement.fabric.reader import from_spec, preset
from placement.fabric.tree import Fabric
from tests.build import fabric, flat, regular, two_tiers

ROCE = links(preset("roce-24k"))
INFINIBAND = links(preset("ib-24k"))


# SU: leaf, spine, core; DGX SuperPOD B200 reference architecture, "Larger component counts".
def superpod(su: int, **more: int) -> Fabric:
    """Up to 8 scalable units in two layers; pods of 4 above that."""
    units = [("pod", su // 4, more), ("su", 4)] if su > 8 else [("su", su, more)]
    return regular(*units, ("host", 32), kind="infiniband")


def graph(links: Links) -> nx.Graph[str]:
    """Hosts and switches by name; `bytes_per_s` (one direction) on edges.

    Cost: O(cables); 0.2 s for 24,576 GPUs.
    """
    named = [names(layer) for layer in links.layers]
    built: nx.Graph[str] = nx.Graph(name=links.fabric.name)
    built.add_nodes_from(links.fabric.hosts, layer="host")
    cables = [
        (links.fabric.hosts[gpu // links.fabric.gpus_per_host], named[0][leaf])
        for gpu, leaf in enumerate(links.leaf_by_gpu)
        if links.live_leaf[leaf]
    ]
    for low, layer in enumerate(links.layers):
        built.add_nodes_from(named[low], layer=layer.name)
        pairs = zip(layer.uplinks.lower, layer.uplinks.upper, strict=True)
        cables += [(named[low][a], named[low + 1][b]) for a, b in pairs]
    for (a, b), count in Counter(cables).items():
        built.add_edge(a, b, bytes_per_s=count * links.link_bytes_per_s)
    return built


def counts(built: Links) -> tuple[int, ...]:
    return tuple(layer.switch_count for layer in built.layers)


# --- counts --------------------------------------------------------------------


def test_switches_reach_those_above_once_and_rails_never_meet() -> None:
    ports = ROCE.layers[1].uplinks
    assert len(np.unique(ports.lower * 28 + ports.upper)) == len(ports.lower) == 128 * 28
    # Rails never meet.
    whole = graph(links(superpod(2)))
    whole.remove_nodes_from([n for n, layer in whole.nodes(data="layer") if layer == "host"])
    assert nx.number_connected_components(whole) == 8
    # InfiniBand with one card a host is a fat tree too.
    spec = {**superpod(64).spec, "gpus_per_host": 1}
    assert counts(links(from_spec(spec))) == (64, 64, 32)  # an eighth of 512, 512, 256
    # One domain needs no layer above.
    assert counts(links(flat(4))) == (1,)
    assert counts(links(fabric(zones=1, racks=3))) == (3, 16)


def test_irregular_domains_get_uplinks_for_their_own_nics() -> None:
    built = links(two_tiers([4, 2], [6], gpus=2))
    _, zone, _ = built.layers
    assert list(built.up_ports(0)) == [8, 4, 12]  # 1:1
    assert zone.per_domain == 4  # what the smallest rack reaches
    assert list(built.down_ports(1)) == [3, 3, 3, 3, 3, 3, 3, 3]


# --- names and failures --------------------------------------------------------


def names(layer: Layer) -> list[str]:
    return [layer.switch_name(switch) for switch in range(layer.switch_count)]


def test_switches_are_named_after_what_they_serve_and_links_in_the_direction_of_travel() -> None:
    assert [names(layer)[-1] for layer in ROCE.layers] == ["z7-r191-rtsw", "z7-ctsw15", "atsw27"]
    assert [names(layer)[9] for layer in INFINIBAND.layers] == [
        "p00-s1-leaf1",
        "p00-spine09",
        "core009",
    ]
    # Links read in the direction of travel.
    assert ROCE.link_name(0, 17) == "z0-r001-rtsw/z0-ctsw01"
    assert ROCE.link_name(1, 0, is_up=False) == "atsw00/z0-ctsw00"
    assert INFINIBAND.link_name(1, 16) == "p00-spine00/core000/1"


@pytest.mark.parametrize(
    ("failed", "cables"),
    [
        ("z0-r000-rtsw/z0-ctsw03", (1, 0)),
        ("z0-ctsw03/z0-r000-rtsw", (1, 0)),
        ("z0-r[000-003]-rtsw/z0-ctsw[03,05]", (8, 0)),
        ("z0-ctsw03", (192, 28)),
        ("atsw07", (0, 128)),
        ("z0-r000-rtsw", (16, 0)),
    ],
)
def test_what_fails_takes_its_cables(failed: str, cables: tuple[int, int]) -> None:
    left = links_without(ROCE, [failed])
    lost = [
        len(a.uplinks.lower) - len(b.uplinks.lower)
        for a, b in zip(ROCE.layers[:-1], left.layers[:-1], strict=True)
    ]
    assert tuple(lost) == cables
    assert not left.is_whole
    assert left.live_leaf.sum() == 1_536 - (failed == "z0-r000-rtsw")


def test_one_of_two_parallel_cables_fails_and_nothing_failed_is_the_same_fabric() -> None:
    left = links_without(INFINIBAND, ["p00-spine00/core000/1"])
    names_left = {left.link_name(1, cable) for cable in range(40)}
    assert "p00-spine00/core000/0" in names_left
    assert "p00-spine00/core000/1" not in names_left
    # Nothing failed is the same fabric.
    assert links_without(ROCE, []) is ROCE


@pytest.mark.parametrize(
    ("failed", "message"),
    [
        ("z9-ctsw03", "no switch 'z9-ctsw03'; they are named like z0-r000-rtsw or atsw00"),
        ("z0-ctsw03/z1-r000-rtsw", "no cable"),
        ("z0-r000-rtsw/atsw00", "no cable"),
        ("z0-r000-rtsw/z0-ctsw03/1", "no cable"),
        ("atsw00/atsw01", "no cable"),
        ("z0-r[000-rtsw", "unbalanced"),
    ],
)
def test_an_unknown_name_is_refused(failed: str, message: str) -> None:
    with pytest.raises(BadInput, match="failed: ") as refused:
        links_without(ROCE, [failed])
    assert message in refused.value.message


# --- max flow ------------------------------------------------------------------


def proof(built: Links, what: str, tier: str) -> Proof:
    return next(p for p in proofs(built) if (p.what, p.tier) == (what, tier))


def test_uneven_cables_are_whole_too_if_not_evenly_used() -> None:
    """384 cores have the ports for all, and some of them one cable more to some spines."""
    found = proof(links(preset("ib-24k"), Striping.MINIMAL), "inside", "fabric")
    assert found.oversubscription == 1


def test_failed_uplinks_are_missing_from_the_proof() -> None:
    out = proof(links_without(ROCE, ["atsw[00-13]"]), "out of", "zone")
    assert out.flow == pytest.approx(11.2e12)


SMALL = [
    fabric(zones=2, racks=3, hosts=2, gpus=2, oversubscription=2),
    fabric(zones=3, racks=2, hosts=1, gpus=4, oversubscription=3),
    two_tiers([2, 2], [3, 1], gpus=2),
    flat(4, 3, 4),
    superpod(2),
    superpod(4, oversubscription=2),
    regular(("pod", 3, {"oversubscription": 2}), ("su", 2), ("host", 4), gpus=2, kind="infiniband"),
]


@pytest.mark.parametrize("small", SMALL, ids=lambda f: f"{f.kind}-{f.host_count}")
@pytest.mark.parametrize("broken", [False, True])
def test_bandwidth_is_the_maximum_flow_of_networkx(small: Fabric, broken: bool) -> None:
    built = links(small)
    if broken:
        built = links_without(built, [built.link_name(0, 1)])
    for found in proofs(built):
        if found.what == "inside" and found.tier != "fabric":
            continue  # the other hosts' switches would help
        assert found.flow == pytest.approx(_max_flow(built, found))


def _max_flow(built: Links, found: Proof) -> float:
    """Between the same hosts, over every single switch."""
    whole = graph(built).to_directed()
    nx.set_edge_attributes(
        whole, {(a, b): rate for a, b, rate in whole.edges(data="bytes_per_s")}, "capacity"
    )
    first = _sources(built, found)
    for host, name in enumerate(built.fabric.hosts):
        whole.add_edge("from", name) if host in first else whole.add_edge(name, "to")
    return float(nx.maximum_flow_value(whole, "from", "to"))


def _sources(built: Links, found: Proof) -> set[int]:
    if found.what == "out of":
        tier = next(t for t in built.fabric.tiers if t.name == found.tier)
        return set(np.flatnonzero(tier.domain_by_host == tier.domains.index(found.domain)))
    outer = built.fabric.tiers[0]
    return set(np.flatnonzero(outer.domain_by_host < len(outer.domains) // 2))
