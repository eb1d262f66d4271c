"""Numbers in, text out: the tables of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from bench.own import Own

Row = Sequence[object]


def table(head: Sequence[str], rows: Iterable[Row]) -> str:
    """A markdown table, readable as it stands."""
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


HEAD = ("", "instances", "optimal", "gap median", "p90", "p99", "worst", "time median", "p99")


def summary_row(name: str, rows: Sequence[Own]) -> Row:
    gaps = [r.gap for r in rows]
    times = [r.seconds for r in rows]
    return (
        name,
        len(rows),
        percent(float(np.mean([r.is_optimal for r in rows]))),
        *(percent(quantile(gaps, q)) for q in (0.5, 0.9, 0.99, 1)),
        millis(quantile(times, 0.5)),
        millis(quantile(times, 0.99)),
    )


def own_tables(rows: Sequence[Own], *, every_family: bool = False) -> str:
    """In total, by fabric, by capacity and by kind of job; instances of cut 0 apart."""
    hard = [r for r in rows if not r.is_trivial]
    parts = [table(HEAD, _groups(rows, hard))]
    groups: list[tuple[str, Callable[[Own], str]]] = [
        ("fabric", lambda r: r.family.split("/")[0]),
        ("free capacity", lambda r: r.family.split("/")[1]),
        ("job", lambda r: r.family.split("/")[2]),
    ]
    if every_family:
        groups.append(("family", lambda r: r.family))
    for title, key in groups:
        named = {key(r): [x for x in hard if key(x) == key(r)] for r in hard}
        parts.append(table((title, *HEAD[1:]), [summary_row(n, named[n]) for n in sorted(named)]))
    return "\n\n".join(parts)


def _groups(rows: Sequence[Own], hard: Sequence[Own]) -> list[Row]:
    named = [
        ("all", rows),
        ("one domain holds the gang", [r for r in rows if r.is_trivial]),
        ("several domains needed", hard),
        ("- at most 64 hosts", [r for r in hard if r.gang <= 64]),
        ("- more", [r for r in hard if r.gang > 64]),
    ]
    return [summary_row(name, some) for name, some in named if some]


def worst(rows: Sequence[Own], count: int = 15) -> list[Own]:
    return sorted((r for r in rows if r.gap > 0), key=lambda r: (-r.gap, r.index))[:count]


def worst_table(rows: Sequence[Own], count: int = 15) -> str:
    return table(
        ("instance", "family", "hosts", "cut", "bound", "gap", "time"),
        [
            (f"{r.seed}:{r.index}", r.family, r.gang, r.cut, r.bound, percent(r.gap),
             millis(r.seconds))
            for r in worst(rows, count)
        ],
    )  # fmt: skip
