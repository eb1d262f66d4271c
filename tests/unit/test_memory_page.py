"""docs/memory.md has every published figure beside ours; `--rewrite` renews its tables."""

import re
from pathlib import Path
from statistics import median

import pytest

from scripts.published.memory import Figure, figures

PAGE = Path(__file__).parents[2] / "docs" / "memory.md"
FIGURES = figures()


def line(figure: Figure) -> str:
    known = f"| {figure.source} | {figure.what} | {figure.gib:g} | {figure.ours:.1f} |"
    return f"{known} {100 * figure.error:+.1f} % |\n"


def summary() -> str:
    text = "| source | figures | within 10 % | median error | furthest |\n|---|---|---|---|---|\n"
    for source in dict.fromkeys(figure.source for figure in FIGURES):
        text += _summed(source, [figure for figure in FIGURES if figure.source == source])
    return text + _summed("all", FIGURES)


def _summed(name: str, found: list[Figure]) -> str:
    errors = [abs(figure.error) for figure in found]
    near = sum(error <= 0.1 for error in errors)
    middle, last = 100 * median(errors), 100 * max(errors)
    return f"| {name} | {len(found)} | {near} | {middle:.1f} % | {last:.1f} % |\n"


def test_the_tables_are_what_is_computed(pytestconfig: pytest.Config) -> None:
    head = "| source | run | published, GiB | muster | |\n|---|---|---|---|---|\n"
    text = PAGE.read_text()
    for marker, made in (("rows", head + "".join(map(line, FIGURES))), ("summary", summary())):
        pattern = rf"(?<=<!-- {marker} -->\n).*?(?=<!-- end of {marker} -->)"
        text = re.sub(pattern, lambda _, made=made: made, text, flags=re.DOTALL)
    if pytestconfig.getoption("--rewrite"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
