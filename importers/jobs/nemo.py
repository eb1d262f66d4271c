"""Recipes of NeMo 2 and Megatron Bridge: a pretrain_recipe of a model, and what is set after it.

The recipe's own defaults stand in NeMo, and are not known here: axes that the file does not set
are 1, and that is said.
"""

from __future__ import annotations

from typing import Any, Final

from importers.jobs.draft import Draft, Origin, put_experts
from importers.jobs.python_config import PythonConfig, model_name, note_computed, required_ranks
from importers.jobs.torchtitan import SHAPES

_STRATEGY: Final = ("trainer.strategy", "model", "strategy")
_AXES: Final = {
    "tp": "tensor_model_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
_READ: Final = ("virtual_pipeline_model_parallel_size", "sequence_parallel")
_SILENT: Final = ("name", "dir", "num_nodes", "num_gpus_per_node")


def draw(draft: Draft, config: PythonConfig, gpus: int) -> None:
    """Fill `draft`. Raises: InputError."""
    nodes, each = _get(config, "num_nodes"), _get(config, "num_gpus_per_node")
    said = nodes * each if isinstance(nodes, int) and isinstance(each, int) else 0
    ranks = required_ranks(draft, gpus, said)
    read = set[str](_SILENT)
    degrees = {}
    for axis, name in _AXES.items():
        path = _path_of_axis(config, name)
        value = config.values.get(path, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            draft.fault(Origin(path, config.lines.get(path, 0)), "must be a whole number")
            value = 1
        degrees[axis] = value
        read.add(path)
    if "etp" not in {
        axis for axis, name in _AXES.items() if _path_of_axis(config, name) in config.values
    }:
        degrees["etp"] = degrees["tp"]
    inner = degrees["tp"] * degrees["cp"] * degrees["pp"]
    if ranks % inner:
        draft.fault(Origin("--gpus"), f"tp x cp x pp = {inner} do not divide {ranks} GPUs")
        draft.raise_faults()
    degrees["dp"] = ranks // inner
    ep, dp = put_experts(draft, degrees, Origin(_AXES["ep"]))
    for axis, size in (("tp", degrees["tp"]), ("cp", degrees["cp"]), ("ep", ep)):
        draft.put(f"parallelism.{axis}", size)
    draft.put("parallelism.pp", degrees["pp"])
    draft.put("parallelism.dp", dp)
    draft.put("parallelism.order", "tp-cp-ep-dp-pp")
    if not any(_path_of_axis(config, name) in config.values for name in _AXES.values()):
        draft.note("the recipe's own axes are not known here: all of them are 1")
    _model(draft, config)
    read |= _batch(draft, config, ranks)
    virtual = _path_of_axis(config, _READ[0])
    if isinstance(chunks := config.values.get(virtual), int) and degrees["pp"] > 1:
        draft.put("batch.virtual_stages", chunks)
    read |= {_path_of_axis(config, name) for name in _READ}
    draft.put("training.data_parallel", "zero1")  # Megatron's distributed optimizer
    if degrees["tp"] > 1 and config.values.get(_path_of_axis(config, _READ[1])) is False:
        draft.put("training.sequence_parallel", False)
    if degrees["cp"] > 1:
        draft.put("training.context_parallel", "ring")
    for path, line in config.lines.items():
        if path not in read:
            draft.note(f"not represented: {path} (line {line})")
    note_computed(draft, config)


def _get(config: PythonConfig, name: str) -> Any:
    return config.values.get(name)


def _path_of_axis(config: PythonConfig, name: str) -> str:
    """Where the file sets an axis: of the strategy or of the model."""
    paths = (f"{section}.{name}" for section in _STRATEGY)
    return next((path for path in paths if path in config.values), f"{_STRATEGY[0]}.{name}")


def _model(draft: Draft, config: PythonConfig) -> None:
    if draft.model:
        shape = draft.model
    else:
        name = " ".join(model_name(config.recipe))
        if name not in SHAPES:
            known = ", ".join(SHAPES)
            draft.fault(
                Origin(config.recipe),
                f"the shape of {config.recipe} is not known (known: {known}): --model FILE takes it"
                " from a job file or a config.json",
            )
            draft.raise_faults()
        shape = {f"model.{key}": value for key, value in SHAPES[name].items()}
    for key, value in shape.items():
        draft.put(key, value)
    sequence = config.values.get("data.seq_length", config.values.get("model.seq_length"))
    draft.put("model.sequence", sequence if isinstance(sequence, int) else 8192)
    if not isinstance(sequence, int):
        draft.note("the recipe's sequence is taken to be 8,192: --set model.sequence=... says it")


def _batch(draft: Draft, config: PythonConfig, ranks: int) -> set[str]:
    whole, micro = "data.global_batch_size", "data.micro_batch_size"
    replicas = draft.values["parallelism.dp"] * draft.values["parallelism.ep"]
    each = config.values.get(micro, 1)
    draft.put("batch.micro_sequences", each)
    draft.put("batch.global_sequences", config.values.get(whole, each * replicas))
    return {whole, micro, "data.seq_length", "model.seq_length"}
