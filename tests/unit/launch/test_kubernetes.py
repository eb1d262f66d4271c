"""Pods of agents on a Kubernetes that is two tables: what is asked for, and when; and which labels
of hosts it comes to what other pods demand of nodes."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from aiohttp import web

from scheduler.core.model.lifecycle import HostState
from scheduler.core.model.state import Host
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.files.health.found import NodeState
from scheduler.launch.gangs.reports import AGENT_LOST
from scheduler.launch.keys import HoldingScope, KubernetesKeys
from scheduler.launch.kubernetes.agents import KubernetesAgents, NodeView
from scheduler.launch.kubernetes.api import ApiFailed, KubernetesApi, configuration
from scheduler.launch.kubernetes.demands import labels_for, node_marks, pod_demands
from scheduler.launch.kubernetes.flapping import FALL_S, STEADY_S, FlappingNodes
from scheduler.launch.kubernetes.pods import (
    PodOwner,
    PodSettings,
    container_refusal,
    host_label,
    label_value,
    load_template,
    owner_patch,
    pod_manifest,
    secrets,
    view_of,
)
from scheduler.observe.supervision import Heartbeats
from tests.refusals import file_refusal, refusal

KEYS = KubernetesKeys(namespace="ns", image="train:1")
POD = PodSettings(KEYS, {}, "m:7444", gpus=8)
OWNER = PodOwner("a", "default", "u-1", 3, "member")
HOSTS = ("n1", "n2", "n3", "n4")


def test_a_pod_is_bound_to_its_host_and_its_first_process_is_the_agent() -> None:
    pod = pod_manifest(POD, "n1", 0, OWNER)
    spec, (agent,) = pod["spec"], pod["spec"]["containers"]
    assert (spec["nodeName"], spec["hostname"], spec["subdomain"]) == ("n1", "n1", "muster-agents")
    assert agent["command"][:4] == ["muster", "agent", "--server", "m:7444"]
    assert agent["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert {"key": "muster.dev/managed", "operator": "Exists"} in spec["tolerations"]
    labels = pod["metadata"]["labels"]
    assert labels["muster.dev/job-uid"] == "u-1"
    assert (labels["muster.dev/attempt"], labels["muster.dev/host"]) == ("3", "n1")
    (volume,) = (each for each in spec["volumes"] if "secret" in each)
    assert volume["secret"]["items"] == [{"key": "n1", "path": "token"}]
    assert not spec["automountServiceAccountToken"]


TEMPLATE = """
metadata: {labels: {team: x}, annotations: {k: v}}
spec:
  hostNetwork: true
  securityContext: {runAsUser: 1000}
  containers:
  - {name: log, image: l}
  - name: agent
    image: mine
    command: [sh]
    args: [x]
    env: [{name: A, value: b}]
    resources: {limits: {nvidia.com/gpu: "4"}}
  volumes: [{name: scratch, hostPath: {path: /scratch}}]
  tolerations: [{key: gpu, operator: Exists}]
