"""Hosts that join a fabric where they say that they are."""

from collections.abc import Mapping
from typing import Any

import pytest

from placement import BadInput
from placement.fabric.reader import PRESETS, from_spec
from scheduler.files.fabrics.growth import listed, with_host
from tests.build import fabric_spec

COUNTED = {
    "name": "counted",
    "gpus_per_host": 8,
    "tiers": [{"name": "zone"}, {"name": "rack"}, {"name": "host"}],
    "domains": [
        {"name": "a", "oversubscription": 3, "domains": {"count": 12, "hosts": 2}},
        {"name": "b", "domains": [{"name": "b-x", "hosts": ["n[1-3]"]}]},
    ],
}


@pytest.mark.parametrize(
    "spec", [*PRESETS.values(), fabric_spec(), COUNTED], ids=lambda s: s["name"]
)
def test_a_listed_fabric_is_the_same(spec: Mapping[str, Any]) -> None:
    counted, made = from_spec(spec), from_spec(listed(spec))
    assert made.hosts == counted.hosts
    for tier, other in zip(made.tiers, counted.tiers, strict=True):
        assert (tier.name, tier.domains) == (other.name, other.domains)
        assert (tier.domain_by_host == other.domain_by_host).all()
        assert (tier.uplink_bytes_per_s == other.uplink_bytes_per_s).all()
        assert (tier.is_scale_up is None) == (other.is_scale_up is None)


def test_a_host_joins_its_domains() -> None:
    for place, domains in [
        ({"rack": "z0-r1"}, ("z0", "z0-r1")),
        ({"zone": "z0", "rack": "z0-r1", "row": "7"}, ("z0", "z0-r1")),
        ({"zone": "z1", "rack": "new"}, ("z1", "new")),
        ({"zone": "z7", "rack": "z7-r0"}, ("z7", "z7-r0")),
        ({"topology.kubernetes.io/zone": "z1", "net.example/rack": "z1-r0"}, ("z1", "z1-r0")),
    ]:
        for spec in (fabric_spec(), listed(fabric_spec())):
            fabric = from_spec(with_host(spec, "new-1", place))
            at = fabric.index_by_name["new-1"]
            assert (fabric.domain(at, 0), fabric.domain(at, 1)) == domains
            assert {*fabric.hosts} == {*from_spec(spec).hosts, "new-1"}


def test_a_place_that_is_none() -> None:
    for place, wrong in [
        ({}, "its place must name one of zone, rack; it names nothing"),
        ({"row": "1"}, "its place must name one of zone, rack; it names row"),
        ({"rack": "new"}, "its place does not say in which zone it is"),
        ({"zone": "z0"}, "its place does not say in which rack it is"),
        ({"zone": "z0", "rack": "z1-r0"}, "rack z1-r0 is in zone z1, not z0"),
    ]:
        with pytest.raises(BadInput) as caught:
            with_host(fabric_spec(), "n", place)
        assert caught.value.message == wrong


def test_a_host_has_one_name() -> None:
    for host in ("", "a,b", "a[0-1]", "a]"):
        with pytest.raises(BadInput):
            from_spec(with_host(fabric_spec(), host, {"rack": "z0-r0"}))
