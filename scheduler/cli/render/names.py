"""Names of jobs as the command line takes them: NAME of the default tenant, else TENANT/NAME."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, TypeVar

from google.api import field_behavior_pb2, resource_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from placement import BadInput
from scheduler.core.names import DEFAULT_TENANT
from scheduler.wire.names import parse_job_name

SomeMessage = TypeVar("SomeMessage", bound=Message)

_JOB, _ANY = "muster/Job", "*"
_OF_DEFAULT = re.compile(rf"(?<![\w./-]){DEFAULT_TENANT}/(?=[A-Za-z0-9])")


def as_typed(message: SomeMessage) -> SomeMessage:
    """Return a copy of an answer in which jobs have the names that users type, in fields and in
    sentences."""
    copy = type(message)()
    copy.CopyFrom(message)
    _rename(copy)
    return copy


def typed(name: str) -> str:
    """Return the name that users type, `vision/a` for `tenants/vision/jobs/a`; other texts stay."""
    try:
        tenant, short = parse_job_name(name)
    except BadInput:
        return name
    return f"{tenant}/{short}" if tenant and tenant != DEFAULT_TENANT else short


def _rename(message: Any) -> None:
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_STRING:
            convert = typed if _is_job(field) else _in_sentence
            if not field.is_repeated:
                setattr(message, field.name, convert(value))
            elif convert is typed:
                names = list(map(typed, value))
                del value[:]
                value.extend(names)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field):
            for inner in value if field.is_repeated else (value,):
                _rename(inner)


def _in_sentence(text: str) -> str:
    return _OF_DEFAULT.sub("", text)


def _is_job(field: FieldDescriptor) -> bool:
    return field.name in _job_fields(field.containing_type)


@cache
def _job_fields(kind: Descriptor) -> frozenset[str]:
    """Fields of such messages that name jobs, by their annotations."""
    is_job = kind.GetOptions().Extensions[resource_pb2.resource].type == _JOB
    return frozenset(
        field.name
        for field in kind.fields
        if field.GetOptions().Extensions[resource_pb2.resource_reference].type in (_JOB, _ANY)
        or (
            is_job
            and field_behavior_pb2.IDENTIFIER
            in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
        )
    )


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
