"""job_text() and import_job(): the entry points of the importers of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from importers.jobs.deepspeed import draw as draw_deepspeed
from importers.jobs.draft import Draft, Origin
from importers.jobs.megatron import draw as draw_megatron
from importers.jobs.shapes import model_of
from importers.jobs.tools import TITLES, TOOL_BY_SUFFIX, Tool
from importers.jobs.torchtitan import draw as draw_torchtitan
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import parse, read_text

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


def job_text(
    path: str,
    tool: str | None,
    gpus: int,
    model: str | None,
    keys: Mapping[str, str],
    environment: Mapping[str, str],
) -> str:
    """Return the text of a job file; arguments as of `muster job import`. Raises: InputError."""
    if tool is not None and tool not in list(Tool):
        message = f"must be one of {', '.join(Tool)}, not {tool!r}"
        raise InputError(Problem("--from", message))
    parsed = {key: parse(value).value for key, value in keys.items()}
    given = Given(gpus, model_of(model) if model else {}, parsed, environment)
    return import_job(path, None if tool is None else Tool(tool), given).text()


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
