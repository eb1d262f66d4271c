"""Recipes of NeMo 2 and of Megatron-Bridge: functions that return a configuration, and what is set
after them.

NeMo keeps axes in `trainer.strategy` and batches in `data`, Megatron-Bridge in `model` and `train`,
its tables of workloads in one call. Defaults of a function whose file is not at hand are not known:
axes that nothing sets are 1, and that is said.
"""

from __future__ import annotations

import re
from typing import Any, Final

from importers.jobs.draft import Draft, Origin, TrainerSettings, put_axes, put_sharding
from importers.jobs.python_config import Computed, Config, PythonConfig
from importers.jobs.scripts.megatron import CONTEXT, SHARDING
from importers.jobs.shapes import SHAPES, put_shape

RECIPE: Final = re.compile(r"pretrain_recipe|\bnemo\b|megatron\.bridge|WorkloadBaseConfig")
_MODEL: Final = ("trainer.strategy.", "model.config.", "model.", "strategy.", "")
_DDP: Final = ("trainer.strategy.ddp.", "optim.config.", "ddp.", "")
_OPTIMIZER: Final = ("optim.config.", "optimizer.")
_BATCH: Final = ("data.", "train.", "")
_AXES: Final = {
    "tp": "tensor_model_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "etp": "expert_tensor_parallel_size",
}
# Names of precisions, most telling first: recipes of mixed precision, and what recipes are called.
_PRECISIONS: Final = (
    ("nvfp4", re.compile(r"nvfp4")),
    ("mxfp8", re.compile(r"mxfp8|fp8_?mx")),
    ("fp8", re.compile(r"fp8")),
    ("fp16", re.compile(r"fp16|\b16-mixed")),
    ("bf16", re.compile(r"bf16")),
)
# What bears on neither shape, bytes nor memory.
_LEFT_TO_PROGRAM: Final = (
    *("log", "checkpoint.", "rng.", "scheduler.", "tokenizer.", "validation.", "env_vars", "dist."),
    *("optimizer.lr", "optimizer.min_lr", "optim.", "resume.", "dataset.", "data.", "train.eval"),
    *("train.train_iters", "train.manual_gc", "trainer.max_steps", "trainer.val_", "profiling"),
    *("trainer.limit_", "trainer.log_", "trainer.accelerator", "trainer.use_distributed", "name"),
    *("dir", "fn", "model.rotary", "model.init_method", "trainer.num_sanity", "optim", "resume"),
)
_ALIASES: Final = {
    **{"deepseekv3": "deepseek_v3 671B", "deepseekv2lite": "deepseek_v3 16B"},
    **{"deepseekv2": "deepseek_v3 236B"},
    **{re.sub(r"\W|_", "", name).lower(): name for name in SHAPES},
}


def _under(sections: tuple[str, ...], name: str) -> tuple[str, ...]:
    """Return the paths of a setting in these sections."""
    return tuple(f"{section}{name}" for section in sections)


def draw(draft: Draft, config: PythonConfig, gpus: int) -> None:
    """Fill `draft` from a configuration of NeMo. Raises: InputError."""
    settings = TrainerSettings(draft, config.values, config.lines, config.computed)
    _axes(settings, config, _ranks(settings, config, gpus))
    _model(settings, config)
    _batch(settings)
    _training(settings, config)
    settings.read.update(("model", "model.config"))
    settings.note_unread(_LEFT_TO_PROGRAM, config.places)
    config.note_skipped(draft)


def _ranks(settings: TrainerSettings, config: PythonConfig, gpus: int) -> int:
    """GPUs as the user, the settings or the recipe's name has them."""
    nodes = settings.get("num_nodes", "trainer.num_nodes", default=0)
    each = settings.get("num_gpus_per_node", "trainer.devices", default=0)
    said = settings.get("num_gpus", default=0)
    if isinstance(nodes, int) and isinstance(each, int):
        said = said or nodes * each
    named = re.search(r"_(\d+)gpus?_", config.name)
    if not (gpus or said) and named:
        said = int(named[1])
        settings.draft.note(f"{said} GPUs, as the recipe's name says")
    if not isinstance(said, int) or not (gpus or said):
        message = "is needed: the file does not say how many GPUs run"
        settings.draft.fault(Origin("--gpus"), message)
        settings.draft.raise_faults()
    return gpus or int(said)


