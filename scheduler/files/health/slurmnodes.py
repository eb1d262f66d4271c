"""How Slurm sees its nodes: text of `scontrol show nodes`, a table of `sinfo`, or JSON.

scontrol show nodes [-o]        NodeName=n1 ... State=IDLE+DRAIN ... Reason=disk [root@...]
sinfo [-N] [-l] [-o ...]        a header with STATE and NODELIST or HOSTNAMES, below the date with
                                -l; cells between blanks, bars, semicolons or commas
sinfo -h -o "%n %T"             no header: a name first, and one column of states
scontrol show nodes --json      {"nodes": [{"name": ..., "state": ["IDLE", "DRAIN"]}]}, or in 22.05
                                {"state": "idle", "state_flags": ["DRAIN"]}
sinfo --json                    {"sinfo": [{"node": {"state": ...}, "nodes": {"nodes": ...}}]}

Sources: sinfo(1), "Node state codes", for the words, their short forms and marks; the data
parsers of Slurm 23.02 to 25.05 for JSON, where a reason is text or {"description": ...}.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from muster.structs import replace
from placement import BadInput
from placement.fabric import hostlist
from scheduler.files import yaml12
from scheduler.files.errors import InputError, Problem, line_of
from scheduler.files.health.found import ImportedReport, NodeState
from scheduler.files.yaml12 import MOST_PROGRAM_BYTES, JsonFile


def _group(words: str) -> frozenset[str]:
    return frozenset(words.split())


_DOWN: Final = _group("down fail error err")
# Nothing may run there now, and nothing has failed: no fault of the host's is counted.
_DRAIN: Final = _group(
    "drain drained draining drng maint maintenance reboot_issued boot"
    " powered_down powering_down power_down pow_dn power_drain"
    " powering_up power_up pow_up future futr inval invalid invalid_reg"
)
_FAILING: Final = _group("failing failg")
_SILENT: Final = _group("not_responding")
_UNKNOWN: Final = _group("unknown unk")  # the controller has just started
_UP: Final = _group(
    "idle allocated alloc mixed mix completing comp reserved resv planned plnd blocked"
    " perfctrs npc reboot reboot_requested reboot_canceled canc_r powered_up cloud external"
    " dynamic_norm dynamic_future resume undrain"
)
_KNOWN: Final = _DOWN | _DRAIN | _FAILING | _SILENT | _UNKNOWN | _UP
_COLUMNS: Final = ("STATE", "STATES", "NODELIST", "HOSTNAMES", "REASON")
_MARKS: Final = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "!": "power_down",
    "%": "powering_down",
    "$": "maintenance",
    "^": "reboot_issued",
}
_IGNORED_MARKS: Final = "@-+"  # a reboot is asked for; planned for a job; completing
_KEY: Final = re.compile(r"(?:^|\s)(NodeName|State|Reason)=")


def load_slurm(path: str) -> list[ImportedReport]:
    """Read the states of Slurm's nodes from a file. Raises: InputError naming line and field."""
    text = yaml12.read_text(path, MOST_PROGRAM_BYTES)
    if text.lstrip().startswith("{"):
        file = JsonFile.load(path)
        nodes = list(_json(file))
        lines = file.lines()
        return [replace(f, line=line_of(lines, f.field)) for f in nodes]
    return read_nodes(text, path)


def read_nodes(text: str, path: str) -> list[ImportedReport]:
    """Read reports on nodes from text that is not JSON; `path` names it in errors. Raises:
    InputError."""
    rows = [(number, row) for number, row in enumerate(text.splitlines(), 1) if row.strip(" \t|;,")]
    if not rows:
        raise InputError(Problem("", "holds no node", path))
    if rows[0][1].lstrip().startswith("NodeName="):
        return [_node(path, record) for record in _records(rows)]
    return list(_table(path, rows))


