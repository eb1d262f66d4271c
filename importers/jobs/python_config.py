"""Configurations that are Python: TorchTitan's registries and recipes of NeMo 2.

Nothing is run: constants are read from the syntax tree, also those of parameters with a default,
and what is computed is named.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from importers.jobs.draft import Draft, Origin
from importers.jobs.tools import FORMATS
from scheduler.files.errors import InputError, Problem

_MODEL: Final = re.compile(r"([a-z]\w*?)_(\d+(?:x\d+)?b)(?:_\w+)?", re.IGNORECASE)


@dataclass(slots=True)
class PythonConfig:
    """Values that one function of the file sets, by dotted path, with the lines. `recipe`: the call
    that it begins with, `llama3_70b` of `llm.llama3_70b.pretrain_recipe(...)`, else its name."""

    recipe: str
    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)

    def put(self, path: str, node: ast.expr, known: Mapping[str, Any]) -> None:
        """Set a path to the value of an expression, if that is known."""
        if isinstance(node, ast.Call) and node.keywords:
            for keyword in node.keywords:
                if keyword.arg is not None:
                    self.put(f"{path}.{keyword.arg}".lstrip("."), keyword.value, known)
            return
        value = known.get(node.id) if isinstance(node, ast.Name) else _constant(node)
        if value is None and not (isinstance(node, ast.Constant) and node.value is None):
            self.computed[path] = node.lineno
            return
        self.values[path], self.lines[path] = value, node.lineno


def model_name(recipe: str) -> tuple[str, str]:
    """`llama3` and `70B` of `llama3_70b`; "" where it is not said so."""
    match = _MODEL.fullmatch(recipe)
    return (match[1], match[2].upper()) if match else ("", "")


def read_config(draft: Draft, text: str, recipe: str) -> PythonConfig:
    """Read the function of the file that is called `recipe`, or the only one.

    Raises: InputError.
    """
    try:
        tree = ast.parse(text)
    except (RecursionError, MemoryError):  # the parser's stack ends with either
        raise InputError(Problem("", "is nested too deep", draft.source)) from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        raise InputError(Problem("", f"is not Python: {error}", draft.source, line)) from None
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(isinstance(n, ast.Return) for n in node.body)
    }
    if not functions:
        raise InputError(
            Problem("", f"has no function with a configuration: {FORMATS}", draft.source)
        )
    if not recipe and len(functions) > 1:
        names = ", ".join(functions)
        raise InputError(Problem("--recipe", f"is needed, one of {names}", draft.source))
    name = recipe or next(iter(functions))
    if name not in functions:
        names = ", ".join(functions)
        raise InputError(Problem("--recipe", f"{name} is none of {names}", draft.source))
    return _read(functions[name])


def _read(function: ast.FunctionDef) -> PythonConfig:
    config = PythonConfig(function.name)
    known = dict(_defaults(function))
    own = ""  # the variable that holds the configuration
    for node in function.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Name) and isinstance(node.value, ast.Call):
                own = target.id
                config.recipe = _called(node.value) or config.recipe
                config.put("", node.value, known)
            elif isinstance(target, ast.Attribute) and (path := _path(target)):
                config.put(path.removeprefix(f"{own}."), node.value, known)
        elif isinstance(node, ast.Return) and isinstance(node.value, ast.Call):
            config.put("", node.value, known)
    return config


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, Any]]:
    """Parameters with a constant default."""
    arguments = function.args.args
    for argument, default in zip(arguments[::-1], function.args.defaults[::-1], strict=False):
        yield argument.arg, _constant(default)


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _path(node: ast.expr) -> str:
    """`recipe.trainer.strategy` of an attribute; "" of anything else."""
    if isinstance(node, ast.Attribute):
        above = _path(node.value)
        return f"{above}.{node.attr}" if above else ""
    return node.id if isinstance(node, ast.Name) else ""


def _called(call: ast.Call) -> str:
    """`llama3_70b` of `llm.llama3_70b.pretrain_recipe(...)`; "" of another call."""
    parts = _path(call.func).split(".")
    found = [part for part in parts if _MODEL.fullmatch(part)]
    return found[-1] if found else ""


def note_computed(draft: Draft, config: PythonConfig) -> None:
    """Say what the function computes, which nobody knows without running it."""
    for path, line in config.computed.items():
        draft.note(f"not represented: {path} (line {line}): it is computed")


def required_ranks(draft: Draft, gpus: int, ranks: int) -> int:
    """How many GPUs run, as the user or the file says. Raises: InputError."""
    if not gpus and not ranks:
        draft.fault(Origin("--gpus"), "is needed: the file does not say how many GPUs run")
        draft.raise_faults()
    return gpus or ranks