"""


def test_a_template_is_kept_where_muster_has_nothing_to_say() -> None:
    template = yaml.safe_load(TEMPLATE)
    settings = replace(POD, keys=KubernetesKeys(namespace="ns"), template=template, ca="PEM")
    pod = pod_manifest(settings, "n1", 2_000, None)
    spec = pod["spec"]
    assert spec["hostNetwork"]
    assert spec["securityContext"] == {"runAsUser": 1000, "fsGroup": 1000}
    log, agent = spec["containers"]
    assert (log["name"], agent["image"], agent["args"]) == ("log", "mine", [])
    assert agent["command"][0] == "muster"
    names = {each["name"] for each in agent["env"]}
    assert names == {"A", "MUSTER_AGENT_NAME", "MUSTER_CA", "MUSTER_CONTAINER"}
    assert agent["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert [each["name"] for each in spec["volumes"]] == ["scratch", "muster-state", "muster-join"]
    assert spec["volumes"][2]["secret"]["secretName"] == "muster-agents-1"
    assert spec["tolerations"][0]["key"] == "gpu"
    assert pod["metadata"]["labels"]["team"] == "x"
    assert "muster.dev/job-uid" not in pod["metadata"]["labels"]
    assert pod_manifest(settings, "n2", 0, None)["spec"]["volumes"] is not spec["volumes"]
    assert template == yaml.safe_load(TEMPLATE)


def test_tokens_are_one_key_a_host_in_secrets_that_fit() -> None:
    hosts = [f"n{number}" for number in range(4_001)]
    made = list(secrets(replace(POD, ca="PEM"), "s" * 40, hosts))
    assert [each["metadata"]["name"] for each in made] == [f"muster-agents-{n}" for n in range(3)]
    assert sum(len(each["data"]) - 1 for each in made) == 4_001
    assert all("ca.crt" in each["data"] for each in made)
    assert len(str(made[0])) < 1 << 20


def test_names_become_labels_that_kubernetes_takes() -> None:
    assert label_value("llama-3.1_405b") == "llama-3.1_405b"
    long = label_value("tenant/" + "x" * 80)
    assert len(long) <= 63
    assert long != label_value("tenant/" + "x" * 81)
    assert host_label("gpu-1.example.org") == "gpu-1-example-org"
    assert len(host_label("n" * 200)) <= 63
    assert owner_patch(None)["metadata"]["labels"]["muster.dev/job"] is None


def test_what_is_wrong_with_a_template_is_said(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    for text, message in [
        ("spec: []", "spec: must be a mapping"),
        ("kind: Pod\nstatus: {}", "status: is not part of a pod's template"),
        ("spec:\n  nodeName: n1", "nodeName: is for muster to set"),
        ("spec: {containers: [7]}", "must be a list of containers"),
    ]:
        assert message in file_refusal(load_template, path, text)
    path.write_text("apiVersion: v1\nkind: PodTemplate\ntemplate: {spec: {hostNetwork: true}}\n")
    assert load_template(str(path)) == {"spec": {"hostNetwork": True}}


# --- which pods there should be ---------------------------------------------------------------


class FakeApi:
    """Remembers what it is told; refuses what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.refusal: ApiFailed | None = None

    async def call(self, method: str, path: str, body: Any = None, *, kind: str = "") -> Any:
        self.calls.append((method, path.rpartition("/pods")[2].lstrip("/")))
        self.bodies.append(body)
        if self.refusal is not None:
            raise self.refusal
        if method == "POST":
            return made_of(body)
        return made_of(pod_manifest(POD, path.rpartition("-")[2], 0, OWNER))


def made_of(body: Any, **status: Any) -> Any:
    meta = body["metadata"] | {"uid": "p-" + body["metadata"]["name"]}
    return {**body, "metadata": meta, "status": status}


def job(
    uid: str,
    hosts: tuple[int, ...],
    spares: tuple[int, ...] = (),
    container: ContainerSpec | None = None,
) -> Any:
    spec = SimpleNamespace(run=SimpleNamespace(container=container))
    return SimpleNamespace(
        spec=spec, name=uid, tenant="t", uid=uid, attempt=1, hosts=hosts, spares=spares
    )


class Kept(KubernetesAgents):
    """On a state that is as much of one as is read."""

    def __init__(self, folder: Path, scope: HoldingScope = HoldingScope.GANG) -> None:
        self.now_s = 0.0
        self.fake = FakeApi()
        pod = replace(POD, keys=KEYS.model_copy(update={"holding": scope}))
        super().__init__(pod, folder, "", self.fake, lambda: self.now_s)  # type: ignore[arg-type]
        self._sessions: Any = SimpleNamespace(connected=set())
        fabric = SimpleNamespace(
            hosts=HOSTS,
            names=lambda hosts: tuple(HOSTS[index] for index in hosts),
            index_by_name={name: index for index, name in enumerate(HOSTS)},
        )
        self.state = SimpleNamespace(loaded_fabric=fabric, holding=[], hosts={}, version=1)
        self._writer: Any = SimpleNamespace(state=self.state, term=1)
        self.nodes.by_name = {host: NodeView(NodeState.UP, "", True) for host in HOSTS}
        self.nodes.is_current = self.pods.is_current = True

    async def settle(self) -> list[tuple[str, str]]:
        """What is asked of the API server now."""
        self.fake.calls.clear()
        self.fake.bodies.clear()
        self._follow_clocks()
        self._reconcile()
        while self._acting:
            await asyncio.sleep(0)
        return sorted(self.fake.calls)

    def have(self, host: str, owner: PodOwner | None = None, **status: Any) -> None:
        pod = made_of(pod_manifest(POD, host, 0, owner), **({"phase": "Running"} | status))
        self.pods.by_name[f"muster-{host}"] = view_of(pod)


