"""What another scheduler says of a host, as a command for the log: as `muster report --import`."""

from __future__ import annotations

from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.lifecycle import HostMove
from scheduler.core.model.state import Host
from scheduler.files.health.found import (
    CORDON,
    DRAIN,
    KUBERNETES,
    UNCORDON,
    NodeState,
    change_for,
    is_word_of,
)

_MOVES = {CORDON: HostMove.CORDON, DRAIN: HostMove.DRAIN, UNCORDON: HostMove.UNCORDON}


def report_of(
    source: str, name: str, standing: NodeState | None, detail: str, host: Host
) -> MoveHost | ReportHost | None:
    """Return the command that brings a host to its state in `source`; None where it is in that
    state already."""
    if standing is None or (standing is NodeState.SILENT and host.signal):
        return None
    text = f"{source}: {detail}".rstrip(": ")
    if source == KUBERNETES and _goes_further(standing, text, host.cordon):
        return MoveHost(name, HostMove.DRAIN, text)
    word = change_for(standing, host.state, host.reason, host.cordon, source)
    if word in _MOVES:
        return MoveHost(name, _MOVES[word], text)
    return ReportHost(name, word, text) if word else None


def _goes_further(standing: NodeState, text: str, cordon: str | None) -> bool:
    """`kubectl drain` cordons a node first, and evicts its pods then."""
    if standing is not NodeState.DRAIN or cordon is None or cordon == text:
        return False
    return is_word_of(KUBERNETES, cordon)
