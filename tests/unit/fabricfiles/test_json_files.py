"""Topograph's graph and Kubernetes labels."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.fabricfiles.conftest import Read, Refused, tree

ZONE = "topology.kubernetes.io/zone"

GPU = "nvidia.com/gpu"


def graph(**layers: Any) -> str:
    instances = [
        {"id": name, "network_layers": found, "labels": {"gpu": "H100"}}
        for name, found in layers.items()
    ]
    return json.dumps({"instances": instances}, indent=1)


def test_a_graph_is_read_nearest_switch_first(read: Read) -> None:
    built = read(
        graph(a=["l1", "s1", "core"], b=["l2", "s1", "core"], c=["l3", "s2", "core"]), "topograph"
    )
    assert tree(built.fabric) == {"a": "s1/l1", "b": "s1/l2", "c": "s2/l3"}
    assert [tier.name for tier in built.fabric.tiers] == ["zone", "rack"]


def accelerated(**found: tuple[list[str], str]) -> str:
    label = "accelerator.topograph.run/domain"
    instances = [
        {"id": name, "network_layers": layers, "labels": {label: domain} if domain else {}}
        for name, (layers, domain) in found.items()
    ]
    return json.dumps({"instances": instances}, indent=1)


def test_accelerator_domains_are_the_innermost_tier(read: Read) -> None:
    text = accelerated(
        a=(["l1", "s1"], "n1"), b=(["l1", "s1"], "n1"), c=(["l1", "s1"], "n2"), d=(["l2", "s2"], "")
    )
    found = read(text, "topograph").fabric
    assert tree(found) == {"a": "s1/l1/n1", "b": "s1/l1/n1", "c": "s1/l1/n2", "d": "s2/l2/l2-rest"}
    assert found.scale_up_by_host.tolist() == [0, 0, 2, 3]
    assert found.by_host.scale_up_gbps.tolist() == [7_200.0] * 3 + [3_600.0]


def test_switches_inside_an_accelerator_domain_are_left_out(read: Read) -> None:
    """A rail-optimised rack hangs on several leaves."""
    built = read(
        accelerated(a=(["l1", "s1"], "n1"), b=(["l2", "s1"], "n1"), c=(["l3", "s1"], "n2")),
        "topograph",
    )
    assert tree(built.fabric) == {"a": "n1", "b": "n1", "c": "n2"}
    assert "1 tier of switches inside accelerator domains left out" in built.notes


def test_a_switch_that_serves_one_accelerator_domain_stands_for_it(read: Read) -> None:
    built = read(accelerated(a=(["l1", "s"], "n1"), b=(["l2", "s"], "n2")), "topograph")
    assert tree(built.fabric) == {"a": "l1", "b": "l2"}
    assert built.fabric.has_scale_up_tier


def test_older_names_of_accelerator_domains(read: Read) -> None:
    item = {"id": "a", "network_layers": ["l"], "attributes": {"nvlink": "n1"}}
    other = {"id": "b", "network_layers": ["l"], "labels": {"nvidia.com/gpu.clique": "n1"}}
    built = read(json.dumps({"instances": [item, other]}), "topograph")
    assert built.fabric.scale_up_by_host.tolist() == [0, 0]


def test_uneven_layers_are_filled_up(read: Read) -> None:
    built = read(graph(a=["l1", "s1"], b=["l2", "s1"], c=["l3"]), "topograph")
    assert tree(built.fabric)["c"] == "l3/l3"
    assert any(note.startswith("c: fewer layers than others") for note in built.notes)


def test_instances_without_layers_are_left_out(read: Read) -> None:
    built = read(graph(a=["l1"], b=[], c=None), "topograph")
    assert built.fabric.hosts == ("a",)
    assert "left out: b, c, without network_layers" in built.notes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            graph(a=["l", "s1"], b=["l", "s2"]),
            "file:2: instances: switch l is under s1 and under s2",
        ),
        (graph(a="l"), "file:5: instances.0.network_layers: must be a list of switch names"),
        (graph(a=["l", 7]), "file:5: instances.0.network_layers: must be a list of switch names"),
        ('{"instances": [\n{"id": 7}]}', "file:2: instances.0.id: must be a name, not 7"),
        (
            '{"instances": [\n{"id": "a", "network_layers": ["s"]},\n{"id": "a"}]}',
            "file:3: instances.1.id: instance a is listed twice",
        ),
        (
            '{"instances": [\n{"id": "a", "network_layers": ["s"],\n"attributes": {"nvlink": 7}}]}',
            "file:3: instances.0.attributes.nvlink: must be a name, not 7",
        ),
        ('{"nodes": []}', "file: instances: must be a list of instances"),
        ("[]", "file: instances: must be a list of instances"),
        ('{"instances": []}', "file: has no host with a place in the topology"),
        ('{\n"instances": [,]}', "file:2: is not JSON: Expecting value"),
        ("[" * 100_000, "file: is nested too deep"),
        (graph(**{"a,b": ["s"]}), "file: host 'a,b': a name cannot have brackets"),
    ],
)
def test_refused_graphs(refused: Refused, text: str, says: str) -> None:
    assert refused(text, "topograph").startswith(says)


def nodes(**labels: dict[str, str]) -> str:
    """As `kubectl get nodes -o json` prints them."""
    items = [
        {"kind": "Node", "metadata": {"name": name, "labels": found}, "status": {"images": [1]}}
        for name, found in labels.items()
    ]
    return json.dumps({"kind": "List", "items": items}, indent=1)


def keyed(prefix: str, *values: str) -> dict[str, str]:
    names = {"aws": [f"topology.k8s.aws/network-node-layer-{i}" for i in (1, 2, 3)]}
    return dict(zip(names[prefix], values, strict=True))


def test_the_first_family_of_keys_is_taken(read: Read) -> None:
    built = read(
        nodes(
            a={ZONE: "z", **keyed("aws", "n1", "n2", "n3")},
            b={ZONE: "z", **keyed("aws", "n1", "n4", "n5")},
        ),
        "kubernetes",
    )
    assert tree(built.fabric) == {"a": "n2/n3", "b": "n4/n5"}
    assert built.notes[0].endswith(
        "layer-1, topology.k8s.aws/network-node-layer-2, topology.k8s.aws/network-node-layer-3"
    )
    assert built.notes[1] == "dropped: z, n1, above every host and so no boundary"


def test_topographs_tiers_count_from_the_host(read: Read) -> None:
    key = "fabric.topograph.run/tier-"
    a = {f"{key}{i}": f"a{i}" for i in range(11)}
    b = {f"{key}{i}": f"b{i}" for i in range(11)}
    built = read(nodes(a=a, b=b), "kubernetes")
    assert tree(built.fabric)["a"] == "a10/a9/a8/a7/a6/a5/a4/a3/a2/a1/a0"
    assert [tier.name for tier in built.fabric.tiers][-3:] == ["building", "zone", "rack"]


def test_keys_are_chosen_by_their_last_part(read: Read) -> None:
    text = nodes(a={ZONE: "z1", "acme.com/rack": "r1"}, b={ZONE: "z2", "acme.com/rack": "r2"})
    built = read(text, "kubernetes", label_keys=("zone", "rack"))
    assert tree(built.fabric) == {"a": "z1/r1", "b": "z2/r2"}
    assert [tier.name for tier in built.fabric.tiers] == ["zone", "rack"]


def test_a_rack_number_used_in_every_zone_is_named_after_its_zone(read: Read) -> None:
    text = nodes(
        a={ZONE: "z1", "rack": "1"}, b={ZONE: "z2", "rack": "1"}, c={ZONE: "z2", "rack": "2"}
    )
    built = read(text, "kubernetes", label_keys=("zone", "rack"))
    assert tree(built.fabric) == {"a": "z1/z1.1", "b": "z2/z2.1", "c": "z2/2"}
    assert "1: in several domains above, so named after them too" in built.notes


def test_nodes_without_labels_are_left_out(read: Read) -> None:
    built = read(nodes(control={}, empty={ZONE: ""}, a={ZONE: "z1"}, b={ZONE: "z2"}), "kubernetes")
    assert built.fabric.hosts == ("a", "b")
    assert "left out: control, empty, without all of these labels" in built.notes


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"a": {ZONE: "z1"}, "b": {ZONE: "z2"}}),
        json.dumps(
            [
                {"kubernetes.io/hostname": "a", ZONE: "z1"},
                {"kubernetes.io/hostname": "b", ZONE: "z2"},
            ]
        ),
        json.dumps(
            [
                {"metadata": {"name": "a", "labels": {ZONE: "z1"}}},
                {"metadata": {"name": "b", "labels": {ZONE: "z2"}}},
            ]
        ),
    ],
)
def test_labels_alone(read: Read, text: str) -> None:
    assert tree(read(text, "kubernetes").fabric) == {"a": "z1", "b": "z2"}


@pytest.mark.parametrize(
    ("text", "keys", "says"),
    [
        (nodes(a={}), (), "file: has no topology label"),
        (nodes(a={ZONE: "z"}), ("rack",), "file: no node has a label rack"),
        (
            nodes(a={"x/zone": "1", "y/zone": "1"}),
            ("zone",),
            "file: several labels end in /zone: x/zone, y/zone",
        ),
        ('{"items": [\n{"metadata": {}}]}', (), "file:2: items.0: has no name"),
        ('{"items": 7}', (), "file:1: items: must be a list of nodes"),
        (
            '{"items": [\n{"metadata": {"name": "a",\n"labels": {"x/y.z": 7}}}]}',
            (),
            "file:3: items.0.metadata.labels.x/y.z: must be a text",
        ),
        (
            '[{"kubernetes.io/hostname": "a"},\n{"kubernetes.io/hostname": "a"}]',
            (),
            "file:2: 1: node a is listed twice",
        ),
        ("7", (), "file: must be a list of nodes"),
        ("apiVersion: v1\n", (), "file:1: is not JSON"),
    ],
)
def test_refused_nodes(refused: Refused, text: str, keys: tuple[str, ...], says: str) -> None:
    assert refused(text, "kubernetes", label_keys=keys).startswith(says)


def gpu_nodes(**gpus: int | str | None) -> str:
    items = [
        {
            "metadata": {"name": name, "labels": {ZONE: f"z{i % 2}"}},
            "status": {"allocatable": {"cpu": "4"} | ({} if n is None else {"nvidia.com/gpu": n})},
        }
        for i, (name, n) in enumerate(gpus.items())
    ]
    return json.dumps({"kind": "List", "items": items}, indent=1)


def test_gpus_are_what_the_device_plugin_offers(read: Read) -> None:
    built = read(gpu_nodes(a="4", b="4", login=None), "kubernetes")
    assert tree(built.fabric) == {"a": "z0", "b": "z1"}
    assert set(built.fabric.by_host.gpus) == {4}
    assert "left out: login, without a GPU" in built.notes


def test_nodes_that_differ_in_gpus_are_named(read: Read, refused: Refused) -> None:
    text = gpu_nodes(a="4", b="4", c="8", d="8")
    said = refused(text, "kubernetes")
    assert "nodes differ in GPUs: 4 on a, b; 8 on c, d; keep one kind with --hosts" in said
    assert set(read(text, "kubernetes", hosts="[ab]").fabric.by_host.gpus) == {4}
    said = refused(gpu_nodes(a="four"), "kubernetes")
    assert "items.0.status.allocatable.nvidia.com/gpu: is not a number: 'four'" in said


def test_nodes_that_are_not_well_are_named_and_sick_gpus_counted(read: Read) -> None:
    def node(name: str, given: str, **more: Any) -> dict[str, Any]:
        status = {"allocatable": {GPU: given}, "capacity": {GPU: "8"}, **more.pop("status", {})}
        meta = {"name": name, "labels": {"topology.kubernetes.io/zone": "a"}}
        return {"metadata": meta, "status": status, **more}

    unready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    items = [
        node("n1", "8", spec={"unschedulable": True}),
        node("n2", "8", status=unready),
        node("n3", "8", status={"conditions": [{"type": "Ready", "status": "True"}]}),
        node("n4", "7"),
    ]
    built = read(json.dumps({"items": items}), "kubernetes")
    assert built.fabric.gpus_per_host == 8
    assert built.fabric.host_count == 4
    gpus = "n4: 7 of 8 GPUs are given to pods (muster drain takes it out)"
    said = [note.partition(", which")[0] for note in built.notes if "does not say" in note]
    assert said == ["n1: cordoned", "n2: not ready", gpus]
