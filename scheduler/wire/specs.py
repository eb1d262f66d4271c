"""Specifications of jobs as messages, and back.

A message has the keys of the job file by the same names, so that both ways go through the
mapping that files.job reads and writes: one schema, and the same errors at the same paths. How
a field is copied follows from its descriptor. Some keys have another shape in a message:
`parallelism.dp` of an elastic gang, `avoid` and `beside` of constraints, `restarts.on.exit`, and
durations, which the key gives in seconds: `time_limit_s` is the field `time_limit`. In a message
jobs have the names that their tenant calls them by; a specification that the core gets has full
names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from inspect import signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from muster.structs import replace
from placement import BadInput
from scheduler.core import JobSpec
from scheduler.core.names import NAME_RULE, full_name
from scheduler.core.policies.affinity import ANYBODY
from scheduler.files.errors import InputError, Problem
from scheduler.files.job import job_from_mapping, job_to_mapping, resized_axes
from scheduler.v1 import job_pb2
from scheduler.wire.durations import duration
from scheduler.wire.names import parse_job_name

if TYPE_CHECKING:
    from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper as EnumTypeWrapper

Member = TypeVar("Member", bound=Enum)
Number = TypeVar("Number", bound=int)
Read: TypeAlias = Callable[[Any], Any]
Fill: TypeAlias = Callable[[Any, Mapping[str, Any]], None]


def numbers(
    enum: EnumTypeWrapper[Number], prefix: str, members: type[Member]
) -> dict[Member, Number]:
    """Return the wire number of each member of an enum; a member without one fails at import."""
    return {member: enum.Value(f"{prefix}_{member.name}") for member in members}


def spec_from_proto(message: job_pb2.JobSpec) -> JobSpec:
    """Check a specification with the rules of the job file. Cost: 50 us.

    Raises: InputError with every fault found.
    """
    mapping = _read_spec(message)
    for part in (mapping, *mapping.get("roles", ())):
        axes = part.get("parallelism", {})
        if least := axes.pop("min_dp", 0):
            axes["dp"] = {"min": least, "max": axes.get("dp", 1)}
    causes = mapping.get("restarts", {}).get("on", {})
    if "exit" in causes:
        causes["exit"] = causes["exit"].get("codes", [])
    for constraints, key, names in _named_by_tier(mapping):
        constraints[key] = {each.get("tier", ""): each.get(names, []) for each in constraints[key]}
    try:
        return job_from_mapping(mapping)
    except InputError as error:
        problems = (replace(problem, field=wire_path(problem.field)) for problem in error.found)
        raise InputError(*problems) from None


def wire_path(key: str) -> str:
    """Return the path in a specification of what the job file calls `key`: `checkpoint.interval`
    for `checkpoint.interval_s`."""
    in_list = re.fullmatch(r"(\w+)\.\d+\.(.+)", key)
    if in_list and f"{in_list[1]}.{in_list[2]}" in _WIRE_PATHS:
        return key.removesuffix("_s")
    return _WIRE_PATHS.get(key, key)


def file_key(path: str) -> str:
    """Return the job file's name of the field at `path` of a specification."""
    return _FILE_KEYS.get(path, path)


def spec_to_proto(spec: JobSpec) -> job_pb2.JobSpec:
    """Return the message that `spec_from_proto` reads back as `spec`."""
    message = job_pb2.JobSpec()
    fill_spec(message, spec)
    return message


def fill_spec(message: job_pb2.JobSpec, spec: JobSpec) -> None:
    """Fill an empty message with what `spec_from_proto` reads back as `spec`. It takes a tenth of
    the time where one with the same objects for its parts, as SpecReader makes them, was filled
    before."""
    parts = _PARTS(spec)
    key = tuple(map(id, parts))  # kept with the parts, so that no others have these ids
    known = _filled.get(key)
    if known is None:
        if len(_filled) >= _MOST_FILLED:  # several threads may have added one at once
            _filled.clear()
        known = _filled[key] = parts, _spec_message(spec)
    message.CopyFrom(known[1])
    message.name = spec.name.removeprefix(f"{spec.tenant}/")


