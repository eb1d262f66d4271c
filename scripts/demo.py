"""The main job end to end on one machine: `make demo`.

Every figure comes from a running server, its log or a replay; nothing is prepared. Each
step is checked, and the first that does not do what it says ends the story with exit
code 1. Everything is made in a temporary directory that is gone afterwards.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from demo_gang import run_a_gang
from demo_lab import measure_a_placement
from demo_replay import replay_a_trace
from telling import (
    MUSTER,
    PATIENCE_S,
    NotAsTold,
    Server,
    answer,
    check,
    command,
    console,
    heading,
    say,
    table,
    within,
)

from placement import at_random, consecutive
from placement.fabric.tree import Fabric, Ints
from placement.objective.cut import cut
from placement.objective.step_time import step_time
from placement.workload.parallelism import Parallelism
from placement.workload.request import NO_SPARES, Request
from scheduler.cli.render.text import bytes_text, percent_text, seconds_text
from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.files.inputs import load_fabric, read_job
from scheduler.v1 import host_pb2, job_pb2, placement_pb2, service_pb2

ROOT = Path(__file__).parent.parent
FABRIC = ROOT / "examples" / "fabric-tapered-24k.yaml"
GANGS = 80  # that come before the story begins; half of them are gone again
BIG, SECOND, SMALL = "deepseek-v3", "llama3-405b", "small"


@dataclass(frozen=True)
class Stage:
    """Server, client and fabric that all scenes share."""

    server: Server
    client: Client
    fabric: Fabric


def example(name: str) -> JobSpec:
    return read_job(str(ROOT / "examples" / f"{name}.yaml")).spec


def submit(stage: Stage, name: str) -> job_pb2.Job:
    command(f"muster submit examples/{name}.yaml")
    return stage.client.create_job(example(name))


def changes_until(
    stage: Stage, last: str, name: str, after_version: int = 0
) -> dict[str, service_pb2.WatchJobsResponse]:
    """The changes of a job after a version, by kind, up to the first of kind `last`."""
    seen: dict[str, service_pb2.WatchJobsResponse] = {}
    with within(PATIENCE_S, f"{name}: {last.lower()}"):
        for change in stage.client.watch_jobs(after_version, name):
            kind = service_pb2.JobChange.Name(change.change).removeprefix("JOB_CHANGE_")
            seen[kind] = change
            if kind == last:
                break
    return seen


def nanoseconds(change: service_pb2.WatchJobsResponse) -> int:
    return int(change.change_time.ToNanoseconds())


def begin(server: Server, fabric: Fabric) -> None:
    zones = fabric.tiers[0]
    heading("1. A busy cluster and a scheduler")
    say(
        f"{fabric.name} has {len(zones.domains)} zones of"
        f" {fabric.host_count // len(zones.domains)} hosts with {fabric.gpus_per_host} GPUs each,"
        f" {fabric.host_count * fabric.gpus_per_host:,} GPUs in all. The uplinks of a rack carry"
        " half of what its hosts can send, those of a zone a seventh of what its racks can."
    )
    command(f"muster serve --fabric examples/{FABRIC.name} --store sqlite:///muster.db")
    answer(server.start())


def fill(stage: Stage) -> None:
    """Gangs of others come and go: what they leave free lies in pieces."""
    rng = random.Random(1)
    sizes = {f"gang-{i}": int(2 ** rng.uniform(2, 7)) for i in range(GANGS)}
    small = example(SMALL)
    assert small.time_limit_s is not None
    for name, hosts in sizes.items():
        axes = Parallelism(tp=stage.fabric.gpus_per_host, dp=hosts)
        request = Request(axes, traffic=(("dp", 10**9),), spares=NO_SPARES)
        gang = replace(small, name=name, request=request, time_limit_s=7 * small.time_limit_s)
        stage.client.create_job(gang)
    with within(PATIENCE_S, "the start of all gangs"):
        while any(state(job) != "running" for job in stage.client.list_jobs()):
            time.sleep(0.05)
    for name in rng.sample(sorted(sizes), GANGS // 2):
        stage.client.end_job(name, job_pb2.JOB_STATE_COMPLETED)
    free, every = len(free_hosts(stage)), stage.fabric.host_count
    say(
        f"{GANGS} gangs of 4 to 127 hosts have come and half of them are gone:"
        f" {percent_text(1 - free / every)} of the hosts are busy, and the free ones lie in pieces."
    )


def free_hosts(stage: Stage) -> Ints:
    """In the order of their names."""
    healthy = stage.client.list_hosts([host_pb2.HOST_STATE_HEALTHY])
    names = [host.name for host in healthy if not host.job]
    return np.sort(np.array(stage.fabric.indices(names), dtype=np.int64))


def place_big_job(stage: Stage) -> tuple[job_pb2.Job, Request]:
    spec = example(BIG)
    request, shape = spec.request, spec.request.parallelism
    heading("2. One job on 2,048 GPUs, and what its placement is worth")
    say(
        f"DeepSeek-V3: {shape.world_size:,} ranks = {shape.size('ep')} expert-parallel x"
        f" {shape.size('pp')} pipeline stages x {shape.size('dp')} replicas. They start together"
        f" or not at all, on {request.hosts_needed(stage.fabric.gpus_per_host):,} hosts."
    )
    free = free_hosts(stage)
    submit(stage, BIG)
    changes = changes_until(stage, "STARTED", BIG)
    took_ns = nanoseconds(changes["STARTED"]) - nanoseconds(changes["SUBMITTED"])
    job = stage.client.get_job(BIG)
    check(job.state == job_pb2.JOB_STATE_RUNNING, f"{BIG} does not run: {job.reason}")
    check(job.placement.host_count == 256, "the gang is not on 256 hosts")
    compare_steps(stage, free, job, request)
    show_cuts(stage.fabric, request, job.placement)
    say(f"Decided in {seconds_text(took_ns / 1e9)}, from submission to the whole gang's start.")
    say(step_certificate(job.placement))
    say(certificate(job.placement))
    return job, request


def compare_steps(stage: Stage, free: Ints, job: job_pb2.Job, request: Request) -> None:
    """The step on muster's hosts and on those that others would take, counted alike."""
    gang = request.hosts_needed(stage.fabric.gpus_per_host)
    layouts = {
        "muster": stage.fabric.indices(job.placement.hosts),
        "fewest domains": consecutive(stage.fabric)(free, gang).tolist(),
        "by host name": free[:gang].tolist(),
        "at random": at_random("1")(free, gang).tolist(),
    }
    steps = {name: step_time(stage.fabric, request, hosts) for name, hosts in layouts.items()}
    least_s = steps["muster"].seconds
    rows = [["the same job", "a step takes", "", "the step waits for", "busiest link"]]
    for name, step in steps.items():
        slower = "" if name == "muster" else f"+{percent_text(step.seconds / least_s - 1)}"
        waits = ", ".join(f"{a.load.traffic.axis} {seconds_text(a.exposed_s)}" for a in step.axes)
        rows.append([name, seconds_text(step.seconds), slower, waits, step.busiest_link])
    table(rows, right={1, 2})
    check(
        all(step.seconds > 1.02 * least_s for name, step in steps.items() if name != "muster"),
        "another placement is as fast",
    )
    said_s = job.placement.step_time.ToNanoseconds() / 10**9
    check(abs(said_s - least_s) < 1e-6, "the step is not what the server says")


