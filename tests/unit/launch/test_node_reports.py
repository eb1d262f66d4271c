"""What Slurm and Kubernetes say of a node: told once, and undone for its sake alone."""

from scheduler.core.model.commands import MoveHost, ReportHost
from scheduler.core.model.lifecycle import HostMove, HostState
from scheduler.core.model.state import Host
from scheduler.files.health.found import NodeState
from scheduler.launch.node_reports import report_of


def cordoned(cordon: str) -> Host:
    return Host(HostState.CORDONED, 0, cordon=cordon)


def failed(reason: str = "") -> Host:
    return Host(HostState.FAILED, 0, reason)


HEALTHY = Host(HostState.HEALTHY, 0)
MOVES = {move: MoveHost("n", move, "slurm: x") for move in HostMove}
DOWN, REPAIRED = (ReportHost("n", signal, "slurm: x") for signal in ("host-down", "repaired"))


def test_what_is_said_of_a_node_is_told_once_and_undone_for_its_sake_alone() -> None:
    for standing, host, command in [
        (NodeState.UP, HEALTHY, None),
        (None, HEALTHY, None),
        (NodeState.CORDON, HEALTHY, MOVES[HostMove.CORDON]),
        (NodeState.CORDON, cordoned("by hand"), None),
        (NodeState.DRAIN, HEALTHY, MOVES[HostMove.DRAIN]),
        (NodeState.DRAIN, Host(HostState.DRAINING, 0, cordon="mine"), None),
        (NodeState.DRAIN, cordoned("slurm: x"), None),  # it is done
        (NodeState.DRAIN, cordoned("kubernetes: x"), None),
        (NodeState.DRAIN, failed(), None),
        (NodeState.DOWN, HEALTHY, DOWN),
        (NodeState.DOWN, failed(), None),
        (NodeState.SILENT, HEALTHY, ReportHost("n", "heartbeat-missed", "slurm: x")),
        (NodeState.FAILING, HEALTHY, ReportHost("n", "predicted-failure", "slurm: x")),
        (NodeState.UP, cordoned("slurm: x"), MOVES[HostMove.UNCORDON]),
        (NodeState.UP, cordoned("by hand"), None),
        (NodeState.UP, failed("host-down: slurm: x"), REPAIRED),
        (NodeState.UP, failed("host-down: kubernetes: x"), None),
        (NodeState.UP, failed("agent-lost: silent"), None),
    ]:
        assert report_of("slurm", "n", standing, "x", host) == command
    # One that Kubernetes has cordoned is drained after that.
    drain = MoveHost("n", HostMove.DRAIN, "kubernetes: x")
    for cordon, command in (("kubernetes: cordoned", drain), ("kubernetes: x", None)):
        assert report_of("kubernetes", "n", NodeState.DRAIN, "x", cordoned(cordon)) == command