def _records(rows: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """The lines of each node: one with -o, else several, of which only the first is not
    indented."""
    record: list[tuple[int, str]] = []
    for number, row in rows:
        if record and not row[0].isspace():
            yield record
            record = []
        record.append((number, row))
    yield record


def _node(path: str, record: list[tuple[int, str]]) -> ImportedReport:
    """One node of `scontrol show nodes`; words of a reason may hold spaces."""
    fields, lines = dict[str, str](), dict[str, int]()
    for number, row in record:
        for match in _KEY.finditer(row):
            fields[match[1]], lines[match[1]] = row[match.end() :], number
    line = lines.get("State", record[0][0])
    for key in ("NodeName", "State"):
        if not fields.get(key, "")[:1].strip():  # nothing stands right behind it
            raise InputError(Problem(key, "is missing", path, line))
    name, state = fields["NodeName"].split()[0], fields["State"].split()[0]
    reason = fields.get("Reason", "").strip()
    standing = _standing([state], partial(_refused, path, line, "State"))
    return ImportedReport(name, line, "State", standing=standing, detail=reason)


def _table(path: str, rows: list[tuple[int, str]]) -> Iterator[ImportedReport]:
    if len(rows) > 1 and {"STATE", "STATES"} & {*_cells(rows[1][1])}:
        rows = rows[1:]  # the first line of --long is the date
    line, head = rows[0]
    columns = _cells(head)
    place = {each: columns.index(each) for each in _COLUMNS if each in columns}
    state_at = place.get("STATE", place.get("STATES"))
    names_at = place.get("NODELIST", place.get("HOSTNAMES"))
    if state_at is None or names_at is None:
        places = _without_header(rows)
        if places is None:
            complaint = (
                "is neither scontrol show nodes, nor a table of sinfo with STATE and NODELIST, or"
                " without a header the name of a node and one state in each row"
            )
            raise InputError(Problem("header", complaint, path, line))
        names_at, state_at = places
        columns, rows = [""] * len(columns), [(0, ""), *rows]
    for number, row in rows[1:]:
        cells = _cells(row, len(columns) - 1 if columns[-1] == "REASON" else -1)
        if len(cells) == len(columns) - 1 and "RESERVATION" in columns:
            cells.insert(columns.index("RESERVATION"), "")  # of none: nothing is printed
        if len(cells) != len(columns):
            complaint = f"has {len(cells)} columns, not {len(columns)}"
            raise InputError(Problem("columns", complaint, path, number))
        reason = cells[place["REASON"]] if "REASON" in place else ""
        standing = _standing([cells[state_at]], partial(_refused, path, number, "STATE"))
        for name in _names(path, number, cells[names_at]):
            yield ImportedReport(name, number, "STATE", standing=standing, detail=reason)


def _cells(row: str, most: int = -1) -> list[str]:
    """Return the cells of a row: between bars or semicolons, else blanks, else commas."""
    separator = next((each for each in "|;" if each in row), "," if len(row.split()) == 1 else None)
    if separator == "," and "[" in row:
        separator = None  # the commas of a list of hosts
    return [cell.strip() for cell in row.strip().rstrip("|").split(separator, most)]


def _without_header(rows: list[tuple[int, str]]) -> tuple[int, int] | None:
    """Return the columns of names and states where the first cell of a row is a name, and one other
    column holds a state in every row; None: it is no such table."""
    table = [_cells(row) for _, row in rows]
    width = len(table[0])
    if width < 2 or any(len(cells) != width for cells in table):
        return None
    states = [
        at
        for at in range(1, width)
        if all(cells[at] and not _words([cells[at]]) - _KNOWN for cells in table)
    ]
    return (0, states[0]) if len(states) == 1 else None


def _refused(path: str, line: int, field: str, message: str) -> InputError:
    return InputError(Problem(field, message, path, line))


def _names(path: str, line: int, text: str) -> list[str]:
    try:
        return hostlist.expand(text)
    except BadInput as error:
        raise InputError(Problem("NODELIST", error.message, path, line)) from None


def _words(states: Iterable[str]) -> set[str]:
    """Return the state codes and flags in these texts, marks such as `*` as words."""
    words: set[str] = set()
    for state in states:
        for part in state.lower().split("+"):
            plain = part.rstrip("".join(_MARKS) + _IGNORED_MARKS)
            words |= {plain} | {_MARKS[c] for c in part[len(plain) :] if _MARKS.get(c)}
    return words


def _standing(states: Iterable[str], refused: Callable[[str], InputError]) -> NodeState | None:
    """None: Slurm does not know itself."""
    words = _words(states)
    if strange := sorted(words - _KNOWN):
        raise refused(f"unknown state {strange[0]!r}")
    for group, standing in (
        (_DOWN, NodeState.DOWN),
        (_DRAIN, NodeState.DRAIN),
        (_FAILING, NodeState.FAILING),
        (_SILENT, NodeState.SILENT),
        (_UNKNOWN, None),
    ):
        if words & group:
            return standing
    return NodeState.UP


def _json(file: JsonFile) -> Iterator[ImportedReport]:
    if isinstance(file.value.get("nodes"), list):
        for i, node in enumerate(file.value["nodes"]):
            here = f"nodes.{i}"
            name = _at(file, node, here, "name")
            if not isinstance(name, str) or not name:
                raise file.error(f"{here}.name", "must be a name")
            yield _of_json(file, name, here, node)
    elif isinstance(file.value.get("sinfo"), list):
        for i, entry in enumerate(file.value["sinfo"]):
            here = f"sinfo.{i}"
            names = _at(file, _at(file, entry, here, "nodes"), f"{here}.nodes", "nodes")
            node = _at(file, entry, here, "node")
            if not isinstance(names, list):
                raise file.error(f"{here}.nodes.nodes", "must be a list of names")
            if not isinstance(node, dict):
                raise file.error(f"{here}.node", "must be an object")
            reason = entry.get("reason")
            for name in names:
                yield _of_json(file, str(name), f"{here}.node", {**node, "reason": reason})
    else:
        raise file.error("", "has neither a list of nodes nor of sinfo")


def _at(file: JsonFile, value: Any, field: str, key: str) -> Any:
    if not isinstance(value, dict) or key not in value:
        raise file.error(f"{field}.{key}", "is missing")
    return value[key]


def _of_json(file: JsonFile, name: str, field: str, node: Any) -> ImportedReport:
    states = _at(file, node, field, "state")
    flags = node.get("state_flags") or []  # of Slurm 21.08 and 22.05, beside one state
    states = [*(states if isinstance(states, list) else [states]), *flags]
    if not states or not all(isinstance(state, str) for state in states):
        raise file.error(f"{field}.state", "must be a list of states")
    reason = node.get("reason") or ""
    text = reason.get("description", "") if isinstance(reason, dict) else str(reason)
    standing = _standing(states, partial(file.error, f"{field}.state"))
    return ImportedReport(name, 0, f"{field}.state", standing=standing, detail=str(text))
