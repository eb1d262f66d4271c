"""Commands whose parameters are made from a table of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from muster.structs import struct


@struct(frozen=True, slots=True)
class SharedOptions:
    """Options that many commands have, and the value that is made of them.

    `options`: annotation and default by name, in the order of the help; `make` takes them all.
    """

    make: Callable[..., Any]
    options: Mapping[str, tuple[Any, Any]]


def with_shared(
    command: Callable[..., None],
    *shared: SharedOptions,
    defaults: Mapping[str, Any] | None = None,
) -> Callable[..., None]:
    """Return `command`, whose first parameters are what `shared` makes, as one that has the
    options of these after its own.

    `defaults`: in place of the usual ones.
    """
    own = [*signature(command, eval_str=True).parameters.values()][len(shared) :]
    usual = {key: option for group in shared for key, option in group.options.items()}
    defaults = {key: default for key, (_, default) in usual.items()} | dict(defaults or {})
    common = [
        Parameter(key, Parameter.KEYWORD_ONLY, default=defaults[key], annotation=annotation)
        for key, (annotation, _) in usual.items()
    ]

    @wraps(command)
    def wrapped(**values: Any) -> None:
        made = [group.make(**{key: values.pop(key) for key in group.options}) for group in shared]
        command(*made, **values)

    keyword = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in own]
    return with_parameters(wrapped, [*keyword, *common])


def with_parameters(
    command: Callable[..., None], parameters: Iterable[Parameter]
) -> Callable[..., None]:
    """Return `command`, which takes keywords, with the signature of these parameters, as Typer
    reads it."""
    made = Signature(list(parameters))
    command.__signature__ = made  # type: ignore[attr-defined]
    command.__annotations__ = {name: p.annotation for name, p in made.parameters.items()}
    return command
