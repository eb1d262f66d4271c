"""What a server refuses is told in the words of the command line, and what no request can
carry is refused before there is one."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from scheduler.cli import calls
from scheduler.cli.program import app, load_commands
from scheduler.client import ServiceError


def commands(found: Any = None, name: str = "muster") -> Iterator[tuple[str, Any]]:
    """Every command, by its full name."""
    found = found or get_command(app)
    if not hasattr(found, "commands"):
        yield name, found
        return
    for each, below in found.commands.items():
        yield from commands(below, f"{name} {each}")


def calling() -> Iterator[tuple[str, Any]]:
    """The options of commands that talk to a server."""
    for name, found in commands():
        if any("--address" in each.opts for each in found.params):
            yield from ((name, each) for each in found.params)


@pytest.mark.parametrize(
    ("field", "option"),
    [
        ("suppose[1]", "--if"),
        ("order_by", "--order-by"),
        ("window.host_count", "--count"),
    ],
)
def test_a_field_at_fault_is_the_option_that_was_typed(
    field: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{field}: will not do"
    with pytest.raises(typer.Exit) as caught, calls.connected("127.0.0.1:1"):
        raise ServiceError("INVALID_ARGUMENT", text, "INVALID", ((field, "will not do"),))

    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == f"muster: {option}: will not do\n"


@pytest.mark.parametrize("second", [("--label", "a=2"), ("--unlabel", "a")])
def test_a_label_is_changed_once_in_a_command(second: tuple[str, str]) -> None:
    done = CliRunner().invoke(app, ["update", "job", "--label", "a=1", *second])

    assert done.exit_code == 2
    assert "'a' is given twice" in done.output


def test_what_fields_are_called_are_options_that_there_are() -> None:
    options = {option for _, each in calling() for option in each.opts}

    assert set(calls.TYPED.values()) <= options


def test_whole_numbers_fit_the_wire() -> None:
    numbers = [
        (name, each.opts, getattr(each.type, "max", None))
        for name, each in calling()
        if each.type.name.startswith("int") and "--limit" not in each.opts  # `numbers.seconds`
    ]

    assert len(numbers) > 8
    assert [number for number in numbers if number[2] is None] == []


def test_a_number_beyond_the_wire_is_refused() -> None:
    for command, option, value in (
        ("update", "--priority", "99999999999"),
        ("update", "--limit", "99999999999"),
        ("resize", "--role", "b=99999999999"),
    ):
        result = CliRunner().invoke(app, [command, "a", option, value])

        assert result.exit_code == 2
        assert option in result.output


def test_help_is_shown_as_it_is_written() -> None:
    """Rich takes `[default: now]` for a style and `:a:` for an emoji."""
    load_commands()
    for name, command in commands(get_command(app)):
        for text in [command.help, *(getattr(each, "help", "") for each in command.params)]:
            assert Text.from_markup(text or "").plain == (text or ""), name
