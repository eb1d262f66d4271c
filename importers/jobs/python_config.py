"""Configurations that are Python: TorchTitan's registries, recipes of NeMo 2 and Megatron-Bridge.

Nothing is run: what a function sets is read from the syntax tree (python_reader.py), and what only
running would tell is named.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from importers.jobs.draft import Draft
from importers.jobs.python_reader import Computed, Config, Files, FunctionReader, Symbol
from importers.jobs.tools import FORMATS
from scheduler.files.errors import InputError, Problem

_MODEL: Final = re.compile(r"([a-z]\w*?)_(\d+(?:x\d+)?b)(?:_\w+)?", re.IGNORECASE)


@dataclass(slots=True)
class PythonConfig:
    """Values that one function of the file sets, by dotted path, with the lines (0: of another
    file). `recipe`: the call that it begins with, `llama3_70b` of
    `llm.llama3_70b.pretrain_recipe(...)`, else the `name` of the function. `tree`: the same,
    nested. `places`: file and line, for people. `skipped`: statements that were not followed."""

    recipe: str
    name: str
    tree: Config
    skipped: list[str]
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)


def model_name(recipe: str) -> tuple[str, str]:
    """Split a name into a model and its size, `llama3` and `70B` of `llama3_70b`; "" where it has
    no size."""
    match = _MODEL.fullmatch(recipe)
    return (match[1], match[2].upper()) if match else ("", "")


def read_config(draft: Draft, text: str, recipe: str) -> PythonConfig:
    """Read the function or constant of the file that is named `recipe`, or the only function.

    Raises: InputError.
    """
    files, path = Files(), Path(draft.source)
    try:
        reader = FunctionReader(files, files.parse(path, text))
        functions, constants = dict[str, ast.FunctionDef](), dict[str, ast.expr]()
        for name, node in reader.module.names.items():
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(inner, ast.Return) for inner in ast.walk(node)
            ):
                functions[name] = node
            elif isinstance(node, ast.Call):
                constants[name] = node
        known = functions or constants
        if not functions and not recipe:
            hint = f"; --recipe takes one of {', '.join(constants)}" if constants else ""
            message = f"has no function with a configuration{hint}: {FORMATS}"
            raise InputError(Problem("", message, draft.source))
        if not recipe and len(functions) > 1:
            message = f"is needed, one of {', '.join(functions)}"
            raise InputError(Problem("--recipe", message, draft.source))
        name = recipe or next(iter(functions))
        if name in functions:
            tree = reader.call(functions[name], [], {})
        elif name in constants:
            tree = reader.value(constants[name])
        else:
            message = f"{name} is none of {', '.join(known)}"
            raise InputError(Problem("--recipe", message, draft.source))
        if not isinstance(tree, Config):
            message = f"{name} returns nothing that can be read without running it"
            raise InputError(Problem("--recipe", message, draft.source))
        config = PythonConfig(_called(tree.maker) or name, name, tree, files.skipped)
        _flatten(config, tree, "", path)
    except (RecursionError, MemoryError):  # the parser's stack ends with either
        raise InputError(Problem("", "is nested too deep", draft.source)) from None
    return config


def _flatten(config: PythonConfig, tree: Config, above: str, source: Path) -> None:
    """Note each leaf by its dotted path."""
    for name, value in tree.settings.items():
        path, (file, line) = f"{above}{name}", tree.places.get(name, (source, 0))
        config.places[path] = f"line {line}" if file == source else f"{file.name}, line {line}"
        if isinstance(value, Config) and value.settings:
            _flatten(config, value, f"{path}.", source)
        elif any(isinstance(part, Config | Computed | Symbol) for part in _parts(value)):
            config.computed.append(path)
        else:
            config.values[path] = value
            config.lines[path] = line if file == source else 0


def _parts(value: Any) -> list[Any]:
    if isinstance(value, list | dict):
        return [*value.values()] if isinstance(value, dict) else value
    return [value]


def _called(maker: str) -> str:
    """`llama3_70b` of `llm.llama3_70b.pretrain_recipe`; "" of another call."""
    found = [part for part in maker.split(".") if _MODEL.fullmatch(part)]
    return found[-1] if found else ""


def note_unread(
    draft: Draft, config: PythonConfig, read: frozenset[str], left: tuple[str, ...]
) -> None:
    """Note settings that have no key in a job file, and settings that the function computes.

    `read`: paths that became keys. `left`: beginnings of paths that the program alone needs.
    """
    for path in (*config.lines, *config.computed):
        if path in read or path.startswith(left):
            continue
        why = ": it is computed" if path in config.computed else ""
        draft.note(f"not represented: {path} ({config.places[path]}){why}")
    for sentence in config.skipped:
        draft.note(f"not represented: {sentence}")
