"""DeepSpeed's JSON.

Keys: "DeepSpeed Configuration JSON" of its documentation. It says how state is sharded and
how large batches are; the model, and how it is split into tensors and pipelines, stand in
the training program. Ranks are ordered as its topologies do: model innermost, then data,
then pipe: tp-cp-ep-dp-pp.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from importers.jobs.draft import Draft, Origin
from muster.structs import struct
from scheduler.files.errors import InputError, Problem

STAGES = ("ddp", "zero1", "zero2", "zero3")
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
DTYPES = {"fp16": "fp16", "bf16": "bf16", "bfloat16": "bf16", "fp32": "fp32"}
UNREPRESENTED = (
    "zero_optimization.offload_param",
    "zero_optimization.offload_optimizer",
    "zero_optimization.zero_quantized_weights",
    "zero_optimization.zero_quantized_gradients",
    "zero_optimization.zero_hpz_partition_size",
    "activation_checkpointing.cpu_checkpointing",
    "compression_training",
    "curriculum_learning",
    "elasticity",
)


@struct(frozen=True, slots=True)
class _Settings:
    draft: Draft
    values: dict[str, Any]
    text: str

    def origin(self, key: str) -> Origin:
        """Each part of the key is looked for after the one before."""
        at = 0
        for part in key.split("."):
            match = re.compile(rf'"{re.escape(part)}"\s*:').search(self.text, at)
            if match is None:
                return Origin(key)
            at = match.end()
        return Origin(key, self.text.count("\n", 0, at) + 1)

    def get(self, key: str, default: Any = None) -> Any:
        value: Any = self.values
        for part in key.split("."):
            if not isinstance(value, dict) or part not in value:
                return default
            value = value[part]
        return value

    def number(self, key: str, default: int = 0) -> int:
        """0 or more; "auto" is for the trainer to fill in, and so is not known here."""
        value = self.get(key, default)
        if value == "auto":
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.draft.fault(self.origin(key), f"must be a whole number, is {value!r}")
            return default
        return value


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a configuration of DeepSpeed. Raises: InputError."""
    settings = _Settings(draft, _read(draft.source, text), text)
    if not settings.values.keys() & {"zero_optimization", "fp16", "bf16", *BATCH}:
        draft.fault(Origin(""), "has none of DeepSpeed's keys, such as zero_optimization")
    draft.raise_faults()
    inner = _inner(settings)
    _data(settings, gpus, inner)
    draft.raise_faults()
    _training(settings)
    _model(settings)
    draft.note_optimizer(settings.get("optimizer.type"), settings.origin("optimizer.type"))
    for key in UNREPRESENTED:
        value = settings.get(key)
        is_off = not value or value == {"device": "none"}
        if not is_off and (value is True or value != 1):  # 1: a partition of one
            draft.note(f"not represented: {key} (line {settings.origin(key).line})")


