"""The keys of a job file, what each may hold, and what is said of one that may not.

Shapes and types are checked by pydantic, so that every fault is reported at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from muster.structs import struct
from placement import BadInput
from placement.workload.parallelism import AXES, DEFAULT_ORDER
from placement.workload.request import AUTO, EVEN_ALPHA, Collective, Objective, SpareRule
from placement.workload.training import (
    DISPATCH_BYTES,
    DTYPE_BYTES,
    MODEL_BYTES,
    ContextParallel,
    DataParallel,
    PipelineSchedule,
    Recompute,
    Sync,
    Trained,
)
from scheduler.core.model.dependency import DependencyKind
from scheduler.core.model.job import MOST_LABELS, SECOND_NS
from scheduler.core.model.job_array import JobArray, parse_array
from scheduler.core.names import NAME_PATTERN, NAME_RULE, is_name
from scheduler.core.policies.job_terms import (
    AS_WARNED,
    GRACE_S,
    MOST_PEERS,
    PEER_INTERVAL_S,
    RANK_VARIABLES,
    TOKEN_BYTES,
    WARN_S,
    HangAction,
    Requeueing,
    RoleRestart,
    parse_checkpoint,
)
from scheduler.files.errors import short
from scheduler.files.field_types import one_of, wrong_value
from scheduler.files.timeparse import parse_duration, parse_time
from scheduler.files.yaml12 import Document

MOST = 2**31 - 1
MOST_EDGE_BYTES = 10**15  # a petabyte per step on one edge; sums stay within 64 bits

LONGEST_LABEL = 256
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
LONGEST_ARGUMENT = 4_096
MOST_ARGUMENTS = 1_000
MOST_VARIABLES = 64  # of the environment
MOST_CPU_RANKS = 1_024  # of a host
LONGEST_VALUE = 1_024  # of one of them
_ONE_LINE = re.compile(r"[^\0\r\n]*")
_REFERENCE = re.compile(r"file:/[^\0\n]+|secret:[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+")
_IMAGE = r"/[^\0\s,:]+|(docker://)?[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}"
_IMAGE_FORM = "REGISTRY/NAME:TAG, or the absolute path of an image on the hosts"
_MOUNT = r"/[^\0\n,:]*:/[^\0\n,:]+(:ro)?"
_MOUNT_FORM = "SOURCE:TARGET or SOURCE:TARGET:ro, absolute paths"
_FOLDER, _FOLDER_FORM = r"/[^\0]{0,4095}", "an absolute path without .."
_USER, _USER_FORM = r"[a-z_][a-z0-9_-]{0,30}", "the name of a user on the hosts"
_MODULE, _MODULE_FORM = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "the name of a Python module"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_LABEL_RULE = "1 to 63 letters, digits, '-', '_', '.' or '/', plain at both ends"


def parsed(parse: Callable[[Any], Any]) -> BeforeValidator:
    """Return a validator that reads a value by a function whose BadInput names a field of its own,
    and inside the value that is at fault, if one is: `labels.team`."""

    def read(value: Any) -> Any:
        try:
            return parse(value)
        except BadInput as error:
            raise wrong_value(error.message, error.field.partition(".")[2]) from None

    return BeforeValidator(read)


def _parse_whole(value: Any, least: int, most: int, rule: str) -> int:
    """A whole number however it is written: 400e9 counts, 1.5, nan and true do not."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not value.is_integer()):
        raise wrong_value(f"must be {rule}, not {short(value)}")
    if value < least:
        bound = "must not be negative" if least == 0 else f"must be at least {least}"
        raise wrong_value(f"{bound}, is {short(value)}")
    if value > most:
        raise wrong_value(f"must be at most {most:,}, is {short(value)}")
    return int(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wrong_value(f"must be a non-empty text, not {short(value)}")
    return value


def _like(pattern: str, rule: str) -> Callable[[Any], str]:
    """Return what reads a text of this pattern, in which no part of a path is `..`."""
    compiled = re.compile(pattern)

    def read(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value) or ".." in value.split("/"):
            raise wrong_value(f"{rule}, not {short(value)}")
        return value

    return read


def _list_of(of: str, item: Callable[[Any], Any], least: int = 1) -> Callable[[Any], Any]:
    """Return what reads a list of so many items at least. `of`: what they are, with an example."""

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) < least:
            raise wrong_value(f"must be a list of {of}, not {short(value)}")
        if len(value) > MOST_ARGUMENTS:
            raise wrong_value(f"has more than {MOST_ARGUMENTS:,} entries")
        return tuple(map(item, value))

    return read


