"""docs/threats.md: the tests that it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_NAMED = re.compile(r"`((?:unit|property|integration|drills/fuzz)/[\w/]+\.py)(?:::(\w+))?`")


def test_every_edge_has_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
    rows = [row for row in page.partition("## Each edge")[2].splitlines() if "→" in row][1:]
    assert len(rows) >= 18
    for row in rows:
        named = _NAMED.findall(row.rsplit("|", 2)[1])
        assert named, row
        for path, test in named:
            folder = ROOT if path.startswith("drills/") else ROOT / "tests"
            text = (folder / path).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, (path, test)
