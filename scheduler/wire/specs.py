"""Specifications of jobs as messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

from placement.workload.request import Collective, Objective
from placement.workload.training import ContextParallel, DataParallel, Recompute, Sync
from scheduler.core import JobSpec
from scheduler.files.job import job_from_mapping, job_to_mapping, plain
from scheduler.v1 import job_pb2


def numbers(enum: Any, prefix: str, members: type[Any]) -> dict[Any, Any]:
    """The wire number of each member; a member without one fails at import."""
    return {member: enum.Value(f"{prefix}_{member.name}") for member in members}


_COLLECTIVES: dict[Collective, job_pb2.Collective.ValueType] = numbers(
    job_pb2.Collective, "COLLECTIVE", Collective
)
_OBJECTIVES: dict[Objective, job_pb2.Objective.ValueType] = numbers(
    job_pb2.Objective, "OBJECTIVE", Objective
)
_TRAINING: dict[str, dict[Any, Any]] = {
    "data_parallel": numbers(job_pb2.DataParallel, "DATA_PARALLEL", DataParallel),
    "sync": numbers(job_pb2.Sync, "SYNC", Sync),
    "context_parallel": numbers(job_pb2.ContextParallel, "CONTEXT_PARALLEL", ContextParallel),
    "recompute": numbers(job_pb2.Recompute, "RECOMPUTE", Recompute),
}
_COLLECTIVE_BY_NUMBER: dict[int, Collective] = {n: c for c, n in _COLLECTIVES.items()}
_OBJECTIVE_BY_NUMBER: dict[int, Objective] = {n: o for o, n in _OBJECTIVES.items()}

_MOST_BYTES = 2_000  # of a message that is looked up among those seen before
_MOST_MESSAGES = 4_096
_PARTS = attrgetter(*(field.name for field in fields(JobSpec) if field.name != "name"))
_messages: dict[tuple[int, ...], tuple[tuple[Any, ...], job_pb2.JobSpec]] = {}


def spec_from_proto(message: job_pb2.JobSpec) -> JobSpec:
    """Check a specification with the rules of the job file.

    Jobs that are alike but for their names are common: sweeps, runs that are repeated. What
    they say is checked once, 80 us, and they share what it means.

    Raises: InputError with every fault found.
    """
    name = message.name
    message.ClearField("name")  # a copy would take as long as all that follows
    body = message.SerializeToString(deterministic=True)
    message.name = name
    if len(body) > _MOST_BYTES:
        return job_from_mapping(_mapping(message))
    return JobSpec(name, *_nameless(body))


@lru_cache(maxsize=1_024)
def _nameless(body: bytes) -> tuple[Any, ...]:
    """What a specification says, but for the name, which is the first field of all."""
    parts: tuple[Any, ...] = _PARTS(job_from_mapping(_mapping(job_pb2.JobSpec.FromString(body))))
    return parts


def _mapping(message: job_pb2.JobSpec) -> dict[str, Any]:
    """The content of the job file that says the same; what is unset is left out."""
    mapping: dict[str, Any] = {"priority": message.priority}
    for field in ("name", "spares", "tenant", "priority_class"):
        if text := getattr(message, field):
            mapping[field] = text
    for section in ("parallelism", "model", "batch"):
        if message.HasField(section):
            mapping[section] = {f.name: v for f, v in getattr(message, section).ListFields()}
    axes = mapping.get("parallelism", {})
    if least := axes.pop("min_dp", 0):
        axes["dp"] = {"min": least, "max": axes.get("dp", 1)}
    if message.HasField("training"):
        mapping["training"] = _training(message.training)
    if message.traffic:
        mapping["traffic"] = dict(message.traffic)
    if message.collectives:
        mapping["collectives"] = {
            axis: _COLLECTIVE_BY_NUMBER.get(number, number)
            for axis, number in message.collectives.items()
            if number
        }
    if message.objective:
        mapping["objective"] = _OBJECTIVE_BY_NUMBER.get(message.objective, message.objective)
    if message.HasField("checkpoint"):
        mapping["checkpoint"] = {f.name: v for f, v in message.checkpoint.ListFields()}
    if message.HasField("constraints"):
        mapping["constraints"] = _constraints(message.constraints)
    if message.labels:
        mapping["labels"] = dict(message.labels)
    if message.HasField("time_limit_s"):
        mapping["time_limit_s"] = message.time_limit_s
    if message.HasField("spread_alpha"):
        mapping["spread_alpha"] = message.spread_alpha
    return mapping


def _training(message: job_pb2.Training) -> dict[str, Any]:
    found = {field.name: value for field, value in message.ListFields()}
    for name, numbers in _TRAINING.items():
        if name in found:
            named = {number: member.value for member, number in numbers.items()}
            found[name] = named.get(found[name], found[name])
    return found


def _constraints(message: job_pb2.Constraints) -> dict[str, Any]:
    found: dict[str, Any] = {field.name: value for field, value in message.ListFields()}
    if message.hosts:
        found["hosts"] = dict(message.hosts)
    if message.avoid:
        found["avoid"] = {avoid.tier: list(avoid.jobs) for avoid in message.avoid}
    return found


def _constraints_to_proto(found: Mapping[str, Any] | None) -> job_pb2.Constraints | None:
    if not found:
        return None
    avoid = [job_pb2.Avoid(tier=t, jobs=names) for t, names in found.get("avoid", {}).items()]
    rest = {key: value for key, value in found.items() if key != "avoid"}
    return job_pb2.Constraints(**rest, avoid=avoid)


def spec_to_proto(spec: JobSpec) -> job_pb2.JobSpec:
    """The message that `spec_from_proto` reads back as `spec`."""
    message = job_pb2.JobSpec()
    fill_spec(message, spec)
    return message


def fill_spec(message: job_pb2.JobSpec, spec: JobSpec) -> None:
    """Make an empty message the one that `spec_from_proto` reads back as `spec`.

    A job is shown many times, and those that share all but their names share what is made of
    it. They are told by the identity of their parts: to compare those would take as long.
    """
    parts = _PARTS(spec)
    key = tuple(map(id, parts))
    known = _messages.get(key)
    if known is None:
        if len(_messages) >= _MOST_MESSAGES:
            _messages.clear()
        known = _messages[key] = (
            parts,
            _to_proto(spec),
        )  # with them, so that no others get their ids
    message.CopyFrom(known[1])
    message.name = spec.name


def _to_proto(spec: JobSpec) -> job_pb2.JobSpec:
    mapping = job_to_mapping(spec)
    request = spec.request
    return job_pb2.JobSpec(
        name=spec.name,
        parallelism=job_pb2.Parallelism(**plain(request.parallelism), min_dp=spec.min_dp or None),
        traffic=mapping.get("traffic"),
        collectives={axis: _COLLECTIVES[c] for axis, c in request.collectives},
        model=_section(job_pb2.Model, mapping, "model"),
        batch=_section(job_pb2.Batch, mapping, "batch"),
        training=_section(job_pb2.Training, mapping, "training"),
        spares=str(mapping["spares"]),
        objective=_OBJECTIVES[request.objective],
        spread_alpha=mapping.get("spread_alpha"),
        priority=spec.priority,
        time_limit_s=spec.time_limit_s,
        tenant=spec.tenant,
        priority_class=spec.priority_class,
        constraints=_constraints_to_proto(mapping.get("constraints")),
        labels=dict(spec.labels),
        checkpoint=_section(job_pb2.Checkpoint, mapping, "checkpoint"),
    )


def _section(kind: type[Any], mapping: Mapping[str, Any], key: str) -> Any:
    if key not in mapping:
        return None
    return kind(**{name: _TRAINING.get(name, {}).get(v, v) for name, v in mapping[key].items()})
