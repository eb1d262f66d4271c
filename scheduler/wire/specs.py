"""Specifications of jobs as messages, and back.

A message has the keys of the job file by the same names, and is read as the content of such a
file: one schema, and the same errors at the same paths. It is filled from the fields of values
that have these names. How a field is copied follows from its descriptor. Some keys have another
shape in a message: `parallelism.dp` of an elastic gang, `avoid` and `beside` of constraints,
`restarts.on.exit`, and durations, which the key gives in seconds: `time_limit_s` is the field
`time_limit`. In a message jobs have the names that their tenant calls them by; a specification
that the core gets has full names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from inspect import signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import fields

from muster.structs import replace
from placement import BadInput
from placement.workload.parallelism import AXES
from placement.workload.request import SpareRule
from scheduler.core import JobSpec
from scheduler.core.model.job import SECOND_NS
from scheduler.core.names import NAME_RULE, full_name
from scheduler.core.policies.affinity import ANYBODY
from scheduler.files.errors import InputError, Problem
from scheduler.files.job import job_from_mapping
from scheduler.files.job_keys import parse_spares
from scheduler.v1 import job_pb2
from scheduler.wire.durations import duration
from scheduler.wire.names import parse_job_name

if TYPE_CHECKING:
    from google.protobuf.internal.enum_type_wrapper import _EnumTypeWrapper as EnumTypeWrapper

Member = TypeVar("Member", bound=Enum)
Number = TypeVar("Number", bound=int)
Read: TypeAlias = Callable[[Any], Any]
Fill: TypeAlias = Callable[[Any, Any], None]


def numbers(
    enum: EnumTypeWrapper[Number], prefix: str, members: type[Member]
) -> dict[Member, Number]:
    """Return the wire number of each member of an enum; a member without one fails at import."""
    return {member: enum.Value(f"{prefix}_{member.name}") for member in members}


def spec_from_proto(message: job_pb2.JobSpec) -> JobSpec:
    """Check a specification with the rules of the job file. Cost: 50 us.

    Raises: InputError with every fault found.
    """
    try:
        return job_from_mapping(as_job_keys(message))
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
    spec = _renamed(spec, lambda name: name.removeprefix(f"{spec.tenant}/"))
    message, request = job_pb2.JobSpec(), spec.request
    _fill(message, spec, request)
    _fill(message.constraints, request.where, spec.affinity)
    _fill(message.restarts.on, spec.restarts)
    if request.roles:
        message.ClearField("parallelism")  # the ranks of all roles together
    for role, part in zip(request.roles, message.roles, strict=True):
        runs = [each for each in spec.run.roles if each.name == role.name] if spec.run else []
        constraints = [each for each in request.where.roles if each.role == role.name]
        _fill(part, role.request, *runs, *constraints)
    if spec.min_dp:
        (message.roles[-1] if request.roles else message).parallelism.min_dp = spec.min_dp
    return message


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


# --- by descriptor: fields of messages from values, and as keys of the job file -----------


def _fill(message: Any, *values: Any) -> None:
    """Set the fields of a message that these values have as well, but for those at their
    default."""
    for value in values:
        for name, default, fill in _fillers(message.DESCRIPTOR, value.__class__):
            item = getattr(value, name)
            if item != default:
                fill(message, item)


@cache
def _fillers(kind: Descriptor, of: Any) -> list[tuple[str, Any, Fill]]:
    """The fields of a value of class `of` that messages of this kind have: the name there, the
    default that is left out, and what fills the field."""
    attributes = {each.name: each.default for each in fields(of)}
    return [
        (name, None if field.name in _STATED else attributes[name], _filler(field))
        for field in kind.fields
        if (name := _ATTRIBUTES.get(field.name, _key(field))) in attributes
    ]


def _filler(field: FieldDescriptor) -> Fill:
    name, entry = field.name, _map_entry(field)
    if field.message_type is None or entry:
        convert: Read = _TEXTS.get(name) or _item_converter(entry or field)
        if entry:
            return lambda message, pairs: getattr(message, name).update(
                {key: convert(item) for key, item in pairs}
            )
        if field.is_repeated:
            return lambda message, items: getattr(message, name).extend(map(convert, items))
        return lambda message, value: setattr(message, name, convert(value))
    section = _SECTIONS.get(field.message_type, _fill)

    def fill(message: Any, value: Any) -> None:
        part = getattr(message, name)
        if field.is_repeated:
            for item in value:
                section(part.add(), item)
        else:
            part.SetInParent()
            section(part, value)

    return fill


def _item_converter(field: FieldDescriptor) -> Callable[[Any], Any]:
    if field.enum_type is not None:
        return _words(field.enum_type).__getitem__
    return str if field.type == FieldDescriptor.TYPE_STRING else lambda value: value


def _fill_tier(message: Any, names: tuple[str, tuple[str, ...]]) -> None:
    """Fill a message of a tier and of names of jobs or roles in it."""
    message.tier = names[0]
    getattr(message, message.DESCRIPTOR.fields[1].name).extend(names[1])


def as_job_keys(message: Message) -> dict[str, Any]:
    """Return the fields that are set, by their keys in the job file."""
    readers = _readers(message.DESCRIPTOR)
    mapping = {}
    for field, value in message.ListFields():
        key, read = readers[field.name]
        mapping[key] = read(value)
    return mapping


@cache
def _readers(kind: Descriptor) -> dict[str, tuple[str, Read]]:
    return {field.name: (_key(field), _reader(field)) for field in kind.fields}


def _reader(field: FieldDescriptor) -> Read:
    """Return what makes of the value of a field that of its key."""
    if field.message_type in _TIERS:
        names = field.message_type.fields[1].name
        return lambda tiers: {each.tier: list(getattr(each, names)) for each in tiers}
    entry = _map_entry(field)
    item, may_be_zero = _item_reader(entry or field), not (entry and entry.enum_type)
    if entry:  # in a message pairs have no order, and the word 0 is unspecified
        return lambda pairs: {k: item(v) for k, v in sorted(pairs.items()) if v or may_be_zero}
    return (lambda items: list(map(item, items))) if field.is_repeated else item


def _item_reader(field: FieldDescriptor) -> Read:
    if field.enum_type is not None:
        words = {number: word for word, number in _words(field.enum_type).items()}
        return lambda number: words.get(number, number)
    if field.message_type is not None:
        return _SECTION_READERS.get(field.message_type, as_job_keys)
    return lambda value: value


def _axes(message: job_pb2.Parallelism) -> dict[str, Any]:
    axes = as_job_keys(message)
    if least := axes.pop("min_dp", 0):
        axes["dp"] = {"min": least, "max": axes.get("dp", 1)}
    return axes


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


def _spares_text(rule: SpareRule) -> str:
    """The shortest form that reads back as the same rule."""
    if rule.share is None:
        return str(rule)
    percents = (f"{rule.share * 100:.{digits}g}%" for digits in range(6, 18))
    return next((p for p in percents if parse_spares(p) == rule), f"{rule.share * 100!r}%")


def _key(field: FieldDescriptor) -> str:
    return f"{field.name}_s" if field.message_type is Duration.DESCRIPTOR else field.name


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

# Fields whose attribute of a value has another name than their key.
_ATTRIBUTES = {
    "begin_time": "begin_ns",
    "compute_time": "compute_s",
    "hosts": "labels",
    "max": "most",
    "step_model": "",  # messages leave it to the server
}
# Fields that messages have at their default as well.
_STATED = {*AXES, "order", "dtype", "micro_sequences", "virtual_stages", "spares", "objective"}
_TEXTS: dict[str, Callable[[Any], str]] = {
    "spares": _spares_text,
    "array": lambda array: array.text if array.task is None else "",
}
_TIERS = {job_pb2.Avoid.DESCRIPTOR, job_pb2.RolesByTier.DESCRIPTOR}
_SECTIONS: dict[Descriptor, Fill] = {
    Duration.DESCRIPTOR: lambda message, seconds: message.CopyFrom(duration(seconds)),
    Timestamp.DESCRIPTOR: lambda message, time_ns: message.FromSeconds(time_ns // SECOND_NS),
    job_pb2.ExitCodes.DESCRIPTOR: lambda message, codes: message.codes.extend(codes),
    **dict.fromkeys(_TIERS, _fill_tier),
}
_SECTION_READERS: dict[Descriptor, Read] = {
    Duration.DESCRIPTOR: _seconds,
    Timestamp.DESCRIPTOR: _moment,
    job_pb2.ExitCodes.DESCRIPTOR: lambda message: list(message.codes),
    job_pb2.Parallelism.DESCRIPTOR: _axes,
}