def _map_of(
    shape: str, item: Callable[[Any], Any], key: Callable[[Any], str] = _text
) -> BeforeValidator:
    """Return what reads a mapping. `shape`: what it maps to what, with an example."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not value:
            raise wrong_value(f"must map {shape}, not {short(value)}")
        return {key(name): item(inner) for name, inner in value.items()}

    return BeforeValidator(read)


@struct(frozen=True)
class Replicas:
    """The replicas of an elastic gang, `dp: {min: 32, max: 128}`: it may have any legal size
    between."""

    least: int
    most: int


def _replicas(value: Any) -> int | Replicas:
    if not isinstance(value, Mapping):
        return _COUNT(value)
    if set(value) != {"min", "max"}:
        given = ", ".join(sorted(map(str, value)))
        raise wrong_value(f"must be a whole number or {{min: A, max: B}}, not {{{given}}}")
    try:
        least, most = (_COUNT(value[key]) for key in ("min", "max"))
    except PydanticCustomError as error:
        raise wrong_value(f"min and max: {error.message()}") from None
    if least > most:
        raise wrong_value(f"min {least:,} is more than max {most:,}")
    return Replicas(least, most)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong_value(f"must be true or false, not {short(value)}")
    return value


def parse_spares(value: Any) -> SpareRule:
    """Parse `auto`, a number of hosts or a share such as "2%". Raises: BadInput."""
    text = str(value).strip()
    if text == "auto":
        return AUTO
    if not isinstance(value, bool) and text.isdecimal() and int(text) <= MOST:
        return SpareRule(hosts=int(text))
    if 0 <= (share := _percentage(text)) <= 1:
        return SpareRule(share=share)
    raise BadInput(
        "spares", f'must be auto, a whole number of hosts or a share such as "2%", not {value!r}'
    )


def _percentage(text: str) -> float:
    """Return the share that `2%` or `0.5 %` says; NaN of any other text."""
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else math.nan
    except ValueError:
        return math.nan


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise wrong_value(f"must be a number from 0 to 1, not {short(value)}")
    return float(value)


def _share_or_percentage(value: Any) -> float:
    text = str(value).strip()
    try:
        share = float(text)
    except ValueError:
        share = _percentage(text)
    if not 0 <= share <= 1:
        raise wrong_value(f'must be a share from 0 to 1 or such as "0.5%", not {short(value)}')
    return share


_COUNT = partial(_parse_whole, least=1, most=MOST, rule="a whole number")
_NUMBER = partial(_parse_whole, least=0, most=MOST, rule="a whole number")
_BYTES = partial(_parse_whole, least=0, most=MOST_EDGE_BYTES, rule="a whole number of bytes")


def _positive(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= MOST:
        raise wrong_value(f"must be a number above 0, not {short(value)}")
    return float(value)


def parse_labels(value: Any) -> dict[str, str]:
    """Parse a job's own labels. Raises: BadInput."""
    if not isinstance(value, Mapping):
        raise BadInput("labels", f"must map labels to values, as {{team: nlp}}, not {short(value)}")
    if len(value) > MOST_LABELS:
        raise BadInput("labels", f"must be at most {MOST_LABELS}, are {len(value):,}")
    for key, text in value.items():
        if not isinstance(key, str) or not _LABEL.fullmatch(key):
            raise BadInput("labels", f"{short(key)} is not a label: {_LABEL_RULE}")
        if not isinstance(text, str) or len(text) > LONGEST_LABEL:
            raise BadInput(f"labels.{key}", f"must be a text of at most {LONGEST_LABEL} characters")
    return dict(value)


def _axis(value: Any) -> str:
    if value not in AXES:
        raise wrong_value(f"unknown axis; axes are {', '.join(AXES)}", str(value))
    return str(value)


def _names_by_tier(of: str) -> BeforeValidator:
    return _map_of(f"tiers to {of} names, as {{zone: [a]}}", _list_of(f"{of} names", _text))


def _begin(value: Any) -> int:
    time_ns = parse_time(str(value)) if value else 0
    if time_ns < 0:
        raise BadInput("", f"must not be before 1970, is {short(value)}")
    return time_ns


