"""The way of a job in docs/concepts.md names code that is there."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_step_of_the_way_of_a_job_names_definitions_of_its_files() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| \d+ \| (.+?) \|", page[page.index("## The way of a job") :], re.M)
    assert len(steps) == 10
    for step in steps:
        defined: set[str] = set()
        for word in re.findall(r"`([^`]+)`", step):
            if word.endswith(".py"):
                tree = ast.parse((ROOT / "scheduler" / word).read_text(encoding="utf-8"))
                defined |= {getattr(node, "name", "") for node in ast.walk(tree)}
            else:
                assert word in defined, step
