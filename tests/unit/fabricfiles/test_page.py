"""docs/fabric-formats.md: its example of every format is the same cluster, and is read."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from scheduler.cli.program import app, load_commands
from scheduler.files.fabrics import FORMATS, read_fabric
from tests.unit.fabricfiles.conftest import tree

PAGE = (Path(__file__).parents[3] / "docs/fabric-formats.md").read_text()
BLOCKS = dict(re.findall(r"```(\S+)\n(.*?)```", PAGE, re.DOTALL))
EXAMPLES = [form for form in FORMATS if form in BLOCKS]


def test_every_format_is_on_the_page() -> None:
    assert all(f"| `{form}` |" in PAGE for form in FORMATS)
    assert [form for form in FORMATS if form != "slurm-yaml-block"] == EXAMPLES


@pytest.mark.parametrize("form", EXAMPLES)
def test_the_example_is_the_cluster(tmp_path: Path, form: str) -> None:
    (tmp_path / "file").write_text(BLOCKS[form])
    extra = BLOCKS["overlay-for-blocks" if form.endswith("block") else "overlay"]
    (tmp_path / "overlay.yaml").write_text(extra)
    found = read_fabric(str(tmp_path / "file"), form, str(tmp_path / "overlay.yaml")).fabric
    racks = {1: "zone1/rack1", 2: "zone1/rack1", 3: "zone1/rack2", 4: "zone1/rack2"}
    assert tree(found) == {
        f"n{i}": place for i, place in {**racks, 5: "zone2/rack3", 6: "zone2/rack3"}.items()
    }
    host = 8 * 400e9 / 8
    assert found.tiers[0].uplink_bytes_per_s.tolist() == [4 * host / 7, 2 * host / 4]


@pytest.mark.parametrize("command", re.findall(r"muster [^|>\n]*", BLOCKS["sh"]))
def test_a_command_parses(command: str) -> None:
    load_commands()
    muster: Any = typer.main.get_command(app)
    arguments = shlex.split(command)[1:]
    with muster.make_context("muster", arguments) as context:
        group = muster.get_command(context, arguments[0])
        with group.make_context("fabric", arguments[1:], parent=context) as inner:
            found = group.get_command(inner, arguments[1])
            found.make_context(arguments[1], arguments[2:], parent=inner)
