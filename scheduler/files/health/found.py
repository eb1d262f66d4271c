"""What a file says of one host."""

from __future__ import annotations

from enum import StrEnum

from muster.structs import struct
from scheduler.core.model.lifecycle import HostState


class NodeState(StrEnum):
    """State of a host in the view of another scheduler."""

    UP = "up"
    DOWN = "down"
    CORDON = "cordon"  # what runs goes on, nothing new starts
    DRAIN = "drain"
    FAILING = "failing"
    SILENT = "silent"


@struct(frozen=True, slots=True)
class ImportedReport:
    """A signal of an imported file, or the state of the host in another scheduler; neither where
    nothing is known. `field`: where it is said."""

    host: str
    line: int
    field: str
    signal: str = ""
    detail: str = ""
    gpu: int | None = None
    xid: int = 0
    standing: NodeState | None = None


SLURM, KUBERNETES = "slurm", "kubernetes"
REFUSED = "refused"  # with which a reason begins where another scheduler does not give a host
CORDON, DRAIN, UNCORDON = "cordon", "drain", "uncordon"
_SERVING = (HostState.HEALTHY, HostState.GOLDEN, HostState.SUSPECT)
_AWAY = (HostState.FAILED, HostState.IN_REPAIR, HostState.RMA)
_NEW = (HostState.NEW, HostState.BURN_IN)


def change_for(
    standing: NodeState,
    state: HostState | None,
    reason: str,
    cordon: str | None,
    source: str = SLURM,
) -> str:
    """Return the change that brings a host here to its state in `source`: the kind of a signal,
    CORDON, DRAIN, UNCORDON, or "" for none. Only what was done for `source` is undone.

    `reason`: why the host is in its state; `cordon`: why it is cordoned, None where it is not.
    """
    is_serving = state in _SERVING
    match standing:
        case NodeState.DOWN:
            return "" if state in _AWAY else "host-down"
        case NodeState.FAILING:
            return "predicted-failure" if is_serving else ""
        case NodeState.SILENT:
            return "heartbeat-missed" if is_serving else ""
        case NodeState.CORDON | NodeState.DRAIN:
            is_done = cordon is not None or state in (*_AWAY, *_NEW)
            return "" if is_done else standing.value
        case NodeState.UP:
            is_ours = reason.startswith((f"host-down: {source}", f"heartbeat-missed: {source}"))
            if is_ours and state is HostState.FAILED:
                return "repaired"
            return UNCORDON if cordon is not None and is_word_of(source, cordon) else ""


def is_word_of(source: str, text: str) -> bool:
    """Return whether this reason was given on behalf of `source`."""
    return text == source or text.startswith(f"{source}: ")
