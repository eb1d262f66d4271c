"""The tools whose files become job files."""

from __future__ import annotations

from enum import StrEnum


class Tool(StrEnum):
    """Whose file it is."""

    MEGATRON = "megatron"
    TORCHTITAN = "torchtitan"
    DEEPSPEED = "deepspeed"


TITLES = {
    Tool.MEGATRON: "Megatron-LM arguments",
    Tool.TORCHTITAN: "a TorchTitan configuration",
    Tool.DEEPSPEED: "a DeepSpeed configuration",
}
TOOL_BY_SUFFIX = {".toml": Tool.TORCHTITAN, ".json": Tool.DEEPSPEED}
