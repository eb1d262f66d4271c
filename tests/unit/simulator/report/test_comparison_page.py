"""Changes in a comparison, as a reader takes them in."""

import pytest

from simulator.report.comparison_page import change_text


@pytest.mark.parametrize(
    ("change", "baseline", "text"),
    [(5, 100, "+5.0 %"), (-50, 100, "-50.0 %"), (890, 100, "+890.0 %"), (21_202.9, 100, "213 x")],
)
def test_a_change_is_a_percentage_until_it_is_a_multiple(
    change: float, baseline: float, text: str
) -> None:
    assert change_text(change, baseline) == text
