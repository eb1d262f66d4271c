"""Pods that others make, bound by a real writer on a Kubernetes that is one table."""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from placement.fabric.reader import from_spec
from scheduler.core import Job, SchedulingOptions
from scheduler.core.model.commands import CancelJob, ReportHost
from scheduler.core.model.lifecycle import JobState
from scheduler.engine.feed import Feed
from scheduler.engine.snapshotter import Retention
from scheduler.engine.writer import Writer
from scheduler.eventlog.recovery import recover
from scheduler.eventlog.store import open_store
from scheduler.files.errors import InputError
from scheduler.launch.keys import KubernetesKeys
from scheduler.launch.kubernetes.adopted import GATE, adopted_gang, adopted_pod, job_name
from scheduler.launch.kubernetes.adoption import BACK_OFF_S, GONE_S, PodAdoption
from scheduler.launch.kubernetes.api import ApiFailed
from scheduler.launch.kubernetes.demands import NodeMarks
from scheduler.launch.kubernetes.pod_groups import PodGroup, required_tier
from tests.build import fabric_spec
from tests.serving import ticking, url

GPUS = 8  # of a host of fabric_spec
TWO_HOSTS = {"muster.dev/size": "2"}
JOBSET, LWS, BATCH = "jobset.sigs.k8s.io", "leaderworkerset.sigs.k8s.io", "batch.kubernetes.io"
INDEX, KUBEFLOW = f"{BATCH}/job-completion-index", "training.kubeflow.org"
KUEUE = "kueue.x-k8s.io/pod-group"
_uids = count(1)


def pod(name: str, labels: dict[str, str], notes: dict[str, str] | None = None, **spec: Any) -> Any:
    meta: Any = {"name": name, "uid": f"p-{next(_uids)}", "labels": labels}
    meta |= {"annotations": notes or {}}
    if owner := spec.pop("owner", ""):
        meta["ownerReferences"] = [{"uid": owner, "controller": True}]
    return {"metadata": meta, "spec": {"schedulerName": "muster"} | spec, "status": {}}


def plain(gang: str, rank: int, notes: dict[str, str] | None = None, **spec: Any) -> Any:
    labels = {"muster.dev/gang": gang, "muster.dev/rank": str(rank)}
    return pod(f"{gang}-{rank}", labels, TWO_HOSTS if notes is None else notes, **spec)


# --- which gang a pod is of -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "notes", "gang", "order"),
    [
        (
            f"{JOBSET}/jobset-name=llama {JOBSET}/replicatedjob-name=workers {JOBSET}/job-index=3"
            " job-name=llama-workers-3",
            {INDEX: "12"},
            "jobset.llama",
            ("workers", 3, 12),
        ),
        (f"{LWS}/name=serve {LWS}/group-index=1 {LWS}/worker-index=7", {}, "lws.serve.1", (7,)),
        (f"{BATCH}/job-name=train {INDEX}=5", {}, "job.train", (5,)),
        ("job-name=old", {INDEX: "2"}, "job.old", (2,)),
        ("muster.dev/gang=own muster.dev/rank=4", {}, "gang.own", (4,)),
        (
            f"{KUBEFLOW}/replica-type=worker {KUBEFLOW}/replica-index=3",
            {"scheduling.k8s.io/group-name": "llama"},
            "group.llama",
            ("worker", 3),
        ),
        (f"{KUEUE}-name=k {KUEUE}-pod-index=2", {}, "group.k", ("", 2)),
        ("scheduling.x-k8s.io/pod-group=no-index", {}, "", ()),
        ("app=web", {}, "", ()),
    ],
)
def test_labels_of_controllers_say_gang_and_place(
    labels: str, notes: dict[str, str], gang: str, order: tuple[str | int, ...]
) -> None:
    found = adopted_pod(pod("p", dict(each.split("=") for each in labels.split()), notes))
    assert (found.gang, found.order) == (gang, order)


