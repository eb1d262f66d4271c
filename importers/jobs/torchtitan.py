"""TorchTitan's TOML.

Keys and defaults: torchtitan/config/job_config.py of pytorch/torchtitan; the older places
of the same keys are read too. The mesh is pp, dp_replicate, dp_shard, cp, tp from the
outermost in, which is the order tp-cp-ep-dp-pp. A model is named, not described: the
shapes below are those of its published models.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from importers.jobs.draft import Draft, Origin, TrainerSettings, flat_settings, put_axes
from importers.jobs.python_config import PythonConfig, model_name
from importers.jobs.shapes import put_shape
from scheduler.files.errors import InputError, Problem

_OLDER = {
    "training.local_batch_size": "training.batch_size",
    "parallelism.data_parallel_shard_degree": "training.data_parallel_shard_degree",
    "parallelism.data_parallel_replicate_degree": "training.data_parallel_replicate_degree",
    "parallelism.tensor_parallel_degree": "training.tensor_parallel_degree",
    "parallelism.pipeline_parallel_degree": "experimental.pipeline_parallel_degree",
    "parallelism.pipeline_parallel_schedule": "experimental.pipeline_parallel_schedule",
    "parallelism.context_parallel_degree": "experimental.context_parallel_degree",
}
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


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a TOML file of TorchTitan. Raises: InputError."""
    settings = flat_settings(draft, _read(draft.source, text), _lines(text), _OLDER)
    draw_settings(settings, gpus)
    settings.note_unread(_LEFT_TO_PROGRAM_IN_TOML)


def draw_python(draft: Draft, config: PythonConfig, gpus: int) -> None:
    """Fill `draft` from a function of TorchTitan's registry in Python. Raises: InputError."""
    name, flavor = model_name(config.recipe)
    values = {"model.name": name, "model.flavor": flavor} | config.values
    settings = TrainerSettings(draft, values, config.lines, config.computed, _OLDER)
    draw_settings(settings, gpus)
    settings.note_unread(_LEFT_TO_PROGRAM, config.places)
    config.note_skipped(draft)


def draw_settings(settings: TrainerSettings, gpus: int) -> None:
    """Fill `draft` from settings of TorchTitan. Raises: InputError."""
    draft = settings.draft
    if not settings.values.keys() & {"model.name", "training.seq_len", *_OLDER, *_OLDER.values()}:
        draft.fault(Origin(""), "has none of TorchTitan's keys, such as training.seq_len")
        draft.raise_faults()
    _axes(settings, gpus)
    draft.raise_faults()
    _model(settings)
    _batch(settings)
    _training(settings)
    draft.note_optimizer(settings.get("optimizer.name"), settings.origin("optimizer.name"))


def _read(source: str, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(Problem("", "is nested too deep", source)) from None
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        fault = Problem("", f"is not TOML: {error}", source, int(line[1]) if line else 0)
        raise InputError(fault) from None


def _lines(text: str) -> dict[str, int]:
    lines: dict[str, int] = {}
    section = ""
    for number, row in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.]+)\s*\]", row):
            section = header[1]
        elif key := re.match(r"\s*([\w.]+)\s*=", row):
            lines[f"{section}.{key[1]}" if section else key[1]] = number
    return lines


