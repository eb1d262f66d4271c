"""Slurm's topology.conf, or what `scontrol show topology` prints: a tree of switches, or blocks.

Source: topology.conf(5), and topology_p_topology_print of the plugins tree and block.
`LinkSpeed` is in units of no one's choosing and unused by Slurm, so it is read and dropped.
Block sizes are what jobs may ask for, not what is wired; they become no tier. A block is
a domain of NVLink, which the block plugin is made for: the imported tier is a scale-up tier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from importers.fabrics import slurm
from importers.fabrics.switches import Switch, network
from muster.structs import struct
from scheduler.files.errors import InputError, refusal
from scheduler.files.fabrics.network import Choices, TopologyNetwork
from scheduler.files.yaml12 import MOST_PROGRAM_BYTES, read_text

_PAIR = re.compile(r'\s*(?P<key>[A-Za-z_]\w*)\s*=\s*(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))(?=\s|$)')
_COMMENT = re.compile(r"(?<!\\)#.*")
_INCLUDE = re.compile(r"include\s", re.IGNORECASE)
_KEYS = {
    "switchname": ("switches", "nodes", "linkspeed", "level"),
    "blockname": ("nodes", "blockindex", "blocksize"),
    "blocksizes": (),
    "aggregatedblock": ("nodes", "blockindex", "blocksize"),  # printed, never configured
}


@struct(frozen=True, slots=True)
class _Line:
    """A logical line: its pairs, keys in lower case, and where it starts."""

    pairs: dict[str, str]
    source: str
    line: int

    def refusal(self, message: str, field: str = "") -> InputError:
        return refusal(message, self.source, self.line, field)


def read(path: str, _choices: Choices) -> TopologyNetwork:
    """Read a topology.conf or the output of `scontrol show topology`, tree or block.

    Aggregated blocks are larger block sizes, and become no tier.

    Raises: InputError. Cost: 60 ms for 3,072 hosts in 1,545 switches.
    """
    by_kind: dict[str, list[_Line]] = {kind: [] for kind in _KEYS}
    for line in _lines(path):
        by_kind[_kind(line)].append(line)
    switches, blocks, sizes, _ = by_kind.values()
    if switches and (blocks or sizes):
        line = (blocks + sizes)[0]
        raise line.refusal("is about blocks, and the file has switches: it is one or the other")
    if not switches and not blocks:
        raise refusal("defines no switch and no block", path)
    parsed = [_switch("switchname", line) for line in switches]
    parsed += [_switch("blockname", line) for line in blocks]
    whole = network(parsed)
    return slurm.of_blocks(whole) if blocks else slurm.of_tree(whole)


def _lines(path: str) -> Iterator[_Line]:
    """Yield the logical lines of a file."""
    for number, text in _logical_lines(read_text(path, MOST_PROGRAM_BYTES)):
        if _INCLUDE.match(text):
            message = "is not followed: `scontrol show topology` prints all files as one"
            raise refusal(message, path, number, "Include")
        yield _Line(_pairs(text, path, number), path, number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, text) without comments; a final backslash continues."""
    begun, start = "", 0
    for number, row in enumerate(text.splitlines(), start=1):
        row = _COMMENT.sub("", row).rstrip()
        start = start if begun else number
        if row.endswith("\\"):
            begun += row[:-1] + " "
            continue
        if (begun + row).strip():
            yield start, (begun + row).strip()
        begun = ""
    if begun.strip():
        yield start, begun.strip()


def _pairs(text: str, source: str, line: int) -> dict[str, str]:
    pairs: dict[str, str] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if not match:
            raise refusal(f"{text[at:].split()[0]!r} is not KEY=VALUE", source, line)
        key = match["key"].lower()
        if key in pairs:
            raise refusal("is given twice in one line", source, line, match["key"])
        pairs[key] = match["plain"] or match["quoted"] or ""
        at = match.end()
    return pairs


def _kind(line: _Line) -> str:
    """Return which of `_KEYS` this line is; check its other keys."""
    if "ringname" in line.pairs:
        raise line.refusal("a ring has no tiers and cannot become a fabric", "RingName")
    kind = next((key for key in _KEYS if key in line.pairs), None)
    if kind is None:
        given = ", ".join(line.pairs)
        raise line.refusal(f"has no SwitchName, BlockName or BlockSizes, only {given}")
    for key in line.pairs:
        if key != kind and key not in _KEYS[kind]:
            known = ", ".join((kind, *_KEYS[kind]))
            raise line.refusal(f"unknown key; known on this line are {known}", key)
    return kind


def _switch(kind: str, line: _Line) -> Switch:
    name = line.pairs[kind]
    if not name or "[" in name or "," in name:
        raise line.refusal(f"must be one name, not {name!r}", kind)
    below = {
        key: slurm.names(line.pairs[key], line.source, line.line, key) if key in line.pairs else ()
        for key in ("switches", "nodes")
    }
    if "level" in line.pairs and below["switches"]:
        below["nodes"] = ()  # printed: all hosts below, not those on the switch itself
    return Switch(name, below["switches"], below["nodes"], line.source, line.line)
