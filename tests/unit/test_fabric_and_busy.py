"""Fabric files and busy lists: what they mean, and what is wrong with them."""

from pathlib import Path

import pytest

from placement.fabric import hostset
from placement.fabric.reader import preset
from placement.workload.parallelism import AXES
from scheduler.files.inputs import load_busy, load_fabric, load_job
from tests.build import LLAMA3_ROWS, fabric
from tests.refusals import file_refusal, refusal

EXAMPLES = Path(__file__).parents[2] / "examples"


# --- fabric files ---------------------------------------------------------------


LEAST, TWO_TIERS = "at least 1, not 0", "tiers: [{name: rack}, {name: host}]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tiers:\n  - {name: host, count: 0}\n",
            f"4: tiers.0.count: must be a whole number of {LEAST}",
        ),
        ("", " tiers: must be a list"),
        (f"{TWO_TIERS}domains: []\n", "4: domains: the fabric has no hosts"),
        (
            f"{TWO_TIERS}domains:\n  - name: a\n    hosts: 2\n  - name: b\n    hosts: 0\n",
            f"8: domains.1.hosts: must be a whole number of {LEAST}",
        ),
    ],
)
def test_a_fabric_file_that_cannot_be(tmp_path: Path, text: str, message: str) -> None:
    head = "name: f\ngpus_per_host: 8\n"
    told = file_refusal(load_fabric, tmp_path / "fabric.yaml", head + text)
    assert told.startswith(f"fabric.yaml:{message}")


def test_an_unknown_fabric_lists_the_presets(tmp_path: Path) -> None:
    for name, told in (
        ("roce", "'roce' is neither a preset (roce-24k, ib-24k"),
        (str(tmp_path / "absent.yaml"), "absent.yaml: no such file"),
        (str(tmp_path), "is a directory"),
        ("x" * 10_000, "neither a preset"),
    ):
        assert told in refusal(load_fabric, name)


@pytest.mark.parametrize("name", ["roce-24k", "ib-24k"])
def test_the_fabric_examples_are_the_presets(name: str) -> None:
    assert load_fabric(str(EXAMPLES / f"fabric-{name}.yaml")).digest == preset(name).digest


def test_the_other_fabric_examples() -> None:
    assert load_fabric(str(EXAMPLES / "fabric-128-hosts.yaml")).host_count == 128
    irregular = load_fabric(str(EXAMPLES / "fabric-irregular.yaml"))
    assert irregular.host_count == 29
    assert irregular.domain(irregular.index_by_name["gpu08"]) == "south"


@pytest.mark.parametrize(
    ("file", "row"), [("llama3-405b-8k-gpus", 1), ("llama3-405b", 2), ("llama3-405b-128k", 3)]
)
def test_the_llama_examples_are_table_4(file: str, row: int) -> None:
    spec = load_job(str(EXAMPLES / f"{file}.yaml"))
    parallelism, model, batch = LLAMA3_ROWS[row]
    assert spec.name == file
    assert [spec.request.parallelism.size(axis) for axis in AXES] == [
        parallelism.size(axis) for axis in AXES
    ]
    assert (spec.request.model, spec.request.batch) == (model, batch)


def test_the_moe_example_is_what_its_comments_derive() -> None:
    spec = load_job(str(EXAMPLES / "moe.yaml"))
    replicas = spec.request.parallelism.ep * spec.request.parallelism.dp
    micro_batches = 15_360 // replicas
    assert dict(spec.request.traffic) == {
        "ep": 4 * 8 * 2 * 4_096 * 7_168 * 58 * micro_batches // (64 * 16),
        "pp": 2 * 2 * 4_096 * 7_168 * micro_batches,
        "dp": 5_100_000_000,
    }


# --- busy hosts --------------------------------------------------------------------


def test_busy_hosts(tmp_path: Path) -> None:
    path = tmp_path / "busy"
    path.write_text("# being repaired\nz0-r0-h0\n\n  z0-r1-h[0-1]  # a rack\nz1-r0-h0,z0-r0-h0\n")
    f = fabric()
    assert f.names(hostset.members(load_busy(str(path), f))) == (
        "z0-r0-h0",
        "z0-r1-h0",
        "z0-r1-h1",
        "z1-r0-h0",
    )


def test_unknown_busy_hosts_are_named_with_their_lines(tmp_path: Path) -> None:
    text = "z0-r0-h0\nz9-r0-h0\nz0-r[0-5]-h0\nz0-r[0\n"
    told = file_refusal(lambda path: load_busy(path, fabric()), tmp_path / "busy", text)
    first, second, third = told.splitlines()
    assert first.startswith("busy:2: small has no host 'z9-r0-h0'; its hosts are named like z0-")
    assert "busy:3: small has no host 'z0-r2-h0' and 3 more" in second
    assert third == "busy:4: unbalanced brackets in 'z0-r[0'"
