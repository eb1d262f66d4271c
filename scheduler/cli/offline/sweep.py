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
    cluster = cluster_of(job, machine, taken, 0, links=links)
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
    if output is AnswerFormat.TABLE:
        text = _text(job.spec.name, fabric, ranks, result)
    else:
        text = formatted(_mapping(job.spec.name, fabric, ranks, result), output)
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


def _text(name: str, fabric: Fabric, gpus: int, result: Sweep) -> str:
    from scheduler.cli.render.text import columns, percent_text, seconds_text

    head = (
        f"{name} on {gpus:,} GPUs of {fabric.name}: {result.fitting:,} choices of"
        f" {result.layouts:,} layouts fit {result.gpu_gb:g} GiB; {result.placed} were placed"
    )
    if not result.best:
        reason = getattr(result.refused, "reason", "no choice fits the memory of a GPU")
        return f"{head}\n\n{reason}"
    best_s = result.best[0].step.seconds
    titles = ["", "tp", "cp", "pp", "chunks", "ep", "dp", "micro", "recompute"]
    rows = [[*titles, "memory", "step", "", "8 of 10 such runs", "MFU"]]
    shown = [*result.best]
    if result.own and all(choice.request != result.own.request for choice in result.best):
        shown.append(result.own)
    for choice in shown:
        p, batch = choice.request.parallelism, choice.request.batch
        assert batch is not None
        is_own = result.own is not None and choice.request.parallelism == (
            result.own.request.parallelism
        )
        mark = "as given" if choice is result.own else f"{choice.rank}{' *' if is_own else ''}"
        sizes = (p.tp, p.cp, p.pp, batch.virtual_stages, p.ep, p.dp, batch.micro_sequences)
        slower = choice.step.seconds / best_s - 1
        rows.append(
            [
                mark,
                *map(str, sizes),
                choice.request.training.recompute.value,
                f"{choice.memory.total / 2**30:.1f} GiB",
                seconds_text(choice.step.seconds),
                f"{100 * slower:+.1f} %" if slower else "",
                _interval_text(choice),
                percent_text(choice.step.mfu) if choice.step.mfu is not None else "",
            ]
        )
    notes = []
    if not result.is_proved:
        notes.append("note: a choice that was not placed may be among the best")
    if result.own and not _fits(result, result.own):
        notes.append(f"note: as given it does not fit {result.gpu_gb:g} GiB")
    return "\n\n".join([head, columns(rows, right={*range(1, 8), 9, 10, 11, 13}), *notes])


def _interval_text(choice: PlacedChoice) -> str:
    from scheduler.cli.render.text import seconds_text

    return " to ".join(map(seconds_text, choice.step.likely_s or ()))


def _fits(result: Sweep, choice: PlacedChoice) -> bool:
    from placement.workload.memory import fits

    return fits(choice.memory, result.gpu_gb)


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
        "fits": _fits(result, choice),
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
    if output is not AnswerFormat.TABLE:
        said = _collectives_mapping(job.spec.name, fabric, request, choices)
        text = formatted(said | {"reason": reason} if reason else said, output)
    elif refused is not None:
        text = reason
    else:
        text = _collectives_text(job.spec.name, fabric, request, choices)
    sys.stdout.write(text + "\n")
    return EXIT_CODES[outcome_of(refused)] if refused is not None else 0


def _is_given(request: Request, each: PlacedCollective) -> bool:
    from placement.workload.request import Collective

    return dict(request.collectives).get(each.axis, Collective.RING) is each.used


def _slower(choices: list[PlacedCollective], each: PlacedCollective) -> float:
    """Return how much longer the step is than the shortest of the same axis, as a share."""
    shortest = next(other for other in choices if other.axis == each.axis)
    return each.step.seconds / shortest.step.seconds - 1 if shortest.step.seconds else 0.0


def _collectives_text(
    name: str, fabric: Fabric, request: Request, choices: list[PlacedCollective]
) -> str:
    from scheduler.cli.render.text import bytes_text, columns, seconds_text

    if not choices:
        return f"{name} has no axis over several hosts whose collective can be chosen"
    crosses = f"crosses {fabric.tiers[0].name}" if fabric.tiers else ""
    rows = [["axis", "collective", "step", "", crosses, ""]]
    for each in choices:
        slower = _slower(choices, each)
        is_first = all(row[0] != each.axis for row in rows)
        rows.append(
            [
                each.axis if is_first else "",
                each.used.value,
                seconds_text(each.step.seconds),
                f"{100 * slower:+.1f} %" if slower else "",
                bytes_text(each.cut_bytes) if fabric.tiers else "",
                "as given" if _is_given(request, each) else "",
            ]
        )
    head = f"{name} on {fabric.name}, placed once for each collective"
    return f"{head}\n\n{columns(rows, right={2, 3, 4})}"


def _collectives_mapping(
    name: str, fabric: Fabric, request: Request, choices: list[PlacedCollective]
) -> dict[str, Any]:
    return {
        "job": name,
        "fabric": {"name": fabric.name, "digest": fabric.digest},
        "collectives": [
            {
                "axis": each.axis,
                "collective": each.used.value,
                "step_seconds": each.step.seconds,
                "slower_share": _slower(choices, each),
                "cut_bytes": each.cut_bytes,
                "as_given": _is_given(request, each),
            }
            for each in choices
        ],
    }
