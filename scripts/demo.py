"""The main job end to end on one machine: `make demo`.

Every figure comes from a running server, its log or a replay; nothing is prepared. Each
step is checked, and the first that does not do what it says ends the story with exit
code 1. Everything is made in a temporary directory that is gone afterwards.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from demo_replay import replay_a_trace
from telling import (
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

from placement.fabric.tree import Fabric, preset
from placement.objective.cut import cut, egress
from placement.workload.request import Request
from scheduler.cli.render.text import bytes_text, seconds_text
from scheduler.client import Client, ServiceError
from scheduler.core import JobSpec
from scheduler.files.inputs import read_job
from scheduler.v1 import host_pb2, job_pb2, placement_pb2, service_pb2

ROOT = Path(__file__).parent.parent
FABRIC = "roce-24k"
BIG, SECOND, SMALL = "llama3-405b", "llama3-405b-8k-gpus", "small"


@dataclass(frozen=True)
class Stage:
    """What all scenes share."""

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


def begin(server: Server) -> None:
    fabric = preset(FABRIC)
    zones = fabric.tiers[0]
    heading("1. A cluster and a scheduler")
    say(
        f"{FABRIC} is modelled on the network that trained Llama 3: {len(zones.domains)} zones of"
        f" {fabric.host_count // len(zones.domains)} hosts with {fabric.gpus_per_host} GPUs each,"
        f" {fabric.host_count * fabric.gpus_per_host:,} GPUs in all. Between zones there is only"
        " a seventh of the bandwidth that there is inside one, so what matters is how many"
        " bytes a job sends from zone to zone in each training step: its cut."
    )
    command(f"muster serve --fabric {FABRIC} --store sqlite:///muster.db")
    answer(server.start())


def place_big_job(stage: Stage) -> tuple[job_pb2.Job, Request]:
    spec = example(BIG)
    request, shape = spec.request, spec.request.parallelism
    heading("2. One job on 16,384 GPUs")
    say(
        f"Llama 3 405B: {shape.world_size:,} ranks = {shape.size('tp')} tensor-parallel x"
        f" {shape.size('pp')} pipeline stages x {shape.size('dp')} replicas. They start together"
        f" or not at all, on {request.hosts_needed(stage.fabric.gpus_per_host):,} hosts."
    )
    submit(stage, BIG)
    changes = changes_until(stage, "STARTED", BIG)
    took_ns = nanoseconds(changes["STARTED"]) - nanoseconds(changes["SUBMITTED"])
    job = stage.client.get_job(BIG)
    check(job.state == job_pb2.JOB_STATE_RUNNING, f"{BIG} does not run: {job.reason}")
    check(job.placement.host_count == 2048, "the gang is not on 2,048 hosts")
    show_zones(stage.fabric, request, job.placement)
    show_cuts(stage.fabric, request, job.placement)
    say(
        f"Decided in {seconds_text(took_ns / 1e9)}, from submission to the whole gang's start."
        f" {certificate(job.placement)}"
    )
    return job, request


def show_zones(fabric: Fabric, request: Request, placement: placement_pb2.Placement) -> None:
    zones = fabric.tiers[0]
    hosts, spares = fabric.indices(placement.hosts), fabric.indices(placement.spares)
    held, kept = (Counter(fabric.domain(host) for host in some) for some in (hosts, spares))
    leaving = egress(fabric, request, hosts)
    rows = [["zone", "hosts", "spares", "leaves per step", "time on its uplink"]]
    for i, zone in enumerate(zones.domains):
        if held[zone] or kept[zone]:
            uplink_s = leaving[i] / float(zones.uplink_bytes_per_s[i])
            sent = [bytes_text(leaving[i]), seconds_text(uplink_s)]
            rows.append([zone, str(held[zone]), str(kept[zone]), *sent])
    table(rows, right=range(1, 5))


def show_cuts(fabric: Fabric, request: Request, placement: placement_pb2.Placement) -> None:
    """What the server says, recounted from the list of hosts."""
    counted = cut(fabric, request, fabric.indices(placement.hosts))
    rows = [["crosses", "bytes per step", "by axis"]]
    for told, found in zip(placement.cuts, counted, strict=True):
        check(
            (told.bytes_per_step, dict(told.by_axis))
            == (found.bytes_per_step, dict(found.by_axis)),
            f"the {told.tier} cut is not what the hosts say",
        )
        axes = ", ".join(f"{axis} {bytes_text(b)}" for axis, b in found.by_axis)
        rows.append([f"{found.tier}s", bytes_text(found.bytes_per_step), axes])
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


def compare_orders(stage: Stage, job: job_pb2.Job, request: Request) -> None:
    heading("3. What the order of the hosts is worth")
    say(
        "A list of hosts is half an answer: which rank goes where is the other half. The same"
        " hosts, with the ranks laid out along the host names and at random, counted alike:"
    )
    placed = stage.fabric.indices(job.placement.hosts)
    shuffled = list(placed)
    random.Random(1).shuffle(shuffled)
    orders = {"muster": placed, "by host name": sorted(placed), "random": shuffled}
    tops = {name: cut(stage.fabric, request, hosts)[0] for name, hosts in orders.items()}
    least = tops["muster"].bytes_per_step
    rows = [["order of hosts", "over zones", "", "worst uplink", "by axis"]]
    for name, top in tops.items():
        times = f"{top.bytes_per_step / least:.1f} x" if least else ""
        axes = ", ".join(f"{axis} {bytes_text(b)}" for axis, b in top.by_axis)
        worst = seconds_text(worst_uplink_s(stage.fabric, request, orders[name]))
        rows.append([name, bytes_text(top.bytes_per_step), times, worst, axes])
    table(rows, right={1, 2, 3})
    check(
        least < min(tops["by host name"].bytes_per_step, tops["random"].bytes_per_step),
        "another order of the same hosts cuts no more",
    )


def worst_uplink_s(fabric: Fabric, request: Request, hosts: Sequence[int]) -> float:
    uplinks = fabric.tiers[0].uplink_bytes_per_s
    leaving = egress(fabric, request, hosts)
    return max(b / float(uplink) for b, uplink in zip(leaving, uplinks, strict=True))


def fail_a_host(stage: Stage, before: job_pb2.Job, request: Request) -> None:
    heading("4. A host fails")
    fabric = stage.fabric
    kept = {fabric.domain(spare) for spare in fabric.indices(before.placement.spares)}
    failed = next(
        (h for h in before.placement.hosts if fabric.domain(fabric.index_by_name[h]) in kept),
        before.placement.hosts[0],
    )
    where = fabric.domain(fabric.index_by_name[failed])
    beside = "with spares" if kept else "without a spare"
    say(
        "At this scale a host fails every few hours, and the whole gang stands still. The"
        f" spares are there for that. {failed}, {beside} in its zone, loses a GPU:"
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
    told = after.placement.cuts[0].bytes_per_step
    check(told == cuts[1].bytes_per_step, "the zone cut after the swap is not what hosts say")
    same_zone = fabric.domain(fabric.index_by_name[failed]) == fabric.domain(
        fabric.index_by_name[joined]
    )
    check(not same_zone or cuts[0] == cuts[1], "a swap inside the zone changed the zone cut")


def fill_up(stage: Stage) -> None:
    heading("5. The next one waits, a small one does not")
    healthy = stage.client.list_hosts([host_pb2.HOST_STATE_HEALTHY])
    free = sum(not host.job for host in healthy)
    needs = example(SECOND).request.hosts_needed(stage.fabric.gpus_per_host)
    say(f"{free:,} hosts are free. A job of half the size needs {needs:,}:")
    waiting = submit(stage, SECOND)
    reason = stage.client.explain_job(SECOND)
    check(waiting.state == job_pb2.JOB_STATE_QUEUED, f"{SECOND} does not wait")
    command(f"muster explain {SECOND}")
    answer(reason.reason.sentence)
    say("Whatever does not delay it may overtake it:")
    submit(stage, SMALL)
    changes_until(stage, "STARTED", SMALL)
    command("muster jobs")
    jobs = {job.name: job for job in stage.client.list_jobs()}
    rows = [["job", "state", "hosts", "spares"]]
    for job in jobs.values():
        held_now = [str(job.placement.host_count or "-"), str(job.placement.spare_count or "-")]
        rows.append([job.name, state(job), *held_now])
    table(rows, right={2, 3})
    check(state(jobs[SECOND]) == "queued", f"{SECOND} does not wait any more")
    check(state(jobs[SMALL]) == "running", f"{SMALL} does not run")


def state(job: job_pb2.Job) -> str:
    return job_pb2.JobState.Name(job.state).removeprefix("JOB_STATE_").lower()


def facts(stage: Stage) -> tuple[int, dict[str, job_pb2.Job]]:
    """The version of the log, and every job in full but for its changing sentence."""
    jobs = {job.name: stage.client.get_job(job.name) for job in stage.client.list_jobs()}
    version = max(job.version for job in jobs.values())
    for job in jobs.values():
        job.reason = ""
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


def stop(stage: Stage) -> None:
    heading("8. The end")
    command("kill SERVER")
    code = stage.server.end(signal.SIGTERM)
    check(code == 0, f"the server ended with exit code {code}")
    say("SIGTERM: the server finished what it was asked and stopped cleanly, exit code 0.")


def tell(folder: Path, server: Server) -> None:
    begin(server)
    with Client(server.address) as client:
        stage = Stage(server, client, preset(FABRIC))
        job, request = place_big_job(stage)
        compare_orders(stage, job, request)
        fail_a_host(stage, job, request)
        fill_up(stage)
        kill_and_restart(stage)
        replay_a_trace(folder)
        stop(stage)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    begin_s = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="muster-demo-") as name:
            folder = Path(name)
            with closing(Server(folder, FABRIC)) as server:
                tell(folder, server)
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
