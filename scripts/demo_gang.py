"""The scene of the demonstration in which processes run: a gang, a host that dies, and back."""

from __future__ import annotations

import os
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

from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES
from scheduler.cli.render.text import seconds_text
from scheduler.client import Client
from scheduler.core.policies.job_terms import HangAction, HangTerms, RunSpec
from scheduler.files.inputs import read_job
from scheduler.v1 import job_pb2, service_pb2

ROOT = Path(__file__).parent.parent
FABRIC = {
    "name": "six-hosts",
    "gpus_per_host": 4,
    "nic_gbps": 400,
    "tiers": [{"name": "rack", "count": 1}, {"name": "host", "count": 6}],
}
STEPS, RANKS, QUIET = 150, 16, "quiet"
_BEGAN = re.compile(r"attempt (\d+): from step (\d+) at ([\d.]+)")


def run_a_gang(folder: Path) -> None:
    heading("8. Real processes: a gang, a host that dies, and a rank that stands still")
    say(
        "So far muster decided. Here agents carry it out: six hosts of this machine, an agent on"
        " each; 16 ranks on four of them sum vectors over sockets, step by step, and rank 0 saves"
        " every ten steps. When a rank ends, all others do, as in a real training."
    )
    home = folder / "gang"
    home.mkdir()
    (home / "fabric.yaml").write_text(yaml.safe_dump(FABRIC))
    options = ("--launcher", "local", "--agent-lease-s", "5")
    command("muster serve --fabric six-hosts.yaml --launcher local")
    with closing(Server(home, str(home / "fabric.yaml"), options)) as server:
        answer(server.start())
        with Client(server.address) as client:
            job = start(client, home)
            stand_still(client, home)
            lose_a_host(client, home, job)
            find_a_hang(client)
        check(server.end(signal.SIGTERM) == 0, "the server did not stop cleanly")


def start(client: Client, home: Path) -> job_pb2.Job:
    spec = read_job(str(ROOT / "examples" / "gang" / "job.yaml")).spec
    command("muster submit examples/gang/job.yaml")
    submitted_s = time.time()
    client.create_job(replace(spec, run=run_of(home / "saved")))
    job = until(client, lambda job: job.saved_checkpoint.step > 0, "a first checkpoint")
    at_s, _ = began(client, 1)
    rows = [["host", "ranks"]]
    for block, host in enumerate(job.placement.hosts):
        rows.append([host, f"{4 * block}-{4 * block + 3}"])
    rows += [[host, "spare"] for host in job.placement.spares]
    table(rows, right=())
    say(f"All 16 ranks had made their first step {seconds_text(at_s - submitted_s)} after submit.")
    return job


def stand_still(client: Client, home: Path) -> None:
    """Run a second gang, one rank of which stops for ever without ending."""
    spec = read_job(str(ROOT / "examples" / "gang" / "job.yaml")).spec
    small = Parallelism(tp=4)
    command("muster submit quiet.yaml   # one host, hang: {after_s: 4, action: restart}")
    client.create_job(
        replace(
            spec,
            name=QUIET,
            request=replace(spec.request, parallelism=small, spares=NO_SPARES),
            run=run_of(home / QUIET),
            hang=HangTerms(4, HangAction.RESTART),
        )
    )
    job = until(client, lambda job: job.saved_checkpoint.step > 0, "a checkpoint", QUIET)
    (host,) = job.placement.hosts
    command(f"kill -STOP $(a rank on {host})")
    os.kill(LocalHost(home / "muster.db.agents" / host).ranks()[-1], signal.SIGSTOP)


def find_a_hang(client: Client) -> None:
    """Say what was found of it meanwhile."""
    job = until(client, lambda job: job.state == job_pb2.JOB_STATE_COMPLETED, "its end", QUIET)
    hung = service_pb2.JOB_CHANGE_HUNG
    found = next(each for each in client.watch_jobs(0, QUIET) if each.change == hung)
    say("The rank that was stopped meanwhile ended nothing, and no step came any more. The log:")
    answer(f"hang of {QUIET}: {found.job.hang}")
    check("others wait for rank" in found.job.hang, "the rank that was stopped is not named")
    command(f"muster logs {QUIET} --attempt 1 --stacks")
    stacks = b"".join(client.tail_logs(QUIET, 0, attempt=1, stacks=True)).decode()
    answer(next(line.strip() for line in stacks.splitlines() if "train.py" in line))
    text = b"".join(client.tail_logs(QUIET)).decode()
    step = int(_BEGAN.findall(text)[-1][1])
    check(job.attempt > 1 and step > 0, "the gang was not restarted from its checkpoint")
    say(f"It was stopped and went on from step {step} by itself: its file says so.")


def run_of(saved: Path) -> RunSpec:
    train = (sys.executable, str(ROOT / "examples" / "gang" / "train.py"))
    arguments = ("--steps", str(STEPS), "--save-every", "10", "--checkpoints", str(saved))
    return RunSpec((*train, *arguments), (("PYTHONPATH", str(ROOT)),), "/tmp")


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
    """List the changes of the gang after a moment, up to the next launch."""
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


def until(client: Client, holds: object, goal: str, name: str = "gang") -> job_pb2.Job:
    assert callable(holds)
    with within(PATIENCE_S, goal):
        while not holds(job := client.get_job(name)):
            time.sleep(0.02)
    return job


def state(job: job_pb2.Job) -> str:
    return job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()
