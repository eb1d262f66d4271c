"""Megatron-LM's arguments, from a launch script or a line of them.

Option names and defaults: megatron/training/arguments.py of NVIDIA/Megatron-LM. Ranks are
ordered tp-cp-ep-dp-pp, with --use-tp-pp-dp-mapping tp-cp-ep-pp-dp.

A script that starts any other program with torchrun says ranks, and of a model what --model says.
Such a program shards its model over all ranks, as a rule by FSDP; how many sequences a step takes
is read from options by the names that training programs use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from importers.jobs.draft import (
    FORMATS,
    ORDER,
    Draft,
    Origin,
    put_axes,
    put_given_model,
    put_sharding,
)
from importers.jobs.scripts.command import (
    batch_notes,
    configurations,
    has_commands,
    launch_command,
    put_run,
    unread_launcher,
)
from importers.jobs.scripts.options import (
    Options,
    limit_seconds,
    program_options,
    ranks_of,
    read_options,
    unrepresented,
)

SHARDING = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2"}
# What scripts of Megatron Bridge call a precision (--compute_dtype), and those of a recipe.
COMPUTE_DTYPES = {
    **dict.fromkeys(("fp8", "fp8_cs", "fp8_ds", "fp8_sc"), "fp8"),
    **{"bf16": "bf16", "fp8_mx": "mxfp8", "nvfp4": "nvfp4"},
}
_HYBRID = re.compile(r"--(hybrid-|mamba-|is-hybrid)")
CONTEXT = {"a2a": "ulysses", "allgather": "allgather", "all_gather": "allgather"}
# Names of options in programs that are none of Megatron-LM.
_SEQUENCE: Final = ("seq-len", "seq-length", "max-seq-length", "max-seq-len", "sequence-length")
_EACH: Final = (
    *("batch-size", "micro-batch-size", "per-device-train-batch-size", "local-batch-size"),
    "train-batch-size-per-device",
)
_STEPS: Final = ("gradient-accumulation-steps", "grad-accum-steps")


def draw(draft: Draft, text: str, gpus: int, environment: Mapping[str, str]) -> None:
    """Fill `draft` from options of Megatron-LM. Raises: InputError."""
    options = read_options(draft, text, environment)
    launcher = None if options.is_megatron else unread_launcher(options.script)
    if launcher is not None:
        files = " or ".join(word.text for word in configurations(options.script))
        draft.fault(
            Origin(launcher.text, launcher.line),
            "starts ranks in a way that is not read: import"
            f" {files or 'its configuration'} with --gpus and --model, and start the program with"
            " torchrun",
        )
        draft.raise_faults()
    draft.note_optimizer(options.text("optimizer", "adam"), options.origin("optimizer"))
    if not options.is_surely_megatron and launch_command(options.script) is not None:
        draft.tool = "a launch script"
        draw_generic(options, gpus or ranks_of(options))
        _batch_script(options)
        return
    if not options.is_megatron:
        draft.fault(Origin(""), f"has no Megatron-LM options, such as --num-layers 32: {FORMATS}")
    if draft.model and options.is_megatron:
        message = "the options describe the model; --set model.vocab=... replaces a part of it"
        draft.fault(Origin("--model"), message)
    draft.raise_faults()
    ranks = gpus or ranks_of(options)
    if not ranks:
        draft.fault(Origin("--gpus"), "is needed: the file does not say how many GPUs run")
    _refuse_hybrid(options)
    _axes(options, ranks)
    _model(options)
    _experts(options)
    _batch(options)
    _training(options)
    _batch_script(options)
    for word in unrepresented(options):
        draft.note(f"not represented: {word.text} (line {word.line})")
    names = program_options(options)
    if names and has_commands(options.script) and "run.command" not in draft.values:
        draft.note(f"left to the program: {' '.join(names)}")


def _refuse_hybrid(options: Options) -> None:
    """Refuse models that mix attention with other layers, unless the user says how many layers
    of attention stand for them."""
    hybrid = next((word for word in options.unread if _HYBRID.match(word.text)), None)
    if hybrid is None:
        return
    if "model.layers" in options.draft.values:
        options.read.add(hybrid.text.removeprefix("--"))
        options.draft.note(
            f"not represented: {hybrid.text} (line {hybrid.line}): all layers are counted as"
            " attention"
        )
        return
    options.draft.fault(
        Origin(hybrid.text, hybrid.line),
        "a hybrid of attention and Mamba layers is not represented; --set model.layers=N counts N"
        " layers of attention",
    )


def _axes(options: Options, ranks: int) -> None:
    draft = options.draft
    tp = options.number("tensor-model-parallel-size", 1)
    cp = options.number("context-parallel-size", 1)
    pp = options.number("pipeline-model-parallel-size", 1)
    dp, odd = divmod(ranks, max(1, tp * cp * pp))
    if not ranks:
        dp = 1
    elif odd or not dp:
        draft.fault(
            options.origin("tensor-model-parallel-size"),
            f"tp {tp} x cp {cp} x pp {pp} = {tp * cp * pp} do not divide {ranks} GPUs",
        )
        dp = 1
    degrees = {
        **{"tp": tp, "cp": cp, "pp": pp, "dp": dp},
        "ep": options.number("expert-model-parallel-size", 1),
        "etp": options.number("expert-tensor-parallel-size", tp),
    }
    order = "tp-cp-ep-pp-dp" if options.has("use-tp-pp-dp-mapping") else ORDER
    put_axes(draft, degrees, {"ep": options.origin("expert-model-parallel-size")}, order)


def _model(options: Options) -> None:
    hidden, heads = (
        options.required("hidden-size", "model.hidden"),
        options.required("num-attention-heads", "model.heads"),
    )
    swiglu = options.has("swiglu") or options.has("quick-geglu")
    wide = int(hidden * 4 * 2 / 3 / 64) * 64 if swiglu else 4 * hidden
    grouped = options.has("group-query-attention")
    options.put("model.layers", options.required("num-layers", "model.layers"), "num-layers")
    options.put("model.hidden", hidden, "hidden-size")
    options.put("model.ffn", options.number("ffn-hidden-size", wide), "ffn-hidden-size")
    options.put("model.heads", heads, "num-attention-heads")
    kv_heads = options.number("num-query-groups", 1) if grouped else heads
    options.put("model.kv_heads", kv_heads, "num-query-groups")
    _vocabulary(options)
    options.put("model.sequence", options.required("seq-length", "model.sequence"), "seq-length")
    half = "bf16" if options.has("bf16") else "fp16"
    is_half = options.has("bf16") or options.has("fp16")
    cast = _cast(options)
    options.put("model.dtype", *(cast or (half if is_half else "fp32", half)))
    if options.has("kv-channels"):
        options.put("model.head_dim", options.number("kv-channels"), "kv-channels")
    if not swiglu:
        options.put("model.gated", False, "swiglu")
    if not options.has("untie-embeddings-and-output-weights"):
        options.put("model.tied_embeddings", True, "untie-embeddings-and-output-weights")
    if options.has("multi-latent-attention"):
        _latent(options)


def _cast(options: Options) -> tuple[str, str] | None:
    """The precision below 16 bits in which matrices are multiplied, and the option that says so."""
    eights = [name for name in ("fp8-format", "fp8-hybrid", "fp8-e4m3") if options.has(name)]
    recipe, _ = options.text("fp8-recipe"), options.text("fp4-recipe")
    if options.has("fp4-format"):
        return "nvfp4", "fp4-format"
    if eights:
        return "mxfp8" if recipe == "mxfp8" else "fp8", eights[0]
    name = "compute-dtype"
    if options.has(name):
        precision = COMPUTE_DTYPES.get(options.text(name).lower())
        if precision is None:
            known = ", ".join(COMPUTE_DTYPES)
            options.draft.fault(options.origin(name), f"is not known; known are {known}")
            return None
        return precision, name
    return None


_GPT2_TOKENIZER, _GPT2_VOCABULARY = "GPT2BPETokenizer", 50_257


def _vocabulary(options: Options) -> None:
    """Padded, as Megatron does, so that tp ranks share it out in round parts."""
    for name in ("padded-vocab-size", "pad-vocab-size-to"):  # of Megatron-LM and Megatron-DeepSpeed
        if options.has(name):
            return options.put("model.vocab", options.number(name), name)
    own = "vocab-size" if options.has("vocab-size") else ""
    is_gpt2 = options.text("tokenizer-type", _GPT2_TOKENIZER) == _GPT2_TOKENIZER
    if not own and is_gpt2 and "gpt2" in options.text("vocab-file"):
        own = "vocab-file"
    if own:
        tp = options.number("tensor-model-parallel-size", 1)
        part = options.number("make-vocab-size-divisible-by", 128)
        if part < 1:
            origin = options.origin("make-vocab-size-divisible-by")
            options.draft.fault(origin, "must be at least 1")
        unit = max(1, tp) * max(1, part)
        size = options.number(own) if own == "vocab-size" else _GPT2_VOCABULARY
        return options.put("model.vocab", -(-size // unit) * unit, own)
    if "model.vocab" not in options.draft.values:
        options.draft.fault(
            Origin("--vocab-size"),
            "is missing (the tokenizer knows it): --set model.vocab=... gives it",
        )
    return None


def _latent(options: Options) -> None:
    width = options.number("v-head-dim", 128)
    options.draft.values.pop("model.head_dim", None)
    options.put("model.head_dim", width, "v-head-dim")
    options.put("model.kv_rank", options.number("kv-lora-rank", 32), "kv-lora-rank")
    if options.has("q-lora-rank"):
        options.put("model.query_rank", options.number("q-lora-rank"), "q-lora-rank")
    rope = options.number("qk-pos-emb-head-dim", 64)
    options.put("model.rope_dim", rope, "qk-pos-emb-head-dim")
    if options.number("qk-head-dim", 128) != width:
        options.draft.note(f"keys are counted as wide as values, {width}")


def _experts(options: Options) -> None:
    if not options.has("num-experts"):
        return
    ffn = options.draft.values["model.ffn"]
    width = options.number("moe-ffn-hidden-size", ffn)
    options.put("model.experts", options.number("num-experts"), "num-experts")
    options.put("model.experts_per_token", options.number("moe-router-topk", 2), "moe-router-topk")
    options.put("model.expert_ffn", width, "moe-ffn-hidden-size")
    shared = options.number("moe-shared-expert-intermediate-size")
    if shared:
        origin = "moe-shared-expert-intermediate-size"
        options.put("model.shared_experts", max(1, round(shared / max(1, width))), origin)
        if shared % max(1, width):
            options.draft.note(f"shared experts of width {shared} are not a multiple of {width}")
    layers = _dense_layers(options)
    if layers:
        options.put("model.dense_layers", layers, "moe-layer-freq")
    if options.has("moe-router-group-topk"):
        name = "moe-router-group-topk"
        options.put("training.expert_hosts_per_token", options.number(name), name)
        options.draft.note("a group of experts is taken to be the experts of one host")


def _dense_layers(options: Options) -> int:
    """Layers without experts: every but the n-th, or the zeros of a pattern."""
    text = options.text("moe-layer-freq", "1")
    layers = int(options.draft.values["model.layers"])
    if text.isdecimal() and int(text):
        return layers - -(-layers // int(text))
    zeros, total = _pattern(text)
    if total != layers:
        options.draft.fault(
            options.origin("moe-layer-freq"), f"{text!r} is not a pattern of {layers} layers"
        )
    return zeros


def _pattern(text: str) -> tuple[int, int]:
    """Zeros and length of a sum of repeated lists, `[0]*3+[1]*58`; (0, 0) if it is none."""
    plain = text.strip("\"'").replace(" ", "")
    outer = re.fullmatch(r"\((.*)\)(?:\*(\d{1,4}))?", plain)
    times = int(outer[2] or 1) if outer else 1
    zeros = total = 0
    for part in (outer[1] if outer else plain).split("+"):
        group = re.fullmatch(r"\[([01](?:,[01])*)\](?:\*(\d{1,4}))?", part)
        if group is None:
            return 0, 0
        items, repeat = group[1].split(","), int(group[2] or 1)
        zeros += items.count("0") * repeat
        total += len(items) * repeat
    return zeros * times, total * times


def _batch(options: Options) -> None:
    micro = options.required("micro-batch-size", "batch.micro_sequences")
    values = options.draft.values
    replicas = values["parallelism.dp"] * values["parallelism.ep"]
    whole = options.number("global-batch-size", micro * replicas)
    options.put("batch.global_sequences", whole, "global-batch-size")
    options.put("batch.micro_sequences", micro, "micro-batch-size")
    pp = values["parallelism.pp"]
    chunks = options.number("num-virtual-stages-per-pipeline-rank", 1)
    name = "num-layers-per-virtual-pipeline-stage"
    if options.has(name):
        chunks = max(1, values["model.layers"] // max(1, pp * options.number(name)))
    if chunks > 1 and pp > 1:
        options.put("batch.virtual_stages", chunks, name)


def _training(options: Options) -> None:
    name, shards = _sharding(options)
    put_sharding(options.draft, shards, options.origin(name))
    instances = options.number("num-distributed-optimizer-instances", 1)
    dp = options.draft.values["parallelism.dp"]
    if instances > 1 and shards != "ddp":
        group = max(1, dp // instances)
        options.put("training.shard_group", group, "num-distributed-optimizer-instances")
    main_grads = options.text("main-grads-dtype")
    if main_grads in ("bf16", "fp16"):
        options.put("training.gradient_dtype", main_grads, "main-grads-dtype")
    elif options.has("grad-reduce-in-bf16"):
        options.put("training.gradient_dtype", "bf16", "grad-reduce-in-bf16")
    elif not options.has("accumulate-allreduce-grads-in-fp32") and options.has("fp16"):
        options.put("training.gradient_dtype", "fp16", "fp16")
    if not options.has("sequence-parallel") and options.draft.values["parallelism.tp"] > 1:
        options.put("training.sequence_parallel", False, "sequence-parallel")
    if options.draft.values["parallelism.cp"] > 1:
        way = CONTEXT.get(options.text("cp-comm-type", "p2p"), "ring")
        options.put("training.context_parallel", way, "cp-comm-type")
    _recompute(options)
    rates = [options.text(f"{part}-dropout", "0.1") for part in ("hidden", "attention")]
    if any(map(_nonzero, rates)):
        options.put("training.dropout", True, "hidden-dropout")


def _batch_script(options: Options) -> None:
    """The name, the time limit and the array that Slurm is given."""
    draft, batch = options.draft, options.batch
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", batch["job-name"].text) if "job-name" in batch else ""
    if name := name.strip("-._")[:128]:
        draft.put("name", name)
    if "time" in batch and (seconds := limit_seconds(batch["time"].text)):
        draft.put("time_limit_s", seconds, Origin("#SBATCH --time", batch["time"].line))
    if "array" in batch:
        draft.put("array", batch["array"].text, Origin("#SBATCH --array", batch["array"].line))
    if has_commands(options.script):
        one_a_host = batch["ntasks-per-node"].text == "1" if "ntasks-per-node" in batch else False
        put_run(draft, options.script, batch, draft.workdir, one_a_host=one_a_host)
    batch_notes(draft, batch)


def _sharding(options: Options) -> tuple[str, str]:
    """The option that decides, and what it means."""
    strategy = options.text("data-parallel-sharding-strategy", "no_shard")
    own = [name for name in ("use-megatron-fsdp", "use-custom-fsdp") if options.has(name)]
    if options.has("use-torch-fsdp2"):
        return "use-torch-fsdp2", "zero3"
    if own:
        return own[0], SHARDING.get(strategy, "zero3")
    is_sharded = options.has("use-distributed-optimizer")
    return "use-distributed-optimizer", "zero1" if is_sharded else "ddp"


def _recompute(options: Options) -> None:
    is_selective = options.has("recompute-activations") or options.has("recompute-granularity")
    is_local = options.text("transformer-impl") == "local"
    is_fused = options.has("use-flash-attn")
    if options.text("recompute-granularity") == "full":
        options.put("training.recompute", "full", "recompute-granularity")
    elif is_selective:
        options.put("training.recompute", "selective", "recompute-activations")
    elif is_local and not is_fused:
        options.put("training.recompute", "none", "transformer-impl")


def _nonzero(text: str) -> bool:
    return not re.fullmatch(r"0*\.?0*", text)


def draw_generic(options: Options, ranks: int) -> None:
    """Fill the draft from a launch script of any program. Raises: InputError."""
    draft = options.draft
    if not ranks:
        draft.fault(Origin("--gpus"), "is needed: the file does not say how many GPUs run")
        draft.raise_faults()
    replicas = draft.with_given_degrees({"dp": ranks})["dp"]
    draft.put("parallelism.dp", replicas)
    for word in unrepresented(options):
        draft.note(f"not represented: {word.text} (line {word.line})")
    for word in configurations(options.script):
        draft.note(
            f"{word.text} (line {word.line}) is not read: what it says of tp, pp, batch and model"
            f" is not in this job; `muster job import {word.text}` reads it if it is of a known"
            " format"
        )
    sequence, each, steps = (_first(options, names) for names in (_SEQUENCE, _EACH, _STEPS))
    if sequence is not None and draft.model:
        draft.put("model.sequence", *sequence)
    if not put_given_model(draft):
        return
    if each is not None:
        draft.put("batch.micro_sequences", *each)
        draft.put(
            "batch.global_sequences", each[0] * replicas * (steps[0] if steps else 1), each[1]
        )
    elif "batch.global_sequences" not in draft.values:
        draft.fault(Origin("--batch-size"), "is missing: --set batch.global_sequences=... gives it")
    put_sharding(draft, "zero3")
    draft.note(
        "parameters are taken to be sharded over all ranks, as FSDP does; --set"
        " training.data_parallel=ddp, --set parallelism.tp=8 say otherwise"
    )
    draft.raise_faults()


def _first(options: Options, names: tuple[str, ...]) -> tuple[int, Origin] | None:
    """Return the first of these options whose value is a whole number."""
    for name in names:
        if re.fullmatch(r"\d{1,9}", text := options.text(name)):
            return int(text), options.origin(name)
    return None
