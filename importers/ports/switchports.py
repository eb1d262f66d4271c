"""Ports as UFM and SONiC give them.

UFM answers GET /ufmRest/resources/ports with a JSON list (UFM Enterprise REST API Guide, "Ports
REST API"): of each port `system_name` is the switch, `dname` or `number` its name there,
`logical_state` is Active where it carries anything, at `active_speed` times `active_width`.

SONiC prints `show interfaces status` as a table (sonic-utilities, doc/Command-Reference.md): a line
of headers, a line of dashes as wide as the columns, a port a line. A captured prompt such as
`admin@z3-ctsw04:~$ show interfaces status` names the switch of what follows, so one file may
hold the tables of many; without a prompt the switch is called like the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from importers.fabrics.ibnetdiscover import LANE_GBPS
from importers.ports.tables import CsvRow, SwitchPort, csv_lines, is_up
from scheduler.files.errors import refusal, short
from scheduler.files.yaml12 import JsonFile

STATES: Final = {"active": True, "down": False, "init": False, "initialize": False, "armed": False}
WIDTH: Final = re.compile(r"(\d{1,2})x", re.IGNORECASE)
PROMPT: Final = re.compile(r"\S+@([^\s:]+):\S*[$#] *show interfaces? status\b.*")
SPEED: Final = re.compile(r"(\d+(?:\.\d+)?)([GM])")
NEEDED: Final = ("Interface", "Speed", "Oper")


def load_ufm(path: str) -> list[SwitchPort]:
    """Read ports of switches from UFM. Raises: InputError with the line, and the entry's field."""
    file = JsonFile.load(path)
    if not isinstance(file.value, list):
        raise file.error("", "must be a list of ports, as of GET /ufmRest/resources/ports")
    return [_ufm_port(file, at, entry) for at, entry in enumerate(file.value)]


def _ufm_port(file: JsonFile, at: int, entry: Any) -> SwitchPort:
    if not isinstance(entry, Mapping):
        raise file.error(f"{at}", f"must be a port, not {short(entry)}")

    def text(key: str) -> str:
        value = entry.get(key)
        if not isinstance(value, str) or not value.strip():
            raise file.error(f"{at}.{key}", "is missing" if value is None else "must be a text")
        return value.strip()

    name = entry.get("dname", entry.get("number"))
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise file.error(f"{at}.dname", "is missing, and so is number")
    state = text("logical_state")
    if state.lower() not in STATES:
        message = f"must be Active, Down, Init or Armed, not {short(state)}"
        raise file.error(f"{at}.logical_state", message)
    if not STATES[state.lower()]:
        return SwitchPort(text("system_name"), str(name), 0.0, 0)
    speed, width = text("active_speed"), WIDTH.fullmatch(text("active_width"))
    if speed.upper() not in LANE_GBPS:
        message = f"must be one of {', '.join(LANE_GBPS)}, not {short(speed)}"
        raise file.error(f"{at}.active_speed", message)
    if width is None:
        raise file.error(f"{at}.active_width", "must be a number of lanes as 4x")
    gbps = float(int(width[1]) * LANE_GBPS[speed.upper()])
    return SwitchPort(text("system_name"), str(name), gbps, 0)


def load_sonic(path: str) -> list[SwitchPort]:
    """Read ports of a switch from SONiC. Raises: InputError with line and column."""
    ports = list(_sonic_ports(path))
    if not ports:
        columns = ", ".join(NEEDED)
        raise refusal(f"has no table of `show interfaces status` with {columns}", path, 1)
    return ports


def _sonic_ports(path: str) -> Iterator[SwitchPort]:
    device, head, columns = Path(path).stem, "", dict[str, slice]()
    for number, line in csv_lines(path):
        if prompt := PROMPT.fullmatch(line.strip()):
            device, columns = prompt[1], {}
        elif not line.replace("-", "").strip():
            columns = _columns(path, number - 1, head, line)
        elif columns:
            cells = {name: line[where].strip() for name, where in columns.items()}
            row = CsvRow(path, number, cells)
            gbps = _sonic_gbps(row) if is_up(row, "Oper") else 0.0
            yield SwitchPort(device, row.text("Interface"), gbps, number)
        head = line


def _columns(path: str, number: int, head: str, ruler: str) -> dict[str, slice]:
    """Where each column stands: below its dashes, the last one to the end of the line."""
    spans = [match.span() for match in re.finditer("-+", ruler)]
    columns = {head[begin:end].strip(): slice(begin, end) for begin, end in spans}
    for name in NEEDED:
        if name not in columns:
            have = ", ".join(filter(None, columns)) or "none"
            raise refusal(f"no such column; there are {have}", path, number, name)
    return columns


def _sonic_gbps(row: CsvRow) -> float:
    speed = SPEED.fullmatch(row.text("Speed"))
    if speed is None:
        message = f"must be a speed as 400G, not {short(row.text('Speed'))}"
        raise refusal(message, row.source, row.line, "Speed")
    return float(speed[1]) / (1 if speed[2] == "G" else 1_000)
