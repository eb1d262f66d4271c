"""`muster serve --launcher kubernetes` on a real API server, with real gangs in pods of a toy
kubelet, and no more rights than deploy/kubernetes gives."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drills.cluster_check import main as conformance
from scheduler.client import Client
from scheduler.v1 import host_pb2, job_pb2
from scripts.local_host import send
from tests.e2e.gangs import check_log, gang, has_saved, is_launched, on_nodes, until
from tests.e2e.processes import RunningServer
from tests.kubernetes import KubernetesCluster, ToyKubelet, kubernetes_cluster, needs_kubernetes
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, needs_kubernetes]
LEASE_S = 4
ROOT = Path(__file__).parents[2]


class KubernetesServer(RunningServer):
    """`muster serve --launcher kubernetes` on six nodes in two zones."""

    def __init__(
        self, folder: Path, cluster: KubernetesCluster, holding: str = "gang", **more: Any
    ) -> None:
        self.cluster = cluster
        self.nodes = [f"n{number}" for number in range(1, 7)]
        terms = {"kubeconfig": str(cluster.kubeconfig), "image": "train", "holding": holding}
        terms |= {"grace_s": 20} | more
        super().__init__(folder, on_nodes(folder, self.nodes, "kubernetes", terms, LEASE_S))

    def pods(self) -> dict[str, Any]:
        """By node."""
        return {pod["spec"]["nodeName"]: pod for pod in self.cluster.api.pods().values()}


@contextmanager
def kubernetes_server(
    folder: Path, holding: str = "gang", **more: Any
) -> Iterator[tuple[KubernetesServer, ToyKubelet, Client]]:
    with kubernetes_cluster(folder / "k") as cluster:
        server = KubernetesServer(folder, cluster, holding, **more)
        for node in server.nodes:
            cluster.add_node(node)
        kubelet = ToyKubelet(cluster, folder / "h")
        kubelet.start()
        server.start()
        try:
            with Client(server.address) as client:
                yield server, kubelet, client
        except BaseException as error:
            error.add_note(server.log.read_text() + kubelet.logs())
            raise
        finally:
            server.end()
            kubelet.close()
    check_log(f"sqlite:///{folder / 'm.db'}")


def marks(pod: Any) -> tuple[str, str]:
    """Which pod it is, and which version of it, but for what its kubelet says of it."""
    return pod["metadata"]["uid"], str(sorted(pod["metadata"]["labels"].items()))


def test_a_gang_in_pods_survives_a_rank_a_host_a_freeze_and_the_api_server(tmp_path: Path) -> None:
    with kubernetes_server(tmp_path) as (server, kubelet, client):
        assert server.pods() == {}
        client.create_job(gang("a", tmp_path, steps=10**6))
        first = until(client, "a", is_launched(1))
        until(client, "a", has_saved)
        hosts, (spare,) = list(first.placement.hosts), first.placement.spares
        wait_until(lambda: set(server.pods()) == {*hosts, spare}, 5)
        pod = server.pods()[hosts[0]]
        labels = pod["metadata"]["labels"]
        assert labels["muster.dev/job"] == "a"
        assert labels["muster.dev/job-uid"] == first.uid
        assert (labels["muster.dev/attempt"], labels["muster.dev/role"]) == ("1", "member")
        status = Path(f"/proc/{kubelet.agent(hosts[0])}/status").read_text()
        (inside,) = (row.split()[-1] for row in status.splitlines() if row.startswith("NSpid:"))
        assert inside == "1"  # the agent is the first process of its pod
        assert "join:" not in str(server.pods())

        os.kill(kubelet.ranks(hosts[0])[-1], signal.SIGKILL)
        second = until(client, "a", is_launched(2))
        assert list(second.placement.hosts) == hosts
        before = {node: marks(each) for node, each in server.pods().items()}
        time.sleep(1.0)  # the ranks have met, so that a survivor sees its peer go

        killed_s = time.monotonic()
        kubelet.kill_node(hosts[1])
        third = until(client, "a", is_launched(3))
        took_s = time.monotonic() - killed_s
        assert took_s < 10, took_s  # 0.5 s on two busy cores
        assert list(third.placement.hosts) == [hosts[0], spare]
        wait_until(
            lambda: server.pods()[spare]["metadata"]["labels"]["muster.dev/role"] == "member", 5
        )
        after = server.pods()
        assert after[hosts[0]]["metadata"]["uid"] == before[hosts[0]][0]
        assert {node for node in before if marks(after[node]) != before[node]} == {spare}

        kubelet.start_node(hosts[1])  # the kubelet starts the pod's container anew
        healthy = host_pb2.HOST_STATE_HEALTHY
        wait_until(lambda: client.get_host(hosts[1]).state == healthy, 30)

        assert (
            "forbidden" not in server.log.read_text()
        )  # as an API server says that has just started
        server.cluster.stop_apiserver()  # what is in the pods goes on without it
        ranks = kubelet.ranks(spare)
        os.kill(ranks[-1], signal.SIGKILL)
        until(client, "a", is_launched(4))
        server.cluster.start_apiserver()

        stale = kubelet.ranks(hosts[0])
        pids = kubelet.freeze(hosts[0])
        fifth = until(client, "a", is_launched(5))
        assert hosts[0] not in fifth.placement.hosts
        kubelet.thaw(hosts[0], pids)
        until(client, "a", lambda _: not set(stale) & set(kubelet.ranks(hosts[0])))

        client.cancel_job("a")
        wait_until(lambda: server.pods() == {}, 20)
        wait_until(lambda: not any(kubelet.ranks(node) for node in server.nodes), 20)


def test_pods_are_found_again_by_the_next_server_and_orphans_are_deleted(tmp_path: Path) -> None:
    with kubernetes_server(tmp_path) as (server, kubelet, client):
        client.create_job(gang("a", tmp_path, steps=10**6))
        job = until(client, "a", is_launched(1))
        until(client, "a", has_saved)
        before = {node: pod["metadata"]["uid"] for node, pod in server.pods().items()}
        ranks = kubelet.ranks(job.placement.hosts[0])
        server.end(signal.SIGKILL)
        orphan = next(node for node in server.nodes if node not in before)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "stray", "labels": {"muster.dev/server": "muster"}},
            "spec": {"nodeName": orphan, "containers": [{"name": "agent", "image": "x"}]},
        }
        body["spec"]["containers"][0]["command"] = ["sleep", "1000"]  # type: ignore[index]
        server.cluster.api.call("POST", "/api/v1/namespaces/muster/pods", body)
        wait_until(lambda: kubelet.processes(orphan), 10)
        server.start()
        wait_until(
            lambda: {node: pod["metadata"]["uid"] for node, pod in server.pods().items()} == before,
            40,
        )
        saved = client.get_job("a").saved_checkpoint.step
        until(client, "a", lambda job: job.saved_checkpoint.step > saved, 90)
        assert client.get_job("a").attempt == 1
        assert set(ranks) <= set(kubelet.ranks(job.placement.hosts[0]))


def test_a_drained_node_is_left_after_a_checkpoint_and_comes_back(tmp_path: Path) -> None:
    with kubernetes_server(tmp_path, "whole") as (server, kubelet, client):
        wait_until(lambda: set(server.pods()) == set(server.nodes), 20)
        client.create_job(gang("a", tmp_path, steps=10**6))
        first = until(client, "a", is_launched(1))
        until(client, "a", has_saved)
        leaving, stays = first.placement.hosts
        pod = server.pods()[leaving]
        server.cluster.cordon(leaving)
        cordoned = host_pb2.HOST_STATE_CORDONED
        wait_until(lambda: client.get_host(leaving).state == cordoned, 10)
        assert client.get_job("a").attempt == 1
        server.cluster.evict(pod["metadata"]["name"])
        second = until(client, "a", is_launched(2), 60)
        assert leaving not in second.placement.hosts
        assert stays in second.placement.hosts
        assert client.get_host(leaving).cordon_reason == "kubernetes: its pod is evicted"
        wait_until(lambda: leaving not in server.pods(), 20)  # as kubectl drain waits for
        time.sleep(2)
        assert leaving not in server.pods()
        server.cluster.cordon(leaving, on=False)
        wait_until(lambda: client.get_host(leaving).state == host_pb2.HOST_STATE_HEALTHY, 20)
        wait_until(lambda: leaving in server.pods(), 20)
        bad = second.placement.hosts[0]
        server.cluster.set_condition(bad, "GPUMissing", "True", "7 of 8")
        wait_until(lambda: client.get_host(bad).state != host_pb2.HOST_STATE_HEALTHY, 10)
        assert "GPUMissing: 7 of 8" in client.get_host(bad).reason
        server.cluster.api.call("DELETE", f"/api/v1/nodes/{server.nodes[-1]}")
        kubelet.kill_node(server.nodes[-1])
        failed = host_pb2.HOST_STATE_FAILED
        wait_until(lambda: client.get_host(server.nodes[-1]).state == failed, 20)
        wait_until(lambda: server.nodes[-1] not in server.pods(), 20)
        send(signal.SIGKILL, *kubelet.ranks(server.nodes[0]))


# --- pods that others make ------------------------------------------------------------------

JOBSET, BATCH = "jobset.sigs.k8s.io", "batch.kubernetes.io"
FOUR_HOSTS = """
parallelism: {tp: 2, dp: 4}
traffic: {dp: 1000000}
spares: 1
"""


def adopt_training(cluster: KubernetesCluster) -> None:
    """Have a namespace whose pods the server may bind."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}}
    cluster.api.call("POST", "/api/v1/namespaces", namespace)
    cluster.api.apply((ROOT / "deploy" / "kubernetes" / "adopt.yaml").read_text())


