"""UpdateJob: which fields a request changes, and to what."""

from __future__ import annotations

import re

from google.protobuf.field_mask_pb2 import FieldMask

from placement import BadInput
from scheduler.core.admission.update import UPDATABLE
from scheduler.core.model.commands import UpdateJob
from scheduler.core.model.job_array import parse_most_running
from scheduler.files.errors import InputError
from scheduler.v1 import job_pb2, service_pb2
from scheduler.wire.specs import in_full, spec_from_proto, wire_path

# What the rules of the job file are asked about.
_CHECKED = FieldMask(paths=["tenant", *(wire_path(name) for name in UPDATABLE if name != "array")])
_ROOT = "spec."
_LABEL = f"{_ROOT}labels."
# The key of a map, in backticks when it is no identifier (AIP-161); without them as well.
_LABEL_PATH = re.compile(re.escape(_LABEL) + r"(?:`(?P<quoted>[^`]+)`|(?P<plain>[^`]+))")


def update_from_proto(request: service_pb2.UpdateJobRequest) -> UpdateJob:
    """Convert a request to update fields of a job to its command. Raises: BadInput with the path in
    the request."""
    spec = request.job.spec
    named = job_pb2.JobSpec(parallelism=job_pb2.Parallelism(dp=1))
    _CHECKED.MergeMessage(spec, named)
    try:
        wanted = in_full(spec_from_proto(named))
    except InputError as error:
        problem = error.found[0]
        raise BadInput(f"job.spec.{problem.field}", problem.message) from None
    most_running = 0
    if spec.array:
        try:
            most_running = parse_most_running(spec.array)
        except BadInput as error:
            raise BadInput("job.spec.array", error.message) from None
    fields, label_keys = _named(request)
    return UpdateJob(
        request.job.name,
        fields,
        etag=request.job.etag,
        request_id=request.request_id,
        uid=request.job.uid,
        label_keys=label_keys,
        most_running=most_running,
        **{name: getattr(wanted, name) for name in UPDATABLE if name != "array"},
    )


def _named(request: service_pb2.UpdateJobRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the fields, in the order of UPDATABLE, and keys of single labels."""
    by_field = {wire_path(name): name for name in UPDATABLE}
    known = ", ".join((*(_ROOT + field for field in by_field), f"{_LABEL}KEY"))
    wanted, keys = set[str](), set[str]()
    if not request.HasField("update_mask"):
        for field, _ in request.job.spec.ListFields():
            if field.name not in by_field:
                where = f"job.spec.{field.name}"
                raise BadInput(where, f"cannot be changed; give an update_mask of {known}")
            wanted.add(by_field[field.name])
    for place, path in enumerate(request.update_mask.paths):
        if path in ("*", "spec"):
            wanted.update(name for name in UPDATABLE if name != "array")  # of tasks alone
        elif path.startswith(_ROOT) and path.removeprefix(_ROOT) in by_field:
            wanted.add(by_field[path.removeprefix(_ROOT)])
        elif key := _LABEL_PATH.fullmatch(path):
            keys.add(key["quoted"] or key["plain"])
        else:
            raise BadInput(f"update_mask.paths[{place}]", f"{path!r} is not one of {known}")
    if not (wanted or keys):
        raise BadInput("update_mask", f"names nothing to change; fields are {known}")
    fields = tuple(name for name in UPDATABLE if name in wanted)
    return fields, () if "labels" in wanted else tuple(sorted(keys))
