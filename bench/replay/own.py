"""One replay by muster, in a process of its own: jobs in, start times and seconds out.

python -m bench.replay.own JOBS.swf HOSTS POLICY OUT.json
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from bench.replay.one_run import write_run
from placement.fabric.reader import from_spec
from placement.fabric.tree import Fabric
from scheduler.core import SchedulingOptions, State
from scheduler.core.model.events import Event, JobStarted
from scheduler.core.model.job import SECOND_NS
from scheduler.interpreter import expect_no_cycles
from simulator.collectors.metrics import Metrics
from simulator.collectors.recorder import EventLogWriter
from simulator.experiment import Experiment
from simulator.replay import Replay
from simulator.traces.load import TraceFile, find_format


def machine(hosts: int) -> Fabric:
    """Return a fabric of one tier of hosts with a processor each."""
    tiers = [{"name": "zone", "count": 1}, {"name": "host", "count": hosts}]
    return from_spec({"name": "machine", "gpus_per_host": 1, "tiers": tiers})


def simulate(jobs: Path, hosts: int, policy: str) -> dict[str, Any]:
    """Replay jobs as `muster replay` does, log and totals included."""
    expect_no_cycles()
    starts: dict[str, int] = {}
    begin = time.process_time()
    metrics, log = Metrics(), EventLogWriter()

    def sink(event: Event, state: State) -> None:
        metrics.feed(event, state)
        log.feed(event)
        if isinstance(event, JobStarted):
            starts[event.name] = event.time_ns // SECOND_NS

    experiment = Experiment(machine(hosts), SchedulingOptions(policy=policy))
    trace = TraceFile(jobs, find_format("swf"), lambda path, bad: None)
    replay = Replay(experiment, trace, sink)
    metrics.follow(replay)
    replay.run()
    totals = metrics.totals(hosts)
    return {"seconds": time.process_time() - begin, "starts": starts, "totals": totals}


if __name__ == "__main__":
    sys.exit(write_run(simulate, __doc__))
