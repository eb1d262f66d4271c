"""UpdateJob: which fields a request changes, and to what."""

from __future__ import annotations

from placement import BadInput
from scheduler.core.admission.update import UPDATABLE
from scheduler.core.model.commands import UpdateJob
from scheduler.files.job_keys import MOST, parse_labels
from scheduler.v1 import service_pb2

_ROOT = "spec."


def update_from_proto(request: service_pb2.UpdateJobRequest) -> UpdateJob:
    """Raises: BadInput with the path in the request."""
    spec = request.job.spec
    if spec.priority < -MOST:
        raise BadInput("job.spec.priority", f"must be at least {-MOST:,}")
    if spec.time_limit_s > MOST:
        raise BadInput("job.spec.time_limit_s", f"must be at most {MOST:,}")
    try:
        labels = parse_labels(dict(spec.labels))
    except BadInput as error:
        raise BadInput(f"job.spec.{error.field}", error.message) from None
    return UpdateJob(
        request.job.name,
        _fields(request),
        spec.priority,
        spec.priority_class,
        spec.time_limit_s if spec.HasField("time_limit_s") else None,
        tuple(sorted(labels.items())),
        request.job.etag,
        request.request_id,
        request.job.uid,
    )


def _fields(request: service_pb2.UpdateJobRequest) -> tuple[str, ...]:
    """Names of the fields, in the order of UPDATABLE."""
    known = ", ".join(_ROOT + name for name in UPDATABLE)
    wanted: set[str] = set()
    if not request.HasField("update_mask"):
        for field, _ in request.job.spec.ListFields():
            if field.name not in UPDATABLE:
                where = f"job.spec.{field.name}"
                raise BadInput(where, f"cannot be changed; give an update_mask of {known}")
            wanted.add(field.name)
    for place, path in enumerate(request.update_mask.paths):
        if path in ("*", "spec"):
            wanted.update(UPDATABLE)
        elif path.removeprefix(_ROOT) in UPDATABLE and path.startswith(_ROOT):
            wanted.add(path.removeprefix(_ROOT))
        else:
            raise BadInput(f"update_mask.paths[{place}]", f"{path!r} is none of {known}")
    if not wanted:
        raise BadInput("update_mask", f"names nothing to change; fields are {known}")
    return tuple(name for name in UPDATABLE if name in wanted)
