"""The fabric as a message, and changes of it both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from placement import BadInput
from placement.fabric import hostlist
from scheduler.core import State
from scheduler.core.admission.fabric import FabricChange, FabricObstacle
from scheduler.core.model.commands import ChangeFabric
from scheduler.files.fabrics.fabricyaml import dump
from scheduler.files.yaml12 import parse
from scheduler.v1 import fabric_pb2, service_pb2
from scheduler.wire.jobs import timestamp
from scheduler.wire.names import resource_of
from scheduler.wire.specs import numbers

_OBSTACLES = numbers(service_pb2.FabricObstacle, "FABRIC_OBSTACLE", FabricObstacle)


def fabric_to_proto(state: State, *, with_file: bool = False) -> fabric_pb2.Fabric:
    """Convert a fabric to its message. Cost: O(hosts x tiers)."""
    fabric = state.built_fabric
    tiers = [
        fabric_pb2.FabricTier(
            name=tier.name,
            domains=tier.domains,
            most_hosts=max(Counter(tier.domain_by_host.tolist()).values()),
        )
        for tier in fabric.tiers
    ]
    return fabric_pb2.Fabric(
        name=fabric.name,
        uid=state.origin,
        etag=fabric.digest,
        kind=fabric.kind,
        gpus_per_host=fabric.gpus_per_host,
        nic_gbps=fabric.nic_gbps,
        host_count=fabric.host_count,
        tiers=tiers,
        create_time=timestamp(state.faults.since_ns),
        update_time=timestamp(state.fabric_ns),
        version=state.version,
        file=dump(fabric.spec).encode() if with_file else b"",
    )


def change_from_proto(request: service_pb2.ApplyFabricRequest) -> ChangeFabric:
    """Convert a request to the command of another fabric. Raises: BadInput, InputError when the
    file is no YAML."""
    try:
        text = request.file.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise BadInput("file", "is not UTF-8 text") from None
    renames = tuple(
        pair for at, rename in enumerate(request.renames) for pair in _pairs(rename, at)
    )
    return ChangeFabric(parse(text).mapping(), renames, request.etag, request.request_id)


def _pairs(rename: service_pb2.FabricRename, at: int) -> Iterable[tuple[str, str]]:
    """Both names may be ranges of one length."""
    try:
        old, new = hostlist.expand(rename.old_name), hostlist.expand(rename.new_name)
    except BadInput as error:
        raise BadInput(f"renames[{at}]", error.message) from None
    if len(old) != len(new):
        message = f"{rename.old_name} are {len(old):,} names, {rename.new_name} {len(new):,}"
        raise BadInput(f"renames[{at}]", message)
    return zip(old, new, strict=True)


def change_to_proto(state: State, change: FabricChange) -> service_pb2.ApplyFabricResponse:
    """Convert a change of fabric to its message. `state`: on the fabric that is answered."""
    return service_pb2.ApplyFabricResponse(
        fabric=fabric_to_proto(state),
        added_hosts=change.added,
        removed_hosts=change.removed,
        moved_hosts=change.moved,
        changed_hosts=change.changed,
        added_domains=change.added_domains,
        removed_domains=change.removed_domains,
        changed_uplinks=change.links,
        renames=[
            service_pb2.FabricRename(old_name=old, new_name=new) for old, new in change.renames
        ],
        settings=change.settings,
        refusals=[
            service_pb2.FabricRefusal(
                obstacle=_OBSTACLES[each.obstacle],
                subject=each.subject,
                detail=each.detail,
                job=resource_of(state.tenants, each.job) if each.job else "",
            )
            for each in change.refusals
        ],
        version=state.version,
    )
