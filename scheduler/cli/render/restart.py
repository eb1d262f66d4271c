"""The options of a restart as a table: their prices, and the chosen one."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.cli.render.text import bytes_text, columns
from scheduler.v1 import spares_pb2


def options_text(options: Iterable[spares_pb2.WeighedOption]) -> str:
    """A line for each option, the chosen one marked."""
    head = ("OPTION", "GPU-HOURS", "CUT", "STEP", "BLOCKS", "")
    return columns([head, *map(_option_row, options)], right={1, 2, 3, 4})


def _option_row(option: spares_pb2.WeighedOption) -> tuple[str, ...]:
    name = spares_pb2.RestartOption.Name(option.option).removeprefix("RESTART_OPTION_").lower()
    if not option.possible:
        return (f"  {name}", "-", "-", "-", "-", option.note)
    rise = option.cut_rise_bytes_per_step
    return (
        f"{'>' if option.taken else ' '} {name}",
        f"{option.gpu_hours:,.1f}",
        f"{'-' if rise < 0 else '+'}{bytes_text(abs(rise))}" if rise else "same",
        f"+{100 * option.slower:.2f} %" if option.HasField("slower") else "?",
        f"{option.moved_blocks:,}",
        option.note,
    )
