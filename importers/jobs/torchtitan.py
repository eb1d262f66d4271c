"""TorchTitan's TOML.

Keys and defaults: torchtitan/config/job_config.py of pytorch/torchtitan; the older places
of the same keys are read too. The mesh is pp, dp_replicate, dp_shard, cp, tp from the
outermost in, which is the order tp-cp-ep-dp-pp. A model is named, not described: the
shapes below are those of its published models.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from importers.jobs.draft import Draft, Origin, put_axes
from importers.jobs.python_config import PythonConfig, model_name, note_unread
from importers.jobs.shapes import put_shape
from muster.structs import struct
from scheduler.files.errors import InputError, Problem

OLDER = {
    "training.local_batch_size": "training.batch_size",
    "parallelism.data_parallel_shard_degree": "training.data_parallel_shard_degree",
    "parallelism.data_parallel_replicate_degree": "training.data_parallel_replicate_degree",
    "parallelism.tensor_parallel_degree": "training.tensor_parallel_degree",
    "parallelism.pipeline_parallel_degree": "experimental.pipeline_parallel_degree",
    "parallelism.pipeline_parallel_schedule": "experimental.pipeline_parallel_schedule",
    "parallelism.context_parallel_degree": "experimental.context_parallel_degree",
}
UNREPRESENTED = (
    "training.enable_cpu_offload",
    "parallelism.module_fqns_per_model_part",
    "parallelism.pipeline_parallel_split_points",
    "parallelism.pipeline_parallel_schedule_csv",
    "float8.enable_fsdp_float8_all_gather",
    "quantize.linear.float8.enable_fsdp_float8_all_gather",
    "fault_tolerance.enable",
)
READ_KEYS = frozenset(
    {
        *("training.local_batch_size", "training.global_batch_size", "training.seq_len"),
        *("training.mixed_precision_param", "training.mixed_precision_reduce"),
        *("parallelism.tensor_parallel_degree", "parallelism.context_parallel_degree"),
        *("parallelism.pipeline_parallel_degree", "parallelism.pipeline_parallel_schedule"),
        *("parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"),
        *("parallelism.expert_parallel_degree", "parallelism.expert_tensor_parallel_degree"),
        *("parallelism.fsdp_reshard_after_forward", "parallelism.context_parallel_rotate_method"),
        *("parallelism.pipeline_parallel_microbatch_size", "activation_checkpoint.mode"),
        *("parallelism.pipeline_parallel_layers_per_stage", "model.converters"),
    }
)
# Sections that bear on neither shape, bytes nor memory.
_LEFT_TO_PROGRAM = (
    *("metrics", "checkpoint", "lr_scheduler", "dataloader", "profiling", "optimizer", "hf_assets"),
    *("training.steps", "training.max_norm", "training.dataset", "tokenizer", "validat"),
)
_LEFT_TO_PROGRAM_IN_TOML = (
    *_LEFT_TO_PROGRAM,
    "job.",
    "model.hf_assets",
    "model.tokenizer",
    "activation_checkpoint.",
)
# Converters of linear layers, and the precision that they multiply in.
CONVERTERS = {"float8": "fp8", "mx": "mxfp8"}
SCHEDULE = "parallelism.pipeline_parallel_schedule"
SCHEDULES = {
    "ZBVZeroBubble": "zero_bubble",
    "InterleavedZeroBubble": "zero_bubble",
    "DualPipeV": "dualpipe",
}


@struct(frozen=True, slots=True)
class _Settings:
    draft: Draft
    values: dict[str, Any]
    lines: dict[str, int]

    def origin(self, key: str) -> Origin:
        origin = self._key_in_use(key)
        return Origin(origin, self.lines.get(origin, 0))

    def _key_in_use(self, key: str) -> str:
        older = OLDER.get(key, key)
        return older if key not in self.values and older in self.values else key

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(self._key_in_use(key), default)

    def number(self, key: str, default: int, least: int = 1) -> int:
        value = self.get(key, default)
        if self._key_in_use(key) not in self.values:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            if value == -1:  # "whatever is left", as if the key were not there
                return default
            self.draft.fault(self.origin(key), f"must be a whole number, is {value!r}")
            return max(default, 1)
        return value


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a TOML file of TorchTitan. Raises: InputError."""
    settings = _Settings(draft, *_read(draft.source, text))
    draw_settings(settings, gpus)
    known = {*READ_KEYS, *OLDER.values(), *UNREPRESENTED, "model.name", "model.flavor"}
    for key, line in settings.lines.items():
        if (
            settings.values.get(key)
            and key not in known
            and not key.startswith(_LEFT_TO_PROGRAM_IN_TOML)
        ):
            draft.note(f"not represented: {key} (line {line})")