def step_certificate(placement: placement_pb2.Placement) -> str:
    times = (placement.step_time_lower_bound, placement.step_time)
    least_s, step_s = (time.ToNanoseconds() / 10**9 for time in times)
    check(0 < least_s <= step_s, "the lower bound is above the step")
    return (
        f"Proved: no placement on the free hosts takes less than {seconds_text(least_s)} a step;"
        f" this one takes {seconds_text(step_s)}."
    )


def show_cuts(fabric: Fabric, request: Request, placement: placement_pb2.Placement) -> None:
    """Print the cuts that the server states, recounted from the list of hosts."""
    counted = cut(fabric, request, fabric.indices(placement.hosts))
    rows = [["crosses", "bytes per step", "by axis"]]
    for stated, recounted in zip(placement.cuts, counted, strict=True):
        check(
            (stated.bytes_per_step, dict(stated.by_axis))
            == (recounted.bytes_per_step, dict(recounted.by_axis)),
            f"the {stated.tier} cut is not what the hosts say",
        )
        axes = ", ".join(f"{axis} {bytes_text(b)}" for axis, b in recounted.by_axis)
        rows.append([f"{recounted.tier}s", bytes_text(recounted.bytes_per_step), axes])
    table(rows, right={1})


def certificate(placement: placement_pb2.Placement) -> str:
    least, top = placement.lower_bound_bytes_per_step, placement.cuts[0].bytes_per_step
    check(0 <= least <= top, "the lower bound is above the cut")
    if placement.optimal:
        return (
            f"Proved: no placement on the free hosts sends less than {bytes_text(top)} over zones."
        )
    return (
        f"Proved: no placement on the free hosts sends less than {bytes_text(least)} over zones;"
        f" this one is at {bytes_text(top)}, a gap of {100 * placement.gap:.2f} %."
    )


