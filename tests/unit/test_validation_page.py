"""docs/validation.md shows what `make validate` computes today.

`pytest tests/unit/test_validation_page.py --rewrite` renews its table.
"""

import re
from pathlib import Path

import pytest

from scripts import published
from scripts.published import Row, check

PAGE = Path(__file__).parents[2] / "docs" / "validation.md"
TABLE = re.compile(r"(?<=<!-- rows -->\n).*?(?=<!-- end of rows -->)", re.DOTALL)
HEAD = "| row | what | evidence | published | ours | tolerance |\n|---|---|---|---|---|---|\n"


def line(row: Row) -> str:
    done = check(row)
    assert done.passed, f"{row.what}: {row.published} published, {done.ours} ours"
    tolerance = f"{row.tolerance.text}, slow" if row.slow else row.tolerance.text
    known = f"| {row.number} | {row.what} | {row.evidence} | {row.published}"
    return f"{known} | {done.ours_text} | {tolerance} |\n"


@pytest.mark.slow
def test_the_table_is_what_is_computed(pytestconfig: pytest.Config) -> None:
    text = PAGE.read_text()
    if pytestconfig.getoption("--rewrite"):
        PAGE.write_text(TABLE.sub(HEAD + "".join(map(line, published.rows())), text))
        return
    missing = [row.number for row in published.rows() if not row.slow and line(row) not in text]
    assert not missing


def test_every_row_is_in_the_table_and_explained() -> None:
    text = PAGE.read_text()
    table = TABLE.search(text)
    assert table is not None
    shown = re.findall(r"^\| (\d+[a-z]?) \|", table[0], re.MULTILINE)
    assert shown == [row.number for row in published.rows()]
    explained = set(re.findall(r"\d+", " ".join(re.findall(r"^\*\*([\d, ]+):", text, re.M))))
    assert {re.match(r"\d+", number)[0] for number in shown} == explained  # type: ignore[index]


def test_what_the_page_shows_of_slow_rows_is_within_their_tolerance() -> None:
    """`make validate` alone computes them: the page must not show a value that fails there."""
    table = TABLE.search(PAGE.read_text())
    assert table is not None
    cells = [line.split(" | ") for line in table[0].removeprefix(HEAD).splitlines()]
    shown = {cell[0].removeprefix("| "): cell[4] for cell in cells}
    single = {
        row: shown[row.number]
        for row in published.rows()
        if row.slow and "/" not in shown[row.number]
    }
    assert len(single) > 15
    assert not [
        f"{row.number}: {text}"
        for row, text in single.items()
        if not row.tolerance.holds(float(text))
    ]
