"""Kubernetes labels."""

import json
from typing import Any

from tests.unit.fabricfiles.conftest import Read, Refused, tree

ZONE = "topology.kubernetes.io/zone"

GPU = "nvidia.com/gpu"


def nodes(**labels: dict[str, str]) -> str:
    """As `kubectl get nodes -o json` prints them."""
    items = [
        {"kind": "Node", "metadata": {"name": name, "labels": found}, "status": {"images": [1]}}
        for name, found in labels.items()
    ]
    return json.dumps({"kind": "List", "items": items}, indent=1)


def test_the_first_family_of_keys_is_taken(read: Read) -> None:
    keys = [f"topology.k8s.aws/network-node-layer-{i}" for i in (1, 2, 3)]
    a, b = (dict(zip(keys, names.split(), strict=True)) for names in ("n1 n2 n3", "n1 n4 n5"))
    built = read(nodes(a={ZONE: "z", **a}, b={ZONE: "z", **b}), "kubernetes")
    assert tree(built.fabric) == {"a": "n2/n3", "b": "n4/n5"}
    assert built.notes[0].endswith(", ".join(keys))
    assert built.notes[1] == "dropped: z, n1, above every host and so no boundary"


def test_topographs_tiers_count_from_the_host(read: Read) -> None:
    key = "fabric.topograph.run/tier-"
    a = {f"{key}{i}": f"a{i}" for i in range(11)}
    b = {f"{key}{i}": f"b{i}" for i in range(11)}
    built = read(nodes(a=a, b=b), "kubernetes")
    assert tree(built.fabric)["a"] == "a10/a9/a8/a7/a6/a5/a4/a3/a2/a1/a0"
    assert [tier.name for tier in built.fabric.tiers][-3:] == ["building", "zone", "rack"]


def test_keys_are_chosen_by_their_last_part_and_a_rack_of_every_zone_named_after_it(
    read: Read,
) -> None:
    places = {"a": ("z1", "1"), "b": ("z2", "1"), "c": ("z2", "2")}
    text = nodes(**{n: {ZONE: zone, "acme.com/rack": rack} for n, (zone, rack) in places.items()})
    built = read(text, "kubernetes", label_keys=("zone", "rack"))
    assert tree(built.fabric) == {"a": "z1/z1.1", "b": "z2/z2.1", "c": "z2/2"}
    assert [tier.name for tier in built.fabric.tiers] == ["zone", "rack"]
    assert "1: in several domains above, so named after them too" in built.notes


def test_nodes_without_labels_are_left_out(read: Read) -> None:
    built = read(nodes(control={}, empty={ZONE: ""}, a={ZONE: "z1"}, b={ZONE: "z2"}), "kubernetes")
    assert built.fabric.hosts == ("a", "b")
    assert "left out: control, empty, without all of these labels" in built.notes


def test_items_alone(read: Read) -> None:
    found = [{"metadata": {"name": n, "labels": {ZONE: z}}} for n, z in (("a", "z1"), ("b", "z2"))]
    assert tree(read(json.dumps(found), "kubernetes").fabric) == {"a": "z1", "b": "z2"}


def test_refused_nodes(refused: Refused) -> None:
    for text, keys, says in [
        (nodes(a={}), (), "file: has no topology label"),
        (nodes(a={ZONE: "z"}), ("rack",), "file: no node has a label rack"),
        (nodes(a={"x/zone": "1", "y/zone": "1"}), ("zone",), "file: several labels end in /zone"),
        ('{"items": [\n{"metadata": {}}]}', (), "file:2: items.0: has no name"),
        (
            '{"items": [\n{"metadata": {"name": "a",\n"labels": {"x/y.z": 7}}}]}',
            (),
            "file:3: items.0.metadata.labels.x/y.z: must be a text",
        ),
        (
            '[{"metadata": {"name": "a"}},\n{"metadata": {"name": "a"}}]',
            (),
            "file:2: 1: node a is listed twice",
        ),
        ("[" * 100_000, (), "file: is nested too deep"),
        (nodes(**{"a,b": {ZONE: "z"}}), (), "file: host 'a,b': a name cannot have brackets"),
    ]:
        assert refused(text, "kubernetes", label_keys=keys).startswith(says)


def gpu_nodes(**gpus: str | None) -> str:
    items = [
        {
            "metadata": {"name": name, "labels": {ZONE: f"z{i % 2}"}},
            "status": {"allocatable": {"cpu": "4"} | ({} if n is None else {GPU: n})},
        }
        for i, (name, n) in enumerate(gpus.items())
    ]
    return json.dumps({"kind": "List", "items": items}, indent=1)


def test_gpus_are_what_plugins_offer_and_nodes_that_differ_are_named(
    read: Read, refused: Refused
) -> None:
    built = read(gpu_nodes(a="4", b="4", login=None), "kubernetes")
    assert tree(built.fabric) == {"a": "z0", "b": "z1"}
    assert set(built.fabric.by_host.gpus) == {4}
    assert "left out: login, without a GPU" in built.notes
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
