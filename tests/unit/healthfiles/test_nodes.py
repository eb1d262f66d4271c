"""How nodes stand by Slurm, in four forms, and by Kubernetes."""

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
from scheduler.files.health.slurmnodes import load_slurm
from tests.refusals import file_refusal

UP, DOWN, DRAIN, FAILING = NodeState.UP, NodeState.DOWN, NodeState.DRAIN, NodeState.FAILING
SILENT, CORDON = NodeState.SILENT, NodeState.CORDON


def read(tmp_path: Path, text: str) -> dict[str, tuple[NodeState | None, str, int]]:
    path = tmp_path / "nodes"
    path.write_text(text)
    return {f.host: (f.standing, f.detail, f.line) for f in load_slurm(str(path))}


def assert_standings(
    tmp_path: Path, head: str, row: str, detail: str, states: dict[NodeState | None, str]
) -> None:
    """A file with a row for each state has a node that stands as said, with this detail."""
    wanted = {state: standing for standing, words in states.items() for state in words.split()}
    rows = "".join(row.format(f"n{at}", state) for at, state in enumerate(wanted))
    found = read(tmp_path, head + rows)
    assert dict(zip(wanted, (standing for standing, *_ in found.values()), strict=True)) == wanted
    assert {said for _, said, _ in found.values()} == {detail}


def test_states_of_scontrol(tmp_path: Path) -> None:
    row = "NodeName={} Arch=x86_64 State={} Weight=1 Reason=disk is full [root@x]\n"
    states = {
        UP: "IDLE ALLOCATED MIXED+PLANNED mix-",
        DRAIN: "IDLE+DRAIN DRAINING idle~ drained$ IDLE+CLOUD+POWERED_DOWN IDLE+DRAIN+INVALID_REG"
        " IDLE+DRAIN+NOT_RESPONDING",
        DOWN: "DOWN* DOWN+DRAIN DOWN+DRAIN+NOT_RESPONDING",
        **{SILENT: "IDLE* IDLE+NOT_RESPONDING UNKNOWN*", FAILING: "FAILING", None: "UNKNOWN"},
    }
    assert_standings(tmp_path, "", row, "disk is full [root@x]", states)


def test_short_states_of_sinfo(tmp_path: Path) -> None:
    head = "PARTITION AVAIL TIMELIMIT NODES NODELIST STATE\n"
    states = {
        UP: "alloc mix@ comp resv plnd npc",
        DRAIN: "drng drng* drain# maint* boot idle^ pow_dn pow_up futr inval idle! idle%",
        **{DOWN: "fail* err", FAILING: "failg", SILENT: "alloc*", None: "unk"},
    }
    assert_standings(tmp_path, head, "gpu* up infinite 1 {} {}\n", "", states)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (  # below the date, of ranges; where there is no reservation, its column is empty
            "Wed Nov 25 12:00:00 2026\n"
            "PARTITION AVAIL  TIMELIMIT   JOB_SIZE   NODES       STATE RESERVATION NODELIST\n"
            "gpu*         up   infinite 1-infinite       2     drained             n[2-3]\n"
            "gpu*         up   infinite 1-infinite       1        idle maint-1     n4\n",
            {"n2": (DRAIN, "", 3), "n3": (DRAIN, "", 3), "n4": (UP, "", 4)},
        ),
        (
            "NodeName=n1 Arch=x86_64 CoresPerSocket=2 \n"
            "   State=DOWN+DRAIN ThreadsPerCore=1 TmpDisk=0\n"
            "   Reason=disk is gone [root@x]\n   Comment=old\n\n"
            "NodeName=n2 Arch=x86_64 CoresPerSocket=2 \n   State=IDLE ThreadsPerCore=1\n\n",
            {"n1": (DOWN, "disk is gone [root@x]", 2), "n2": (UP, "", 7)},
        ),
    ],
    ids=["sinfo --long", "scontrol on several lines"],
)
def test_long_forms_are_read(tmp_path: Path, text: str, found: object) -> None:
    assert read(tmp_path, text) == found


@pytest.mark.parametrize(
    "text",
    [
        "n1,idle\nn2,down*\n",
        "n1|idle|\nn2|down*|\n",
        "n1|gpu:a100:8(S:0-1)|idle|64\nn2||down*|64\n",
        "n1  gpu  8/0/0/8  idle  512000\nn2  all  0/0/8/8  down*  512000\n",
        "HOSTNAMES;STATE;FEATURES\nn1;idle;a,b\nn2;down*;c\n",
        "NODELIST|PARTITION|STATE\nn1|gpu|idle\nn2|gpu|down*\n",
    ],
)
def test_a_list_of_nodes_with_columns_of_its_own(tmp_path: Path, text: str) -> None:
    assert {name: found[0] for name, found in read(tmp_path, text).items()} == {
        "n1": UP, "n2": DOWN
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    ["n1 idle mixed\nn2 down idle\n", "n1 8\nn2 4\n", "n1\nn2\n", "n1 idle\nn2 idle 8\n"],
)
def test_a_list_that_does_not_say_which_column_is_the_state(tmp_path: Path, text: str) -> None:
    told = file_refusal(load_slurm, tmp_path / "nodes", text)
    assert "header: is neither scontrol show nodes" in told


