"""What nodes of Kubernetes say of themselves, as the health of hosts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scheduler.files.health.found import NodeState
from scheduler.files.health.kubernetesnodes import (
    CONDITIONS,
    load_kubernetes_nodes,
    node_standing,
)
from tests.refusals import file_refusal


def node(*conditions: str, taints: tuple[str, ...] = (), **spec: Any) -> dict[str, Any]:
    """Conditions as `Ready=True`, taints as `key:NoExecute`."""
    stated = [
        {"type": kind, "status": status, "message": "why"}
        for kind, _, status in (condition.partition("=") for condition in conditions)
    ]
    marks = [
        {"key": key, "effect": effect} for key, _, effect in (t.rpartition(":") for t in taints)
    ]
    meta = {"name": "n1", "labels": {}}
    return {
        "metadata": meta,
        "spec": {"taints": marks, **spec},
        "status": {"conditions": stated},
    }


KARPENTER = "karpenter.sh/disrupted"


@pytest.mark.parametrize(
    ("found", "standing", "detail"),
    [
        (node("Ready=True"), NodeState.UP, ""),
        (node("Ready=False"), NodeState.DOWN, "Ready: why"),
        (node("Ready=Unknown"), NodeState.SILENT, "Ready: why"),
        (node(), None, ""),
        (node("Ready=True", unschedulable=True), NodeState.CORDON, "cordoned"),
        (node("Ready=True", taints=("x/y:NoExecute",)), NodeState.DRAIN, "taint x/y"),
        (node("Ready=True", taints=("x/y:NoSchedule",)), NodeState.UP, ""),
        (node("Ready=True", taints=("muster.dev/managed:NoExecute",)), NodeState.UP, ""),
        (
            node("Ready=True", taints=(f"{KARPENTER}:NoSchedule",)),
            NodeState.DRAIN,
            f"taint {KARPENTER}",
        ),
        (node("Ready=True", "GPUMissing=True"), NodeState.FAILING, "GPUMissing: why"),
        (node("Ready=True", "GPUMissing=False"), NodeState.UP, ""),
        (node("Ready=True", "StorageReady=False"), NodeState.FAILING, "StorageReady: why"),
        (node("Ready=True", "DiskPressure=True"), NodeState.UP, ""),  # its pods are evicted, or not
        (
            node("Ready=True", "NetworkUnavailable=True"),
            NodeState.CORDON,
            "NetworkUnavailable: why",
        ),
        (
            node("Ready=True", "GPUMissing=True", unschedulable=True),
            NodeState.FAILING,
            "GPUMissing: why",
        ),
        ({"metadata": {"name": "n1"}}, None, ""),
        ({"status": {"conditions": "none"}, "spec": {"taints": [7]}}, None, ""),
    ],
)
def test_how_a_node_stands(found: dict[str, Any], standing: NodeState, detail: str) -> None:
    assert node_standing(found) == (standing, detail)


def test_a_site_says_what_conditions_of_its_own_mean() -> None:
    found = node("Ready=True", "BurnIn=True")
    assert node_standing(found)[0] is NodeState.UP
    more = {**CONDITIONS, "BurnIn": ("True", NodeState.DRAIN)}
    assert node_standing(found, more) == (NodeState.DRAIN, "BurnIn: why")


def test_a_list_of_nodes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"items": [node("Ready=True"), node("Ready=False")]}, indent=1))
    first, second = load_kubernetes_nodes(str(path))
    assert (first.host, first.standing) == ("n1", NodeState.UP)
    assert (second.standing, second.detail) == (NodeState.DOWN, "Ready: why")
    assert second.line > first.line > 1
    path.write_text(json.dumps(node("Ready=True")))
    assert len(load_kubernetes_nodes(str(path))) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"items": 7}', "items: must be a list"),
        ('{"items": [\n{"metadata": {}}]}', r":2: items.0.*name"),
        ('{"items": [\n{"metadata": {"name": "n"}}]}', r":2: .*has no conditions"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    found = file_refusal(load_kubernetes_nodes, tmp_path / "nodes.json", text)
    assert re.search(message, found)
