"""The table of docs/extending.md, "Where a rule is": files, names and pages that exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    line
    for line in (ROOT / "docs/extending.md").read_text().splitlines()
    if re.search(r"`[a-z_/]+\.py` `\w+`", line) and line.startswith("| ")
]


def names_in(path: Path) -> set[str]:
    """Functions, classes, methods and constants that the file defines."""
    tree = ast.parse(path.read_text())
    defined = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    return defined | {ast.unparse(target) for node in assigned for target in node.targets}


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_each_rule_is_where_the_table_says() -> None:
    assert len(ROWS) >= 10
    for row in ROWS:
        for file, name in re.findall(r"`([a-z_/]+\.py)` `(\w+)`", row):
            path = next(p for p in (ROOT / "scheduler" / file, ROOT / file) if p.exists())
            assert name in names_in(path), (file, name)
        [(page, anchor)] = re.findall(r"\((\w+\.md)#([\w-]+)\)", row)
        assert anchor in headings(ROOT / "docs" / page), row