@pytest.fixture
def agents(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "a")


@pytest.fixture
def whole(tmp_path: Path) -> Kept:
    """Agents on all hosts, whether they have a gang or not."""
    return Kept(tmp_path / "a", HoldingScope.WHOLE)


async def test_a_gang_has_pods_on_its_hosts_and_spares_and_keeps_them(agents: Kept) -> None:
    assert await agents.settle() == []
    agents.state.holding = [job("u-1", (0, 1), (2,))]
    assert await agents.settle() == [("POST", "")] * 3
    roles = [body["metadata"]["labels"]["muster.dev/role"] for body in agents.fake.bodies]
    assert roles == ["member", "member", "spare"]
    assert agents.starting() == {"n1", "n2", "n3"}
    assert await agents.settle() == []


async def test_a_swap_touches_the_pod_of_the_spare_alone(agents: Kept) -> None:
    agents.state.holding = [job("u-1", (0, 1), (2,))]
    await agents.settle()
    agents._sessions.connected = {"n1", "n3"}
    agents.state.hosts = {1: Host(HostState.FAILED, 0, signal=AGENT_LOST)}
    agents.state.holding = [job("u-1", (0, 2))]
    assert await agents.settle() == [("PATCH", "muster-n3")]
    assert await agents.settle() == []
    assert not agents.is_dismissed("n3")
    agents._sessions.connected = {"n1", "n2", "n3"}  # it comes back, and is not needed
    agents.state.hosts = {}
    assert agents.is_dismissed("n4")
    assert await agents.settle() == [("DELETE", "muster-n2")]
    assert agents.fake.bodies[-1]["preconditions"] == {"uid": "p-muster-n2"}


async def test_a_pod_makes_way_for_one_of_the_container_that_a_gang_wants(whole: Kept) -> None:
    for host in HOSTS:
        whole.have(host)
    whole._sessions.connected = set(HOSTS)
    assert await whole.settle() == []
    container = ContainerSpec("docker://example.org/train:2")
    whole.state.holding = [job("u-1", (0,), container=container)]
    assert await whole.settle() == [("DELETE", "muster-n1")]
    # What still runs there has the grace of the pod.
    assert whole.fake.bodies == [{"preconditions": {"uid": "p-muster-n1"}}]
    whole._sessions.connected.discard("n1")
    assert whole.is_dismissed("n1"), "its agent is no loss of the host"
    assert whole.starting() == {"n1"}
    del whole.pods.by_name["muster-n1"]
    assert await whole.settle() == [("POST", "")]
    (made,) = whole.fake.bodies
    (agent,) = made["spec"]["containers"]
    assert agent["image"] == "example.org/train:2"
    assert {"name": "MUSTER_CONTAINER", "value": container.image} in agent["env"]
    assert await whole.settle() == []
    whole.have("n1", whole._hosts_needing_pods(whole.state)["n1"])  # type: ignore[arg-type]
    whole._deleted.clear()
    whole._sessions.connected.add("n1")
    assert await whole.settle() == []
    assert not whole.is_dismissed("n1")
    whole.state.holding = []
    assert await whole.settle() == [("PATCH", "muster-n1")], "the next gang may want the same"


@pytest.mark.parametrize(
    ("image", "mount", "answer"),
    [
        ("example.org/train:2", "/data/a:/in:ro", ""),
        ("example.org/train", "/data:/in", ""),
        ("example.org/trainer:2", "/data:/in", "is not an image that jobs may have"),
        ("/images/a.sif", "/data:/in", "is not an image that jobs may have"),
        ("example.org/train:2", "/database:/in", "nothing that has /database"),
    ],
)
def test_a_container_of_pods_is_of_the_images_and_mounts_of_the_site(
    image: str, mount: str, answer: str
) -> None:
    mounted = {"name": "v", "mountPath": "/data", "subPath": "s"}
    template = {"spec": {"containers": [{"name": "agent", "volumeMounts": [mounted]}]}}
    keys = KEYS.model_copy(update={"images": ("example.org/train",)})
    settings = replace(POD, keys=keys, template=template)
    container = ContainerSpec(image, (mount,))
    told = container_refusal(settings, container)
    assert (answer in told) if answer else not told
    if answer:
        return
    owner = replace(OWNER, container=container)
    agent = pod_manifest(settings, "n1", 0, owner)["spec"]["containers"][0]
    sub_path = "s/a" if mount.startswith("/data/a") else "s"
    flags = {"readOnly": True} if mount.endswith(":ro") else {}
    added = {"name": "v", "mountPath": "/in", "subPath": sub_path} | flags
    assert agent["volumeMounts"][-1] == added
    assert mounted in agent["volumeMounts"]