def where_it_does_not_matter() -> None:
    heading("3. Where placement moves bytes, not seconds")
    say(
        "Llama 3 405B on 16,384 GPUs of a cluster that is empty, and narrow only between zones:"
        " nearly all that the step waits for stays inside hosts, and the rest hides behind compute."
        " Any tidy order is as fast, and muster says so:"
    )
    words = ["place", f"examples/{SECOND}.yaml", "--fabric", "roce-24k"]
    command(f"muster {' '.join(words)}")
    done = subprocess.run(
        [MUSTER, *words, "--format", "json"], cwd=ROOT, capture_output=True, text=True
    )
    check(done.returncode == 0, done.stderr)
    placed = json.loads(done.stdout)
    least_s = placed["step"]["lower_bound_seconds"]
    rows = [["the same job", "a step takes", ""]]
    for name, estimate in placed["estimate"]["placements"].items():
        slower = "" if name == "muster" else percent_text(estimate["step_seconds"] / least_s - 1)
        rows.append([name.replace("_", " "), seconds_text(estimate["step_seconds"]), slower])
    table(rows, right={1, 2})
    check(placed["step"]["seconds"] < 1.01 * least_s, "the step is far from its bound")
    say(
        f"Proved: no placement there is faster than {seconds_text(least_s)}. It is fragmentation"
        " and narrow racks that cost time."
    )
    zones = placed["cut"]["zone"]
    by_name = placed["estimate"]["placements"]["by_name"]["cut_bytes_per_step"]
    check(zones["optimal"], "the cut between zones is not proved")
    rows = [["zone", "hosts", "spares"]]
    rows += [[d["name"], str(d["hosts"]), str(d["spares"])] for d in placed["domains"]]
    say(
        f"Bytes between zones differ: {bytes_text(zones['bytes_per_step'])} a step, and no"
        " placement sends less (branch and price on OR-Tools); hosts by name"
        f" {bytes_text(by_name)}. Whole stages fill zones, and those without spares"
        " are named:"
    )
    table(rows, right={1, 2})
    short = placed["spare_shortages"]
    check(bool(short), "full zones lack no spares")
    say(
        f"{len(short)} zones are short. A gang that stops for a failure there moves a few blocks"
        " and has spares in all of its zones from then on."
    )


def fail_a_host(stage: Stage, before: job_pb2.Job, request: Request) -> None:
    heading("4. A host fails")
    fabric = stage.fabric
    kept = {fabric.domain(spare) for spare in fabric.indices(before.placement.spares)}
    failed = next(
        (h for h in before.placement.hosts if fabric.domain(fabric.index_by_name[h]) in kept),
        before.placement.hosts[0],
    )
    where = fabric.domain(fabric.index_by_name[failed])
    spares = "with spares" if kept else "without a spare"
    say(
        "At this scale a host fails every few hours, and the whole gang stands still. The"
        f" spares are there for that. {failed}, {spares} in its zone, loses a GPU:"
    )
    command(f"muster report {failed} --signal gpu-lost")
    stage.client.report_host(failed, "gpu-lost")
    changes = changes_until(stage, "SWAPPED", BIG, before.version)
    took_ns = nanoseconds(changes["SWAPPED"]) - nanoseconds(changes["INTERRUPTED"])
    after = stage.client.get_job(BIG)
    pairs = zip(before.placement.hosts, after.placement.hosts, strict=True)
    moved = [(b, old, new) for b, (old, new) in enumerate(pairs) if old != new]
    check([old for _, old, _ in moved] == [failed], "other hosts than the failed one were left")
    block, _, joined = moved[0]
    show_swap(fabric, request, before, after, (block, failed, joined))
    was_spare = "a spare of the job" if joined in before.placement.spares else "a free host"
    zone = fabric.domain(fabric.index_by_name[joined])
    same = "the same zone" if zone == where else f"zone {zone}, for {where} has none"
    say(
        f"{joined}, {was_spare} in {same}, took over block {block}. Decided and durable"
        f" {seconds_text(took_ns / 1e9)} after the report; the job is at attempt {after.attempt}."
    )
    check(after.attempt == before.attempt + 1, "the swap began no new attempt")
    if kept:
        check(zone == where, "a spare was kept in the zone and not used")


def show_swap(
    fabric: Fabric,
    request: Request,
    before: job_pb2.Job,
    after: job_pb2.Job,
    swap: tuple[int, str, str],
) -> None:
    block, failed, joined = swap
    per_host = fabric.gpus_per_host
    ranks = request.parallelism.world_size
    cuts = [cut(fabric, request, fabric.indices(j.placement.hosts))[0] for j in (before, after)]
    rows = [
        ["", "before", "after"],
        [f"ranks {block * per_host:,}-{(block + 1) * per_host - 1:,}", failed, joined],
        [f"the other {ranks - per_host:,} ranks", "", "not moved"],
        ["over zones per step", *(bytes_text(c.bytes_per_step) for c in cuts)],
        ["spares left", *(str(j.placement.spare_count) for j in (before, after))],
    ]
    table(rows, right=())
    stated = after.placement.cuts[0].bytes_per_step
    check(stated == cuts[1].bytes_per_step, "the zone cut after the swap is not what hosts say")
    same_zone = fabric.domain(fabric.index_by_name[failed]) == fabric.domain(
        fabric.index_by_name[joined]
    )
    check(not same_zone or cuts[0] == cuts[1], "a swap inside the zone changed the zone cut")


