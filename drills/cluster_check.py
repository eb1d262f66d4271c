"""Whether a Kubernetes cluster does what `muster serve --launcher kubernetes` asks of it.

    make conformance-k8s KUBECONFIG=admin.kubeconfig ARGS="--node NODE --image IMAGE"

After `kubectl apply` of namespace.yaml and rbac.yaml in deploy/kubernetes, as somebody who may do
anything in the namespace. One line a check, what to do about each that failed, and exit code 1 if
one did. It makes a service, a secret and two pods on one node, and takes them away.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

from scheduler.launch.keys import KubernetesKeys
from scheduler.launch.kubernetes import pods
from scheduler.launch.kubernetes.api import MERGE_PATCH, ApiFailed, KubernetesApi

_OF_CLUSTER = ("nodes", "resourceslices", "deviceclasses")  # in no namespace
RBAC = Path(__file__).parents[1] / "deploy" / "kubernetes" / "rbac.yaml"
OWNER = pods.PodOwner("conformance", "default", "0", 1, "member")
# What a server must not be able to do, in its namespace or to nodes.
FORBIDDEN = (("nodes", "patch"), ("nodes", "delete"), ("secrets", "list"), ("pods/exec", "create"))
_SOON_S = 1.5  # for which an agent has to stay up, and a watch has to be heard


class CheckFailed(Exception):
    """The text says what was seen."""


class Conformance:
    """The checks, in their order. `wait_s`: for which a pod may take to start, with its image,
    and to end, which is a minute at most."""

    def __init__(
        self, api: KubernetesApi, namespace: str, node: str, image: str, gpu: str, wait_s: float
    ) -> None:
        self._api, self._node, self._wait_s = api, node, wait_s
        self._space = f"/api/v1/namespaces/{namespace}"
        keys = KubernetesKeys(
            name="muster-conformance", namespace=namespace, image=image, gpu_resource=gpu or None
        ).model_copy(update={"grace_s": 0})
        # An agent goes on asking for its server.
        self._pod = pods.PodSettings(keys, {}, "127.0.0.1:1", gpus=1 if gpu else 0)
        self._name = self._pod.pod_name("a")
        self._failed = 0

    async def run(self) -> int:
        """How many checks failed."""
        look: Callable[[str], Awaitable[Any]] = self._get
        await self._check("API server answers", look("/version"), "is the kubeconfig right?")
        await self._check("namespace is there", look(self._space), "apply namespace.yaml")
        await self._check("nodes are watched", self._nodes(), "give this user rights on nodes")
        for resource, verb, names in _rights():
            what = f"server may {verb} {resource}{f' {names}' if names else ''}"
            await self._check(
                what, self._may(resource, verb, names, wanted=True), "apply rbac.yaml"
            )
        for resource, verb in FORBIDDEN:
            mend = "a binding of yours gives the service account more than rbac.yaml"
            about = self._may(resource, verb, "", wanted=False)
            await self._check(f"server may not {verb} {resource}", about, mend)
        async with self._cleared():
            mend = "which admission plug-in refuses it? The rest of a pod is kubernetes.template"
            await self._check("headless service is made", self._make_service(), mend)
            await self._check("secret of join tokens is made", self._make_secret(), mend)
            await self._check(f"pod is bound to {self._node} by name", self._make_pod(), mend)
            mend = "kubectl describe pod; is muster in the image, and the taint muster.dev/managed?"
            await self._check("agent is the first process and stays", self._starts(), mend)
            await self._check("labels of a pod change while it runs", self._relabel(), mend)
            mend = "what holds it back: a finalizer, a process that ignores SIGTERM?"
            await self._check("pod ends when it is deleted", self._delete(None), mend)
            await self._check("pod of its name is made again", self._make_pod(), mend)
            await self._check("pod goes at once without grace", self._delete(0), mend)
        return self._failed

    async def _check(self, what: str, work: Awaitable[Any], mend: str) -> None:
        try:
            await work
        except (ApiFailed, CheckFailed) as error:
            self._failed += 1
            print(f"FAILED  {what}: {error}\n        {mend}")
        else:
            print(f"ok      {what}")

    async def _get(self, path: str) -> Any:
        return await self._api.call("GET", path)

    async def _nodes(self) -> None:
        answer = await self._get("/api/v1/nodes")
        if self._node not in {node["metadata"]["name"] for node in answer["items"]}:
            raise CheckFailed(f"there is no node {self._node}")
        await self._watched("/api/v1/nodes", answer["metadata"]["resourceVersion"])

    async def _watched(self, path: str, version: str) -> None:
        """A watch that is refused ends at once."""
        async with aclosing(self._api.watch(path, {}, version)) as events:
            with suppress(TimeoutError):
                await asyncio.wait_for(anext(events, None), _SOON_S)

    async def _may(self, resource: str, verb: str, name: str, *, wanted: bool) -> None:
        whole, _, sub = resource.partition("/")
        kind, _, group = whole.partition(".")
        about = {"resource": kind, "subresource": sub, "verb": verb, "name": name, "group": group}
        if kind not in _OF_CLUSTER:
            about["namespace"] = self._pod.keys.namespace
        account = f"system:serviceaccount:{self._pod.keys.namespace}:muster"
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{self._pod.keys.namespace}"]
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account, "groups": groups, "resourceAttributes": about},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._api.call("POST", path, body)
        if bool(answer["status"].get("allowed")) != wanted:
            raise CheckFailed(f"{account} {'may not' if wanted else 'may'}")

    async def _make_service(self) -> None:
        await self._api.call("POST", f"{self._space}/services", pods.headless_service(self._pod))

    async def _make_secret(self) -> None:
        for body in pods.secrets(self._pod, "conformance", [self._node]):
            await self._api.call("POST", f"{self._space}/secrets", body)

    async def _make_pod(self) -> None:
        body = pods.pod_manifest(self._pod, self._node, 0, OWNER)
        body["metadata"]["name"] = self._name
        await self._api.call("POST", f"{self._space}/pods", body)

    async def _starts(self) -> None:
        seen = "it has no status"
        until_s = time.monotonic() + self._wait_s
        while time.monotonic() < until_s:
            pod = pods.view_of(await self._get(f"{self._space}/pods/{self._name}"))
            if pod.phase == "Running":
                await asyncio.sleep(2 * _SOON_S)
                again = await self._get(f"{self._space}/pods/{self._name}")
                (status,) = again["status"].get("containerStatuses") or [{}]
                if status.get("restartCount") or "running" not in status.get("state", {}):
                    raise CheckFailed("the agent has ended: kubectl logs")
                return
            seen = pod.trouble or pod.phase
            await asyncio.sleep(0.5)
        raise CheckFailed(f"after {self._wait_s:g} s: {seen}")

    async def _relabel(self) -> None:
        path = f"{self._space}/pods/{self._name}"
        await self._api.call("PATCH", path, pods.owner_patch(None), kind=MERGE_PATCH)
        left = (await self._get(path))["metadata"]["labels"]
        if pods.JOB in left:
            raise CheckFailed(f"it keeps the label {pods.JOB}")

    async def _delete(self, grace_s: int | None) -> None:
        path = f"{self._space}/pods/{self._name}"
        options = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        await self._api.call("DELETE", path, options)
        until_s = time.monotonic() + (min(60.0, self._wait_s) if grace_s is None else 5.0)
        while time.monotonic() < until_s:
            try:
                await self._get(path)
            except ApiFailed as error:
                if error.is_absence:
                    return
                raise
            await asyncio.sleep(0.2)
        raise CheckFailed("it is still there")

    @asynccontextmanager
    async def _cleared(self) -> AsyncIterator[None]:
        """Without what is made here, before and after."""
        made = (
            f"pods/{self._name}",
            f"services/{self._pod.service}",
            f"secrets/{self._pod.secret_name(0)}",
        )

        async def clear() -> None:
            for what in made:
                try:
                    path = f"{self._space}/{what}"
                    await self._api.call("DELETE", path, {"gracePeriodSeconds": 0})
                except ApiFailed as error:
                    if not error.is_absence:
                        await self._check(f"{what} is taken away", _raised(error), "do it by hand")

        await clear()
        try:
            yield
        finally:
            await clear()


async def _raised(error: ApiFailed) -> None:
    raise error


def _rights() -> list[tuple[str, str, str]]:
    """(resource and its API group, verb, name or "") of all that deploy/kubernetes/rbac.yaml
    gives."""
    return [
        (f"{resource}.{rule['apiGroups'][0]}".rstrip("."), verb, name)
        for item in yaml.safe_load_all(RBAC.read_text(encoding="utf-8"))
        for rule in item.get("rules", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])[:1]
    ]


async def checked(options: argparse.Namespace) -> int:
    """How many checks failed."""
    api = KubernetesApi(
        KubernetesKeys(kubeconfig=options.kubeconfig or None, context=options.context or None)
    )
    try:
        return await Conformance(
            api,
            options.namespace,
            options.node,
            options.image,
            options.gpu_resource,
            options.wait_s,
        ).run()
    finally:
        await api.close()


def main(words: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="make conformance-k8s",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kubeconfig", default="", help="a file; kubectl's own where left out")
    parser.add_argument("--context", default="", help="a context of it")
    parser.add_argument("--namespace", default="muster", help="where agents will be")
    parser.add_argument("--node", required=True, help="a node for two pods, one after the other")
    parser.add_argument("--image", required=True, help="with muster in it")
    parser.add_argument("--gpu-resource", default="", help="ask for one, such as nvidia.com/gpu")
    parser.add_argument("--wait-s", type=float, default=300.0, help="for a pod to start")
    failed = asyncio.run(checked(parser.parse_args(words)))
    print(f"{failed} checks failed" if failed else "the cluster does what muster needs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
