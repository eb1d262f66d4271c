"""Recipes of NeMo 2 and of Megatron-Bridge: functions that return a configuration, and what is set
after them.

NeMo keeps axes in `trainer.strategy` and batches in `data`, Megatron-Bridge in `model` and `train`,
its tables of workloads in one call. Defaults of a function whose file is not at hand are not known:
axes that nothing sets are 1, and that is said.
"""

from __future__ import annotations

import re
from typing import Any, Final

from importers.jobs.draft import Draft, Origin, put_axes
from importers.jobs.python_config import Computed, Config, PythonConfig, note_unread
from importers.jobs.scripts.megatron import CONTEXT, SHARDING
from importers.jobs.shapes import SHAPES, put_shape
from muster.structs import struct

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


@struct(frozen=True, slots=True)
class _Settings:
    """Settings of the recipe, by the last part of a path in any of the sections given."""

    draft: Draft
    config: PythonConfig
    read: set[str]

    def get(self, name: str, sections: tuple[str, ...], default: Any = None) -> Any:
        path = self.path(name, sections)
        self.read.add(path)
        value = self.config.values.get(path)
        return default if value is None else value

    def path(self, name: str, sections: tuple[str, ...]) -> str:
        """The section of which there is such a setting; the first where there is none."""
        paths = [f"{section}{name}" for section in sections]
        known = self.config.places
        return next((path for path in paths if path in known), paths[0])

    def number(self, name: str, sections: tuple[str, ...], default: int) -> int:
        """At least 1; a fault where it is something else, or computed."""
        value, path = self.get(name, sections, default), self.path(name, sections)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            message = f"must be a whole number above 0, is {value!r}"
        elif path in self.config.computed:
            message = "is computed, and nothing is run: give a recipe that states it"
        else:
            return value
        self.draft.fault(self.origin(path), message)
        return max(1, default)

    def origin(self, path: str) -> Origin:
        return Origin(path, self.config.lines.get(path, 0))


def draw(draft: Draft, config: PythonConfig, gpus: int) -> None:
    """Fill `draft` from a configuration of NeMo. Raises: InputError."""
    settings = _Settings(draft, config, set())
    ranks = _ranks(settings, gpus)
    _axes(settings, ranks)
    _model(settings)
    _batch(settings)
    _training(settings)
    note_unread(
        draft, config, frozenset((*settings.read, "model", "model.config")), _LEFT_TO_PROGRAM
    )


def _ranks(settings: _Settings, gpus: int) -> int:
    """GPUs as the user, the settings or the recipe's name has them."""
    nodes = settings.get("num_nodes", ("", "trainer."), 0)
    each = settings.get("num_gpus_per_node", ("",), 0) or settings.get("devices", ("trainer.",), 0)
    said = settings.get("num_gpus", ("",), 0)
    if isinstance(nodes, int) and isinstance(each, int):
        said = said or nodes * each
    named = re.search(r"_(\d+)gpus?_", settings.config.name)
    if not (gpus or said) and named:
        said = int(named[1])
        settings.draft.note(f"{said} GPUs, as the recipe's name says")
    if not isinstance(said, int) or not (gpus or said):
        message = "is needed: the file does not say how many GPUs run"
        settings.draft.fault(Origin("--gpus"), message)
        settings.draft.raise_faults()
    return gpus or int(said)


def _axes(settings: _Settings, ranks: int) -> None:
    draft = settings.draft
    degrees = {axis: settings.number(name, _MODEL, 1) for axis, name in _AXES.items()}
    paths = {axis: settings.path(name, _MODEL) for axis, name in _AXES.items()}
    if not any(path in settings.config.places for path in paths.values()):
        draft.note("the recipe's own axes are not known here: all of them are 1")
    if settings.config.values.get(paths["etp"]) is None:
        degrees["etp"] = degrees["tp"]
    inner = degrees["tp"] * degrees["cp"] * degrees["pp"]
    if ranks % inner:
        draft.fault(Origin("--gpus"), f"tp x cp x pp = {inner} do not divide {ranks} GPUs")
    draft.raise_faults()
    degrees["dp"] = ranks // inner
    put_axes(draft, degrees, {axis: settings.origin(path) for axis, path in paths.items()})


def _model(settings: _Settings) -> None:
    draft, config = settings.draft, settings.config
    texts = _texts(config.tree.settings.get("model"))
    texts = texts or [config.recipe, config.name, config.tree.maker]
    name = next((found for text in texts if (found := _shape_name(text))), "")
    put_shape(draft, name, Origin(config.recipe), texts[0])
    sections = ("model.config.", "model.", "data.", "dataset.", "")
    sequence = settings.path("seq_length", sections)
    draft.put("model.sequence", settings.number("seq_length", sections, 8192))
    if sequence not in config.places:
        draft.note("the recipe's sequence is taken to be 8,192: --set model.sequence=... says it")
    if precision := _precision(settings):
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


