"""Matches are exhaustive: mypy names each fold that a new event, or effect, concerns."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def open_matches(source: str) -> list[int]:
    """Lines of `case _` that do anything but `assert_never`."""
    if " case " not in source:
        return []  # to parse them all takes seconds
    cases = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.match_case))
    return [case.pattern.lineno for case in cases if _is_wildcard(case) and not _is_never(case)]


def _is_wildcard(case: ast.match_case) -> bool:
    return isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None


def _is_never(case: ast.match_case) -> bool:
    return ast.unparse(case.body[0]).startswith("assert_never(")


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
