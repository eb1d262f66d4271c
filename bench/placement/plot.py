"""One picture of what a page of the benchmark says: how much is proved, and what peers cut.

python -m bench.placement.plot docs/benchmarks.md docs/img/placement.png
"""

from __future__ import annotations

import argparse
from itertools import takewhile
from pathlib import Path
from typing import Any

from scheduler.console import theme

Rows = list[dict[str, str]]


def write(page: str, path: Path) -> None:
    """Draw the tables of a page by fabric and by peer."""
    figure, (left, right) = theme.new(3.7, 1, 2, width_ratios=(2, 5))
    _optimal(left, _table(page, "fabric", "optimal"))
    peers = _table(page, "peer", "peer cuts more")
    _shares(right, sorted(peers, key=lambda row: _number(row["peer cuts more"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    with theme.drawing():
        figure.savefig(path, dpi=theme.DPI, facecolor=theme.light("card"))


def _table(page: str, first: str, column: str) -> Rows:
    """Return the rows of the first table that begins with the column `first` and has `column`."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        for line in page.splitlines()
    ]
    at = next(i for i, cells in enumerate(lines) if cells[:1] == [first] and column in cells)
    rows = takewhile(len, lines[at + 2 :])
    return [dict(zip(lines[at], cells, strict=True)) for cells in rows]


def _number(cell: str) -> float:
    return float(cell.removesuffix("%").replace(",", ""))


def _optimal(axes: Any, rows: Rows) -> None:
    """Draw the share of gangs that need several domains whose cut is proved least, by fabric."""
    shares = [_number(row["optimal"]) for row in rows]
    axes.barh(range(len(rows)), shares, color=theme.light("blue"), height=0.6)
    for at, row in enumerate(rows):
        axes.text(
            3, at, row["optimal"], color=theme.light("card"), fontsize=theme.SMALL, va="center"
        )
        if _number(row["p90"]) > 0:
            words = f"9 of 10 within {row['p90']}"
            style: Any = {"color": theme.light("quiet"), "fontsize": theme.SMALL, "va": "center"}
            axes.text(0, at + 0.42, words, **style)
    _rows(axes, [row["fabric"] for row in rows])
    theme.titled(axes, "Gangs proved optimal")


def _shares(axes: Any, rows: Rows) -> None:
    """Draw how often each peer cuts more than muster, as much, and less."""
    left = [0.0] * len(rows)
    parts = (("peer cuts less", "bad"), ("equal", "grey"), ("peer cuts more", "blue"))
    for column, colour in parts:
        shares = [_number(row[column]) for row in rows]
        axes.barh(
            range(len(rows)),
            shares,
            left=left,
            label=column,
            color=theme.light(colour),
            height=0.66,
        )
        left = [before + share for before, share in zip(left, shares, strict=True)]
    for at, row in enumerate(rows):
        ratio = _number(row["median ratio"])
        words = f"{row['peer cuts more']} more" + (f", median {ratio:.2f}x" if ratio > 1 else "")
        axes.text(102, at, words, color=theme.light("ink"), fontsize=theme.SMALL, va="center")
    _rows(axes, [row["peer"] for row in rows])
    theme.titled(axes, "Gangs by what a peer cuts, against muster\n")
    theme.legend(axes)


def _rows(axes: Any, names: list[str]) -> None:
    """Name rows from the top; shares need no axis."""
    theme.styled(axes, grid="")
    axes.grid(visible=False)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    args = parser.parse_args()
    write(args.page.read_text(encoding="utf-8"), args.picture)
