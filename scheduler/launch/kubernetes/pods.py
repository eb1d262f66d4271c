"""What the pods of agents are: one a host, with the agent as its first process.

A pod is bound by `spec.nodeName`, so no scheduler is asked. What a site needs beside the agent
(volumes, devices of the network, limits, a security context) comes from its template; muster sets
the node, names, labels, the agent's command and its join token.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from muster.structs import struct
from scheduler.access.tokens import join_token
from scheduler.agent.ranks.containers import OWN_CONTAINER, container_key
from scheduler.core.policies.job_terms import ContainerSpec
from scheduler.files.errors import short
from scheduler.files.health.kubernetesnodes import MANAGED
from scheduler.files.yaml12 import load
from scheduler.launch.keys import KubernetesKeys
from scheduler.launch.kubernetes.api import Json

SERVER, HOST, JOB, TENANT = (f"muster.dev/{word}" for word in ("server", "host", "job", "tenant"))
UID, ATTEMPT, ROLE = (f"muster.dev/{word}" for word in ("job-uid", "attempt", "role"))
MEMBER, SPARE = "member", "spare"
CONTAINER = "agent"
IN_CONTAINER = "muster.dev/container"
HOSTS_A_SECRET = 2_000  # some 150 bytes each; a secret holds 1 MiB
STATE, JOIN = "/var/lib/muster-agent", "/run/muster-join"
_TOLERATED: Final = (
    MANAGED,
    # Whether a host is lost is for muster to say, which hears of its agent every few seconds.
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
_OWN: Final = ("nodeName", "hostname", "subdomain", "restartPolicy", "schedulerName")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@struct(frozen=True, slots=True)
class PodOwner:
    """Owner of a pod: the gang that holds its host. `attempt`: in which the host came to it.
    `container`: in which its ranks run, None: in the one of the site."""

    job: str
    tenant: str
    uid: str
    attempt: int
    role: str
    container: ContainerSpec | None = None

    @property
    def container_key(self) -> str:
        """Text that identifies the container; "" for that of the site."""
        own = self.container
        return container_key(own.image, own.mounts) if own else ""

    def labels(self) -> dict[str, str]:
        return {
            JOB: label_value(self.job),
            TENANT: label_value(self.tenant),
            UID: label_value(self.uid),
            ATTEMPT: str(self.attempt),
            ROLE: self.role,
        }


@struct(frozen=True, slots=True)
class PodView:
    """Facts about a pod. `uid`, `role`: of its owner, "" of none.
    `is_leaving`: somebody deletes it. `trouble`: why its container does not start. `container`: the
    key of the job's."""

    name: str
    pod_uid: str
    node: str
    phase: str
    is_leaving: bool
    uid: str
    role: str
    trouble: str = ""
    container: str = ""

    @property
    def has_ended(self) -> bool:
        return self.phase in ("Failed", "Succeeded")


def view_of(pod: Json) -> PodView:
    meta, status = pod["metadata"], pod.get("status") or {}
    labels = meta.get("labels") or {}
    waiting = [
        (entry.get("state") or {}).get("waiting") or {}
        for entry in status.get("containerStatuses") or ()
    ]
    reasons = [f"{each.get('reason')}: {each.get('message', '')}".rstrip(": ") for each in waiting]
    ended = f"{status.get('reason', '')}: {status.get('message', '')}".strip(": ")
    return PodView(
        meta["name"],
        meta["uid"],
        pod["spec"].get("nodeName", ""),
        status.get("phase", "Pending"),
        "deletionTimestamp" in meta,
        labels.get(UID, ""),
        labels.get(ROLE, ""),
        next((text for text in reasons if not text.startswith("None")), ended)[:300],
        (meta.get("annotations") or {}).get(IN_CONTAINER, ""),
    )


@struct(frozen=True, slots=True)
class PodSettings:
    """Settings that all pods of agents share. `template`: of a pod, as in the file of the site.
    `server`: where pods reach it. `gpus`: of a host, asked for as `gpu_resource` of the keys,
    unless that is None. `ca`: PEM text of who signed the server's certificate."""

    keys: KubernetesKeys
    template: Mapping[str, Any]
    server: str
    ca: str = ""
    gpus: int = 0

    @property
    def service(self) -> str:
        return f"{self.keys.name}-agents"

    def pod_name(self, host: str) -> str:
        return f"{self.keys.name}-{host}"

    def secret_name(self, number: int) -> str:
        return f"{self.keys.name}-agents-{number}"

    def selector(self) -> str:
        return f"{SERVER}={self.keys.name}"

    def command(self) -> list[str]:
        words = ["muster", "agent", "--server", self.server, "--state", STATE]
        words += ["--join-token-file", f"{JOIN}/token", "--linger-s", str(self.keys.grace_s)]
        return words + (["--allow", self.keys.allow] if self.keys.allow else [])


