"""What Slurm's two topology files share: hostlists and block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from importers.fabrics.switches import Switch
from muster.structs import replace
from placement import BadInput
from placement.fabric import hostlist
from scheduler.files.errors import refusal
from scheduler.files.fabrics.network import TopologyNetwork

CATCH_ALL = "unknown"  # of Soperator
LARGEST_BLOCK_SIZE = 10**9


def names(text: str, source: str, line: int, key: str) -> tuple[str, ...]:
    """Expand a hostlist of Slurm. Raises: InputError on what is no hostlist, and on ALL, which
    needs slurm.conf."""
    if text == "ALL":
        message = "ALL stands for the hosts of slurm.conf, which is not read; list them"
        raise refusal(message, source, line, key)
    try:
        return tuple(hostlist.expand(text))
    except BadInput as error:
        raise refusal(error.message, source, line, key) from None


def sizes(values: Sequence[Any], source: str, line: int, field: str) -> list[int]:
    numbers = [str(value).strip() for value in values]
    for number in numbers:
        if not number.isdecimal() or not 0 < int(number[:20]) < LARGEST_BLOCK_SIZE:
            raise refusal(f"{number!r} is not a number of hosts", source, line, field)
    return [int(number) for number in numbers]


def check_sizes(
    given_sizes: Sequence[int], blocks: Sequence[Switch], source: str, line: int, field: str
) -> None:
    """Refuse block sizes unless each is a power of two times the one before, and no block is below
    the first. Raises: InputError."""
    for small, large in pairwise(given_sizes):
        ratio = large // small
        if large % small or ratio < 2 or ratio & (ratio - 1):
            raise refusal(f"{large} is not a power of two times {small}", source, line, field)
    for block in blocks:
        if given_sizes and len(block.nodes) < given_sizes[0]:
            raise block.refusal(
                f"has {len(block.nodes)} hosts, fewer than the block size {given_sizes[0]}"
            )


def of_blocks(network: TopologyNetwork) -> TopologyNetwork:
    """Return the network with blocks as scale-up domains, joined by NVLink."""
    return replace(network, scale_up=frozenset(network.domains(network.depth - 1)))


def of_tree(network: TopologyNetwork) -> TopologyNetwork:
    """Return the network of a tree or forest: Slurm gives no job hosts of two trees."""
    notes = list(network.notes)
    if CATCH_ALL in {name for path in network.paths for name in path}:
        notes.append(
            f"{CATCH_ALL} is where hosts are put whose place is not known; --hosts leaves them out"
        )
    return replace(network, notes=tuple(notes), joined=len(network.domains(0)) == 1)
