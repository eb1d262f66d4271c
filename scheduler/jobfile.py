"""The job file: its keys, what each may hold, and the JobSpec it stands for.

Shapes and types are checked by pydantic, so that every fault is reported at once;
what the values mean together is checked by the value types of placement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from reprlib import repr as short
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from placement.errors import BadInput
from placement.parallelism import AXES, DEFAULT_ORDER, Parallelism
from placement.request import AUTO, Batch, Collective, ModelShape, Objective, Request, SpareRule
from placement.traffic import DTYPE_BYTES, axis_traffic
from scheduler.core.job import JobSpec
from scheduler.strictyaml import Document

MOST = 2**31 - 1
MOST_EDGE_BYTES = 10**15  # a petabyte per step on one edge; sums stay within 64 bits


def _refusal(message: str) -> PydanticCustomError:
    return PydanticCustomError("muster", "{message}", {"message": message})


def _whole(value: Any, least: int, most: int, what: str) -> int:
    """A whole number however it is written: 400e9 counts, 1.5, nan and true do not."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not value.is_integer()):
        raise _refusal(f"must be {what}, not {short(value)}")
    if value < least:
        bound = "must not be negative" if least == 0 else f"must be at least {least}"
        raise _refusal(f"{bound}, is {short(value)}")
    if value > most:
        raise _refusal(f"must be at most {most:,}, is {short(value)}")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _refusal(f"must be a non-empty text, not {short(value)}")
    return value


def _dtype(value: Any) -> str:
    if value not in list(DTYPE_BYTES):
        raise _refusal(f"must be one of {', '.join(DTYPE_BYTES)}, not {short(value)}")
    return str(value)


def parse_spares(value: Any) -> SpareRule:
    """`auto`, a number of hosts or a share such as "2%".

    Raises: BadInput.
    """
    text = str(value).strip()
    if text == "auto":
        return AUTO
    if not isinstance(value, bool) and text.isdecimal() and int(text) <= MOST:
        return SpareRule(hosts=int(text))
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else math.nan
    except ValueError:
        share = math.nan
    if 0 <= share <= 1:
        return SpareRule(share=share)
    raise BadInput(
        "spares", f'must be auto, a whole number of hosts or a share such as "2%", not {value!r}'
    )


def _spares(value: Any) -> SpareRule:
    try:
        return parse_spares(value)
    except BadInput as error:
        raise _refusal(error.message) from None


def _objective(value: Any) -> Objective:
    if value not in list(Objective):
        raise _refusal(f"must be one of {', '.join(Objective)}, not {short(value)}")
    return Objective(value)


_COUNT = partial(_whole, least=1, most=MOST, what="a whole number")
_BYTES = partial(_whole, least=0, most=MOST_EDGE_BYTES, what="a whole number of bytes")
_RANK = partial(_whole, least=-MOST, most=MOST, what="a whole number")

Count = Annotated[int, BeforeValidator(_COUNT)]
Bytes = Annotated[int, BeforeValidator(_BYTES)]
Text = Annotated[str, BeforeValidator(_text)]


class _Keys(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=()
    )


class _ParallelismKeys(_Keys):
    tp: Count = 1
    cp: Count = 1
    ep: Count = 1
    pp: Count = 1
    dp: Count = 1
    order: Text = DEFAULT_ORDER


class _TrafficKeys(_Keys):
    tp: Bytes | None = None
    cp: Bytes | None = None
    ep: Bytes | None = None
    pp: Bytes | None = None
    dp: Bytes | None = None


class _CollectiveKeys(_Keys):
    tp: Collective | None = None
    cp: Collective | None = None
    ep: Collective | None = None
    pp: Collective | None = None
    dp: Collective | None = None


class _ModelKeys(_Keys):
    layers: Count
    hidden: Count
    ffn: Count
    heads: Count
    kv_heads: Count
    vocab: Count
    sequence: Count
    dtype: Annotated[str, BeforeValidator(_dtype)] = "bf16"


class _BatchKeys(_Keys):
    global_sequences: Count
    micro_sequences: Count = 1
    virtual_stages: Count = 1


class _JobKeys(_Keys):
    name: Text = ""
    parallelism: _ParallelismKeys
    traffic: _TrafficKeys = Field(default_factory=_TrafficKeys)
    collectives: _CollectiveKeys = Field(default_factory=_CollectiveKeys)
    model: _ModelKeys | None = None
    batch: _BatchKeys | None = None
    spares: Annotated[SpareRule, BeforeValidator(_spares)] = AUTO
    objective: Annotated[Objective, BeforeValidator(_objective)] = Objective.CUT
    priority: Annotated[int, BeforeValidator(_RANK)] = 0
    time_limit_s: Count | None = None


