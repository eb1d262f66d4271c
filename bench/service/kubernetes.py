"""How long a gang of 2,048 pods takes to be there, and what a swap then touches.

    python -m bench.service.kubernetes [--hosts N] [--runs N]

The API server and its etcd are real, on this machine, as is `muster serve --launcher kubernetes`
with the rights of deploy/kubernetes; nodes have no kubelet, so that pods are bound and do not run.
Measured are the pods from the start of the gang in the log until a watch of another client has seen
the last one; in turns with it, as many pods made by a bare client with eight threads, which is what
this API server can do here; and a swap: a host of the gang is down, its spare takes its place.

The exit code is 1 when a gang takes longer than 4 s and more than 1.25 times the bare client (other
programs on the machine slow both), or when a swap touches any pod but that of the spare.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import urllib3
import yaml

from placement.workload.request import SpareRule
from scheduler.client import Client
from scheduler.core.policies.job_terms import RunSpec
from scheduler.v1 import job_pb2
from tests.build import fabric, fabric_spec, spec
from tests.e2e.processes import MUSTER
from tests.kubernetes import KubernetesCluster, kubernetes_cluster, missing
from tests.ports import free_port

GOAL_S, MOST_RATIO = 4.0, 1.25
THREADS = 8
PODS = "/api/v1/namespaces/muster/pods"


class PodWatch(threading.Thread):
    """Watches pods. `changes`: (seconds, type, node, pod) as they come."""

    def __init__(self, cluster: KubernetesCluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self.changes: list[tuple[float, str, str, Any]] = []
        self.start()

    def run(self) -> None:
        with suppress(urllib3.exceptions.HTTPError, AttributeError, ValueError):
            for kind, pod in self._cluster.api.watch(f"{PODS}?watch=1"):
                node = pod["spec"].get("nodeName", "")
                self.changes.append((time.time(), kind, node, pod))

    def until(self, count: int, kind: str = "ADDED") -> float:
        """Return when that many changes of a kind had come since the last `clear`."""
        until_s = time.monotonic() + 120
        while True:
            times = [at for at, what, _, _ in list(self.changes) if what == kind]
            if len(times) >= count:
                return times[count - 1]
            if time.monotonic() > until_s:
                raise SystemExit(f"only {len(times)} of {count} pods")
            time.sleep(0.02)


def empty(cluster: KubernetesCluster) -> None:
    """Delete all pods, for nobody else would end them."""
    cluster.api.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
    while cluster.api.call("GET", f"{PODS}?limit=1")["items"]:
        time.sleep(0.2)


def bare(cluster: KubernetesCluster, nodes: list[str], body: Any) -> float:
    """Measure the seconds for the same pods by a client that does nothing else."""
    watch = PodWatch(cluster)
    time.sleep(0.5)

    def create(node: str) -> None:
        meta = body["metadata"] | {"name": f"bare-{node}"}
        for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            meta.pop(key, None)
        pod = {**body, "metadata": meta, "spec": {**body["spec"], "nodeName": node}}
        cluster.api.call("POST", PODS, pod)

    begun_s = time.time()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(create, nodes))
    return watch.until(len(nodes)) - begun_s


@contextmanager
def server(folder: Path, cluster: KubernetesCluster, keys: Any) -> Iterator[Client]:
    (folder / "muster.yaml").write_text(yaml.safe_dump(keys))
    process = subprocess.Popen(
        [MUSTER, "serve", "--config", str(folder / "muster.yaml")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
    )
    assert process.stdout is not None
    print(process.stdout.readline().strip())
    try:
        with Client(keys["listen"]) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def gang_s(cluster: KubernetesCluster, client: Client, name: str, hosts: int) -> tuple[float, Any]:
    """Measure the seconds from the start in the log to the last change and to the last pod; return
    also one of the pods."""
    watch = PodWatch(cluster)
    time.sleep(0.5)
    made = spec(name, hosts, spares=SpareRule(hosts=1))
    client.create_job(replace(made, run=RunSpec(("true",), workdir="/tmp")))
    last_s = watch.until(hosts + 1)
    job = client.get_job(name)
    return last_s - job.update_time.ToNanoseconds() / 1e9, watch.changes[-1][3]


def swap(cluster: KubernetesCluster, client: Client, name: str) -> tuple[float, set[str], str]:
    """Measure the seconds until the spare's pod belongs to the gang, and count the nodes whose pods
    changed."""
    job = client.get_job(name)
    victim, (spare,) = job.placement.hosts[7], job.placement.spares
    watch = PodWatch(cluster)
    time.sleep(1.5)
    watch.changes.clear()
    begun_s = time.time()
    client.report_host(victim, "host-down")
    changed_s = watch.until(1, "MODIFIED")
    time.sleep(2)
    touched = {node for _, kind, node, _ in watch.changes if kind == "MODIFIED"}
    return changed_s - begun_s, touched - {victim}, spare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2_048)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if reason := missing():
        print(reason)
        return 2
    racks = options.hosts // 32 + 1
    with tempfile.TemporaryDirectory() as name, kubernetes_cluster(Path(name) / "k") as cluster:
        folder = Path(name)
        described = fabric_spec(4, racks, 8)
        nodes = list(fabric(4, racks, 8).hosts)
        (folder / "fabric.yaml").write_text(yaml.safe_dump(described))
        begun_s = time.monotonic()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(cluster.add_node, nodes))
        print(f"{len(nodes):,} nodes in {time.monotonic() - begun_s:.1f} s")
        keys: dict[str, Any] = {"fabric": "fabric.yaml", "listen": f"127.0.0.1:{free_port()}"}
        keys |= {"store": "sqlite:///m.db", "launcher": "kubernetes"}
        keys["kubernetes"] = {"kubeconfig": str(cluster.kubeconfig), "image": "train"}
        with server(folder, cluster, keys) as client:
            gangs, bares = [], []
            touched: set[str] = set()
            for run in range(options.runs):
                seconds, body = gang_s(cluster, client, f"g{run}", options.hosts)
                gangs.append(seconds)
                print(f"gang of {options.hosts:,} pods: {seconds:.2f} s", flush=True)
                if run == options.runs - 1:
                    seconds, touched, spare = swap(cluster, client, f"g{run}")
                    print(f"swap: {seconds:.3f} s, pods that changed: {sorted(touched)}")
                    touched -= {spare}
                client.cancel_job(f"g{run}")
                wait_for_end(client, f"g{run}")
                empty(cluster)
                seconds = bare(cluster, nodes[: options.hosts + 1], body)
                bares.append(seconds)
                print(f"as many by a bare client: {seconds:.2f} s", flush=True)
                empty(cluster)
    ours, theirs = statistics.median(gangs), statistics.median(bares)
    print(f"median {ours:.2f} s, bare {theirs:.2f} s, ratio {ours / theirs:.2f}")
    is_slow = ours > GOAL_S and ours > MOST_RATIO * theirs
    return 1 if is_slow or touched else 0


def wait_for_end(client: Client, name: str) -> None:
    while client.get_job(name).state != job_pb2.JOB_STATE_CANCELLED:
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
