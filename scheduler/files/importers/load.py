"""import_job(): the one entry point of the importers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler.files.importers.deepspeed import draw as draw_deepspeed
from scheduler.files.importers.draft import Draft, Origin
from scheduler.files.importers.megatron import draw as draw_megatron
from scheduler.files.importers.tools import TITLES, TOOL_BY_SUFFIX, Tool
from scheduler.files.importers.torchtitan import draw as draw_torchtitan
from scheduler.files.yaml12 import read_text

GIVEN = Origin("--set")


@dataclass(frozen=True, slots=True)
class Given:
    """What the user adds to the file. `gpus` 0: not said.

    `keys`: dotted keys of the job file, which win. `environment`: shell variables.
    `model`: dotted keys of a model, for tools whose files describe none.
    """

    gpus: int = 0
    model: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


_DRAWERS: dict[Tool, Callable[[Draft, str, int, Mapping[str, str]], None]] = {
    Tool.MEGATRON: draw_megatron,
    Tool.TORCHTITAN: draw_torchtitan,
    Tool.DEEPSPEED: draw_deepspeed,
}


def import_job(path: str, tool: Tool | None, given: Given) -> Draft:
    """A checked draft of the job that `path` starts.

    Raises: InputError with every fault found, by file, line and option.
    """
    tool = tool or TOOL_BY_SUFFIX.get(Path(path).suffix, Tool.MEGATRON)
    draft = Draft(path, TITLES[tool], given.model)
    for key, value in given.keys.items():
        draft.put(key, value, GIVEN)
    draft.check_given()
    _DRAWERS[tool](draft, read_text(path), given.gpus, given.environment)
    draft.put("name", Path(path).stem)
    draft.checked()
    return draft
