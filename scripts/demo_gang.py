"""The scene of the demonstration in which processes run: a gang, a host that dies, and back."""

from __future__ import annotations

import re
import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import yaml
from local_host import LocalHost
from telling import PATIENCE_S, Server, answer, check, command, heading, say, table, within

from scheduler.cli.render.text import seconds_text
from scheduler.client import Client
from scheduler.core.policies.run import RunSpec
from scheduler.files.inputs import read_job
from scheduler.v1 import job_pb2, service_pb2

ROOT = Path(__file__).parent.parent
FABRIC = {
    "name": "five-hosts",
    "gpus_per_host": 4,
    "nic_gbps": 400,
    "tiers": [{"name": "rack", "count": 1}, {"name": "host", "count": 5}],
}
STEPS, RANKS = 150, 16
_BEGAN = re.compile(r"attempt (\d+): from step (\d+) at ([\d.]+)")


def run_a_gang(folder: Path) -> None:
    heading("8. Real processes: a gang, and a host that dies")
    say(
        "So far muster decided. Here agents carry it out: five hosts of this machine, an agent on"
        " each; 16 ranks on four of them sum vectors over sockets, step by step, and rank 0 saves"
        " every ten steps. When a rank ends, all others do, as in a real training."
    )
    home = folder / "gang"
    home.mkdir()
    (home / "fabric.yaml").write_text(yaml.safe_dump(FABRIC))
    options = ("--launcher", "local", "--agent-lease-s", "5")
    command("muster serve --fabric five-hosts.yaml --launcher local")
    with closing(Server(home, str(home / "fabric.yaml"), options)) as server:
        answer(server.start())
        with Client(server.address) as client:
            job = start(client, home)
            lose_a_host(client, home, job)
        check(server.end(signal.SIGTERM) == 0, "the server did not stop cleanly")


def start(client: Client, home: Path) -> job_pb2.Job:
    train = (sys.executable, str(ROOT / "examples" / "gang" / "train.py"))
    arguments = ("--steps", str(STEPS), "--save-every", "10", "--checkpoints", str(home / "saved"))
    run = RunSpec((*train, *arguments), (("PYTHONPATH", str(ROOT)),), "/tmp")
    spec = read_job(str(ROOT / "examples" / "gang" / "job.yaml")).spec
    command("muster submit examples/gang/job.yaml")
    submitted_s = time.time()
    client.create_job(replace(spec, run=run))
    job = until(client, lambda job: job.saved_checkpoint.step > 0, "a first checkpoint")
    at_s, _ = began(client, 1)
    rows = [["host", "ranks"]]
    for block, host in enumerate(job.placement.hosts):
        rows.append([host, f"{4 * block}-{4 * block + 3}"])
    rows += [[host, "spare"] for host in job.placement.spares]
    table(rows, right=())
    say(f"All 16 ranks had made their first step {seconds_text(at_s - submitted_s)} after submit.")
    return job


def lose_a_host(client: Client, home: Path, before: job_pb2.Job) -> None:
    victim = before.placement.hosts[1]
    host = LocalHost(home / "muster.db.agents" / victim)
    say(f"Now {victim} loses power: kill -9 of its agent and of all that it runs.")
    command(f"kill -9 $(everything on {victim})")
    killed_s = time.time()
    with host.dead():
        job = until(client, is_launched_again, "the next attempt")
        at_s, step = began(client, 2)
        check(victim not in job.placement.hosts, "the gang is still on the host that died")
        moved = set(job.placement.hosts) - set(before.placement.hosts)
        check(moved == set(before.placement.spares), "it is not the spare that joined")
        rows = [["after the kill", ""]]
        for change, text in timeline(client, killed_s):
            rows.append([change, text])
        rows.append([seconds_text(at_s - killed_s), f"first step again, from step {step:,}"])
        table(rows, right={0})
        job = until(client, lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, "its end")
    command("muster logs gang -n 1")
    last = b"".join(client.tail_logs("gang", 0, 1)).decode().strip()
    answer(last)
    total = sum(RANKS * step + RANKS * (RANKS - 1) // 2 for step in range(1, STEPS + 1))
    check(last == f"done: {STEPS} steps, value {total}", "steps were lost or done twice")
    say(
        f"{', '.join(moved)} took over the ranks of {victim} and nobody else moved: stepping again"
        f" {seconds_text(at_s - killed_s)} after the host died. The job is {state(job)}, at attempt"
        f" {job.attempt}."
    )
    check(step > 0, "the gang began anew and not from its checkpoint")


def is_launched_again(job: job_pb2.Job) -> bool:
    return job.attempt == 2 and job.HasField("launch_time")


def timeline(client: Client, since_s: float) -> list[tuple[str, str]]:
    """What the log has after a moment, up to the next launch."""
    said = {
        service_pb2.JOB_CHANGE_INTERRUPTED: "the host is lost, the gang stopped",
        service_pb2.JOB_CHANGE_SWAPPED: "the spare takes its place",
        service_pb2.JOB_CHANGE_LAUNCHED: "all ranks have been started",
    }
    rows = []
    for change in client.watch_jobs(0, "gang"):
        after_s = change.change_time.ToNanoseconds() / 1e9 - since_s
        if after_s > 0 and change.change in said:
            rows.append((seconds_text(after_s), said[change.change]))
            if change.change == service_pb2.JOB_CHANGE_LAUNCHED:
                break
    return rows


def began(client: Client, attempt: int) -> tuple[float, int]:
    """When rank 0 had made the first exchange of an attempt, and from which step it went on."""
    with within(PATIENCE_S, f"the first step of attempt {attempt}"):
        while True:
            text = b"".join(client.tail_logs("gang")).decode()
            for number, step, at_s in _BEGAN.findall(text):
                if int(number) == attempt:
                    return float(at_s), int(step)
            time.sleep(0.02)


def until(client: Client, holds: object, goal: str) -> job_pb2.Job:
    assert callable(holds)
    with within(PATIENCE_S, goal):
        while not holds(job := client.get_job("gang")):
            time.sleep(0.02)
    return job


def state(job: job_pb2.Job) -> str:
    return job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
