"""The command around all commands: its version, its exit codes, its streams."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest
import typer

from placement.errors import BadInput
from scheduler.cli import program
from scheduler.release import DISTRIBUTION, SERVER_PACKAGES
from tests.commands import Muster

ROOT = Path(__file__).parents[2]


def test_version(muster: Muster) -> None:
    result = muster("--version")
    assert (result.code, result.out.split()[0]) == (0, "muster")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadInput("a.b", "is wrong"), 2, "a.b: is wrong"),
        (RuntimeError("boom"), 70, "muster: internal error: RuntimeError: boom"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_nothing_ends_in_a_traceback(
    muster: Muster, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def fails() -> None:
        raise error

    program.load_commands()
    monkeypatch.setattr(program, "_app", fails)
    result = muster()
    assert result.code == code
    assert message in result.err


@pytest.mark.parametrize(
    ("words", "is_known"),
    [
        (["jobs"], True),
        (["--ca", "replay", "--key=k", "job", "a"], True),
        (["replay", "jobs"], False),
        (["--help"], False),
        ([], False),
    ],
)
def test_plug_ins_are_looked_for_where_no_command_of_ours_is_named(
    words: list[str], is_known: bool
) -> None:
    assert program.is_builtin(words) is is_known


def test_each_module_adds_the_commands_that_the_table_says() -> None:
    for modules in program.COMMANDS.values():
        for module, commands in modules.items():
            app = typer.Typer()
            importlib.import_module(f"scheduler.cli.{module}").register(app)
            added = typer.main.get_group(app).commands
            assert sorted(added) == sorted(commands.split()), module


def test_the_packages_of_a_server_are_those_of_its_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    wanted = {
        re.split(r"[\[<>=]", line)[0].replace("-", "_")
        for line in project["optional-dependencies"]["server"]
    }
    named = {"grpcio_reflection": "grpc_reflection", "pyjwt": "jwt"}
    modules = {named.get(package, package) for package in wanted}
    assert modules | {"markupsafe"} == SERVER_PACKAGES  # jinja2 brings markupsafe