def draw_python(draft: Draft, config: PythonConfig, gpus: int) -> None:
    """Fill `draft` from a function of TorchTitan's registry in Python. Raises: InputError."""
    name, flavor = model_name(config.recipe)
    values = {"model.name": name, "model.flavor": flavor} | config.values
    draw_settings(_Settings(draft, values, config.lines), gpus)
    note_unread(draft, config, READ_KEYS, _LEFT_TO_PROGRAM)


def draw_settings(settings: _Settings, gpus: int) -> None:
    """Fill `draft` from settings of TorchTitan. Raises: InputError."""
    draft = settings.draft
    if not settings.values.keys() & {"model.name", "training.seq_len", *OLDER, *OLDER.values()}:
        draft.fault(Origin(""), "has none of TorchTitan's keys, such as training.seq_len")
        draft.raise_faults()
    _axes(settings, gpus)
    draft.raise_faults()
    _model(settings)
    _batch(settings)
    _training(settings)
    draft.note_optimizer(settings.get("optimizer.name"), settings.origin("optimizer.name"))
    for key in UNREPRESENTED:
        if settings.get(key):
            draft.note(f"not represented: {key} (line {settings.origin(key).line})")


def _read(source: str, text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Values and lines by dotted key."""
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise InputError(Problem("", "is nested too deep", source)) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        fault = Problem("", f"is not TOML: {error}", source, int(line[1]) if line else 0)
        raise InputError(fault) from None
    values = {key: value for key, value in _flat(tables, "") if "." in key}
    return values, _lines(text)


def _flat(table: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Each value that is no table, by dotted key."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _lines(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    section = ""
    for number, row in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.]+)\s*\]", row):
            section = header[1]
        elif key := re.match(r"\s*([\w.]+)\s*=", row):
            lines[f"{section}.{key[1]}" if section else key[1]] = number
    return lines


def _axes(settings: _Settings, gpus: int) -> None:
    draft = settings.draft
    tp = settings.number("parallelism.tensor_parallel_degree", 1)
    cp = settings.number("parallelism.context_parallel_degree", 1)
    pp = settings.number("parallelism.pipeline_parallel_degree", 1)
    copies = settings.number("parallelism.data_parallel_replicate_degree", 1)
    shards = settings.number("parallelism.data_parallel_shard_degree", 0)
    inner = tp * cp * pp * copies
    if not shards and not gpus:
        draft.fault(
            Origin("--gpus"), "is needed: data_parallel_shard_degree does not say how many GPUs run"
        )
    shards = shards or max(1, gpus // inner)
    if gpus and shards * inner != gpus:
        draft.fault(
            settings.origin("parallelism.data_parallel_shard_degree"),
            f"tp {tp} x cp {cp} x pp {pp} x replicas {copies} x shards {shards}"
            f" = {shards * inner} ranks, not the {gpus} GPUs of --gpus",
        )
    degrees = {
        **{"tp": tp, "cp": cp, "pp": pp, "dp": shards * copies},
        "ep": settings.number("parallelism.expert_parallel_degree", 1),
        "etp": settings.number("parallelism.expert_tensor_parallel_degree", tp),
    }
    put_axes(draft, degrees, {"ep": settings.origin("parallelism.expert_parallel_degree")})
    ep = draft.values["parallelism.ep"]
    if copies > 1 and shards > 1:
        replicate = settings.origin("parallelism.data_parallel_replicate_degree")
        draft.put("training.shard_group", max(1, shards // ep), replicate)
    if copies > 1 and shards == 1:
        draft.put("training.data_parallel", "ddp")


def _model(settings: _Settings) -> None:
    draft = settings.draft
    name = f"{settings.get('model.name', 'llama3')} {settings.get('model.flavor', '')}"
    put_shape(draft, name, settings.origin("model.flavor"))
    sequence = settings.number("training.seq_len", 2048)
    draft.put("model.sequence", sequence, settings.origin("training.seq_len"))
    is_full = settings.get("training.mixed_precision_param", "bfloat16") == "float32"
    origin = settings.origin("training.mixed_precision_param")
    stored = "fp32" if is_full else "bf16"
    draft.put("model.dtype", *(_converted(settings) or (stored, origin)))
    if settings.get("training.mixed_precision_reduce", "float32") == "bfloat16":
        origin = settings.origin("training.mixed_precision_reduce")
        draft.put("training.gradient_dtype", "bf16", origin)


def _converted(settings: _Settings) -> tuple[str, Origin] | None:
    """The precision to which converters cast matrices, and the key that says so."""
    named, origin = settings.get("model.converters", []), settings.origin("model.converters")
    precision = ""
    for name in named if isinstance(named, list) else [named]:
        last = str(name).rsplit(".", 1)[-1]
        if last in CONVERTERS:
            precision, section = CONVERTERS[last], name if "." in name else last
            recipe = str(settings.get(f"{section}.recipe_name", ""))
            if "fp4" in recipe:
                settings.draft.fault(origin, f"the precision of {recipe} is not known")
        elif "linear" in str(name):
            settings.draft.fault(origin, f"{name!r} is not a known converter")
        else:
            settings.draft.note(f"not represented: the converter {name} (line {origin.line})")
    return (precision, origin) if precision else None


def _batch(settings: _Settings) -> None:
    draft, values = settings.draft, settings.draft.values
    local = settings.number("training.local_batch_size", 8)
    replicas = values["parallelism.dp"] * values["parallelism.ep"]
    whole = settings.number("training.global_batch_size", local * replicas)
    draft.put("batch.global_sequences", whole, settings.origin("training.global_batch_size"))
    pp, key = values["parallelism.pp"], "parallelism.pipeline_parallel_microbatch_size"
    micro = settings.number(key, 1) if pp > 1 else local
    origin = settings.origin(key if pp > 1 else "training.local_batch_size")
    draft.put("batch.micro_sequences", micro, origin)
    if pp > 1 and (way := SCHEDULES.get(str(settings.get(SCHEDULE)))):
        draft.put("batch.schedule", way, settings.origin(SCHEDULE))
    chunks = _chunks(settings, pp) if pp > 1 else 1
    if chunks > 1:
        origin = settings.origin(SCHEDULE)
        draft.put("batch.virtual_stages", chunks, origin)


def _chunks(settings: _Settings, pp: int) -> int:
    schedule = str(settings.get(SCHEDULE, "1F1B"))
    if schedule in ("1F1B", "GPipe"):
        return 1
    if schedule != "Interleaved1F1B" and schedule not in SCHEDULES:
        settings.draft.note(f"the schedule {schedule} is counted as interleaved 1F1B")
    each = settings.number("parallelism.pipeline_parallel_layers_per_stage", 0, least=0)
    layers = int(settings.draft.values["model.layers"])
    return max(1, -(-layers // (each * pp))) if each else 2


def _training(settings: _Settings) -> None:
    draft = settings.draft
    pipelined = draft.values["parallelism.pp"] > 1
    key = "parallelism.fsdp_reshard_after_forward"
    policy = settings.get(key, "default")
    reshards = policy == "always" or (policy == "default" and not pipelined)
    draft.put("training.data_parallel", "zero3" if reshards else "fsdp", settings.origin(key))
    if reshards or not pipelined:
        draft.put("training.sync", "micro_batch", settings.origin(key))
    if draft.values["parallelism.cp"] > 1:
        key = "parallelism.context_parallel_rotate_method"
        rotates = settings.get(key, "allgather") == "alltoall"
        draft.put(
            "training.context_parallel", "ring" if rotates else "allgather", settings.origin(key)
        )
    key = "activation_checkpoint.mode"
    if settings.get(key, "selective") == "full":
        draft.put("training.recompute", "full", settings.origin(key))
    elif settings.get(key, "selective") == "selective":
        draft.note("selective checkpointing keeps less than is counted here: scores alone")
