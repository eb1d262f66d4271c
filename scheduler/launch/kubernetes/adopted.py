"""Pods that other controllers make and muster binds: which belong together, in which order.

A pod is muster's to bind when its `spec.schedulerName` is the server's name. Pods of one gang are
found by the labels that their controllers set:

    JobSet, TrainJob       jobset.sigs.k8s.io/jobset-name, .../replicatedjob-name, .../job-index,
                           and the completion index
    LeaderWorkerSet        leaderworkerset.sigs.k8s.io/name, .../group-index, .../worker-index
    Indexed Job            batch.kubernetes.io/job-name (or job-name), and the completion index
    anything else          muster.dev/gang, muster.dev/rank; or the pod group that it names, and
                           the index of a Kubeflow replica, Volcano task, Kueue pod or StatefulSet

Their order is that of these indices; the first is rank 0's host. What the gang is comes from the
annotation `muster.dev/job` of its pods, a job file without name and tenant, or from
`muster.dev/size`, the number of pods, which LeaderWorkerSet, Kueue and pod groups say by
themselves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from muster.structs import struct
from scheduler.core.model.job import JobSpec
from scheduler.files.errors import InputError, Problem, short
from scheduler.files.job import job_from_document
from scheduler.files.yaml12 import Document, parse
from scheduler.launch.kubernetes.api import Json
from scheduler.launch.kubernetes.claims import PodClaim, pod_claims
from scheduler.launch.kubernetes.demands import PodDemands, pod_demands
from scheduler.launch.kubernetes.pod_groups import PodGroup, group_name

GATE: Final = "muster.dev/gang"  # of spec.schedulingGates: muster takes it away when it binds
GANG, RANK, SIZE, JOB_FILE = (f"muster.dev/{word}" for word in ("gang", "rank", "size", "job"))
# Labels of jobs: of which gang, which pods, and whose pods they are.
ADOPTED, PODS, OWNERS = (f"muster.dev/{word}" for word in ("gang", "pods", "owners"))
_JOBSET, _LWS, _BATCH = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io", "batch.kubernetes.io"
_KUEUE = "kueue.x-k8s.io"
# Where controllers write what a pod does in its group, and its number among those who do so.
_REPLICAS = (
    ("training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"),
    ("volcano.sh/task-spec", "volcano.sh/task-index"),
    ("", f"{_KUEUE}/pod-group-pod-index"),
    ("", "apps.kubernetes.io/pod-index"),
    ("", RANK),
)
_SIZES = (SIZE, f"{_LWS}/size", f"{_KUEUE}/pod-group-total-count")
_LONGEST = 128
_MOST_PODS = 100_000


@struct(frozen=True, slots=True)
class AdoptedPod:
    """Facts of a pod that may be adopted. `gang`: the name of its gang, "" where its labels name
    none. `order`: its place there. `gates`: all of its scheduling gates. `size`, `job_file`: as its
    annotations have them. `node`: "" until it is bound. `owner`: the uid of its controller, "" of a
    pod that somebody made by hand. `group`: API group and name of its pod group, "" for none.
    `topology`: the node label whose value Kueue's annotation wants all of them to share.
    `claims`: of devices."""

    name: str
    uid: str
    owner: str
    gang: str
    order: tuple[str | int, ...]
    node: str
    phase: str
    is_leaving: bool
    gates: tuple[str, ...]
    size: str
    job_file: str
    demands: PodDemands
    group: tuple[str, str]
    topology: str
    claims: tuple[PodClaim, ...]

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Failed", "Succeeded")

    @property
    def is_live(self) -> bool:
        return not self.has_ended and not self.is_leaving


def adopted_pod(pod: Json) -> AdoptedPod:
    meta, spec = pod["metadata"], pod["spec"]
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    group = group_name(spec, labels, notes)
    gang, order = _gang_of(labels, notes, group[1] or labels.get(f"{_KUEUE}/pod-group-name", ""))
    owners = (
        owner["uid"] for owner in meta.get("ownerReferences") or () if owner.get("controller")
    )
    return AdoptedPod(
        meta["name"],
        meta["uid"],
        next(owners, ""),
        gang,
        order,
        spec.get("nodeName", ""),
        (pod.get("status") or {}).get("phase", "Pending"),
        "deletionTimestamp" in meta,
        tuple(gate.get("name", "") for gate in spec.get("schedulingGates") or ()),
        next(filter(None, map(notes.get, _SIZES)), ""),
        notes.get(JOB_FILE, ""),
        pod_demands(spec),
        group,
        notes.get(f"{_KUEUE}/podset-required-topology", ""),
        pod_claims(pod),
    )


def _gang_of(
    labels: Mapping[str, str], notes: Mapping[str, str], group: str
) -> tuple[str, tuple[str | int, ...]]:
    """Return the name of the gang within its namespace, and the place in it. `group`: the name of
    its pod group, "" for none."""
    index = f"{_BATCH}/job-completion-index"  # a label since 1.28, an annotation since 1.21
    completion = _number(labels.get(index) or notes.get(index))
    if name := labels.get(f"{_JOBSET}/jobset-name"):
        role = labels.get(f"{_JOBSET}/replicatedjob-name", "")
        job = _number(labels.get(f"{_JOBSET}/job-index"))
        return f"jobset.{name}", (role, job, completion)
    if name := labels.get(f"{_LWS}/name"):
        unit, worker = (_number(labels.get(f"{_LWS}/{w}-index")) for w in ("group", "worker"))
        return f"lws.{name}.{unit}", (worker,)
    if name := labels.get(GANG):
        return f"gang.{name}", (_number(labels.get(RANK)),)
    if name := labels.get(f"{_BATCH}/job-name") or labels.get("job-name"):
        return f"job.{name}", (completion,)
    marks = {**notes, **labels}
    for role, number in _REPLICAS if group else ():
        if number in marks:
            return f"group.{group}", (marks.get(role, ""), _number(marks[number]))
    return "", ()


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0


def job_name(namespace: str, gang: str) -> str:
    """Return the name of the gang's job."""
    name = f"{namespace}.{gang}"
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def pods_mark(pods: Iterable[AdoptedPod]) -> str:
    """Return a text that identifies these pods; pods that a controller makes anew have another."""
    return _digest({pod.uid for pod in pods})


