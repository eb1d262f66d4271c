"""The exit codes of `muster`, which docs/operations.md has as a table."""

from __future__ import annotations

FAILED = 1
BAD_INPUT = 2
INFEASIBLE = 4
NOT_A_MEMBER = 6  # of the gang, as a host of `rendezvous`
UNKNOWN = 6  # whether a cluster has the job
BROKEN = 70  # a fault of muster: EX_SOFTWARE
TIMED_OUT = 124  # as `timeout` of coreutils
INTERRUPTED = 130  # as shells report SIGINT

EXIT_CODES = {"placed": 0, "insufficient": 3, "infeasible": INFEASIBLE, "undecided": 5}
"""Of the answers to a placement."""
