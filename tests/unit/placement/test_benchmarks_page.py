"""docs/benchmarks.md says in words what its tables show."""

import re
from pathlib import Path

from bench.placement.ablation import ABLATION_BEGIN, ABLATION_END
from bench.tables import BEGIN, END

PAGE = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()


def between(begin: str, end: str) -> str:
    return PAGE.partition(begin)[2].partition(end)[0]


def measured(row: str) -> list[str]:
    """Return the numbers in the last column of a row of targets."""
    found = re.search(
        rf"^\| {re.escape(row)} +\|[^|]+\| ([^|]+)\|$", between(BEGIN, END), re.MULTILINE
    )
    assert found is not None, row
    return re.findall(r"[0-9.]+", found[1])


def test_what_is_said_of_proofs_and_gaps_stands_in_the_table() -> None:
    said = re.search(
        r"([0-9.]+) % are proved .+?gap is ([0-9.]+) % .+?and ([0-9.]+) % at most", PAGE
    )
    assert said is not None
    assert [said[1]] == measured("proved optimal, all")
    assert [said[2], said[3]] == measured("gap p99 / worst")


def test_each_technique_of_the_ablation_is_in_the_code() -> None:
    rows = re.findall(
        r"^\| ([a-z][^|]+?) +\| +\d+ +\|", between(ABLATION_BEGIN, ABLATION_END), re.MULTILINE
    )
    assert len(rows) > 10
    placement = Path(__file__).parents[3] / "placement"
    source = "".join(path.read_text() for path in placement.rglob("*.py"))
    assert [name for name in rows if f'"{name}"' not in source] == []