def fill_up(stage: Stage) -> None:
    heading("5. The next one waits, a small one does not")
    free = len(free_hosts(stage))
    needs = example(SECOND).request.hosts_needed(stage.fabric.gpus_per_host)
    say(f"{free:,} hosts are free. Llama 3 405B needs {needs:,}:")
    waiting = submit(stage, SECOND)
    reason = stage.client.explain_job(SECOND)
    check(waiting.state == job_pb2.JOB_STATE_QUEUED, f"{SECOND} does not wait")
    command(f"muster explain {SECOND}")
    answer(reason.reason.sentence)
    say("Whatever does not delay it may overtake it:")
    submit(stage, SMALL)
    changes_until(stage, "STARTED", SMALL)
    command("muster jobs")
    jobs = {job.spec.name: job for job in stage.client.list_jobs()}
    rows = [["job", "state", "hosts", "spares"]]
    for job in (jobs[name] for name in (BIG, SECOND, SMALL)):
        held_now = [str(job.placement.host_count or "-"), str(job.placement.spare_count or "-")]
        rows.append([job.spec.name, state(job), *held_now])
    table(rows, right={2, 3})
    check(state(jobs[SECOND]) == "queued", f"{SECOND} does not wait any more")
    check(state(jobs[SMALL]) == "running", f"{SMALL} does not run")


def state(job: job_pb2.Job) -> str:
    return job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()


def facts(stage: Stage) -> tuple[int, dict[str, job_pb2.Job]]:
    """The version of the log, and every job in full but for what changes by the second."""
    jobs = {job.spec.name: stage.client.get_job(job.name) for job in stage.client.list_jobs()}
    version = max(job.version for job in jobs.values())
    for job in jobs.values():
        job.reason = ""
        job.ClearField("goodput")
    return version, jobs


def kill_and_restart(stage: Stage) -> None:
    heading("6. kill -9")
    say(
        "Nothing is acknowledged before it is on disk. So the server may die at any moment,"
        " without warning:"
    )
    version, jobs = facts(stage)
    command("kill -9 SERVER; muster serve --store sqlite:///muster.db")
    check(stage.server.end(signal.SIGKILL) == -signal.SIGKILL, "the server was not killed")
    begin_s = time.perf_counter()
    line = stage.server.start()
    took_s = time.perf_counter() - begin_s
    answer(line)
    check(facts(stage) == (version, jobs), "after the restart the jobs are not what they were")
    held = sum(job.placement.host_count + job.placement.spare_count for job in jobs.values())
    say(
        f"Back in {seconds_text(took_s)} with everything: version {version} of the log,"
        f" {len(jobs)} jobs in the states they were in, {held:,} hosts and spares where they were."
    )


def stop(stage: Stage, number: int) -> None:
    heading(f"{number}. The end")
    command("kill SERVER")
    code = stage.server.end(signal.SIGTERM)
    check(code == 0, f"the server ended with exit code {code}")
    say("SIGTERM: the server finished what it was asked and stopped cleanly, exit code 0.")


def tell(folder: Path, server: Server, fabric: Fabric) -> None:
    begin(server, fabric)
    with Client(server.address) as client:
        stage = Stage(server, client, fabric)
        fill(stage)
        job, request = place_big_job(stage)
        where_it_does_not_matter()
        fail_a_host(stage, job, request)
        fill_up(stage)
        kill_and_restart(stage)
        replay_a_trace(folder)
        run_a_gang(folder)
        stop(stage, 9 + measure_a_placement(folder))


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin_s = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="muster-demo-") as name:
            folder = Path(name)
            with closing(Server(folder, str(FABRIC))) as server:
                tell(folder, server, load_fabric(str(FABRIC)))
    except (NotAsTold, ServiceError) as error:
        console.print(f"\nThis is not what should have happened: {error}", style="bold red")
        return 1
    except KeyboardInterrupt:
        console.print("\nStopped; nothing is left behind.")
        return 130
    console.print(f"\nAll of it in {seconds_text(time.perf_counter() - begin_s)}.", style="bold")
    return 0


if __name__ == "__main__":
    sys.exit(main())
