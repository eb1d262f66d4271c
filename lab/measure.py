"""What a step of a job takes in a lab, beside the formula and the simulation of the same step.

Writes the tasks of a step (network/step_tasks.py) as programs of single ranks, with bytes at the
scale of the lab, so that seconds are those of the fabric, and has `lab.ranks` play them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.cluster import Lab, refuse
from lab.plan import scale_up_address
from network.collectives.msccl import axis_program
from network.scheduled_tasks import scheduled_tasks
from network.step_simulation import play, simulate_step
from network.step_tasks import StepTasks, Task, step_tasks
from placement import BadInput
from placement.fabric.tree import Fabric
from placement.objective.step_time import step_time
from placement.workload.request import Placement, Request
from scheduler.cli.offline.place import cluster_of, place_job
from scheduler.cli.render.place.steps import ways_to_place
from scheduler.files import inputs

MOST_RANKS = 256
MOST_LOAD = 0.3  # of each core, by others: above it sockets wait for a core instead of a link
MODULES = {"sockets": "lab.ranks", "gloo": "lab.gloo"}  # of ranks, by what carries messages

Measured = tuple[str, float, float, list[float]]


def refuse_load() -> None:
    """Refuse to measure while other programs keep the machine busy. Raises: InputError."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > MOST_LOAD * cores:
        raise refuse(
            f"the machine is busy (load {load:.1f} on {cores} cores): seconds would be those of"
            " other programs; wait, or measure with --under-load"
        )


def check_over(over: str) -> None:
    """Refuse a carrier of messages that is unknown or not installed. Raises: InputError."""
    if over not in MODULES:
        raise refuse(f"must be {' or '.join(MODULES)}, not {over!r}", "over")
    if over == "gloo" and find_spec("torch") is None:
        raise refuse(
            "gloo comes with torch, which is not installed beside muster: pip install torch"
            " (its build for CPUs will do), or measure over sockets",
            "over",
        )


def measure_ways(
    lab: Lab,
    path: Path,
    steps: int,
    seed: int,
    show: Callable[[int, int], None],
    *,
    is_busy: bool = False,
    over: str = "sockets",
    is_scheduled: bool = False,
) -> list[Measured]:
    """Measure a job as muster places it in the lab and as others would. `is_busy`: compute takes
    cores. `over`: what carries messages, of `MODULES`. `is_scheduled`: in place of a step, the
    all-reduce of one axis message by message, as MSCCL would be given it.

    Returns each way with the seconds of the formula, of the simulation, and of each step.
    Raises: InputError on a job that has no place or no such all-reduce, or more ranks than can run
    here.
    """
    job = inputs.read_job(str(path))
    fabric = inputs.load_fabric(str(lab.folder / "fabric.yaml"))
    question, answer, _ = place_job(job, cluster_of(job, fabric, 0))
    if not isinstance(answer, Placement):
        raise refuse(f"{job.spec.name} has no place in this lab: {answer.reason}", "job")
    ranks = question.request.parallelism.world_size
    if ranks > MOST_RANKS:
        raise refuse(f"{job.spec.name} has {ranks} ranks; {MOST_RANKS} can run in a lab", "job")
    ways, found = ways_to_place(question, answer, seed), list[Measured]()
    for way, hosts in ways.items():
        try:
            formula_s, simulated_s, tasks = predict(
                fabric, question.request, hosts, is_scheduled=is_scheduled
            )
        except BadInput as error:
            raise job.document.error((error.field, error.message)) from None
        measured = measure_tasks(lab, fabric, tasks, steps, is_busy=is_busy, over=over)
        found.append((way, formula_s, simulated_s, measured))
        show(len(found), len(ways))
    return found


