"""`muster checkpoint`: how often a job should save, and what that is worth.

A gang fails every `mean_s` seconds on average (mu, exponential). A write stops it for
`write_s` (C). After a failure it is down for `down_s` (D) and then reads its state and
starts for `restart_s` (R). A period T is the time from one write to the next *with the
write*, so that T - C of it is work.

Efficiency is exact under these assumptions, failures during a restart included, for a
restart is begun again (Daly 2006):

    E(T) = (T - C) / ((mu + D) exp(R / mu) (exp(T / mu) - 1))

The optimum is the T of the largest E. Source of the table that validates it: Aupy, Robert,
Vivien, Zaidouni (2013).
"""

from __future__ import annotations

import math
from math import exp, expm1, inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from muster.structs import replace, struct
from scheduler.cli.calls import AnswerFormat, Output, formatted
from scheduler.cli.numbers import finite
from scheduler.cli.parameters import FabricName, JobPath
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric
    from scheduler.core.model.job import JobSpec
    from scheduler.core.policies.storage_use import CheckpointSizes, StorageCost, StorageUse
    from scheduler.files.inputs import JobFile


# In seconds some thirty years and a nanosecond: beyond them anything is a slip of the hand.
LEAST, MOST = 1e-9, 1e9
DAY_S = 86_400


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("checkpoint")(checkpoint_command)


def checkpoint_command(
    job: JobPath,
    fabric: FabricName,
    rate: Annotated[
        float | None,
        typer.Option(help="Failures per 1,000 host-days. (default: 3.79, Llama 3)"),
    ] = None,
    write_s: Annotated[
        float | None,
        typer.Option(help="How long a write stops the gang; default: size / --bandwidth."),
    ] = None,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            help="GB/s that the storage writes. (default: as the fabric file says, else 2,000)"
        ),
    ] = None,
    beside: Annotated[
        list[Path] | None,
        typer.Option(
            help="The job file of another gang that writes there, at the interval that it states,"
            " else at the one advised for it; may be repeated."
        ),
    ] = None,
    restart_s: Annotated[
        float,
        typer.Option(
            min=0,
            max=MOST,
            callback=finite,
            help="Seconds from the swap to the first new step, loading included.",
        ),
    ] = 300.0,
    down_s: Annotated[
        float,
        typer.Option(
            min=0, max=MOST, callback=finite, help="Seconds from the failure to the swap."
        ),
    ] = 60.0,
    output: Output = AnswerFormat.TABLE,
) -> None:
    """Advise an interval between checkpoints: the one that leaves most of the time for work.

    The gang fails as often as all of its hosts together; the write time follows from the size
    of the model's state, and from the store of the fabric file that its checkpoints are in, which
    other gangs share.
    docs/reliability.md has the formula.
    """
    from scheduler.cli.offline.place import use_beside
    from scheduler.core.policies.storage_use import storage_cost
    from scheduler.files import inputs

    if write_s is not None and bandwidth is not None:
        raise InputError(Problem("--bandwidth", "conflicts with --write-s: give one of the two"))
    file, network = inputs.read_job(str(job)), _with_stores(inputs.load_fabric(fabric), bandwidth)
    after_s = restart_s, down_s
    hosts = _hosts(file, network)
    use, busy = use_beside(file, network, 0)
    faults = _faults(hosts, rate, use, write_s, after_s)
    others = []
    for path in beside or ():
        other, busy = _neighbour(path, network, busy, rate, after_s)
        others.append(other)
    cost = storage_cost(use, others)
    faults = replace(faults, write_s=faults.write_s * cost.slowdown)
    body = _mapping(file.spec.name, hosts, faults, use.sizes)
    body["storage"] = _storage(cost, file.spec, body["period_seconds"])
    typer.echo(_text(body) if output is AnswerFormat.TABLE else formatted(body, output))


def _with_stores(fabric: Fabric, bandwidth: float | None) -> Fabric:
    """Return the fabric with a store, though its file states none, and `bandwidth` as the GB/s that
    each writes, unless it is None."""
    from placement.fabric.storage import Storage

    stores = fabric.stores or (Storage(STORAGE_GB_PER_S, 0.0, 0.0),)
    if bandwidth is not None:
        stores = tuple(replace(each, write_gb_per_s=bandwidth) for each in stores)
    return replace(fabric, stores=stores)


def _hosts(file: JobFile, fabric: Fabric) -> int:
    """Return how many hosts this file's gang has."""
    from placement.fabric.constraints import gpus_wanted

    request = file.spec.request
    with file.naming_lines():
        return request.hosts_needed(gpus_wanted(fabric, request.where))


def _neighbour(
    path: Path, fabric: Fabric, busy: HostSet, rate: float | None, after_s: tuple[float, float]
) -> tuple[StorageUse, HostSet]:
    """Return what this file's gang does to storage, at the interval that it states, else at the
    one advised for it, and the busy hosts with its own."""
    from scheduler.cli.offline.place import use_beside
    from scheduler.files import inputs

    file = inputs.read_job(str(path))
    use, busy = use_beside(file, fabric, busy)
    if use.sizes is None:
        raise InputError(Problem("model", "is needed to size its checkpoints", str(path)))
    if file.spec.checkpoint.interval_s is None:
        faults = _faults(_hosts(file, fabric), rate, use, None, after_s)
        use = replace(use, interval_s=optimal(faults) - faults.write_s)
    return use, busy


