"""How Kubernetes sees its nodes: `kubectl get nodes -o json`, or one node of a watch.

    Ready is False, or there is no such node                DOWN      has failed
    Ready is Unknown: its kubelet is not heard of           SILENT    has missed a heartbeat
    a taint NoExecute, or one that announces its end        DRAIN     what runs there leaves
    a condition that says that something of it is broken    FAILING   a failure is predicted
    spec.unschedulable: kubectl cordon                      CORDON    nothing new starts
    else                                                    UP

Sources: node conditions and well-known taints of kubernetes.io/docs; the problem daemons of
node-problem-detector, Azure's of GPU nodes, and conditions of the EKS node monitoring agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scheduler.files.errors import line_of
from scheduler.files.health.found import ImportedReport, NodeState
from scheduler.files.yaml12 import JsonFile

MANAGED: Final = "muster.dev/managed"  # the taint that keeps kube-scheduler off muster's nodes
_OF_READY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_LEAVING: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "node.cloudprovider.kubernetes.io/shutdown",
)

_PROBLEMS: Final = """
    KernelDeadlock ReadonlyFilesystem CorruptDockerOverlay2 XfsShutdown
    FrequentKubeletRestart FrequentContainerdRestart FrequentDockerRestart
    GPUMissing NVLinkStatusInactive XIDErrors IBLinkFlapping
    UnhealthyNvidiaDevicePlugin UnhealthyNvidiaDCGMServices
"""
_CAPABILITIES: Final = """
    AcceleratedHardwareReady ContainerRuntimeReady KernelReady NetworkingReady StorageReady
"""

# Type of a condition: (its status when something is wrong, what that comes to).
CONDITIONS: Final[Mapping[str, tuple[str, NodeState]]] = {
    **dict.fromkeys(_PROBLEMS.split(), ("True", NodeState.FAILING)),
    **dict.fromkeys(_CAPABILITIES.split(), ("False", NodeState.FAILING)),
    "NetworkUnavailable": ("True", NodeState.CORDON),
}


def load_kubernetes_nodes(path: str) -> list[ImportedReport]:
    """Read a list of nodes, or one node. Raises: InputError naming the field."""
    file = JsonFile.load(path)
    value = file.value
    is_list = isinstance(value, dict) and "items" in value
    nodes = value["items"] if is_list else [value]
    if not isinstance(nodes, list):
        raise file.error("items", "must be a list of nodes")
    lines = file.lines()
    reports = []
    for number, node in enumerate(nodes):
        here = f"items.{number}" if is_list else ""
        name = _at(node, "metadata", "name")
        if not isinstance(name, str) or not name:
            raise file.error(f"{here}.metadata.name".lstrip("."), "is not the name of a node")
        if not isinstance(_at(node, "status", "conditions"), list):
            reason = "has no conditions: kubectl get nodes -o json writes them"
            raise file.error(f"{here}.status.conditions".lstrip("."), reason)
        field = f"{here}.status.conditions".lstrip(".")
        standing, detail = node_standing(node)
        reports.append(
            ImportedReport(name, line_of(lines, field), field, detail=detail, standing=standing)
        )
    return reports


def node_standing(
    node: Mapping[str, Any], conditions: Mapping[str, tuple[str, NodeState]] = CONDITIONS
) -> tuple[NodeState | None, str]:
    """Return the state of a node, and why; None where the node says nothing of itself yet."""
    stated = {
        entry["type"]: entry
        for entry in _list(node, "status", "conditions")
        if isinstance(entry, dict) and isinstance(entry.get("type"), str)
    }
    taints = [taint for taint in _list(node, "spec", "taints") if isinstance(taint, dict)]
    ready = stated.get("Ready")
    if ready is None:
        return None, ""
    if ready.get("status") == "False":
        return NodeState.DOWN, _why(ready)
    if ready.get("status") != "True":
        return NodeState.SILENT, _why(ready)
    for taint in taints:
        key = str(taint.get("key", ""))
        is_eviction = taint.get("effect") == "NoExecute" and key not in (*_OF_READY, MANAGED)
        if is_eviction or key in _LEAVING:
            return NodeState.DRAIN, f"taint {key}"
    wrong = [
        (conditions[kind][1], _why(entry))
        for kind, entry in stated.items()
        if kind in conditions and entry.get("status") == conditions[kind][0]
    ]
    for standing in (NodeState.DOWN, NodeState.DRAIN, NodeState.FAILING):
        for kind, why in wrong:
            if kind is standing:
                return standing, why
    if _at(node, "spec", "unschedulable") is True:
        return NodeState.CORDON, "cordoned"
    return next(iter(wrong), (NodeState.UP, ""))


def _why(condition: Mapping[str, Any]) -> str:
    """`GPUMissing: 7 of 8`; of Ready its reason stands for itself."""
    text = str(condition.get("message") or condition.get("reason") or "").strip()
    return f"{condition['type']}: {text[:200]}".rstrip(": ")


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _list(value: Any, *keys: str) -> list[Any]:
    listed = _at(value, *keys)
    return listed if isinstance(listed, list) else []