def predict(
    fabric: Fabric, request: Request, hosts: Sequence[int], *, is_scheduled: bool
) -> tuple[float, float, StepTasks]:
    """Return the seconds of the formula and of the simulation, and the tasks to measure: of a step,
    or with `is_scheduled` of one axis' all-reduce in it.

    Raises: BadInput as `step_tasks`, or `axis_program`.
    """
    step = step_time(fabric, request, hosts)
    if not is_scheduled:
        simulated = simulate_step(fabric, request, hosts, step.compute_s)
        tasks = step_tasks(fabric, request, hosts, step.compute_s, merged=False)
        return step.seconds, simulated.seconds, tasks
    axis = axis_program(request, request.ranks_per_host(fabric.gpus_per_host)).traffic.axis
    tasks = scheduled_tasks(fabric, request, hosts)
    seconds = next(each.seconds for each in step.axes if each.load.traffic.axis == axis)
    return seconds, play(fabric, tasks).seconds, tasks


def measure_tasks(
    lab: Lab,
    fabric: Fabric,
    tasks: StepTasks,
    steps: int,
    *,
    is_busy: bool = False,
    over: str = "sockets",
) -> list[float]:
    """Play tasks on hosts of the lab. Returns the seconds of each time; the first one is left out,
    for in it windows of sockets still grow. Raises: OSError when ranks do not run."""
    told = {
        "steps": steps + 1,
        "is_busy": is_busy,
        "ranks": _ranks(lab, fabric, tasks),
        "programs": programs(fabric, tasks, lab.plan.scale),
    }
    path = lab.folder / "step.json"
    path.write_text(json.dumps(told), encoding="utf-8")
    said = lab.run("", [sys.executable, "-m", MODULES[over], str(path)])
    return [json.loads(line)["seconds"] for line in said.splitlines()][1:]


def _ranks(lab: Lab, fabric: Fabric, tasks: StepTasks) -> list[dict[str, Any]]:
    nodes = [lab.plan.node(fabric.hosts[host]) for host in tasks.host_by_unit.tolist()]
    racks = fabric.scale_up_by_host[tasks.host_by_unit].tolist()
    return [
        {
            "namespace": node.namespace,
            "address": node.address,
            "nvlink": scale_up_address(node.address),
            "rack": rack,
        }
        for node, rack in zip(nodes, racks, strict=True)
    ]


def programs(fabric: Fabric, step: StepTasks, scale: float) -> list[dict[str, Any]]:
    """Return the program of each rank: its sockets, and its tasks with the tasks that come before
    each."""
    joined = fabric.scale_up_by_host[step.host_by_unit]
    host = step.host_by_unit
    made: list[dict[str, Any]] = [
        {"rank": rank, "out": {}, "in": {}, "tasks": []} for rank in range(len(host))
    ]
    takers = [_takers(task) for task in step.tasks]
    for number, task in enumerate(step.tasks):
        told: dict[int, dict[str, Any]] = {
            rank: {"id": number, "seconds": task.seconds, "out": [], "in": [], "after": []}
            for rank in takers[number]
        }
        for rank, own in told.items():
            own["after"] = [before for before in task.after if rank in takers[before]]
            made[rank]["tasks"].append(own)
        for src, dst, size, rounds in _messages(task, scale):
            kind = "state" if task.is_state else "wait"
            key = f"{src}>{dst} {task.exchange.axis if task.exchange else ''} {kind}"
            by_nvlink = bool(joined[src] == joined[dst] and host[src] != host[dst])
            made[src]["out"][key] = (dst, by_nvlink)
            made[dst]["in"][key] = (src, by_nvlink)
            told[src]["out"].append((key, size, rounds))
            told[dst]["in"].append((key, size, rounds))
    return made


def _takers(task: Task) -> frozenset[int]:
    """The ranks that take part in a task."""
    exchange = task.exchange
    return frozenset([task.unit] if exchange is None else exchange.members.tolist())


def _messages(task: Task, scale: float) -> list[tuple[int, int, int, int]]:
    """Source, target, bytes and rounds of each message of a task."""
    exchange = task.exchange
    if exchange is None:
        return []
    src, dst = exchange.src.tolist(), exchange.dst.tolist()
    is_ring = len(src) == len(set(src)) == len(set(dst)) == len(exchange.members) > 2
    rounds = len(src) - 1 if is_ring and exchange.axis != "pp" else 1
    sizes = (exchange.bytes * task.share * scale).tolist()
    return [(s, d, max(rounds, round(b)), rounds) for s, d, b in zip(src, dst, sizes, strict=True)]