def _array(value: Any) -> JobArray:
    return parse_array(str(value) if isinstance(value, str | int) else "")


def parse_dependencies(text: str) -> list[dict[str, str]]:
    """Parse dependencies as Slurm writes them: `afterok:a:b,singleton`. Raises: BadInput without a
    field."""
    terms: list[dict[str, str]] = []
    for part in text.split(","):
        kind, *jobs = part.strip().split(":")
        is_known, is_alone = kind in list(DependencyKind), kind == DependencyKind.SINGLETON
        if not is_known or is_alone is bool(jobs) or not all(jobs):
            raise BadInput("", f"must be {_DEPENDENCY}, not {part.strip()!r}")
        terms += [{"kind": kind, "job": job} for job in jobs] or [{"kind": kind}]
    return terms


_DEPENDENCY = "afterok, afternotok, afterany or aftercorr with jobs, as afterok:a:b, or singleton"


def _dependencies(value: Any) -> Any:
    if isinstance(value, str):
        return parse_dependencies(value)
    for place, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, Mapping) and (item.get("kind") == "singleton") is bool(item.get("job")):
            raise wrong_value("is of all kinds but singleton", f"{place}.job")
    return value


def _quote(value: Any) -> str:
    """Return the hint for a value that is no text, but would be one in quotes."""
    is_text_in_quotes = not isinstance(value, str | list | dict)
    return f': put it in quotes, "{short(value)}"' if is_text_in_quotes else ""


def _argument(value: Any) -> str:
    if not isinstance(value, str) or "\0" in value or len(value) > LONGEST_ARGUMENT:
        most = f"a text of at most {LONGEST_ARGUMENT:,} characters"
        raise wrong_value(f"each argument must be {most}, not {short(value)}{_quote(value)}")
    return value


_arguments = _list_of("arguments, as [python, train.py], which no shell reads", _argument)


def _command(value: Any) -> Any:
    """A list of arguments, of which the first is not empty."""
    return _arguments(value if not isinstance(value, list) or all(value[:1]) else [])


def _variables(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise wrong_value(
            f"must map variables to values, as {{NCCL_DEBUG: INFO}}, not {short(value)}"
        )
    if len(value) > MOST_VARIABLES:
        raise wrong_value(f"must be at most {MOST_VARIABLES}, are {len(value):,}")
    for name, text in value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise wrong_value(f"{short(name)} is not the name of a variable")
        if name in RANK_VARIABLES or name.startswith("MUSTER_"):
            raise wrong_value("is set by muster for every rank", name)
        if not isinstance(text, str) or len(text) > LONGEST_VALUE:
            most = f"a text of at most {LONGEST_VALUE:,} characters"
            raise wrong_value(f"must be {most}{_quote(text)}", name)
        if not _ONE_LINE.fullmatch(text):
            raise wrong_value(f"must be one line, without NUL, not {short(text)}", name)
    return tuple(sorted(value.items()))


def _references(value: Any) -> tuple[tuple[str, str], ...]:
    for name, where in value.items() if isinstance(value, Mapping) else ():
        is_path = isinstance(where, str) and ".." not in where.split("/")
        if not is_path or not _REFERENCE.fullmatch(where):
            # The message does not say what was given, which may be the secret itself.
            raise wrong_value("must be file:/PATH or secret:NAME/KEY, and not the value", name)
    return _variables(value)


def resume_run(text: str) -> str:
    """Check the name of a run, or the absolute path of a checkpoint. Raises: BadInput without a
    field."""
    if not text.startswith("/"):
        if not is_name(text):
            raise BadInput("", f"must be a path of a checkpoint, or the name of a run: {NAME_RULE}")
        return text
    if len(text) > LONGEST_ARGUMENT or not _ONE_LINE.fullmatch(text):
        raise BadInput("", f"must be a path of at most {LONGEST_ARGUMENT:,} characters")
    parse_checkpoint(text)
    return text


def _seconds(value: Any) -> Any:
    """Return the seconds of `2h30m`; what is no text is a number of them already."""
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value) // SECOND_NS
    except BadInput:
        shape = "a whole number of seconds, or a duration such as 90m, 4h or 1d12h"
        raise wrong_value(f"must be {shape}, not {short(value)}") from None


