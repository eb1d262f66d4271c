"""The options of Megatron-LM in a launch script or a line of arguments.

Names: megatron/training/arguments.py of NVIDIA/Megatron-LM, and torchrun's two that say
how many processes run. Dashes and underscores are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.files.importers.draft import Draft, Origin
from scheduler.files.importers.shell import Word, read_script


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Without a value, and so that "--bf16 --lr 1" is not "--bf16=--lr".
FLAGS = _names("""
    bf16 fp16 swiglu group-query-attention untie-embeddings-and-output-weights
    sequence-parallel use-distributed-optimizer use-torch-fsdp2 use-megatron-fsdp
    use-custom-fsdp use-tp-pp-dp-mapping recompute-activations use-flash-attn
    grad-reduce-in-bf16 accumulate-allreduce-grads-in-fp32 multi-latent-attention
""")
NUMBERS = _names("""
    tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size
    expert-model-parallel-size expert-tensor-parallel-size micro-batch-size
    global-batch-size num-layers-per-virtual-pipeline-stage
    num-virtual-stages-per-pipeline-rank num-distributed-optimizer-instances num-layers
    hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups seq-length
    vocab-size padded-vocab-size make-vocab-size-divisible-by num-experts moe-router-topk
    moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-router-group-topk
    q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim v-head-dim
    nproc-per-node nnodes
""")
TEXTS = _names("""
    recompute-granularity cp-comm-type moe-layer-freq data-parallel-sharding-strategy
    hidden-dropout attention-dropout transformer-impl
""")
# What bears on shape, bytes or memory and has no key in a job file.
TELLING = re.compile(
    "parallel|pipeline|fsdp|shard|expert-|layers|rampup|recompute|offload|fp8|mtp|mamba"
    "|hybrid|encoder|decoder|vpp|gtp"
)
# ... and what only looks like it.
SILENT = re.compile(
    "overlap|timeout|jit|impl|recompute-method|recompute-num-layers|no-async"
    "|ckpt|checkpoint|save|load|tokenizer|dataset|deterministic|log-|init-model"
)


@dataclass(slots=True)
class Options:
    """The options that were found, by name without dashes; the last of equals counts.

    `draft` takes the faults. `unread`: those of no table.
    """

    draft: Draft
    words: dict[str, Word] = field(default_factory=dict)
    unread: list[Word] = field(default_factory=list)

    @property
    def is_any(self) -> bool:
        return not NUMBERS.isdisjoint(self.words)

    def origin(self, name: str) -> Origin:
        word = self.words.get(name)
        return Origin(f"--{name}", word.line if word else 0)

    def has(self, name: str) -> bool:
        return name in self.words

    def text(self, name: str, default: str = "") -> str:
        return self.words[name].text if name in self.words else default

    def number(self, name: str, default: int = 0) -> int:
        if name not in self.words:
            return default
        text = self.words[name].text
        if re.fullmatch(r"\d{1,18}", text):
            return int(text)
        what = "is not there" if not text else f"is {text!r}"
        hint = ""
        if variable := re.search(r"\$\{?(\w+)", text):
            hint = f"; --env {variable[1]}=... gives its value"
        self.draft.fault(self.origin(name), f"must be a whole number, {what}{hint}")
        return max(default, 1)

    def required(self, name: str) -> int:
        if name not in self.words:
            self.draft.fault(Origin(f"--{name}"), "is not there")
            return 1
        return self.number(name)

    def put(self, key: str, value: object, name: str) -> None:
        self.draft.put(key, value, self.origin(name))


def read_options(draft: Draft, text: str, environment: Mapping[str, str]) -> Options:
    """Options of the commands; of all variables when the commands have none.

    Raises: InputError.
    """
    script = read_script(text, draft.source, environment)
    if not {"if", "case"}.isdisjoint(word.text for word in script.commands):
        draft.note("the script has conditions: all branches were read, and the last value counts")
    options = _collected(draft, script.commands)
    if not options.is_any:
        words = [word for value in script.variables.values() for word in value]
        return _collected(draft, words)
    return options


def _collected(draft: Draft, words: list[Word]) -> Options:
    options = Options(draft)
    for i, word in enumerate(words):
        if not word.text.startswith("--"):
            continue
        name, equals, value = word.text[2:].partition("=")
        name = name.replace("_", "-")
        following = words[i + 1] if i + 1 < len(words) else Word("", word.line)
        if name in FLAGS:
            options.words[name] = word
        elif name not in NUMBERS and name not in TEXTS:
            options.unread.append(Word(f"--{name}", word.line))
        elif equals:
            options.words[name] = Word(value, word.line)
        else:
            missing = following.text.startswith("--")
            options.words[name] = Word("" if missing else following.text, word.line)
    return options


def ranks_of(options: Options) -> int:
    """What torchrun is told: hosts times processes."""
    if not options.has("nproc-per-node"):
        return 0
    return options.number("nproc-per-node") * options.number("nnodes", 1)


def unrepresented(options: Options) -> list[Word]:
    """What was not read and bears on shape, bytes or memory."""
    return [w for w in options.unread if TELLING.search(w.text) and not SILENT.search(w.text)]
