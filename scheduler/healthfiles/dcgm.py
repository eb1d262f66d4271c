"""What DCGM says of many hosts, as JSON: one object with a report for each host name.

    {"z0-r000-h0": <dcgmi health -c -j>,
     "z0-r000-h1": <dcgmi diag -r 3 -j>,
     "z0-r001-h0": {"fields": {"0": {"DCGM_FI_DEV_XID_ERRORS": 79}}}}

DCGM itself knows one host, so that whoever collects its answers puts the name before each.
Of a diagnosis every failed test is a failed stress test, and one without failures a passed
one. Of fields those are read that say by themselves that something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduler import strictyaml
from scheduler.fabricfiles.jsonfile import JsonFile
from scheduler.healthfiles.found import Found
from scheduler.problems import InputError, line_of

# System of `dcgmi health` -> signal of a failure, and of a warning.
SYSTEMS: Final[dict[str, tuple[str, str]]] = {
    "memory": ("ecc-uncorrectable", "ecc-correctable"),
    "sm": ("sram-uncorrectable", "sram-correctable"),
    "pcie": ("pcie-degraded", "pcie-degraded"),
    "nvlink": ("nvlink-down", "nvlink-errors"),
    "nvswitch": ("nvlink-down", "nvlink-errors"),
    "thermal": ("thermal", "thermal"),
    "power": ("predicted-failure", "thermal"),
    "inforom": ("predicted-failure", "predicted-failure"),
    "mcu": ("predicted-failure", "predicted-failure"),
    "pmu": ("predicted-failure", "predicted-failure"),
    "driver": ("gpu-lost", "predicted-failure"),
}
FIELDS: Final = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "ecc-uncorrectable",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "row-remap-failure",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "row-remap-pending",
}
XIDS: Final = "DCGM_FI_DEV_XID_ERRORS"
_FINE, _WARNING, _FAILURE = "healthy", "warning", "failure"
_DIAGNOSES: Final = ("DCGM GPU Diagnostic", "DCGM Diagnostic")


def load_dcgm(path: str) -> list[Found]:
    """Raises: InputError naming line and field."""
    file = JsonFile.load(path)
    if not isinstance(file.value, dict) or not file.value:
        raise file.error("", "must be an object with a report for each host name")
    found = [one for host, report in file.value.items() for one in _report(file, host, report)]
    lines = _lines(file.text) if found else {}
    return [
        Found(f.host, line_of(lines, f.field), f.field, f.signal, f.detail, f.gpu, f.xid)
        for f in found
    ]


def _lines(text: str) -> Mapping[str, int]:
    try:
        return strictyaml.parse(text).lines
    except InputError:
        return {}


def _report(file: JsonFile, host: str, report: Any) -> Iterator[Found]:
    if isinstance(report, dict):
        for title in _DIAGNOSES:
            if title in report:
                yield from _diagnosis(file, host, f"{host}.{title}", report[title])
                return
        if "body" in report:
            yield from _health(file, host, report["body"])
            return
        if "fields" in report:
            yield from _fields(file, host, report["fields"])
            return
    raise file.error(host, "is neither dcgmi health -j, dcgmi diag -j nor {fields: ...}")


def _mapping(file: JsonFile, value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise file.error(field, "must be an object")
    return value


def _gpu(file: JsonFile, text: str, field: str) -> int:
    if not str(text).isdecimal():
        raise file.error(field, f"must be the number of a GPU, not {text!r}")
    return int(text)


def _health(file: JsonFile, host: str, body: Any) -> Iterator[Found]:
    """`body` -> GPU -> number -> system -> Health, each below `children`."""
    gpus = _children(file, _mapping(file, body, f"{host}.body").get("GPU", {}), f"{host}.body.GPU")
    for number, node in gpus.items():
        gpu = _gpu(file, number, f"{host}.body.GPU.children.{number}")
        here = f"{host}.body.GPU.children.{number}"
        for system, entry in _children(file, node, here).items():
            if system.lower().endswith("health"):
                continue
            yield from _system(file, host, f"{here}.children.{system}", system, entry, gpu)


def _children(file: JsonFile, node: Any, field: str) -> dict[str, Any]:
    children = _mapping(file, node, field).get("children", {})
    return _mapping(file, children, f"{field}.children")


def _system(
    file: JsonFile, host: str, field: str, system: str, node: Any, gpu: int
) -> Iterator[Found]:
    words = system.lower().split()
    signals = SYSTEMS.get(words[0] if words else "")
    if signals is None:
        raise file.error(field, f"unknown system; known are {', '.join(SYSTEMS)}")
    children = _children(file, node, field)
    told = {key: _value(value) for key, value in children.items()}
    status = (_value(node) or told.pop("Health", "")).lower()
    if status not in (_FINE, _WARNING, _FAILURE):
        raise file.error(field, f"must be healthy, warning or failure, not {status!r}")
    if status != _FINE:
        detail = "; ".join(filter(None, told.values())) or f"dcgm: {system} {status}"
        yield Found(host, 0, field, signals[status == _WARNING], detail, gpu)


def _value(node: Any) -> str:
    value = node.get("value", "") if isinstance(node, dict) else node
    return value if isinstance(value, str) else ""


def _diagnosis(file: JsonFile, host: str, field: str, diagnosis: Any) -> Iterator[Found]:
    categories = _mapping(file, diagnosis, field).get("test_categories")
    if not isinstance(categories, list):
        raise file.error(f"{field}.test_categories", "must be a list")
    statuses = []
    for i, category in enumerate(categories):
        here = f"{field}.test_categories.{i}"
        for j, test in enumerate(_list(file, category, "tests", here)):
            there = f"{here}.tests.{j}"
            for k, result in enumerate(_list(file, test, "results", there)):
                where = f"{there}.results.{k}"
                statuses.append(status := _status(file, result, where))
                if status == "fail":
                    yield _failed(file, host, where, str(test.get("name", "a test")), result)
    if "pass" in statuses and "fail" not in statuses:
        yield Found(host, 0, field, "stress-test-passed", "dcgmi diag")


def _list(file: JsonFile, value: Any, key: str, field: str) -> list[Any]:
    found = _mapping(file, value, field).get(key)
    if not isinstance(found, list):
        raise file.error(f"{field}.{key}", "must be a list")
    return found


def _status(file: JsonFile, result: Any, field: str) -> str:
    status = str(_mapping(file, result, field).get("status", "")).lower()
    if status not in ("pass", "fail", "warn", "skip"):
        raise file.error(f"{field}.status", f"must be Pass, Fail, Warn or Skip, not {status!r}")
    return status


def _failed(file: JsonFile, host: str, field: str, test: str, result: Mapping[str, Any]) -> Found:
    text = str(result.get("gpu_id", result.get("gpu_ids", "")))
    gpu = _gpu(file, text, f"{field}.gpu_id") if text and "," not in text else None
    warnings = result.get("warnings") or [{"warning": result.get("warning", "")}]
    words = [str(w.get("warning", "")) if isinstance(w, dict) else str(w) for w in warnings]
    detail = "; ".join([f"dcgmi diag {test}", *filter(None, words)])
    return Found(host, 0, field, "stress-test-failed", detail, gpu)


def _fields(file: JsonFile, host: str, fields: Any) -> Iterator[Found]:
    for number, values in _mapping(file, fields, f"{host}.fields").items():
        here = f"{host}.fields.{number}"
        gpu = _gpu(file, number, here)
        for name, value in _mapping(file, values, here).items():
            field = f"{here}.{name}"
            if name not in FIELDS and name != XIDS:
                raise file.error(field, f"unknown field; known are {', '.join((XIDS, *FIELDS))}")
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise file.error(field, f"must be a number, 0 or more, not {value!r}")
            if value and name == XIDS:
                yield Found(host, 0, field, "xid", "dcgm", gpu, value)
            elif value:
                yield Found(host, 0, field, FIELDS[name], f"dcgm: {value:,}", gpu)
