"""Devices of pods that muster binds: claims of dynamic resource allocation (DRA).

A scheduler that binds a pod also gives it the devices that it claims; for pods that name muster
that is muster. A claim gets free devices of its class on the host of the pod's rank, and is
reserved for the pod; the controllers of Kubernetes take both back when the pod is gone. Claims of
GPUs count like GPUs of a device plugin: a pod of a gang has all of its host, and quotas count that.

A claim asks for classes and numbers. Of expressions (CEL), those of device classes are understood
that compare the driver or attributes with texts; whatever else narrows devices down is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from muster.structs import struct
from scheduler.files.errors import InputError, Problem
from scheduler.launch.kubernetes.api import MERGE_PATCH, ApiFailed, Json, KubernetesApi
from scheduler.launch.kubernetes.mirror import ServedMirror

_API: Final = "resource.k8s.io"
_VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
_GPU_CLASSES: Final = "gpu."  # as drivers call them: gpu.nvidia.com, gpu.amd.com, gpu.intel.com
_DRIVER = re.compile(r"""device\.driver\s*==\s*(['"])([^'"]+)\1""")
_ATTRIBUTE = re.compile(
    r"""device\.attributes\[(['"])([^'"]+)\1\]\.(\w+)\s*==\s*(['"])([^'"]*)\4"""
)

Device = tuple[str, str, str]  # driver, pool, name
Term = tuple[str, str]  # an attribute and its value, "" for the driver


@struct(frozen=True, slots=True)
class PodClaim:
    """A resource claim that a pod names. `entry`: its name in the pod. `name`: of the claim, ""
    until that has been made."""

    entry: str
    name: str


@struct(frozen=True, slots=True)
class DeviceRequest:
    """A request for devices in a claim. `count`: devices of the class, 0 for all of a host."""

    name: str
    device_class: str
    count: int


@struct(frozen=True, slots=True)
class Claim:
    """A resource claim. `unmet`: what muster does not do for claims, "" for nothing. `devices`:
    that it has."""

    requests: tuple[DeviceRequest, ...]
    unmet: str
    devices: frozenset[Device]


def pod_claims(pod: Json) -> tuple[PodClaim, ...]:
    """Return the claims of a pod. Those of templates have names once a controller made them."""
    name_by_entry = {
        each.get("name", ""): each.get("resourceClaimName")
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    claims = []
    for each in pod["spec"].get("resourceClaims") or ():
        name = each.get("resourceClaimName") or name_by_entry.get(each.get("name", ""), "")
        if name is not None:  # None: its template makes none
            claims.append(PodClaim(each.get("name", ""), name))
    return tuple(claims)


def read_claim(item: Json) -> Claim:
    devices = (item.get("spec") or {}).get("devices") or {}
    exact = [
        (each.get("name", ""), each.get("exactly") or each)
        for each in devices.get("requests") or ()
    ]
    unmet = "constraints between devices" if devices.get("constraints") else ""
    for _, each in exact:
        if not each.get("deviceClassName"):
            unmet = "a choice of devices (firstAvailable)"
        for key in ("selectors", "adminAccess", "capacity"):
            unmet = unmet or (f"{key}; select nodes by their labels" if each.get(key) else "")
    requests = tuple(
        DeviceRequest(
            name,
            each.get("deviceClassName", ""),
            0 if each.get("allocationMode") == "All" else int(each.get("count") or 1),
        )
        for name, each in exact
    )
    allocation = (item.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    taken = frozenset((each["driver"], each["pool"], each["device"]) for each in results)
    return Claim(requests, unmet, taken)


class ResourceClaims(ServedMirror):
    """The claims of one namespace. `changed`: is called at every change."""

    def __init__(self, api: KubernetesApi, namespace: str, changed: Callable[[], None]) -> None:
        super().__init__(api, _API, _VERSIONS, "resourceclaims", namespace, changed, read_claim)

    def gpus(self, claims: Sequence[PodClaim], per_host: int, where: str) -> int:
        """Return how many GPUs a pod claims. `per_host`: GPUs of a host; `where`: the pod, for
        errors. Raises: InputError for a claim that does not exist, or that muster cannot meet."""
        gpus = 0
        for each in claims:
            claim = self.by_name.get(each.name)
            if claim is None:
                reason = f"its resource claim {each.name or each.entry} is not there"
                raise InputError(Problem("resourceClaims", reason, where))
            if claim.unmet:
                reason = f"muster does not do {claim.unmet} of claim {each.name}"
                raise InputError(Problem("resourceClaims", reason, where))
            gpus += sum(
                request.count or per_host
                for request in claim.requests
                if request.device_class.startswith(_GPU_CLASSES)
            )
        return gpus

    def are_there(self, claims: Sequence[PodClaim]) -> bool:
        return all(each.name in self.by_name for each in claims)

    async def allocate(
        self, claims: Sequence[PodClaim], pod: str, uid: str, host: str, taken: Collection[Device]
    ) -> None:
        """Give these claims of a pod devices of `host` that are not `taken`, and reserve them for
        the pod. Raises: ApiFailed."""
        used = set(taken)
        consumer = {"resource": "pods", "name": pod, "uid": uid}
        for each in claims:
            path = f"{self.path_of('resourceclaims')}/{each.name}"
            claim = await self._api.call("GET", path)
            status: Json = claim.get("status") or {}
            reserved = status.get("reservedFor") or []
            if any(user.get("uid") == uid for user in reserved):
                continue
            if status.get("allocation") is None:
                allocation = await self._allocation(each.name, claim, host, used)
                kept = claim["metadata"].get("finalizers") or []
                if _PROTECTION not in kept:
                    body = {"metadata": {"finalizers": [*kept, _PROTECTION]}}
                    claim = await self._api.call("PATCH", path, body, kind=MERGE_PATCH)
                status |= {"allocation": allocation}
            elif host not in _nodes_of(status["allocation"]):
                raise ApiFailed(f"resource claim {each.name} has devices of another host: {host}")
            claim["status"] = status | {"reservedFor": [*reserved, consumer]}
            await self._api.call("PUT", f"{path}/status", claim)

    async def _allocation(self, name: str, claim: Json, host: str, used: set[Device]) -> Json:
        """Choose devices, which are `used` from then on. Raises: ApiFailed where too few are."""
        devices = await self._devices(host)
        results: list[Json] = []
        config: list[Json] = []
        for request in read_claim(claim).requests:
            device_class = await self._api.call(
                "GET", f"{self._group}/{self.version}/deviceclasses/{request.device_class}"
            )
            terms, spec = _terms(device_class), device_class.get("spec") or {}
            fit = [device for device, marks in devices if all(t in marks for t in terms)]
            free = [device for device in fit if device not in used]
            count = request.count or len(fit)
            if len(free) < max(1, count):
                text = f"{host} has {len(free)} free devices of {request.device_class}"
                raise ApiFailed(f"{text}; resource claim {name} asks for {count or 'all'}")
            used.update(free[:count])
            results += (
                {"request": request.name, "driver": driver, "pool": pool, "device": device}
                for driver, pool, device in free[:count]
            )
            config += (
                {"source": "FromClass", "requests": [request.name], **each}
                for each in spec.get("config") or ()
            )
        own = ((claim.get("spec") or {}).get("devices") or {}).get("config") or ()
        config += ({"source": "FromClaim", **each} for each in own)
        field = {"key": "metadata.name", "operator": "In", "values": [host]}
        return {
            "devices": {"results": results} | ({"config": config} if config else {}),
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }

    async def _devices(self, host: str) -> list[tuple[Device, set[Term]]]:
        """Return the devices of a host without taints, and what classes may ask of them."""
        path = f"{self._group}/{self.version}/resourceslices?fieldSelector=spec.nodeName={host}"
        slices = [item["spec"] for item in (await self._api.call("GET", path)).get("items") or ()]
        newest: dict[tuple[str, str], int] = {}
        for each in slices:
            pool = each["driver"], each["pool"]["name"]
            newest[pool] = max(newest.get(pool, 0), each["pool"].get("generation", 0))
        return [
            ((each["driver"], each["pool"]["name"], device["name"]), _marks(each["driver"], device))
            for each in slices
            if each["pool"].get("generation", 0) == newest[each["driver"], each["pool"]["name"]]
            for device in each.get("devices") or ()
            if not (device.get("basic") or device).get("taints")
        ]


def _marks(driver: str, device: Json) -> set[Term]:
    """Return the driver and the attributes of a device that are texts, by their whole names."""
    attributes: dict[str, Any] = (device.get("basic") or device).get("attributes") or {}
    texts = {
        (key if "/" in key else f"{driver}/{key}", value["string"])
        for key, value in attributes.items()
        if "string" in value
    }
    return {("", driver), *texts}


def _terms(device_class: Json) -> list[Term]:
    """Return what a class asks of devices. Raises: ApiFailed for an expression of another form."""
    terms: list[Term] = []
    for selector in (device_class.get("spec") or {}).get("selectors") or ():
        text = str((selector.get("cel") or {}).get("expression", ""))
        for part in text.split("&&"):
            if match := _DRIVER.fullmatch(part.strip()):
                terms.append(("", match[2]))
            elif match := _ATTRIBUTE.fullmatch(part.strip()):
                terms.append((f"{match[2]}/{match[3]}", match[5]))
            else:
                name = device_class["metadata"]["name"]
                raise ApiFailed(f"muster does not understand {text!r} of device class {name}")
    return terms


def _nodes_of(allocation: Json) -> list[str]:
    """Return the nodes whose devices an allocation has, by its node selector."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    fields = (field for term in terms for field in term.get("matchFields") or ())
    return [value for field in fields for value in field.get("values") or ()]
