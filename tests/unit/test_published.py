"""Every published value that is cheap to compute comes out, and the table can say no."""

import pytest

from scripts import published
from scripts.published import Evidence, Row, Value, check, table, tolerance

ROWS = published.rows()


def test_numbers_are_unique_and_in_order() -> None:
    numbers = [row.number for row in ROWS]
    assert len(set(numbers)) == len(numbers)
    assert numbers.index("1") < numbers.index("1b")


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        ("= 1 / a", (1, "a"), (1, "b")),
        ("1.229 ± 0.01", 1.238, 1.24),
        ("200 ± 1 %", 202.0, 202.1),
        ("1 to 2", 1.5, 2.1),
        ("differs: -2 to -1", -2, -0.9),
        ("1 to 2 / 0 to 3", (2, 0), (2, 4)),
        ("1 / 2 ± 0.5", (1.5, 1.5), (1.5, 1.5, 1.5)),
    ],
)
def test_a_tolerance_tells_right_from_wrong(text: str, right: Value, wrong: Value) -> None:
    assert tolerance(text).holds(right)
    assert not tolerance(text).holds(wrong)


def test_the_table_names_what_fails() -> None:
    rows = (
        Row("1", "good", "2", lambda: 2, tolerance("= 2"), Evidence.INPUT),
        Row("2", "bad", "2.50", lambda: 3.25, tolerance("2.5 ± 0.1"), Evidence.DERIVED),
    )
    head, good, bad = table(check(row) for row in rows).splitlines()
    assert head.split() == ["row", "what", "evidence", "published", "ours", "tolerance", "s"]
    assert good.split()[:7] == ["1", "good", "input", "2", "2", "exact", "pass"]
    assert bad.split()[:8] == ["2", "bad", "derived", "2.50", "3.25", "±", "0.1", "FAIL"]