def _axes(settings: TrainerSettings, config: PythonConfig, ranks: int) -> None:
    draft = settings.draft
    degrees = {
        axis: settings.number(*_under(_MODEL, name), default=1) for axis, name in _AXES.items()
    }
    paths = {axis: settings.key(*_under(_MODEL, name)) for axis, name in _AXES.items()}
    if not any(path in config.places for path in paths.values()):
        draft.note("the recipe's own axes are not known here: all of them are 1")
    if config.values.get(paths["etp"]) is None:
        degrees["etp"] = degrees["tp"]
    inner = degrees["tp"] * degrees["cp"] * degrees["pp"]
    if ranks % inner:
        draft.fault(Origin("--gpus"), f"tp x cp x pp = {inner} do not divide {ranks} GPUs")
    draft.raise_faults()
    degrees["dp"] = ranks // inner
    put_axes(draft, degrees, {axis: settings.origin(path) for axis, path in paths.items()})


def _model(settings: TrainerSettings, config: PythonConfig) -> None:
    draft = settings.draft
    texts = _texts(config.tree.settings.get("model"))
    texts = texts or [config.recipe, config.name, config.tree.maker]
    name = next((found for text in texts if (found := _shape_name(text))), "")
    put_shape(draft, name, Origin(config.recipe), texts[0])
    sections = ("model.config.", "model.", "data.", "dataset.", "")
    sequence = settings.key(*_under(sections, "seq_length"))
    draft.put("model.sequence", settings.number(*_under(sections, "seq_length"), default=8192))
    if sequence not in config.places:
        draft.note("the recipe's sequence is taken to be 8,192: --set model.sequence=... says it")
    if precision := _precision(settings, config):
        draft.put("model.dtype", precision)


def _texts(model: Any) -> list[str]:
    """The names of its model: of a Hugging Face model its path, of NeMo's its class."""
    if not isinstance(model, Config):
        return []
    inner = model.settings.get("config")
    made = [inner.maker] if isinstance(inner, Config) and inner.maker else []
    return [*made, *model.texts]


def _shape_name(text: str) -> str | None:
    """`llama3 70B` of meta-llama/Meta-Llama-3-70B, of Llama31Config70B or llama3_70b_pretrain."""
    plain = re.sub(r"\W|_|config", "", text.lower()).replace("llama31", "llama3")
    for known in sorted(_ALIASES, key=len, reverse=True):
        if re.search(re.escape(known) + (r"(?!\d)" if known[-1].isdigit() else ""), plain):
            return _ALIASES[known]
    return None


def _precision(settings: TrainerSettings, config: PythonConfig) -> str | None:
    """Return the precision of matrices as set, by a named recipe, or by the recipe's name.

    None, with a fault, where it is set to something that cannot be read.
    """
    draft = settings.draft
    if "model.dtype" in draft.values:
        return None
    names = (*_under(("trainer.", ""), "plugins"), *_under(("trainer.", ""), "mixed_precision"))
    path = next((name for name in names if name in config.places), "")
    if not path:
        named = _named_precision(config.name)
        if named is None:
            draft.note("the precision is taken to be bf16: --set model.dtype=... says it")
        return named or "bf16"
    held: Any = config.tree
    for part in path.split("."):
        held = held.settings.get(part) if isinstance(held, Config) else None
    settings.read.update(each for each in config.places if f"{each}.".startswith(f"{path}."))
    precision = None
    if isinstance(held, str):
        precision = _named_precision(held)
    elif isinstance(held, Config):
        parts = held.settings
        if any(isinstance(parts.get(key), Computed) for key in ("fp4", "fp8", "fp8_recipe")):
            precision = None
        elif parts.get("fp4"):
            precision = "nvfp4"
        elif parts.get("fp8"):
            precision = "mxfp8" if parts.get("fp8_recipe") == "mxfp8" else "fp8"
        elif parts.get("bf16") is True or parts.get("fp16") is True:
            precision = "bf16" if parts.get("bf16") is True else "fp16"
        else:
            told = (*held.texts, held.maker, str(parts.get("precision")))
            precision = _named_precision(" ".join(told))
    if precision is None:
        message = "the precision cannot be read: --set model.dtype=... says it"
        draft.fault(settings.origin(path), message)
    return precision