def test_a_gang_has_the_size_that_its_pods_say_in_the_order_of_numbers_not_of_names() -> None:
    pods = [adopted_pod(plain("a", rank, {"muster.dev/size": "12"})) for rank in range(12)]
    gang = adopted_gang("ns", "gang.a", reversed(pods), GPUS)
    assert gang.ranked is not None
    assert [each.name for each in gang.ranked] == [f"a-{rank}" for rank in range(12)]
    labels = {f"{LWS}/name": "s", f"{LWS}/group-index": "0", f"{LWS}/worker-index": "0"}
    leader = adopted_pod(pod("p", labels, {f"{LWS}/size": "4"}))
    gang = adopted_gang("ns", "lws.s.0", [leader], GPUS)
    assert (gang.size, gang.spec.request.parallelism.world_size) == (4, 32)


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ({}, "muster.dev/size: is needed, muster.dev/job or a pod group"),
        ({"muster.dev/size": "two"}, "must be a whole number from 1 to 100,000, not 'two'"),
        ({"muster.dev/job": "parallelism: {tp: two}"}, r"pod ns/a-0: muster.dev/job:1"),
        ({"muster.dev/job": "a: [b"}, r"pod ns/a-0: muster.dev/job:"),
        (
            {"muster.dev/job": "parallelism: {tp: 8, dp: 4}", "muster.dev/size": "2"},
            "is 2, but muster.dev/job needs 4 hosts of 8 GPUs",
        ),
        ({"muster.dev/job": "name: mine\nparallelism: {tp: 8}"}, "name: is not for pods to say"),
        ({"muster.dev/job": "tenant: t\nparallelism: {tp: 8}"}, "tenant: is not for pods to say"),
    ],
)
def test_what_is_wrong_with_annotations_is_said(notes: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        adopted_gang("ns", "gang.a", [adopted_pod(plain("a", 0, notes))], GPUS)


def test_long_names_stay_names_of_jobs_and_apart() -> None:
    one, two = (job_name("n" * 63, f"jobset.{'x' * 80}{end}") for end in "ab")
    assert len(one) == len(two) == 128
    assert one != two


# --- what is done with them -------------------------------------------------------------------


class FakeCluster:
    """Pods of one namespace and objects of other APIs, as the calls of a server change them.

    `served`: the version of scheduling.k8s.io."""

    def __init__(self, served: str) -> None:
        self.pods: dict[str, Any] = {}
        self.events: list[str] = []
        self.deleted: list[tuple[str, int | None]] = []
        tables: Iterator[dict[str, Any]] = ({} for _ in range(6))
        self.groups, self.workloads, self.composites, *devices = tables
        self.claims, self.classes, self.slices = devices
        self._objects: dict[str, dict[str, dict[str, Any]]] = {
            "resource.k8s.io/v1": {
                "resourceclaims": self.claims,
                "deviceclasses": self.classes,
                "resourceslices": self.slices,
            },
            "scheduling.k8s.io/v1alpha1": {"workloads": self.workloads},
            "scheduling.k8s.io/v1alpha3": {"compositepodgroups": self.composites},
            f"scheduling.k8s.io/{served}": {"podgroups": self.groups},
        }

    def _table(self, path: str) -> tuple[dict[str, Any], list[str]]:
        """The objects of a path, and the name of one where it has one."""
        _, _, api, version, *rest = path.split("/")
        resource, *name = rest[2:] if rest[0] == "namespaces" else rest
        return self._objects[f"{api}/{version}"][resource], name

    async def _of_apis(self, method: str, path: str, body: Any) -> Any:
        path, _, query = path.partition("?")
        if path.count("/") == 3:
            there = self._objects.get(path.removeprefix("/apis/"))
            if there is None:
                raise ApiFailed("the server could not find the requested resource", 404)
            return {"resources": [{"name": name} for name in there]}
        table, named = self._table(path)
        if not named:
            host = query.partition("spec.nodeName=")[2]
            items = [each for each in table.values() if host in ("", each["spec"].get("nodeName"))]
            return {"items": items, "metadata": {"resourceVersion": "1"}}
        if method == "PUT":
            table[named[0]] = body
        elif method == "PATCH":
            for key, value in body.items():
                table[named[0]][key] = table[named[0]].get(key, {}) | value
        return copy.deepcopy(table[named[0]])

    async def watch(self, path: str, query: Any, version: str) -> AsyncIterator[Any]:
        while True:
            await asyncio.sleep(0.01)
            for each in list(self._table(path)[0].values()):
                yield "MODIFIED", each

    async def call(self, method: str, path: str, body: Any = None, *, kind: str = "") -> Any:
        if path.endswith("/events"):
            self.events.append(body["message"])
            return body
        if path.startswith("/apis/"):
            return await self._of_apis(method, path, body)
        name, _, sub = path.partition("/pods/")[2].partition("/")
        if name not in self.pods or self.pods[name]["metadata"]["uid"] != _uid_in(body):
            raise ApiFailed("no such pod", 404)
        found = self.pods[name]
        if sub == "binding":
            if found["spec"].get("schedulingGates"):
                raise ApiFailed("pod has scheduling gates", 400)
            if found["spec"].get("nodeName"):
                raise ApiFailed("is assigned", 409)
            found["spec"]["nodeName"] = body["target"]["name"]
        elif method == "PATCH":
            found["spec"]["schedulingGates"] = body["spec"]["schedulingGates"] or []
        elif method == "DELETE":
            self.deleted.append((name, body.get("gracePeriodSeconds")))
            found["metadata"]["deletionTimestamp"] = "now"
        return found

    def add(self, *pods: Any) -> None:
        self.pods |= {each["metadata"]["name"]: each for each in pods}

    def nodes(self, gang: str) -> list[str]:
        named = sorted(name for name in self.pods if name.startswith(f"{gang}-"))
        return [self.pods[name]["spec"].get("nodeName", "") for name in named]


def _uid_in(body: Any) -> str:
    return str((body.get("metadata") or body.get("preconditions"))["uid"])


class Adopting:
    """A leading writer that adopts the pods of namespace `ns`."""

    def __init__(self, writer: Writer, cluster: FakeCluster) -> None:
        self.writer, self.cluster, self.now_s, self.down = writer, cluster, 0.0, set[str]()
        self.adoption = PodAdoption(
            KubernetesKeys(adopt={"ns": ""}),
            cluster,  # type: ignore[arg-type]
            lambda host: host not in self.down,
            dict,
            lambda: self.now_s,
        )
        self.adoption._writer = writer
        self.adoption.pods["ns"].is_current = True

    async def settle(self) -> None:
        """Until nothing changes any more, and neither a decision nor a write is under way."""
        before: object = None
        run = asyncio.get_running_loop().run_in_executor
        threads = (self.writer._executor._thread, self.writer._disk)
        while before != (before := (self.writer.state.version, str(self.cluster.pods))):
            for _ in range(3):
                self.adoption.pods["ns"].by_name = {
                    name: adopted_pod(each) for name, each in self.cluster.pods.items()
                }
                self.adoption.look()
                while self.adoption._acting:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)
                for thread in threads:
                    await run(thread, int)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not holds():
                self.now_s += 1
                await self.settle()

    async def until_said(self, text: str) -> None:
        """Until an event of a pod has these words."""
        await self.until(lambda: any(text in said for said in self.cluster.events))

    async def wait_for_gone(self, at_s: float) -> None:
        """Let the pods that are gone be gone for as long."""
        self.now_s = at_s
        for _ in range(3):
            await self.settle()

    def job(self, gang: str) -> Job | None:
        return self.writer.state.jobs.get(f"ns.gang.{gang}")

    def hosts(self, name: str) -> list[str]:
        """Of a job, in the order of its ranks."""
        job = self.writer.state.jobs[f"ns.{name}"]
        return list(self.writer.state.loaded_fabric.names(job.hosts))

    async def add_gang(self, owner: str = "") -> None:
        """Two pods of gang a."""
        self.cluster.add(plain("a", 0, owner=owner), plain("a", 1, owner=owner))
        await self.settle()

    async def fill(self) -> None:
        """A gang, "secret", that has all hosts."""
        hosts = len(self.writer.state.loaded_fabric.hosts)
        size = {"muster.dev/size": str(hosts)}
        self.cluster.add(*(plain("secret", rank, size) for rank in range(hosts)))
        await self.settle()
        self.cluster.events.clear()

    def last(self) -> tuple[JobState, str]:
        """How and why the last job of gang a ended."""
        assert self.job("a") is None
        last = self.writer.state.last_ended("ns.gang.a")
        assert last is not None
        return last.state, last.reason


