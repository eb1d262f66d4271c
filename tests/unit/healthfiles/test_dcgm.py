"""DCGM's JSON: what it says of each host, and where something is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from importers.health.dcgm import SYSTEMS, load_dcgm
from scheduler.files.errors import InputError, Problem
from scheduler.files.health.found import ImportedReport


def read(tmp_path: Path, value: Any) -> list[ImportedReport]:
    path = tmp_path / "dcgm.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
    return load_dcgm(str(path))


def wrong(tmp_path: Path, value: Any) -> Problem:
    with pytest.raises(InputError) as caught:
        read(tmp_path, value)
    return caught.value.found[0]


def health(
    system: str, status: str, number: str = "3", group: str = "GPU", words: tuple[str, ...] = ()
) -> dict[str, Any]:
    """As dcgmi builds it: every box has a value, words that overflow it, and boxes within."""
    told = {"value": status} | ({"overflow": list(words)} if words else {})
    entity = {"value": status, "children": {"Errors": {"children": {system: told}}}}
    body = {"Overall Health": {"value": status}, group: {"children": {number: entity}}}
    return {"body": body, "header": ["Health Monitor Report"]}


def said(groups: dict[str, Any], overall: str = "Healthy") -> dict[str, Any]:
    return {"n1": {"body": {"Overall Health": {"value": overall}, **groups}}}


def diagnosis(*results: dict[str, Any], category: str = "Stress", **test: Any) -> dict[str, Any]:
    """DCGM 2 and 3; `test`: what a test has beside."""
    tests = [{"name": "Targeted Power", "results": list(results), **test}]
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": category, "tests": tests}]}}


def diagnosis_4(test: dict[str, Any]) -> dict[str, Any]:
    groups = [{"entity_group": "GPU", "entity_group_id": 1, "entities": [{"entity_id": 0}]}]
    tests = {"test_categories": [{"category": "Stress", "tests": [{"name": "memtest", **test}]}]}
    return {"DCGM Diagnostic": tests, "entity_groups": groups, "metadata": {"version": "4.2.0"}}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_has_a_signal_for_failures_and_for_warnings(
    tmp_path: Path, system: str
) -> None:
    for status, signal in zip(("Failure", "Warning"), SYSTEMS[system], strict=True):
        report = health(f"{system.upper()} system", status, words=("a few", "words"))
        (found,) = read(tmp_path, {"n1": report})
        assert (found.host, found.signal, found.gpu) == ("n1", signal, 3)
        assert found.detail == "a few words"
        assert found.line > 1
    assert read(tmp_path, {"n1": health(system, "Healthy")}) == []


def test_what_is_no_gpu_has_no_number_of_one(tmp_path: Path) -> None:
    (found,) = read(tmp_path, {"n1": health("ConnectX system", "Failure", "0", "ConnectX")})
    assert (found.signal, found.gpu) == ("nic-down", None)


@pytest.mark.parametrize(
    "warnings", ["DBE found", ["DBE found"], [{"warning": "DBE found", "error_id": 2}]]
)
def test_a_diagnosis_fails_or_passes(tmp_path: Path, warnings: Any) -> None:
    fail = {"gpu_id": "1", "status": "Fail", "warnings": warnings}
    (found,) = read(tmp_path, {"n1": diagnosis({"gpu_id": "0", "status": "Pass"}, fail)})
    assert (found.signal, found.gpu) == ("stress-test-failed", 1)
    assert found.detail == "dcgmi diag Targeted Power; DBE found"
    (found,) = read(tmp_path, {"n1": diagnosis({"gpu_ids": "0,1", "status": "Pass"})})
    assert (found.signal, found.gpu) == ("stress-test-passed", None)
    assert read(tmp_path, {"n1": diagnosis({"status": "Skip"})}) == []


def test_a_diagnosis_without_stress_tests_passes_none(tmp_path: Path) -> None:
    quick = diagnosis({"gpu_id": "0", "status": "Pass"}, category="Deployment")
    assert read(tmp_path, {"n1": quick}) == []
    quick = diagnosis({"status": "Fail"}, category="Deployment")
    assert [found.signal for found in read(tmp_path, {"n1": quick})] == ["stress-test-failed"]


def test_results_of_dcgm_4_name_entities_and_have_a_summary(tmp_path: Path) -> None:
    gpu = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 5}
    failed = {"results": [{**gpu, "status": "Fail"}], "test_summary": {"status": "Fail"}}
    (found,) = read(tmp_path, {"n1": diagnosis_4(failed)})
    assert (found.signal, found.gpu) == ("stress-test-failed", 5)
    cpu = {"entity_group": "CPU", "entity_group_id": 7, "entity_id": 0, "status": "Fail"}
    (found,) = read(tmp_path, {"n1": diagnosis_4({"results": [cpu]})})
    assert (found.signal, found.gpu) == ("stress-test-failed", None)
    (found,) = read(tmp_path, {"n1": diagnosis_4({"test_summary": {"status": "Fail"}})})
    assert (found.signal, found.gpu) == ("stress-test-failed", None)
    assert read(tmp_path, {"n1": diagnosis_4({})}) == []  # it was not run
    passed = {"results": [{**gpu, "status": "Pass"}], "test_summary": {"status": "Pass"}}
    assert [f.signal for f in read(tmp_path, {"n1": diagnosis_4(passed)})] == ["stress-test-passed"]


@pytest.mark.parametrize(
    ("values", "reports"),
    [
        ({"GPU_TEMP": 90, "SLOWDOWN_TEMP": 90}, ["thermal 90 C, the limit is 90 C"]),
        ({"GPU_TEMP": 89, "SLOWDOWN_TEMP": 90}, []),
        ({"MEM_MAX_OP_TEMP": 95, "MEMORY_TEMP": 99}, ["thermal 99 C, the limit is 95 C"]),
        ({"CLOCK_THROTTLE_REASONS": 0x20}, ["thermal clocks slowed by heat"]),
        ({"CLOCKS_EVENT_REASONS": 0x60}, ["thermal clocks slowed by heat, halved by heat"]),
        ({"CLOCKS_EVENT_REASONS": 0x1 | 0x4}, []),  # idle, or at its power limit
        (
            {"CLOCKS_EVENT_REASONS": 0x40 | 0x80},
            ["thermal clocks halved by heat", "power-fault clocks halved by power brake"],
        ),
    ],
)
def test_heat_is_a_thermal_signal_and_a_power_brake_a_fault_of_power(
    tmp_path: Path, values: dict[str, int], reports: list[str]
) -> None:
    fields = {f"DCGM_FI_DEV_{name}": value for name, value in values.items()}
    found = read(tmp_path, {"n1": {"fields": {"2": fields}}})
    assert [f"{each.signal} {each.detail.removeprefix('dcgm: ')}" for each in found] == reports
    assert {each.gpu for each in found} <= {2}


def test_fields_say_by_themselves_what_is_wrong(tmp_path: Path) -> None:
    values = {"DCGM_FI_DEV_XID_ERRORS": 79, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0}
    (found,) = read(tmp_path, {"n1": {"fields": {"2": values}}})
    assert (found.signal, found.xid, found.gpu) == ("xid", 79, 2)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"n1": health("Quantum system", "Failure")}, "n1.body.GPU.children.3.children.Errors"),
        ({"n1": health("Memory", "Failure", "x")}, "n1.body.GPU.children.x"),
        (
            said({"GPU": {"children": {"0": {"children": {"Faults": {}}}}}}),
            "n1.body.GPU.children.0",
        ),
        (said({}, "Failure"), "n1.body.Overall Health"),
        ({"n1": diagnosis_4({"outcomes": [{"status": "Fail"}]})}, "n1.DCGM Diagnostic.test_cat"),
        ({"n1": diagnosis({"status": "Maybe"})}, "n1.DCGM GPU Diagnostic.test_categories.0"),
        ({"n1": {"fields": {"0": {"DCGM_FI_DEV_GPU_TEMP": 3}}}}, "n1.fields.0.DCGM"),
        ({"n1": {"fields": {"0": {"DCGM_FI_DEV_XID_ERRORS": -1}}}}, "n1.fields.0.DCGM"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, value: Any, field: str) -> None:
    found = wrong(tmp_path, value)
    assert found.field.startswith(field)
    assert found.line >= 1
    assert ("maker's limit" in found.message) == ("GPU_TEMP" in str(value))


def test_what_is_no_json_of_hosts_is_refused(tmp_path: Path) -> None:
    assert wrong(tmp_path, []).field == ""
    assert wrong(tmp_path, '{"n1":\n  oops}').line == 2