async def test_ranks_that_still_save_keep_their_pod(agents: Kept) -> None:
    agents.have("n1", OWNER)
    agents._busy = lambda: {"n1"}
    assert await agents.settle() == []
    agents._busy = frozenset
    assert await agents.settle() == [("DELETE", "muster-n1")]
    assert await agents.settle() == []  # it is ending


async def test_pods_are_not_made_where_the_node_takes_none(whole: Kept) -> None:
    standings = (NodeState.UP, NodeState.CORDON, NodeState.SILENT, NodeState.DOWN)
    for host, standing in zip(HOSTS, standings, strict=True):
        whole.nodes.by_name[host] = NodeView(standing, "", True)
    await whole.settle()
    assert [body["spec"]["nodeName"] for body in whole.fake.bodies] == ["n1"]
    assert whole.starting() == {"n1"}
    whole.have("n4")
    del whole.nodes.by_name["n4"]
    assert await whole.settle() == [("DELETE", "muster-n4")]
    assert whole.fake.bodies[-1]["gracePeriodSeconds"] == 0  # no kubelet would end it


async def test_a_pod_that_ended_is_made_again_after_longer_and_longer(agents: Kept) -> None:
    agents.state.holding = [job("u-1", (0,))]
    await agents.settle()
    agents.have("n1", replace(OWNER, uid="u-1"), phase="Failed", reason="OutOfnvidia.com/gpu")
    assert await agents.settle() == [("DELETE", "muster-n1")]
    assert await agents.settle() == []
    agents.now_s = 3.0
    assert await agents.settle() == [("POST", "")]
    agents.have("n1", replace(OWNER, uid="u-1"), phase="Failed")
    await agents.settle()
    agents.now_s = 6.0
    assert await agents.settle() == []
    agents.now_s = 8.0
    assert await agents.settle() == [("POST", "")]


@pytest.mark.parametrize(
    ("phase", "start_s", "delete_s"), [("Pending", 600, 600), ("Running", 30, 120)]
)
async def test_a_pod_without_an_agent_is_waited_for_and_then_deleted(
    agents: Kept, phase: str, start_s: int, delete_s: int
) -> None:
    agents.state.holding = [job("u-1", (0,))]
    agents.have("n1", replace(OWNER, uid="u-1"), phase=phase)
    assert await agents.settle() == []
    agents.now_s = start_s - 1
    assert agents.starting() == {"n1"}
    agents.now_s = start_s + 1
    assert agents.starting() == set()  # so its host is lost
    agents.now_s = delete_s + 1
    assert await agents.settle() == [("DELETE", "muster-n1")]


