"""Two pictures: how far from proved optimal, and what each peer cuts beside us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bench.numbers import Run
from simulator.report import theme


def write(run: Run, path: Path) -> None:
    figure, (left, right) = theme.new(3.6, 1, 2)
    _gaps(left, run)
    _ratios(right, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=theme.DPI)


def _gaps(axes: Any, run: Run) -> None:
    """Share of instances with at most this gap, by fabric."""
    hard = [r for r in run.rows if not r.is_trivial]
    for number, fabric in enumerate(sorted({r.family.split("/")[0] for r in hard})):
        gaps = sorted(100 * r.gap for r in hard if r.family.startswith(fabric))
        share = np.arange(1, len(gaps) + 1) / len(gaps)
        axes.step(
            [0, *gaps], [share[0], *share], where="post", label=fabric, **theme.line_style(number)
        )
    axes.set_xscale("symlog", linthresh=0.5)
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("gap between cut and bound, %")
    axes.set_ylabel("share of instances")
    theme.titled(axes, "Certificate (gangs that need several domains)")
    theme.legend(axes, loc="lower right", bbox_to_anchor=(1, 0), ncols=1)


def _ratios(axes: Any, run: Run) -> None:
    """Peer's cut over muster's."""
    by_peer: dict[str, list[float]] = {}
    for d in run.duels:
        by_peer.setdefault(d.score.peer, []).append(min(max(d.ratio, 0.1), 100))
    names = sorted(by_peer, key=lambda p: float(np.median(by_peer[p])), reverse=True)
    if names:
        axes.boxplot(
            [by_peer[n] for n in names],
            orientation="horizontal",
            tick_labels=names,
            whis=(1, 99),
            medianprops={"color": theme.light("red")},
            flierprops={"markersize": 3},
        )
    axes.axvline(1, color=theme.light("ink"), linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("peer's cut over muster's (whiskers: 1 % and 99 %)")
    theme.titled(axes, "Against each peer: right of 1 muster cuts less")
    axes.grid(visible=False, axis="y")
    theme.styled(axes, grid="x")
