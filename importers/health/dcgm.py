"""What DCGM says of many hosts, as JSON: one object with a report for each host name.

    {"z0-r000-h0": <dcgmi health -c -j>,
     "z0-r000-h1": <dcgmi diag -r 3 -j>,
     "z0-r001-h0": {"fields": {"0": {"DCGM_FI_DEV_XID_ERRORS": 79}}}}

DCGM itself knows one host, so that whoever collects its answers puts the name before each.
Of a diagnosis every failed test is a failed stress test; it is a passed one when nothing
failed and a test of its category "Stress" passed (`-r 3` and up), not where they were left
out. Of fields those are read that say that something is wrong, by themselves or beside their
limits. A report in which nothing is recognised is refused: taken for one of a healthy host it would
hide what is wrong.

Sources: NVIDIA/DCGM, dcgm_fields.h (fields, and the bits of clocks); dcgmi/Health.cpp and
DcgmiOutput.h (groups, entities and systems are `children`; a system has its verdict as `value` and
its words as `overflow`); dcgmi/Diag.cpp of DCGM 2 to 4 (results by `gpu_id` or `gpu_ids`, by
`entity_id` and `test_summary` since 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from muster.structs import replace
from scheduler.files.errors import line_of
from scheduler.files.health.found import ImportedReport
from scheduler.files.yaml12 import JsonFile

# System of `dcgmi health` -> signal of a failure, and of a warning.
SYSTEMS: Final[dict[str, tuple[str, str]]] = {
    "memory": ("ecc-uncorrectable", "ecc-correctable"),
    "sm": ("sram-uncorrectable", "sram-correctable"),
    "pcie": ("pcie-degraded", "pcie-degraded"),
    "nvlink": ("nvlink-down", "nvlink-errors"),
    "nvswitch": ("nvlink-down", "nvlink-errors"),
    "connectx": ("nic-down", "predicted-failure"),
    "thermal": ("thermal", "thermal"),
    "power": ("predicted-failure", "power-fault"),
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
# Temperatures, each with the field that has the maker's limit.
LIMITS: Final = {
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_SLOWDOWN_TEMP",
    "DCGM_FI_DEV_MEMORY_TEMP": "DCGM_FI_DEV_MEM_MAX_OP_TEMP",
}
# Why clocks are low: its name since DCGM 3.3, and before. Bits that heat or lack of power sets.
SLOWED: Final = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
SLOWED_BY: Final = {
    0x20: ("thermal", "slowed by heat"),
    0x40: ("thermal", "halved by heat"),
    0x80: ("power-fault", "halved by power brake"),
}
XIDS: Final = "DCGM_FI_DEV_XID_ERRORS"
_KNOWN: Final = (XIDS, *FIELDS, *LIMITS, *LIMITS.values(), *SLOWED)
_FINE, _WARNING, _FAILURE = "healthy", "warning", "failure"
_GPU, _OVERALL, _STRESS = "GPU", "Overall Health", "stress"
_BOX: Final = ("children", "value", "overflow")
_RESULTS: Final = ("results", "test_summary")
_DIAGNOSES: Final = ("DCGM GPU Diagnostic", "DCGM Diagnostic")


def load_dcgm(path: str) -> list[ImportedReport]:
    """Read health reports of DCGM. Raises: InputError naming line and field."""
    file = JsonFile.load(path)
    if not isinstance(file.value, dict) or not file.value:
        raise file.error("", "must be an object with a report for each host name")
    reports = [item for host, report in file.value.items() for item in _report(file, host, report)]
    lines = file.lines() if reports else {}
    return [replace(f, line=line_of(lines, f.field)) for f in reports]


def _report(file: JsonFile, host: str, report: Any) -> Iterator[ImportedReport]:
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


def _health(file: JsonFile, host: str, body: Any) -> Iterator[ImportedReport]:
    """`body` -> group -> number of the entity -> "Errors" -> system, each below `children`."""
    groups = _mapping(file, body, f"{host}.body")
    overall = f"{host}.body.{_OVERALL}"
    if _OVERALL not in groups:
        raise file.error(overall, "is missing: this is not output of dcgmi health -c -j")
    incidents = list(_incidents(file, host, groups))
    status = _verdict(file, groups[_OVERALL], overall)
    if status != _FINE and not incidents:
        raise file.error(overall, f"is {status}, but no system of an entity is said to be")
    yield from incidents


def _incidents(file: JsonFile, host: str, groups: Mapping[str, Any]) -> Iterator[ImportedReport]:
    for group, entities in groups.items():
        if group == _OVERALL:
            continue
        field = f"{host}.body.{group}"
        for number, node in _children(file, entities, field).items():
            here = f"{field}.children.{number}"
            gpu = _gpu(file, number, here) if group == _GPU else None
            parts = _children(file, node, here)
            if parts and "Errors" not in parts:
                raise file.error(f"{here}.children", f"must hold Errors, not {next(iter(parts))}")
            errors = parts.get("Errors", {})
            there = f"{here}.children.Errors"
            for system, entry in _children(file, errors, there).items():
                yield from _system(file, host, f"{there}.children.{system}", system, entry, gpu)


def _children(file: JsonFile, node: Any, field: str) -> dict[str, Any]:
    mapping = _mapping(file, node, field)
    if mapping and not any(key in mapping for key in _BOX):
        raise file.error(field, f"must have children, not {next(iter(mapping))}")
    return _mapping(file, mapping.get("children", {}), f"{field}.children")


def _verdict(file: JsonFile, node: Any, field: str) -> str:
    status = str(_mapping(file, node, field).get("value", "")).lower()
    if status not in (_FINE, _WARNING, _FAILURE):
        raise file.error(field, f"must be healthy, warning or failure, not {status!r}")
    return status


def _system(
    file: JsonFile, host: str, field: str, system: str, node: Any, gpu: int | None
) -> Iterator[ImportedReport]:
    words = system.lower().split()
    signals = SYSTEMS.get(words[0] if words else "")
    if signals is None:
        raise file.error(field, f"unknown system; known are {', '.join(SYSTEMS)}")
    status = _verdict(file, node, field)
    if status != _FINE:
        detail = _join_words(node.get("overflow"), " ") or f"dcgm: {system} {status}"
        yield ImportedReport(host, 0, field, signals[status == _WARNING], detail, gpu)


def _join_words(words: Any, glue: str) -> str:
    """Words that DCGM gives as text, as a list, or as a list of objects with a `warning`."""
    lines = words if isinstance(words, list) else [words or ""]
    texts = (word.get("warning", "") if isinstance(word, dict) else word for word in lines)
    return glue.join(str(text) for text in texts if text)


def _diagnosis(file: JsonFile, host: str, field: str, diagnosis: Any) -> Iterator[ImportedReport]:
    categories = _mapping(file, diagnosis, field).get("test_categories")
    if not isinstance(categories, list):
        raise file.error(f"{field}.test_categories", "must be a list")
    statuses, is_stressed = [], False
    for i, category in enumerate(categories):
        here = f"{field}.test_categories.{i}"
        name = str(_mapping(file, category, here).get("category", "")).lower()
        for j, test in enumerate(_list(file, category, "tests", here)):
            for where, result in _results(file, test, f"{here}.tests.{j}"):
                statuses.append(status := _status(file, result, where))
                is_stressed |= status == "pass" and name == _STRESS
                if status == "fail":
                    yield _failed(file, host, where, str(test.get("name", "a test")), result)
    if is_stressed and "fail" not in statuses:
        yield ImportedReport(host, 0, field, "stress-test-passed", "dcgmi diag")


def _results(file: JsonFile, test: Any, field: str) -> list[tuple[str, Any]]:
    """Each result with its place. A summary says something new only when no result failed."""
    mapping = _mapping(file, test, field)
    results = _list(file, test, "results", field) if "results" in mapping else []
    if not any(key in mapping for key in _RESULTS) and (strange := [*(mapping.keys() - {"name"})]):
        raise file.error(field, f"must have results or a test_summary, not {min(strange)}")
    numbered = [(f"{field}.results.{k}", result) for k, result in enumerate(results)]
    has_failed = any(_status(file, result, where) == "fail" for where, result in numbered)
    if "test_summary" in mapping and not has_failed:
        numbered.append((f"{field}.test_summary", mapping["test_summary"]))
    return numbered


def _list(file: JsonFile, value: Any, key: str, field: str) -> list[Any]:
    items = _mapping(file, value, field).get(key)
    if not isinstance(items, list):
        raise file.error(f"{field}.{key}", "must be a list")
    return items


def _status(file: JsonFile, result: Any, field: str) -> str:
    status = str(_mapping(file, result, field).get("status", "")).lower()
    if status not in ("pass", "fail", "warn", "skip", "not run"):
        known = "Pass, Fail, Warn, Skip or Not Run"
        raise file.error(f"{field}.status", f"must be {known}, not {status!r}")
    return status


def _failed(
    file: JsonFile, host: str, field: str, test: str, result: Mapping[str, Any]
) -> ImportedReport:
    """A result names one GPU, several, or since DCGM 4 an entity, which may be another thing."""
    is_gpu = result.get("entity_group", _GPU) == _GPU
    keys = [key for key in ("gpu_id", "gpu_ids", "entity_id") if key in result] if is_gpu else []
    text = str(result[keys[0]]) if keys else ""
    gpu = _gpu(file, text, f"{field}.{keys[0]}") if keys and "," not in text else None
    warnings = _join_words(result.get("warnings"), "; ")
    detail = "; ".join(filter(None, (f"dcgmi diag {test}", warnings)))
    return ImportedReport(host, 0, field, "stress-test-failed", detail, gpu)


def _fields(file: JsonFile, host: str, fields: Any) -> Iterator[ImportedReport]:
    for number, values in _mapping(file, fields, f"{host}.fields").items():
        here = f"{host}.fields.{number}"
        gpu = _gpu(file, number, here)
        numbers = _mapping(file, values, here)
        for name, value in numbers.items():
            field = f"{here}.{name}"
            if name not in _KNOWN:
                raise file.error(field, f"unknown field; known are {', '.join(_KNOWN)}")
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise file.error(field, f"must be a number, 0 or more, not {value!r}")
        for name, value in numbers.items():
            field = f"{here}.{name}"
            if name in LIMITS:
                if LIMITS[name] not in numbers:
                    raise file.error(field, f"needs {LIMITS[name]} beside it, the maker's limit")
                if value >= (most := numbers[LIMITS[name]]):
                    detail = f"dcgm: {value} C, the limit is {most} C"
                    yield ImportedReport(host, 0, field, "thermal", detail, gpu)
            elif name in SLOWED:
                causes = [cause for bit, cause in SLOWED_BY.items() if value & bit]
                for signal in dict.fromkeys(signal for signal, _ in causes):
                    why = ", ".join(words for each, words in causes if each == signal)
                    yield ImportedReport(host, 0, field, signal, f"dcgm: clocks {why}", gpu)
            elif value and name == XIDS:
                yield ImportedReport(host, 0, field, "xid", "dcgm", gpu, value)
            elif value and name in FIELDS:
                yield ImportedReport(host, 0, field, FIELDS[name], f"dcgm: {value:,}", gpu)
