"""A Kubernetes API server on this machine, and a toy kubelet that runs agents of pods.

Needs etcd (Debian: etcd-server), kube-apiserver on PATH or named by KUBE_APISERVER, and root, for
a container is a process in namespaces of its own, so that its agent is its first process; skipped
where they are not. There is no scheduler and no controller: what muster does not do, nobody does.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from scripts.local_host import send
from tests.ports import free_port
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
SERVICE_ACCOUNT = "system:serviceaccount:muster:muster"
APISERVER = os.environ.get("KUBE_APISERVER") or shutil.which("kube-apiserver") or ""
_TURN_S = 0.03
_RESTART_S = 0.3


def missing() -> str:
    """Why there can be no cluster here; "" where there can."""
    absent = [name for name in ("etcd", "openssl", "unshare") if shutil.which(name) is None]
    if not APISERVER:
        absent.append("kube-apiserver (or KUBE_APISERVER)")
    if absent:
        return f"no Kubernetes: {', '.join(absent)} not found"
    return "" if os.geteuid() == 0 else "containers need root here"


needs_kubernetes = pytest.mark.skipif(bool(missing()), reason=missing() or "Kubernetes is here")


class RefusedCall(Exception):
    """What the API server does not do."""


class AdminApi:
    """Calls with all rights, in JSON."""

    def __init__(self, url: str, token: str = "admin") -> None:
        self.url = url
        self._headers = {"Authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(cert_reqs="CERT_NONE", maxsize=32, retries=False)
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def call(self, method: str, path: str, body: Any = None, kind: str = "") -> Any:
        """Raises: RefusedCall, urllib3's HTTPError."""
        headers = self._headers | {"Content-Type": kind or "application/json"}
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(
            method, self.url + path, body=data, headers=headers, timeout=120
        )
        if answer.status >= 400:
            raise RefusedCall(f"{method} {path}: {answer.status} {answer.data.decode()[:500]}")
        return json.loads(answer.data)

    def patch(self, path: str, body: Any) -> Any:
        return self.call("PATCH", path, body, "application/strategic-merge-patch+json")

    def apply(self, text: str) -> None:
        """Every object of a manifest, server-side."""
        for item in yaml.safe_load_all(text):
            if item:
                path = f"{path_of(item)}/{item['metadata']['name']}?fieldManager=t&force=true"
                self.call("PATCH", path, item, "application/apply-patch+yaml")

    def pods(self, namespace: str = "muster") -> dict[str, Any]:
        answer = self.call("GET", f"/api/v1/namespaces/{namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in answer["items"]}

    def watch(self, path: str) -> Iterator[tuple[str, Any]]:
        """All that is there, and what changes. Ends when the server does."""
        answer = self._pool.request(
            "GET", self.url + path, headers=self._headers, preload_content=False, timeout=None
        )
        rest = b""
        try:
            for chunk in answer.stream(65_536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]
        finally:
            answer.close()


_PLURALS = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}
_GLOBAL = ("Namespace", "Node", "ClusterRole", "ClusterRoleBinding", "PriorityClass")


