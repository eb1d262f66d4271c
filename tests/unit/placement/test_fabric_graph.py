"""A fabric as a graph of networkx."""

from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest

from placement import to_networkx
from placement.fabric.reader import from_spec, preset
from tests.build import two_tiers


def test_every_host_hangs_below_its_rack_and_zone_with_the_rate_of_its_uplink() -> None:
    fabric = preset("roce-24k")
    graph = to_networkx(fabric)
    assert nx.is_tree(graph)
    assert graph.number_of_nodes() == 1 + 8 + 8 * 192 + fabric.host_count
    path = nx.shortest_path(graph, "z3-r010-h1", graph.graph["root"])
    assert path == ["z3-r010-h1", "z3-r010", "z3", "roce-24k"]
    assert [graph.nodes[node]["tier"] for node in path] == ["host", "rack", "zone", "fabric"]
    nic = 8 * 400e9 / 8
    rates = [graph.edges[edge]["bytes_per_s"] for edge in pairwise(path)]
    assert rates == pytest.approx([nic, 2 * nic, 384 * nic / 7])


def test_a_flow_between_zones_is_what_their_uplinks_carry() -> None:
    fabric = preset("roce-24k")
    graph = to_networkx(fabric)
    flow = nx.maximum_flow_value(graph, "z0", "z1", capacity="bytes_per_s")
    assert flow == pytest.approx(float(fabric.tiers[0].uplink_bytes_per_s[0]))


def test_unequal_domains_and_a_fabric_without_tiers_are_trees() -> None:
    unequal = two_tiers([2, 1], [3], [5, 5, 1])
    assert nx.is_tree(to_networkx(unequal))
    bare = from_spec({"name": "b", "gpus_per_host": 8, "tiers": [{"name": "host", "count": 3}]})
    assert sorted(to_networkx(bare).neighbors("b")) == sorted(bare.hosts)
    assert nx.is_tree(to_networkx(replace(bare, name=bare.hosts[0])))
