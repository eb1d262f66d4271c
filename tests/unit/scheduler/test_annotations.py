"""What the google.api annotations of the API say holds together."""

import re
from typing import Any

import pytest
from google.api import annotations_pb2, client_pb2, field_behavior_pb2, resource_pb2

from scheduler.service.required import required
from scheduler.v1 import host_pb2, job_pb2, service_pb2, tenant_pb2, window_pb2
from scripts import apidocs
from tests.cases import case

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
METHODS = {method.name: method for method in SERVICE.methods}
VERBS = {"Get": "get", "List": "get", "Watch": "get", "Update": "patch", "Delete": "delete"}


def behaviours(field: Any) -> set[str]:
    found = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return {field_behavior_pb2.FieldBehavior.Name(number) for number in found}


def has(kind: Any, path: str) -> bool:
    """Whether `path` names a field of such a message."""
    name, _, rest = path.partition(".")
    field = kind.fields_by_name.get(name)
    return field is not None and (not rest or has(field.message_type, rest))


def test_a_method_has_its_http_path_and_its_signature() -> None:
    for name in METHODS:
        with case(name=name):
            options, kind = METHODS[name].GetOptions(), METHODS[name].input_type
            rule = options.Extensions[annotations_pb2.http]
            verb = str(rule.WhichOneof("pattern"))
            assert verb == VERBS.get(
                re.match("[A-Z][a-z]+", name)[0], "get" if not rule.body else "post"
            )  # type: ignore[index]
            assert all(has(kind, path) for path in re.findall(r"\{([\w.]+)", getattr(rule, verb)))
            assert rule.body in ("", "*") or has(kind, rule.body)
            (signature,) = options.Extensions[client_pb2.method_signature]
            given = [path for path in signature.split(",") if path]
            assert all(has(kind, path) for path in given)
            assert required(kind) <= set(given)


def test_no_two_methods_have_the_same_http_path() -> None:
    rules = [method.GetOptions().Extensions[annotations_pb2.http] for method in METHODS.values()]
    paths = [(verb := rule.WhichOneof("pattern"), getattr(rule, verb)) for rule in rules]
    assert len(set(paths)) == len(METHODS)


def test_a_field_of_a_request_is_required_or_optional_as_its_comment_says() -> None:
    for name in METHODS:
        with case(name=name):
            said = dict(apidocs.entries())
            for field in METHODS[name].input_type.fields:
                wanted = "REQUIRED" if "Required." in said[field.full_name] else "OPTIONAL"
                assert behaviours(field) == {wanted}, field.full_name


@pytest.mark.parametrize("kind", [job_pb2.Job, host_pb2.Host, tenant_pb2.Tenant, window_pb2.Window])
def test_a_resource_says_what_its_name_is_and_what_it_only_answers(kind: Any) -> None:
    said = kind.DESCRIPTOR.GetOptions().Extensions[resource_pb2.resource]
    assert said.type == f"muster/{kind.DESCRIPTOR.name}"
    assert said.plural == f"{said.singular}s"
    fields = {field.name: behaviours(field) for field in kind.DESCRIPTOR.fields}
    assert fields["name"] == {"IDENTIFIER"}
    assert fields["create_time"] == fields["version"] == {"OUTPUT_ONLY"}
    assert all(fields.values())