def _storage(cost: StorageCost, spec: JobSpec, period_s: float) -> dict[str, Any]:
    """Say what its stores mean for the job: None where the fabric file does not say it.
    `period_s`: from one of its checkpoints to the next."""
    from scheduler.core.policies.job_terms import DatasetTerms
    from scheduler.core.policies.storage_use import GB, bytes_of_step

    room = reads_s = full_s = None
    storage, sizes = cost.use.write_store, cost.use.sizes
    if sizes is not None and cost.capacity_tb:
        room = int(cost.capacity_tb * 1e12 // sizes.total)
        if not spec.checkpoint.keep:
            full_s = max(0.0, cost.capacity_tb - cost.stored_tb) * 1e12 / sizes.total * period_s
    if sizes is not None and cost.left_gb_per_s is not None:
        step_bytes = bytes_of_step(spec.request, spec.dataset or DatasetTerms())
        reads_s = step_bytes / GB / cost.left_gb_per_s or None
    return {
        "busy_with_others": cost.busy_share,
        "slowdown": cost.slowdown,
        "write_limit": cost.write_limit or None,
        "read_limit": cost.read_limit or None,
        "other_gangs": cost.writers,
        "dataset_store": cost.use.read_store.name or None,
        "checkpoint_store": storage.name or None,
        "checkpoints_that_fit": room,
        "kept_tb": cost.stored_tb,
        "capacity_tb": cost.capacity_tb or None,
        "full_after_seconds": full_s,
        "load_seconds": cost.use.load_s,
        "read_seconds_of_a_step": reads_s,
    }


def _faults(
    hosts: int,
    rate: float | None,
    use: StorageUse,
    write_s: float | None,
    after_s: tuple[float, float],
) -> FailureModel:
    from placement import FAILURES_PER_HOST_DAY

    bandwidth = use.write_store.write_gb_per_s
    given = {"--rate": rate, "--write-s": write_s, "--bandwidth": bandwidth}
    for option, value in given.items():
        if value is not None and not 0 < value < math.inf:
            raise InputError(Problem(option, f"must be a positive number, not {value:g}"))
        if value is not None and value < LEAST:
            raise InputError(Problem(option, f"must be at least {LEAST:g}, not {value:g}"))
        if value is not None and value > MOST:
            raise InputError(Problem(option, f"must be at most {MOST:,.0f}, not {value:g}"))
    if write_s is None and use.sizes is None:
        raise InputError(Problem("--write-s", "is needed: the job has no model to size"))
    if write_s is None:
        write_s = max(use.write_seconds.values())
    per_day = FAILURES_PER_HOST_DAY if rate is None else rate / 1000
    return FailureModel(mean_between_s(hosts, per_day), write_s, *after_s)


def _mapping(
    name: str, hosts: int, faults: FailureModel, sizes: CheckpointSizes | None
) -> dict[str, Any]:
    best = optimal(faults)
    peak = efficiency(faults, best)
    return {
        "job": name,
        "hosts": hosts,
        "mean_seconds_between_failures": faults.mean_s,
        "write_seconds": faults.write_s,
        "restart_seconds": faults.restart_s,
        "down_seconds": faults.down_s,
        "bytes": sizes.total if sizes else None,
        "bytes_per_host": sizes.of_host if sizes else None,
        "load_from_peer_seconds": sizes.from_peer_s if sizes else None,
        "period_seconds": best,
        "goodput": peak,
        "sensitivity": [
            {
                "times_optimal": factor,
                "period_seconds": period,
                "goodput": interval,
                "lost_to_optimal": peak - interval,
            }
            for factor, period, interval in sensitivity(faults)
        ],
        "without_writes": efficiency(
            FailureModel(faults.mean_s, 1e-9, faults.restart_s, faults.down_s),
            max(1e-3, 1e-6 * faults.mean_s),
        ),
    }


def _text(body: dict[str, Any]) -> str:
    from scheduler.cli.render.goodput import elapsed_text
    from scheduler.cli.render.text import bytes_text, seconds_text, table

    size = f"{bytes_text(body['bytes'])} written in " if body["bytes"] else "a write takes "
    head = (
        f"{body['job']}: {body['hosts']:,} hosts; a failure every"
        f" {elapsed_text(body['mean_seconds_between_failures'])}; {size}"
        f"{elapsed_text(body['write_seconds'])}; back after"
        f" {elapsed_text(body['down_seconds'] + body['restart_seconds'])}"
    )
    rows = [
        [
            "optimal" if line["times_optimal"] == 1 else f"x {line['times_optimal']:g}",
            elapsed_text(line["period_seconds"]),
            _share(line["goodput"]),
            f"{100 * line['lost_to_optimal']:.2f} pt",
        ]
        for line in body["sensitivity"]
    ]
    parts = [head, table(["", "every", "goodput", "lost"], rows)]
    parts.append(f"checkpoints that cost nothing would leave {_share(body['without_writes'])}")
    if body["load_from_peer_seconds"] is not None:
        kept, load = bytes_text(body["bytes_per_host"]), body["load_from_peer_seconds"]
        parts[-1] += f"; a copy of a host's {kept} in a peer's memory loads in {seconds_text(load)}"
    if said := _storage_text(body["storage"]):
        store = body["storage"]["checkpoint_store"]
        parts.append(f"store {store}: {said}" if store else f"storage: {said}")
    return "\n\n".join(parts)


def _storage_text(body: dict[str, Any]) -> str:
    from scheduler.cli.render.goodput import elapsed_text
    from scheduler.cli.render.text import bytes_text, seconds_text

    said = []
    if body["other_gangs"]:
        gangs = body["other_gangs"]
        slower = f"so a write takes {body['slowdown']:.2f} times as long"
        who = "1 other gang writes" if gangs == 1 else f"{gangs:,} other gangs write"
        busy = f"{who} {_share(body['busy_with_others'])}"
        said.append(f"{busy} of the time, {slower}")
    if body["write_limit"]:
        said.append(f"writes wait for {body['write_limit']}")
    if body["checkpoints_that_fit"] is not None:
        said.append(f"it holds {body['checkpoints_that_fit']:,} such checkpoints")
    if body["kept_tb"] and body["capacity_tb"]:
        kept, most = (bytes_text(body[key] * 1e12) for key in ("kept_tb", "capacity_tb"))
        is_full = body["kept_tb"] > body["capacity_tb"]
        verb = "are to be kept, more than" if is_full else "are kept of"
        said.append(f"{kept} of checkpoints {verb} its {most}")
    if body["full_after_seconds"] is not None:
        after = elapsed_text(body["full_after_seconds"])
        said.append(f"with all of them kept it is full after {after}")
    if body["load_seconds"] is not None:
        said.append(f"one loads in {seconds_text(body['load_seconds'])}")
    if body["read_seconds_of_a_step"] is not None:
        store = body["dataset_store"]
        source = "" if store == body["checkpoint_store"] else f" from store {store}"
        source += f", by {body['read_limit']}" if body["read_limit"] else ""
        reads = seconds_text(body["read_seconds_of_a_step"])
        said.append(f"the tokens of a step in {reads}{source}")
    return "; ".join(said)


def _share(share: float) -> str:
    return f"{100 * share:.2f} %"


@struct(frozen=True, slots=True)
class FailureModel:
    """Failures of a gang. Units: seconds; `mean_s` between two failures of the gang."""

    mean_s: float
    write_s: float
    restart_s: float = 0.0
    down_s: float = 0.0

    @property
    def outage_s(self) -> float:
        """Seconds that each failure costs beside the work since the last checkpoint."""
        return self.restart_s + self.down_s


def mean_between_s(hosts: int, failures_per_host_day: float) -> float:
    """Mean time between failures of a gang, all of whose hosts fail at that rate."""
    per_day = hosts * failures_per_host_day
    return DAY_S / per_day if per_day else inf


def efficiency(faults: FailureModel, period_s: float) -> float:
    """Return the share of the time that is work with this period between checkpoints, 0 to 1."""
    mean, work = faults.mean_s, period_s - faults.write_s
    if work <= 0:
        return 0.0
    if mean == inf:
        return work / period_s
    if max(period_s, faults.restart_s) / mean > 700:  # exp would not fit a float
        return 0.0
    return work / ((mean + faults.down_s) * exp(faults.restart_s / mean) * expm1(period_s / mean))


def optimal(faults: FailureModel) -> float:
    """Return the period of the largest efficiency, to a part in a million: E has one peak.

    E' = 0 is 1 - (T - C) / mu = exp(-T / mu): its left side falls below its right from the peak on.
    """
    mean, write = faults.mean_s, faults.write_s
    low, high = write, write + mean
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        rises = 1 - (middle - write) / mean > exp(-middle / mean)
        low, high = (middle, high) if rises else (low, middle)
    return (low + high) / 2


FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


def sensitivity(faults: FailureModel) -> tuple[tuple[float, float, float], ...]:
    """Return (factor, period, efficiency) for periods around the optimal one."""
    work = optimal(faults) - faults.write_s
    periods = [(factor, factor * work + faults.write_s) for factor in FACTORS]
    return tuple((factor, t, efficiency(faults, t)) for factor, t in periods)


# --- published closed forms of ETTR ----------------------------------------------


def effective_share(faults: FailureModel) -> float:
    """Return the share left when each failure stops all for `outage_s`: (mu - outage) / mu.

    Source: FT-HSDP (2026): 18 min between failures, 10 min of recovery: 44 %.
    """
    return max(0.0, 1 - faults.outage_s / faults.mean_s)


STORAGE_GB_PER_S = 2_000.0  # sustained, for all of Llama 3's cluster (2024, 3.3.1)
