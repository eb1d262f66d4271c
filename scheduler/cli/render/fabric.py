"""What another fabric changes, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement.fabric import hostlist
from scheduler.cli.render.text import columns, counted, enum_word
from scheduler.files.errors import one_line
from scheduler.v1 import service_pb2

_LISTS = (
    ("added_hosts", "added", "host"),
    ("removed_hosts", "removed", "host"),
    ("moved_hosts", "moved", "host"),
    ("changed_hosts", "changed", "host"),
    ("added_domains", "added", "domain"),
    ("removed_domains", "removed", "domain"),
    ("changed_uplinks", "changed", "uplink"),
)


def change_text(answer: service_pb2.ApplyFabricResponse) -> str:
    """Show hosts and domains that come, go or are renamed, then obstacles host by host."""
    rows = [
        [verb, counted(len(names), noun), ranges(names)] for verb, noun, names in _lists(answer)
    ]
    rows += [["renamed", each.old_name, f"-> {each.new_name}"] for each in answer.renames]
    rows += [["set", *setting.partition(" ")[::2]] for setting in answer.settings]
    head = f"fabric {answer.fabric.name}: {answer.fabric.host_count:,} hosts"
    parts = [head, columns(rows) if rows else "nothing differs"]
    if answer.refusals:
        parts.append(_refusals(answer.refusals))
    return "\n".join(parts)


def _lists(answer: service_pb2.ApplyFabricResponse) -> Iterator[tuple[str, str, Sequence[str]]]:
    for field, verb, noun in _LISTS:
        if names := getattr(answer, field):
            yield verb, noun, names


def ranges(names: Sequence[str]) -> str:
    """Write many names of hosts or domains as ranges."""
    return hostlist.fold(names)


def _refusals(refusals: Sequence[service_pb2.FabricRefusal]) -> str:
    rows = [["NAME", "OBSTACLE", "DETAIL"]]
    rows += [
        [each.subject, enum_word(each, "obstacle"), one_line(each.detail)] for each in refusals
    ]
    held = (service_pb2.FABRIC_OBSTACLE_GANG, service_pb2.FABRIC_OBSTACLE_SPARE)
    drain = [each.subject for each in refusals if each.obstacle in held]
    lines = ["", columns(rows)]
    if drain:
        lines += ["", f"drain first: {ranges(drain)}"]
    return "\n".join(lines)