def test_json_of_scontrol_and_of_sinfo(tmp_path: Path) -> None:
    nodes = {"nodes": [{"name": "n1", "state": ["IDLE", "DRAIN"], "reason": "bad"}]}
    assert read(tmp_path, json.dumps(nodes)) == {"n1": (DRAIN, "bad", 1)}
    old = {"nodes": [{"name": "n1", "state": "idle", "state_flags": ["DRAIN"], "reason": "bad"}]}
    assert read(tmp_path, json.dumps(old)) == {"n1": (DRAIN, "bad", 1)}
    entry = {"nodes": {"nodes": ["n1"]}, "node": {"state": ["DOWN"]}}
    sinfo = {"sinfo": [{**entry, "reason": {"description": "gone"}}]}
    assert read(tmp_path, json.dumps(sinfo)) == {"n1": (DOWN, "gone", 1)}


def test_what_is_wrong_is_named_with_file_line_and_field(tmp_path: Path) -> None:
    for text, message in {
        "": ": holds no node",
        "NodeName=n1 State= \n": ":1: State: is missing",
        "NodeName= State=IDLE\n": ":1: NodeName: is missing",
        '{"sinfo": [{"nodes": {"nodes": ["n1"]},\n "node": []}]}': ":2: sinfo.0.node: must be",
        "\nNodeName=n1 State=BANANA\n": ":2: State: unknown state 'banana'",
        "STATE NODELIST\nidle n1 more\n": ":2: columns: has 3 columns, not 2",
        "STATE NODELIST\nidle n[1\n": ":2: NODELIST",
        "{}": ": has neither a list of nodes nor of sinfo",
        '{"nodes": [\n{"state": ["IDLE"]}]}': ":2: nodes.0.name: is missing",
        '{"nodes": [{"name": "n1",\n "state": ["ODD"]}]}': ":2: nodes.0.state: unknown",
    }.items():
        assert f"nodes{message}" in file_refusal(load_slurm, tmp_path / "nodes", text)


# --- what nodes of Kubernetes say of themselves --------------------------------------


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
        (node("Ready=True"), UP, ""),
        (node("Ready=False"), DOWN, "Ready: why"),
        (node("Ready=Unknown"), SILENT, "Ready: why"),
        (node(), None, ""),
        (node("Ready=True", unschedulable=True), CORDON, "cordoned"),
        (node("Ready=True", taints=("x/y:NoExecute",)), DRAIN, "taint x/y"),
        (node("Ready=True", taints=("x/y:NoSchedule",)), UP, ""),
        (node("Ready=True", taints=("muster.dev/managed:NoExecute",)), UP, ""),
        (node("Ready=True", taints=(f"{KARPENTER}:NoSchedule",)), DRAIN, f"taint {KARPENTER}"),
        (node("Ready=True", "GPUMissing=True"), FAILING, "GPUMissing: why"),
        (node("Ready=True", "GPUMissing=False"), UP, ""),
        (node("Ready=True", "StorageReady=False"), FAILING, "StorageReady: why"),
        (node("Ready=True", "DiskPressure=True"), UP, ""),  # its pods are evicted, or not
        (node("Ready=True", "NetworkUnavailable=True"), CORDON, "NetworkUnavailable: why"),
        (node("Ready=True", "GPUMissing=True", unschedulable=True), FAILING, "GPUMissing: why"),
        ({"metadata": {"name": "n1"}}, None, ""),
        ({"status": {"conditions": "none"}, "spec": {"taints": [7]}}, None, ""),
    ],
)
def test_how_a_node_stands(found: dict[str, Any], standing: NodeState | None, detail: str) -> None:
    assert node_standing(found) == (standing, detail)


def test_a_site_says_what_conditions_of_its_own_mean() -> None:
    found = node("Ready=True", "BurnIn=True")
    assert node_standing(found)[0] is UP
    more = {**CONDITIONS, "BurnIn": ("True", DRAIN)}
    assert node_standing(found, more) == (DRAIN, "BurnIn: why")


def test_a_list_of_nodes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_text(json.dumps({"items": [node("Ready=True"), node("Ready=False")]}, indent=1))
    first, second = load_kubernetes_nodes(str(path))
    assert (first.host, first.standing) == ("n1", UP)
    assert (second.standing, second.detail) == (DOWN, "Ready: why")
    assert second.line > first.line > 1
    path.write_text(json.dumps(node("Ready=True")))
    assert len(load_kubernetes_nodes(str(path))) == 1


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path) -> None:
    for text, message in (
        ('{"items": 7}', "items: must be a list"),
        ('{"items": [\n{"metadata": {}}]}', r":2: items.0.*name"),
        ('{"items": [\n{"metadata": {"name": "n"}}]}', r":2: .*has no conditions"),
    ):
        found = file_refusal(load_kubernetes_nodes, tmp_path / "nodes.json", text)
        assert re.search(message, found)