@asynccontextmanager
async def following_groups(world: Adopting) -> AsyncIterator[None]:
    adoption = world.adoption
    runs = [adoption.groups["ns"].run(), adoption.claims["ns"].run()]
    following = [asyncio.create_task(run) for run in runs]
    try:
        yield
    finally:
        for each in following:
            each.cancel()
        await asyncio.wait(following)


@pytest.fixture
def served() -> str:
    """The version of scheduling.k8s.io."""
    return "v1alpha2"


@pytest.fixture
async def world(tmp_path: Path, served: str) -> AsyncIterator[Adopting]:
    store, clock = open_store(url(tmp_path)), ticking()
    found = recover(store, fabric_spec(), clock())
    writer = Writer(store, found, clock, SchedulingOptions(), Feed(100), Retention())
    writing = asyncio.create_task(writer.run())
    try:
        while not writer.is_leading:
            await asyncio.sleep(0)
        made = Adopting(writer, FakeCluster(served))
        async with following_groups(made):
            yield made
    finally:
        writer.stop()
        await writing
        store.close()


async def test_a_whole_gang_is_bound_in_the_order_of_its_ranks(world: Adopting) -> None:
    world.cluster.add(plain("a", 1))
    await world.settle()
    assert world.job("a") is None
    assert world.cluster.events == []
    world.now_s = GONE_S
    await world.settle()
    assert world.cluster.events == ["its gang has 1 of 2 pods"]
    world.cluster.add(plain("a", 0))
    await world.settle()
    assert world.cluster.nodes("a") == world.hosts("gang.a")
    assert len(set(world.hosts("gang.a"))) == 2