def _read(source: str, text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        message = getattr(error, "msg", "is nested too deeply")
        raise InputError(Problem("", f"is not JSON: {message}", source, line)) from None
    if not isinstance(values, dict):
        raise InputError(Problem("", "must be a mapping of keys to values", source))
    return values


def _inner(settings: _Settings) -> int:
    """Ranks of one replica, from the axes given by hand and the two that the file can say."""
    draft = settings.draft
    if not {"parallelism.tp", "parallelism.pp"} & draft.values.keys():
        draft.note(
            "tensor and pipeline parallelism are set in the training program, if at all:"
            " --set parallelism.tp=... and --set parallelism.pp=... give them"
        )
    tensors = settings.number("tensor_parallel.autotp_size", 1) or 1
    draft.put("parallelism.tp", tensors, settings.origin("tensor_parallel.autotp_size"))
    sequences = settings.number("sequence_parallel_size", 1) or 1
    draft.put("parallelism.cp", sequences, settings.origin("sequence_parallel_size"))
    if draft.values["parallelism.cp"] != 1:
        draft.put("training.context_parallel", "ulysses")
    for axis in ("ep", "pp"):
        draft.put(f"parallelism.{axis}", 1)
    draft.put("parallelism.order", "tp-cp-ep-dp-pp")
    inner = 1
    for axis in ("tp", "cp", "pp"):
        size = draft.values[f"parallelism.{axis}"]
        inner *= size if isinstance(size, int) and size > 0 else 1
    return inner


def _data(settings: _Settings, gpus: int, inner: int) -> None:
    """train = micro x accumulation x replicas: any of them follows from the others."""
    draft = settings.draft
    whole, micro, steps = (settings.number(key) for key in BATCH)
    # "auto" is what the trainer fills in, and what --set says here.
    whole = _stated_number(draft, "batch.global_sequences") or whole
    micro = _stated_number(draft, "batch.micro_sequences") or micro
    replicas = gpus // inner
    if gpus % inner:
        draft.fault(Origin("--gpus"), f"{gpus} GPUs are not whole replicas of {inner} ranks")
    if not replicas and whole and micro and steps and not whole % (micro * steps):
        replicas = whole // (micro * steps)
    if not replicas:
        draft.fault(Origin("--gpus"), "is needed: the file does not say how many GPUs run")
        replicas = 1
    if not micro:
        micro, odd = divmod(whole, replicas * (steps or 1)) if whole else (0, 0)
        micro = 0 if odd else micro
    if not micro:
        origin = settings.origin(BATCH[1])
        draft.fault(origin, "does not follow: --set batch.micro_sequences=... gives it")
        return
    whole = whole or micro * (steps or 1) * replicas
    ep = draft.values["parallelism.ep"]
    experts = ep if isinstance(ep, int) and ep > 0 and not replicas % ep else 1
    draft.put("parallelism.dp", replicas // experts)
    draft.put("batch.global_sequences", whole, settings.origin(BATCH[0]))
    draft.put("batch.micro_sequences", micro, settings.origin(BATCH[1]))


def _stated_number(draft: Draft, key: str) -> int:
    value = draft.values.get(key)
    return value if isinstance(value, int) and value > 0 else 0


def _training(settings: _Settings) -> None:
    draft = settings.draft
    key = "zero_optimization.stage"
    stage = settings.number(key)
    if stage >= len(STAGES):
        draft.fault(settings.origin(key), f"must be 0 to 3, is {stage}")
        draft.raise_faults()
    draft.put("training.data_parallel", STAGES[stage], settings.origin(key))
    if stage >= 2:
        draft.put("training.sync", "micro_batch", settings.origin(key))
    group = settings.number("zero_optimization.mics_shard_size") if _is_mics(settings) else 0
    if group:
        key = "zero_optimization.mics_shard_size"
        draft.put("training.shard_group", group, settings.origin(key))
    spoken = settings.get("communication_data_type")
    dtype = DTYPES.get(str(spoken), _dtype(settings))
    if dtype != "fp32":
        draft.put("training.gradient_dtype", dtype, settings.origin("communication_data_type"))


def _is_mics(settings: _Settings) -> bool:
    """-1, the default, switches it off."""
    return bool(settings.get("zero_optimization.mics_shard_size", -1) != -1)


def _dtype(settings: _Settings) -> str:
    for dtype in ("bf16", "fp16"):
        if settings.get(f"{dtype}.enabled") in (True, "auto"):
            return dtype
    return "bf16" if settings.get("bfloat16.enabled") is True else "fp32"


def _model(settings: _Settings) -> None:
    draft = settings.draft
    for key, value in draft.model.items():
        draft.put(key, value, Origin("--model"))
    if not any(key.startswith("model.") for key in draft.values):
        draft.note(
            "no model: the file does not describe one, so no bytes follow; --model FILE takes it"
            " from a job file or config.json, --set traffic.dp=... gives an axis' bytes by hand"
        )
        return
    if "model.sequence" not in draft.values:
        draft.fault(
            Origin("--set model.sequence"), "must be given: no file has the sequence length"
        )
    draft.put("model.dtype", _dtype(settings))
