"""make bench-time: seconds of a training step, muster against what other schedulers do.

    python -m bench.steps.seconds [--count 28] [--seed 1 --seed 101] [--json FILE] [--docs FILE]
    python -m bench.steps.seconds --from FILE [--docs FILE]     # the tables again, nothing run

Published jobs on fabrics that others partly fill (instances.py). Every layout is counted by
the same model of a step (placement/objective/step_time.py); muster's is checked as a certificate.
The exit code is 1 when a peer is faster by more than `cut_slack`, or cuts less within it.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bench.steps.instances import FABRICS, JOBS, StepInstance, timed
from bench.steps.peers import PEERS, placed
from bench.tables import percent, quantile, renew_page, table
from placement import warm_up
from placement.fabric import hostset
from placement.objective.check import violations
from placement.objective.cut import cut
from placement.objective.fitted_constants import fitted_constants
from placement.objective.step_time import step_time
from placement.tiers.step_clock import RESOLUTION
from placement.workload.request import Objective

PROVED, AT = 0.01, 0.9  # within which gap steps are proved, in which share of the instances
MOST_S, BIG_MEDIAN_S = 3.0, 1.0  # to solve: at p99, and for 16,384 GPUs in the median
BIG = "405b-16k"
SEEDS = (1, 101)
SLACK = fitted_constants().resolution


@dataclass(frozen=True, slots=True)
class PeerStepRow:
    """One instance: seconds of a step, muster's and by peer. `cut`: bytes between zones. `solve_s`:
    that muster took, by the clock; `cpu_s`: on both cores together."""

    name: str
    fabric: str
    job: str
    busy: float
    seconds: float
    bound: float
    solve_s: float
    cpu_s: float
    cut: int
    peers: dict[str, float]
    peer_cuts: dict[str, int]

    @property
    def gap(self) -> float:
        return self.seconds / self.bound - 1

    def gain(self, peer: str) -> float:
        """Return by which share the peer's step is longer."""
        return self.peers[peer] / self.seconds - 1

    @property
    def best(self) -> float:
        """Return the gain over the fastest peer that is not muster."""
        return min(self.gain(peer) for peer in PEERS if not peer.startswith("muster"))


