"""Reads where a gang was: a JSON answer of `muster place`, or a file of hosts."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from placement import BadInput, Hint
from placement.fabric import hostlist
from placement.fabric.constraints import gpus_wanted
from placement.fabric.tree import Fabric
from placement.workload.request import Request
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text

GONE = -1


def load_hint(path: str, fabric: Fabric, request: Request, slack: float) -> Hint:
    """Read the old placement that `--near` names.

    Raises: InputError as `load_placement`, or when the job has another number of blocks.
    """
    hint = Hint(load_placement(path, fabric), slack)
    try:
        hint.check(request.parallelism.world_size // gpus_wanted(fabric, request.where), fabric)
    except BadInput as error:
        raise InputError(Problem("", error.message, path)) from None
    return hint


def load_placement(path: str, fabric: Fabric) -> tuple[int, ...]:
    """Hosts in block order, as indices into `fabric`; GONE for one that it does not have.

    A file of hosts has a name or a hostlist range a line, what follows the name ignored
    (`slots=8`), `#` for comments; a name repeated for each rank counts once.

    Raises: InputError when it is neither, or none of its hosts is of this fabric.
    """
    text = read_text(path)
    names = _from_answer(text, path) if text.lstrip().startswith("{") else _from_lines(text, path)
    if not names:
        raise InputError(Problem("", "names no hosts", path))
    hosts = tuple(fabric.index_by_name.get(name, GONE) for name in names)
    if all(host == GONE for host in hosts):
        message = f"{fabric.name} has none of its hosts, such as {names[0]!r}"
        example = f"its hosts are named like {fabric.hosts[0]}"
        raise InputError(Problem("", f"{message}; {example}", path))
    return hosts


def _from_answer(text: str, path: str) -> list[str]:
    try:
        answer: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise InputError(Problem("", f"is not JSON: {error}", path, line)) from None
    hosts = answer.get("hosts")
    if answer.get("outcome", "placed") != "placed":
        raise InputError(Problem("outcome", f"is {answer['outcome']!r}, not a placement", path))
    if not isinstance(hosts, list) or not all(isinstance(name, str) for name in hosts):
        raise InputError(Problem("hosts", "must be a list of host names in block order", path))
    return hosts


def _from_lines(text: str, path: str) -> list[str]:
    names: list[str] = []
    problems: list[Problem] = []
    for number, row in enumerate(text.splitlines(), start=1):
        words = row.partition("#")[0].split()
        try:
            names += hostlist.expand(words[0]) if words else []
        except BadInput as error:
            problems.append(Problem("", error.message, path, number))
    if problems:
        raise InputError(*problems)
    return [name for name, _ in groupby(names)]
