"""Fabrics: counts, bandwidths, names, and what is refused."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest

from placement import to_networkx
from placement.errors import BadInput
from placement.fabric.reader import MOST_HOSTS, PRESETS, from_spec, preset
from placement.fabric.tree import Fabric
from tests.build import fabric, fabric_spec, regular, two_tiers


@pytest.fixture(scope="module")
def roce() -> Fabric:
    return preset("roce-24k")


@pytest.fixture(scope="module")
def infiniband() -> Fabric:
    return preset("ib-24k")


def test_roce_24k_names(roce: Fabric) -> None:
    assert roce.hosts[0] == "z0-r000-h0"
    assert roce.hosts[-1] == "z7-r191-h1"
    assert roce.hosts[2] == "z0-r001-h0"
    assert roce.domain(384) == "z1"
    assert roce.domain(384, tier=1) == "z1-r000"
    assert roce.domain(384, tier=2) == "z1-r000-h0"


def test_ib_24k(infiniband: Fabric) -> None:
    """24 pods of 4 scalable units of 32 hosts, full bisection."""
    pod, su = infiniband.tiers
    assert (len(pod.domains), len(su.domains), infiniband.host_count) == (24, 96, 3_072)
    assert infiniband.host_count * infiniband.gpus_per_host == 24_576
    np.testing.assert_allclose(pod.uplink_bytes_per_s, 4 * 32 * 8 * 50e9)
    assert infiniband.hosts[-1] == "p23-s3-h31"


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_hosts_stand_in_tree_order(name: str) -> None:
    """Every tier's domains are runs of hosts, and a rack lies in one zone."""
    fabric_ = preset(name)
    for tier in fabric_.tiers:
        assert np.all(np.isin(np.diff(tier.domain_by_host), (0, 1)))
    outer, inner = fabric_.tiers
    for rack in range(len(inner.domains)):
        assert len(set(outer.domain_by_host[inner.domain_by_host == rack])) == 1


def test_indices_and_names_are_inverse_and_hosts_alone_have_no_tiers() -> None:
    small = fabric()
    assert small.names(range(3)) == ("z0-r0-h0", "z0-r0-h1", "z0-r1-h0")
    assert small.indices(("z1-r1-h1", "z0-r0-h0")) == (7, 0)
    with pytest.raises(KeyError):
        small.indices(("z9-r0-h0",))
    # Hosts alone are a fabric without tiers.
    alone = regular(("host", 12), gpus=4)
    assert alone.tiers == ()
    assert alone.hosts[9:] == ("h09", "h10", "h11")
    assert alone.domain(3) == "h03"


def test_irregular_fabric() -> None:
    """Counts, names and ranges of hosts; uplinks follow the hosts that are there."""
    east = zone(
        {"name": "e1", "hosts": 3}, {"name": "e2", "hosts": ["big[08-10]", "odd"]}, name="east"
    )
    west = {**zone({"name": "w1", "hosts": ["w"]}, name="west"), "oversubscription": 2}
    spec = {**listed(east, west), "nic_gbps": 100}
    spec["tiers"][0]["oversubscription"] = 4
    uneven = from_spec(spec)
    assert uneven.hosts == (
        *("e1-h0", "e1-h1", "e1-h2"),
        *("big08", "big09", "big10", "odd"),
        "w",
    )
    outer, rack = uneven.tiers
    assert outer.domains == ("east", "west")
    assert rack.domain_by_host.tolist() == [0, 0, 0, 1, 1, 1, 1, 2]
    host = 8 * 100e9 / 8
    np.testing.assert_allclose(outer.uplink_bytes_per_s, [7 * host / 4, host / 2])
    np.testing.assert_allclose(rack.uplink_bytes_per_s, [3 * host, 4 * host, host])


def test_equal_content_is_the_same_fabric() -> None:
    assert fabric() == from_spec(dict(reversed(fabric_spec().items())))
    assert hash(fabric()) == hash(fabric())
    assert fabric() != fabric(oversubscription=1)
    assert fabric() != fabric(name="other")
    assert fabric() != "small"


def test_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="presets are roce-24k, ib-24k, nvl72-24k"):
        preset("roce")


def bad(**changes: Any) -> dict[str, Any]:
    return {**fabric_spec(), **changes}


def listed(*domains: Any, tiers: tuple[str, ...] = ("zone", "rack", "host")) -> dict[str, Any]:
    return bad(tiers=[{"name": t} for t in tiers], domains=list(domains))


