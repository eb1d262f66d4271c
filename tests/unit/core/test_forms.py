"""Forms that the code of the scheduler keeps: failures are types, policies are values."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = [
    path
    for package in ("scheduler", "importers", "simulator")
    for path in sorted((ROOT / package).rglob("*.py"))
    if ROOT / "scheduler" / "v1" not in path.parents
]
NO_FAILURE = {"_scalar", "_spares_text", "__getitem__", "_read_rule"}  # all are results


def members(annotation: ast.expr) -> Iterator[str]:
    """The members of a union, as text."""
    if isinstance(annotation, ast.BinOp):
        yield from members(annotation.left)
        yield from members(annotation.right)
    else:
        yield ast.unparse(annotation)


@pytest.mark.slow
def test_no_function_answers_with_a_sentence_instead_of_its_result() -> None:
    sentences = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.returns is None:
                continue
            found = set(members(node.returns)) - {"None"}
            if "str" in found and len(found) > 1 and node.name not in NO_FAILURE:
                sentences.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
    assert sentences == []


def test_no_call_packs_arguments_only_to_save_lines() -> None:
    """`f(*(a, b, c))` is `f(a, b, c)`, whose formatter may take a line for each."""
    packed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        if "*(" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for argument in node.args
        if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
    ]
    assert packed == []
