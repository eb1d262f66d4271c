"""Agents in pods of a Kubernetes cluster: `muster serve --launcher kubernetes`.

One pod a host, bound by its node's name, with the agent as its first process; ranks restart inside
it. `gang`: pods are there for the hosts and the spares of gangs, so that a spare is warm before it
is needed, and a swap touches its pod alone. `whole`: a pod on every host of the fabric, so that a
start is a message as well.

What should be is compared with what watches show, and the difference is asked for; so a server
that starts again, or an API server that does, changes nothing. Pods of this server's name that
nothing accounts for are deleted.

What Kubernetes says of its nodes is written to the log (`node_reports`), and so is a pod that
somebody evicts: its host is drained, so that the gang saves and leaves before the pod ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from muster.structs import replace
from placement.fabric import hostlist
from scheduler.core import State
from scheduler.core.model.job import Job
from scheduler.core.names import short_name
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.engine.writer import Writer
from scheduler.files.health.found import KUBERNETES, NodeState
from scheduler.files.health.kubernetesnodes import CONDITIONS, MANAGED, node_standing
from scheduler.launch.gangs.reports import lacks_agent
from scheduler.launch.keys import HoldingScope
from scheduler.launch.kubernetes import pods
from scheduler.launch.kubernetes.adoption import PodAdoption
from scheduler.launch.kubernetes.api import (
    MERGE_PATCH,
    ApiFailed,
    Json,
    KubernetesApi,
)
from scheduler.launch.kubernetes.demands import NO_MARKS, NodeMarks, node_marks
from scheduler.launch.kubernetes.flapping import FlappingNodes
from scheduler.launch.kubernetes.mirror import Mirror
from scheduler.launch.kubernetes.pods import MEMBER, SPARE, PodOwner, PodSettings, PodView
from scheduler.launch.streams.sessions import AgentSessions
from scheduler.launch.substrate import Substrate
from scheduler.observe.supervision import Heartbeats

_LOOK_S = 0.1
_LOOK_AGAIN_S = 1.0  # where nothing has changed
_NODES_EVERY_S = 2.0
_CONNECT_S = 30.0  # for which the agent of a container that runs may take to come in
_STUCK_S = 120.0  # after which a container without an agent is made anew
_END_S = 5  # which an agent that nothing runs under has to end
_AGAIN_S = 2.0  # before a pod that ended or cannot be made is made again
_MOST_AGAIN_S = 120.0
_GONE: Final = "there is no such node"
_EVICTED: Final = "its pod is evicted"

log = logging.getLogger("muster.kubernetes")


@dataclass(slots=True)
class NodeView:
    """Facts about a node."""

    standing: NodeState | None
    detail: str
    is_tainted: bool
    marks: NodeMarks = NO_MARKS


@dataclass(slots=True)
class PodClock:
    """Times of a pod: when it was first seen, and when it was last seen to run or had its agent;
    and whether that agent has ever come in."""

    seen_s: float
    running_s: float | None = None
    has_come: bool = False


@dataclass(slots=True)
class Backoff:
    """A host whose pod is not made again before `until_s`."""

    until_s: float
    wait_s: float


class KubernetesAgents(Substrate):
    """Starts agents as pods. `folder`: of the server, for its secret. `secret`: of join tokens, ""
    for one of the folder. `pod`: what they are. `api`: of the cluster. `clock`: seconds."""

    name = "kubernetes"

    def __init__(
        self,
        pod: PodSettings,
        folder: Path,
        secret: str = "",
        api: KubernetesApi | None = None,
        clock: Callable[[], float] = time.monotonic,
        beats: Heartbeats | None = None,
    ) -> None:
        self._keys, self._pod = pod.keys, pod
        self._api = api or KubernetesApi(self._keys, beats)
        self._clock = clock
        super().__init__(folder, secret, beats=beats)
        self._changed = asyncio.Event()
        own = self._keys.conditions.items()
        self._conditions = {
            **CONDITIONS,
            **{kind: ("True", NodeState(effect)) for kind, effect in own},
        }
        base = f"/api/v1/namespaces/{self._keys.namespace}"
        self._pods_path = f"{base}/pods"
        self._secrets_path, self._services_path = f"{base}/secrets", f"{base}/services"
        changed = self._changed.set
        self.nodes = Mirror(self._api, "/api/v1/nodes", {}, changed, self._node_view)
        self.pods = Mirror(
            self._api,
            self._pods_path,
            {"labelSelector": self._pod.selector()},
            changed,
            pods.view_of,
        )
        self._clocks: dict[str, PodClock] = {}  # by pod uid
        self._backoff: dict[str, Backoff] = {}  # by host
        self._acting: dict[str, asyncio.Task[None]] = {}  # by pod name
        self._deleted: set[str] = set()  # uids of pods that muster has deleted
        self._replaced: set[str] = set()  # hosts whose pods make way for those of a container
        self._prepared_for = 0  # the version of the fabric whose hosts have join tokens
        self._nodes_s = float("-inf")
        self._untainted: set[str] = set()
        self._late: set[str] = set()  # hosts of pods that run, whose agents have not come in
        self._flapping = FlappingNodes(clock)
        self._told: tuple[int, frozenset[str]] = (-1, frozenset())
        self._looked_s, self._seen_version = float("-inf"), -1
        self._adoption: PodAdoption | None = None

    def _node_view(self, node: Json) -> NodeView:
        standing, detail = node_standing(node, self._conditions)
        taints = (node.get("spec") or {}).get("taints") or ()
        return NodeView(
            standing, detail, any(taint.get("key") == MANAGED for taint in taints), node_marks(node)
        )

    def _node_marks(self) -> dict[str, NodeMarks]:
        return {name: node.marks for name, node in self.nodes.by_name.items()}

    # --- a substrate ----------------------------------------------------------------------

    def start(self, writer: Writer, sessions: AgentSessions, busy: Callable[[], Set[str]]) -> None:
        self._pod = replace(
            self._pod,
            server=self._pod.server or sessions.address,
            gpus=writer.state.loaded_fabric.gpus_per_host,
        )
        self._tasks.keep("nodes", self.nodes.run)
        self._tasks.keep("pods", self.pods.run)
        super().start(writer, sessions, busy)
        if self._keys.adopt:
            self._adoption = adoption = PodAdoption(
                self._keys, self._api, self._is_up, self._node_marks, self._clock, self._beats
            )
            self._tasks.keep("adoption", lambda: adoption.run(writer))

    async def close(self) -> None:
        await super().close()
        await self._api.close()

    def starting(self) -> Set[str]:
        """Return the hosts whose agents are on their way: their pods are new, or about to be
        made."""
        if self._writer.term is None:
            return frozenset()
        by_host = self._pods_by_host()
        return {
            host
            for host in self._hosts_needing_pods(self._writer.state)
            if host not in self._sessions.connected and self._is_starting(host, by_host.get(host))
        }

    def is_dismissed(self, host: str) -> bool:
        owner = self._hosts_needing_pods(self._writer.state).get(host)
        if owner is not None and owner.role == MEMBER:
            return host in self._replaced
        pod = self._pods_by_host().get(host)
        return pod is None or pod.is_leaving or not self._clock_of(pod).has_come

    def container_refusal(self, container: ContainerSpec) -> str | None:
        return pods.container_refusal(self._pod, container)

    def _is_starting(self, host: str, pod: PodView | None) -> bool:
        if not (self.pods.is_current and self.nodes.is_current):
            return pod is None or not self._clock_of(pod).has_come
        if not self._is_up(host):
            return False
        now_s = self._clock()
        if pod is None or (host in self._replaced and pod.pod_uid in self._deleted):
            backoff = self._backoff.get(host)
            return backoff is None or backoff.wait_s < self._keys.start_s / 2
        clock = self._clock_of(pod)
        if clock.has_come or pod.is_leaving or pod.has_ended:
            return False
        if clock.running_s is not None:
            return now_s - clock.running_s < _CONNECT_S
        return now_s - clock.seen_s < self._keys.start_s

    # --- the loop -------------------------------------------------------------------------

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_S):
                await self._changed.wait()

    def _forget(self) -> None:
        super()._forget()
        self._changed.clear()
        self._prepared_for = 0

    async def _look(self) -> None:
        """Act on changes of pods, nodes or gangs."""
        now_s, version = self._clock(), self._writer.state.version
        is_due = self._changed.is_set() or version != self._seen_version
        if not is_due and now_s - self._looked_s < _LOOK_AGAIN_S:
            return
        self._changed.clear()
        self._looked_s, self._seen_version = now_s, version
        if not (self.pods.is_current and self.nodes.is_current):
            return
        if self._prepared_for != (fabric := self._writer.state.fabric_version):
            await self._prepare()
            self._prepared_for = fabric
        self._follow_clocks()
        self._look_for_late_agents(now_s)
        await self._tell()
        self._reconcile()

    async def _prepare(self) -> None:
        """The service and the join tokens. Raises: ApiFailed."""
        hosts = self._writer.state.loaded_fabric.hosts
        await self._have(self._services_path, pods.headless_service(self._pod), keeps=True)
        for secret in pods.secrets(self._pod, self.secrets[0], hosts):
            await self._have(self._secrets_path, secret, keeps=False)

    async def _have(self, path: str, wanted: Json, *, keeps: bool) -> None:
        """Make an object, or make it what is wanted; with `keeps` one that is there stays."""
        name = wanted["metadata"]["name"]
        try:
            present = await self._api.call("GET", f"{path}/{name}")
        except ApiFailed as error:
            if not error.is_absence:
                raise
            await self._api.call("POST", path, wanted)
            return
        if not keeps and present.get("data") != wanted.get("data"):
            await self._api.call("PUT", f"{path}/{name}", wanted)

    # --- what should be ---------------------------------------------------------------------

    def _hosts_needing_pods(self, state: State) -> dict[str, PodOwner | None]:
        """The hosts that should have a pod, and which gang holds each."""
        fabric = state.loaded_fabric
        wanted: dict[str, PodOwner | None] = {}
        if self._keys.holding is HoldingScope.WHOLE:
            wanted = dict.fromkeys(fabric.hosts)
        else:  # a lost host comes back by its agent
            wanted = {
                fabric.hosts[index]: None
                for index, host in state.hosts.items()
                if lacks_agent(host)
            }
        for job in state.holding:
            if job.spec.run is not None:
                for role, hosts in ((MEMBER, job.hosts), (SPARE, job.spares)):
                    owner = _owner(job, role)
                    wanted.update(dict.fromkeys(fabric.names(hosts), owner))
        return wanted

    def _pods_by_host(self) -> dict[str, PodView]:
        return {pod.node: pod for pod in self.pods.by_name.values()}

    def _is_up(self, host: str) -> bool:
        node = self.nodes.by_name.get(host)
        return node is not None and node.standing in (NodeState.UP, NodeState.FAILING)

    def _clock_of(self, pod: PodView) -> PodClock:
        clock = self._clocks.get(pod.pod_uid)
        if clock is None:
            clock = self._clocks[pod.pod_uid] = PodClock(self._clock())
        return clock

    def _follow_clocks(self) -> None:
        now_s, uids = self._clock(), set()
        for pod in self.pods.by_name.values():
            uids.add(pod.pod_uid)
            clock = self._clock_of(pod)
            is_connected = pod.node in self._sessions.connected
            if is_connected or (clock.running_s is None and pod.phase == "Running"):
                clock.running_s = now_s
            if is_connected:
                clock.has_come = True
                if pod.pod_uid not in self._deleted:
                    self._replaced.discard(pod.node)
                self._backoff.pop(pod.node, None)
        for uid in self._clocks.keys() - uids:
            del self._clocks[uid]
        self._deleted &= uids

    def _look_for_late_agents(self, now_s: float) -> None:
        """Say once which pods run without their agents coming in, and where to look."""
        late = {
            pod.node: pod.name
            for pod in self.pods.by_name.values()
            if (clock := self._clock_of(pod)).running_s is not None
            and not clock.has_come
            and now_s - clock.running_s > _CONNECT_S
        }
        if new := sorted(late.keys() - self._late):
            look = f"kubectl -n {self._keys.namespace} logs {late[new[0]]} -c {pods.CONTAINER}"
            text = "pods run on %s, but their agents have not come in: `%s` says why; they look for"
            text += " this server at %s (kubernetes.server)"
            log.warning(text, hostlist.fold(new), look, self._pod.server)
        self._late = set(late)

    def _reconcile(self) -> None:
        """Ask for what is missing, give back what is not wanted."""
        wanted, by_host = self._hosts_needing_pods(self._writer.state), self._pods_by_host()
        for host, owner in wanted.items():
            name = self._pod.pod_name(host)
            if name in self._acting:
                continue
            pod = by_host.get(host)
            if pod is None:
                if self._is_up(host) and self._is_due(host):
                    self._act(name, host, self._create(host, owner))
            elif pod.has_ended:
                self._say(host, f"the pod of {host} has ended: {pod.trouble or pod.phase}")
                self._put_off(host)
                self._delete(pod, is_forced=True)
            elif host not in self.nodes.by_name and host not in self._sessions.connected:
                self._delete(pod, is_forced=True)
            elif pod.is_leaving:
                if not self._is_there(host):
                    self._delete(pod, is_forced=True)  # nobody there would say that it ended
            elif self._is_stuck(host, pod):
                self._say(
                    host, f"the pod of {host} has no agent: {pod.trouble or 'no message from it'}"
                )
                self._put_off(host)
                self._delete(pod)
            elif owner is not None and pod.container != owner.container_key:
                if pod.pod_uid not in self._deleted:
                    log.info("the pod of %s makes way for one of %s", host, owner.container_key)
                self._replaced.add(host)
                self._delete(pod, lets_end=True)
            elif self._is_of_another(pod, owner):
                self._act(pod.name, host, self._label(pod, owner))
        busy = self._busy()
        for pod in list(self.pods.by_name.values()):
            if pod.node in wanted or pod.name in self._acting:
                continue
            is_there = self._is_there(pod.node)
            if not is_there or (pod.node not in busy and not pod.is_leaving):
                if pod.pod_uid not in self._deleted:
                    log.warning("deleting pod %s: nothing runs on %s", pod.name, pod.node)
                self._delete(pod, is_forced=not is_there or not pod.node)

    def _is_of_another(self, pod: PodView, owner: PodOwner | None) -> bool:
        """Whether its labels are to change; those of a lost host can wait for its return."""
        if owner is None:
            return bool(pod.uid) and pod.node in self._sessions.connected
        return (pod.uid, pod.role) != (owner.uid, owner.role)

    def _is_there(self, host: str) -> bool:
        """Whether a kubelet would hear that a pod is to end."""
        node = self.nodes.by_name.get(host)
        return node is not None and node.standing not in (NodeState.SILENT, NodeState.DOWN, None)

    def _is_stuck(self, host: str, pod: PodView) -> bool:
        if not self._is_up(host) or host in self._sessions.connected:
            return False
        clock, now_s = self._clock_of(pod), self._clock()
        if clock.running_s is not None:
            return now_s - clock.running_s > _STUCK_S
        return now_s - clock.seen_s > self._keys.start_s

    def _is_due(self, host: str) -> bool:
        backoff = self._backoff.get(host)
        return backoff is None or self._clock() >= backoff.until_s

    def _put_off(self, host: str) -> None:
        before = self._backoff.get(host)
        wait_s = min(_MOST_AGAIN_S, before.wait_s * 2) if before else _AGAIN_S
        self._backoff[host] = Backoff(self._clock() + wait_s, wait_s)

    # --- acting -----------------------------------------------------------------------------

    def _act(self, name: str, host: str, work: Coroutine[Any, Any, None]) -> None:
        """One thing at a time is done to one pod."""

        async def act() -> None:
            try:
                await work
                self._said.pop(name, None)
            except ApiFailed as error:
                if not (error.is_absence or error.is_conflict):
                    self._say(name, str(error))
                self._put_off(host)
            finally:
                del self._acting[name]
                self._changed.set()

        self._acting[name] = self._tasks.start(act())

    async def _create(self, host: str, owner: PodOwner | None) -> None:
        number = self._writer.state.loaded_fabric.index_by_name[host]
        manifest = pods.pod_manifest(self._pod, host, number, owner)
        made = await self._api.call("POST", self._pods_path, manifest)
        self.pods.by_name.setdefault(manifest["metadata"]["name"], pods.view_of(made))

    async def _label(self, pod: PodView, owner: PodOwner | None) -> None:
        path = f"{self._pods_path}/{pod.name}"
        made = await self._api.call("PATCH", path, pods.owner_patch(owner), kind=MERGE_PATCH)
        self.pods.by_name[pod.name] = pods.view_of(made)

    def _delete(self, pod: PodView, *, is_forced: bool = False, lets_end: bool = False) -> None:
        """`lets_end`: what still runs there has the grace of the pod to end."""
        if pod.pod_uid in self._deleted and not is_forced:
            return
        self._deleted.add(pod.pod_uid)
        self._act(pod.name, pod.node, self._deleting(pod, is_forced, lets_end))

    async def _deleting(self, pod: PodView, is_forced: bool, lets_end: bool) -> None:
        """Delete this very pod, and no successor of its name."""
        # A first process that has yet to say what SIGTERM does ignores it.
        options: Json = {"preconditions": {"uid": pod.pod_uid}}
        if not lets_end:
            options["gracePeriodSeconds"] = 0 if is_forced else _END_S
        try:
            await self._api.call("DELETE", f"{self._pods_path}/{pod.name}", options)
        except ApiFailed as error:
            if not (error.is_absence or error.is_conflict):
                self._deleted.discard(pod.pod_uid)
            raise
        if is_forced:
            self.pods.by_name.pop(pod.name, None)

    # --- states of nodes ---------------------------------------------------------------------

    async def _tell(self) -> None:
        """Tell the log what Kubernetes says of the hosts."""
        evicted = {
            pod.node
            for pod in self.pods.by_name.values()
            if pod.is_leaving and pod.pod_uid not in self._deleted
        }
        if self._adoption is not None:
            evicted |= {
                host
                for host in self._adoption.evicted
                if (node := self.nodes.by_name.get(host)) and node.standing is NodeState.CORDON
            }
        now_s, seen = self._clock(), (self.nodes.revision, frozenset(evicted))
        every_s = _LOOK_AGAIN_S if self._flapping.is_waiting else _NODES_EVERY_S
        if seen == self._told and now_s - self._nodes_s < every_s:
            return
        self._nodes_s, self._told = now_s, seen
        state = self._writer.state
        self._look_at_taints(state)
        await self._report_nodes(KUBERNETES, self._standings(state, evicted))

    def _standings(
        self, state: State, evicted: Set[str]
    ) -> Iterator[tuple[str, NodeState | None, str]]:
        for host in state.loaded_fabric.hosts:
            node = self.nodes.by_name.get(host)
            standing, detail = (node.standing, node.detail) if node else (NodeState.DOWN, _GONE)
            if host in self._sessions.connected:  # muster hears of the host itself
                if standing is NodeState.SILENT:
                    standing, detail = None, ""
                elif standing is NodeState.DOWN:
                    standing = NodeState.CORDON
            if host in evicted and standing is not NodeState.DOWN:
                standing, detail = NodeState.DRAIN, _EVICTED
            standing = self._flapping.standing(host, standing)
            yield host, standing, detail

    def _look_at_taints(self, state: State) -> None:
        """Nodes on which kube-scheduler may put pods of others, who count their GPUs as well."""
        bare = {
            host
            for host in state.loaded_fabric.hosts
            if (node := self.nodes.by_name.get(host)) is not None and not node.is_tainted
        }
        if new := sorted(bare - self._untainted):
            shown = ", ".join(new[:5]) + (", ..." if len(new) > 5 else "")
            text = "%d nodes have no taint %s, so others may use them as well: %s"
            log.warning(text, len(new), MANAGED, shown)
        self._untainted = bare


def _owner(job: Job, role: str) -> PodOwner:
    container = job.spec.run.container if job.spec.run else None
    return PodOwner(short_name(job.name), job.tenant, job.uid, job.attempt, role, container)
