"""One run of CQSim, in a process of its own: jobs in, start times and seconds out.

    python -m bench.replay.cqsim SOURCES JOBS.swf HOSTS POLICY OUT.json

SOURCES: the folder `src` of a copy of CQSim (github.com/SPEAR-IIT/CQSim), which is no package.
POLICY: fifo or easy. The queue is ordered by waiting time and without a window; nothing is written
to its debug log, results are written at the end, and nobody monitors: each makes it faster. EASY
as it comes reserves and backfills by run times, not by the limits that users state.
Source: Yang et al., "Integrating Dynamic Pricing of Electricity into Energy Aware Scheduling for
HPC Systems" (SC 2013).
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.replay.one_run import write_run

OFTEN = 10**9  # lines and jobs that are read or written at once
BACKFILL = {"fifo": 0, "easy": 1}
ID, START = 0, 7  # columns of the results


def simulate(sources: Path, jobs: Path, hosts: int, policy: str) -> dict[str, Any]:
    """Simulate by CQsim: start times in seconds by job number, and what the run cost, reading the
    jobs included."""
    sys.path.insert(0, str(sources))
    program = import_module("cqsim_main")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "machine.swf").write_text(f"; MaxNodes: {hosts}\n; MaxProcs: {hosts}\n")
        Path(folder, "jobs.swf").write_text(jobs.read_text())
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            begin = time.process_time()
            program.cqsim_main(_parameters(folder, policy))
            seconds = time.process_time() - begin
        lines = Path(folder, "out.rst").read_text().splitlines()
    rows = [line.split(";") for line in lines]
    return {"seconds": seconds, "starts": {row[ID]: int(float(row[START])) for row in rows}}


def _parameters(folder: str, policy: str) -> dict[str, Any]:
    files = {f"path_{name}": f"{folder}/" for name in ("in", "out", "fmt", "debug")}
    names = {"job_save": "jobs", "node_save": "node", "output": "out", "debug": "debug"}
    ends = {
        **{"ext_fmt_j": ".csv", "ext_fmt_n": ".csv", "ext_fmt_j_c": ".con", "ext_fmt_n_c": ".con"},
        **{"ext_jr": ".rst", "ext_si": ".ult", "ext_ai": ".adp", "ext_debug": ".log"},
    }
    reading = {
        **{"job_trace": "jobs.swf", "node_struc": "machine.swf", "start": 0.0, "anchor": 0},
        **{"read_num": -1, "cluster_fraction": 1.0, "read_input_freq": 1_000},
    }
    quiet = {"debug_lvl": 0, "log_freq": OFTEN, "monitor": None}
    rule = {
        **{"alg": ["w", "+", "2"], "alg_sign": [1, 0, 1], "ad_alg_para": []},
        **{"backfill": BACKFILL[policy], "bf_para": []},
        **{"win": 0, "win_para": [1, 1, 1], "ad_win_para": []},
    }
    return {**files, **names, **ends, **reading, **quiet, **rule}


if __name__ == "__main__":
    sys.exit(write_run(simulate, __doc__, "sources"))