def owners_mark(pods: Iterable[AdoptedPod]) -> str:
    """Return a text that identifies the owners of these pods, which stays when pods are made anew;
    "" where they have none."""
    owners = {pod.owner for pod in pods}
    return "" if "" in owners else _digest(owners)


def _digest(uids: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(sorted(uids)).encode()).hexdigest()[:16]


@struct(frozen=True, slots=True)
class AdoptedGang:
    """The existing pods of one gang. `size`: how many there should be."""

    namespace: str
    name: str
    pods: tuple[AdoptedPod, ...]
    size: int
    spec: JobSpec

    @property
    def live(self) -> list[AdoptedPod]:
        """Live pods in the order of ranks."""
        return sorted((pod for pod in self.pods if pod.is_live), key=lambda pod: pod.order)

    @property
    def ranked(self) -> list[AdoptedPod] | None:
        """Return the live pods, one for each rank; None while some are missing."""
        live = self.live
        is_whole = len(live) == self.size and len({pod.order for pod in live}) == self.size
        return live if is_whole else None


def adopted_gang(
    namespace: str,
    gang: str,
    pods: Iterable[AdoptedPod],
    gpus_per_host: int,
    group: PodGroup | None = None,
) -> AdoptedGang:
    """Return the gang of these pods. `group`: of its first pod. Raises: InputError for annotations
    that describe no gang, each named."""
    pods = tuple(pods)
    first = min(pods, key=lambda pod: pod.order)
    where = f"pod {namespace}/{first.name}"
    size = _size(first, where)
    document = parse(first.job_file, f"{where}: {JOB_FILE}") if first.job_file else None
    if document is None or document.value is None:
        size = size or (group.size if group else None)
        if not size:
            reason = f"is needed, {JOB_FILE} or a pod group: how many pods the gang has"
            raise InputError(Problem(SIZE, reason, where))
        document = Document(_ring(gpus_per_host, size), where)
    spec = job_from_document(document, job_name(namespace, gang))
    for key, is_set in (
        ("name", spec.name != job_name(namespace, gang)),
        ("tenant", spec.tenant),
        ("run", spec.run is not None),
        ("parallelism.min_dp", spec.min_dp),
    ):
        if is_set:
            raise document.error((key, "is not for pods to say"))
    hosts = -(-spec.request.parallelism.world_size // gpus_per_host)
    if size is not None and size != hosts:
        reason = f"is {size:,}, but {JOB_FILE} needs {hosts:,} hosts of {gpus_per_host} GPUs"
        raise InputError(Problem(SIZE, reason, where))
    return AdoptedGang(namespace, gang, pods, hosts, spec)


def _size(pod: AdoptedPod, where: str) -> int | None:
    if not pod.size:
        return None
    if not pod.size.isdecimal() or not 1 <= int(pod.size) <= _MOST_PODS:
        reason = f"must be a whole number from 1 to {_MOST_PODS:,}, not {short(pod.size)}"
        raise InputError(Problem(SIZE, reason, where))
    return int(pod.size)


def _ring(gpus: int, size: int) -> dict[str, Any]:
    """A job of which nothing is known but its size: replicas that reduce round a ring."""
    return {"parallelism": {"tp": gpus, "dp": size}, "traffic": {"dp": 1_000_000_000}}