def _named_precision(text: str) -> str | None:
    found = (name for name, pattern in _PRECISIONS if pattern.search(text.lower()))
    return next(found, None)


def _batch(settings: TrainerSettings) -> None:
    draft = settings.draft
    replicas = draft.values["parallelism.dp"] * draft.values["parallelism.ep"]
    micro = settings.number(*_under(_BATCH, "micro_batch_size"), default=1)
    path = settings.key(*_under(_BATCH, "global_batch_size"))
    draft.put("batch.micro_sequences", micro)
    whole = settings.number(*_under(_BATCH, "global_batch_size"), default=micro * replicas)
    draft.put("batch.global_sequences", whole, settings.origin(path))
    chunks = settings.number(*_under(_MODEL, "virtual_pipeline_model_parallel_size"), default=1)
    if draft.values["parallelism.pp"] > 1 and chunks > 1:
        draft.put("batch.virtual_stages", chunks)


def _training(settings: TrainerSettings, config: PythonConfig) -> None:
    """Megatron's distributed optimizer unless the recipe says otherwise."""
    draft = settings.draft
    sharding = "zero1"
    strategy = settings.get(*_under(_DDP, "data_parallel_sharding_strategy"))
    if settings.get(*_under(_DDP, "use_megatron_fsdp")):
        sharding = SHARDING.get(strategy, "zero3")
    elif settings.get(*_under(_DDP, "use_distributed_optimizer"), default=True) is False:
        sharding = "ddp"
    instances = settings.number(*_under(_DDP, "num_distributed_optimizer_instances"), default=1)
    is_grouped = instances > 1 and sharding != "ddp"
    group = max(1, draft.values["parallelism.dp"] // instances) if is_grouped else 0
    put_sharding(draft, sharding, group=group)
    if settings.get(*_under(_DDP, "grad_reduce_in_fp32")) is False:
        draft.put("training.gradient_dtype", "bf16")
    is_split = settings.get(*_under(_MODEL, "sequence_parallel"))
    if draft.values["parallelism.tp"] > 1 and is_split is False:
        draft.put("training.sequence_parallel", False)
    way = CONTEXT.get(str(settings.get(*_under(_MODEL, "cp_comm_type"), default="p2p")), "ring")
    if draft.values["parallelism.cp"] > 1:
        draft.put("training.context_parallel", way)
    optimizer = settings.key(*_under(_OPTIMIZER, "optimizer"))
    draft.note_optimizer(config.values.get(optimizer), settings.origin(optimizer))
    tuned = config.tree.settings.get("peft")
    if isinstance(tuned, Config) or (isinstance(tuned, str) and tuned.lower() != "none"):
        settings.read.add("peft")
        maker = tuned.maker if isinstance(tuned, Config) else tuned
        if not maker.lower().endswith("lora"):
            message = f"{maker} has no key in a job file: known is LoRA"
            draft.fault(settings.origin("peft"), message)
        draft.put("training.trained", "lora")
    _recompute(settings)


def _recompute(settings: TrainerSettings) -> None:
    draft = settings.draft
    granularity = settings.get(*_under(_MODEL, "recompute_granularity"))
    layers = settings.get(*_under(_MODEL, "recompute_num_layers"))
    method = settings.get(*_under(_MODEL, "recompute_method"))
    modules = settings.get(*_under(_MODEL, "recompute_modules")) or []
    if granularity == "full" or (granularity is None and layers and not modules):
        draft.put("training.recompute", "full")
        if method == "block" or granularity is None:
            draft.note(f"recomputation of {layers} layers of a stage is counted as that of all")
    elif modules and modules != ["core_attn"]:
        named = ", ".join(map(str, modules))
        draft.note(f"recomputation of {named} is not counted: scores alone are")
