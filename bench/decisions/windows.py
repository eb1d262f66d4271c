"""What windows cost a decision: the three questions of decide.py, with and without.

    python -m bench.decisions.windows

Twenty windows over the next three days speak for hosts of roce-24k: maintenance of 24 racks
at a time, and reservations of 32 hosts for a tenant or for jobs by name. Every question is
asked of the same queue without windows in turn, and what counts is the ratio of the median
times of the processor. The exit code is 1 when all questions together miss the target.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from bench.decisions import decide as decide_bench
from bench.decisions.decide import NOW_NS, TEAMS, cluster, settled, walled
from scheduler.core import SchedulingOptions, State, decide
from scheduler.core.model.commands import Command
from scheduler.core.policies.tenants import Tenants
from tests.build import end, run, submit
from tests.windows import set_window

MOST_RATIO = 1.3
REPEATS = 31
HOUR_S = 3_600


@dataclass(frozen=True)
class WindowRow:
    """One measured question about windows. Times in milliseconds."""

    question: str
    without_ms: float
    with_ms: float
    starts: tuple[int, int]

    @property
    def ratio(self) -> float:
        return self.with_ms / self.without_ms


def twenty_windows(tenant: str) -> Iterator[Command]:
    """Return twelve windows of maintenance, one every four hours, and eight reservations."""
    for at in range(12):
        first = 24 * (at // 8)
        racks = f"z{at % 8}-r[{first:03d}-{first + 23:03d}]"
        yield set_window(
            f"m{at}", racks, start_s=(2 + 4 * at) * HOUR_S, end_s=(6 + 4 * at) * HOUR_S
        )
    for at in range(8):
        start_s = (3 + 8 * at) * HOUR_S
        whose = {"tenant": tenant} if tenant and at % 2 else {"jobs": (f"demo{at}-*",)}
        yield set_window(f"h{at}", start_s=start_s, end_s=start_s + 6 * HOUR_S, count=32, **whose)


def questions(tenants: Tenants | None) -> Iterator[tuple[str, State, State]]:
    """Return each question with its state without windows and with them."""
    who = f"{len(tenants.tenants)} tenants" if tenants else "one tenant"
    tenant = "team01" if tenants else ""
    bare = walled(cluster(tenants, 1))
    booked = settled(run(bare, *twenty_windows(tenant), now_ns=NOW_NS), NOW_NS)
    yield f"nothing can start, {who}", bare, booked
    leaving = [name for name in booked.index.running[::10] if name in bare.index.running]
    ended = [run(state, *(end(n) for n in leaving), now_ns=NOW_NS) for state in (bare, booked)]
    yield f"{len(leaving)} gangs end, {who}", ended[0], ended[1]
    small = submit("small", 1, limit_s=60, tenant="team00" if tenants else "")
    freed = [with_room(state) for state in (bare, booked)]
    more = [run(state, small, now_ns=NOW_NS) for state in freed]
    yield f"one small job more, {who}", more[0], more[1]


def with_room(state: State) -> State:
    """Return the state after gangs of one host have ended until the queue leaves some hosts
    free."""
    gone = (name for name in state.index.running if state.jobs[name].needed == 1)
    while not state.free:
        state = settled(run(state, end(next(gone)), now_ns=NOW_NS), NOW_NS)
    return state


def measure_question(question: str, bare: State, booked: State) -> WindowRow:
    spent: dict[int, list[float]] = {0: [], 1: []}
    starts = [len(decide(state, NOW_NS, SchedulingOptions()).actions) for state in (bare, booked)]
    for _ in range(REPEATS):
        for which, state in enumerate((bare, booked)):
            begin = time.process_time()
            decide(state, NOW_NS, SchedulingOptions())
            spent[which].append((time.process_time() - begin) * 1e3)
    without_ms, with_ms = (statistics.median(spent[which]) for which in (0, 1))
    return WindowRow(question, without_ms, with_ms, (starts[0], starts[1]))


def total(rows: list[WindowRow]) -> WindowRow:
    without_ms, with_ms = sum(row.without_ms for row in rows), sum(row.with_ms for row in rows)
    return WindowRow("together", without_ms, with_ms, (0, 0))


def table(rows: list[WindowRow]) -> str:
    head = ("decision", "none", "20 windows", "ratio", "starts")
    lines = [f"{head[0]:36}" + "".join(f"{word:>12}" for word in head[1:])]
    for row in rows:
        lines.append(
            f"{row.question:36}{row.without_ms:9.1f} ms{row.with_ms:9.1f} ms{row.ratio:12.2f}"
            f"{'{} / {}'.format(*row.starts):>12}"
        )
    found = total(rows)
    verdict = "" if found.ratio <= MOST_RATIO else "  MISSED"
    lines.append(f"{found.question:60}{found.ratio:12.2f}, at most {MOST_RATIO:.2f}{verdict}")
    return "\n".join(lines)


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    rows = [
        measure_question(*question) for tenants in (None, TEAMS) for question in questions(tenants)
    ]
    print(f"{decide_bench.WAITING:,} waiting, {decide_bench.RUNNING:,} running:")
    print(table(rows))
    return 0 if total(rows).ratio <= MOST_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
