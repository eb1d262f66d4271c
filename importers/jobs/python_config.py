"""Configurations that are Python: TorchTitan's registries, recipes of NeMo 2 and Megatron-Bridge.

Nothing is run: what a function sets is read from the syntax tree, and what only running would tell
is named.

A value is a constant, a list, a dict, a `Config` (what a call returned), a `Symbol` (a name of
which the files say no more), or COMPUTED. Functions are followed in the file and in modules whose
file lies below a folder above it, as in a checkout.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from importers.jobs.draft import FORMATS, Draft
from muster.structs import replace, struct
from scheduler.files.errors import InputError, Problem
from scheduler.files.yaml12 import read_text

MOST_STATEMENTS, MOST_DEPTH = 20_000, 30
MOST_NUMBER = 1 << 53
OPERATORS: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul},
    **{ast.FloorDiv: operator.floordiv, ast.Eq: operator.eq, ast.NotEq: operator.ne},
    **{ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Lt: operator.lt, ast.Gt: operator.gt},
    ast.In: lambda item, holder: item in holder,
}


class Symbol(str):
    """A dotted name that the files do not define, such as `torch.bfloat16`."""

    __slots__ = ()


class Computed:
    """A value that is known only when the program runs."""


COMPUTED = Computed()
_NOTHING = object()  # what a body returns that ends without a return


@struct(frozen=True, slots=True, eq=False)
class Config:
    """An object that a call returned. `maker`: the name of what was called. `texts`: strings and
    names among its positional arguments. `places`: file and line by setting."""

    maker: str
    texts: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[Path, int]] = field(default_factory=dict)


@dataclass(slots=True)
class Module:
    """One Python file. `names`: its functions, and the expressions of its constants. `imports`:
    module, dots before it and name, by the name that they have here."""

    path: Path
    names: dict[str, ast.FunctionDef | ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, int, str]] = field(default_factory=dict)


@dataclass(slots=True)
class Files:
    """The modules that were read. `skipped`: statements that were not followed."""

    modules: dict[Path, Module] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    statements: int = 0

    def parse(self, path: Path, text: str) -> Module:
        """Return the names of a file. Raises: InputError with file and line."""
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", 0) or 0
            raise InputError(Problem("", f"is not Python: {error}", str(path), line)) from None
        module = self.modules[path.resolve()] = Module(path)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                module.names[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name):
                    module.names[target.id] = node.value
            elif isinstance(node, ast.ImportFrom):
                origin = (node.module or "", node.level)
                module.imports |= {
                    each.asname or each.name: (*origin, each.name) for each in node.names
                }
        return module

    def find(self, module: Module, name: str) -> tuple[Module, ast.FunctionDef | ast.expr | None]:
        """Return the function or constant of this name, in the file or where it is imported
        from."""
        for _ in range(MOST_DEPTH):
            if name in module.names:
                return module, module.names[name]
            if name not in module.imports:
                break
            package, level, name = module.imports[name]
            imported = next(self._imported(module.path, package, level), None)
            if imported is None:
                break
            module = imported
        return module, None

    def _imported(self, source: Path, package: str, level: int) -> Iterator[Module]:
        inner, above = package.replace(".", "/"), source.resolve().parents
        for folder in above[level - 1 : level] if level else above:
            for path in (folder / f"{inner}.py", folder / inner / "__init__.py"):
                if path in self.modules:
                    yield self.modules[path]
                elif path.is_file():
                    yield self.parse(path, read_text(str(path)))


@struct(frozen=True, slots=True)
class FunctionReader:
    """Follows one function, with the values of its names."""

    files: Files
    module: Module
    scope: dict[str, Any] = field(default_factory=dict)
    depth: int = 0

    def call(self, function: ast.FunctionDef, given: Sequence[Any], named: dict[str, Any]) -> Any:
        """Return what a function of this reader's module returns; it may change its arguments.

        Raises: RecursionError where it calls too deep, or does too much.
        """
        if self.depth > MOST_DEPTH:
            raise RecursionError
        arguments = function.args
        names = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
        defaults = dict(zip(names[::-1], arguments.defaults[::-1], strict=False))
        defaults |= {
            each.arg: default
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }
        scope = {name: self.value(default) for name, default in defaults.items()}
        scope |= dict(zip(names, given, strict=False)) | named
        scope = dict.fromkeys(names, COMPUTED) | scope
        if arguments.kwarg:
            scope[arguments.kwarg.arg] = {n: v for n, v in named.items() if n not in names}
        inner = replace(self, scope=scope, depth=self.depth + 1)
        returned = inner.run(function.body)
        return None if returned is _NOTHING else returned

    def value(self, node: ast.expr) -> Any:
        """Return what an expression stands for."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._named(node.id)
            case ast.Attribute():
                base = self.value(node.value)
                if isinstance(base, Config):
                    return base.settings.get(node.attr, COMPUTED)
                return Symbol(f"{base}.{node.attr}") if isinstance(base, Symbol) else COMPUTED
            case ast.Call():
                return self._called(node)
            case ast.List() | ast.Tuple():
                return [self.value(item) for item in node.elts]
            case ast.Dict():
                return self._dict(node)
            case ast.IfExp():
                is_true = _truth(self.value(node.test))
                return (
                    COMPUTED
                    if is_true is None
                    else self.value(node.body if is_true else node.orelse)
                )
            case ast.UnaryOp(op=ast.Not()):
                is_true = _truth(self.value(node.operand))
                return COMPUTED if is_true is None else not is_true
            case ast.BoolOp():
                return self._either(node)
            case ast.Subscript():
                holder, key = self.value(node.value), self.value(node.slice)
                if not isinstance(key, str):
                    return COMPUTED
                if isinstance(holder, Symbol):
                    return Symbol(f"{holder}.{key}")
                return holder.get(key, COMPUTED) if isinstance(holder, dict) else COMPUTED
            case ast.Compare(ops=[sign], comparators=[right]):
                return _operated(sign, self.value(node.left), self.value(right))
            case ast.BinOp():
                sides = self.value(node.left), self.value(node.right)
                are_numbers = all(isinstance(each, int | float) for each in sides)
                return _operated(node.op, *sides) if are_numbers else COMPUTED
        return COMPUTED

    def _named(self, name: str) -> Any:
        if name in self.scope:
            return self.scope[name]
        module, node = self.files.find(self.module, name)
        if isinstance(node, ast.expr):
            if self.depth > MOST_DEPTH:
                raise RecursionError
            return replace(self, module=module, scope={}, depth=self.depth + 1).value(node)
        return Symbol(name)

    def _called(self, node: ast.Call) -> Any:
        given = [self.value(item) for item in node.args]
        named, places = dict[str, Any](), dict[str, tuple[Path, int]]()
        for keyword in node.keywords:
            value = self.value(keyword.value)
            several = value if keyword.arg is None else {keyword.arg: value}
            if isinstance(several, dict):
                named |= several
                places |= dict.fromkeys(several, (self.module.path, keyword.value.lineno))
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
            if isinstance(base, list) and node.func.attr == "append":
                return base.extend(given)
            if type(base) is str and node.func.attr in ("lower", "upper") and not given:
                return base.lower() if node.func.attr == "lower" else base.upper()
            if isinstance(base, Config):  # a method: of what it returns only the base is known
                return Config(f"{base.maker}.{node.func.attr}", base.texts)
        if isinstance(node.func, ast.Name) and node.func.id not in self.scope:
            module, function = self.files.find(self.module, node.func.id)
            if isinstance(function, ast.FunctionDef):
                return replace(self, module=module, scope={}).call(function, given, named)
        called = self.value(node.func)
        maker = called if isinstance(called, Symbol) else "a computed function"
        last = maker.rsplit(".", 1)[-1]
        match last, given:
            case ("replace" | "deepcopy", [Config() as base, *_]):
                return replace(base, settings=base.settings | named, places=base.places | places)
            case ("getattr", [Config() as base, str() as name, *rest]):
                return base.settings.get(name, rest[0] if rest else COMPUTED)
            case ("int" | "float", [int() | float() as number]):
                return number
            case ("Config" | "Partial", [first, *_]):  # of nemo_run: the first makes it
                if isinstance(first, Computed):
                    return COMPUTED
                maker = str(getattr(first, "maker", first))
                given = given[1:]
        texts = tuple(str(item) for item in given if isinstance(item, str))
        return Config(maker, texts, named, places)

    def _dict(self, node: ast.Dict) -> Any:
        made: dict[str, Any] = {}
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            name = None if key is None else self.value(key)
            if key is None and isinstance(value, dict):
                made |= value
            elif isinstance(name, str):
                made[name] = value
            else:
                return COMPUTED
        return made

    def _either(self, node: ast.BoolOp) -> Any:
        value: Any = COMPUTED
        for inner in node.values:
            value = self.value(inner)
            if (is_true := _truth(value)) is None:
                return COMPUTED
            if is_true is isinstance(node.op, ast.Or):
                break
        return value

    def run(self, body: Sequence[ast.stmt]) -> Any:
        """Follow statements up to the first return."""
        for node in body:
            self.files.statements += 1
            if self.files.statements > MOST_STATEMENTS:
                raise RecursionError
            match node:
                case ast.Return():
                    return None if node.value is None else self.value(node.value)
                case ast.If():
                    if (is_true := _truth(self.value(node.test))) is None:
                        self._skip(node, "a condition that only running tells")
                    else:
                        returned = self.run(node.body if is_true else node.orelse)
                        if returned is not _NOTHING:
                            return returned
                case ast.Assign() | ast.AnnAssign() if node.value is not None:
                    value = self.value(node.value)
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        self._assign(target, value, node)
                case ast.Expr(value=ast.Call()):
                    made = self.value(node.value)
                    if isinstance(made, Config):  # a function that is not at hand may set anything
                        self._skip(node, f"what {made.maker} does")
                case ast.Expr() | ast.Pass() | ast.Import() | ast.ImportFrom() | ast.FunctionDef():
                    pass
                case _:
                    self._skip(node, "a statement that is not followed")
        return _NOTHING

    def _skip(self, node: ast.stmt, what: str) -> None:
        self.files.skipped.append(f"{what} ({self.module.path.name}, line {node.lineno})")

    def _assign(self, target: ast.expr, value: Any, node: ast.stmt) -> None:
        if isinstance(target, ast.Name):
            self.scope[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            parts = value if isinstance(value, list) else []
            for inner, part in zip_longest(
                target.elts, parts[: len(target.elts)], fillvalue=COMPUTED
            ):
                self._assign(inner, part, node)  # type: ignore[arg-type]
        elif isinstance(target, ast.Attribute) and (holder := self._holder(target.value)):
            holder.settings[target.attr] = value
            holder.places[target.attr] = self.module.path, node.lineno
        else:
            self._skip(node, "an assignment that is not followed")

    def _holder(self, node: ast.expr) -> Config | None:
        """The configuration whose attribute is set; of one that is not known, a new part."""
        if isinstance(node, ast.Name):
            value = self.scope.get(node.id)
            return value if isinstance(value, Config) else None
        if not isinstance(node, ast.Attribute) or (above := self._holder(node.value)) is None:
            return None
        value = above.settings.get(node.attr)
        if not isinstance(value, Config):
            value = above.settings[node.attr] = Config(value if isinstance(value, str) else "")
            above.places[node.attr] = self.module.path, node.lineno
        return value


def _truth(value: Any) -> bool | None:
    """None where only running would tell."""
    return None if _is_unknown(value) else isinstance(value, Config) or bool(value)


def _is_unknown(value: Any) -> bool:
    """Return whether only running would tell: what a function that is not at hand returned."""
    if isinstance(value, Config):
        return not (value.settings or value.maker.rsplit(".", 1)[-1][:1].isupper())
    return isinstance(value, Computed | Symbol)


def _operated(sign: ast.AST, left: Any, right: Any) -> Any:
    """The result where both sides are known, and no number grows without end."""
    if _is_unknown(left) or _is_unknown(right):
        return COMPUTED
    try:
        made = OPERATORS[type(sign)](left, right)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return COMPUTED
    is_large = isinstance(made, int | float) and not abs(made) < MOST_NUMBER
    return COMPUTED if is_large else made


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

    def note_skipped(self, draft: Draft) -> None:
        """Note the statements that were not followed."""
        for sentence in self.skipped:
            draft.note(f"not represented: {sentence}")


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