def _axes(settings: TrainerSettings, gpus: int) -> None:
    draft = settings.draft
    tp = settings.number("parallelism.tensor_parallel_degree", default=1)
    cp = settings.number("parallelism.context_parallel_degree", default=1)
    pp = settings.number("parallelism.pipeline_parallel_degree", default=1)
    copies = settings.number("parallelism.data_parallel_replicate_degree", default=1)
    shards = settings.number("parallelism.data_parallel_shard_degree", default=0)
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
        "ep": settings.number("parallelism.expert_parallel_degree", default=1),
        "etp": settings.number("parallelism.expert_tensor_parallel_degree", default=tp),
    }
    put_axes(draft, degrees, {"ep": settings.origin("parallelism.expert_parallel_degree")})
    ep = draft.values["parallelism.ep"]
    if copies > 1 and shards > 1:
        replicate = settings.origin("parallelism.data_parallel_replicate_degree")
        draft.put("training.shard_group", max(1, shards // ep), replicate)
    if copies > 1 and shards == 1:
        draft.put("training.data_parallel", "ddp")


def _model(settings: TrainerSettings) -> None:
    draft = settings.draft
    name = (
        f"{settings.get('model.name', default='llama3')} {settings.get('model.flavor', default='')}"
    )
    put_shape(draft, name, settings.origin("model.flavor"))
    sequence = settings.number("training.seq_len", default=2048)
    draft.put("model.sequence", sequence, settings.origin("training.seq_len"))
    is_full = settings.get("training.mixed_precision_param", default="bfloat16") == "float32"
    origin = settings.origin("training.mixed_precision_param")
    stored = "fp32" if is_full else "bf16"
    draft.put("model.dtype", *(_converted(settings) or (stored, origin)))
    if settings.get("training.mixed_precision_reduce", default="float32") == "bfloat16":
        origin = settings.origin("training.mixed_precision_reduce")
        draft.put("training.gradient_dtype", "bf16", origin)


def _converted(settings: TrainerSettings) -> tuple[str, Origin] | None:
    """The precision to which converters cast matrices, and the key that says so."""
    named, origin = (
        settings.get("model.converters", default=[]),
        settings.origin("model.converters"),
    )
    precision = ""
    for name in named if isinstance(named, list) else [named]:
        last = str(name).rsplit(".", 1)[-1]
        if last in CONVERTERS:
            precision, section = CONVERTERS[last], name if "." in name else last
            recipe = str(settings.get(f"{section}.recipe_name", default=""))
            if "fp4" in recipe:
                settings.draft.fault(origin, f"the precision of {recipe} is not known")
        elif "linear" in str(name):
            settings.draft.fault(origin, f"{name!r} is not a known converter")
        else:
            settings.draft.note(f"not represented: the converter {name} (line {origin.line})")
    return (precision, origin) if precision else None


def _batch(settings: TrainerSettings) -> None:
    draft, values = settings.draft, settings.draft.values
    local = settings.number("training.local_batch_size", default=8)
    replicas, pp = values["parallelism.dp"] * values["parallelism.ep"], values["parallelism.pp"]
    whole = settings.number("training.global_batch_size", default=local * replicas)
    draft.put("batch.global_sequences", whole, settings.origin("training.global_batch_size"))
    key = "parallelism.pipeline_parallel_microbatch_size"
    micro, schedule = settings.number(key), str(settings.get(SCHEDULE, default="1F1B"))
    each = settings.number("parallelism.pipeline_parallel_layers_per_stage", default=0, least=0)
    if pp == 1:
        key, micro = "training.local_batch_size", local
    draft.put("batch.micro_sequences", micro, settings.origin(key))
    if pp == 1 or schedule in ("1F1B", "GPipe"):
        return
    if schedule in SCHEDULES:
        draft.put("batch.schedule", SCHEDULES[schedule], settings.origin(SCHEDULE))
    elif schedule != "Interleaved1F1B":
        draft.note(f"the schedule {schedule} is counted as interleaved 1F1B")
    chunks = max(1, -(-int(values["model.layers"]) // (each * pp))) if each else 2
    if chunks > 1:
        draft.put("batch.virtual_stages", chunks, settings.origin(SCHEDULE))


def _training(settings: TrainerSettings) -> None:
    draft = settings.draft
    pipelined = draft.values["parallelism.pp"] > 1
    key = "parallelism.fsdp_reshard_after_forward"
    policy = settings.get(key, default="default")
    reshards = policy == "always" or (policy == "default" and not pipelined)
    draft.put("training.data_parallel", "zero3" if reshards else "fsdp", settings.origin(key))
    if reshards or not pipelined:
        draft.put("training.sync", "micro_batch", settings.origin(key))
    key = "parallelism.context_parallel_rotate_method"
    way = "ring" if settings.get(key) == "alltoall" else "allgather"
    if draft.values["parallelism.cp"] > 1:
        draft.put("training.context_parallel", way, settings.origin(key))
    key = "activation_checkpoint.mode"
    mode = settings.get(key, default="selective")
    if mode == "full":
        draft.put("training.recompute", "full", settings.origin(key))
    elif mode == "selective":
        draft.note("selective checkpointing keeps less than is counted here: scores alone")
