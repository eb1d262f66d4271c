"""Conventions of the command line: contexts, global options, help, formats, exit codes, faults."""

import importlib
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import yaml
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from placement.errors import BadInput
from scheduler.cli import calls, complete, program
from scheduler.cli.calls import AnswerFormat, formatted
from scheduler.cli.numbers import seconds
from scheduler.cli.program import app, load_commands
from scheduler.client import ServiceError, connection, failover
from scheduler.release import DISTRIBUTION, SERVER_PACKAGES
from tests.commands import Muster

VARIABLES = ("ADDRESS", "CA", "CERT", "KEY", "TOKEN", "TOKEN_FILE", "CONTEXT")


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the contexts of this test are. What a command puts into the environment goes."""
    for name in VARIABLES:
        monkeypatch.setenv(f"MUSTER_{name}", "")
        monkeypatch.delenv(f"MUSTER_{name}")
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("MUSTER_CONFIG", str(path))
    path.write_text("contexts: {}\n")
    return path


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is at any of these addresses, and a command says so when it has called once."""
    open_channel = connection._channel
    monkeypatch.setattr(
        connection, "_channel", lambda to, who, **_: open_channel(to, who, retries=False)
    )
    monkeypatch.setattr(failover, "SILENCE_S", 0.0)


def test_the_current_context_says_which_server(muster: Muster, config: Path) -> None:
    assert muster("config", "list").out.startswith("no contexts in ")
    config.unlink()
    assert "no such file" in muster("jobs").err
    muster("config", "set", "prod", "--address", "127.0.0.1:1")
    muster("config", "set", "lab", "--address", "127.0.0.1:2")
    lab, prod = json.loads(muster("config", "list", "-o", "json").out)["contexts"]
    assert (lab["name"], lab["current"], prod["address"]) == ("lab", False, "127.0.0.1:1")
    assert "> prod  127.0.0.1:1" in muster("config", "list").out
    assert "127.0.0.1:1" in muster("jobs").err


def test_what_is_set_leaves_the_other_contexts_as_they_are(muster: Muster, config: Path) -> None:
    config.write_text("contexts:\n  prod: {address: a:1}\n")
    assert muster("config", "use", "prod").code == 0
    assert muster("config", "set", "lab", "--address", "b:2", "--ca", "/x y.pem").code == 0
    assert yaml.safe_load(config.read_text()) == {
        "contexts": {"prod": {"address": "a:1"}, "lab": {"address": "b:2", "ca": "/x y.pem"}},
        "current": "prod",
    }
    assert muster("config", "set", "new").code == 2


def test_a_missing_file_matters_where_a_server_is_asked(
    muster: Muster, config: Path, tmp_path: Path
) -> None:
    config.unlink()
    (tmp_path / "topology.conf").write_text("SwitchName=s0 Nodes=n[1-2]\n")
    done = muster("fabric", "import", "--from", "slurm", str(tmp_path / "topology.conf"))
    assert "config.yaml" not in done.err, done.err
    (tmp_path / "fabric.yaml").write_text(
        "name: f\ngpus_per_host: 8\nnic_gbps: 400\n"
        "tiers: [{name: zone, count: 1}, {name: host, count: 2}]\n"
    )
    for words in (("jobs",), ("fabric", "apply", str(tmp_path / "fabric.yaml"))):
        refused = muster(*words)
        assert (refused.code, "config.yaml: no such file" in refused.err) == (2, True), refused.err


@pytest.mark.parametrize(
    ("words", "port"),
    [
        (["jobs"], 2),
        (["jobs", "--context", "prod"], 1),
        (["--context=prod", "hosts"], 1),
        (["--address", "127.0.0.1:3", "jobs"], 3),
        (["jobs", "--address", "127.0.0.1:3"], 3),
        (["job", "a", "--context", "prod"], 1),
    ],
)
def test_an_option_wins_over_the_current_context(
    muster: Muster, config: Path, words: list[str], port: int
) -> None:
    contexts = 'contexts: {prod: {address: "127.0.0.1:1"}, lab: {address: "127.0.0.1:2"}}\n'
    config.write_text("current: prod\n" + contexts)
    muster("config", "use", "lab")
    assert f"no server answers at 127.0.0.1:{port}" in muster(*words).err


@pytest.mark.parametrize(
    ("words", "is_sent"),
    [
        (["jobs"], True),
        (["jobs", "--address", "127.0.0.1:1,127.0.0.1:2"], True),
        (["jobs", "--address", "127.0.0.1:3"], False),
        (["--address", "127.0.0.1:3", "jobs"], False),
        (["health", "--address", "127.0.0.1:3"], False),
        (["jobs", "--address", "127.0.0.1:3", "--context", "prod"], True),
    ],
)
def test_the_current_context_tells_its_secrets_to_its_own_servers_alone(
    muster: Muster, config: Path, words: list[str], is_sent: bool
) -> None:
    keys = '{address: "127.0.0.1:1,127.0.0.1:2", token_file: nowhere}'
    config.write_text(f"current: prod\ncontexts: {{prod: {keys}}}\n")
    err = muster(*words).err
    assert (f"{config.parent}/nowhere: no such file" in err) == is_sent
    assert ("127.0.0.1:3 is not of context prod" in err) == (not is_sent)


