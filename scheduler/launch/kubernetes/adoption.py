"""Gangs of pods that JobSet, Kubeflow's TrainJob, LeaderWorkerSet or an Indexed Job make.

Their pods name this server as their scheduler. When all pods of a gang are there, a job is
submitted for it in the tenant of the namespace; when it has hosts, each pod is bound to the host of
its rank.
A pod that is not where the placement has its rank is deleted, so that its controller makes another:
after a swap the one on the dead host, after a preemption all. The job ends when its pods have
ended, or are gone for good. When something else ends the job (a cancel, its time limit), its pods
are deleted, and pods that the same controller makes anew wait for ever.

The pods are the state: a server that starts again finds jobs by their names, and does what is
missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Set
from datetime import UTC, datetime
from typing import Any, Final

from muster.structs import replace
from placement.workload.request import Request
from scheduler.core import Job, Rejected, State
from scheduler.core.explain.explain import explain
from scheduler.core.model.commands import (
    CancelJob,
    Command,
    EndJob,
    ReleaseJob,
    RequeueJob,
    SubmitJob,
    UpdateJob,
)
from scheduler.core.model.job import SECOND_NS
from scheduler.core.model.lifecycle import Hold, JobState
from scheduler.core.names import full_name, short_name
from scheduler.core.queue.verdict import WaitReason
from scheduler.engine.proposal import NotLeading, WriterStopped
from scheduler.engine.writer import Writer
from scheduler.eventlog.store import NotWritten, StoreError
from scheduler.files.errors import InputError, Problem
from scheduler.identity import Caller, Role, act_for
from scheduler.launch.keys import KubernetesKeys
from scheduler.launch.kubernetes.adopted import (
    ADOPTED,
    GATE,
    OWNERS,
    PODS,
    AdoptedGang,
    AdoptedPod,
    adopted_gang,
    adopted_pod,
    job_name,
    owners_mark,
    pods_mark,
)
from scheduler.launch.kubernetes.api import MERGE_PATCH, ApiFailed, Json, KubernetesApi
from scheduler.launch.kubernetes.claims import ResourceClaims
from scheduler.launch.kubernetes.demands import NodeMarks, labels_for
from scheduler.launch.kubernetes.mirror import Mirror
from scheduler.launch.kubernetes.pod_groups import PodGroup, PodGroups, required_tier
from scheduler.observe.supervision import Heartbeats, Tasks

_SOON_S: Final = 5.0  # for which what pods refer to may take to come after them
GONE_S: Final = 30.0  # for which a controller may take to make its pods, or to make them anew
BACK_OFF_S: Final = 420.0  # the same of a Job that backs off; without hosts, in its old place
_LOOK_S = 0.2
_LOOK_AGAIN_S = 1.0
_AGAIN_S = 5.0  # before a call that failed is made again
_EXPLAIN_EVERY_S = 10.0
_COMPONENT: Final = "muster"
_FAILED, _GONE = "its pods have failed", "its pods are gone"  # why jobs end, but for success
_AWAITED = "its pods are gone, and awaited anew"

log = logging.getLogger("muster.kubernetes")


class PodAdoption:
    """Binds pods of the namespaces in `keys.adopt`, which name `keys.name` as their scheduler.

    `is_up`: whether a node may be bound to. `nodes`: what they are marked with, by name. `clock`:
    seconds. `evicted`: hosts from which gangs have to go, for they take no pods and one is gone."""

    def __init__(
        self,
        keys: KubernetesKeys,
        api: KubernetesApi,
        is_up: Callable[[str], bool],
        nodes: Callable[[], Mapping[str, NodeMarks]],
        clock: Callable[[], float] = time.monotonic,
        beats: Heartbeats | None = None,
    ) -> None:
        self._keys, self._api, self._is_up, self._clock = keys, api, is_up, clock
        self._nodes = nodes
        self.evicted: Set[str] = frozenset()
        self._changed = asyncio.Event()
        query = {"fieldSelector": f"spec.schedulerName={keys.name}"}
        self.pods = {
            namespace: Mirror(
                api, f"/api/v1/namespaces/{namespace}/pods", query, self._changed.set, adopted_pod
            )
            for namespace in keys.adopt
        }
        self.groups = {
            namespace: PodGroups(api, namespace, self._changed.set) for namespace in keys.adopt
        }
        self.claims = {
            namespace: ResourceClaims(api, namespace, self._changed.set) for namespace in keys.adopt
        }
        self._acting: dict[str, asyncio.Task[None]] = {}  # by what they are about
        self._off_until_s: dict[str, float] = {}  # the same, after a failure
        self._gone_since_s: dict[str, float] = {}  # by job uid
        self._paused: dict[str, bool] = {}  # by job uid: whether they are held for that
        self._missing_since_s: dict[str, float] = {}  # pods of gangs, and what pods refer to
        self._said: dict[str, tuple[str, float]] = {}  # by gang
        self._reported: dict[str, str] = {}  # to its pod group, by gang
        self._writer: Writer
        self._tasks = Tasks(beats or Heartbeats())

    async def run(self, writer: Writer) -> None:
        """Adopt pods for ever, whenever the writer leads."""
        self._writer = writer
        looked_s, version = float("-inf"), -1
        async with self._tasks:
            for namespace, mirror in self.pods.items():
                self._tasks.keep(f"pods-of-{namespace}", mirror.run)
                self._tasks.keep(f"pod-groups-of-{namespace}", self.groups[namespace].run)
                self._tasks.keep(f"claims-of-{namespace}", self.claims[namespace].run)
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()
                now_s, newest = self._clock(), writer.state.version
                is_due = self._changed.is_set() or newest != version
                if writer.term is None or not (is_due or now_s - looked_s >= _LOOK_AGAIN_S):
                    await asyncio.sleep(_LOOK_S / 4)
                    continue
                self._changed.clear()
                looked_s, version = now_s, newest
                self.look()

    def look(self) -> None:
        """Make the changes that the present pods and jobs call for."""
        state = self._writer.state
        self._unplaced: set[str] = set()
        self._missed: set[str] = set()
        for namespace, mirror in self.pods.items():
            if not mirror.is_current:
                continue
            pods: defaultdict[str, list[AdoptedPod]] = defaultdict(list)
            for pod in mirror.by_name.values():
                if pod.gang.startswith("group.") and (
                    root := self.groups[namespace].root(pod.group)
                ):
                    order = (pod.group[1], *pod.order)
                    pod = replace(pod, gang=f"group.{root}", order=order)
                pods[pod.gang].append(pod)
            for pod in pods.pop("", ()):
                text = "its labels name no gang: set muster.dev/gang and muster.dev/rank"
                self._say(namespace, f"{namespace}/{pod.name}", pod, "Unknown", text)
            jobs = dict(self._jobs(state, namespace))
            for gang in pods.keys() | jobs.keys():
                self._look_at(state, namespace, gang, pods.get(gang, []), jobs.get(gang))
        self.evicted = frozenset(self._unplaced)
        live = {job.uid for job in state.jobs.values()}
        for uid in self._gone_since_s.keys() - live:
            del self._gone_since_s[uid]
        for uid in self._paused.keys() - live:
            del self._paused[uid]
        for about in self._missing_since_s.keys() - self._missed:
            del self._missing_since_s[about]

    def _jobs(self, state: State, namespace: str) -> Iterator[tuple[str, Job]]:
        """Live jobs of pods of this namespace, by gang."""
        mark = f"{namespace}/"
        for job in state.jobs.values():
            if (gang := dict(job.spec.labels).get(ADOPTED, "")).startswith(mark):
                yield gang.removeprefix(mark), job

    def _look_at(
        self, state: State, namespace: str, gang: str, pods: list[AdoptedPod], job: Job | None
    ) -> None:
        if job is not None and not any(pod.is_live for pod in pods):
            self._end(namespace, gang, pods, job)
            return
        if not pods:
            return
        first = min(pods, key=lambda pod: pod.order)
        try:
            group = self.groups[namespace].find(first.group)
        except InputError as error:
            self._say(namespace, gang, first, "Unknown", str(error))
            return
        if group is None and job is not None:
            group = PodGroup(job.gang_hosts)  # for what runs the group is not needed any more
        elif group is None and first.group[1] and not (first.size or first.job_file):
            if self._missing_s(f"group of {namespace}/{gang}") >= _SOON_S:
                text = f"its pod group {first.group[1]} of {first.group[0]} is not there"
                self._say(namespace, gang, first, "Unknown", text)
            return
        try:
            adopted = adopted_gang(namespace, gang, pods, state.loaded_fabric.gpus_per_host, group)
        except InputError as error:
            self._say(namespace, gang, pods[0], "Unknown", str(error))
            return
        if job is None:
            self._submit(state, adopted)
            return
        self._gone_since_s.pop(job.uid, None)
        if job.state is JobState.RUNNING:
            self._place(state, adopted, job)
        elif job.uid in self._paused and adopted.ranked is not None:
            self._resume(adopted, job)
        elif job.state is JobState.QUEUED:
            self._delete_bound(adopted, "its gang has no hosts any more")
            self._explain(adopted, job)

    # --- jobs -------------------------------------------------------------------------------

    def _submit(self, state: State, gang: AdoptedGang) -> None:
        about, ranked = f"{gang.namespace}/{gang.name}", gang.ranked
        tenant = self._keys.adopt[gang.namespace] or ""
        name = full_name(tenant, job_name(gang.namespace, gang.name))
        last = state.last_ended(name)
        if last is not None and _are_of(gang.live, last):
            text = f"{short_name(name)} is {last.state}: {last.reason or 'it has ended'}"
            self._say(gang.namespace, gang.name, gang.live[0], "Ended", text)
            self._delete_bound(gang, text)
        elif ranked is None:
            self._delete_bound(gang, "its gang has no hosts")
            if self._missing_s(about) >= GONE_S and gang.live:
                text = f"its gang has {len(gang.live):,} of {gang.size:,} pods"
                if len(gang.live) > gang.size:
                    text += ", and gangs are bound whole: set muster.dev/size"
                self._say(gang.namespace, gang.name, gang.live[0], "Unknown", text)
        else:
            claims = self.claims[gang.namespace]
            are_there = all(claims.are_there(pod.claims) for pod in ranked)
            if not are_there and self._missing_s(f"claims of {about}") < _SOON_S:
                return
            marks = {ADOPTED: about, PODS: pods_mark(ranked), OWNERS: owners_mark(ranked)}
            labels = tuple(sorted((dict(gang.spec.labels) | marks).items()))
            try:
                request = self._request(state, gang, ranked)
            except InputError as error:
                self._say(gang.namespace, gang.name, ranked[0], "Unknown", str(error))
                return
            spec = replace(gang.spec, name=name, tenant=tenant, labels=labels, request=request)
            command = SubmitJob(spec, str(uuid.uuid4()), user=self._user(gang.namespace))
            self._act(name, self._written(gang.namespace, command, gang, ranked[0]))

    def _missing_s(self, about: str) -> float:
        """Return for how long every look has missed something, which this one does too."""
        self._missed.add(about)
        return self._clock() - self._missing_since_s.setdefault(about, self._clock())

    def _request(self, state: State, gang: AdoptedGang, ranked: list[AdoptedPod]) -> Request:
        """Return the request of a gang, with its pods' demands of nodes. Raises: InputError."""
        fabric = state.loaded_fabric
        nodes = {name: m for name, m in self._nodes().items() if name in fabric.index_by_name}
        request, gpus = gang.spec.request, fabric.gpus_per_host
        labels = dict(request.where.labels)
        group = self.groups[gang.namespace].find(ranked[0].group) or PodGroup()
        claims, names = self.claims[gang.namespace], Counter(n for p in ranked for n in _names(p))
        for pod in ranked:
            name = f"pod {gang.namespace}/{pod.name}"
            for each in pod.claims:
                if each.entry in group.claims or names[each.name] > 1:
                    reason = f"several pods share claim {each.entry}; make one a pod by a template"
                    raise InputError(Problem("resourceClaims", reason, name))
            more = claims.gpus(pod.claims, gpus, name)
            demands = replace(pod.demands, gpus=pod.demands.gpus + more)
            labels |= labels_for(demands, nodes, fabric.labels, gpus, name)
        group = replace(group, key=group.key or ranked[0].topology)
        name = f"pod {gang.namespace}/{ranked[0].name}"
        same = request.where.same or required_tier(group, fabric, nodes, name)
        where = replace(request.where, labels=tuple(sorted(labels.items())), same=same)
        return replace(request, where=where)

    def _delete_bound(self, gang: AdoptedGang, why: str) -> None:
        for pod in gang.live:
            if pod.node:
                self._delete(gang, pod, why)

    def _end(self, namespace: str, gang: str, pods: list[AdoptedPod], job: Job) -> None:
        """End a job without a running pod: at once when all have succeeded, else when none came
        anew."""
        succeeded = {pod.order for pod in pods if pod.phase == "Succeeded"}
        since_s = self._gone_since_s.setdefault(job.uid, self._clock())
        command: Command
        if len(succeeded) >= job.gang_hosts and job.state is JobState.RUNNING:
            command = EndJob(job.name, JobState.COMPLETED, job.attempt, uid=job.uid)
        elif self._clock() - since_s < GONE_S:
            return
        elif (
            not pods and dict(job.spec.labels).get(OWNERS) and self._clock() - since_s < BACK_OFF_S
        ):
            left_ns = int((BACK_OFF_S - self._clock() + since_s) * SECOND_NS)
            self._pause(namespace, job, self._writer.now_ns() + left_ns)
            return
        elif any(pod.phase == "Failed" for pod in pods) and job.state is JobState.RUNNING:
            command = EndJob(job.name, JobState.FAILED, job.attempt, _FAILED, uid=job.uid)
        else:
            command = CancelJob(job.name, _GONE, uid=job.uid)
        self._act(job.name, self._written(namespace, command))

    def _pause(self, namespace: str, job: Job, until_ns: int) -> None:
        """Have a gang without pods wait in its old place, and not start before they are back."""
        command: Command
        is_free = job.hold is None
        is_own_hold = self._paused.setdefault(job.uid, is_free and job.state is JobState.RUNNING)
        if job.state is JobState.RUNNING:
            command = RequeueJob(job.name, _AWAITED, hold=True, uid=job.uid)
        elif job.spec.begin_ns <= self._writer.now_ns():
            command = UpdateJob(job.name, ("begin_ns",), begin_ns=until_ns, uid=job.uid)
        elif is_own_hold and job.hold is Hold.OWNER:
            command = ReleaseJob(job.name, uid=job.uid)  # the begin time keeps it
        else:
            return
        self._act(job.name, self._written(namespace, command))

    def _resume(self, gang: AdoptedGang, job: Job) -> None:
        """Have a gang whose pods are back wait as before; those of another owner are another's."""
        begin_ns = gang.spec.begin_ns
        command: Command = UpdateJob(job.name, ("begin_ns",), begin_ns=begin_ns, uid=job.uid)
        if job.spec.begin_ns == begin_ns:
            del self._paused[job.uid]
            return
        if owners_mark(gang.live) != dict(job.spec.labels).get(OWNERS):
            command = CancelJob(job.name, _GONE, uid=job.uid)
        self._act(job.name, self._written(gang.namespace, command))

    def _user(self, namespace: str) -> str:
        return f"kubernetes:{namespace}"

    async def _written(
        self,
        namespace: str,
        command: Command,
        gang: AdoptedGang | None = None,
        pod: AdoptedPod | None = None,
    ) -> None:
        """As a caller who may do in the tenant of the namespace what any submitter may."""
        tenant = self._keys.adopt[namespace] or self._writer.state.tenants.default
        act_for(Caller(self._user(namespace), Role.SUBMITTER, tenant))
        with contextlib.suppress(NotLeading, WriterStopped, StoreError, NotWritten):
            answer = await self._writer.submit(command)
            if isinstance(answer, Rejected):
                if gang is not None and pod is not None:
                    self._say(namespace, gang.name, pod, "Refused", answer.message)
                raise ApiFailed(answer.message)

    # --- pods -------------------------------------------------------------------------------

    def _place(self, state: State, gang: AdoptedGang, job: Job) -> None:
        """Bind what waits, and have away what is on other hosts than those of its rank."""
        hosts = state.loaded_fabric.names(job.hosts)
        ranked = gang.ranked
        if ranked is None:  # who is which rank is not known while some are missing
            self._unplaced.update(
                pod.node
                for pod in gang.pods
                if pod.is_leaving and pod.node in hosts and not self._is_up(pod.node)
            )
            for pod in gang.live:
                if pod.node and pod.node not in hosts:
                    why = f"{pod.node} is not a host of the gang any more"
                    self._delete(gang, pod, why + _state_text(state, pod.node))
            return
        for rank, pod in enumerate(ranked):
            if pod.node and pod.node != hosts[rank]:
                why = f"rank {rank} is to be on {hosts[rank]}, not {pod.node}"
                self._delete(gang, pod, why + _state_text(state, pod.node))
            elif not pod.node and not self._is_up(hosts[rank]):
                self._unplaced.add(hosts[rank])
                text = f"{hosts[rank]}, the host of rank {rank}, takes no pods: another is sought"
                self._say(gang.namespace, gang.name, pod, "Unknown", text)
            elif (
                not pod.node
                and self._is_free(gang, pod, hosts[rank])
                and self.claims[gang.namespace].are_there(pod.claims)
            ):
                self._act(f"{gang.namespace}/{pod.name}", self._bind(gang, pod, rank, hosts))
        if all(pod.node == hosts[rank] for rank, pod in enumerate(ranked)):
            self._report(gang, "")

    def _report(self, gang: AdoptedGang, why_not: str) -> None:
        """Tell the gang's pod groups that it is placed, or why it is not; once."""
        for group in {pod.group for pod in gang.pods}:
            about = f"status of {gang.namespace}/{group[1]}"
            if group[1] and self._reported.get(about) != why_not:
                self._reported[about] = why_not
                work = self.groups[gang.namespace].report(group, why_not)
                self._act(about, work)

    def _is_free(self, gang: AdoptedGang, pod: AdoptedPod, host: str) -> bool:
        """Whether no pod of anybody's is on the host any more, which may take a while to end."""
        return self._is_up(host) and not any(
            other.node == host and not other.has_ended and other.uid != pod.uid
            for mirror in self.pods.values()
            for other in mirror.by_name.values()
        )

    async def _bind(
        self, gang: AdoptedGang, pod: AdoptedPod, rank: int, hosts: tuple[str, ...]
    ) -> None:
        path = f"/api/v1/namespaces/{gang.namespace}/pods/{pod.name}"
        if GATE in pod.gates:
            left = [{"name": name} for name in pod.gates if name != GATE]
            body = {"metadata": {"uid": pod.uid}, "spec": {"schedulingGates": left or None}}
            await self._api.call("PATCH", path, body, kind=MERGE_PATCH)
        if any(name != GATE for name in pod.gates):
            return  # somebody else holds it back
        await self._allocate(gang, pod, hosts[rank])
        binding: Json = {"apiVersion": "v1", "kind": "Binding"}
        binding["metadata"] = {"name": pod.name, "namespace": gang.namespace, "uid": pod.uid}
        binding["target"] = {"apiVersion": "v1", "kind": "Node", "name": hosts[rank]}
        try:
            await self._api.call("POST", f"{path}/binding", binding)
        except ApiFailed as error:
            if error.is_conflict:
                return  # it is bound already: the watch will say so
            raise
        text = f"bound to {hosts[rank]}, as the host of rank {rank} of {len(hosts):,}"
        log.info("%s/%s: %s", gang.namespace, pod.name, text)
        await self._event(gang.namespace, pod, "Scheduled", text)

    async def _allocate(self, gang: AdoptedGang, pod: AdoptedPod, host: str) -> None:
        """Give the pod the devices that it claims. Raises: ApiFailed, of which an event tells."""
        claimed = (c for of in self.claims.values() for c in of.by_name.values())
        taken = {device for claim in claimed for device in claim.devices}
        try:
            claims = self.claims[gang.namespace]
            await claims.allocate(pod.claims, pod.name, pod.uid, host, taken)
        except ApiFailed as error:
            self._say(gang.namespace, gang.name, pod, "Unknown", str(error))
            raise

    def _delete(self, gang: AdoptedGang, pod: AdoptedPod, why: str) -> None:
        about = f"{gang.namespace}/{pod.name}"
        self._act(about, self._deleting(gang, pod, why))

    async def _deleting(self, gang: AdoptedGang, pod: AdoptedPod, why: str) -> None:
        """Delete this very pod, and no successor of its name; at once where nobody can end it."""
        log.warning("deleting pod %s/%s: %s", gang.namespace, pod.name, why)
        options: Json = {"preconditions": {"uid": pod.uid}}
        if not self._is_up(pod.node):
            options["gracePeriodSeconds"] = 0
        path = f"/api/v1/namespaces/{gang.namespace}/pods/{pod.name}"
        try:
            await self._api.call("DELETE", path, options)
        except ApiFailed as error:
            if not (error.is_absence or error.is_conflict):
                raise
        await self._event(gang.namespace, pod, "Evicted", why)

    # --- what is said -----------------------------------------------------------------------

    def _explain(self, gang: AdoptedGang, job: Job) -> None:
        _, said_s = self._said.get(f"{gang.namespace}/{gang.name}", ("", float("-inf")))
        about = f"why {job.name}"
        if self._clock() - said_s >= _EXPLAIN_EVERY_S and gang.live:
            self._act(about, self._explaining(gang, job, gang.live[0]))

    async def _explaining(self, gang: AdoptedGang, job: Job, pod: AdoptedPod) -> None:
        writer = self._writer
        state, now_ns = writer.state, writer.now_ns()
        try:
            reason = await asyncio.to_thread(explain, state, job.name, now_ns, writer.options)
        except KeyError:
            return
        if reason.cause is WaitReason.DUE:
            return
        # Not its sentence: that may name jobs of others.
        text = f"{short_name(job.name)} waits ({reason.cause}): needs {job.needed:,} hosts"
        text += f", {reason.free:,} are free" + (
            f", {reason.missing:,} missing" * bool(reason.missing)
        )
        self._say(gang.namespace, gang.name, pod, str(reason.cause), text)
        self._report(gang, text)

    def _say(self, namespace: str, gang: str, pod: AdoptedPod, cause: str, text: str) -> None:
        """An event on a pod, once until it is for another cause."""
        about = f"{namespace}/{gang}"
        before, _ = self._said.get(about, ("", 0.0))
        said = cause if cause != "Unknown" else text
        self._said[about] = (said, self._clock())
        if before != said:
            self._act(f"event {about}", self._event(namespace, pod, "Waiting", text))

    async def _event(self, namespace: str, pod: AdoptedPod, reason: str, text: str) -> None:
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Event", "type": "Normal", "count": 1}
        body["metadata"] = {"generateName": f"{pod.name}.", "namespace": namespace}
        body["involvedObject"] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod.name,
            "namespace": namespace,
            "uid": pod.uid,
        }
        body |= {"reason": reason, "message": text[:1000], "source": {"component": _COMPONENT}}
        body |= {"firstTimestamp": at, "lastTimestamp": at}
        await self._api.call("POST", f"/api/v1/namespaces/{namespace}/events", body)

    # --- calls ------------------------------------------------------------------------------

    def _act(self, about: str, work: Coroutine[Any, Any, None]) -> None:
        """Unless the last call about it still runs, or has just failed."""
        if about in self._acting or self._clock() < self._off_until_s.get(about, 0.0):
            work.close()
            return
        self._off_until_s.pop(about, None)
        task = self._tasks.start(self._acted(about, work))
        self._acting[about] = task
        task.add_done_callback(lambda _: self._acting.pop(about, None))

    async def _acted(self, about: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except ApiFailed as error:
            log.warning("%s: %s", about, error)
            self._off_until_s[about] = self._clock() + _AGAIN_S
        self._changed.set()


def _state_text(state: State, node: str) -> str:
    """Return why a gang leaves a host, "" where that is not for the sake of the host."""
    index = state.loaded_fabric.index_by_name.get(node)
    host = None if index is None else state.host(index)
    return f": that is {host.state}, {host.reason}" if host is not None and host.reason else ""


def _names(pod: AdoptedPod) -> list[str]:
    """Return the names of its claims that are there."""
    return [claim.name for claim in pod.claims if claim.name]


def _are_of(pods: list[AdoptedPod], last: Job) -> bool:
    """Whether these are pods of a job that has ended, not of a new try of their controller."""
    labels = dict(last.spec.labels)
    if not pods or labels.get(PODS) == pods_mark(pods):
        return bool(pods)
    is_by_pods = last.reason in (_FAILED, _GONE)
    return not is_by_pods and bool(labels.get(OWNERS)) and labels[OWNERS] == owners_mark(pods)