async def test_the_gate_goes_when_a_pod_is_bound_and_others_keep_theirs(world: Adopting) -> None:
    own, others = {"name": GATE}, {"name": "example.org/quota"}
    world.cluster.add(plain("a", 0, schedulingGates=[own]))
    world.cluster.add(plain("a", 1, schedulingGates=[own, others]))
    await world.settle()
    assert world.cluster.nodes("a") == [world.hosts("gang.a")[0], ""]
    assert world.cluster.pods["a-1"]["spec"]["schedulingGates"] == [others]
    world.cluster.pods["a-1"]["spec"]["schedulingGates"] = []
    await world.settle()
    assert world.cluster.nodes("a") == world.hosts("gang.a")


async def test_a_swap_moves_the_pod_of_the_lost_host_alone(world: Adopting) -> None:
    await world.add_gang()
    first = world.hosts("gang.a")
    world.down.add(first[1])
    await world.writer.submit(ReportHost(first[1], "gpu-lost"))
    await world.until(lambda: world.cluster.deleted)
    await world.settle()
    assert world.cluster.deleted == [("a-1", 0)]  # no kubelet is there to end it
    bound = [f"bound to {host}, as the host of rank {n} of 2" for n, host in enumerate(first)]
    assert set(bound) <= set(world.cluster.events)
    assert f"not {first[1]}: that is failed, gpu-lost" in world.cluster.events[-1]
    second = world.hosts("gang.a")
    assert second[0] == first[0]
    assert second[1] != first[1]
    world.cluster.add(plain("a", 1))  # as its controller does
    await world.settle()
    assert world.cluster.nodes("a") == second


