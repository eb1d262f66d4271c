"""What pods demand of their nodes, as constraints of the gang that they are.

muster binds pods itself, so what kube-scheduler would see to is seen to here, or the gang is
refused, which its pods say in an event. What all nodes of the fabric meet constrains nothing.
Labels that some have become `constraints.hosts` where the fabric file has them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from muster.structs import struct
from placement.fabric.labels import Labels
from scheduler.files.errors import InputError, Problem
from scheduler.files.health.kubernetesnodes import MANAGED
from scheduler.launch.kubernetes.api import Json

GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915")  # of device plugins
_HOSTNAME: Final = "kubernetes.io/hostname"
_OWN_TAINTS: Final = (MANAGED, "node.kubernetes.io/")  # the latter are states, told by themselves


@struct(frozen=True, slots=True)
class NodeMarks:
    """Labels of a node, and its taints that keep pods away, as (key, value, effect)."""

    labels: Mapping[str, str]
    taints: tuple[tuple[str, str, str], ...]


NO_MARKS: Final = NodeMarks({}, ())


@struct(frozen=True, slots=True)
class PodDemands:
    """The demands of a pod on its node. `terms`: of required node affinity, one of which has to
    hold, each with all expressions of (key, operator, values); the node selector is in each.
    `gpus`: what its containers ask for, 0 where they say nothing. `unmet`: what muster does not do
    for pods."""

    terms: tuple[tuple[tuple[str, str, tuple[str, ...]], ...], ...]
    tolerations: tuple[tuple[str, str, str, str], ...]
    gpus: int
    unmet: str


def node_marks(node: Json) -> NodeMarks:
    taints = (node.get("spec") or {}).get("taints") or ()
    kept = (
        (taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""))
        for taint in taints
        if taint.get("effect") in ("NoSchedule", "NoExecute")
        and not taint.get("key", "").startswith(_OWN_TAINTS)
    )
    return NodeMarks(dict((node["metadata"].get("labels") or {}).items()), tuple(kept))


def pod_demands(spec: Mapping[str, Any]) -> PodDemands:
    selector = tuple((k, "In", (v,)) for k, v in (spec.get("nodeSelector") or {}).items())
    affinity = spec.get("affinity") or {}
    wanted = (affinity.get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    given: list[Json] = wanted.get("nodeSelectorTerms") or [{}]
    terms = [(*selector, *map(_expression, term.get("matchExpressions") or ())) for term in given]
    has_fields = any(term.get("matchFields") for term in given)
    tolerations = tuple(
        (t.get("key", ""), t.get("operator", "Equal"), t.get("value", ""), t.get("effect", ""))
        for t in spec.get("tolerations") or ()
    )
    gpus = sum(_gpus(each) for each in spec.get("containers") or ())
    unmet = "matchFields of node affinity" if has_fields else _unmet(spec, affinity)
    return PodDemands(tuple(terms), tolerations, gpus, unmet)


def _expression(item: Mapping[str, Any]) -> tuple[str, str, tuple[str, ...]]:
    return item.get("key", ""), item.get("operator", ""), tuple(item.get("values") or ())


def _gpus(container: Mapping[str, Any]) -> int:
    resources = container.get("resources") or {}
    given = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return sum(int(given[key]) for key in GPUS if str(given.get(key, "")).isdecimal())


def _unmet(spec: Mapping[str, Any], affinity: Mapping[str, Any]) -> str:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if (affinity.get("podAffinity") or {}).get(required):
        return "podAffinity; say `constraints: {same: TIER}` in muster.dev/job"
    apart = (affinity.get("podAntiAffinity") or {}).get(required) or ()
    if any(term.get("topologyKey") != _HOSTNAME for term in apart):
        return "podAntiAffinity beyond hosts, of which each has one pod of a gang anyway"
    spread = spec.get("topologySpreadConstraints") or ()
    if any(each.get("whenUnsatisfiable") == "DoNotSchedule" for each in spread):
        return "topologySpreadConstraints; say `constraints` in muster.dev/job"
    return ""


def labels_for(
    demands: PodDemands,
    nodes: Mapping[str, NodeMarks],
    fabric_labels: Labels,
    gpus_per_host: int,
    where: str,
) -> dict[str, str]:
    """Return the labels of hosts that meet these demands. `nodes`: of the fabric. `where`: the pod,
    for errors. Raises: InputError naming the demand that cannot be met."""

    def refused(field: str, message: str) -> InputError:
        return InputError(Problem(field, message, where))

    if demands.unmet:
        raise refused("spec", f"muster does not do {demands.unmet}")
    if demands.gpus not in (0, gpus_per_host):
        message = f"asks for {demands.gpus} GPUs; a pod of a gang has a host, with {gpus_per_host}"
        raise refused("resources", message)
    labels: dict[str, str] = {}
    usable = nodes
    if not all(_is_met(demands.terms, marks.labels) for marks in nodes.values()):
        only = demands.terms[0] if len(demands.terms) == 1 else ()
        for key, operator, values in only or (("", "several terms", ()),):
            if all(_holds(key, operator, values, m.labels) for m in nodes.values()):
                continue
            if operator != "In" or len(values) != 1:
                shown = f"{key} {operator}".strip()
                raise refused("affinity", f"only In with one value can be met, not {shown}")
            if values[0] not in fabric_labels.get(key, {}):
                message = f"no host has {key}={values[0]} in the fabric: put it into its `labels`"
                raise refused("nodeSelector", message)
            labels[key] = values[0]
        usable = {name: m for name, m in nodes.items() if _is_met(demands.terms, m.labels)}
    for name, marks in usable.items():
        for key, value, effect in marks.taints:
            if not any(_is_tolerated(t, key, value, effect) for t in demands.tolerations):
                message = f"do not allow for {key}:{effect} of {name}; select other nodes by label"
                raise refused("tolerations", message)
    return labels


def _is_met(terms: Iterable[Iterable[tuple[str, str, tuple[str, ...]]]], labels: Any) -> bool:
    return any(all(_holds(*each, labels) for each in term) for term in terms)


def _holds(key: str, operator: str, values: tuple[str, ...], labels: Mapping[str, str]) -> bool:
    is_held = {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }
    return is_held.get(operator, False)  # Gt and Lt: nothing is known to meet them


def _is_tolerated(toleration: tuple[str, str, str, str], key: str, value: str, effect: str) -> bool:
    wanted_key, operator, wanted_value, wanted_effect = toleration
    if wanted_effect not in ("", effect) or wanted_key not in ("", key):
        return False
    return operator == "Exists" or wanted_value == value
