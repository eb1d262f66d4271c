"""job_text() and import_job(): the entry points of the importers of jobs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from importers.jobs.accelerate import draw as draw_accelerate
from importers.jobs.deepspeed import draw as draw_deepspeed
from importers.jobs.draft import FORMATS, GIVEN, TITLES, TOOL_BY_SUFFIX, Draft, Tool
from importers.jobs.maxtext import draw as draw_maxtext
from importers.jobs.nemo import RECIPE
from importers.jobs.nemo import draw as draw_nemo
from importers.jobs.python_config import read_config
from importers.jobs.scripts.megatron import draw as draw_megatron
from importers.jobs.shapes import model_of
from importers.jobs.torchtitan import draw as draw_torchtitan
from importers.jobs.torchtitan import draw_python
from muster.structs import struct
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import parse, read_text


@struct(frozen=True, slots=True)
class Given:
    """Facts that the user adds to the file. `gpus` 0: not said. `recipe`: a function in Python.

    `keys`: dotted keys of the job file, which win. `environment`: shell variables. `model`: dotted
    keys of a model, for tools whose files describe none.
    """

    gpus: int = 0
    recipe: str = ""
    model: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


_DRAWERS: dict[Tool, Callable[[Draft, str, int, Mapping[str, str]], None]] = {
    Tool.MEGATRON: draw_megatron,
    Tool.TORCHTITAN: draw_torchtitan,
    Tool.DEEPSPEED: draw_deepspeed,
    Tool.ACCELERATE: draw_accelerate,
    Tool.MAXTEXT: draw_maxtext,
}


def job_text(
    path: str,
    tool: str | None,
    gpus: int,
    model: str | None,
    keys: Mapping[str, str],
    environment: Mapping[str, str],
    recipe: str = "",
) -> str:
    """Return the text of a job file; arguments as of `muster job import`. Raises: InputError."""
    if tool is not None and tool not in list(Tool):
        message = f"must be one of {', '.join(Tool)}, not {tool!r}"
        raise InputError(Problem("--from", message))
    parsed = {key: parse(value).value for key, value in keys.items()}
    shape = model_of(model) if model else {}
    given = Given(gpus, recipe, shape, parsed, environment)
    return import_job(path, None if tool is None else Tool(tool), given).text()


def _tool_of(path: str, text: str) -> Tool:
    """By the suffix of the file, and of YAML by a key of one tool alone. Raises: InputError."""
    suffix = Path(path).suffix
    if suffix not in (".yaml", ".yml"):
        return TOOL_BY_SUFFIX.get(suffix, Tool.MEGATRON)
    if re.search(r"^(ici_|dcn_|base_config|base_emb_dim)", text, re.MULTILINE):
        return Tool.MAXTEXT
    if re.search(r"^distributed_type", text, re.MULTILINE):
        return Tool.ACCELERATE
    raise InputError(Problem("", f"is of no format that is read: {FORMATS}", path))


SPLIT = ("parallelism", "batch")  # what options of a program say too


def import_job(path: str, tool: Tool | None, given: Given) -> Draft:
    """Return a checked draft of the job that `path` starts.

    Raises: InputError with every fault found, by file, line and option.
    """
    text = read_text(path)
    tool = tool or _tool_of(path, text)
    draft = Draft(path, TITLES[tool], given.model, workdir=os.getcwd())
    for key, value in given.keys.items():
        draft.put(key, value, GIVEN)
    draft.check_given()
    if Path(path).suffix == ".py":
        config = read_config(draft, text, given.recipe)
        is_nemo = bool(RECIPE.search(text))
        draft.tool = "a recipe of NeMo or Megatron-Bridge" if is_nemo else draft.tool
        (draw_nemo if is_nemo else draw_python)(draft, config, given.gpus)
    else:
        _DRAWERS[tool](draft, text, given.gpus, given.environment)
    shape = [key for key in given.keys if key.partition(".")[0] in SPLIT]
    if shape and "run.command" in draft.values:
        draft.note(f"run.command is as the script has it: change {', '.join(shape)} there as well")
    draft.put("name", Path(path).stem)
    ranks = draft.checked().request.parallelism.world_size
    if given.gpus and ranks != given.gpus:
        draft.fault(GIVEN, f"the axes make {ranks:,} ranks, not the {given.gpus:,} of --gpus")
        draft.raise_faults()
    return draft