async def test_a_pod_is_not_bound_beside_one_that_is_still_ending(world: Adopting) -> None:
    await world.add_gang()
    host = world.hosts("gang.a")[0]
    ending = world.cluster.pods.pop("a-0")
    ending["metadata"] |= {"name": "a-0-old", "deletionTimestamp": "now"}
    world.cluster.add(ending, plain("a", 0))
    await world.settle()
    assert world.cluster.pods["a-0"]["spec"].get("nodeName") is None
    del world.cluster.pods["a-0-old"]
    await world.settle()
    assert world.cluster.pods["a-0"]["spec"]["nodeName"] == host


async def test_a_gang_that_waits_says_why_without_names_of_others(world: Adopting) -> None:
    await world.fill()
    world.cluster.groups["b"] = pod_group("b", 2)
    await world.add_gang()
    (text,) = world.cluster.events
    assert "needs 2 hosts, 0 are free" in text
    assert "secret" not in text
    assert world.cluster.nodes("a") == ["", ""]
    world.cluster.add(grouped("b", 0), grouped("b", 1))
    await world.until(lambda: "status" in world.cluster.groups["b"])
    (condition,) = world.cluster.groups["b"]["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
    assert "needs 2 hosts, 0 are free" in condition["message"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_job_ends_as_its_pods_do(world: Adopting, phase: str) -> None:
    await world.add_gang("job-1")
    for each in world.cluster.pods.values():
        each["status"]["phase"] = phase
    await world.settle()
    if phase == "Failed":  # its controller may start it again
        assert world.job("a") is not None
        world.now_s = GONE_S
        await world.settle()
    assert world.last()[0] is (JobState.FAILED if phase == "Failed" else JobState.COMPLETED)
    await world.settle()
    assert world.job("a") is None
    await world.add_gang("job-1" if phase == "Failed" else "job-2")  # its next try, or a new Job
    assert world.job("a") is not None


@pytest.mark.parametrize("owner", ["", "job-1"])
async def test_a_job_is_cancelled_when_its_pods_are_gone(world: Adopting, owner: str) -> None:
    """Those of a controller that backs off may come again for a while."""
    await world.add_gang(owner)
    world.cluster.pods.clear()
    await world.settle()
    assert world.job("a") is not None
    for at_s in (GONE_S, BACK_OFF_S) if owner else (GONE_S,):
        await world.wait_for_gone(at_s)
    assert world.last() == (JobState.CANCELLED, "its pods are gone")


@pytest.mark.parametrize("owner", ["job-1", "job-2"])
async def test_a_job_keeps_its_place_while_its_controller_backs_off(
    world: Adopting, owner: str
) -> None:
    await world.add_gang("job-1")
    first = world.job("a")
    assert first is not None
    world.cluster.pods.clear()
    await world.settle()
    await world.wait_for_gone(GONE_S)
    job = world.job("a")
    assert job is not None
    assert (job.state, job.hold, job.uid) == (JobState.QUEUED, None, first.uid)
    assert job.name in world.writer.state.index.deferred  # holds no hosts, and does not start
    world.now_s = BACK_OFF_S - 1
    await world.add_gang(owner)
    await world.until(lambda: "" not in world.cluster.nodes("a"))
    job = world.job("a")
    assert job is not None
    assert (job.uid == first.uid, job.sequence == first.sequence) == (2 * (owner == "job-1",))


async def test_pods_of_a_cancelled_job_go_and_do_not_come_back(world: Adopting) -> None:
    await world.add_gang("job-1")
    await world.writer.submit(CancelJob("ns.gang.a", "by hand"))
    await world.settle()
    assert sorted(world.cluster.deleted) == [("a-0", None), ("a-1", None)]
    assert "ns.gang.a is cancelled: by hand" in world.cluster.events
    await world.add_gang("job-1")
    assert world.job("a") is None
    assert world.cluster.nodes("a") == ["", ""]
    await world.add_gang("job-2")
    assert world.cluster.nodes("a") == world.hosts("gang.a")


async def test_what_makes_no_gang_says_so_once(world: Adopting) -> None:
    hosts = len(world.writer.state.loaded_fabric.hosts) + 1
    size = {"muster.dev/size": str(hosts)}
    world.cluster.add(*(plain("a", rank, size) for rank in range(hosts)), pod("web", {"app": "x"}))
    for _ in range(2):
        world.now_s += 10
        await world.settle()
    unnamed, large = sorted(world.cluster.events)
    assert f"{hosts} hosts" in large
    assert unnamed == "its labels name no gang: set muster.dev/gang and muster.dev/rank"


# --- pod groups -------------------------------------------------------------------------------


def grouped(group: str, rank: int, **spec: Any) -> Any:
    labels = {"apps.kubernetes.io/pod-index": str(rank)}
    return pod(f"{group}-{rank}", labels, schedulingGroup={"podGroupName": group}, **spec)


def pod_group(name: str, size: int, **spec: Any) -> Any:
    meta = {"name": name, "resourceVersion": "1"}
    return {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": size}}} | spec}


@pytest.mark.parametrize("served", ["v1alpha2", "v1beta1"])
async def test_pods_of_a_pod_group_are_one_gang_and_its_status_says_so(
    world: Adopting, served: str
) -> None:
    world.cluster.add(grouped("a", 0), grouped("a", 1))
    await world.until_said("its pod group a of scheduling.k8s.io is not there")
    world.cluster.groups["a"] = pod_group("a", 2)
    async with following_groups(world):
        await world.until(lambda: "status" in world.cluster.groups["a"])
    assert world.cluster.nodes("a") == world.hosts("group.a")
    (condition,) = world.cluster.groups["a"]["status"]["conditions"]
    wanted = "PodGroupScheduled" if served == "v1alpha2" else "PodGroupInitiallyScheduled"
    assert (condition["type"], condition["status"]) == (wanted, "True")


async def test_more_pods_than_their_group_needs_are_not_bound_in_part(world: Adopting) -> None:
    world.cluster.groups["a"] = pod_group("a", 2)
    world.cluster.add(*(grouped("a", rank) for rank in range(3)))
    await world.until_said("its gang has 3 of 2 pods, and gangs are bound whole: set muster.dev/")
    assert world.cluster.nodes("a") == ["", "", ""]


def of_workload(rank: int, group: str, key: str = "") -> Any:
    part = {"name": "train", "podGroup": group} | ({"podGroupReplicaKey": key} if key else {})
    labels = {"apps.kubernetes.io/pod-index": str(rank)}
    return pod(f"{group}{key}-{rank}", labels, workloadRef=part)


async def test_groups_of_a_workload_are_gangs_and_replicas_of_a_group_gangs_of_their_own(
    world: Adopting,
) -> None:
    groups = [{"name": name, "policy": {"gang": {"minCount": 2}}} for name in ("workers", "work")]
    meta = {"name": "train", "resourceVersion": "1"}
    world.cluster.workloads["train"] = {"metadata": meta, "spec": {"podGroups": groups}}
    world.cluster.add(*(of_workload(rank, "workers", key) for key in "01" for rank in (0, 1)))
    await world.until(lambda: len(world.writer.state.jobs) == 2)
    await world.settle()
    for key in "01":
        assert world.cluster.nodes(f"workers{key}") == world.hosts(f"group.train.workers.{key}")


def composite(name: str, groups: int, parent: str = "", **spec: Any) -> Any:
    made = pod_group(name, 0, parentCompositePodGroupName=parent, **spec)
    made["spec"]["schedulingPolicy"] = {"gang": {"minGroupCount": groups}}
    return made


@pytest.mark.parametrize("served", ["v1beta1"])
async def test_groups_below_one_composite_group_are_one_gang(world: Adopting) -> None:
    cluster = world.cluster
    cluster.composites |= {"root": composite("root", 2), "inner": composite("inner", 1, "root")}
    cluster.groups["workers"] = pod_group("workers", 2, parentCompositePodGroupName="inner")
    cluster.add(grouped("workers", 0), grouped("workers", 1))
    world.now_s = GONE_S
    await world.until_said("its pod group workers of scheduling.k8s.io is not there")
    cluster.groups["driver"] = pod_group("driver", 1, parentCompositePodGroupName="root")
    cluster.add(grouped("driver", 0))
    await world.until(lambda: "" not in cluster.nodes("workers"))
    await world.until(lambda: all("status" in each for each in cluster.groups.values()))
    bound = [*cluster.nodes("driver"), *cluster.nodes("workers")]
    assert bound == world.hosts("group.root")


async def test_what_groups_inside_a_composite_one_want_of_topology_is_refused(
    world: Adopting,
) -> None:
    rack: Any = {"schedulingConstraints": {"topology": [{"key": "topology/rack"}]}}
    world.cluster.composites["root"] = composite("root", 1)
    world.cluster.groups["a"] = pod_group("a", 2, parentCompositePodGroupName="root", **rack)
    world.cluster.add(grouped("a", 0), grouped("a", 1))
    await world.until_said("topology/rack")
    assert "not groups inside it" in world.cluster.events[-1]
    assert world.writer.state.jobs == {}


# --- claims of devices ------------------------------------------------------------------------


def claiming(gang: str, rank: int, claim: str, entry: str = "gpus") -> Any:
    """A pod whose claim a controller has made of a template."""
    found = plain(gang, rank, resourceClaims=[{"name": entry, "resourceClaimTemplateName": "t"}])
    made = {"name": entry, "resourceClaimName": claim}
    found["status"] = {"resourceClaimStatuses": [made]} if claim else {}
    return found


def resource_claim(name: str, **exactly: Any) -> Any:
    asked = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount"} | exactly
    devices = {"requests": [{"name": "gpu", "exactly": asked}]}
    opaque = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": "none"}}}
    spec = {"devices": devices | {"config": [opaque]}}
    return {"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec}


def with_gpus(world: Adopting) -> None:
    """Slices of 8 GPUs on each host, a part of one of them, and older slices."""
    expression = "device.driver == 'gpu.nvidia.com' && "
    expression += "device.attributes['gpu.nvidia.com'].type == 'gpu'"
    world.cluster.classes["gpu.nvidia.com"] = {
        "metadata": {"name": "gpu.nvidia.com"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
    for host in world.writer.state.loaded_fabric.hosts:
        for generation in (1, 2):
            devices = [
                {"name": f"gpu-{n}", "attributes": {"type": {"string": "gpu"}}}
                for n in range(GPUS if generation == 2 else GPUS + 1)
            ]
            devices.append({"name": "mig-0", "attributes": {"type": {"string": "mig"}}})
            pool = {"name": host, "generation": generation, "resourceSliceCount": 1}
            spec = {"driver": "gpu.nvidia.com", "nodeName": host, "pool": pool, "devices": devices}
            meta = {"name": f"{host}-{generation}", "resourceVersion": "1"}
            world.cluster.slices[meta["name"]] = {"metadata": meta, "spec": spec}


async def test_claimed_gpus_are_those_of_the_host_of_the_rank(world: Adopting) -> None:
    with_gpus(world)
    both: list[dict[str, Any]] = [{"count": GPUS}, {"allocationMode": "All"}]
    for rank, asked in enumerate(both):
        world.cluster.claims[f"c{rank}"] = resource_claim(f"c{rank}", **asked)
        world.cluster.add(claiming("a", rank, f"c{rank}"))
    await world.until(lambda: "" not in world.cluster.nodes("a"))
    hosts = world.hosts("gang.a")
    assert world.cluster.nodes("a") == hosts
    for rank, host in enumerate(hosts):
        claim = world.cluster.claims[f"c{rank}"]
        allocation, (consumer,) = claim["status"]["allocation"], claim["status"]["reservedFor"]
        results = allocation["devices"]["results"]
        assert {(each["pool"], each["device"]) for each in results} == {
            (host, f"gpu-{n}") for n in range(GPUS)
        }
        assert allocation["devices"]["config"][0]["source"] == "FromClaim"
        (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
        assert term["matchFields"][0]["values"] == [host]
        assert consumer["uid"] == world.cluster.pods[f"a-{rank}"]["metadata"]["uid"]
        assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]


@pytest.mark.parametrize(
    ("claims", "asked", "message"),
    [
        (("c0", ""), {"count": 8}, "its resource claim gpus is not there"),
        (("c0", "c0"), {"count": 8}, "several pods share claim gpus"),
        (("c0", "c1"), {"count": 4}, "asks for 4 GPUs; a pod of a gang has a host, with 8"),
        (("c0", "c1"), {"selectors": [{"cel": {}}]}, "does not do selectors; select nodes by"),
        (("c0", "c1"), {"deviceClassName": ""}, "does not do a choice of devices"),
    ],
)
async def test_a_claim_that_cannot_be_met_is_named(
    world: Adopting, claims: tuple[str, str], asked: dict[str, Any], message: str
) -> None:
    with_gpus(world)
    for name in filter(None, claims):
        world.cluster.claims[name] = resource_claim(name, **asked)
    world.cluster.add(*(claiming("a", rank, name) for rank, name in enumerate(claims)))
    await world.until_said(message)
    assert world.job("a") is None


async def test_devices_that_a_pod_still_has_are_waited_for(world: Adopting) -> None:
    with_gpus(world)
    before = {"driver": "gpu.nvidia.com", "device": "gpu-0", "request": "gpu"}
    for rank in (0, 1):
        world.cluster.claims[f"c{rank}"] = resource_claim(f"c{rank}", count=GPUS)
    for host in world.writer.state.loaded_fabric.hosts:
        old = resource_claim(f"old-{host}", count=1)
        devices = {"results": [before | {"pool": host}]}
        old["status"] = {"allocation": {"devices": devices}}
        world.cluster.claims[f"old-{host}"] = old
    world.cluster.add(*(claiming("a", rank, f"c{rank}") for rank in (0, 1)))
    await world.until_said("7 free")
    assert world.cluster.nodes("a") == ["", ""]
    for name in [name for name in world.cluster.claims if name.startswith("old-")]:
        del world.cluster.claims[name]
        world.adoption.claims["ns"].by_name.pop(name, None)
    await world.until(lambda: "" not in world.cluster.nodes("a"))


def test_a_label_of_nodes_is_the_tier_whose_domains_it_names() -> None:
    fabric = from_spec(fabric_spec())
    rack = fabric.tiers[-1]
    nodes = {
        host: NodeMarks({"topology/rack": fabric.domain(number, len(fabric.tiers) - 1)}, ())
        for number, host in enumerate(fabric.hosts)
    }
    group = PodGroup(2, key="topology/rack")
    assert required_tier(group, fabric, nodes, "pod ns/a-0") == rack.name
    assert required_tier(PodGroup(2, tier=1), fabric, nodes, "") == rack.name
    assert required_tier(PodGroup(2, tier=9), fabric, nodes, "") == ""
    with pytest.raises(InputError, match="values of topology/block are the domains of no tier"):
        required_tier(PodGroup(2, key="topology/block"), fabric, nodes, "pod ns/a-0")
