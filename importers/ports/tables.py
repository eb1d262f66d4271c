"""Ports of switches as other programs list them: what each is called, and what it carries now.

Two files are read. A port table is CSV with a header, as switches, telemetry and inventories
write it; which columns are meant may be said. ibdiagnet2.db_csv is what `ibdiagnet` writes of an
InfiniBand fabric: sections between START_NAME and END_NAME, each CSV with a header. Of it NODES
has the names of switches, PORTS the state, width and speed of each of their ports.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from importers.fabrics.ibnetdiscover import LANE_GBPS
from muster.structs import struct
from scheduler.files import yaml12
from scheduler.files.errors import refusal, short
from scheduler.files.yaml12 import MOST_PROGRAM_BYTES

# What a column is called where nothing else is said.
COLUMNS: Final = {"device": "device", "port": "port", "state": "state", "speed": "speed"}
UP: Final = ("up", "active", "connected", "linkup", "1", "true")
DOWN: Final = (
    *("down", "inactive", "disabled", "notconnect", "notconnected", "err-disabled", "polling"),
    *("init", "initialize", "armed", "0", "false"),
)
SWITCH, ACTIVE = 2, 4  # NodeType and PortState of the InfiniBand specification
LANES: Final = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}  # by LinkWidthActive of PortInfo
# By LinkSpeedActive; the extended speeds are counted from the ninth bit in ibdiagnet's column.
SPEEDS: Final = {
    1: "SDR", 2: "DDR", 4: "QDR", 1 << 8: "FDR", 2 << 8: "EDR", 4 << 8: "HDR", 8 << 8: "NDR",
    16 << 8: "XDR",
}  # fmt: skip


@struct(frozen=True, slots=True)
class SwitchPort:
    """One port of a switch, with the line that names it. `gbps`: one direction; 0 where it is
    down."""

    device: str
    name: str
    gbps: float
    line: int


@struct(frozen=True, slots=True)
class CsvRow:
    """One row of a CSV file, by the names in its header."""

    source: str
    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return the text of a column. Raises: InputError where it is empty."""
        value = self.cells[column].strip()
        if not value:
            raise refusal("is empty", self.source, self.line, column)
        return value

    def number(self, column: str) -> float:
        """Return the number of a column. Raises: InputError unless it is a number, 0 or more."""
        value = self.text(column)
        try:
            number = float(int(value, 16) if value.startswith("0x") else value)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise refusal(f"must be a number, not {short(value)}", self.source, self.line, column)
        return number


def csv_rows(source: str, lines: Sequence[tuple[int, str]], needed: Sequence[str]) -> list[CsvRow]:
    """Read the rows below a header that has the columns `needed`. `lines`: with their numbers.

    Raises: InputError naming the line, and the column that is missing.
    """
    if not lines:
        raise refusal(f"must have a header with {', '.join(needed)}", source, 1)
    (first, head), *rest = lines
    names = [name.strip() for name in next(csv.reader([head]))]
    for column in needed:
        if column not in names:
            have = ", ".join(names)
            raise refusal(f"no such column; there are {have}", source, first, column)
    rows = []
    for number, text in rest:
        cells = next(csv.reader([text]))
        if len(cells) != len(names):
            said = f"has {len(cells)} cells below {len(names)} columns"
            raise refusal(said, source, number)
        rows.append(CsvRow(source, number, dict(zip(names, cells, strict=True))))
    return rows


def csv_lines(path: str) -> list[tuple[int, str]]:
    """Return the lines that are not empty, numbered from 1. Raises: InputError as
    `yaml12.read_text`."""
    text = yaml12.read_text(path, MOST_PROGRAM_BYTES).removeprefix("\ufeff")
    return [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]


def load_port_table(path: str, columns: Mapping[str, str] = COLUMNS) -> list[SwitchPort]:
    """Read ports of switches from a CSV file. `columns`: what the file calls device, port, state
    and speed, which is in Gbit/s.

    Raises: InputError with line and column.
    """
    return [
        SwitchPort(
            row.text(columns["device"]),
            row.text(columns["port"]),
            row.number(columns["speed"]) if is_up(row, columns["state"]) else 0.0,
            row.line,
        )
        for row in csv_rows(path, csv_lines(path), [*columns.values()])
    ]


def is_up(row: CsvRow, column: str) -> bool:
    """Return whether a cell says up; it must say up or down. Raises: InputError."""
    state = row.text(column).lower()
    if state not in (*UP, *DOWN):
        raise refusal(f"must be up or down, not {short(state)}", row.source, row.line, column)
    return state in UP


def load_ibdiagnet(path: str) -> list[SwitchPort]:
    """Read the ports of the switches from ibdiagnet2.db_csv; a switch is named by its description.

    Raises: InputError with line and column.
    """
    sections = dict(_sections(path))
    for name in ("NODES", "PORTS"):
        if name not in sections:
            message = f"has no section START_{name}: this is not an ibdiagnet2.db_csv"
            raise refusal(message, path, 1)
    nodes = csv_rows(path, sections["NODES"], ("NodeDesc", "NodeType", "NodeGUID"))
    switches = {
        row.text("NodeGUID"): row.text("NodeDesc")
        for row in nodes
        if row.number("NodeType") == SWITCH
    }
    needed = ("NodeGuid", "PortNum", "PortState", "LinkWidthActv", "LinkSpeedActv")
    ports = csv_rows(path, sections["PORTS"], needed)
    return [
        SwitchPort(switches[row.text("NodeGuid")], row.text("PortNum"), _gbps(row), row.line)
        for row in ports
        if row.text("NodeGuid") in switches and row.number("PortNum")  # port 0 is its management
    ]


def _gbps(row: CsvRow) -> float:
    if row.number("PortState") != ACTIVE:
        return 0.0
    width, speed = int(row.number("LinkWidthActv")), int(row.number("LinkSpeedActv"))
    extended = speed >> 8 << 8
    rate = SPEEDS.get(extended or speed)
    for column, known in (("LinkWidthActv", LANES.get(width)), ("LinkSpeedActv", rate)):
        if known is None:
            message = f"{row.text(column)} is not a known width or speed"
            raise refusal(message, row.source, row.line, column)
    return float(LANES[width] * LANE_GBPS[str(rate)])


def _sections(path: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    name, lines = "", list[tuple[int, str]]()
    for number, text in csv_lines(path):
        if text.startswith("START_"):
            name, lines = text.removeprefix("START_").strip(), []
        elif text.startswith("END_"):
            yield name, lines
            name = ""
        elif name:
            lines.append((number, text))
    if name:
        raise refusal(f"ends inside the section {name}", path)
