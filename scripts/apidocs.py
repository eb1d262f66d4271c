"""Write docs/api.md from proto/; --check says whether it is current.

Reads what protoc makes of the files, comments included, so the page and the stubs
cannot say different things.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from google.api import annotations_pb2
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from scheduler.access.methods import ANY_CALL, ANY_CHANGE, METHODS, MethodRule
from scheduler.service.errors import RULES, word
from scripts.stubs import PROTO, describe

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
PACKAGE = "scheduler.v1"

# Numbers of fields in descriptor.proto, of which paths to a comment are made.
_MESSAGES, _ENUMS, _SERVICES = 4, 5, 6
_FIELDS, _VALUES, _METHODS = 2, 2, 2
_PACKAGE = 2

_KINDS = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
}


@dataclass(frozen=True)
class File:
    """One .proto file and the comment of everything in it, by path."""

    proto: FileDescriptorProto
    comments: dict[tuple[int, ...], str] = field(default_factory=dict)

    def comment(self, *path: int) -> str:
        return self.comments.get(path, "")


@cache
def files() -> tuple[File, ...]:
    """The files of the package, compiled with their comments."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "set"
        describe(PROTO, out)
        descriptors = FileDescriptorSet.FromString(out.read_bytes())
    return tuple(
        File(proto, _comments(proto)) for proto in descriptors.file if proto.package == PACKAGE
    )


def _comments(proto: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """By path; that of the whole file stands above its package."""
    return {
        tuple(place.path): " ".join(place.leading_comments.split())
        for place in proto.source_code_info.location
        if place.leading_comments
    }


def entries() -> Iterator[tuple[str, str]]:
    """Every message, field, enum, value, service and method: full name and comment."""
    for file in files():
        for m, message in enumerate(file.proto.message_type):
            yield from _of_message(file, message, (_MESSAGES, m), PACKAGE)
        for e, enum in enumerate(file.proto.enum_type):
            yield f"{PACKAGE}.{enum.name}", file.comment(_ENUMS, e)
            for v, value in enumerate(enum.value):
                yield f"{PACKAGE}.{value.name}", file.comment(_ENUMS, e, _VALUES, v)
        for s, service in enumerate(file.proto.service):
            yield f"{PACKAGE}.{service.name}", file.comment(_SERVICES, s)
            for m, method in enumerate(service.method):
                name = f"{PACKAGE}.{service.name}.{method.name}"
                yield name, file.comment(_SERVICES, s, _METHODS, m)


def _of_message(
    file: File, message: DescriptorProto, path: tuple[int, ...], scope: str
) -> Iterator[tuple[str, str]]:
    name = f"{scope}.{message.name}"
    yield name, file.comment(*path)
    for f, member in enumerate(message.field):
        yield f"{name}.{member.name}", file.comment(*path, _FIELDS, f)


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE.name} is not what proto/ says: run `make stubs`", file=sys.stderr)
    return 1


def page() -> str:
    """The whole of docs/api.md."""
    parts = [
        "# The API",
        "",
        "Made by `make stubs` from `proto/scheduler/v1`: do not edit this page.",
        f"The package is `{PACKAGE}`; `scheduler.client.Client` has a method for each call.",
        "",
    ]
    whole = files()
    for file in whole:
        for s, service in enumerate(file.proto.service):
            parts += _service(file, s, service)
    parts += _errors()
    for file in sorted(whole, key=lambda f: not f.proto.service):
        parts += _file(file)
    return "\n".join(parts).rstrip() + "\n"


