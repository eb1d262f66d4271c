"""The benchmark as a page of tables for docs/benchmarks.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from bench.placement import duel
from bench.placement.arnold_setting import Spread
from bench.placement.instances import instance
from bench.placement.numbers import PlacementRun
from bench.placement.own import Own
from bench.tables import BEGIN, END, Row, millis, percent, quantile, table

ZONES_BEGIN, ZONES_END = BEGIN.replace("measured", "zones"), END.replace("measured", "zones")


def text(run: PlacementRun, *, every_family: bool = False) -> str:
    parts = [_headline(run), "### Targets", targets(run), "### The certificate"]
    parts.append(own_tables(run.rows, every_family=every_family))
    if run.scores:
        parts += ["### Against each peer", *_peers(run)]
    if run.scaling:
        parts += ["### Time against zones", _scaling(run)]
    if run.spreads:
        parts += ["### Arnold's setting", _spreads(run.spreads)]
    worst = worst_gaps(run.rows)
    if worst:
        parts += ["### Where the gap is worst", worst_table(run.rows)]
        parts.append("\n".join(_described(r, run.traces) for r in worst))
    return "\n\n".join(parts) + "\n"


def _headline(run: PlacementRun) -> str:
    lines = [
        f"Engine at commit {run.commit}; {len(run.rows)} instances of seed {run.seed};"
        f" {run.seconds / 60:.0f} minutes in all; peak memory of the engine"
        f" {run.peak_bytes / 2**20:.0f} MiB. Every placement was accepted by the referee."
        f" Lingjun is {'its real host tree' if run.traces else 'the generated equivalent'}."
    ]
    lines += [f"{peer} was skipped: {why} is not installed." for peer, why in run.absent.items()]
    return "\n".join(lines)


def targets(run: PlacementRun) -> str:
    """Write measured values beside the targets of the project."""
    hard = run.rows
    few = [r for r in [*hard, *run.small] if r.gang <= 64]
    gaps = [r.gap for r in hard]
    fabric_24k = [r.seconds for r in hard if r.family.split("/")[0].endswith("24k")]
    fabric_98k = [r.seconds for r in hard if r.family.startswith("roce-98k")]
    small = [r.seconds for r in run.small]
    rows: list[list[object]] = [
        ["proved optimal, all", "95 %", _optimal(hard)],
        ["proved optimal, at most 64 hosts", "99 %", _optimal(few)],
        ["gap median / p90", "0 / 0", f"{_gap(gaps, 0.5)} / {_gap(gaps, 0.9)}"],
        ["gap p99 / worst", "2 % / 5 %", f"{_gap(gaps, 0.99)} / {_gap(gaps, 1)}"],
        ["24K fabrics, median", "0.3 s", millis(quantile(fabric_24k, 0.5))],
        ["24K fabrics, p99", "2 s", millis(quantile(fabric_24k, 0.99))],
        ["98,304 GPUs, p99", "3 s", millis(quantile(fabric_98k, 0.99))],
        ["at most 64 hosts, p99", "10 ms", millis(quantile(small, 0.99))],
    ]
    for name, seconds in run.refusals.items():
        rows.append([f"proved {name}, p99", "50 ms", millis(quantile(seconds, 0.99))])
    rows.append(["peak memory", "1 GB", f"{run.peak_bytes / 2**20:.0f} MiB"])
    rows += [*_twin_target(run), *_growth_target(run), *_spread_target(run), *_peer_targets(run)]
    return table(("measure", "target", "measured"), rows)


def _growth_target(run: PlacementRun) -> list[list[object]]:
    if not run.scaling:
        return []
    few, many = min(run.scaling), max(run.scaling)
    growth = quantile(run.scaling[many], 0.5) / quantile(run.scaling[few], 0.5)
    what = f"growth of time from {few} to {many} zones, all unlike"
    return [[what, f"{many / few:.0f}x", f"{growth:.1f}x"]]


def _twin_target(run: PlacementRun) -> list[list[object]]:
    """Jobs on the large fabric, beside those on one with a quarter of its zones."""
    small, large = (
        [r.seconds for r in run.rows if r.family.startswith(fabric)]
        for fabric in ("roce-24k", "roce-98k")
    )
    if not small or not large:
        return []
    median, p99 = (quantile(large, q) / quantile(small, q) for q in (0.5, 0.99))
    what = "growth of time from RoCE-24K to RoCE-98K, median / p99"
    return [[what, "4x", f"{median:.1f}x / {p99:.1f}x"]]


def _spread_target(run: PlacementRun) -> list[list[object]]:
    ratios = [
        min(v for w, v in s.spread.items() if w not in ("muster", "Arnold-MIP"))
        / s.spread["muster"]
        for s in run.spreads
    ]
    if not ratios:
        return []
    worse = f"{sum(r < 1 for r in ratios)} of {len(ratios)}"
    best = max(v / s.spread["muster"] for s in run.spreads for v in s.spread.values())
    return [
        ["Arnold's setting: larger spread than a baseline's", "0", worse],
        ["Arnold's setting: best case over any baseline", "1.5x", f"{best:.1f}x"],
        ["Arnold's setting: best case over the best baseline", "-", f"{max(ratios):.2f}x"],
    ]


def _peer_targets(run: PlacementRun) -> list[list[object]]:
    rows: list[list[object]] = []
    if run.scores:
        beaten = [d for d in run.duels if d.score.peer == "bands alone" and d.ratio < 1]
        rows.append(["instances where bands alone cut less", "0", len(beaten)])
        lost = duel.smaller_cuts([d for d in run.duels if d.score.peer != "bands alone"])
        at_top = [d for d in lost if d.row.tier == 0]
        rows.append(
            ["instances where any peer cuts less", "0", f"{len(lost)} ({len(at_top)} outermost)"]
        )
        wrong = len({d.row.index for d in duel.wrong_bounds(run.duels)})
        rows.append(["bounds above a peer's feasible cut", "0", wrong])
    return rows


def _optimal(rows: Sequence[Own]) -> str:
    return percent(float(np.mean([r.is_optimal for r in rows]))) if rows else "-"


def _gap(gaps: Sequence[float], q: float) -> str:
    return percent(quantile(gaps, q))


def _peers(run: PlacementRun) -> list[str]:
    """Where domains of the outermost tier are cut, then inside one of them."""
    every = run.duels
    parts = []
    for title, is_top in (("Outermost tier:", True), ("Inner tiers, inside one domain:", False)):
        some = [d for d in every if (d.row.tier == 0) == is_top]
        kept = {d.row.index for d in some}
        failed = duel.failures({i: s for i, s in run.scores.items() if i in kept})
        if some:
            parts += [title, duel.duel_table(some, failed)]
    if duel.smaller_cuts(every):
        parts += [
            "Where a peer cuts less (the best peer, worst first):",
            duel.worst_losses_table(every),
        ]
        parts.append(_losses_by_family(every))
    return parts


def _losses_by_family(every: Sequence[duel.Duel]) -> str:
    lost: dict[str, int] = defaultdict(int)
    for d in duel.smaller_cuts(every):
        fabric, _, job = d.row.family.split("/")
        lost[f"{fabric}, {job}"] += 1
    return "Lost by fabric and job: " + "; ".join(f"{k} {n}" for k, n in sorted(lost.items())) + "."


def _scaling(run: PlacementRun) -> str:
    base = quantile(next(iter(run.scaling.values())), 0.5)
    rows = [
        (
            zones,
            millis(quantile(s, 0.5)),
            millis(max(s)),
            f"{quantile(s, 0.5) / base:.1f}x",
            f"{zones / next(iter(run.scaling)):.0f}x",
        )
        for zones, s in run.scaling.items()
    ]
    return table(("zones", "median", "worst", "time ratio", "zone ratio"), rows)


def _spreads(spreads: Sequence[Spread]) -> str:
    """Ratio of each baseline's spread to ours; `worse` counts where ours is larger."""
    who = [name for name in spreads[0].spread if name != "muster"]
    by_name: dict[tuple[str, float], list[Spread]] = defaultdict(list)
    for s in spreads:
        by_name[s.name, s.alpha].append(s)
    rows = []
    for (name, alpha), some in by_name.items():
        ratios = [
            _cell([s.spread[w] / s.spread["muster"] for s in some if w in s.spread]) for w in who
        ]
        rows.append([name, alpha, *ratios, millis(max(s.seconds for s in some))])
    ratios = [_cell([s.spread[w] / s.spread["muster"] for s in spreads if w in s.spread])
              for w in who]  # fmt: skip
    rows.append(["all", "", *ratios, millis(max(s.seconds for s in spreads))])
    note = (
        "Weighted max spread of each baseline over muster's: median (least to most);"
        " below 1 the baseline is better.\n\n"
    )
    return note + table(("setting", "alpha", *who, "muster, slowest"), rows)


def _cell(ratios: Sequence[float]) -> str:
    if not ratios:
        return "-"
    return f"{quantile(ratios, 0.5):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _described(row: Own, traces: str) -> str:
    return f"- {row.seed}:{row.index} {instance(row.index, row.seed, traces).describe()}"


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
    """Write muster's own results in total, by fabric, by capacity and by kind of job; instances of
    cut 0 apart."""
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


def worst_gaps(rows: Sequence[Own], count: int = 15) -> list[Own]:
    return sorted((r for r in rows if r.gap > 0), key=lambda r: (-r.gap, r.index))[:count]


def worst_table(rows: Sequence[Own], count: int = 15) -> str:
    return table(
        ("instance", "family", "hosts", "cut", "bound", "gap", "time"),
        [
            (f"{r.seed}:{r.index}", r.family, r.gang, r.cut, r.bound, percent(r.gap),
             millis(r.seconds))
            for r in worst_gaps(rows, count)
        ],
    )  # fmt: skip