def load_template(path: str) -> Mapping[str, Any]:
    """Read the template of a pod: its metadata and spec, or a PodTemplate that has them. Raises:
    InputError."""
    document = load(path)
    keys = document.mapping()
    if isinstance(keys.get("template"), dict):
        keys = keys["template"]
    body = {key: value for key, value in keys.items() if key not in ("apiVersion", "kind")}
    faults = [
        (key, "is not part of a pod's template; metadata and spec are")
        for key in body
        if key not in ("metadata", "spec")
    ]
    faults += [
        (key, f"must be a mapping, not {short(value)}")
        for key, value in body.items()
        if key in ("metadata", "spec") and not isinstance(value, dict)
    ]
    if not faults:
        spec = body.get("spec", {})
        faults += [(f"spec.{key}", "is for muster to set") for key in _OWN if key in spec]
        containers = spec.get("containers", [])
        if not isinstance(containers, list) or not all(isinstance(c, dict) for c in containers):
            faults.append(("spec.containers", "must be a list of containers"))
    if faults:
        raise document.error(*faults)
    return body


def pod_manifest(settings: PodSettings, host: str, number: int, owner: PodOwner | None) -> Json:
    """Return the manifest of the pod of one host, the `number`th of the fabric."""
    pod: Json = copy.deepcopy(dict(settings.template))
    meta, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    labels = {
        "app.kubernetes.io/name": "muster-agent",
        "app.kubernetes.io/managed-by": "muster",
        SERVER: settings.keys.name,
        HOST: label_value(host),
        **(owner.labels() if owner else {}),
    }
    meta |= {
        "name": settings.pod_name(host),
        "namespace": settings.keys.namespace,
        "labels": meta.get("labels", {}) | labels,
    }
    own = owner.container_key if owner else ""
    if own:
        meta["annotations"] = meta.get("annotations", {}) | {IN_CONTAINER: own}
    spec |= {
        "nodeName": host,
        "hostname": host_label(host),
        "subdomain": settings.service,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": settings.keys.grace_s + 30,
    }
    spec.setdefault("automountServiceAccountToken", False)
    spec.setdefault("enableServiceLinks", False)
    for key, value in (
        ("serviceAccountName", settings.keys.service_account),
        ("priorityClassName", settings.keys.priority_class),
        ("runtimeClassName", settings.keys.runtime_class),
    ):
        if value:
            spec[key] = value
    user = spec.get("securityContext", {}).get("runAsUser")
    if user:  # else it could not read its token
        spec["securityContext"].setdefault("fsGroup", user)
    spec["tolerations"] = [
        *spec.get("tolerations", ()),
        *({"key": key, "operator": "Exists"} for key in _TOLERATED),
    ]
    spec["volumes"] = [*spec.get("volumes", ()), *_volumes(settings, host, number)]
    container = _agent_container(spec)
    _fill(settings, host, container)
    container["env"].append({"name": OWN_CONTAINER, "value": own})
    if owner and owner.container:
        container["image"] = owner.container.image.removeprefix("docker://")
        mounts = [job_mount(settings.template, mount) for mount in owner.container.mounts]
        container["volumeMounts"] += [mount for mount in mounts if mount]
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def _agent_container(spec: Json) -> Json:
    """The container of the template that is called `agent`, or a new one before the others."""
    containers = spec.setdefault("containers", [])
    for container in containers:
        if container.get("name") == CONTAINER:
            return container  # type: ignore[no-any-return]
    containers.insert(0, {"name": CONTAINER})
    return containers[0]  # type: ignore[no-any-return]


def _fill(settings: PodSettings, host: str, container: Json) -> None:
    container |= {"command": settings.command(), "args": []}
    if settings.keys.image:
        container["image"] = settings.keys.image
    env = [{"name": "MUSTER_AGENT_NAME", "value": host}]
    if settings.ca:
        env.append({"name": "MUSTER_CA", "value": f"{JOIN}/ca.crt"})
    container["env"] = [*container.get("env", ()), *env]
    container["volumeMounts"] = [
        *container.get("volumeMounts", ()),
        {"name": "muster-state", "mountPath": STATE},
        {"name": "muster-join", "mountPath": JOIN, "readOnly": True},
    ]
    if settings.keys.gpu_resource and settings.gpus:
        resources = container.setdefault("resources", {})
        limits = resources.setdefault("limits", {})
        limits.setdefault(settings.keys.gpu_resource, str(settings.gpus))


