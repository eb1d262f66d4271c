"""DCGM's JSON: what it says of each host, and where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.healthfiles.dcgm import SYSTEMS, load_dcgm
from scheduler.healthfiles.found import Found
from scheduler.problems import InputError


def read(tmp_path: Path, value: Any) -> list[Found]:
    path = tmp_path / "dcgm.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
    return load_dcgm(str(path))


def wrong(tmp_path: Path, value: Any) -> tuple[str, int]:
    with pytest.raises(InputError) as caught:
        read(tmp_path, value)
    return caught.value.found[0].field, caught.value.found[0].line


def health(system: str, status: str, gpu: str = "3") -> dict[str, Any]:
    node = {"children": {"Health": {"value": status}, "Errors": {"value": "words"}}}
    return {"body": {"GPU": {"children": {gpu: {"children": {system: node}}}}}}


def diagnosis(*results: dict[str, Any]) -> dict[str, Any]:
    tests = [{"name": "GPU Memory", "results": list(results)}]
    return {"DCGM GPU Diagnostic": {"test_categories": [{"category": "HW", "tests": tests}]}}


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_has_a_signal_for_failures_and_for_warnings(
    tmp_path: Path, system: str
) -> None:
    for status, signal in zip(("Failure", "Warning"), SYSTEMS[system], strict=True):
        (found,) = read(tmp_path, {"n1": health(f"{system.upper()} system", status)})
        assert (found.host, found.signal, found.gpu, found.detail) == ("n1", signal, 3, "words")
        assert found.line > 1
    assert read(tmp_path, {"n1": health(system, "Healthy")}) == []


def test_a_diagnosis_fails_or_passes(tmp_path: Path) -> None:
    fail = {"gpu_id": "1", "status": "Fail", "warnings": [{"warning": "DBE found"}]}
    (found,) = read(tmp_path, {"n1": diagnosis({"gpu_id": "0", "status": "Pass"}, fail)})
    assert (found.signal, found.gpu) == ("stress-test-failed", 1)
    assert found.detail == "dcgmi diag GPU Memory; DBE found"
    (found,) = read(tmp_path, {"n1": diagnosis({"gpu_ids": "0,1", "status": "Pass"})})
    assert (found.signal, found.gpu) == ("stress-test-passed", None)
    assert read(tmp_path, {"n1": diagnosis({"status": "Skip"})}) == []


def test_fields_say_by_themselves_what_is_wrong(tmp_path: Path) -> None:
    values = {"DCGM_FI_DEV_XID_ERRORS": 79, "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0}
    (found,) = read(tmp_path, {"n1": {"fields": {"2": values}}})
    assert (found.signal, found.xid, found.gpu) == ("xid", 79, 2)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ([], ""),
        ({"n1": 3}, "n1"),
        ({"n1": health("Quantum system", "Failure")}, "n1.body.GPU.children.3.children"),
        ({"n1": health("Memory", "Odd")}, "n1.body.GPU.children.3.children.Memory"),
        ({"n1": health("Memory", "Failure", "x")}, "n1.body.GPU.children.x"),
        ({"n1": diagnosis({"status": "Maybe"})}, "n1.DCGM GPU Diagnostic.test_categories.0"),
        ({"n1": {"fields": {"0": {"DCGM_FI_DEV_GPU_TEMP": 3}}}}, "n1.fields.0.DCGM"),
        ({"n1": {"fields": {"0": {"DCGM_FI_DEV_XID_ERRORS": -1}}}}, "n1.fields.0.DCGM"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, value: Any, field: str) -> None:
    found, line = wrong(tmp_path, value)
    assert found.startswith(field)
    assert line >= (1 if field else 0)


def test_what_is_no_json_is_named_with_its_line(tmp_path: Path) -> None:
    assert wrong(tmp_path, '{"n1":\n  oops}') == ("", 2)