_SECTIONS: dict[str, type[_Keys]] = {
    "": _JobKeys,
    "parallelism": _ParallelismKeys,
    "traffic": _TrafficKeys,
    "collectives": _CollectiveKeys,
    "model": _ModelKeys,
    "batch": _BatchKeys,
}


def job_from_mapping(mapping: Mapping[str, Any], source: str = "") -> JobSpec:
    """The job that this content of a job file stands for.

    Raises: InputError with every fault found, each by its dotted path.
    """
    return job_from_document(Document(dict(mapping), source))


def job_from_document(document: Document, default_name: str = "") -> JobSpec:
    """As `job_from_mapping`, with the lines of the file in the errors."""
    try:
        keys = _JobKeys.model_validate(document.mapping())
    except ValidationError as error:
        found = [(_path(e), _message(e)) for e in error.errors(include_url=False)]
        raise document.error(*found) from None
    return JobSpec(
        keys.name or default_name, _request(keys, document), keys.priority, keys.time_limit_s
    )


def _request(keys: _JobKeys, document: Document) -> Request:
    """The gang, after the checks that need several keys at once."""
    found: list[tuple[str, str]] = []
    parallelism = _checked(found, Parallelism, keys.parallelism)
    model = _checked(found, ModelShape, keys.model)
    batch = _checked(found, Batch, keys.batch)
    if found or parallelism is None:
        raise document.error(*found)
    request = Request(
        parallelism,
        tuple((axis, n) for axis in AXES if (n := getattr(keys.traffic, axis)) is not None),
        tuple((axis, c) for axis in AXES if (c := getattr(keys.collectives, axis)) is not None),
        model,
        batch,
        keys.spares,
        keys.objective,
    )
    try:
        axis_traffic(request)
    except BadInput as error:
        raise document.error((error.field, error.message)) from None
    return request


Value = TypeVar("Value")


def _checked(
    found: list[tuple[str, str]], build: Callable[..., Value], keys: _Keys | None
) -> Value | None:
    if keys is None:
        return None
    try:
        return build(**keys.model_dump())
    except BadInput as error:
        found.append((error.field, error.message))
        return None


def _path(error: ErrorDetails) -> str:
    return ".".join(str(part) for part in error["loc"])


def _message(error: ErrorDetails) -> str:
    """pydantic's finding in the words of a job file."""
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return _unknown(error)
        case "model_type":
            return f"must be a mapping of keys to values, not {short(error['input'])}"
        case "enum":
            return f"must be {error['ctx']['expected']}, not {short(error['input'])}"
    return error["msg"]


def _unknown(error: ErrorDetails) -> str:
    *section, key = (str(part) for part in error["loc"])
    known = list(_SECTIONS[".".join(section)].model_fields)
    if known == list(AXES):
        return f"unknown axis {short(key)}; axes are {', '.join(AXES)}"
    near = get_close_matches(key, known, 1)
    hint = f", did you mean {near[0]}?" if near else ";"
    what = "axis" if section == ["parallelism"] else "key"
    return f"unknown {what} {short(key)}{hint} known are {', '.join(known)}"


def job_to_mapping(spec: JobSpec) -> dict[str, Any]:
    """The content of a job file that stands for `spec`; what is default is left out."""
    request = spec.request
    mapping: dict[str, Any] = {"name": spec.name} if spec.name else {}
    mapping["parallelism"] = asdict(request.parallelism)
    if request.traffic:
        mapping["traffic"] = dict(request.traffic)
    if request.collectives:
        mapping["collectives"] = {axis: c.value for axis, c in request.collectives}
    if request.model:
        mapping["model"] = asdict(request.model)
    if request.batch:
        mapping["batch"] = asdict(request.batch)
    mapping["spares"] = _spares_text(request.spares)
    if request.objective is not Objective.CUT:
        mapping["objective"] = request.objective.value
    if spec.priority:
        mapping["priority"] = spec.priority
    if spec.time_limit_s is not None:
        mapping["time_limit_s"] = spec.time_limit_s
    return mapping


def _spares_text(rule: SpareRule) -> int | str:
    """The shortest form that reads back as the same rule."""
    if rule.hosts is not None:
        return rule.hosts
    if rule.share is None:
        return "auto"
    percents = (f"{rule.share * 100:.{digits}g}%" for digits in range(6, 18))
    return next((p for p in percents if parse_spares(p) == rule), f"{rule.share * 100!r}%")