def _compute_time(value: Any) -> float:
    """Return seconds, to the nanosecond, of 0.4, or of `40s`."""
    is_duration = isinstance(value, str) and re.search(r"[smhd]$", value)
    return round(_positive(_seconds(value) if is_duration else value), 9) or 1e-9


def _per_host(value: Any) -> int:
    if value != 1 or isinstance(value, bool):
        raise wrong_value("must be 1, or left out for one process a GPU")
    return 1


def whole_number_between(least: int, most: int, rule: str = "a whole number") -> BeforeValidator:
    """Return a validator of whole numbers between these two."""
    return BeforeValidator(partial(_parse_whole, least=least, most=most, rule=rule))


Count = Annotated[int, BeforeValidator(_COUNT)]
Number = Annotated[int, BeforeValidator(_NUMBER)]
Seconds = Annotated[int, BeforeValidator(lambda value: _COUNT(_seconds(value)))]
SomeSeconds = Annotated[int, BeforeValidator(lambda value: _NUMBER(_seconds(value)))]
Bytes = Annotated[int, BeforeValidator(_BYTES)]
Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_like(NAME_PATTERN, NAME_RULE))]
JobsByTier = Annotated[dict[str, list[str]], _names_by_tier("job")]
RolesByTier = Annotated[dict[str, list[str]], _names_by_tier("role")]
TierByAxis = Annotated[dict[str, str], _map_of("axes to tiers, such as {ep: rack}", _text, _axis)]
HostLabels = Annotated[dict[str, str], _map_of("labels to values, such as {gpu: h100}", _text)]
BytesByRole = Annotated[dict[str, int], _map_of("roles to bytes, such as {rollout: 140e9}", _BYTES)]
Rank = Annotated[int, whole_number_between(-MOST, MOST)]
PerHost = Annotated[int, BeforeValidator(_per_host)]
Nanoseconds = Annotated[float, BeforeValidator(_compute_time)]
Positive = Annotated[float, BeforeValidator(_positive)]
Share = Annotated[float, BeforeValidator(_share)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Dtype = Annotated[str, one_of(*DTYPE_BYTES)]
Precision = Annotated[str, one_of(*MODEL_BYTES)]
DispatchDtype = Annotated[str, one_of(*DISPATCH_BYTES)]
Command = Annotated[tuple[str, ...], BeforeValidator(_command)]
_exit_code = partial(_parse_whole, least=1, most=255, rule="an exit code")
_codes = _list_of("exit codes, as [75]", _exit_code, least=0)
ExitCodes = Annotated[tuple[int, ...], BeforeValidator(_codes)]
EnvironmentVariables = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_variables)]


class Keys(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, protected_namespaces=()
    )


class _ParallelismKeys(Keys):
    tp: Count = 1
    cp: Count = 1
    ep: Count = 1
    pp: Count = 1
    dp: Annotated[int | Replicas, BeforeValidator(_replicas)] = 1
    order: Text = DEFAULT_ORDER


class _TrafficKeys(Keys):
    tp: Bytes | None = None
    cp: Bytes | None = None
    ep: Bytes | None = None
    pp: Bytes | None = None
    dp: Bytes | None = None


class _CollectiveKeys(Keys):
    tp: Collective | None = None
    cp: Collective | None = None
    ep: Collective | None = None
    pp: Collective | None = None
    dp: Collective | None = None


class _ModelKeys(Keys):
    layers: Count
    hidden: Count
    ffn: Count
    heads: Count
    kv_heads: Count
    vocab: Count
    sequence: Count
    dtype: Precision = "bf16"
    head_dim: Number = 0
    gated: Flag = True
    tied_embeddings: Flag = False
    query_rank: Number = 0
    kv_rank: Number = 0
    rope_dim: Number = 0
    experts: Number = 0
    experts_per_token: Number = 0
    expert_ffn: Number = 0
    shared_experts: Number = 0
    dense_layers: Number = 0


class _BatchKeys(Keys):
    global_sequences: Count
    micro_sequences: Count = 1
    virtual_stages: Count = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B


