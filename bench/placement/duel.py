"""muster against each peer: who cuts less, by how much, and whether the bound holds."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

from bench.peers.graph import tasks
from bench.peers.scoring import Guarded, Score
from bench.placement.instances import instance
from bench.placement.own import Own
from bench.tables import percent, quantile, table

_RUNNING: dict[str, Guarded] = {}


def scores(
    rows: Sequence[Own], names: Sequence[str], traces: str, jobs: int
) -> dict[int, list[Score]]:
    """Score every peer on every instance, by index of the instance."""
    indices = [(r.index, r.seed) for r in rows if r.tier is not None]
    work = partial(_one, names=tuple(names), traces=traces)
    if jobs <= 1:
        found = _collect_with_progress(map(work, indices), len(indices))
        for peer in _RUNNING.values():
            peer.close()
        _RUNNING.clear()
    else:
        with ProcessPoolExecutor(jobs) as pool:
            found = _collect_with_progress(pool.map(work, indices), len(indices))
    return {i: some for (i, _), some in zip(indices, found, strict=True)}


def _collect_with_progress(results: Iterable[list[Score]], count: int) -> list[list[Score]]:
    """Collect all results; print progress every 50 instances."""
    done = []
    for result in results:
        done.append(result)
        if len(done) % 50 == 0:
            print(f"peers: {len(done)} of {count} instances", file=sys.stderr)
    return done


def _one(which: tuple[int, int], names: tuple[str, ...], traces: str) -> list[Score]:
    alternatives = tasks(instance(*which, traces))
    for name in names:
        if name not in _RUNNING:
            _RUNNING[name] = Guarded(name)
    return [_RUNNING[name].score(alternatives) for name in names]


@dataclass(frozen=True, slots=True)
class Duel:
    """One instance on which one peer answered."""

    row: Own
    score: Score
    theirs: int

    @property
    def ratio(self) -> float:
        """Peer's cut over ours: above 1 is a win of ours."""
        ours = self.row.deciding_cut
        return self.theirs / ours if ours else 1.0 if self.theirs == 0 else float("inf")


def duels(rows: Sequence[Own], found: dict[int, list[Score]]) -> list[Duel]:
    return [
        Duel(row, score, score.cut)
        for row in rows
        for score in found.get(row.index, ())
        if score.cut is not None
    ]


def wrong_bounds(every: Iterable[Duel]) -> list[Duel]:
    """Return the duels in which a peer's feasible cut is below muster's bound, which is then
    wrong."""
    return [d for d in every if d.row.tier == 0 and d.theirs < d.row.bound]


def duel_table(every: Sequence[Duel], failed: dict[str, int]) -> str:
    by_peer: dict[str, list[Duel]] = defaultdict(list)
    for duel in every:
        by_peer[duel.score.peer].append(duel)
    head = ("peer", "instances", "failed", "repaired", "peer cuts more", "equal", "peer cuts less",
            "median ratio", "p90", "median time")  # fmt: skip
    return table(head, [_duel_row(p, some, failed.get(p, 0)) for p, some in by_peer.items()])


def _duel_row(peer: str, some: Sequence[Duel], failed: int) -> list[object]:
    ratios = [d.ratio for d in some]
    count = len(some)
    return [
        peer,
        count,
        failed,
        percent(sum(d.score.is_repaired for d in some) / count),
        percent(sum(r > 1 for r in ratios) / count),
        percent(sum(r == 1 for r in ratios) / count),
        percent(sum(r < 1 for r in ratios) / count),
        f"{quantile(ratios, 0.5):.2f}",
        f"{quantile(ratios, 0.9):.2f}",
        f"{quantile([d.score.seconds for d in some], 0.5):.2f} s",
    ]


def failures(found: dict[int, list[Score]]) -> dict[str, int]:
    count: dict[str, int] = defaultdict(int)
    for some in found.values():
        for score in some:
            count[score.peer] += score.cut is None
    return dict(count)


def smaller_cuts(every: Iterable[Duel]) -> list[Duel]:
    """Return the best peer of each instance where a peer cuts less than muster, worst first."""
    best: dict[int, Duel] = {}
    for duel in every:
        if duel.ratio < 1:
            known = best.get(duel.row.index)
            best[duel.row.index] = min(known or duel, duel, key=lambda d: d.ratio)
    return sorted(best.values(), key=lambda d: (d.ratio, d.row.index))


def worst_losses_table(every: Sequence[Duel], count: int = 20) -> str:
    head = ("instance", "family", "hosts", "tier", "muster", "peer", "cut", "ratio", "bound")
    return table(
        head,
        [
            (
                f"{d.row.seed}:{d.row.index}",
                d.row.family,
                d.row.gang,
                d.row.tier,
                d.row.deciding_cut,
                d.score.peer,
                d.theirs,
                f"{d.ratio:.3f}",
                d.row.bound if d.row.tier == 0 else "-",
            )
            for d in smaller_cuts(every)[:count]
        ],
    )