def job_mount(template: Mapping[str, Any], mount: str) -> Json | None:
    """Return how a pod mounts SOURCE:TARGET of a job, whose source is a path as the container of
    the agent sees it in the template; None: nothing is mounted there."""
    source, target, *flags = mount.split(":")
    containers = template.get("spec", {}).get("containers", ())
    own: Json = next((each for each in containers if each.get("name") == CONTAINER), {})
    above = [
        each
        for each in own.get("volumeMounts", ())
        if PurePosixPath(source).is_relative_to(each["mountPath"])
    ]
    if not above:
        return None
    nearest = max(above, key=lambda each: len(each["mountPath"]))
    rest = PurePosixPath(source).relative_to(nearest["mountPath"])
    made = {**nearest, "mountPath": target}
    if str(path := PurePosixPath(nearest.get("subPath", "")) / rest) != ".":
        made["subPath"] = str(path)
    return made | ({"readOnly": True} if flags else {})


def container_refusal(settings: PodSettings, container: ContainerSpec) -> str:
    """Return why no pod may run this container, "" where pods may."""
    image, known = container.image.removeprefix("docker://"), settings.keys.images
    if not any(image == each or image.startswith(_prefixes(each)) for each in known):
        shown = f"which are those of {', '.join(known)}" if known else "of which there are none"
        return f"{image} is not an image that jobs may have (kubernetes.images), {shown}"
    for mount in container.mounts:
        if job_mount(settings.template, mount) is None:
            source = mount.partition(":")[0]
            return (
                f"pods mount nothing that has {source}: it is for kubernetes.template to mount it"
            )
    return ""


def _prefixes(image: str) -> tuple[str, ...]:
    return (image,) if image.endswith("/") else (f"{image}/", f"{image}:", f"{image}@")


def _volumes(settings: PodSettings, host: str, number: int) -> list[Json]:
    items = [{"key": host, "path": "token"}]
    if settings.ca:
        items.append({"key": "ca.crt", "path": "ca.crt"})
    secret = {
        "secretName": settings.secret_name(number // HOSTS_A_SECRET),
        "items": items,
        "defaultMode": 0o440,
    }
    return [
        {"name": "muster-state", "emptyDir": {}},
        {"name": "muster-join", "secret": secret},
    ]


def secrets(settings: PodSettings, secret: str, hosts: Sequence[str]) -> Iterator[Json]:
    """Yield secrets with the join tokens of all hosts, of which each pod sees only its own."""
    for first in range(0, len(hosts), HOSTS_A_SECRET):
        data = {host: _base64(join_token(secret, host)) for host in hosts[first:][:HOSTS_A_SECRET]}
        if settings.ca:
            data["ca.crt"] = _base64(settings.ca)
        name = settings.secret_name(first // HOSTS_A_SECRET)
        yield {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": _meta(settings, name),
            "type": "Opaque",
            "data": data,
        }


def headless_service(settings: PodSettings) -> Json:
    """Return the service that names the pods: HOST.NAME-agents."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _meta(settings, settings.service),
        "spec": {
            "clusterIP": "None",
            "selector": {SERVER: settings.keys.name},
            "publishNotReadyAddresses": True,
        },
    }


def _meta(settings: PodSettings, name: str) -> Json:
    labels = {"app.kubernetes.io/managed-by": "muster", SERVER: settings.keys.name}
    return {"name": name, "namespace": settings.keys.namespace, "labels": labels}


def owner_patch(owner: PodOwner | None) -> Json:
    """Return the patch of a pod's labels when its host goes to another gang."""
    none: dict[str, str | None] = dict.fromkeys((JOB, TENANT, UID, ATTEMPT, ROLE))
    return {"metadata": {"labels": none | (owner.labels() if owner else {})}}


def label_value(text: str) -> str:
    """Return a text as the value of a label: itself, or as much of it as a label can hold, and a
    digest."""
    if not text or _LABEL.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", text)[:50].strip("._-")
    return f"{plain}-{_digest(text)}".lstrip("-")


def host_label(host: str) -> str:
    """Return the host name of a pod, a valid DNS label."""
    plain = re.sub(r"[^a-z0-9-]", "-", host.lower()).strip("-")
    return plain if len(plain) <= 63 and plain else f"{plain[:50]}-{_digest(host)}".lstrip("-")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
