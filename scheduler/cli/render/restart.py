"""The ladder of a restart as a table: what was weighed, and what was taken."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.cli.render.text import bytes_text, columns
from scheduler.v1 import spares_pb2


def ladder_text(steps: Iterable[spares_pb2.RestartStep]) -> str:
    """The ways that were weighed at the last restart, cheapest named."""
    head = ("OPTION", "GPU-HOURS", "CUT", "STEP", "BLOCKS", "")
    return columns([head, *map(_step_row, steps)], right={1, 2, 3, 4})


def _step_row(step: spares_pb2.RestartStep) -> tuple[str, ...]:
    name = spares_pb2.RestartOption.Name(step.option).removeprefix("RUNG_").lower()
    if not step.possible:
        return (f"  {name}", "-", "-", "-", "-", step.note)
    rise = step.cut_rise_bytes_per_step
    return (
        f"{'>' if step.taken else ' '} {name}",
        f"{step.gpu_hours:,.1f}",
        f"{'-' if rise < 0 else '+'}{bytes_text(abs(rise))}" if rise else "same",
        f"+{100 * step.slower:.2f} %" if step.HasField("slower") else "?",
        f"{step.moved_blocks:,}",
        step.note,
    )
