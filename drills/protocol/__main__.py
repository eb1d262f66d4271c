"""`python -m drills.protocol`: search all scopes, and print a row of docs/protocol.md for each."""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from drills.protocol import launch_scopes, leader_scopes
from drills.protocol.launches import LaunchScope
from drills.protocol.leaders import Scope
from drills.protocol.scopes import search_scope

SCOPES: tuple[Scope | LaunchScope, ...] = (
    *leader_scopes.QUICK,
    *leader_scopes.WIDE,
    *launch_scopes.QUICK,
    *launch_scopes.WIDE,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m drills.protocol", description=__doc__)
    parser.add_argument("--only", default="", help="scopes whose names contain this")
    parser.add_argument("--cpu-s", type=float, default=300.0, help="at most, for each scope")
    parser.add_argument("--jobs", type=int, default=2, help="scopes at a time")
    parser.add_argument("--settle-every", type=int, default=1, help="1: ask it of every state")
    options = parser.parse_args()
    scopes = [scope for scope in SCOPES if options.only in scope.name]
    if not scopes:
        parser.error(f"no scope is called {options.only!r}")
    one = partial(search_scope, cpu_s=options.cpu_s, settle_every=options.settle_every)
    faults = 0
    print("| scope | states | steps | depth | come right | whole | CPU s |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.jobs, max_tasks_per_child=1) as pool:
        for scope, found in zip(scopes, pool.map(one, scopes), strict=True):
            whole = "yes" if found.is_whole else "no"
            row = f"| {scope.name} | {found.states:,} | {found.steps:,} | {found.depth}"
            print(f"{row} | {found.settled:,} | {whole} | {found.cpu_s:.0f} |", flush=True)
            if found.counterexample is not None:
                faults += 1
                print(found.counterexample, flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
