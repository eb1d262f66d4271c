"""Options of a replay (simulator/options.py) as parameters of a command."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Literal

import typer

from scheduler.cli.signatures import with_parameters
from simulator.options import (
    OPTIONS,
    ChoiceKind,
    FlagKind,
    NumberKind,
    ReplayOption,
    Value,
    WholeKind,
    from_command_line,
)


def with_options(command: Callable[..., None], takes_several: bool = False) -> Callable[..., None]:
    """Return `command` with a parameter for each option of a replay, which reach it as `**options`.
    `takes_several`: options that a comparison varies may be given several times."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    kept = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
    made = [_parameter(option, takes_several) for option in OPTIONS]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in kept]

    @wraps(command)
    def wrapped(**values: Any) -> None:
        command(**values)

    return with_parameters(wrapped, [*made, *keyword])


def _parameter(option: ReplayOption, takes_several: bool) -> inspect.Parameter:
    is_list = takes_several and option.is_several
    default: Any = None if is_list else option.default
    if option.is_needed:
        default = inspect.Parameter.empty
    return inspect.Parameter(
        option.key,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[_type(option, is_list), _info(option, is_list)],
    )


def _type(option: ReplayOption, is_list: bool) -> Any:
    kind = option.kind
    single: Any = str
    if isinstance(kind, ChoiceKind) and not is_list:  # typer has no lists of choices
        single = Literal[kind.names]
    elif isinstance(kind, FlagKind):
        single = bool
    elif isinstance(kind, WholeKind):
        single = int
    elif isinstance(kind, NumberKind):
        single = float
    if is_list:
        return list[single] if option.is_needed else list[single] | None
    return single if option.is_needed or option.default is not None else single | None


def _info(option: ReplayOption, is_list: bool) -> Any:
    if option.key == "trace":
        return typer.Argument(help=option.help, show_default=False)
    text = option.help
    if is_list:
        is_said = option.default is not None and not isinstance(option.kind, FlagKind)
        usual = f" Default: {option.default}." if is_said else ""
        text = f"{text}{usual} May be given several times."
    has_default = (
        option.default is not None and not is_list and not isinstance(option.kind, FlagKind)
    )
    declared = []
    if isinstance(option.kind, FlagKind):
        both = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        declared = [both if is_list else option.flag]
    return typer.Option(
        *declared, help=text, show_default=has_default, metavar=_bounds(option.kind)
    )


def _bounds(kind: object) -> str | None:
    """The range of a number, and the names of a choice, as help shows them."""
    if isinstance(kind, ChoiceKind):
        return f"<{'|'.join(kind.names)}>"
    if isinstance(kind, WholeKind):
        return f"<int >= {kind.low}>"
    if isinstance(kind, NumberKind):
        return f"<{kind.low:g} to {kind.high:g}>"
    return None


def checked_values(options: Mapping[str, Value]) -> dict[str, Value]:
    """Check the values of a command line, and return them as they are stored. Raises: InputError
    naming the option."""
    return {key: from_command_line(key, value) for key, value in options.items()}