def test_the_environment_wins_over_a_context(
    muster: Muster, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('current: a\ncontexts: {a: {address: "127.0.0.1:1", token_file: nowhere}}\n')
    assert f"{config.parent}/nowhere: no such file" in muster("jobs").err
    monkeypatch.setenv("MUSTER_TOKEN", "secret")
    monkeypatch.setenv("MUSTER_ADDRESS", "127.0.0.1:4")
    monkeypatch.delenv("MUSTER_TOKEN_FILE")
    assert "127.0.0.1:4" in muster("jobs").err


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("current: q\ncontexts: {}\n", "config.yaml:1: current: is not a context: 'q'"),
        ("contexts:\n  a: {adress: x}\n", "config.yaml:2: contexts.a.adress: is an unknown key"),
        ("contexts:\n  a: 3\n", "config.yaml:2: contexts.a: must be a mapping"),
        ("contexts: {a: {address: 3}}\n", "config.yaml:1: contexts.a.address: must be a text"),
    ],
)
def test_a_faulty_file_is_named_with_its_line(
    muster: Muster, config: Path, text: str, fault: str
) -> None:
    config.write_text(text)
    result = muster("jobs")
    assert result.code == 2
    assert fault in result.err
    assert muster("config", "use", "nobody").code == 2


def test_global_options_may_follow_the_command() -> None:
    def taken(*words: str) -> tuple[str, str]:
        context: Any = get_command(app).make_context("muster", [*words], resilient_parsing=True)
        return context.params["ca"], context.params["token_file"]

    assert taken("jobs", "--ca", "x", "--state", "running") == ("x", "")
    assert taken("job", "a", "--token-file=t") == ("", "t")
    assert taken("submit", "--", "--ca") == ("", "")
    assert taken("config", "set", "a", "--ca", "x") == ("", "")  # it has one of that name


def test_help_is_a_command(muster: Muster) -> None:
    assert "muster job import" in muster("help", "job", "import").out
    assert "Hosts, links and spares" in muster("help").out
    result = muster("help", "job", "nothing")
    assert result.code == 2
    assert "muster job has no command 'nothing'" in result.err


def test_an_answer_as_yaml_is_the_answer_as_json(muster: Muster) -> None:
    words = ("fabric", "show", "--fabric", "mini.yaml")
    assert yaml.safe_load(muster(*words, "-o", "yaml").out) == muster(*words, "-o", "json").json
    assert muster(*words, "-o", "name").out == "mini\n"


def test_names_alone() -> None:
    bodies = (
        {"jobs": [{"name": "a"}, {"name": "b"}], "next_page_token": ""},
        {"job": {"name": "a"}, "version": "3"},
        {"hosts": []},
    )
    assert [formatted(body, AnswerFormat.NAME) for body in bodies] == ["a\nb", "a", ""]


def test_an_answer_without_names_says_so(muster: Muster) -> None:
    result = muster("estimate", "job.yaml", "--fabric", "mini.yaml", "--format", "name")
    assert (result.code, result.out) == (2, "")
    assert "this answer has no names" in result.err


def test_a_duration_is_a_number_with_units() -> None:
    assert [seconds(text) for text in ("2h30m", "90", "1d")] == [9_000, 90, 86_400]


def test_a_command_offers_states_of_what_it_lists_and_fabrics_are_presets_and_files(
    muster: Muster, tmp_path: Path
) -> None:
    for command, state in (("jobs", "queued"), ("hosts", "suspect"), ("list", "open")):
        context: Any = SimpleNamespace(info_name=command)
        assert complete.states(context, state[:2]) == [state]
    (tmp_path / "ib.yaml").write_text("")
    (tmp_path / "iced").mkdir()
    assert complete.fabrics("i") == ["ib-24k", "ib.yaml", "iced/"]


# --- the command around all commands: its version, its exit codes, its streams -------

ROOT = Path(__file__).parents[2]


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

    assert muster("--version").out.startswith("muster ")
    program.load_commands()
    monkeypatch.setattr(program, "app", fails)
    result = muster()
    assert result.code == code
    assert message in result.err


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


# --- faults in the words of the command line, and options that a request can carry ---


def commands(found: Any = None, name: str = "muster") -> Iterator[tuple[str, Any]]:
    """Every command, by its full name."""
    load_commands()
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
    [("suppose[1]", "--if"), ("order_by", "--order-by"), ("window.host_count", "--count")],
)
def test_a_field_at_fault_is_the_option_that_was_typed(
    field: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{field}: will not do"
    with pytest.raises(typer.Exit) as caught, calls.connected("127.0.0.1:1"):
        raise ServiceError("INVALID_ARGUMENT", text, "INVALID", ((field, "will not do"),))

    assert caught.value.exit_code == 2
    assert capsys.readouterr().err == f"muster: {option}: will not do\n"


def test_a_label_is_changed_once_in_a_command() -> None:
    for second in (("--label", "a=2"), ("--unlabel", "a")):
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


def test_a_number_beyond_the_wire_and_what_is_no_duration_are_refused() -> None:
    for command, option, value in (
        ("update", "--priority", "99999999999"),
        ("resize", "--role", "b=99999999999"),
        *(("update", "--limit", text) for text in ("99999999999", "2.5h", "-3", "h", "9999999d")),
    ):
        result = CliRunner().invoke(app, [command, "a", f"{option}={value}"])

        assert result.exit_code == 2, value
        assert option in result.output


def test_help_is_shown_as_it_is_written() -> None:
    """Rich takes `[default: now]` for a style and `:a:` for an emoji."""
    load_commands()
    for name, command in commands(get_command(app)):
        for text in [command.help, *(getattr(each, "help", "") for each in command.params)]:
            assert Text.from_markup(text or "").plain == (text or ""), name