def _precision(settings: _Settings) -> str | None:
    """Return the precision of matrices as set, by a named recipe, or by the recipe's name.

    None, with a fault, where it is set to something that cannot be read.
    """
    draft, config = settings.draft, settings.config
    if "model.dtype" in draft.values:
        return None
    sections = ("trainer.", "")
    path = next(
        (
            path
            for name in ("plugins", "mixed_precision")
            if (path := settings.path(name, sections)) in config.places
        ),
        "",
    )
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
            names = (*held.texts, held.maker, str(parts.get("precision")))
            precision = _named_precision(" ".join(names))
    if precision is None:
        message = "the precision cannot be read: --set model.dtype=... says it"
        draft.fault(settings.origin(path), message)
    return precision


def _named_precision(text: str) -> str | None:
    found = (name for name, pattern in _PRECISIONS if pattern.search(text.lower()))
    return next(found, None)


def _batch(settings: _Settings) -> None:
    draft = settings.draft
    replicas = draft.values["parallelism.dp"] * draft.values["parallelism.ep"]
    micro = settings.number("micro_batch_size", _BATCH, 1)
    path = settings.path("global_batch_size", _BATCH)
    draft.put("batch.micro_sequences", micro)
    whole = settings.number("global_batch_size", _BATCH, micro * replicas)
    draft.put("batch.global_sequences", whole, settings.origin(path))
    chunks = settings.number("virtual_pipeline_model_parallel_size", _MODEL, 1)
    if draft.values["parallelism.pp"] > 1 and chunks > 1:
        draft.put("batch.virtual_stages", chunks)


def _training(settings: _Settings) -> None:
    """Megatron's distributed optimizer unless the recipe says otherwise."""
    draft = settings.draft
    sharding = "zero1"
    strategy = settings.get("data_parallel_sharding_strategy", _DDP)
    if settings.get("use_megatron_fsdp", _DDP):
        sharding = SHARDING.get(strategy, "zero3")
    elif settings.get("use_distributed_optimizer", _DDP, True) is False:
        sharding = "ddp"
    draft.put("training.data_parallel", sharding)
    if sharding in ("zero2", "zero3"):
        draft.put("training.sync", "micro_batch")
    instances = settings.number("num_distributed_optimizer_instances", _DDP, 1)
    if instances > 1 and sharding != "ddp":
        draft.put("training.shard_group", max(1, draft.values["parallelism.dp"] // instances))
    if settings.get("grad_reduce_in_fp32", _DDP) is False:
        draft.put("training.gradient_dtype", "bf16")
    is_split = settings.get("sequence_parallel", _MODEL)
    if draft.values["parallelism.tp"] > 1 and is_split is False:
        draft.put("training.sequence_parallel", False)
    way = CONTEXT.get(str(settings.get("cp_comm_type", _MODEL, "p2p")), "ring")
    if draft.values["parallelism.cp"] > 1:
        draft.put("training.context_parallel", way)
    optimizer = settings.path("optimizer", _OPTIMIZER)
    draft.note_optimizer(settings.config.values.get(optimizer), settings.origin(optimizer))
    tuned = settings.config.tree.settings.get("peft")
    if isinstance(tuned, Config) or (isinstance(tuned, str) and tuned.lower() != "none"):
        settings.read.add("peft")
        maker = tuned.maker if isinstance(tuned, Config) else tuned
        if not maker.lower().endswith("lora"):
            message = f"{maker} has no key in a job file: known is LoRA"
            draft.fault(settings.origin("peft"), message)
        draft.put("training.trained", "lora")
    _recompute(settings)


def _recompute(settings: _Settings) -> None:
    draft = settings.draft
    granularity = settings.get("recompute_granularity", _MODEL)
    layers = settings.get("recompute_num_layers", _MODEL)
    method = settings.get("recompute_method", _MODEL)
    modules = settings.get("recompute_modules", _MODEL) or []
    if granularity == "full" or (granularity is None and layers and not modules):
        draft.put("training.recompute", "full")
        if method == "block" or granularity is None:
            draft.note(f"recomputation of {layers} layers of a stage is counted as that of all")
    elif modules and modules != ["core_attn"]:
        named = ", ".join(map(str, modules))
        draft.note(f"recomputation of {named} is not counted: scores alone are")
