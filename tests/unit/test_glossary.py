"""docs/glossary.md names classes that exist, and a class name has one meaning in all packages."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.files.job_keys import JobKeys, sections

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
PACKAGES = ("importers", "lab", "muster", "network", "placement", "scheduler", "simulator")
GENERATED = ROOT / "scheduler" / "v1"
# Words that say nothing of the thing that they name.
EMPTY = frozenset(
    {"told", "found", "gone", "one", "what", "how", "asked", "mind", "company", "taste", "story"}
)


def modules_of_classes() -> dict[str, list[str]]:
    """The modules in which each public class name is defined at top level."""
    modules = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if GENERATED in path.parents:
                continue
            for name in re.findall(r"^class ([^_]\w*)", path.read_text(encoding="utf-8"), re.M):
                modules[name].append(str(path.relative_to(ROOT)))
    return modules


def test_the_glossary_names_classes_that_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", PAGE))
    assert len(named) > 20
    assert named <= set(modules_of_classes())


def test_the_glossary_names_every_constraint_of_a_job_file() -> None:
    (row,) = (line for line in PAGE.splitlines() if line.startswith("| constraint |"))
    assert set(re.findall(r"`(\w+)`", row)) == set(sections(JobKeys)["constraints"].model_fields)


def test_a_word_has_one_line_in_the_glossary() -> None:
    words = re.findall(r"^\| (?!word \|)(.+?) \| ", PAGE, re.M)
    assert len(words) >= 60
    assert sorted(words) == sorted(set(words))


def test_a_class_name_stands_in_one_module() -> None:
    modules = modules_of_classes()
    assert {name: places for name, places in modules.items() if len(places) > 1} == {}


def names_in(path: Path) -> Iterator[tuple[str, int]]:
    """Names of functions, arguments, fields and variables, each with the line that binds it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno


@pytest.mark.slow
def test_names_say_something() -> None:
    empty = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for package in ("muster", "scheduler")
        for path in sorted((ROOT / package).rglob("*.py"))
        if GENERATED not in path.parents
        for name, line in names_in(path)
        if name in EMPTY
    ]
    assert empty == []
