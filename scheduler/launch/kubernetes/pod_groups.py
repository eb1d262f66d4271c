"""Pod groups: how many pods Kubernetes or another scheduler was told that a gang has.

    Kubernetes 1.35            Workload of scheduling.k8s.io, named by spec.workloadRef
    Kubernetes 1.36 and later  PodGroup of scheduling.k8s.io, named by spec.schedulingGroup; all
                               groups below one CompositePodGroup (1.37) are one gang
    Volcano                    PodGroup of scheduling.volcano.sh, by the annotation
                               scheduling.k8s.io/group-name
    KAI                        PodGroup of scheduling.run.ai, by the annotation pod-group-name
    coscheduling               PodGroup of scheduling.x-k8s.io, by the label
                               scheduling.x-k8s.io/pod-group

A group says its size and a domain that has to hold all of it. Groups of an API that the cluster
does not serve are never found; the API is looked for again every minute.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from muster.structs import struct
from placement.fabric.tree import Fabric
from scheduler.files.errors import InputError, Problem
from scheduler.launch.kubernetes.api import MERGE_PATCH, Json, KubernetesApi
from scheduler.launch.kubernetes.demands import NodeMarks
from scheduler.launch.kubernetes.mirror import ServedMirror

_NATIVE: Final = "scheduling.k8s.io"
_WORKLOADS: Final = "workloads.scheduling.k8s.io"  # of 1.35, which hold their groups themselves
_COMPOSITES: Final = "compositepodgroups.scheduling.k8s.io"
#: Versions that muster reads, the one it prefers first, of each API group.
_VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    _NATIVE: ("v1beta1", "v1alpha3", "v1alpha2"),
    _WORKLOADS: ("v1alpha1",),
    _COMPOSITES: ("v1alpha3",),
    "scheduling.volcano.sh": ("v1beta1",),
    "scheduling.run.ai": ("v2alpha2",),
    "scheduling.x-k8s.io": ("v1alpha1",),
}


@struct(frozen=True, slots=True)
class PodGroup:
    """A group of pods that are to start together. `size`: pods, 0 where it does not say. `key`: the
    node label whose value all of its nodes share, "" for none. `tier`: tiers above the hosts within
    which it has to lie, 0 for any. `claims`: names of resource claims that its pods share.
    `parent`: the composite group that it is in, "" for none; `least_groups`: of a composite group,
    how many it has at least."""

    size: int = 0
    key: str = ""
    tier: int = 0
    is_scheduled: bool = False
    claims: tuple[str, ...] = ()
    parent: str = ""
    least_groups: int = 0


def group_name(
    spec: Mapping[str, Any], labels: Mapping[str, str], notes: Mapping[str, str]
) -> tuple[str, str]:
    """Return the API group and the name of the pod group that a pod names; "", "" for none."""
    part = spec.get("workloadRef") or {}
    parts = (part.get(key) for key in ("name", "podGroup", "podGroupReplicaKey"))
    named = {
        _NATIVE: (spec.get("schedulingGroup") or {}).get("podGroupName"),
        _WORKLOADS: ".".join(filter(None, parts)),
        "scheduling.volcano.sh": notes.get("scheduling.k8s.io/group-name"),
        "scheduling.run.ai": notes.get("pod-group-name"),
        "scheduling.x-k8s.io": labels.get("scheduling.x-k8s.io/pod-group"),
    }
    return next(((api, name) for api, name in named.items() if name), ("", ""))


def _read_workload(item: Json) -> dict[str, PodGroup]:
    """Read the groups of a workload, by the names that pods give them but for the replica key."""
    groups = (item.get("spec") or {}).get("podGroups") or ()
    return {f"{item['metadata']['name']}.{each['name']}": _read({"spec": each}) for each in groups}


def _read(item: Json) -> PodGroup:
    """Read a group of any of the APIs: their fields have different names."""
    spec = item.get("spec") or {}
    gang = (spec.get("schedulingPolicy") or spec.get("policy") or {}).get("gang") or {}
    keys = [
        each.get("key") for each in (spec.get("schedulingConstraints") or {}).get("topology") or ()
    ]
    keys.append((spec.get("topologyConstraint") or {}).get("requiredTopologyLevel"))
    network = spec.get("networkTopology") or {}
    tier = network.get("highestTierAllowed") if network.get("mode", "hard") == "hard" else None
    return PodGroup(
        int(gang.get("minCount") or spec.get("minMember") or 0),
        next((str(key) for key in keys if key), ""),
        int(tier or 0),
        any(
            each.get("type") in _CONDITIONS and each.get("status") == "True"
            for each in (item.get("status") or {}).get("conditions") or ()
        ),
        tuple(str(each.get("name")) for each in spec.get("resourceClaims") or ()),
        str(spec.get("parentCompositePodGroupName") or ""),
        int(gang.get("minGroupCount") or 0),
    )


_CONDITIONS: Final = ("PodGroupInitiallyScheduled", "PodGroupScheduled")  # the latter in v1alpha2


class PodGroups:
    """The pod groups of one namespace. `changed`: is called at every change."""

    def __init__(self, api: KubernetesApi, namespace: str, changed: Callable[[], None]) -> None:
        self._api = api
        self._mirrors: dict[str, ServedMirror] = {}
        for name, versions in _VERSIONS.items():
            has_own = name in (_WORKLOADS, _COMPOSITES)
            resource, _, group = name.partition(".") if has_own else ("podgroups", "", name)
            keep = _read_workload if name == _WORKLOADS else _read
            self._mirrors[name] = ServedMirror(
                api, group, versions, resource, namespace, changed, keep
            )

    async def run(self) -> None:
        """Follow the groups of all APIs for ever."""
        async with asyncio.TaskGroup() as tasks:
            for mirror in self._mirrors.values():
                tasks.create_task(mirror.run())

    def _served_objects(self, api: str) -> Mapping[str, Any]:
        mirror = self._mirrors.get(api)
        return mirror.by_name if mirror else {}

    def find(self, group: tuple[str, str]) -> PodGroup | None:
        """Return the group of this API and name, or None while it is not there. Of a group below a
        composite one it is all that are below that. Raises: InputError for what muster does not do
        for these."""
        api, name = group
        if api == _WORKLOADS:
            return self._of_workload(name)
        pod_group: PodGroup | None = self._served_objects(api).get(name)
        if api != _NATIVE or pod_group is None or not pod_group.parent:
            return pod_group
        above = self._above(pod_group)
        return self._merge_groups(above[-1]) if above else None

    def _of_workload(self, name: str) -> PodGroup | None:
        """Return the group of this name, which ends with a replica key where pods give one."""
        workloads = self._served_objects(_WORKLOADS)
        without_key = name.rpartition(".")[0]
        for group in (name, without_key):
            groups: Mapping[str, PodGroup] = workloads.get(group.rpartition(".")[0], {})
            if group in groups:
                return groups[group]
        return None

    def _above(self, pod_group: PodGroup) -> list[str]:
        """Return the composite groups that a group is in, the root last; [] if one is missing."""
        names: list[str] = []
        while pod_group.parent and pod_group.parent not in names:
            names.append(pod_group.parent)
            if names[-1] not in self._served_objects(_COMPOSITES):
                return []
            pod_group = self._served_objects(_COMPOSITES)[names[-1]]
        return names

    def root(self, group: tuple[str, str]) -> str:
        """Return the composite group at the root above a pod group, "" for none."""
        pod_group = self._served_objects(_NATIVE).get(group[1]) if group[0] == _NATIVE else None
        return next(reversed(self._above(pod_group)), "") if pod_group is not None else ""

    def _merge_groups(self, root: str) -> PodGroup | None:
        """Return all groups below a root as one, None while some are missing."""
        composites, native = self._served_objects(_COMPOSITES), self._served_objects(_NATIVE)
        below = [each for each in (*native.values(), *composites.values()) if each.parent]
        inside = [each for each in below if root in self._above(each)]
        count = Counter(each.parent for each in inside)
        known = {root, *(name for name, each in composites.items() if each in inside)}
        if any(count[name] < composites[name].least_groups for name in known):
            return None
        if key := next((each.key for each in inside if each.key), ""):
            reason = f"{key}: muster holds a composite group in one domain, not groups inside it"
            raise InputError(Problem("topology", reason, f"composite group {root}"))
        claims = tuple(claim for each in inside for claim in each.claims)
        is_scheduled = all(each.is_scheduled for each in inside if each.size)
        size = sum(each.size for each in inside)
        return PodGroup(size, composites[root].key, 0, is_scheduled, claims)

    async def report(self, group: tuple[str, str], why_not: str) -> None:
        """Write into the status of a native group that it is scheduled, or `why_not`. Raises:
        ApiFailed."""
        api, name = group
        pod_group = self._served_objects(api).get(name)
        if api != _NATIVE or pod_group is None or pod_group.is_scheduled:
            return
        mirror = self._mirrors[api]
        condition = {
            "type": _CONDITIONS[mirror.version == "v1alpha2"],
            "status": "False" if why_not else "True",
            "reason": "Unschedulable" if why_not else "Scheduled",
            "message": why_not[:1000],
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        path = f"{mirror.path_of('podgroups')}/{name}/status"
        body = {"status": {"conditions": [condition]}}
        await self._api.call("PATCH", path, body, kind=MERGE_PATCH)


def required_tier(
    group: PodGroup, fabric: Fabric, nodes: Mapping[str, NodeMarks], where: str
) -> str:
    """Return the tier of which one domain has to hold the group, "" for none. `nodes`: of the
    fabric. Raises: InputError for a label that is not of one tier."""
    if group.tier:
        inwards = [tier.name for tier in reversed(fabric.tiers)]
        return inwards[group.tier - 1] if group.tier <= len(inwards) else ""
    if not group.key:
        return ""
    by_host = {fabric.index_by_name[name]: m.labels.get(group.key) for name, m in nodes.items()}
    for tier in fabric.tiers:
        pairs = {(int(tier.domain_by_host[host]), value) for host, value in by_host.items()}
        domains, values = ({pair[side] for pair in pairs} for side in (0, 1))
        if None not in values and len(pairs) == len(domains) == len(values):
            return tier.name
    names = ", ".join(tier.name for tier in fabric.tiers) or "none"
    reason = f"the values of {group.key} are the domains of no tier of the fabric ({names})"
    raise InputError(Problem("topology", reason, where))
