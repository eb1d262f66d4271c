"""The job file: the JobSpec that its content stands for.

What each key may hold is in job_keys.py; what the values mean together is checked by the
value types of placement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

from muster.structs import replace
from placement import BadInput
from placement.fabric.constraints import Constraints, RoleConstraints
from placement.workload.framework_limits import check_parallelism
from placement.workload.parallelism import AXES, Parallelism
from placement.workload.replicas import batch_sizes, check_batch
from placement.workload.request import (
    NO_SPARES,
    STEP_MODEL,
    GangRole,
    Objective,
    Request,
)
from placement.workload.roles import request_of_roles
from placement.workload.traffic import axis_traffic
from placement.workload.training import Batch, ModelShape, Training
from scheduler.core.model.dependency import DependencyTerm
from scheduler.core.model.job import JobSpec
from scheduler.core.names import NAME_RULE, is_name
from scheduler.core.policies.affinity import Affinity
from scheduler.core.policies.job_terms import (
    CheckpointTerms,
    ContainerSpec,
    DatasetTerms,
    HangTerms,
    RestartRule,
    RoleRun,
    RunSpec,
)
from scheduler.core.wording import sizes_text
from scheduler.files.errors import short
from scheduler.files.job_keys import (
    JobKeys,
    Keys,
    Replicas,
    RoleKeys,
    checked_keys,
)
from scheduler.files.yaml12 import Document

if TYPE_CHECKING:
    pass


_OF_ROLES = (
    "parallelism",
    "traffic",
    "collectives",
    "model",
    "batch",
    "training",
    "compute_time_s",
)

_OWN_FORM = (
    "name",
    "labels",
    "checkpoint",
    "run",
    "dependencies",
    "array",
    "restarts",
    "requeue",
    "hang",
    "dataset",
)

# Keys whose value is a field of JobSpec by the same name, as it is, with its default.
_SCALARS: dict[str, Any] = {
    name: field.default
    for name, field in signature(JobSpec).parameters.items()
    if name in JobKeys.model_fields and name not in _OWN_FORM
}


def job_from_mapping(mapping: dict[str, Any], source: str = "") -> JobSpec:
    """Return the job that the content of a job file describes.

    Raises: InputError with every fault found, each by its dotted path.
    """
    return job_from_document(Document(mapping, source))


def job_from_document(document: Document, default_name: str = "") -> JobSpec:
    """Convert a document to a job specification; errors name its lines."""
    keys = checked_keys(JobKeys, document, values=_values(document))
    if keys.priority and keys.priority_class:
        message = f"conflicts with priority_class {keys.priority_class}: give one of the two"
        raise document.error(("priority", message))
    if keys.name and not is_name(keys.name):
        raise document.error(("name", f"{NAME_RULE}, not {short(keys.name)}"))
    request = _request(keys, document)
    parts = [request, *(role.request for role in request.roles)]
    if keys.power_cap_w and any(part.compute_s is not None for part in parts):
        message = "conflicts with compute_time_s: that is the compute of GPUs without a limit"
        raise document.error(("power_cap_w", message))
    return JobSpec(
        keys.name or default_name,
        request,
        **{key: getattr(keys, key) for key in _SCALARS},
        affinity=_affinity_of(keys),
        labels=tuple(sorted(keys.labels.items())),
        min_dp=_least(keys),
        checkpoint=CheckpointTerms(**keys.checkpoint.model_dump()),
        run=_run(keys, document),
        begin_ns=keys.begin_time,
        dependencies=tuple(DependencyTerm(each.kind, each.job) for each in keys.dependencies),
        array=keys.array,
        restarts=_restarts(keys),
        requeue=keys.requeue,
        hang=HangTerms(**vars(keys.hang)),
        dataset=_dataset(keys, request, document),
    )


def _dataset(keys: JobKeys, request: Request, document: Document) -> DatasetTerms | None:
    """Return what the job reads. Raises: InputError where that cannot be counted in GB/s."""
    dataset = keys.dataset
    if dataset is None:
        return None
    if dataset.read_gb_per_s:
        counted = sorted(dataset.model_fields_set - {"read_gb_per_s", "store"})
        if counted:
            message = "conflicts with read_gb_per_s, which is what its steps read"
            raise document.error(*((f"dataset.{key}", message) for key in counted))
    elif request.roles or not request.has_step_time:
        message = "is required: nothing says how long a step takes (model and batch do, or"
        raise document.error(("dataset.read_gb_per_s", f"{message} compute_time_s)"))
    elif not dataset.tokens and (request.model is None or request.batch is None):
        message = "is required, for the job has no model and batch: tokens that a step reads"
        raise document.error(("dataset.tokens", message))
    return DatasetTerms(**vars(dataset))


def _restarts(keys: JobKeys) -> RestartRule:
    rule = keys.restarts
    return RestartRule(rule.max, rule.backoff_s, **vars(rule.on))


def _values(document: Document) -> dict[str, Any]:
    """Return the mapping, with what is handed to processes as the file has it: 5 and 3e-4 are texts
    there. Of a gang of roles the shape is that of the roles.

    Raises: InputError where the job says what its roles say.
    """
    mapping = dict(document.mapping())
    if "run" in mapping:
        mapping["run"] = _with_texts(document, "run", mapping["run"])
    roles = mapping.get("roles")
    if isinstance(roles, list) and roles:
        said = [key for key in _OF_ROLES if key in mapping]
        if said:
            message = "is said of each role, as roles.0.{}, and not of the job"
            raise document.error(*((key, message.format(key)) for key in said))
        mapping["parallelism"] = {}
        each = enumerate(roles)
        mapping["roles"] = [_with_texts(document, f"roles.{n}", role) for n, role in each]
    return mapping


def _with_texts(document: Document, path: str, section: Any) -> Any:
    """Return a section with its command and its environment as the file has them."""
    written, texts = document.written, dict[str, Any]()
    if not written or not isinstance(section, dict):
        return section
    command, env = section.get("command"), section.get("env")
    if isinstance(command, list):
        items = enumerate(command)
        texts["command"] = [written.get(f"{path}.command.{n}", item) for n, item in items]
    if isinstance(env, dict):
        texts["env"] = {key: written.get(f"{path}.env.{key}", item) for key, item in env.items()}
    return section | texts


def _run(keys: JobKeys, document: Document) -> RunSpec | None:
    roles = tuple(RoleRun(r.name, r.command, r.env, r.per_host, r.restart) for r in keys.roles)
    if keys.run is None and not any(role.command for role in roles):
        for number, role in enumerate(roles):
            if role != RoleRun(role.name):
                raise document.error((f"roles.{number}.command", "is required, or run.command"))
        return None
    if keys.run is not None:
        inner = keys.run.container
        container = ContainerSpec(**vars(inner)) if inner is not None else None
        run = RunSpec(**{**vars(keys.run), "container": container, "roles": roles})
    else:
        run = RunSpec((), roles=roles)
    if not run.command:
        for number, role in enumerate(roles):
            if not role.command:
                raise document.error((f"roles.{number}.command", "is required, or run.command"))
        if not roles:
            raise document.error(("run.command", "is required"))
    for key in ("warm", "cpu_ranks"):
        if roles and getattr(run, key):
            raise document.error((f"run.{key}", "is not for a gang of roles"))
    if run.cpu_ranks:
        _refuse_gpu_keys(keys, document)
    if run.warm and run.container is not None:
        message = "conflicts with container: warm processes import what the host has installed"
        raise document.error(("run.warm", message))
    if run.warm and not run.is_python:
        message = "is for a command that begins with `python FILE` or `python -m MODULE`"
        raise document.error(("run.warm", message))
    if run.new_run and run.resume_from:
        message = "conflicts with resume_from: a new run begins with nothing"
        raise document.error(("run.new_run", message))
    if run.lineage and keys.array is not None and keys.array.most_running != 1:
        message = "is for one job after the other, so for an array with %1"
        raise document.error(("run.lineage", message))
    return run


def _refuse_gpu_keys(keys: JobKeys, document: Document) -> None:
    """Raises: InputError on what is of steps of GPUs, which ranks on CPUs do not make."""
    axes = [axis for axis in ("tp", "cp", "ep", "pp") if getattr(keys.parallelism, axis) > 1]
    given = [key for key in ("model", "batch", "compute_time_s") if getattr(keys, key) is not None]
    given += [key for key in ("traffic", "collectives") if key in keys.model_fields_set]
    if refused := [*(f"parallelism.{axis}" for axis in axes), *given]:
        message = (
            f"conflicts with run.cpu_ranks: of ranks on CPUs no step is modelled, dp {_PLACES}"
        )
        raise document.error(*((key, message) for key in refused))


_PLACES = "alone says how many places of GPUs they take"


def _least(keys: JobKeys) -> int:
    """With how many replicas the gang can run at least, or its last role; 0: as many as it asks
    for."""
    dp = (keys.roles[-1] if keys.roles else keys).parallelism.dp
    return dp.least if isinstance(dp, Replicas) and dp.least < dp.most else 0


def _axes(**sizes: Any) -> Parallelism:
    """The axes at their largest."""
    dp = sizes.pop("dp")
    return Parallelism(**sizes, dp=dp.most if isinstance(dp, Replicas) else dp)


def _affinity_of(keys: JobKeys) -> Affinity:
    wanted = keys.constraints
    return Affinity(wanted.exclusive, _by_tier(wanted.avoid), wanted.near)


def _where(keys: JobKeys) -> Constraints:
    wanted = keys.constraints
    return Constraints(
        max_zones=wanted.max_zones or 0,
        same=wanted.same,
        labels=tuple(sorted(wanted.hosts.items())),
        within=tuple(sorted(wanted.within.items())),
        segment=wanted.segment or 0,
        roles=tuple(filter(RoleConstraints.is_any, map(_role_constraints, keys.roles))),
    )


def _role_constraints(role: RoleKeys) -> RoleConstraints:
    return RoleConstraints(
        role.name,
        same=role.same,
        within=tuple(sorted(role.within.items())),
        segment=role.segment or 0,
        beside=_by_tier(role.beside),
        avoid=_by_tier(role.avoid),
    )


def _by_tier(names: Mapping[str, Sequence[str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((tier, tuple(each)) for tier, each in names.items())


def _request(keys: JobKeys, document: Document) -> Request:
    """The gang, after the checks that need several keys at once."""
    if keys.step_model not in (0, STEP_MODEL):
        raise document.error(("step_model", f"must be {STEP_MODEL}, is {keys.step_model}"))
    request = replace(
        _shape(keys, document),
        spares=keys.spares,
        objective=keys.objective or Objective.CUT,
        spread_alpha=keys.spread_alpha,
        cut_slack=keys.cut_slack,
        where=_where(keys),
        is_on_cpus=keys.run is not None and keys.run.cpu_ranks > 0,
    )
    if keys.roles:
        return _of_roles(keys, request, document)
    if keys.objective is None:
        request = replace(request, objective=usual_objective(request))
    if request.objective is Objective.TIME and not request.has_step_time:
        message = "time needs a model and a batch, or compute_time_s: what a step computes"
        raise document.error(("objective", message))
    try:
        check_parallelism(request)
        axis_traffic(request)
        if _least(keys):
            check_batch(request)
    except BadInput as error:
        message = f"{error.message}{_legal_sizes(request, _least(keys))}"
        raise document.error((error.field, message)) from None
    return request


def _shape(keys: JobKeys | RoleKeys, document: Document, path: str = "") -> Request:
    """Return what ranks send each other and compute, of a job or of a role."""
    problems: list[tuple[str, str]] = []
    parallelism = _checked(problems, _axes, keys.parallelism)
    model = _checked(problems, ModelShape, keys.model)
    batch = _checked(problems, Batch, keys.batch)
    training = _checked(problems, Training, keys.training)
    if problems or parallelism is None or training is None:
        raise document.error(*((path + field, message) for field, message in problems))
    return Request(
        parallelism,
        tuple((axis, n) for axis in AXES if (n := getattr(keys.traffic, axis)) is not None),
        tuple((axis, c) for axis in AXES if (c := getattr(keys.collectives, axis)) is not None),
        model,
        batch,
        training=training,
        compute_s=keys.compute_time_s,
    )


def _of_roles(keys: JobKeys, gang: Request, document: Document) -> Request:
    if gang.objective is Objective.SPREAD:
        message = "spread is of the stages and replicas of one shape, and not for a gang of roles"
        raise document.error(("objective", message))
    if keys.checkpoint.peers:
        raise document.error(("checkpoint.peers", "is not for a gang of roles"))
    roles = []
    for number, role in enumerate(keys.roles):
        path = f"roles.{number}."
        is_last = number == len(keys.roles) - 1
        if isinstance(role.parallelism.dp, Replicas) and not is_last:
            message = "must be a whole number: the last role alone has several sizes, so that ranks"
            raise document.error(
                (f"{path}parallelism.dp", f"{message} of others keep their numbers")
            )
        shape = replace(_shape(role, document, path), spares=NO_SPARES)
        try:
            check_parallelism(shape)
            if is_last and _least(keys):
                check_batch(shape)
        except BadInput as error:
            message = error.message + (_legal_sizes(shape, _least(keys)) if is_last else "")
            raise document.error((path + error.field, message)) from None
        roles.append(GangRole(role.name, shape, tuple(sorted(role.sends.items()))))
    try:
        request = request_of_roles(roles, gang)
        axis_traffic(request)
    except BadInput as error:
        raise document.error((error.field, error.message)) from None
    if gang.objective is Objective.TIME and not request.has_step_time:
        message = "time needs a role with a model and a batch, or compute_time_s"
        raise document.error(("objective", message))
    return request


def usual_objective(request: Request) -> Objective:
    """Return the objective of a job that names none: the time of a step, where the job says enough
    to know it."""
    is_timed = request.has_step_time and not request.roles
    return Objective.TIME if is_timed else Objective.CUT


def _legal_sizes(request: Request, least: int) -> str:
    """The sizes of an elastic gang over which the batch would divide, where it does not."""
    if not least or request.batch is None or request.parallelism.dp in batch_sizes(request, least):
        return ""
    legal = sizes_text(batch_sizes(request, least)) or "none"
    return f"; it does from dp {least:,} to {request.parallelism.dp:,} for: {legal}"


Value = TypeVar("Value")


def _checked(
    problems: list[tuple[str, str]], build: Callable[..., Value], keys: Keys | None
) -> Value | None:
    if keys is None:
        return None
    try:
        return build(**vars(keys))
    except BadInput as error:
        problems.append((error.field, error.message))
        return None