class _TrainingKeys(Keys):
    data_parallel: DataParallel = DataParallel.FSDP
    shard_group: Number = 0
    sync: Sync = Sync.STEP
    gradient_dtype: Dtype = "fp32"
    sequence_parallel: Flag = True
    context_parallel: ContextParallel = ContextParallel.ALLGATHER
    recompute: Recompute = Recompute.SELECTIVE
    dropout: Flag = False
    expert_tp: Number = 0
    expert_hosts_per_token: Number = 0
    dispatch_dtype: DispatchDtype = ""
    gpu_memory_gb: Number = 0
    trained: Trained = Trained.FULL
    logit_bytes: Number = 0


class _ConstraintKeys(Keys):
    max_zones: Count | None = None
    same: Text = ""
    exclusive: Text = ""
    hosts: HostLabels = Field(default_factory=dict)
    avoid: JobsByTier = Field(default_factory=dict)
    near: Text = ""
    within: TierByAxis = Field(default_factory=dict)
    segment: Count | None = None


class _CheckpointKeys(Keys):
    interval_s: Seconds | None = None
    peers: Annotated[int, whole_number_between(0, MOST_PEERS, "a whole number of hosts")] = 0
    peer_interval_s: Seconds = PEER_INTERVAL_S
    keep: Number = 0
    store: Text = ""


class _DatasetKeys(Keys):
    token_bytes: Positive = TOKEN_BYTES
    tokens: Number = 0
    shards: Number = 0
    read_gb_per_s: Positive = 0.0
    store: Text = ""


class _ContainerKeys(Keys):
    image: Annotated[str, BeforeValidator(_like(_IMAGE, f"must be {_IMAGE_FORM}"))]
    mounts: Annotated[
        tuple[str, ...],
        BeforeValidator(_list_of("mounts", _like(_MOUNT, f"each must be {_MOUNT_FORM}"), least=0)),
    ] = ()


class RoleKeys(Keys):
    name: Name
    parallelism: _ParallelismKeys
    traffic: _TrafficKeys = _TrafficKeys()
    collectives: _CollectiveKeys = _CollectiveKeys()
    model: _ModelKeys | None = None
    batch: _BatchKeys | None = None
    training: _TrainingKeys = _TrainingKeys()
    compute_time_s: Nanoseconds | None = None
    sends: BytesByRole = Field(default_factory=dict)
    command: Command = ()
    env: EnvironmentVariables = ()
    per_host: PerHost = 0
    restart: RoleRestart = RoleRestart.GANG
    same: Text = ""
    within: TierByAxis = Field(default_factory=dict)
    segment: Count | None = None
    beside: RolesByTier = Field(default_factory=dict)
    avoid: RolesByTier = Field(default_factory=dict)


class _RunKeys(Keys):
    command: Command = ()
    env: EnvironmentVariables = ()
    workdir: Annotated[str, BeforeValidator(_like(_FOLDER, f"must be {_FOLDER_FORM}"))] = ""
    user: Annotated[str, BeforeValidator(_like(_USER, f"must be {_USER_FORM}"))] = ""
    per_host: PerHost = 0
    grace_s: Seconds = GRACE_S
    warm: Annotated[
        tuple[str, ...],
        BeforeValidator(_list_of("module names", _like(_MODULE, f"each must be {_MODULE_FORM}"))),
    ] = ()
    lineage: Name = ""
    new_run: Flag = False
    resume_from: Annotated[str, parsed(lambda value: resume_run(_text(value)))] = ""
    warn_s: Seconds = WARN_S
    gate: Command = ()
    idle_s: Seconds = 0
    env_from: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_references)] = ()
    container: _ContainerKeys | None = None
    cpu_ranks: Annotated[int, whole_number_between(1, MOST_CPU_RANKS)] = 0


class _RestartCauseKeys(Keys):
    exit: ExitCodes | None = None
    oom: Flag = True
    hang: Flag = True
    host: Flag = True


class _RestartKeys(Keys):
    max: Number | None = None
    backoff_s: SomeSeconds | None = None
    on: _RestartCauseKeys = _RestartCauseKeys()


class _HangKeys(Keys):
    after_s: Seconds = AS_WARNED.after_s
    action: HangAction = AS_WARNED.action
    first_step_s: SomeSeconds | None = None


class _DependencyKeys(Keys):
    kind: DependencyKind
    job: Text = ""