def _spec_message(spec: JobSpec) -> job_pb2.JobSpec:
    message = job_pb2.JobSpec()
    mapping = job_to_mapping(_renamed(spec, lambda name: name.removeprefix(f"{spec.tenant}/")))
    mapping.setdefault("objective", spec.request.objective.value)  # an answer always says it
    if spec.min_dp:
        resized_axes(mapping).update(dp=spec.request.replicas, min_dp=spec.min_dp)
    causes = mapping.get("restarts", {}).get("on", {})
    if "exit" in causes:
        causes["exit"] = {"codes": causes["exit"]}
    for constraints, key, names in _named_by_tier(mapping):
        constraints[key] = [{"tier": t, names: each} for t, each in constraints[key].items()]
    _fill_spec(message, mapping)
    return message


def _named_by_tier(mapping: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield constraints that name jobs or roles by tier: the section that they are in, their key,
    and what a message calls the names."""
    if "avoid" in (constraints := mapping.get("constraints", {})):
        yield constraints, "avoid", "jobs"
    for role in mapping.get("roles", ()):
        yield from ((role, key, "roles") for key in ("beside", "avoid") if key in role)


def in_full(spec: JobSpec) -> JobSpec:
    """Return the specification with full names of jobs. Raises: InputError."""

    def full(text: str) -> str:
        tenant, name = parse_job_name(text)
        return full_name(tenant or spec.tenant, name)

    try:
        return _renamed(spec, full)
    except BadInput as error:
        raise InputError(Problem("constraints", error.message)) from None


def _renamed(spec: JobSpec, name_of: Callable[[str], str]) -> JobSpec:
    wants = spec.affinity
    if spec.dependencies:
        terms = (
            replace(term, job=name_of(term.job)) if term.job else term for term in spec.dependencies
        )
        spec = replace(spec, dependencies=tuple(terms))
    if wants == ANYBODY:
        return replace(spec, name=name_of(spec.name))
    avoid = tuple((tier, tuple(map(name_of, names))) for tier, names in wants.avoid)
    near = name_of(wants.near) if wants.near else ""
    return replace(spec, name=name_of(spec.name), affinity=replace(wants, avoid=avoid, near=near))


class SpecReader:
    """Reads specifications; those that are alike but for their names share one parsed value.

    Such jobs are common: sweeps, runs that are repeated. Their content is checked once, and values
    that are the same object compare equal at once.
    """

    def __init__(self, kept: int = 1_024, most_bytes: int = 2_000) -> None:
        """`kept`: specifications that are remembered. `most_bytes`: of one that is."""
        self._kept = kept
        self._most_bytes = most_bytes
        self._parts_by_body: OrderedDict[bytes, tuple[Any, ...]] = OrderedDict()

    def read(self, message: job_pb2.JobSpec) -> JobSpec:
        """Read a specification as `spec_from_proto`; names of jobs in it become TENANT/NAME."""
        name = message.name
        if "/" in name:
            raise InputError(Problem("name", NAME_RULE))
        message.ClearField("name")  # a copy would take as long as all that follows
        body = message.SerializeToString(deterministic=True)
        message.name = name
        parts = self._parts_by_body.get(body)
        if parts is not None:
            self._parts_by_body.move_to_end(body)
            return JobSpec(full_name(message.tenant, name), *parts)
        spec = in_full(spec_from_proto(message))
        if len(body) <= self._most_bytes:
            self._parts_by_body[body] = _PARTS(spec)
            if len(self._parts_by_body) > self._kept:
                self._parts_by_body.popitem(last=False)
        return spec


_PARTS = attrgetter(*(name for name in signature(JobSpec).parameters if name != "name"))
_MOST_FILLED = 256
_filled: dict[tuple[int, ...], tuple[tuple[Any, ...], job_pb2.JobSpec]] = {}


# --- by descriptor: a message from and to a mapping of plain values --------------


def _reader(kind: Descriptor) -> Read:
    """Reads a message of this kind; fields that are unset are left out."""
    readers = {field.name: (_key(field), _field_reader(field)) for field in kind.fields}

    def read(message: Message) -> dict[str, Any]:
        mapping = {}
        for field, value in message.ListFields():
            key, convert = readers[field.name]
            mapping[key] = convert(value) if convert else value
        return mapping

    return read


def _key(field: FieldDescriptor) -> str:
    return f"{field.name}_s" if field.message_type is Duration.DESCRIPTOR else field.name


def _field_reader(field: FieldDescriptor) -> Read | None:
    """None: values of this field are plain already."""
    if entry := _map_entry(field):
        word = _item_reader(entry)
        if word is None:
            return lambda value: dict(sorted(value.items()))  # in a message they have no order
        return lambda value: {k: word(v) for k, v in sorted(value.items()) if v}  # 0: unspecified
    item = _item_reader(field)
    if field.is_repeated:
        return (lambda value: [item(v) for v in value]) if item else list
    return item


def _item_reader(field: FieldDescriptor) -> Read | None:
    if field.message_type is Duration.DESCRIPTOR:
        return _seconds
    if field.message_type is Timestamp.DESCRIPTOR:
        return _moment
    if field.message_type is not None:
        return _reader(field.message_type)
    if field.enum_type is not None:
        words = {number: word for word, number in _words(field.enum_type).items()}
        return lambda number: words.get(number, number)
    return None


def _moment(message: Timestamp) -> str:
    """To the second, as a file has it. Out of range: what no file may have."""
    try:
        return f"{message.ToJsonString()[:19]}Z"
    except ValueError:
        return f"{message.seconds} s"


def _seconds(message: Duration) -> float:
    """A whole number where it is one, which the job file's rules ask for."""
    if not message.nanos:
        return message.seconds
    return (message.seconds * 10**9 + message.nanos) / 10**9


def _filler(kind: Descriptor) -> Fill:
    """Writes a mapping into an empty message of this kind."""
    fillers = {_key(field): _field_filler(field) for field in kind.fields}

    def fill(message: Any, mapping: Mapping[str, Any]) -> None:
        for key, value in mapping.items():
            fillers[key](message, value)

    return fill


def _field_filler(field: FieldDescriptor) -> Callable[[Any, Any], None]:
    name = field.name
    if entry := _map_entry(field):
        convert = _item_converter(entry)
        return lambda message, value: getattr(message, name).update(
            {key: convert(item) for key, item in value.items()}
        )
    if field.message_type is None:
        convert = _item_converter(field)
        if field.is_repeated:
            return lambda message, value: getattr(message, name).extend(map(convert, value))
        return lambda message, value: setattr(message, name, convert(value))
    if field.message_type is Duration.DESCRIPTOR:
        return lambda message, value: getattr(message, name).CopyFrom(duration(value))
    if field.message_type is Timestamp.DESCRIPTOR:
        return lambda message, value: getattr(message, name).FromJsonString(value)
    inner = _filler(field.message_type)

    def repeated(message: Any, value: Sequence[Mapping[str, Any]]) -> None:
        for item in value:
            inner(getattr(message, name).add(), item)

    def section(message: Any, value: Mapping[str, Any]) -> None:
        part = getattr(message, name)
        part.SetInParent()
        inner(part, value)

    return repeated if field.is_repeated else section


def _item_converter(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        return _words(field.enum_type).__getitem__
    return str if field.type == FieldDescriptor.TYPE_STRING else lambda value: value


def _words(enum: EnumDescriptor) -> dict[str, int]:
    """The number of each word of a file: `ring` for COLLECTIVE_RING."""
    prefix = enum.values[0].name.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix).lower(): value.number for value in enum.values[1:]}


def _map_entry(field: FieldDescriptor) -> FieldDescriptor | None:
    """The values of a map field; None for a field of another kind."""
    kind = field.message_type
    return kind.fields_by_name["value"] if kind and kind.GetOptions().map_entry else None


def _durations(kind: Descriptor, above: str = "") -> Iterator[str]:
    """Paths of the durations in a message of this kind."""
    for field in kind.fields:
        if field.message_type is Duration.DESCRIPTOR:
            yield above + field.name
        elif field.message_type is not None and not _map_entry(field):
            yield from _durations(field.message_type, f"{above}{field.name}.")


_WIRE_PATHS = {f"{path}_s": path for path in _durations(job_pb2.JobSpec.DESCRIPTOR)}
_WIRE_PATHS["begin_ns"] = "begin_time"
_FILE_KEYS = {path: key for key, path in _WIRE_PATHS.items()}
_read_spec: Read = _reader(job_pb2.JobSpec.DESCRIPTOR)
_fill_spec: Fill = _filler(job_pb2.JobSpec.DESCRIPTOR)
