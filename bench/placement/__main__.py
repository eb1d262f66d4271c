"""python -m bench.placement: how good placements are, how fast, and against whom.

See docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.peers.scoring import PEERS, absent
from bench.placement import ablation, arnold_setting, duel, many_zones, own, page
from bench.placement.instances import instance
from bench.placement.numbers import PlacementRun, engine_commit, read, write
from bench.tables import renew_page
from placement.warmup import warm_up
from scheduler.interpreter import expect_no_cycles

ZONES = (4, 8, 16, 32, 64)


def measure(options: argparse.Namespace) -> PlacementRun:
    """Measure muster first and alone, so that its times and memory are its own; then the peers."""
    began = time.perf_counter()
    seed, traces = options.seed, options.traces
    run = PlacementRun(seed, traces, engine_commit())
    warm_up()  # as a server does, before it answers
    expect_no_cycles()
    for i in range(options.instances):
        run.rows.append(own.solve(instance(i, seed, traces))[0])
    _say(f"{len(run.rows)} instances solved", began)
    extra = 8 if options.quick else 200
    run.small = own.small_jobs(extra, seed, traces)
    run.refusals = own.refusals(extra, seed)
    run.peak_bytes = own.peak_memory_bytes()
    if not options.quick:
        run.scaling = own.scaling(ZONES, 9, seed)
        run.spreads = arnold_setting.run(5, seed)
        _say("small jobs, refusals, scaling and spread measured", began)
    names = _peers(options.peers)
    if names:
        run.absent = {p: why for p, why in absent().items() if p in names}
        for peer, why in run.absent.items():
            print(f"{peer} is skipped: {why} is not installed", file=sys.stderr)
        names = [n for n in names if n not in run.absent]
        run.scores = duel.scores(run.rows, names, traces, options.jobs)
    run.seconds = time.perf_counter() - began
    _say("done", began)
    return run


def _say(what: str, began: float) -> None:
    print(f"[{time.perf_counter() - began:5.0f} s] {what}", file=sys.stderr)


def _peers(text: str) -> list[str]:
    if text in ("all", "none"):
        return list(PEERS) if text == "all" else []
    names = text.split(",")
    unknown = [n for n in names if n not in PEERS]
    if unknown:
        raise SystemExit(f"unknown peers {', '.join(unknown)}; known are {', '.join(PEERS)}")
    return names


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    if options.mode == "zones":
        return _zones(options)
    if options.mode == "ablation":
        return _ablation(options)
    run = read(Path(options.read)) if options.read else measure(options)
    print(page.text(run, every_family=options.families))
    if options.json:
        write(run, Path(options.json))
    if options.docs:
        renew_page(page.text(run), Path(options.docs))
    if options.plot:
        from bench.placement import plot

        plot.write(page.text(run), Path(options.plot))
    wrong = duel.wrong_bounds(run.duels)
    for d in wrong:
        print(f"WRONG BOUND {d.row.seed}:{d.row.index}: {d.row.bound} > {d.theirs} by {d.score}")
    return 1 if wrong else 0


def _zones(options: argparse.Namespace) -> int:
    """Very many zones, and growth with zones."""
    warm_up()
    expect_no_cycles()
    tables = many_zones.text(many_zones.run(options.seed, options.quick)) + "\n"
    print(tables)
    if options.docs:
        renew_page(tables, Path(options.docs), page.ZONES_BEGIN, page.ZONES_END)
    return 0


def _ablation(options: argparse.Namespace) -> int:
    """Measure what each technique buys, and print the table."""
    if options.read:
        measured = ablation.read(Path(options.read))
    else:
        warm_up()
        expect_no_cycles()
        names = [name for name in options.without.split(",") if name]
        path = Path(options.json) if options.json else None
        measured = ablation.measure(options.instances, options.seed, names, path)
    tables = ablation.text(measured)
    print(tables)
    if options.docs:
        markers = ablation.ABLATION_BEGIN, ablation.ABLATION_END
        renew_page(tables, Path(options.docs), *markers)
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__)
    parser.add_argument("--mode", choices=("instances", "zones", "ablation"), default="instances")
    parser.add_argument("--instances", type=int, help="336, or 12 with --quick")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", default="", help="all, none, or names with commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the peers")
    parser.add_argument("--quick", action="store_true", help="a handful, no peers")
    parser.add_argument("--traces", default="", help="folder of the real traces")
    parser.add_argument("--families", action="store_true", help="a row for every family")
    parser.add_argument("--without", default="", help="techniques to leave out; all unless given")
    parser.add_argument("--json", default="", help="write every number to this file")
    parser.add_argument("--from", dest="read", default="", help="numbers of an earlier --json")
    parser.add_argument("--docs", default="", help="renew the tables of this page")
    parser.add_argument("--plot", default="", help="draw into this PNG")
    options = parser.parse_args(argv)
    options.instances = options.instances or (12 if options.quick else 336)
    options.peers = options.peers or ("none" if options.quick else "all")
    return options


if __name__ == "__main__":
    sys.exit(main())
