"""Files that say where a gang was."""

from pathlib import Path

import pytest

from scheduler.files.inputs import GONE, load_hint, load_placement
from tests.build import fabric, request
from tests.refusals import file_refusal

FABRIC = fabric()


def read(tmp_path: Path, text: str) -> tuple[int, ...]:
    path = tmp_path / "old"
    path.write_text(text)
    return load_placement(str(path), FABRIC)


@pytest.mark.parametrize(
    "text",
    [
        "z0-r0-h1\nz1-r1-h0\n",
        "# old\nz0-r0-h1 slots=8\n\nz1-r1-h0  # last\n",
        "z0-r0-h1\nz0-r0-h1\nz1-r1-h0\nz1-r1-h0\n",  # a line for each rank
    ],
)
def test_hosts_in_block_order(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == (1, 6)


def test_ranges_count_in_the_order_written(tmp_path: Path) -> None:
    assert read(tmp_path, "z1-r0-h[0-1]\nz0-r1-h[0-1]\n") == (4, 5, 2, 3)


def test_a_host_that_the_fabric_does_not_have_is_gone(tmp_path: Path) -> None:
    assert read(tmp_path, "z0-r0-h0\nz9-r0-h0\n") == (0, GONE)


def test_what_is_no_placement_is_named(tmp_path: Path) -> None:
    for text, message in {
        "": "names no hosts",
        "node-1\nnode-2\n": "names no hosts of small, which are named like z0-r0-h0",
        "z0-r[0-h1\n": ":1: unbalanced brackets",
    }.items():
        told = file_refusal(lambda path: load_placement(path, FABRIC), tmp_path / "old", text)
        assert told.startswith("old:")
        assert message in told


def test_another_number_of_blocks_is_refused(tmp_path: Path) -> None:
    def read(path: str) -> object:
        return load_hint(path, FABRIC, request(tp=8, dp=4), 0.0)

    told = file_refusal(read, tmp_path / "old", "z0-r0-h0\n")
    assert "the old placement is of 1, the job of 4 hosts" in told
