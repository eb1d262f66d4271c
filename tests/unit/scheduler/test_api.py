"""What the API's descriptors, annotations, stubs and servicers have in common."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.api import annotations_pb2, client_pb2, field_behavior_pb2, resource_pb2

from scheduler.access.methods import METHODS
from scheduler.service.backend import Backend
from scheduler.service.errors import ApiError
from scheduler.service.required import required
from scheduler.service.rpc.cluster.hosts import HostServicer
from scheduler.service.rpc.service import join_servicers, scheduler_service
from scheduler.v1 import fabric_pb2, host_pb2, job_pb2, service_pb2, tenant_pb2, window_pb2
from scripts import apidocs
from tests.cases import case

ROOT = Path(__file__).resolve().parents[3]
SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
CHANGES = [m for m in SERVICE.methods if METHODS[f"/{SERVICE.full_name}/{m.name}"].is_change]
BY_NAME = {method.name: method for method in SERVICE.methods}
VERBS = {"Get": "get", "List": "get", "Watch": "get", "Update": "patch", "Delete": "delete"}
PAGES = [m for m in SERVICE.methods if "page_token" in m.input_type.fields_by_name]
WATCHES = [m for m in SERVICE.methods if m.name.startswith("Watch")]
RESOURCES = [job_pb2.Job, host_pb2.Host, window_pb2.Window, tenant_pb2.Tenant, fabric_pb2.Fabric]
# Facts that a monitor states, or jobs and windows that are not there yet: of no etag.
NO_ETAG = {"CreateJob", "CreateWindow", "ReportHost", "ReportHosts", "ReportLink"}


def names(message: Any) -> set[str]:
    return set(message.fields_by_name)


def test_a_change_can_be_repeated_checked_and_tied_to_what_is_known() -> None:
    for method in CHANGES:
        with case(method=method):
            asked = names(method.input_type)
            assert "validate_only" in asked
            each = method.input_type.fields_by_name.get("reports")
            assert "request_id" in (names(each.message_type) if each else asked)
            changed = asked & {"job", "window"} if method.name.startswith("Update") else set()
            for field in changed:
                asked |= names(method.input_type.fields_by_name[field].message_type)
            assert method.name in NO_ETAG or "etag" in asked
            assert ("update_mask" in asked) == method.name.startswith("Update")


def test_a_list_comes_in_pages_of_one_version() -> None:
    for method in PAGES:
        with case(method=method.name):
            assert {"page_size", "page_token"} <= names(method.input_type)
            assert {"next_page_token", "version"} <= names(method.output_type)
            # A line for each outermost domain; the failures of some days.
            is_short = method.name in ("ListSpares", "ListIncidents")
            assert is_short or "filter" in names(method.input_type)
    listed = {name for name in BY_NAME if name.startswith("List")}
    assert listed - {m.name for m in PAGES} == {"ListSlots", "ListStepTimes"}  # no resources


def test_a_watch_resumes_from_a_version() -> None:
    for method in WATCHES:
        with case(method=method.name):
            after = method.input_type.fields_by_name["after_version"]
            assert after.has_presence  # 0 is another thing than none
            assert {"version", "change_time"} <= names(method.output_type)


def test_a_resource_says_which_one_it_is_and_is_answered_itself() -> None:
    verbs = ("Get", "Create", "Update", "Cancel", "End", "Cordon")
    for resource in RESOURCES:
        name = resource.DESCRIPTOR.name
        with case(resource=name):
            has = names(resource.DESCRIPTOR)
            assert {"name", "uid", "create_time", "update_time", "version", "etag"} <= has
            assert f"Get{name}" in BY_NAME
            methods = [m for verb in verbs if (m := BY_NAME.get(f"{verb}{name}"))]
            assert {m.output_type.full_name for m in methods} == {f"scheduler.v1.{name}"}


def test_times_that_last_are_durations() -> None:
    files = {m.DESCRIPTOR.file for m in (*RESOURCES, service_pb2.GetJobRequest)}
    for message in (each for file in files for each in file.message_types_by_name.values()):
        for field in message.fields:
            is_time = field.name.endswith(("_s", "_ms", "_seconds"))
            assert not is_time or field.name.endswith("_per_s"), field.full_name


def behaviours(field: Any) -> set[str]:
    found = field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    return {field_behavior_pb2.FieldBehavior.Name(number) for number in found}


def has(kind: Any, path: str) -> bool:
    """Whether `path` names a field of such a message."""
    name, _, rest = path.partition(".")
    field = kind.fields_by_name.get(name)
    return field is not None and (not rest or has(field.message_type, rest))


def test_a_method_has_an_http_path_of_its_own_and_its_signature() -> None:
    paths = set[tuple[str, str]]()
    for name, method in BY_NAME.items():
        with case(name=name):
            options, kind = method.GetOptions(), method.input_type
            rule = options.Extensions[annotations_pb2.http]
            verb = str(rule.WhichOneof("pattern"))
            (first,) = re.findall("^[A-Z][a-z]+", name)
            assert verb == VERBS.get(first, "post" if rule.body else "get")
            assert all(has(kind, path) for path in re.findall(r"\{([\w.]+)", getattr(rule, verb)))
            assert rule.body in ("", "*") or has(kind, rule.body)
            (signature,) = options.Extensions[client_pb2.method_signature]
            given = [path for path in signature.split(",") if path]
            assert all(has(kind, path) for path in given)
            assert required(kind) <= set(given)
            paths.add((verb, getattr(rule, verb)))
    assert len(paths) == len(BY_NAME)


def test_a_field_of_a_request_is_required_or_optional_as_its_comment_says() -> None:
    said = dict(apidocs.entries())
    for name, method in BY_NAME.items():
        with case(name=name):
            for field in method.input_type.fields:
                wanted = "REQUIRED" if "Required." in said[field.full_name] else "OPTIONAL"
                assert behaviours(field) == {wanted}, field.full_name


def test_a_resource_says_what_its_name_is_and_what_it_only_answers() -> None:
    for kind in [job_pb2.Job, host_pb2.Host, tenant_pb2.Tenant, window_pb2.Window]:
        said = kind.DESCRIPTOR.GetOptions().Extensions[resource_pb2.resource]
        assert said.type == f"muster/{kind.DESCRIPTOR.name}"
        assert said.plural == f"{said.singular}s"
        fields = {field.name: behaviours(field) for field in kind.DESCRIPTOR.fields}
        assert fields["name"] == {"IDENTIFIER"}
        assert fields["create_time"] == fields["version"] == {"OUTPUT_ONLY"}
        assert all(fields.values())


def test_stubs_are_made_for_the_protobuf_that_the_solver_pins() -> None:
    for module in (ROOT / "scheduler" / "v1").glob("*_pb2.py"):
        with case(module=module):
            assert "\n# Protobuf Python Version: 6.33." in module.read_text()


@pytest.mark.slow
def test_stubs_have_not_drifted() -> None:
    check = [sys.executable, str(ROOT / "scripts" / "stubs.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_everything_has_a_sentence_for_the_caller() -> None:
    said = dict(apidocs.entries())
    assert len(said) > 300
    bare = [name for name, text in said.items() if not text.endswith(".")]
    assert bare == []


def test_every_method_of_the_service_has_one_servicer() -> None:
    service = scheduler_service(Backend(), lambda: "uid")
    assert set(vars(service)) == BY_NAME.keys()
    with pytest.raises(TypeError, match="CreateJob is defined by no servicer"):
        join_servicers([HostServicer(Backend())])
    first, second = (type(name, (), {"CreateJob": str})() for name in ("A", "B"))
    with pytest.raises(TypeError, match="CreateJob is defined by A, B"):
        join_servicers([first, second])


def test_a_backend_without_a_writer_says_that_the_server_starts() -> None:
    backend = Backend()
    assert backend.state is None
    with pytest.raises(ApiError, match="it is replaying its log"):
        _ = backend.writer