class Controller:
    """Makes pods as JobSet does, and none anew by itself."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, name: str) -> None:
        self._api, self._done, self._name = cluster.api, folder / f"{name}.done", name
        self._path = "/api/v1/namespaces/training/pods"

    def make(self, job: int, index: int, suffix: str = "a", notes: Any = None, **more: Any) -> None:
        labels = {
            f"{JOBSET}/jobset-name": self._name,
            f"{JOBSET}/replicatedjob-name": "workers",
            f"{JOBSET}/job-index": str(job),
            "job-name": f"{self._name}-workers-{job}",
        }
        annotations = {f"{BATCH}/job-completion-index": str(index), **(notes or {})}
        name = f"{self._name}-workers-{job}-{index}-{suffix}"
        command = ["sh", "-c", f"while [ ! -e {self._done} ]; do sleep 0.1; done"]
        container = {"name": "train", "image": "train", "command": command}
        body = {"apiVersion": "v1", "kind": "Pod"}
        body |= {"metadata": {"name": name, "labels": labels, "annotations": annotations}}
        toleration = {"key": "muster.dev/managed", "operator": "Exists"}
        spec = {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}
        self._api.call(
            "POST", self._path, body | {"spec": spec | {"tolerations": [toleration]} | more}
        )

    def end(self) -> None:
        self._done.touch()

    def hosts(self) -> list[str]:
        """Of the live pods, in the order of their ranks; "" of one that is not bound."""
        pods = [
            pod
            for pod in self._api.pods("training").values()
            if pod["metadata"]["labels"][f"{JOBSET}/jobset-name"] == self._name
            and "deletionTimestamp" not in pod["metadata"]
        ]
        pods.sort(key=lambda pod: _rank(pod["metadata"]))
        return [pod["spec"].get("nodeName", "") for pod in pods]

    def events(self) -> list[str]:
        answer = self._api.call("GET", "/api/v1/namespaces/training/events")
        return [
            event["message"]
            for event in answer["items"]
            if event["involvedObject"]["name"].startswith(self._name)
        ]


def _rank(meta: Any) -> tuple[int, int]:
    index = meta["annotations"][f"{BATCH}/job-completion-index"]
    return int(meta["labels"][f"{JOBSET}/job-index"]), int(index)


def test_pods_of_a_jobset_are_bound_in_rank_order_and_follow_a_swap(tmp_path: Path) -> None:
    with kubernetes_server(tmp_path, adopt={"training": None}) as (server, kubelet, client):
        cluster = server.cluster
        adopt_training(cluster)
        first = Controller(cluster, tmp_path, "llama")
        notes = {"muster.dev/job": FOUR_HOSTS}
        for job, index in ((1, 1), (0, 1), (1, 0)):
            first.make(job, index, notes=notes)
        time.sleep(2)
        assert client.list_jobs() == []  # a gang that is not whole waits for its pods
        first.make(0, 0, notes=notes)
        wait_until(lambda: all(first.hosts()), 30)
        job = client.get_job("training.jobset.llama")
        assert (job.state, job.user) == (job_pb2.JOB_STATE_RUNNING, "kubernetes:training")
        assert first.hosts() == list(job.placement.hosts)
        begun = len(server.log.read_text())  # before it, the server was there and its role was not

        second = Controller(cluster, tmp_path, "qwen")
        for index in range(2):
            second.make(0, index, notes={"muster.dev/size": "2"})
        wrong = Controller(cluster, tmp_path, "wrong")
        wrong.make(0, 0, notes={"muster.dev/job": "parallelism: {tp: two}"})
        bare = Controller(cluster, tmp_path, "bare")
        bare.make(0, 0)
        wait_until(lambda: any("needs 2 hosts" in text for text in second.events()), 20)
        wait_until(lambda: any("muster.dev/job" in text for text in wrong.events()), 20)
        wait_until(lambda: any("muster.dev/size: is needed" in text for text in bare.events()), 20)
        assert second.hosts() == ["", ""]

        victim = job.placement.hosts[2]
        kubelet.kill_node(victim)
        cluster.set_condition(victim, "Ready", "False", "kubelet is dead")
        wait_until(lambda: len(first.hosts()) == 3, 20)  # the pod on the dead host is deleted
        first.make(1, 0, "b", notes)
        wait_until(lambda: len(first.hosts()) == 4 and all(first.hosts()), 20)
        swapped = client.get_job("training.jobset.llama")
        assert list(swapped.placement.hosts)[:2] == list(job.placement.hosts)[:2]
        assert swapped.placement.hosts[2] != victim
        assert first.hosts() == list(swapped.placement.hosts)

        server.end(signal.SIGKILL)
        server.start()
        time.sleep(2)
        assert first.hosts() == list(swapped.placement.hosts)
        first.end()
        completed = job_pb2.JOB_STATE_COMPLETED
        wait_until(lambda: client.get_job("training.jobset.llama").state == completed, 30)
        wait_until(lambda: all(second.hosts()), 30)
        second.end()
        wait_until(lambda: client.get_job("training.jobset.qwen").state == completed, 30)
        assert "forbidden" not in server.log.read_text()[begun:]


def test_pods_wait_for_labels_of_nodes_and_a_gang_moves_when_a_pod_is_evicted(
    tmp_path: Path,
) -> None:
    """A pod group of Kueue waits as well; of those that are objects this API server knows none."""
    with kubernetes_server(tmp_path, adopt={"training": None}) as (server, _, client):
        cluster = server.cluster
        adopt_training(cluster)
        gang, group = (Controller(cluster, tmp_path, name) for name in ("llama", "qwen"))
        notes, where = {"muster.dev/size": "2"}, {"pool": "iron"}
        kueue = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        kueue["kueue.x-k8s.io/podset-required-topology"] = "block"
        for index in range(2):
            gang.make(0, index, notes=notes, nodeSelector=where)
            group.make(0, index, notes=kueue)
        wait_until(lambda: any("no host has pool=iron" in text for text in gang.events()), 20)
        wait_until(lambda: any("domains of no tier" in text for text in group.events()), 20)
        assert [*gang.hosts(), *group.hosts()] == [""] * 4
        for number, node in enumerate(server.nodes):
            labels = where | {"block": f"b{number // 3}"}
            cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}})
        wait_until(lambda: all([*gang.hosts(), *group.hosts()]), 30)
        job = client.get_job("training.jobset.qwen")
        assert job.spec.constraints.same == "zone"
        assert group.hosts() == list(job.placement.hosts)
        stays, leaving = gang.hosts()
        cluster.cordon(leaving)
        name = next(
            name
            for name, pod in cluster.api.pods("training").items()
            if pod["spec"].get("nodeName") == leaving
        )
        cluster.api.call("DELETE", f"/api/v1/namespaces/training/pods/{name}")  # its eviction
        wait_until(lambda: gang.hosts() == [stays], 20)
        gang.make(0, 1, "b", notes, nodeSelector=where)
        wait_until(lambda: len(gang.hosts()) == 2 and all(gang.hosts()), 20)
        assert leaving not in gang.hosts()
        assert client.get_host(leaving).cordon_reason == "kubernetes: its pod is evicted"
        gang.end()
        group.end()


def test_conformance_names_what_a_cluster_does_not_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with kubernetes_cluster(tmp_path / "k") as cluster:
        admin = str(cluster.write_kubeconfig("admin"))
        words = ["--kubeconfig", admin, "--node", "n1", "--image", "train", "--wait-s"]
        cluster.add_node("n1")
        kubelet = ToyKubelet(cluster, tmp_path / "h")
        kubelet.start()
        try:
            assert conformance([*words, "30"]) == 0
            told = capsys.readouterr().out
            assert "ok      server may create pods" in told
            assert "ok      agent is the first process and stays" in told
            assert "FAILED" not in told
            left = [
                cluster.api.call("GET", f"/api/v1/namespaces/muster/{what}")["items"]
                for what in ("pods", "services", "secrets")
            ]
            assert left == [[], [], []]
            roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/muster/rolebindings"
            cluster.api.call("DELETE", f"{roles}/muster")
            kubelet.kill_node("n1")
            assert conformance([*words, "3"]) == 1
        finally:
            kubelet.close()
    told = capsys.readouterr().out
    assert "FAILED  server may create pods: system:serviceaccount:muster:muster may not" in told
    assert "FAILED  agent is the first process and stays: after 3 s: Pending" in told
    assert "ok      pod goes at once without grace" in told
