"""Certificates of what a server decided: made here, of what it says that it decided on.

The bound is proved anew, for a log does not have proofs. That takes the engine: the extra `server`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scheduler.cli.calls import connected, end
from scheduler.cli.exit_codes import BAD_INPUT

if TYPE_CHECKING:
    from scheduler.v1 import job_pb2

_BOUNDED = ("start", "dry run")  # what takes the best of all placements on the free hosts
_ENDS = ("WRONG_STATE", "COMPACTED")  # the job has nothing to certify, or not any more


def certify_live(path: Path, name: str, address: str) -> None:
    """Write the certificate of a job that holds hosts. Raises: Exit where it has none."""
    from scheduler.cli.offline.place import write_certificate
    from scheduler.client import ServiceError

    with connected(address) as client:
        try:
            message = client.get_job(name, with_decision=True)
        except ServiceError as error:
            if error.reason in _ENDS:
                raise end(error.message, BAD_INPUT) from None
            raise
    write_certificate(path, _certificate(message))


def certify_supposed(path: Path, supposed: job_pb2.Job) -> None:
    """Write the certificate of what a dry run would give a job; a note where it gives nothing."""
    from scheduler.cli.offline.place import note_nothing_certified, write_certificate

    if not supposed.answer.HasField("placement"):
        note_nothing_certified()
    elif supposed.answer.placement.gpus:
        message = f"job {supposed.spec.name} would take a part of a host: nothing that it sends"
        raise end(f"{message} leaves the host, and there is nothing to certify", BAD_INPUT)
    else:
        write_certificate(path, _certificate(supposed))


def _certificate(message: job_pb2.Job) -> dict[str, Any]:
    """Raises: Exit where the server does not say what it decided on."""
    from placement.fabric import hostset
    from placement.fabric.constraints import view_for_gang
    from placement.fabric.hostlist import expand
    from placement.fabric.links import with_links
    from placement.fabric.reader import from_spec
    from placement.workload.replicas import sized
    from scheduler.files.certificates import decided_certificate
    from scheduler.v1 import placement_pb2
    from scheduler.wire.specs import spec_from_proto

    if not message.HasField("decision"):
        raise end("the server does not say what it decided on: is it an older one?", BAD_INPUT)
    made = message.decision
    request = sized(spec_from_proto(message.spec).request, made.dp)
    built = from_spec(json.loads(made.fabric_file))
    fabric = view_for_gang(with_links(built, {}, made.closed_uplinks), request.where)
    hosts, spares, free = (
        fabric.indices(expand(text) if text else ())
        for text in (made.hosts, made.spares, made.free_hosts)
    )
    name = placement_pb2.DecisionKind.Name(made.kind).removeprefix("DECISION_KIND_")
    kind = name.lower().replace("_", " ")
    decision = {
        "kind": kind,
        "uid": message.uid,
        "attempt": made.attempt,
        "version": made.version,
        "time": made.decide_time.ToJsonString(),
    }
    return decided_certificate(
        fabric,
        hostset.of(free),
        request,
        hosts,
        spares,
        message.spec.name,
        decision,
        is_bounded=kind in _BOUNDED,
    )
