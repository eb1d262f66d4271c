"""What Slurm's two topology files share: hostlists, and what trees and blocks become."""

from __future__ import annotations

from muster.structs import replace
from placement import BadInput
from placement.fabric import hostlist
from scheduler.files.errors import refusal
from scheduler.files.fabrics.network import TopologyNetwork

CATCH_ALL = "unknown"  # of Soperator


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
