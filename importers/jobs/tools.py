"""The tools whose files become job files."""

from __future__ import annotations

from enum import StrEnum


class Tool(StrEnum):
    """The program that a file belongs to."""

    MEGATRON = "megatron"
    TORCHTITAN = "torchtitan"
    DEEPSPEED = "deepspeed"
    ACCELERATE = "accelerate"
    MAXTEXT = "maxtext"


TITLES = {
    Tool.MEGATRON: "Megatron-LM arguments",
    Tool.TORCHTITAN: "a TorchTitan configuration",
    Tool.DEEPSPEED: "a DeepSpeed configuration",
    Tool.ACCELERATE: "a configuration of Accelerate",
    Tool.MAXTEXT: "a configuration of MaxText",
}
FORMATS = (
    "known are launch scripts of Megatron-LM or of any program that torchrun starts, TorchTitan's"
    " TOML and Python configurations, recipes of NeMo and Megatron-Bridge, DeepSpeed's JSON, and"
    " YAML of Accelerate and MaxText"
)
TOOL_BY_SUFFIX = {".toml": Tool.TORCHTITAN, ".json": Tool.DEEPSPEED, ".py": Tool.TORCHTITAN}
