"""Accelerate's YAML, as `accelerate config` writes it.

Keys: "The Accelerate configuration" of its documentation. It says how many processes run, how
state is sharded and the precision; the model stands in the training program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from importers.jobs.draft import (
    FORMATS,
    ZERO_STAGES,
    Draft,
    Origin,
    flat_settings,
    put_given_model,
    put_sharding,
)
from scheduler.files.yaml12 import parse

_SHARDS: Final = {"MULTI_GPU": "ddp", "FSDP": "zero3", "DEEPSPEED": "", "NO": "ddp"}
_DTYPES: Final = {"bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "no": "fp32"}
_LEFT_TO_PROGRAM: Final = (
    *("compute_environment", "debug", "machine_rank", "main_", "num_machines", "rdzv_backend"),
    *("same_network", "downcast_bf16", "use_cpu", "fsdp_config.", "deepspeed_config."),
)


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a configuration of Accelerate. Raises: InputError."""
    document = parse(text, draft.source)
    settings = flat_settings(draft, document.mapping(), document.lines)
    if "distributed_type" not in settings.values:
        draft.fault(Origin(""), f"is no configuration of Accelerate (distributed_type): {FORMATS}")
        draft.raise_faults()
    kind = str(settings.get("distributed_type"))
    if kind not in _SHARDS:
        known = ", ".join(_SHARDS)
        draft.fault(settings.origin("distributed_type"), f"is not represented; known are {known}")
    ranks = settings.number("num_processes", default=gpus)
    stage = settings.number("deepspeed_config.zero_stage", default=2, least=0)
    if stage >= len(ZERO_STAGES):
        draft.fault(settings.origin("deepspeed_config.zero_stage"), f"must be 0 to 3, is {stage}")
    draft.raise_faults()
    ranks = draft.with_given_degrees({"dp": gpus or ranks})["dp"]
    draft.put("parallelism.dp", ranks, settings.origin("num_processes"))
    shards = _SHARDS[kind] or ZERO_STAGES[stage]
    reshards = str(settings.get("fsdp_config.fsdp_reshard_after_forward", default="true")).lower()
    if reshards in ("false", "shard_grad_op"):
        shards = "zero2"
    steps = settings.number("deepspeed_config.gradient_accumulation_steps")
    precision = str(settings.get("mixed_precision", default="no"))
    if draft.model:
        dtype = _DTYPES.get(precision, "bf16")
        draft.put("model.dtype", dtype, settings.origin("mixed_precision"))
    key = "fsdp_config.fsdp_activation_checkpointing"
    recomputes = settings.get(key) is True
    for name, value in settings.values.items():
        if "offload" in name and value not in (False, "none", None):
            draft.note(f"not represented: {name}")
    settings.note_unread(_LEFT_TO_PROGRAM)
    if not put_given_model(draft):
        return
    put_sharding(draft, shards, settings.origin("distributed_type"))
    if recomputes:
        draft.put("training.recompute", "full", settings.origin(key))
    micro = int(draft.values.get("batch.micro_sequences", 1))
    if "batch.global_sequences" not in draft.values:
        draft.note(
            f"batch.global_sequences is {micro} x {ranks} ranks: the program says how many; --set"
            " batch.micro_sequences=... gives them"
        )
    draft.put("batch.global_sequences", micro * ranks * steps)
    draft.raise_faults()