def _service(file: File, s: int, service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"## {service.name}"
    yield ""
    yield file.comment(_SERVICES, s)
    yield ""
    for m, method in enumerate(service.method):
        request, answer = _local(method.input_type), _local(method.output_type)
        taken = "a stream of " if method.client_streaming else ""
        stream = "a stream of " if method.server_streaming else ""
        yield f"### {method.name}"
        yield ""
        yield file.comment(_SERVICES, s, _METHODS, m)
        yield ""
        signature = f"Takes {taken}{_link(request)}, answers {stream}{_link(answer)}."
        yield f"{signature} {_http(method)}".rstrip()
        yield ""
        rule = METHODS.get(f"/{PACKAGE}.{service.name}/{method.name}")
        yield _access(rule) if rule else "For agents: a port of its own, see docs/launch.md."
        yield ""


def _http(method: MethodDescriptorProto) -> str:
    """The call through a gateway that reads google.api.http."""
    rule = method.options.Extensions[annotations_pb2.http]
    verb = rule.WhichOneof("pattern")
    if verb is None:
        return ""
    body = f" with {'the request' if rule.body == '*' else f'`{rule.body}`'} as its body"
    return f"By HTTP: `{verb.upper()} {getattr(rule, verb)}`{body if rule.body else ''}."


def _access(rule: MethodRule) -> str:
    """Who may call it, and how it may end."""
    assert rule.role is not None
    who = f"For the role {rule.role.name.lower()} and those above."
    own = f"as {_words(rule.refused)}, and " if rule.refused else ""
    any_ = f"any {'change' if rule.is_change else 'call'} ([errors](#errors))"
    return f"{who} May be refused {own}as {any_}."


def _words(reasons: Iterable[str]) -> str:
    return ", ".join(f"`{reason}`" for reason in reasons)


def _errors() -> Iterator[str]:
    """The closed list, with what it comes as."""
    said = {name.rpartition(".")[2]: text for name, text in entries()}
    yield "## Errors"
    yield ""
    yield said["ErrorReason"]
    yield ""
    yield f"Any call may end as {_words(ANY_CALL)}; any change as {_words(ANY_CHANGE)} as well."
    yield ""
    yield "| Reason | Code | Try again after | |"
    yield "|---|---|---|---|"
    for reason, rule in RULES.items():
        name = word(reason)
        retry = "" if rule.retry_s is None else f"{rule.retry_s:g} s"
        yield f"| `{name}` | {rule.code.name} | {retry} | {said[f'ERROR_REASON_{name}']} |"
    yield ""


def _file(file: File) -> Iterator[str]:
    yield f"## {Path(file.proto.name).name}"
    yield ""
    yield file.comment(_PACKAGE)
    yield ""
    for m, message in enumerate(file.proto.message_type):
        yield from _message(file, m, message)
    for e, enum in enumerate(file.proto.enum_type):
        yield from _enum(file, e, enum)


def _message(file: File, m: int, message: DescriptorProto) -> Iterator[str]:
    yield f"### {message.name}"
    yield ""
    yield file.comment(_MESSAGES, m)
    yield ""
    if not message.field:
        return
    yield "| Field | Type | |"
    yield "|---|---|---|"
    for f, member in enumerate(message.field):
        said = file.comment(_MESSAGES, m, _FIELDS, f)
        yield f"| `{member.name}` | {_kind(message, member)} | {_cell(said)} |"
    yield ""


def _enum(file: File, e: int, enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"### {enum.name}"
    yield ""
    yield file.comment(_ENUMS, e)
    yield ""
    yield "| Value | Number | |"
    yield "|---|---|---|"
    for v, value in enumerate(enum.value):
        said = file.comment(_ENUMS, e, _VALUES, v)
        yield f"| `{value.name}` | {value.number} | {_cell(said)} |"
    yield ""


def _kind(message: DescriptorProto, member: FieldDescriptorProto) -> str:
    for nested in message.nested_type:
        if nested.options.map_entry and member.type_name.endswith(f".{message.name}.{nested.name}"):
            key, value = (_kind(nested, part) for part in nested.field)
            return f"map of {key} to {value}"
    plain = _link(_local(member.type_name)) if member.type_name else _KINDS[member.type]
    if member.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {plain}"
    if member.proto3_optional:
        return f"optional {plain}"
    return plain


def _local(name: str) -> str:
    return name.removeprefix(f".{PACKAGE}.").removeprefix(".")


def _link(name: str) -> str:
    return f"`{name}`" if "." in name else f"[{name}](#{name.lower()})"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
