"""A fabric that is written as a file is the same fabric when it is read."""

import random
from pathlib import Path
from typing import Any

import pytest

from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from scheduler.files.fabrics import dump
from scheduler.files.inputs import load_fabric
from scheduler.files.yaml12 import parse
from tests.build import fabric
from tests.cases import case

ROOT = Path(__file__).parents[2]


def deep() -> Fabric:
    """Three tiers above the hosts, two of the names used on two tiers."""
    buildings = [
        {"name": "east", "domains": [{"name": "east", "domains": [{"name": "east", "hosts": 3}]}]},
        {
            "name": "west",
            "oversubscription": 3.3,
            "domains": [
                {
                    "name": "w1",
                    "domains": [{"name": "w1a", "hosts": 2}, {"name": "w1b", "hosts": 2}],
                },
                {"name": "w2", "domains": [{"name": "w2a", "hosts": ["x[8-11]", "y2", "y1"]}]},
            ],
        },
    ]
    return from_spec(
        {
            "name": "deep",
            "kind": "infiniband",
            "gpus_per_host": 4,
            "nic_gbps": 100.5,
            "scale_up_gbps": 900,
            "tiers": [
                {"name": "building", "oversubscription": 2},
                {"name": "zone"},
                {"name": "rack"},
                {"name": "box"},
            ],
            "domains": buildings,
        }
    )


FABRICS = {
    "regular": fabric(zones=3, racks=2, hosts=4),
    "hosts alone": from_spec(
        {"name": "bare", "gpus_per_host": 8, "tiers": [{"name": "host", "count": 12}]}
    ),
    "irregular": load_fabric(str(ROOT / "examples/fabric-irregular.yaml")),
    "deep": deep(),
    "nvlink racks": from_spec(
        {
            "name": "racks",
            "kind": "infiniband",
            "gpus_per_host": 4,
            "tiers": [
                {"name": "su", "count": 2},
                {"name": "rack", "count": 2, "scale_up": {"gbps_per_gpu": 7200}},
                {"name": "host", "count": 3},
            ],
        }
    ),
    "some nvlink racks": from_spec(
        {
            "name": "some",
            "gpus_per_host": 4,
            "tiers": [{"name": "zone"}, {"name": "rack"}, {"name": "host"}],
            "domains": [
                {"name": "z0", "domains": [{"name": "a", "hosts": 2}, {"name": "b", "hosts": 3}]},
                {
                    "name": "z1",
                    "domains": [
                        {"name": "n", "hosts": 2, "scale_up": {"gbps_per_gpu": 3600}},
                        {"name": "o", "hosts": 2},
                    ],
                },
            ],
        }
    ),
}


@pytest.mark.parametrize("name", FABRICS)
def test_a_fabric_file_returns(name: str) -> None:
    found = FABRICS[name]
    assert from_spec(parse(dump(found)).value) == found


def random_spec(seed: int) -> dict[str, Any]:
    """A tree of two or three tiers with names of every sort."""
    draw = random.Random(seed)
    depth = draw.choice([1, 2, 3])
    names = iter(
        draw.sample([f"{a}{b}{i:02d}" for a in "xyz" for b in "_-." for i in range(60)], 500)
    )

    def domains(level: int) -> list[dict[str, Any]]:
        made = []
        for _ in range(draw.choice([1, 2, 3])):
            item: dict[str, Any] = {"name": next(names)}
            if draw.random() < 0.3:
                item["oversubscription"] = draw.choice([2, 2.5, 7])
            if level == depth - 1:
                item["hosts"] = [
                    f"{next(names)}{draw.choice(['', 'a'])}" for _ in range(draw.randint(1, 4))
                ]
            else:
                item["domains"] = domains(level + 1)
            made.append(item)
        return made

    tiers = [{"name": f"t{i}", "oversubscription": draw.choice([1, 4])} for i in range(depth)]
    return {
        "name": "random",
        "gpus_per_host": 2,
        "nic_gbps": 25,
        "tiers": [*tiers, {"name": "host"}],
        "domains": domains(0),
    }


def test_random_trees_return() -> None:
    for seed in range(20):
        with case(seed=seed):
            found = from_spec(random_spec(seed))
            assert from_spec(parse(dump(found)).value) == found


def test_labels_of_a_fabric_file_are_written_back() -> None:
    labels = {"z0": {"gpu": "h100"}, "z1-r[0-1]": {"gpu": "a100", "disk": "no"}}
    before = from_spec({**fabric().spec, "labels": labels})
    after = from_spec(parse(dump(before), "fabric.yaml").mapping())
    assert after.labels == before.labels
    assert after == before
