"""Commands whose parameters are made from a table of options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature


def with_parameters(
    command: Callable[..., None], parameters: Iterable[Parameter]
) -> Callable[..., None]:
    """`command`, which takes keywords, as Typer reads it: with these parameters."""
    signature = Signature(list(parameters))
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
    return command