def zone(*racks: Any, name: str = "z0") -> dict[str, Any]:
    return {"name": name, "domains": list(racks)}


def tiers(*keys: dict[str, Any]) -> dict[str, Any]:
    """With more keys of its zones, racks and hosts."""
    named = ({"name": name, "count": 1} for name in ("zone", "rack", "host"))
    return bad(tiers=[{**tier, **more} for tier, more in zip(named, keys, strict=True)])


def counted(**keys: Any) -> dict[str, Any]:
    return listed({"name": "z0", "domains": {"count": 2, "hosts": 3, **keys}})


NVLINK = {"scale_up": {"gbps_per_gpu": 7200}}
RACK = {"name": "r0", "hosts": 2}
TIER = {"name": "host", "count": 2}


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        (bad(colour=1), "colour", "unknown key; known are calibration, domains, gpu, gpu_groups"),
        (bad(name=""), "name", "non-empty"),
        (bad(kind="ethernet"), "kind", "one of roce, infiniband"),
        (bad(gpus_per_host=0), "gpus_per_host", "whole number of at least 1"),
        (bad(gpus_per_host=True), "gpus_per_host", "whole number"),
        (bad(gpus_per_host=8.0), "gpus_per_host", "whole number"),
        (bad(nic_gbps=0), "nic_gbps", "positive"),
        (bad(nic_gbps=float("nan")), "nic_gbps", "positive"),
        (bad(tiers=[]), "tiers", "list, outermost tier first"),
        (bad(tiers=["zone"]), "tiers.0", "mapping"),
        (bad(tiers=[{"name": "zone", "size": 2}]), "tiers.0.size", "unknown key"),
        (bad(tiers=[{"name": "zone", "count": 0}, TIER]), "tiers.0.count", "at least 1"),
        (bad(tiers=[{"name": "zone"}, TIER]), "tiers.0.count", "required unless `domains`"),
        (
            bad(tiers=[{"name": "zone", "count": 1, "oversubscription": 0}, TIER]),
            "tiers.0.oversubscription",
            "positive",
        ),
        (bad(tiers=[TIER, TIER]), "tiers", "repeat: host, host"),
        (bad(tiers=[{"name": "host", "count": MOST_HOSTS + 1}]), "tiers", "200,001 hosts"),
        (listed(), "domains", "no hosts"),
        ([fabric_spec()], "", "must be a mapping"),
        (listed("z0"), "domains.0", "mapping"),
        (bad(domains="z0"), "domains", "list of domains"),
        (listed(zone({**RACK, "gpus": 8})), "domains.0.domains.0.gpus", "unknown key"),
        (listed(zone({"hosts": 2})), "domains.0.domains.0.name", "non-empty"),
        (listed({"name": "z0", "hosts": 2}), "domains.0", "the next tier is rack"),
        ({**listed(zone(RACK)), "gpus_per_host": 10**30}, "gpus_per_host", "at most 65,536"),
        (listed(zone(zone(RACK))), "domains.0.domains.0.domains", "deeper than the 3 tiers"),
        (listed(zone(RACK), tiers=("host",)), "domains", "deeper than the 1 tiers"),
        (listed({**zone(RACK), "hosts": 1}), "domains.0.hosts", "give one of them"),
        (
            listed({**zone(RACK), "oversubscription": -1}),
            "domains.0.oversubscription",
            "positive",
        ),
        (bad(tiers=[{"count": 2}]), "tiers.0.name", "non-empty"),
        (listed(zone({"name": "r0"})), "domains.0.domains.0.hosts", "whole number"),
        (
            listed(zone({"name": "r0", "hosts": 10**12})),
            "domains.0.domains.0.hosts",
            "at most 200,000",
        ),
        (
            listed(zone({"name": "r0", "hosts": ["h[2-1]"]})),
            "domains.0.domains.0.hosts",
            "backwards",
        ),
        (listed(zone({"name": "r0", "hosts": [1]})), "domains.0.domains.0.hosts.0", "host name"),
        (listed(zone({"name": "r0", "hosts": ["h", "h"]})), "domains", "host h is listed twice"),
        pytest.param(
            listed(*(zone({"name": f"r{i}", "hosts": 150_000}, name=f"z{i}") for i in range(2))),
            "domains",
            "more than 200,000 hosts",
            marks=pytest.mark.slow,
        ),
        (listed(zone(RACK), zone(name="z0")), "domains.1.name", "zone z0 is listed twice"),
        # Neighbours with one name were once merged into a rack across both zones.
        (
            listed(zone(RACK), zone({**RACK, "hosts": ["b"]}, name="z1")),
            "domains.1.domains.0.name",
            "rack r0 is listed twice",
        ),
        (tiers({}, {}, NVLINK), "tiers.2.scale_up", "host is the host itself"),
        (tiers(NVLINK, {}, {}), "tiers.0.scale_up", "only the tier next to the hosts, rack"),
        (tiers({}, {"scale_up": 7200}, {}), "tiers.1.scale_up", "must be {gbps_per_gpu: N}"),
        (
            tiers({}, {"scale_up": {"gbps_per_gpu": 0}}, {}),
            "tiers.1.scale_up.gbps_per_gpu",
            "positive",
        ),
        (
            tiers({}, {"scale_up": {"gbps_per_gpu": 1, "x": 1}}, {}),
            "tiers.1.scale_up.x",
            "unknown key",
        ),
        (counted(gpus_per_host=0), "domains.0.domains.gpus_per_host", "at least 1"),
        (counted(count=0), "domains.0.domains.count", "at least 1"),
        (counted(nic_gbps=-1), "domains.0.domains.nic_gbps", "positive"),
        (counted(labels={"gpu": 1}), "domains.0.domains.labels.gpu", "non-empty text"),
        (counted(name="x"), "domains.0.domains.name", "unknown key"),
        (tiers({"km": 3, "latency_us": 15}, {}, {}), "tiers.0.km", "conflicts with `latency_us`"),
        (tiers({"km": -3}, {}, {}), "tiers.0.km", "must be a positive number, not -3"),
        (tiers({"latency_us": "far"}, {}, {}), "tiers.0.latency_us", "positive number, not 'far'"),
        (bad(labels={"z9": {"gpu": "h100"}}), "labels.z9", "no domain or host 'z9'"),
        (bad(labels={"z0": {"gpu": 100}}), "labels.z0.gpu", "must be a non-empty text"),
        (bad(labels={"z0": {}}), "labels.z0", "must be a mapping of labels"),
        (bad(labels={"z[0": {"gpu": "a"}}), "labels.z[0", ""),
        (bad(labels=["z0"]), "labels", "must be a mapping"),
        (bad(joined="no"), "joined", "must be true or false"),
        (bad(scale_up_gbps=0), "scale_up_gbps", "positive"),
    ],
)
def test_bad_input_names_its_field(spec: Mapping[str, Any], field: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        from_spec(spec)
    assert caught.value.field == field
    assert says in caught.value.message


def test_links_inside_a_host_are_nvlink_unless_the_file_says_otherwise() -> None:
    assert from_spec(fabric_spec()).scale_up_gbps == 3_600  # 450 GB/s per direction and GPU
    assert from_spec({**fabric_spec(), "scale_up_gbps": 1_200}).scale_up_gbps == 1_200


# --- as a graph of networkx --------------------------------------------------------


def test_every_host_hangs_below_its_rack_and_zone_with_the_rate_of_its_uplink(roce: Fabric) -> None:
    graph = to_networkx(roce)
    assert nx.is_tree(graph)
    assert graph.number_of_nodes() == 1 + 8 + 8 * 192 + roce.host_count
    path = nx.shortest_path(graph, "z3-r010-h1", graph.graph["root"])
    assert path == ["z3-r010-h1", "z3-r010", "z3", "roce-24k"]
    assert [graph.nodes[node]["tier"] for node in path] == ["host", "rack", "zone", "fabric"]
    nic = 8 * 400e9 / 8
    rates = [graph.edges[edge]["bytes_per_s"] for edge in pairwise(path)]
    assert rates == pytest.approx([nic, 2 * nic, 384 * nic / 7])
    flow = nx.maximum_flow_value(graph, "z0", "z1", capacity="bytes_per_s")
    assert flow == pytest.approx(384 * nic / 7)  # what their uplinks carry


def test_unequal_domains_and_a_fabric_without_tiers_are_trees() -> None:
    unequal = two_tiers([2, 1], [3], [5, 5, 1])
    assert nx.is_tree(to_networkx(unequal))
    bare = regular(("host", 3))
    assert sorted(to_networkx(bare).neighbors(bare.name)) == sorted(bare.hosts)
    assert nx.is_tree(to_networkx(replace(bare, name=bare.hosts[0])))