def measured(inst: StepInstance) -> PeerStepRow:
    fabric = inst.fabric
    free = np.flatnonzero(hostset.to_mask(inst.free, fabric.host_count)).astype(np.int64)
    gang = inst.request.hosts_needed(fabric.gpus_per_host)
    request = replace(inst.request, objective=Objective.TIME)
    began, began_cpu = time.perf_counter(), _cpu_s()
    answer = placed(inst, request)
    solve_s, cpu_s = time.perf_counter() - began, _cpu_s() - began_cpu
    wrong = violations(fabric, inst.free, request, answer)
    assert not wrong, wrong
    assert answer.step is not None
    chosen = {name: choose(inst, free, gang) for name, choose in PEERS.items()}
    layouts = {name: np.asarray(hosts).tolist() for name, hosts in chosen.items()}
    peers = {name: step_time(fabric, inst.request, on).seconds for name, on in layouts.items()}
    cuts = {n: cut(fabric, inst.request, on)[0].bytes_per_step for n, on in layouts.items()}
    step, where = answer.step, inst.name.split()
    return PeerStepRow(
        name=inst.name,
        fabric=where[1],
        job=where[2],
        busy=inst.busy,
        seconds=step.seconds,
        bound=step.least_seconds,
        solve_s=solve_s,
        cpu_s=cpu_s,
        cut=answer.cut,
        peers=peers,
        peer_cuts=cuts,
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def faster_peers(rows: Sequence[PeerStepRow]) -> list[tuple[PeerStepRow, str]]:
    """Return rows with peers that are faster by more than the slack given up for the cut."""
    return [(r, peer) for r in rows for peer in r.peers if r.gain(peer) < -SLACK - 1 / RESOLUTION]


def cutting_less(
    rows: Sequence[PeerStepRow], *, is_own: bool = False
) -> list[tuple[PeerStepRow, str]]:
    """Return peers that send fewer bytes between zones at a step within the slack of the shortest.
    `is_own`: muster itself with the objective `cut`, which searches longer for that."""
    return [
        (r, peer)
        for r in rows
        for peer, seconds in r.peers.items()
        if peer.startswith("muster") == is_own
        and seconds <= (1 + SLACK) * min(r.seconds, *r.peers.values())
        and r.peer_cuts[peer] < r.cut
    ]


def peer_table(rows: Sequence[PeerStepRow]) -> str:
    head = ("peer", "its step is longer, mean", "p90", "most", "in", "shorter in")
    body = [_gains(peer, rows, [r.gain(peer) for r in rows]) for peer in PEERS]
    body.append(_gains("*the best of them but muster*", rows, [r.best for r in rows]))
    return table(head, body)


def _gains(name: str, rows: Sequence[PeerStepRow], gains: Sequence[float]) -> Sequence[str]:
    mean = math.exp(sum(math.log1p(g) for g in gains) / len(gains)) - 1
    slower, faster = (sum(s * g > 1 / RESOLUTION for g in gains) for s in (1, -1))
    return [
        *(name, percent(mean), percent(quantile(gains, 0.9)), percent(max(gains))),
        *(f"{slower} of {len(rows)}", str(faster)),
    ]


def group_table(rows: Sequence[PeerStepRow]) -> str:
    """Write gains over two peers, gaps, and times to solve, by fabric and by job."""
    head = (
        *("", "instances", "by name, mean", "most", "fewest domains, mean", "most"),
        *("gap p90", "worst", "solved in, median", "most"),
    )
    body: list[Sequence[object]] = []
    for kind, names in (("fabric", FABRICS), ("job", tuple(JOBS))):
        for name in names:
            some = [r for r in rows if getattr(r, kind) == name]
            if not some:
                continue
            by_peer = [[r.gain(peer) for r in some] for peer in ("by name", "Kueue TAS")]
            gaps, took = [r.gap for r in some], [r.cpu_s for r in some]
            body.append(
                [
                    *(name, len(some)),
                    *(percent(x) for g in by_peer for x in (sum(g) / len(g), max(g))),
                    *(percent(quantile(gaps, 0.9)), percent(max(gaps))),
                    *(f"{quantile(took, 0.5):.2f} s", f"{max(took):.2f} s"),
                ]
            )
    return table(head, body)


def targets(rows: Sequence[PeerStepRow]) -> str:
    gaps, took = [r.gap for r in rows], [r.cpu_s for r in rows]
    big = [r.cpu_s for r in rows if r.job == BIG]
    checks = [
        (
            f"peers faster by {percent(SLACK)}",
            "0",
            str(len(faster_peers(rows))),
            not faster_peers(rows),
        ),
        (
            *("peers that cut less within that", "0"),
            *(str(len(cutting_less(rows))), not cutting_less(rows)),
        ),
        (
            *("gap of the step at p90", f"at most {percent(PROVED)}"),
            *_at_most(quantile(gaps, AT), PROVED),
        ),
        ("time to solve at p99", f"at most {MOST_S:g} s", *_in_time(quantile(took, 0.99), MOST_S)),
        (
            *("16,384 GPUs, median", f"at most {BIG_MEDIAN_S:g} s"),
            *_in_time(quantile(big, 0.5), BIG_MEDIAN_S),
        ),
    ]
    body = [
        [what, goal, found, "met" if is_met else "missed"] for what, goal, found, is_met in checks
    ]
    own = [1 - r.peer_cuts[peer] / r.cut for r, peer in cutting_less(rows, is_own=True)]
    most = f", by {percent(max(own))} at most" if own else ""
    body.append(["muster, objective cut, cuts less within that", "", f"{len(own)}{most}", ""])
    return table(("target", "goal", "measured", ""), body)


def _at_most(value: float, goal: float) -> tuple[str, bool]:
    return f"{100 * value:.2f} %", value <= goal


def _in_time(value_s: float, goal_s: float) -> tuple[str, bool]:
    return f"{value_s:.2f} s", value_s <= goal_s


def worst_table(rows: Sequence[PeerStepRow]) -> str:
    head = ("instance", "busy", "step", "bound", "gap", "by name", "Kueue TAS", "solved in")
    worst = sorted(rows, key=lambda r: -r.gap)[:6]
    body = [
        [
            *(r.name, percent(r.busy), f"{r.seconds:.3f} s", f"{r.bound:.3f} s", percent(r.gap)),
            *(percent(r.gain(peer)) for peer in ("by name", "Kueue TAS")),
            f"{r.cpu_s:.2f} s",
        ]
        for r in worst
    ]
    return table(head, body)


def text(rows: Sequence[PeerStepRow]) -> str:
    seeds = sorted({r.name.partition(":")[0] for r in rows}, key=int)
    busy = [r.busy for r in rows]
    parts = [
        f"{len(rows)} instances of seeds {', '.join(seeds)}; {percent(min(busy))} to"
        f" {percent(max(busy))} of the hosts are busy, {percent(quantile(busy, 0.5))} in the"
        " median. Times to solve are processor seconds, on both cores together.",
        *("### Targets", targets(rows), "### Against each peer", peer_table(rows)),
        *("### By fabric and by job", group_table(rows)),
        *("### Where the gap is worst", worst_table(rows)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=28, help="instances of each seed")
    parser.add_argument("--seed", type=int, action="append", help="1 and 101 unless given")
    parser.add_argument("--json", type=Path, help="every number, written as it comes")
    parser.add_argument(
        "--from", dest="stored", type=Path, action="append", help="of an earlier run"
    )
    parser.add_argument("--docs", type=Path, help="the page whose tables are renewed")
    args = parser.parse_args()
    rows = [
        PeerStepRow(**row) for path in args.stored or () for row in json.loads(path.read_text())
    ]
    if not args.stored:
        warm_up()  # inner loops are compiled before anything is timed
    for seed in () if args.stored else args.seed or SEEDS:
        for index in range(args.count):
            rows.append(measured(timed(index, seed)))
            if args.json:
                args.json.parent.mkdir(parents=True, exist_ok=True)
                args.json.write_text(json.dumps([asdict(r) for r in rows], indent=1))
    print(text(rows))
    for row, peer in faster_peers(rows):
        print(f"{row.name}: {peer} is {percent(-row.gain(peer))} faster")
    for row, peer in cutting_less(rows):
        print(f"{row.name}: {peer} cuts {percent(1 - row.peer_cuts[peer] / row.cut)} less")
    if args.docs:
        renew_page(text(rows), args.docs)
    return 1 if faster_peers(rows) or cutting_less(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
