"""DeepSpeed's JSON.

Keys: "DeepSpeed Configuration JSON" of its documentation. It says how state is sharded and
how large batches are; the model, and how it is split into tensors and pipelines, stand in
the training program. Ranks are ordered as its topologies do: model innermost, then data,
then pipe: tp-cp-ep-dp-pp.
"""

from __future__ import annotations

from collections.abc import Mapping

from importers.jobs.draft import (
    ORDER,
    ZERO_STAGES,
    Draft,
    Origin,
    TrainerSettings,
    flat_settings,
    put_given_model,
    put_sharding,
)
from scheduler.files.yaml12 import JsonFile

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


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from a configuration of DeepSpeed. Raises: InputError."""
    file = JsonFile.load(draft.source)
    if not isinstance(file.value, dict):
        raise file.error("", "must be a mapping of keys to values")
    settings = flat_settings(draft, file.value, file.lines())
    if not file.value.keys() & {"zero_optimization", "fp16", "bf16", *BATCH}:
        draft.fault(Origin(""), "has none of DeepSpeed's keys, such as zero_optimization")
    draft.raise_faults()
    inner = _inner(settings)
    _data(settings, gpus, inner)
    draft.raise_faults()
    _training(settings)
    if put_given_model(draft):
        draft.put("model.dtype", _dtype(settings))
    draft.note_optimizer(settings.get("optimizer.type"), settings.origin("optimizer.type"))
    on = {  # 1: a partition of one
        key: line
        for key, line in settings.lines.items()
        if (value := settings.values[key]) and value != "none" and (value is True or value != 1)
    }
    for name in UNREPRESENTED:
        if line := next((line for key, line in on.items() if key.startswith(name)), 0):
            draft.note(f"not represented: {name} (line {line})")


def _inner(settings: TrainerSettings) -> int:
    """Ranks of one replica, from the axes given by hand and the two that the file can say."""
    draft = settings.draft
    if not {"parallelism.tp", "parallelism.pp"} & draft.values.keys():
        draft.note(
            "tensor and pipeline parallelism are set in the training program, if at all:"
            " --set parallelism.tp=... and --set parallelism.pp=... give them"
        )
    tensors = settings.number("tensor_parallel.autotp_size", least=0) or 1
    draft.put("parallelism.tp", tensors, settings.origin("tensor_parallel.autotp_size"))
    sequences = settings.number("sequence_parallel_size", least=0) or 1
    draft.put("parallelism.cp", sequences, settings.origin("sequence_parallel_size"))
    if draft.values["parallelism.cp"] != 1:
        draft.put("training.context_parallel", "ulysses")
    for axis in ("ep", "pp"):
        draft.put(f"parallelism.{axis}", 1)
    draft.put("parallelism.order", ORDER)
    inner = 1
    for axis in ("tp", "cp", "pp"):
        size = draft.values[f"parallelism.{axis}"]
        inner *= size if isinstance(size, int) and size > 0 else 1
    return inner


def _data(settings: TrainerSettings, gpus: int, inner: int) -> None:
    """train = micro x accumulation x replicas: any of them follows from the others."""
    draft = settings.draft
    whole, micro, steps = (settings.number(key, default=0, least=0) for key in BATCH)
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


def _training(settings: TrainerSettings) -> None:
    draft = settings.draft
    key = "zero_optimization.stage"
    stage = settings.number(key, default=0, least=0)
    if stage >= len(ZERO_STAGES):
        draft.fault(settings.origin(key), f"must be 0 to 3, is {stage}")
        draft.raise_faults()
    group = settings.number("zero_optimization.mics_shard_size", default=0, least=0)  # -1: off
    put_sharding(draft, ZERO_STAGES[stage], settings.origin(key), group)
    spoken = settings.get("communication_data_type")
    dtype = DTYPES.get(str(spoken), _dtype(settings))
    if dtype != "fp32":
        draft.put("training.gradient_dtype", dtype, settings.origin("communication_data_type"))


def _dtype(settings: TrainerSettings) -> str:
    for dtype in ("bf16", "fp16"):
        if settings.get(f"{dtype}.enabled") in (True, "auto"):
            return dtype
    return "bf16" if settings.get("bfloat16.enabled") is True else "fp32"
