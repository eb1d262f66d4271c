"""The scene of the demo in which a trace is replayed."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from telling import MUSTER, check, command, heading, say, table

from scheduler.cli.render.text import seconds_text

CLUSTER = {
    "name": "cluster",
    "gpus_per_host": 8,
    "tiers": [
        {"name": "zone", "count": 4, "oversubscription": 7},
        {"name": "rack", "count": 16},
        {"name": "host", "count": 2},
    ],
}
FIGURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "jobs completed": lambda t: f"{t['completed']} of {t['jobs']}",
    "hosts that failed": lambda t: f"{t['host_failures']}",
    "gangs restarted": lambda t: f"{t['restarts']}",
    "mean wait": lambda t: f"{t['wait_s']['mean'] / 3600:.1f} h",
    "makespan": lambda t: f"{t['makespan_s'] / 86400:.1f} days",
    "hosts in use": lambda t: f"{100 * t['utilization']:.1f} %",
    "goodput": lambda t: f"{100 * t['goodput']:.1f} %",
    "events in the log": lambda t: f"{t['events']:,}",
    "time to replay": lambda t: seconds_text(t["seconds"]),
}


def replay_a_trace(folder: Path) -> None:
    heading("7. Two weeks in seconds")
    trace, fabric = folder / "trace.jsonl", folder / "cluster.yaml"
    fabric.write_text(yaml.safe_dump(CLUSTER))
    count = write_trace(trace)
    say(
        "The simulator runs the same four functions as the server, on a virtual clock."
        f" {count} gangs of 1 to 48 hosts over two weeks on a cluster of 128 hosts, which"
        " fail at the rate of Llama 3's; then the same jobs in strict order of arrival (fifo):"
    )
    options = [str(trace), "--trace-format", "muster", "--fabric", str(fabric), "--seed", "1"]
    options += ["--spares", "auto", "--failures", "poisson:rate=3.79,repair_h=24"]
    command(f"muster replay {' '.join(Path(word).name for word in options)}")
    totals = {policy: replayed(options, policy) for policy in ("production", "fifo")}
    rows = [["", *totals]]
    for name, figure in FIGURES.items():
        rows.append([name, *(figure(total) for total in totals.values())])
    table(rows, right={1, 2})
    for total in totals.values():
        check(total["jobs"] == total["completed"] == count, "not every job was completed")
        check(total["restarts"] > 0, "no gang was hit by a failure")


def write_trace(file: Path) -> int:
    """Two weeks of gangs; how many there are."""
    rng = random.Random(405)
    submit_s = 0.0
    lines: list[str] = []
    while submit_s < 14 * 86_400:
        pp, dp = rng.choice([(1, 1), (1, 4), (2, 4), (4, 4), (4, 8), (4, 12)])
        run_s = rng.lognormvariate(10.2, 1)
        job = {
            "name": f"gang-{len(lines):03d}",
            "submit_s": round(submit_s),
            "run_s": round(run_s),
            "time_limit_s": round(run_s * rng.uniform(1.3, 3)) + 3600,
            "parallelism": {"tp": 8, "pp": pp, "dp": dp},
            "traffic": {"pp": 3_000_000, "dp": 10_000_000},
        }
        lines.append(json.dumps(job))
        submit_s += rng.expovariate(1 / 6_000)
    file.write_text("\n".join(lines) + "\n")
    return len(lines)


def replayed(arguments: list[str], policy: str) -> dict[str, Any]:
    done = subprocess.run(
        [MUSTER, "replay", *arguments, "--policy", policy, "--format", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    check(done.returncode == 0, f"the replay ended badly: {done.stderr.strip()}")
    totals: dict[str, Any] = json.loads(done.stdout)
    return totals
