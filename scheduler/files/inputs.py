"""Reads what users write: fabric files, job files, lists of busy hosts.

Everything wrong is an InputError that names the file, the line and the field.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from muster.structs import struct
from placement import BadInput
from placement.fabric import hostlist, hostset
from placement.fabric.hostset import HostSet
from placement.fabric.reader import PRESETS, from_spec, preset
from placement.fabric.tree import Fabric
from scheduler.core.model.job import JobSpec
from scheduler.files.errors import InputError, Problem
from scheduler.files.job import job_from_document, job_from_mapping
from scheduler.files.job_keys import parse_spares
from scheduler.files.yaml12 import (
    MOST_BYTES,
    Document,
    decoded,
    load,
    parse,
    parse_all,
    read_text,
)

if TYPE_CHECKING:
    from placement import Hint
    from placement.workload.request import Request

__all__ = [
    "InputError",
    "JobFile",
    "job_from_mapping",
    "load_busy",
    "load_fabric",
    "load_hint",
    "load_job",
    "parse_spares",
    "read_job",
    "read_jobs",
]

Item = TypeVar("Item")
GONE = -1  # in place of a host that a fabric does not have
_LOOKS_LIKE_FILE = re.compile(r"/|\.(ya?ml|json)$")


def load_fabric(name_or_file: str) -> Fabric:
    """Load a preset by name, or the fabric that a YAML file describes. Raises: InputError."""
    if name_or_file in PRESETS:
        return preset(name_or_file)
    if not _LOOKS_LIKE_FILE.search(name_or_file) and not os.path.exists(name_or_file):
        presets = ", ".join(PRESETS)
        message = f"{name_or_file!r} is neither a preset ({presets}) nor a file"
        raise InputError(Problem("fabric", message))
    document = load(name_or_file)
    spec, measured = dict(document.mapping()), None
    if isinstance(spec.get("calibration"), str):
        measured = load(Path(name_or_file).parent / spec["calibration"])
        spec["calibration"] = measured.mapping()
    try:
        if routing := (fabric := from_spec(spec)).routing:
            from network.routing import parse_routing

            parse_routing(routing)
        return fabric
    except BadInput as error:
        field = error.field.removeprefix("calibration.")
        if measured is not None and field != error.field:
            raise measured.error((field, error.message)) from None
        raise document.error((error.field, error.message)) from None


@struct(frozen=True, slots=True)
class JobFile:
    """A job and the file it came from, so that a later refusal can name the line."""

    spec: JobSpec
    document: Document

    @contextmanager
    def naming_lines(self) -> Iterator[None]:
        """Raise what refuses the job as an InputError that names the line of its field."""
        try:
            yield
        except BadInput as error:
            raise self.document.error((error.field, error.message)) from None


def load_job(path: str) -> JobSpec:
    """Load the job that a YAML file describes; a job without a name is named after its file.

    Raises: InputError with every fault found.
    """
    return read_job(path).spec


def read_job(path: str) -> JobFile:
    """Load a job file, and keep its lines."""
    document = load(path)
    return JobFile(job_from_document(document, Path(path).stem), document)


def read_jobs(path: str) -> list[JobFile]:
    """Read the jobs of a file, or of standard input where it is `-`: one, or several that `---`
    separates and that have names. Raises: InputError with every fault found."""
    source = "standard input" if path == "-" else path
    text = (
        decoded(sys.stdin.buffer.read(MOST_BYTES + 1), source) if path == "-" else read_text(path)
    )
    documents = parse_all(text, source) or [parse(text, source)]
    needs_names = path == "-" or len(documents) > 1
    jobs, problems = list[JobFile](), list[Problem]()
    for number, document in enumerate(documents, start=1):
        try:
            if needs_names and "name" not in document.mapping():
                which = f" in job {number} of {len(documents)}" if len(documents) > 1 else ""
                raise document.error(("name", f"is missing{which}"))
            spec = job_from_document(document, "" if needs_names else Path(path).stem)
        except InputError as error:
            problems += error.found
            continue
        jobs.append(JobFile(spec, document))
    if problems:
        raise InputError(*problems)
    names = [job.spec.name for job in jobs]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(Problem("name", f"two jobs are called {repeated}", source))
    return jobs


def load_busy(path: str, fabric: Fabric) -> HostSet:
    """Read the hosts that a file lists: a name or a hostlist range a line, `#` for comments.

    Raises: InputError with every line that names no host of `fabric`.
    """
    return hostset.of(_read_lines(path, lambda text: _hosts(text, fabric)))


def load_hint(path: str, fabric: Fabric, request: Request, slack: float) -> Hint:
    """Read the old placement that `--near` names. Raises: InputError as `load_placement`, or when
    the job has another number of blocks."""
    from placement import Hint
    from placement.fabric.constraints import gpus_wanted

    hint = Hint(load_placement(path, fabric), slack)
    try:
        hint.check(request.parallelism.world_size // gpus_wanted(fabric, request.where), fabric)
    except BadInput as error:
        raise InputError(Problem("", error.message, path)) from None
    return hint


def load_placement(path: str, fabric: Fabric) -> tuple[int, ...]:
    """Read hosts in block order, GONE for one that the fabric does not have: a name or a hostlist
    range a line, what follows the name ignored (`slots=8`); a name repeated for each rank counts
    once. Raises: InputError when none of its hosts is of this fabric."""
    names = _read_lines(path, lambda text: hostlist.expand(text.split()[0]))
    hosts = tuple(fabric.index_by_name.get(name, GONE) for name, _ in groupby(names))
    if all(host == GONE for host in hosts):
        message = f"names no hosts of {fabric.name}, which are named like {fabric.hosts[0]}"
        raise InputError(Problem("", message, path))
    return hosts


def _read_lines(path: str, read: Callable[[str], list[Item]]) -> list[Item]:
    """Return what each line of a file stands for, without comments. Raises: InputError with every
    line that is refused."""
    items, problems = list[Item](), list[Problem]()
    for number, row in enumerate(read_text(path).splitlines(), start=1):
        text = row.partition("#")[0].strip()
        try:
            items += read(text) if text else []
        except BadInput as error:
            problems.append(Problem("", error.message, path, number))
    if problems:
        raise InputError(*problems)
    return items


def _hosts(text: str, fabric: Fabric) -> list[int]:
    names = hostlist.expand(text)
    unknown = [name for name in names if name not in fabric.index_by_name]
    if unknown:
        more = f" and {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        example = f"; its hosts are named like {fabric.hosts[0]}"
        raise BadInput("", f"{fabric.name} has no host {unknown[0]!r}{more}{example}")
    return list(fabric.indices(names))
