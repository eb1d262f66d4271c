"""Where the ranks of a live job are, of the attempt that holds hosts now."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from scheduler.cli.offline.formats import GangOption

if TYPE_CHECKING:
    from scheduler.v1 import job_pb2


def live_gang(message: job_pb2.Job) -> GangOption:
    """The gang of a job that holds hosts. Its ranks fill them, also where hosts have different
    GPUs."""
    axes, hosts = message.spec.parallelism, tuple(message.placement.hosts)
    sizes = (getattr(axes, axis) for axis in ("tp", "cp", "ep", "pp"))
    ranks = message.dp * prod(size or 1 for size in sizes)
    return GangOption(
        message.spec.name,
        hosts,
        tuple(message.placement.spares),
        message.spec.run.cpu_ranks or ranks // len(hosts),
        message.attempt,
        message.uid,
    )


def live_nccl(message: job_pb2.Job, fabric_file: bytes) -> Iterable[str]:
    """NCCL's file for it; `fabric_file`: the fabric of the server."""
    from placement.fabric.constraints import view_for_gang
    from placement.fabric.tree import from_spec
    from placement.workload.replicas import sized
    from scheduler.cli.offline.place import nccl_lines
    from scheduler.files.yaml12 import parse
    from scheduler.wire.specs import spec_from_proto

    fabric = from_spec(parse(fabric_file.decode()).mapping())
    request = sized(spec_from_proto(message.spec).request, message.dp)
    seen = view_for_gang(fabric, request.where)
    return nccl_lines(message.spec.name, seen, request, seen.indices(message.placement.hosts))
