"""`muster estimate --sweep` and `--collectives`: which parallelism, and which collective with ranks
placed for it, makes the shortest step on a fabric."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.cli import clock
from scheduler.cli.calls import AnswerFormat, formatted
from scheduler.cli.exit_codes import EXIT_CODES
from scheduler.cli.offline.place import cluster_of, outcome_of
from scheduler.files.errors import InputError, Problem

if TYPE_CHECKING:
    from placement import PlacedChoice, PlacedCollective, Sweep
    from placement.fabric.hostset import HostSet
    from placement.fabric.tree import Fabric
    from placement.workload.request import Request
    from scheduler.files.inputs import JobFile


def read_question(
    job_path: str, fabric_name: str, busy: Path | None, links: Path | None
) -> tuple[JobFile, Fabric, HostSet]:
    """Read a job, the fabric with its uplinks as they are, and the hosts that are free."""
    from scheduler.core.rules.network.links import fabric_between
    from scheduler.files import inputs

    job = inputs.read_job(job_path)
    machine = inputs.load_fabric(fabric_name)
    taken = inputs.load_busy(str(busy), machine) if busy else 0
    cluster = cluster_of(job, machine, taken, links)
    return job, fabric_between(cluster, 0, 1), cluster.free


def run_sweep(
    job_path: str,
    fabric_name: str,
    busy: Path | None,
    links: Path | None,
    gpus: int | None,
    top: int,
    output: AnswerFormat,
) -> int:
    """Print the fastest choices; return the exit code.

    Raises: InputError naming the line of the job file that cannot be compared.
    """
    from placement import sweep

    job, fabric, free = read_question(job_path, fabric_name, busy, links)
    request = job.spec.request
    ranks = gpus or request.parallelism.world_size
    if ranks > fabric.gpus_per_host and ranks % fabric.gpus_per_host:
        message = f"{ranks} do not fill whole hosts of {fabric.gpus_per_host}"
        raise InputError(Problem("--gpus" if gpus else "parallelism", message))
    if ranks > fabric.gpu_count:
        message = f"{ranks:,} are more than the {fabric.gpu_count:,} GPUs of {fabric.name}"
        raise InputError(Problem("--gpus" if gpus else "parallelism", message))
    with job.naming_lines(), _progress() as (start, advance):
        result = sweep(fabric, free, request, ranks, top, start, advance)
    body = _mapping(job.spec.name, fabric, ranks, result)
    text = _text(body) if output is AnswerFormat.TABLE else formatted(body, output)
    sys.stdout.write(text + "\n")
    if result.best:
        return 0
    return EXIT_CODES[outcome_of(result.refused)] if result.refused else EXIT_CODES["infeasible"]


@contextmanager
def _progress() -> Iterator[tuple[Callable[[int], None], Callable[[], None]]]:
    """A bar on a terminal: one call starts it, the other counts a gang that was placed."""
    from rich import progress
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None, lambda: None
        return
    columns = (
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TimeElapsedColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("choices are bounded", total=None)
        yield (
            lambda most: bar.update(
                task, total=most, description=f"at most {most} gangs are placed"
            ),
            lambda: bar.advance(task),
        )


def _text(body: dict[str, Any]) -> str:
    from scheduler.cli.render.text import percent_text, seconds_text, table

    head = (
        f"{body['job']} on {body['gpus']:,} GPUs of {body['fabric']['name']}: {body['fitting']:,}"
        f" choices of {body['layouts']:,} layouts fit {body['gpu_gib']:g} GiB; {body['placed']}"
        " were placed"
    )
    shown, own = body["choices"], body["as_given"]
    if not shown:
        return f"{head}\n\n{body['reason'] or 'no choice fits the memory of a GPU'}"
    given = own and own["parallelism"]
    marks = [f"{each['rank']}{' *' if each['parallelism'] == given else ''}" for each in shown]
    if own and own not in shown:
        shown, marks = [*shown, own], [*marks, "as given"]
    rows = []
    for mark, each in zip(marks, shown, strict=True):
        sizes = each["parallelism"]
        slower = each["step_seconds"] / shown[0]["step_seconds"] - 1
        rows.append(
            [
                mark,
                *(str(sizes[axis]) for axis in ("tp", "cp", "pp")),
                str(each["virtual_stages"]),
                *(str(sizes[axis]) for axis in ("ep", "dp")),
                str(each["micro_sequences"]),
                each["recompute"],
                f"{each['memory_gib']:.1f} GiB",
                seconds_text(each["step_seconds"]),
                f"{100 * slower:+.1f} %" if slower else "",
                " to ".join(map(seconds_text, each["interval_seconds"] or ())),
                percent_text(each["mfu"]) if each["mfu"] is not None else "",
            ]
        )
    titles = ["", "tp", "cp", "pp", "chunks", "ep", "dp", "micro", "recompute"]
    parts = [head, table([*titles, "memory", "step", "", "8 of 10 such runs", "MFU"], rows)]
    if not body["proved"]:
        parts.append("note: a choice that was not placed may be among the best")
    if own and not own["fits"]:
        parts.append(f"note: as given it does not fit {body['gpu_gib']:g} GiB")
    return "\n\n".join(parts)


def _mapping(name: str, fabric: Fabric, gpus: int, result: Sweep) -> dict[str, Any]:
    return {
        "job": name,
        "fabric": {"name": fabric.name, "digest": fabric.digest},
        "gpus": gpus,
        "gpu_gib": result.gpu_gb,
        "layouts": result.layouts,
        "fitting": result.fitting,
        "placed": result.placed,
        "proved": result.is_proved,
        "reason": getattr(result.refused, "reason", None),
        "choices": [_choice(result, choice) for choice in result.best],
        "as_given": _choice(result, result.own) if result.own else None,
        "seconds": {"total": round(clock.seconds_so_far(), 6)},
    }


def _choice(result: Sweep, choice: PlacedChoice) -> dict[str, Any]:
    """`rank` of the job as given: among those that were placed."""
    from placement.workload.memory import fits

    p, batch = choice.request.parallelism, choice.request.batch
    assert batch is not None
    return {
        "rank": choice.rank,
        "parallelism": {axis: p.size(axis) for axis in ("tp", "cp", "pp", "ep", "dp")},
        "virtual_stages": batch.virtual_stages,
        "micro_sequences": batch.micro_sequences,
        "recompute": choice.request.training.recompute.value,
        "step_seconds": choice.step.seconds,
        "interval_seconds": list(choice.step.likely_s) if choice.step.likely_s else None,
        "mfu": choice.step.mfu,
        "memory_gib": round(choice.memory.total / 2**30, 3),
        "fits": fits(choice.memory, result.gpu_gb),
    }


def run_collectives(
    job_path: str, fabric_name: str, busy: Path | None, links: Path | None, output: AnswerFormat
) -> int:
    """Print each axis' collectives, the shortest step first; return the exit code.

    Raises: InputError naming the line of the job file that cannot be placed.
    """
    from placement import compare_collectives

    job, fabric, free = read_question(job_path, fabric_name, busy, links)
    request = job.spec.request
    with job.naming_lines():
        choices, refused = compare_collectives(fabric, free, request)
    reason = getattr(refused, "reason", "")
    body = _collectives_mapping(job.spec.name, fabric, request, choices)
    if output is not AnswerFormat.TABLE:
        text = formatted(body | {"reason": reason} if reason else body, output)
    else:
        text = reason or _collectives_text(body, fabric)
    sys.stdout.write(text + "\n")
    return EXIT_CODES[outcome_of(refused)] if refused is not None else 0


def _collectives_text(body: dict[str, Any], fabric: Fabric) -> str:
    from scheduler.cli.render.text import bytes_text, seconds_text, table

    choices = body["collectives"]
    if not choices:
        return f"{body['job']} has no axis over several hosts whose collective can be chosen"
    axes = [each["axis"] for each in choices]
    rows = [
        [
            each["axis"] if axes.index(each["axis"]) == number else "",
            each["collective"],
            seconds_text(each["step_seconds"]),
            f"{100 * each['slower_share']:+.1f} %" if each["slower_share"] else "",
            bytes_text(each["cut_bytes"]) if fabric.tiers else "",
            "as given" if each["as_given"] else "",
        ]
        for number, each in enumerate(choices)
    ]
    crosses = f"crosses {fabric.tiers[0].name}" if fabric.tiers else ""
    head = f"{body['job']} on {fabric.name}, placed once for each collective"
    return f"{head}\n\n{table(['axis', 'collective', 'step', '', crosses, ''], rows)}"


def _collectives_mapping(
    name: str, fabric: Fabric, request: Request, choices: list[PlacedCollective]
) -> dict[str, Any]:
    """`slower_share`: how much longer the step is than the shortest of the same axis."""
    from placement.workload.request import Collective

    given = dict(request.collectives)
    shortest: dict[str, float] = {}
    for each in choices:
        shortest.setdefault(each.axis, each.step.seconds)
    return {
        "job": name,
        "fabric": {"name": fabric.name, "digest": fabric.digest},
        "collectives": [
            {
                "axis": each.axis,
                "collective": each.used.value,
                "step_seconds": each.step.seconds,
                "slower_share": each.step.seconds / (shortest[each.axis] or 1) - 1,
                "cut_bytes": each.cut_bytes,
                "as_given": given.get(each.axis, Collective.RING) is each.used,
            }
            for each in choices
        ],
    }
