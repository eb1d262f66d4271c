"""What every resource and every method of the API has, read off the descriptors."""

from typing import Any

import pytest

from scheduler.access.methods import METHODS
from scheduler.v1 import fabric_pb2, host_pb2, job_pb2, service_pb2, tenant_pb2, window_pb2
from tests.cases import case

SERVICE = service_pb2.DESCRIPTOR.services_by_name["SchedulerService"]
CHANGES = [m for m in SERVICE.methods if METHODS[f"/{SERVICE.full_name}/{m.name}"].is_change]
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
            resource = next(
                (f for f in ("job", "window") if f in asked and "Update" in method.name), ""
            )
            of = method.input_type.fields_by_name[resource].message_type if resource else None
            each = (
                method.input_type.fields_by_name["reports"]
                if method.name == "ReportHosts"
                else None
            )
            assert "request_id" in (names(each.message_type) if each else asked)
            if method.name not in NO_ETAG:
                assert "etag" in (names(of) if of else asked)
            assert ("update_mask" in asked) == method.name.startswith("Update")


@pytest.mark.parametrize("method", PAGES, ids=lambda m: m.name)
def test_a_list_comes_in_pages_of_one_version(method: Any) -> None:
    assert {"page_size", "page_token"} <= names(method.input_type)
    assert {"next_page_token", "version"} <= names(method.output_type)
    # A line for each outermost domain; the failures of some days.
    if method.name not in ("ListSpares", "ListIncidents"):
        assert "filter" in names(method.input_type)


def test_what_is_listed_of_resources_is_a_page() -> None:
    listed = {m.name for m in SERVICE.methods if m.name.startswith("List")}
    assert listed - {m.name for m in PAGES} == {"ListSlots", "ListStepTimes"}  # no resources


@pytest.mark.parametrize("method", WATCHES, ids=lambda m: m.name)
def test_a_watch_resumes_from_a_version(method: Any) -> None:
    after = method.input_type.fields_by_name["after_version"]
    assert after.has_presence  # 0 is another thing than none
    assert {"version", "change_time"} <= names(method.output_type)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.DESCRIPTOR.name)
def test_a_resource_says_which_one_it_is_and_since_when(resource: Any) -> None:
    has = names(resource.DESCRIPTOR)
    assert {"uid", "create_time", "version"} <= has
    assert {"name"} <= has
    assert {"update_time", "etag"} <= has
    name = resource.DESCRIPTOR.name
    assert f"Get{name}" in SERVICE.methods_by_name


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda r: r.DESCRIPTOR.name)
def test_a_resource_that_is_got_made_or_changed_is_answered_itself(resource: Any) -> None:
    name, verbs = resource.DESCRIPTOR.name, ("Get", "Create", "Update", "Cancel", "End", "Cordon")
    methods = [m for verb in verbs if (m := SERVICE.methods_by_name.get(f"{verb}{name}"))]
    assert methods
    assert {method.output_type.full_name for method in methods} == {f"scheduler.v1.{name}"}


def test_times_that_last_are_durations() -> None:
    files = {m.DESCRIPTOR.file for m in (*RESOURCES, service_pb2.GetJobRequest)}
    for message in (each for file in files for each in file.message_types_by_name.values()):
        for field in message.fields:
            is_time = field.name.endswith(("_s", "_ms", "_seconds"))
            assert not is_time or field.name.endswith("_per_s"), field.full_name
