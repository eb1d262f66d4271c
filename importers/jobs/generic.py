"""A script that starts any program with torchrun: ranks, and of a model what --model says.

Such a program shards its model over all ranks, as a rule by FSDP; how many sequences a step takes
is read from options by the names that training programs use.
"""

from __future__ import annotations

import re
from typing import Final

from importers.jobs.draft import Origin
from importers.jobs.options import Options
from importers.jobs.shell import Word

_SEQUENCE: Final = ("seq-len", "seq-length", "max-seq-length", "max-seq-len", "sequence-length")
_EACH: Final = (
    *("batch-size", "micro-batch-size", "per-device-train-batch-size", "local-batch-size"),
    "train-batch-size-per-device",
)
_STEPS: Final = ("gradient-accumulation-steps", "grad-accum-steps")


def draw_generic(options: Options, ranks: int) -> None:
    """Fill the draft from a launch script of any program. Raises: InputError."""
    draft = options.draft
    if not ranks:
        draft.fault(Origin("--gpus"), "is needed: the file does not say how many GPUs run")
        draft.raise_faults()
    draft.put("parallelism.dp", ranks)
    if not draft.model:
        draft.note("no model: --model config.json gives it, and the bytes of a step follow from it")
        return
    numbers = _numbers(options)
    for key, value in draft.model.items():
        if key != "model.sequence":
            draft.put(key, value)
    sequence, each = _first(numbers, _SEQUENCE), _first(numbers, _EACH)
    if sequence is not None:
        draft.put("model.sequence", *sequence)
    elif "model.sequence" not in draft.values:
        draft.fault(Origin("--seq-len"), "is missing: --set model.sequence=... gives it")
    if each is not None:
        steps = _first(numbers, _STEPS)
        draft.put("batch.micro_sequences", *each)
        draft.put("batch.global_sequences", each[0] * ranks * (steps[0] if steps else 1), each[1])
    elif "batch.global_sequences" not in draft.values:
        draft.fault(Origin("--batch-size"), "is missing: --set batch.global_sequences=... gives it")
    draft.put("training.data_parallel", "zero3")
    draft.put("training.sync", "micro_batch")
    draft.note(
        "parameters are taken to be sharded over all ranks, as FSDP does; --set"
        " training.data_parallel=ddp, --set parallelism.tp=8 say otherwise"
    )
    draft.raise_faults()


def _numbers(options: Options) -> dict[str, tuple[int, Origin]]:
    """Options of the program with a whole number, by name."""
    found: dict[str, tuple[int, Origin]] = {}
    words = options.script.commands
    for word, following in zip(words, [*words[1:], Word("", 0)], strict=True):
        name, equals, value = word.text.removeprefix("--").partition("=")
        text = value if equals else following.text
        if word.text.startswith("--") and re.fullmatch(r"\d{1,9}", text):
            found[name.replace("_", "-")] = int(text), Origin(f"--{name}", word.line)
    return found


def _first(
    numbers: dict[str, tuple[int, Origin]], names: tuple[str, ...]
) -> tuple[int, Origin] | None:
    return next((numbers[name] for name in names if name in numbers), None)
