"""What leaves placement leaves by one door, which mypy and the interpreter see alike."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import placement
from tests.cases import case

ROOT = Path(__file__).parents[3]
OUTSIDE = ("scheduler", "importers", "simulator", "scripts")
TYPES = ("fabric", "workload", "objective")


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of each `from module import name`, and (module, "") of `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def test_mypy_is_shown_what_the_table_has() -> None:
    tree = ast.parse(Path(placement.__file__).read_text(encoding="utf-8"))
    shown = defaultdict(set)
    for module, name in imports(tree):
        if module.startswith("placement."):
            shown[module.removeprefix("placement.")].add(name)
    assert shown == {module: set(names) for module, names in placement.MODULES.items()}


def test_what_is_in_the_table_is_there_and_nothing_else() -> None:
    for name in placement.__all__:
        with case(name=name):
            assert getattr(placement, name) is not None
    # An unknown name is no attribute.
    with pytest.raises(AttributeError, match="nowhere"):
        placement.nowhere  # noqa: B018


@pytest.mark.slow
@pytest.mark.parametrize("package", OUTSIDE)
def test_other_packages_come_by_the_door_or_for_types(package: str) -> None:
    sources = {
        path: path.read_text(encoding="utf-8") for path in sorted((ROOT / package).rglob("*.py"))
    }
    past = [
        f"{path.relative_to(ROOT)}: {module}"
        for path, source in sources.items()
        if "placement" in source  # to parse the others takes seconds
        for module, name in imports(ast.parse(source))
        if (module.startswith("placement.") and module.split(".")[1] not in TYPES)
        or (module == "placement" and name not in placement.__all__)
    ]
    assert past == []


def test_importing_placement_loads_nothing_else() -> None:
    code = "import sys, placement; print(sorted(m for m in sys.modules if 'placement' in m))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout.strip() == "['placement']", run.stderr
