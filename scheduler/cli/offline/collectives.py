"""`muster estimate --collectives`: which collective, with ranks placed for it, makes the shortest
step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.cli.calls import AnswerFormat, formatted
from scheduler.cli.exit_codes import EXIT_CODES
from scheduler.cli.offline.place import outcome_of
from scheduler.cli.offline.sweep import read_question

if TYPE_CHECKING:
    from placement import PlacedCollective
    from placement.fabric.tree import Fabric
    from placement.workload.request import Request


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
        said = _mapping(job.spec.name, fabric, request, choices)
        text = formatted(said | {"reason": reason} if reason else said, output)
    elif refused is not None:
        text = reason
    else:
        text = _text(job.spec.name, fabric, request, choices)
    sys.stdout.write(text + "\n")
    return EXIT_CODES[outcome_of(refused)] if refused is not None else 0


def _is_given(request: Request, each: PlacedCollective) -> bool:
    from placement.workload.request import Collective

    return dict(request.collectives).get(each.axis, Collective.RING) is each.used


def _slower(choices: list[PlacedCollective], each: PlacedCollective) -> float:
    """Return how much longer the step is than the shortest of the same axis, as a share."""
    shortest = next(other for other in choices if other.axis == each.axis)
    return each.step.seconds / shortest.step.seconds - 1 if shortest.step.seconds else 0.0


def _text(name: str, fabric: Fabric, request: Request, choices: list[PlacedCollective]) -> str:
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


def _mapping(
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