async def test_pods_whose_agents_do_not_come_in_are_named_once(
    agents: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    agents.state.holding = [job("u-1", (0, 1, 2))]
    for host in HOSTS[:3]:
        agents.have(host, replace(OWNER, uid="u-1"))
    agents._sessions.connected = {HOSTS[2]}
    await agents.settle()
    for agents.now_s in (29.0, 31.0, 60.0):
        agents._look_for_late_agents(agents.now_s)
    (text,) = (record.getMessage() for record in caplog.records)
    assert "pods run on n[1-2], but their agents have not come in" in text
    assert f"`kubectl -n {KEYS.namespace} logs muster-n1 -c agent` says why" in text


async def test_a_kubeconfig_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    with pytest.raises(ApiFailed, match=f"there is no kubeconfig {tmp_path}/a:{tmp_path}/b: name"):
        await configuration(KEYS)


async def test_what_the_api_server_refuses_is_asked_for_again_later(agents: Kept) -> None:
    agents.state.holding = [job("u-1", (0,))]
    agents.fake.refusal = ApiFailed("exceeded quota", 403)
    assert await agents.settle() == [("POST", "")]
    assert await agents.settle() == []
    agents.fake.refusal, agents.now_s = None, 5.0
    assert await agents.settle() == [("POST", "")]


async def test_nothing_is_decided_on_what_is_old(agents: Kept) -> None:
    agents._prepared_for = 1
    agents.state.holding = [job("u-1", (0,))]
    agents.pods.is_current = False
    await agents._look()
    assert agents.fake.calls == []
    assert agents.starting() == {"n1"}  # nobody can say yet


# --- nodes ------------------------------------------------------------------------------------


def standings_of(agents: Kept, evicted: frozenset[str] = frozenset()) -> dict[str, Any]:
    state: Any = agents.state
    return {host: found for host, found, _ in agents._standings(state, evicted)}


async def test_of_a_host_that_is_heard_of_its_node_does_not_say_that_it_is_down(
    agents: Kept,
) -> None:
    agents.nodes.by_name["n1"] = NodeView(NodeState.DOWN, "x", True)
    agents.nodes.by_name["n2"] = NodeView(NodeState.SILENT, "x", True)
    del agents.nodes.by_name["n3"]
    assert standings_of(agents) | {"n1": None, "n3": None} == standings_of(agents)
    agents.now_s = FALL_S
    down, cordon = NodeState.DOWN, NodeState.CORDON
    assert list(standings_of(agents).values()) == [down, NodeState.SILENT, down, NodeState.UP]
    agents._sessions.connected = {"n1", "n2", "n3"}
    evicted = standings_of(agents, frozenset({"n4"}))
    assert list(evicted.values()) == [cordon, None, cordon, NodeState.DRAIN]


def test_a_node_that_flaps_is_out_for_longer_each_time() -> None:
    now_s = [0.0]
    nodes = FlappingNodes(lambda: now_s[0])

    def out_s(standing: NodeState) -> float:
        """Return after how long it is taken to stand so."""
        from_s = now_s[0]
        while nodes.standing("n", standing) is not standing:
            assert nodes.is_waiting
            now_s[0] += 1
        return now_s[0] - from_s

    up, down = NodeState.UP, NodeState.DOWN
    assert out_s(up) == 0
    assert nodes.standing("n", down) is None
    assert (out_s(up), nodes.is_waiting) == (0, False)  # a blink
    took_s = [(out_s(down), out_s(up)) for _ in range(6)]
    assert took_s == [(FALL_S, at) for at in (0, STEADY_S, 120, 240, 480, 600)]
    assert nodes.standing("other", NodeState.CORDON) is NodeState.CORDON
    now_s[0] += 3600
    assert (out_s(down), out_s(up)) == (FALL_S, 0)  # that was long ago


async def test_calls_and_watches_that_the_api_server_forbids_are_counted(tmp_path: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        status = 404 if request.path.endswith("gone") else 403
        return web.json_response({"kind": "Status", "message": "no right"}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    config = {"clusters": [{"name": "c", "cluster": {"server": site.name}}], "current-context": "x"}
    config |= {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]}
    config |= {"users": [{"name": "u", "user": {"token": "t"}}]}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    beats = Heartbeats()
    keys = KubernetesKeys(kubeconfig=str(tmp_path / "kubeconfig"), image="train:1")
    api = KubernetesApi(keys, beats)
    try:
        for path in ("/api/v1/pods", "/api/v1/gone"):
            with pytest.raises(ApiFailed, match="no right"):
                await api.call("GET", path)
        assert beats.refused["kubernetes",] == 1
        with pytest.raises(ApiFailed, match="no right"):
            async for _ in api.watch("/api/v1/pods", {}, "1"):
                pass
        assert beats.refused["kubernetes",] == 2
    finally:
        await api.close()
        await runner.cleanup()


# --- what pods demand of nodes ---------------------------------------------------------------

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LABELLED = {"pool": {"a": 1, "b": 2}}


def node(pool: str, *taints: str) -> Any:
    marks = [{"key": taint, "effect": "NoSchedule"} for taint in taints]
    labels = {"pool": pool, "os": "linux"}
    return node_marks({"metadata": {"labels": labels}, "spec": {"taints": marks}})


TAINTED = {"n1": node("a", "muster.dev/managed"), "n2": node("b", "dedicated")}


def labels_of(spec: dict[str, Any]) -> dict[str, str]:
    return labels_for(pod_demands(spec), TAINTED, LABELLED, 8, "pod x/p")


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
