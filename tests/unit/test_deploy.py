"""What is under deploy/ and in docs/operations.md goes with the program."""

import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
import typer

from scheduler.access.auth_file.reading import load_auth
from scheduler.access.oidc.section import OidcKeys, RuleKeys
from scheduler.cli.program import app
from scheduler.files.yaml12 import load, parse
from scheduler.identity import Role
from scheduler.server.config import ServerKeys, keys, load_server_file

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "muster.yaml"
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
UNIT = (DEPLOY / "muster.service").read_text(encoding="utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace(" \\\n", " ")
COMMANDS = typer.main.get_command(app)


def uncommented() -> str:
    """The server file with every key in force, as its comments say."""
    rows = FILE.read_text(encoding="utf-8").splitlines()
    key = re.compile(r"^(\s*)# ?(\s*[a-z_]+:( |$).*)$")
    return "\n".join(key.sub(r"\1\2", row) for row in rows)


def test_the_server_file_is_one() -> None:
    found = load_server_file(str(FILE))
    assert found.tls.key == str(DEPLOY / "tls/server.key")


SECTIONS = ("tls", "auth", "limits", "metrics", "console", "log", "agents", "slurm", "kubernetes")


def test_the_server_file_has_every_key_and_its_default() -> None:
    document = parse(uncommented(), "muster.yaml")
    assert set(document.lines) == {*keys(), *SECTIONS}
    plain = ServerKeys()
    for section in ("limits", "log"):
        assert document.value[section] == getattr(plain, section).model_dump(mode="json")
    resizing = ("resize_every_s", "least_gain_percent")
    serving = ("policy", "assumed_limit_h", *resizing, "drain_s", "snapshot_every", "lease_s")
    for key in (*serving, "insecure"):
        assert document.value[key] == getattr(plain, key), key


def test_every_key_is_in_the_page() -> None:
    assert [key for key in keys() if f"`{key}`" not in PAGE] == []


def test_the_auth_file_is_one() -> None:
    known = load_auth(str(DEPLOY / "auth.yaml"))
    assert {entry.role for entry in known.certificates} == {Role.LAUNCHER, Role.VIEWER}
    assert load(DEPLOY / "auth.yaml").value


def test_the_issuer_of_the_auth_file_is_one(tmp_path: Path) -> None:
    """Once it is no comment any more; the same of the page."""
    text = (DEPLOY / "auth.yaml").read_text(encoding="utf-8")
    _, found, section = text.partition("# oidc:\n")
    assert found
    shown = re.search(r"^    oidc:\n(      .*\n)+", PAGE, re.MULTILINE)
    assert shown
    (tmp_path / "oidc.secret").write_text("secret\n", encoding="utf-8")
    for rows in ("oidc:\n" + re.sub("(?m)^# ", "", section), textwrap.dedent(shown[0])):
        (tmp_path / "auth.yaml").write_text(rows, encoding="utf-8")
        known = load_auth(str(tmp_path / "auth.yaml")).oidc
        assert known.secret() == "secret"
        assert {rule.role for rule in known.rules} >= {Role.ADMIN, Role.SUBMITTER}


def test_every_key_of_an_issuer_is_in_the_page() -> None:
    known = (*OidcKeys.model_fields, *RuleKeys.model_fields)
    assert [key for key in known if f"`{key}`" not in PAGE and f"{key}: " not in PAGE] == []


@pytest.mark.parametrize("role", Role)
def test_every_role_is_explained(role: Role) -> None:
    assert f"| {role.name.lower()} |" in PAGE


def test_commands_in_the_page_exist() -> None:
    known: dict[str, object] = COMMANDS.commands  # type: ignore[attr-defined]
    named = set(re.findall(r"(?:`|^    (?:\S*/)?)muster ([a-z][a-z-]*)", PAGE, re.MULTILINE))
    assert {"serve", "token", "audit", "store", "health", "jobs"} <= named <= set(known)


def test_the_unit_starts_what_is_installed() -> None:
    assert "ExecStart=/opt/muster/bin/muster serve --config /etc/muster/muster.yaml" in UNIT
    assert "Type=notify" in UNIT
    assert "/opt/muster/bin/pip install" in PAGE


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    # Here nothing is installed under /opt, so that a program that is here stands in.
    unit = tmp_path / "muster.service"
    text = UNIT.replace("/opt/muster/bin/muster serve", f"{shutil.which('true')} serve")
    unit.write_text(text.replace("User=muster\nGroup=muster\n", ""), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    found = [line for line in done.stderr.splitlines() if "muster.service" in line]
    assert (done.returncode, found) == (0, [])


def steps(word: str) -> list[str]:
    return re.findall(rf"^{word} (.+)$", CONTAINER, re.MULTILINE)


def test_what_the_image_copies_is_there() -> None:
    copied = [part for step in steps("COPY") if "--from" not in step for part in step.split()[:-1]]
    assert copied
    assert [name for name in copied if not (ROOT / name).exists()] == []


def test_the_image_has_every_package() -> None:
    listed = re.search(r"packages = \[(.+)\]", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert listed
    copied = {part for step in steps("COPY") for part in step.split()}
    assert set(re.findall(r'"(\w+)"', listed[1])) <= copied


def test_the_image_runs_commands_that_exist() -> None:
    known: dict[str, object] = COMMANDS.commands  # type: ignore[attr-defined]
    run = [*steps("CMD"), *(step.split("CMD ")[1] for step in steps("HEALTHCHECK"))]
    words = [re.findall(r'"([^"]+)"', text) for text in run]
    assert words == [["serve", "--config", "/etc/muster/muster.yaml"], ["muster", "health"]]
    assert {"serve", "health"} <= set(known)


def test_a_server_needs_nothing_that_tests_do_not_have() -> None:
    """The pins of deploy/requirements.lock are pins of requirements.lock."""

    def pins(path: Path) -> set[str]:
        return set(re.findall(r"^([\w.-]+==[^\s;]+)", path.read_text("utf-8"), re.MULTILINE))

    server = pins(DEPLOY / "requirements.lock")
    assert server < pins(ROOT / "requirements.lock")
    assert not {pin for pin in server if pin.startswith(("pytest", "mypy", "trustme"))}