class JobKeys(Keys):
    name: Text = ""
    parallelism: _ParallelismKeys
    roles: list[RoleKeys] = Field(default_factory=list)
    traffic: _TrafficKeys = _TrafficKeys()
    collectives: _CollectiveKeys = _CollectiveKeys()
    model: _ModelKeys | None = None
    batch: _BatchKeys | None = None
    spares: Annotated[SpareRule, parsed(parse_spares)] = AUTO
    training: _TrainingKeys = _TrainingKeys()
    objective: Objective | None = None
    spread_alpha: Share = EVEN_ALPHA
    cut_slack: Annotated[float, BeforeValidator(_share_or_percentage)] | None = None
    compute_time_s: Nanoseconds | None = None
    step_model: Number = 0
    priority: Rank = 0
    time_limit_s: Seconds | None = None
    tenant: Text = ""
    priority_class: Text = ""
    labels: Annotated[dict[str, str], parsed(parse_labels)] = Field(default_factory=dict)
    constraints: _ConstraintKeys = Field(default_factory=_ConstraintKeys)
    checkpoint: _CheckpointKeys = Field(default_factory=_CheckpointKeys)
    run: _RunKeys | None = None
    hold: Flag = False
    begin_time: Annotated[int, parsed(_begin)] = 0
    dependencies: Annotated[list[_DependencyKeys], parsed(_dependencies)] = Field(
        default_factory=list
    )
    cancel_unmet: Flag = False
    array: Annotated[JobArray, parsed(_array)] | None = None
    restarts: _RestartKeys = _RestartKeys()
    requeue: Requeueing = Requeueing.ALWAYS
    hang: _HangKeys = _HangKeys()
    dataset: _DatasetKeys | None = None
    power_cap_w: Number = 0


SomeKeys = TypeVar("SomeKeys", bound=Keys)


def checked_keys(
    kind: type[SomeKeys],
    document: Document,
    values: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> SomeKeys:
    """Return the keys of a document, or of `values` that stand for its content.

    `folder`: where files that it names are looked for. Raises: InputError with every fault found,
    each with its line.
    """
    given = document.mapping() if values is None else values
    try:
        return kind.model_validate(given, context={"folder": folder} if folder else None)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        raise document.error(*((path_of(e), message_of(e, kind)) for e in problems)) from None


def path_of(error: ErrorDetails) -> str:
    inside = error.get("ctx", {}).get("inside")
    return ".".join(str(part) for part in (*error["loc"], *([inside] if inside else [])))


def message_of(error: ErrorDetails, kind: type[Keys]) -> str:
    """Return pydantic's finding in the words of a file. `kind`: the keys of the file."""
    match error["type"]:
        case "missing":
            return "is required"
        case "extra_forbidden":
            return _unknown(error, kind)
        case "model_type" | "dict_type":
            return f"must be a mapping of keys to values, not {short(error['input'])}"
        case "list_type" | "tuple_type":
            return f"must be a list, not {short(error['input'])}"
        case "enum":
            return f"must be {error['ctx']['expected']}, not {short(error['input'])}"
    wrong = error["msg"]
    if wrong.startswith("Input should "):  # pydantic's own types
        return f"must {wrong.removeprefix('Input should ')}, not {short(error['input'])}"
    return wrong


def section_of(field: FieldInfo | None) -> type[Keys] | None:
    """Return the keys of a field that is a section, or a list or mapping of such; else None."""
    annotations = [field.annotation] if field else []
    for annotation in annotations:  # grows
        if isinstance(annotation, type) and issubclass(annotation, Keys):
            return annotation
        annotations += get_args(annotation)
    return None


def sections(kind: type[Keys]) -> dict[str, type[Keys]]:
    """Return the keys of a file by the name of their section, "" for those outside of any."""
    keys = {"": kind}
    for name, field in kind.model_fields.items():
        if (inner := section_of(field)) is not None:
            keys |= {name: inner} | {key: of for key, of in sections(inner).items() if key}
    return keys


def _unknown(error: ErrorDetails, kind: type[Keys]) -> str:
    *section, key = (str(part) for part in error["loc"])
    for part in section:  # others are places in a list or names of the user's own
        kind = section_of(kind.model_fields.get(part)) or kind
    known = list(kind.model_fields)
    if known == list(AXES):
        return f"unknown axis {short(key)}; axes are {', '.join(AXES)}"
    near = get_close_matches(key, known, 1)
    hint = f", did you mean {near[0]}?" if near else ";"
    word = "axis" if section == ["parallelism"] else "key"
    return f"unknown {word} {short(key)}{hint} known are {', '.join(known)}"
