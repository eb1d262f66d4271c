"""Tables in Markdown, and the place of measured ones in a page of docs/."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"

Row = Sequence[object]


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """Write a Markdown table that is readable as text."""
    cells = [list(head), *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def quantile(values: Sequence[float], q: float) -> float:
    return float(np.quantile(values, q)) if len(values) else 0.0


def millis(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def renew_page(tables: str, path: Path, begin: str = BEGIN, end: str = END) -> None:
    """Replace the text between the markers of the page `path` by `tables`."""
    before, _, rest = path.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    path.write_text(f"{before}{begin}\n\n{tables}\n{end}{after}", encoding="utf-8")
