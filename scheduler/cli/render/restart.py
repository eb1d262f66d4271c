"""The options of a restart as a table: their prices, and the chosen one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduler.cli.render.text import bytes_text, columns, counted, enum_word
from scheduler.v1 import spares_pb2

if TYPE_CHECKING:  # a client does without what places
    from scheduler.core.spares.outlook import SpareShortage


def options_text(options: Iterable[spares_pb2.WeighedOption]) -> str:
    """Write a line for each restart option, the chosen one marked."""
    head = ("OPTION", "GPU-HOURS", "CUT", "STEP", "BLOCKS", "")
    return columns([head, *map(_option_row, options)], right={1, 2, 3, 4})


def shortages_text(shortages: Iterable[SpareShortage | spares_pb2.SpareShortage]) -> str:
    """Return a line for each zone that lacks spares, zones of the same figures in one; "" where
    none does."""
    zones = defaultdict(list)
    for zone in shortages:
        zones[_shortage_line(zone)].append(zone.domain)
    return "\n".join(f"{', '.join(names)}: {line}" for line, names in zones.items())


def _shortage_line(zone: SpareShortage | spares_pb2.SpareShortage) -> str:
    cost = f"each then costs {zone.gpu_hours:,.0f} GPU-hours"
    if zone.gpu_hours < 0.5:
        cost = "another host then takes over at no cost in time"
    return (
        f"{zone.spares:,} of {counted(zone.target, 'spare')}; a failure there finds none"
        f" {zone.missed:,.1f} times in a month; {cost}"
    )


def _option_row(option: spares_pb2.WeighedOption) -> tuple[str, ...]:
    name = enum_word(option, "option")
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
