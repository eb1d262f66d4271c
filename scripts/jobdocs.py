"""Write docs/job-file.md, every key of the job file; --check says whether it is current.

The keys and their defaults are those that `scheduler.files.job_keys` reads, and what is said of
each is the comment of its field in proto/, so that neither can be forgotten.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from scheduler.files.job_keys import JobKeys, sections
from scheduler.v1 import job_pb2
from scheduler.wire.specs import file_key
from scripts.apidocs import entries

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "job-file.md"
_HEAD = """# Every key of the job file

This page is made from the code by `make stubs`. A file has one job, or several that `---`
separates. Seconds may be written as `90s`, `2h30m` or `1d12h`; in `run.command` and `run.env`
numbers are taken as they are written. [traffic.md](traffic.md) has what `model`, `batch` and
`training` come to, [scheduling.md](scheduling.md) constraints, dependencies and arrays,
[launch.md](launch.md) `run`.
"""
_KINDS = {
    FieldDescriptor.TYPE_STRING: "text",
    FieldDescriptor.TYPE_BOOL: "true or false",
    FieldDescriptor.TYPE_DOUBLE: "number",
    FieldDescriptor.TYPE_INT32: "whole number",
    FieldDescriptor.TYPE_INT64: "whole number",
}
_PATHS = {"on": "restarts.on", "container": "run.container"}
_OWN_FORM = {
    "restarts.on.exit": "[code, ...]",
    "parallelism.dp": "whole number, or {min: A, max: B}",
    "constraints.avoid": "{TIER: [job, ...]}",
    "compute_time_s": "seconds",
    "roles": "[[see below](#roles), ...]",
    "roles.compute_time_s": "seconds",
    "roles.beside": "{TIER: [role, ...]}",
    "roles.avoid": "{TIER: [role, ...]}",
    "cut_slack": "number, or share such as 0.5%",
    "spares": "auto, whole number, or share such as 2%",
    "dependencies": "afterok:a:b,singleton",
    "array": "0-15%4",
}


def page() -> str:
    """Return the whole page."""
    comments = dict(entries())
    parts = [_HEAD]
    for name, section in sections(JobKeys).items():
        kind = job_pb2.JobSpec.DESCRIPTOR
        for part in _PATHS.get(name, name).split("."):
            kind = kind.fields_by_name[part].message_type if part else kind
        if name == "dependencies" or set(section.model_fields) <= _axes(name):
            continue
        title = f"`{_PATHS.get(name, name)}`" if name else "The job"
        rows = "\n".join(_rows(name, kind, section, comments))
        parts.append(f"## {title}\n\n| key | value | default | |\n|---|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _axes(name: str) -> set[str]:
    """Keys of a section that only maps axes to values."""
    return {"tp", "cp", "ep", "pp", "dp"} if name in ("traffic", "collectives") else set()


def _rows(
    name: str, kind: Descriptor, section: type[BaseModel], comments: dict[str, str]
) -> Iterator[str]:
    """A row for each key."""
    by_key = {_key(name, field): field for field in kind.fields}
    for key, read in section.model_fields.items():
        field = by_key[key]
        said = comments[f"{kind.full_name}.{field.name}"].replace("|", "\\|")
        path = f"{_PATHS.get(name, name)}.{key}".lstrip(".")
        value = _OWN_FORM.get(path) or _value(field, path)
        yield f"| `{key}` | {value} | {_default(read)} | {said} |"


def _key(section: str, field: FieldDescriptor) -> str:
    """Return the name that the file gives to a field of the message."""
    path = f"{_PATHS.get(section, section)}.{field.name}".lstrip(".")
    return field.name if path == "begin_time" else file_key(path).rpartition(".")[2]


def _value(field: FieldDescriptor, path: str) -> str:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return "{key: value}"
    if kind is not None:
        known = {Duration.DESCRIPTOR: "seconds", Timestamp.DESCRIPTOR: "date and time"}
        value = known.get(kind, f"[see below](#{path.removeprefix('roles.').replace('.', '')})")
    elif field.enum_type is not None:
        first, *rest = field.enum_type.values
        prefix = first.name.removesuffix("UNSPECIFIED")
        value = ", ".join(f"`{each.name.removeprefix(prefix).lower()}`" for each in rest)
    else:
        value = _KINDS[field.type]
    return f"[{value}, ...]" if field.is_repeated else value


def _default(read: Any) -> str:
    if read.is_required():
        return "required"
    value = read.default
    if value is PydanticUndefined or value is None or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, StrEnum | str | int | float):
        return f"`{value}`" if value not in ("", 0) else ""
    return "`auto`" if type(value).__name__ == "SpareRule" else ""


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is not what the keys say: run `make stubs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
