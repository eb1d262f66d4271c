"""Accelerate's YAML, as `accelerate config` writes it.

Keys: "The Accelerate configuration" of its documentation. It says how many processes run, how
state is sharded and the precision; the model stands in the training program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from importers.jobs.draft import FORMATS, Draft, Origin
from scheduler.files.yaml12 import parse

_SHARDS: Final = {"MULTI_GPU": "ddp", "FSDP": "zero3", "DEEPSPEED": "", "NO": "ddp"}
_STAGES: Final = ("ddp", "zero1", "zero2", "zero3")
_DTYPES: Final = {"bf16": "bf16", "fp16": "fp16", "no": "fp32"}
_READ: Final = frozenset(
    {
        *("compute_environment", "debug", "distributed_type", "fsdp_config", "deepspeed_config"),
        *("machine_rank", "main_training_function", "mixed_precision", "num_machines"),
        *("num_processes", "rdzv_backend", "same_network", "main_process_ip"),
        *("main_process_port", "downcast_bf16", "use_cpu"),
    }
)


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a configuration of Accelerate. Raises: InputError."""
    document = parse(text, draft.source)
    values = document.mapping()
    if "distributed_type" not in values:
        draft.fault(Origin(""), f"is no configuration of Accelerate (distributed_type): {FORMATS}")
        draft.raise_faults()

    def origin(key: str) -> Origin:
        return Origin(key, document.lines.get(key, 0))

    kind = str(values["distributed_type"])
    if kind not in _SHARDS:
        known = ", ".join(_SHARDS)
        draft.fault(origin("distributed_type"), f"is not represented; known are {known}")
    ranks = gpus or values.get("num_processes")
    if not isinstance(ranks, int) or ranks < 1:
        draft.fault(origin("num_processes"), "must be a whole number: how many GPUs run")
    deepspeed = _section(values, "deepspeed_config")
    stage = deepspeed.get("zero_stage", 2)
    if isinstance(stage, bool) or stage not in range(len(_STAGES)):
        key = "deepspeed_config.zero_stage"
        draft.fault(origin(key), f"must be a whole number from 0 to 3, not {stage!r}")
    draft.raise_faults()
    assert isinstance(ranks, int)
    ranks = draft.with_given_degrees({"dp": ranks})["dp"]
    draft.put("parallelism.dp", ranks, origin("num_processes"))
    fsdp = _section(values, "fsdp_config")
    shards = _SHARDS[kind] or _STAGES[int(stage)]
    if str(fsdp.get("fsdp_reshard_after_forward", "true")).lower() in ("false", "shard_grad_op"):
        shards = "zero2"
    draft.put("training.data_parallel", shards, origin("distributed_type"))
    if shards in ("zero2", "zero3"):
        draft.put("training.sync", "micro_batch", origin("distributed_type"))
    if fsdp.get("fsdp_activation_checkpointing") is True:
        key = "fsdp_config.fsdp_activation_checkpointing"
        draft.put("training.recompute", "full", origin(key))
    _model(draft, values, deepspeed, ranks, origin("mixed_precision"))
    for section in ("fsdp_config", "deepspeed_config"):
        for key, value in _section(values, section).items():
            if "offload" in key and value not in (False, "none", None):
                draft.note(f"not represented: {section}.{key}")
    for key in values:
        if key not in _READ:
            draft.note(f"not represented: {key} (line {document.lines.get(key, 0)})")


def _section(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    section = values.get(key)
    return section if isinstance(section, dict) else {}


def _model(
    draft: Draft,
    values: Mapping[str, Any],
    deepspeed: Mapping[str, Any],
    ranks: int,
    origin: Origin,
) -> None:
    """The model of --model, with the precision and the batch of the file."""
    if not draft.model:
        draft.note("no model: --model config.json gives it, and the bytes of a step follow from it")
        draft.values.pop("training.data_parallel", None)
        draft.values.pop("training.sync", None)
        draft.values.pop("training.recompute", None)
        return
    for key, value in draft.model.items():
        if key != "model.dtype":
            draft.put(key, value)
    precision = str(values.get("mixed_precision", "no"))
    if precision == "fp8":
        draft.put("model.dtype", "fp8", origin)
    else:
        draft.put("model.dtype", _DTYPES.get(precision, "bf16"), origin)
    steps = deepspeed.get("gradient_accumulation_steps", 1)
    micro = int(draft.values.get("batch.micro_sequences", 1))
    whole = micro * ranks * (steps if isinstance(steps, int) else 1)
    if "batch.global_sequences" not in draft.values:
        draft.note(
            f"batch.global_sequences is {micro} x {ranks} ranks: the program says how many; --set"
            " batch.micro_sequences=... gives them"
        )
    draft.put("batch.global_sequences", whole)
    if "model.sequence" not in draft.values:
        draft.fault(Origin("--set"), "model.sequence=... is needed: the file does not say it")
    draft.raise_faults()
