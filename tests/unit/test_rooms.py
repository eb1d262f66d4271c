"""The order of rooms is checked, not only written down; a word has one meaning, a fold an end."""

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import networkx as nx
import pytest

from scheduler.files.job_keys import JobKeys, sections

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("scheduler/core/queue/order.py", "from scheduler.wire.lists import listing", "the core"),
        (
            "scheduler/core/model/job.py",
            "def lazily() -> None:\n    import scheduler.core.decide",
            "rooms of the core",
        ),
        ("scheduler/eventlog/codec.py", "import scheduler.engine.feed", "rooms of the scheduler"),
        ("scheduler/core/decide.py", "from placement.tiers import seating", "one door"),
    ],
)
def test_a_planted_import_breaks_a_contract(
    tmp_path: Path, file: str, line: str, broken: str
) -> None:
    for package in ("placement", "network", "scheduler", "importers", "simulator", "lab"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pyc"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / file).open("a", encoding="utf-8") as planted:
        planted.write(f"\n\n{line}\n")
    lint = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as m; m()"]
    done = subprocess.run(lint, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(broken in row and "BROKEN" in row for row in done.stdout.splitlines()), done.stdout


def test_the_modules_that_read_lent_spares_and_write_the_index_of_a_state_are_known() -> None:
    """The fold writes `lent`, the etag covers it, and another fabric renumbers it; everybody else
    asks SpareLoans, or the job what it owns. The index is kept event by event by fold/index; the
    others translate a whole state."""
    core, readers, writers = ROOT / "scheduler" / "core", set(), set()
    for path in core.rglob("*.py"):
        name, source = path.relative_to(core).as_posix(), path.read_text(encoding="utf-8")
        if not re.search(r"\blent\b|\bindex=", source):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Attribute) and node.attr == "lent":
                readers.add(name)
            if isinstance(node, ast.Call) and any(word.arg == "index" for word in node.keywords):
                writers.add(name)
    assert readers == {
        "admission/etag.py",
        "admission/fabric.py",
        "fold/fabric.py",
        "fold/hosts.py",
        "fold/index.py",
        "fold/jobs.py",
        "model/index.py",
        "model/job.py",
        "tenancy/spare_loans.py",
    }
    assert writers == {
        "fold/fabric.py",
        "fold/index.py",
        "tenancy/ownership.py",
        "tenancy/qualified_names.py",
    }


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, and imports for types alone."""
    graph = imports_of(module_files())
    circles = {frozenset(circle) for circle in nx.strongly_connected_components(graph)}
    assert not [circle for circle in circles if len(circle) > 1]


def test_an_import_inside_a_function_closes_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from typing import TYPE_CHECKING\nfrom p import b, c\n")
    (tmp_path / "b.py").write_text("def lazily():\n    from p.a import thing\n")
    (tmp_path / "c.py").write_text("if TYPE_CHECKING:\n    from p.a import Thing\n")
    graph = imports_of({f"p.{name}": tmp_path / f"{name}.py" for name in "abc"})
    assert set(graph.edges) == {
        ("p.a", "p.b"),
        ("p.a", "p.c"),
        ("p.b", "p.a"),
        ("p.c", "p.a"),
    }


def module_files() -> dict[str, Path]:
    """By dotted name, generated code left out."""
    files = {}
    for package in ("placement", "network", "scheduler", "importers", "simulator", "lab", "muster"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[:2] != ("scheduler", "v1"):
                files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports_of(files: dict[str, Path]) -> nx.DiGraph:
    """An edge from each module to every other one that it imports, anywhere in its text."""
    graph = nx.DiGraph()
    for name, path in files.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            graph.add_edges_from((name, m) for m in imported(node, files) if m != name)
    return graph


def imported(node: ast.AST, files: dict[str, Path]) -> Iterator[str]:
    """The modules among `files` that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in files)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            module = f"{node.module}.{alias.name}"
            module = module if module in files else node.module or ""
            if module in files:
                yield module


# --- matches are exhaustive: mypy names each fold that a new event, or effect, concerns


def open_matches(source: str) -> list[int]:
    """Lines of `case _` that do anything but `assert_never`."""
    if " case " not in source:
        return []  # to parse them all takes seconds
    cases = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.match_case))
    return [
        case.pattern.lineno
        for case in cases
        if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
        if not ast.unparse(case.body[0]).startswith("assert_never(")
    ]


@pytest.mark.parametrize("package", ["scheduler", "simulator"])
def test_no_match_passes_over_what_it_does_not_name(package: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line in open_matches(path.read_text(encoding="utf-8"))
    ]
    assert not wrong


def test_an_open_match_is_seen() -> None:
    body = "match event:\n    case A():\n        pass\n    case {}:\n        {}\n"
    assert open_matches(body.format("_", "pass")) == [4]
    assert open_matches(body.format("event", "return")) == [4]
    assert open_matches(body.format("_", "assert_never(event)")) == []


# --- docs/glossary.md names classes that exist, and a class name has one meaning ------

PAGE = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
# Words that say nothing of the thing that they name.
EMPTY = frozenset(
    {"told", "found", "gone", "one", "what", "how", "asked", "mind", "company", "taste", "story"}
)


def modules_of_classes() -> dict[str, list[str]]:
    """The modules in which each public class name is defined at top level."""
    modules = defaultdict(list)
    for module, path in sorted(module_files().items()):
        for name in re.findall(r"^class ([^_]\w*)", path.read_text(encoding="utf-8"), re.M):
            modules[name].append(module)
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
        f"{module}:{line} {name}"
        for module, path in sorted(module_files().items())
        if module.split(".")[0] in ("muster", "scheduler")
        for name, line in names_in(path)
        if name in EMPTY
    ]
    assert empty == []
