"""What pods demand of nodes: which labels of hosts it comes to, and what is refused."""

from typing import Any

from scheduler.launch.kubernetes.demands import labels_for, node_marks, pod_demands
from tests.refusals import refusal

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FABRIC = {"pool": {"a": 1, "b": 2}}


def node(pool: str, *taints: str) -> Any:
    marks = [{"key": taint, "effect": "NoSchedule"} for taint in taints]
    labels = {"pool": pool, "os": "linux"}
    return node_marks({"metadata": {"labels": labels}, "spec": {"taints": marks}})


NODES = {"n1": node("a", "muster.dev/managed"), "n2": node("b", "dedicated")}


def labels_of(spec: dict[str, Any]) -> dict[str, str]:
    return labels_for(pod_demands(spec), NODES, FABRIC, 8, "pod x/p")


def required(*expressions: dict[str, Any]) -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}
    return {"nodeAffinity": {REQUIRED: terms}}


def test_selectors_and_required_affinity_become_labels_of_hosts() -> None:
    assert labels_of({"nodeSelector": {"pool": "a", "os": "linux"}}) == {"pool": "a"}
    affinity = required({"key": "pool", "operator": "In", "values": ["a"]})
    assert labels_of({"affinity": affinity}) == {"pool": "a"}
    tolerates = [{"key": "dedicated", "operator": "Exists"}]
    either = required({"key": "pool", "operator": "In", "values": ["a", "b"]})
    assert labels_of({"affinity": either, "tolerations": tolerates}) == {}


def test_what_cannot_be_met_is_refused() -> None:
    for spec, says in [
        ({"nodeSelector": {"disk": "ssd"}}, "nodeSelector: no host has disk=ssd in the fabric"),
        (
            {"affinity": required({"key": "pool", "operator": "NotIn", "values": ["a"]})},
            "affinity: only In with one value can be met, not pool NotIn",
        ),
        ({}, "tolerations: do not allow for dedicated:NoSchedule of n2"),
        (
            {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]},
            "resources: asks for 4 GPUs; a pod of a gang has a host, with 8",
        ),
        ({"affinity": {"podAffinity": {REQUIRED: [{}]}}}, "muster does not do podAffinity"),
        (
            {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
            "muster does not do topologySpreadConstraints",
        ),
    ]:
        assert says in refusal(labels_of, spec)


def test_each_host_once_is_what_gangs_have_anyway() -> None:
    apart = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}
    whole = [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    spec = {"affinity": apart, "containers": whole, "nodeSelector": {"pool": "a"}}
    assert labels_of(spec) == {"pool": "a"}