def path_of(item: Mapping[str, Any]) -> str:
    """The path of the collection of an object."""
    version, kind = item["apiVersion"], item["kind"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    if kind not in _GLOBAL:
        base += f"/namespaces/{item['metadata'].get('namespace', 'default')}"
    return f"{base}/{_PLURALS.get(kind, kind.lower() + 's')}"


class KubernetesCluster:
    """An API server on an etcd of its own. `kubeconfig`: of the service account of muster, with
    the rights of deploy/kubernetes alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._etcd_port, self._peer_port = (free_port() for _ in range(3))
        self.url = f"https://127.0.0.1:{self.port}"
        self.api = AdminApi(self.url)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        rows = ['admin,admin,1,"system:masters"', f"muster,{SERVICE_ACCOUNT},2", "nobody,nobody,3"]
        (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        key = str(folder / "sa.key")
        for words in (
            ["openssl", "genrsa", "-out", key, "2048"],
            ["openssl", "rsa", "-in", key, "-pubout", "-out", str(folder / "sa.pub")],
        ):
            subprocess.run(words, check=True, capture_output=True)
        self.kubeconfig = self.write_kubeconfig("muster")

    def write_kubeconfig(self, token: str) -> Path:
        path = self.folder / f"{token}.kubeconfig"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        body = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "here",
        }
        path.write_text(yaml.safe_dump(body))
        return path

    def start(self) -> None:
        """Until it answers."""
        etcd, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        words = ["etcd", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={etcd}"]
        words += [f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}"]
        words += [f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"]
        self._run("etcd", [*words, "--unsafe-no-fsync"])
        self.start_apiserver()
        for name in ("namespace", "rbac"):
            self.api.apply((ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text())

    def start_apiserver(self) -> None:
        f = self.folder
        words = [APISERVER, f"--etcd-servers=http://127.0.0.1:{self._etcd_port}"]
        words += ["--bind-address=127.0.0.1", f"--secure-port={self.port}", f"--cert-dir={f}/pki"]
        words += ["--advertise-address=127.0.0.1", "--service-cluster-ip-range=10.96.0.0/16"]
        words += [f"--service-account-key-file={f}/sa.pub"]
        words += [f"--service-account-signing-key-file={f}/sa.key"]
        words += ["--service-account-issuer=https://kubernetes.default.svc"]
        words += [f"--token-auth-file={f}/tokens.csv", "--authorization-mode=RBAC"]
        words += ["--disable-admission-plugins=ServiceAccount", "--allow-privileged=true"]
        self._run("api", words)
        until_s = time.monotonic() + PATIENCE * 60
        while True:
            with suppress(urllib3.exceptions.HTTPError, RefusedCall, ValueError):
                if self.api.call("GET", "/version"):
                    self.api.call("GET", "/api/v1/namespaces/default")
                    return
            assert time.monotonic() < until_s, (f / "api.log").read_text()[-2000:]
            assert self._processes["api"].poll() is None, (f / "api.log").read_text()[-2000:]
            time.sleep(0.1)

    def stop_apiserver(self) -> None:
        self._end("api")

    def _run(self, name: str, words: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self.folder
            )

    def _end(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait()

    def close(self) -> None:
        for name in ("api", "etcd"):
            self._end(name)

    # --- nodes --------------------------------------------------------------------------

    def add_node(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        taint = {"key": "muster.dev/managed", "effect": "NoSchedule"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            "spec": {"taints": [taint]},
        }
        self.api.call("POST", "/api/v1/nodes", body)
        self.set_condition(name, "Ready", "True")

    def set_condition(self, node: str, kind: str, status: str, message: str = "") -> None:
        condition = {"type": kind, "status": status, "reason": "Test", "message": message}
        self.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}})

    def cordon(self, node: str, *, on: bool = True) -> None:
        self.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": on}})

    def evict(self, pod: str) -> None:
        """As `kubectl drain` does."""
        meta = {"name": pod, "namespace": "muster"}
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": meta}
        self.api.call("POST", f"/api/v1/namespaces/muster/pods/{pod}/eviction", body)


@contextmanager
def kubernetes_cluster(folder: Path) -> Iterator[KubernetesCluster]:
    cluster = KubernetesCluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


# --- a toy kubelet -------------------------------------------------------------------------


@dataclass(eq=False)
class RunningPod:
    """`process`: the parent of its namespace; `first`: its first process, as seen from here."""

    uid: str
    name: str
    namespace: str
    node: str
    folder: Path
    process: subprocess.Popen[bytes]
    restarts: int = 0
    ended_s: float | None = None
    told: Any = None
    kill_s: float | None = None

    @property
    def first(self) -> int:
        pid = self.process.pid
        with suppress(OSError, ValueError):
            return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return 0


class ToyKubelet:
    """The kubelets of all nodes. Volumes are folders, paths in commands and variables are made
    those of the folders; there is no network, no image and no cgroup."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, namespace: str = "") -> None:
        self._cluster, self._folder = cluster, folder
        self._path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"
        self._pods: dict[str, RunningPod] = {}
        self._dead: set[str] = set()
        self._seen: dict[str, Any] = {}  # pods by uid, as the API server has them
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True) for work in (self._follow, self._turn)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        self._threads[1].join(10)
        with self._lock:
            for pod in self._pods.values():
                pod.process.kill()
                pod.process.wait()

    def _follow(self) -> None:
        """What the API server has."""
        while not self._over.is_set():
            try:
                answer = self._cluster.api.call("GET", self._path)
                with self._lock:
                    self._seen = {pod["metadata"]["uid"]: pod for pod in answer["items"]}
                version = answer["metadata"]["resourceVersion"]
                watch = f"{self._path}?watch=1&resourceVersion={version}"
                for kind, pod in self._cluster.api.watch(watch):
                    with self._lock:
                        if kind == "DELETED":
                            self._seen.pop(pod["metadata"]["uid"], None)
                        elif kind in ("ADDED", "MODIFIED"):
                            self._seen[pod["metadata"]["uid"]] = pod
            except (urllib3.exceptions.HTTPError, RefusedCall, ValueError, AttributeError):
                time.sleep(0.1)

    def _turn(self) -> None:
        while not self._over.wait(_TURN_S):
            with self._lock:
                seen = dict(self._seen)
                known = dict(self._pods)
            for uid, pod in seen.items():
                node = pod["spec"].get("nodeName")
                if node and node not in self._dead:
                    with suppress(urllib3.exceptions.HTTPError, RefusedCall):
                        self._look(uid, pod)
            for uid, running in known.items():
                if uid not in seen and running.node not in self._dead:
                    self._end(running)

    def _look(self, uid: str, pod: Any) -> None:
        running = self._pods.get(uid)
        if "deletionTimestamp" in pod["metadata"]:
            self._terminate(running, pod)
        elif running is None:
            self._begin(uid, pod)
        elif running.process.poll() is not None:
            if running.ended_s is None:
                running.ended_s = time.monotonic()
            elif time.monotonic() - running.ended_s > _RESTART_S:
                self._restart(running, pod)
        else:
            self._tell(running, pod)

    def _begin(self, uid: str, pod: Any) -> None:
        meta, node = pod["metadata"], pod["spec"]["nodeName"]
        folder = self._folder / node / uid[:8]
        folder.mkdir(parents=True, exist_ok=True)
        process = self._started(pod, folder)
        running = RunningPod(uid, meta["name"], meta["namespace"], node, folder, process)
        with self._lock:
            self._pods[uid] = running
        self._tell(running, pod)

    def _restart(self, running: RunningPod, pod: Any) -> None:
        if pod["spec"]["restartPolicy"] != "Always":
            code = running.process.returncode
            phase = "Succeeded" if code == 0 else "Failed"
            self._status(running, {"phase": phase})
            return
        running.process, running.ended_s = self._started(pod, running.folder), None
        running.restarts += 1

    def _started(self, pod: Any, folder: Path) -> subprocess.Popen[bytes]:
        container = pod["spec"]["containers"][0]
        paths = self._volumes(pod, container, folder)

        def real(text: str) -> str:
            for inside, outside in paths.items():
                text = text.replace(inside, outside)
            return text

        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {"PATH": path, "PYTHONPATH": str(ROOT), "HOME": "/root"}
        env |= {each["name"]: real(each.get("value", "")) for each in container.get("env", ())}
        command = [real(word) for word in (*container["command"], *container.get("args", ()))]
        command[0] = shutil.which(command[0], path=path) or command[0]
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc"]
        with (folder / "log").open("ab") as out:
            return subprocess.Popen(
                [*words, "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=env,
                cwd="/",
                start_new_session=True,
            )

    def _volumes(self, pod: Any, container: Any, folder: Path) -> dict[str, str]:
        """What each path in the container is outside."""
        sources: dict[str, Path] = {}
        for volume in pod["spec"].get("volumes", ()):
            place = sources[volume["name"]] = folder / volume["name"].removeprefix("muster-")
            if "hostPath" in volume:
                sources[volume["name"]] = Path(volume["hostPath"]["path"])
                continue
            place.mkdir(exist_ok=True)
            if "secret" in volume:
                self._write_secret(pod["metadata"]["namespace"], volume["secret"], place)
        mounts = container.get("volumeMounts", ())
        return {mount["mountPath"]: str(sources[mount["name"]]) for mount in mounts}

    def _write_secret(self, namespace: str, wanted: Any, place: Path) -> None:
        path = f"/api/v1/namespaces/{namespace}/secrets/{wanted['secretName']}"
        data = self._cluster.api.call("GET", path)["data"]
        for item in wanted["items"]:
            file = place / item["path"]
            file.write_bytes(base64.b64decode(data[item["key"]]))
            file.chmod(wanted["defaultMode"])

    def _tell(self, running: RunningPod, pod: Any) -> None:
        state = {"name": pod["spec"]["containers"][0]["name"], "ready": True, "started": True}
        state |= {"restartCount": running.restarts, "image": "", "imageID": ""}
        state["state"] = {"running": {}}
        body = {"phase": "Running", "podIP": "127.0.0.1", "containerStatuses": [state]}
        self._status(running, body)

    def _status(self, running: RunningPod, status: Any) -> None:
        if running.told != status:
            path = f"/api/v1/namespaces/{running.namespace}/pods/{running.name}/status"
            self._cluster.api.patch(path, {"status": status})
            running.told = status

    def _terminate(self, running: RunningPod | None, pod: Any) -> None:
        now_s = time.monotonic()
        if running is not None and running.process.poll() is None:
            if running.kill_s is None:
                running.kill_s = now_s + pod["metadata"].get("deletionGracePeriodSeconds", 30)
                if first := running.first:
                    send(signal.SIGTERM, first)
            elif now_s > running.kill_s:
                running.process.kill()
            return
        meta = pod["metadata"]
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        with suppress(RefusedCall):
            self._cluster.api.call("DELETE", path, options)
        with self._lock:
            self._seen.pop(meta["uid"], None)
            self._pods.pop(meta["uid"], None)

    def _end(self, running: RunningPod) -> None:
        running.process.kill()
        running.process.wait()
        with self._lock:
            self._pods.pop(running.uid, None)

    # --- breaking nodes ---------------------------------------------------------------------

    def kill_node(self, node: str) -> None:
        """As if it had lost its power."""
        with self._lock:
            self._dead.add(node)
            for running in [pod for pod in self._pods.values() if pod.node == node]:
                self._end(running)

    def start_node(self, node: str) -> None:
        with self._lock:
            self._dead.discard(node)

    def freeze(self, node: str) -> list[int]:
        """Everything there stands still, its kubelet as well; the pids, to be sent SIGCONT."""
        with self._lock:
            self._dead.add(node)
        pids = self.processes(node)
        send(signal.SIGSTOP, *pids)
        return pids

    def thaw(self, node: str, pids: Sequence[int]) -> None:
        send(signal.SIGCONT, *pids)
        self.start_node(node)

    def processes(self, node: str) -> list[int]:
        """All that runs in pods of a node, in no order."""
        with self._lock:
            first = [pod.first for pod in self._pods.values() if pod.node == node]
        spaces = {_namespace(pid) for pid in first if pid}
        pids = (int(entry) for entry in os.listdir("/proc") if entry.isdecimal())
        return [pid for pid in pids if _namespace(pid) in spaces - {""}]

    def ranks(self, node: str) -> list[int]:
        mark = f"MUSTER_RUN_DIR={self._folder}/{node}/".encode()
        return [pid for pid in self.processes(node) if mark in _environment(pid)]

    def agent(self, node: str) -> int:
        """Its pid; 0: there is no pod."""
        with self._lock:
            return next((pod.first for pod in self._pods.values() if pod.node == node), 0)

    def logs(self) -> str:
        return "\n".join(f"{path}:\n{path.read_text()}" for path in self._folder.glob("*/*/log"))


def _namespace(pid: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/{pid}/ns/pid")
    return ""


def _environment(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""
