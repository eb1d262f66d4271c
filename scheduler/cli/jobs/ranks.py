"""Where the ranks of a live job are, of the attempt that holds hosts now."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from scheduler.cli.render.place.formats import GangOption

if TYPE_CHECKING:
    from scheduler.v1 import job_pb2


def ranks_by_role(message: job_pb2.Job) -> list[tuple[job_pb2.Role | job_pb2.Run, range]]:
    """The ranks of each role of a job, with what it runs; all ranks where it names no role."""
    spec, ranks = message.spec, list[range]()
    if not spec.roles:
        every = spec.run.cpu_ranks * message.placement.host_count
        return [(spec.run, range(every or message.dp * _size(spec.parallelism, "tp-cp-ep-pp")))]
    sizes = [*(role.parallelism.dp or 1 for role in spec.roles[:-1]), message.dp]
    for role, dp in zip(spec.roles, sizes, strict=True):
        first = ranks[-1].stop if ranks else 0
        ranks.append(range(first, first + dp * _size(role.parallelism, "tp-cp-ep-pp")))
    return list(zip(spec.roles, ranks, strict=True))


def _size(axes: job_pb2.Parallelism, named: str) -> int:
    return prod(getattr(axes, axis) or 1 for axis in named.split("-"))


def live_gang(message: job_pb2.Job) -> GangOption:
    """Return the gang of a job that holds hosts. Its ranks fill them, also where hosts have
    different GPUs."""
    hosts, by_role = tuple(message.placement.hosts), ranks_by_role(message)
    ranks = by_role[-1][1].stop
    named = zip(message.spec.roles, by_role, strict=False)
    roles = ((role.name, len(own) * len(hosts) // ranks) for role, (_, own) in named)
    return GangOption(
        message.spec.name,
        hosts,
        tuple(message.placement.spares),
        ranks // len(hosts),
        message.attempt,
        message.uid,
        tuple(roles),
    )


def live_nccl(message: job_pb2.Job, fabric_file: bytes) -> Iterable[str]:
    """Write NCCL's file for a live gang. `fabric_file`: the fabric of the server."""
    from placement.fabric.constraints import view_for_gang
    from placement.fabric.reader import from_spec
    from placement.workload.replicas import sized
    from scheduler.cli.offline.place import nccl_lines
    from scheduler.files.yaml12 import parse
    from scheduler.wire.specs import spec_from_proto

    fabric = from_spec(parse(fabric_file.decode()).mapping())
    request = sized(spec_from_proto(message.spec).request, message.dp)
    seen = view_for_gang(fabric, request.where)
    return nccl_lines(message.spec.name, seen, request, seen.indices(message.placement.hosts))
