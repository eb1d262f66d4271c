"""What is under deploy/ and in docs/operations.md goes with the program."""

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from scheduler.access.auth_file.reading import load_auth
from scheduler.access.oidc.section import OidcKeys, RuleKeys
from scheduler.cli.program import app, load_commands
from scheduler.files.yaml12 import load, parse
from scheduler.identity import Role
from scheduler.server.config import ServerKeys, keys, load_server_file
from scripts.deb import control, stage

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILE = DEPLOY / "muster.yaml"
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
UNIT = (DEPLOY / "muster.service").read_text(encoding="utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace(" \\\n", " ")
load_commands()
COMMANDS = typer.main.get_command(app)


def uncommented() -> str:
    """The server file with every key in force, as its comments say."""
    rows = FILE.read_text(encoding="utf-8").splitlines()
    key = re.compile(r"^(\s*)# ?(\s*[a-z_]+:( |$).*)$")
    return "\n".join(key.sub(r"\1\2", row) for row in rows)


SECTIONS = ("tls", "auth", "limits", "metrics", "console", "log", "agents", "slurm", "kubernetes")


def test_the_server_file_has_every_key_and_its_default() -> None:
    assert load_server_file(str(FILE)).tls.key == str(DEPLOY / "tls/server.key")
    document = parse(uncommented(), "muster.yaml")
    assert set(document.lines) == {*keys(), *SECTIONS}
    plain = ServerKeys()
    for section in ("limits", "log"):
        assert document.value[section] == getattr(plain, section).model_dump(mode="json")
    resizing = ("resize_every_s", "least_gain_percent")
    serving = ("policy", "assumed_limit_h", *resizing, "drain_s", "snapshot_every", "lease_s")
    for key in (*serving, "insecure"):
        assert document.value[key] == getattr(plain, key), key


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


def test_every_key_and_role_is_in_the_page() -> None:
    known = (*keys(), *OidcKeys.model_fields, *RuleKeys.model_fields)
    assert [key for key in known if f"`{key}`" not in PAGE and f"{key}: " not in PAGE] == []
    assert [role for role in Role if f"| {role.name.lower()} |" not in PAGE] == []


def test_commands_in_the_page_exist() -> None:
    known: dict[str, object] = COMMANDS.commands  # type: ignore[attr-defined]
    named = set(re.findall(r"(?:`|^    (?:\S*/)?)muster ([a-z][a-z-]*)", PAGE, re.MULTILINE))
    assert {"serve", "token", "audit", "store", "health", "jobs"} <= named <= set(known)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    assert "ExecStart=/opt/muster/bin/muster serve --config /etc/muster/muster.yaml" in UNIT
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


def test_the_image_has_every_package() -> None:
    copied = [part for step in steps("COPY") if "--from" not in step for part in step.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    listed = re.search(r"packages = \[(.+)\]", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert set(re.findall(r'"(\w+)"', listed[1])) <= set(copied)


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


# --- the chart is the kustomization; the role and the package install what is there --

CHART = ROOT / "deploy" / "helm" / "muster"
KUSTOMIZE = ROOT / "deploy" / "kubernetes"
ROLE = ROOT / "deploy" / "ansible" / "roles" / "muster"


def _rendered(**values: Any) -> dict[tuple[str, str], Any]:
    """The objects of the chart in the namespace muster: as `helm template` does what it uses."""
    given = yaml.safe_load((CHART / "values.yaml").read_text()) | values
    found = {}
    for path in sorted((CHART / "templates").iterdir()):
        text = re.sub(
            r"(?ms)\n?\{\{- if \.Values\.(\w+) \}\}\n(.*?)\{\{- end \}\}",
            lambda m: "\n" + m[2] if given[m[1]] else "",
            path.read_text(),
        )
        text = re.sub(
            r"\{\{ \.Values\.(\w+) \| indent (\d+) \}\}",
            lambda m: re.sub("(?m)^(?=.)", " " * int(m[2]), given[m[1]]),
            text,
        )
        text = re.sub(r"\{\{ \.Values\.(\w+) \}\}", lambda m: str(given[m[1]]), text)
        text = text.replace("{{ .Release.Namespace }}", "muster")
        assert "{{" not in text, path
        found |= {_key(item): item for item in yaml.safe_load_all(text) if item}
    return found


def _key(item: Any) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]


def test_the_chart_makes_what_the_kustomization_makes() -> None:
    names = yaml.safe_load((KUSTOMIZE / "kustomization.yaml").read_text())["resources"]
    texts = [(KUSTOMIZE / name).read_text() for name in names if name != "namespace.yaml"]
    wanted = {_key(i): i for text in texts for i in yaml.safe_load_all(text) if i}
    assert _rendered() == wanted


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    found = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert found
    assert (chart["version"], chart["appVersion"]) == (found[1], found[1])


@pytest.mark.parametrize("is_monitored", [False, True])
def test_the_server_file_of_the_chart_is_one(tmp_path: Path, is_monitored: bool) -> None:
    made = _rendered(serviceMonitor=is_monitored)
    assert (("ServiceMonitor", "muster") in made) is is_monitored
    for name, text in made["ConfigMap", "muster-config"]["data"].items():
        (tmp_path / name).write_text(text)
    keys = load_server_file(str(tmp_path / "muster.yaml"))
    assert bool(keys.metrics and keys.metrics.listen) is is_monitored
    ports = {each["name"]: each["port"] for each in made["Service", "muster"]["spec"]["ports"]}
    assert ports["metrics"] == 9464


def test_the_role_copies_and_starts_what_is_there() -> None:
    tasks = yaml.safe_load((ROLE / "tasks" / "main.yml").read_text())
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    handlers = yaml.safe_load((ROLE / "handlers/main.yml").read_text())
    text = yaml.safe_dump(tasks)
    assert set(re.findall(r"\{\{ (muster_\w+)", text)) <= set(defaults)
    told = [each["notify"] for each in tasks if "notify" in each]
    named = [[names] if isinstance(names, str) else names for names in told]
    assert {name for names in named for name in names} == {each["name"] for each in handlers}
    assert all(each["ansible.builtin.systemd_service"]["enabled"] for each in handlers)
    store = load_server_file(str(ROOT / "deploy" / "muster.yaml")).store
    assert f"muster store init --store {store}" in text
    for source in re.findall(r"muster_checkout \}\}/([\w./-]+)", text):
        assert (ROOT / source).exists(), source


def test_the_package_has_a_launcher_units_and_examples(tmp_path: Path) -> None:
    stage(tmp_path, "3.11")
    launcher = tmp_path / "opt/muster/bin/muster"
    assert launcher.stat().st_mode & 0o777 == 0o755
    units = {path.name for path in (tmp_path / "lib/systemd/system").iterdir()}
    assert units == {"muster.service", "muster-agent.service"}
    assert (tmp_path / "usr/share/doc/muster/examples/muster.yaml").is_file()
    assert "Depends: python3 (>= 3.11), python3 (<< 3.12)" in control("0.1.0", "3.11", 1)


def test_processes_of_the_package_find_its_packages(tmp_path: Path) -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not Path(f"/usr/bin/python{version}").exists():
        pytest.skip(f"no /usr/bin/python{version} here")
    stage(tmp_path, version)
    folder = tmp_path / f"opt/muster/lib/python{version}/site-packages"
    folder.mkdir(parents=True)
    (folder / "probe.py").write_text("NAME = 'found'")
    inner = "import probe; print(probe.NAME)"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    command = [str(tmp_path / "opt/muster/bin/python"), "-c", outer]
    done = subprocess.run(command, capture_output=True, text=True, env={})
    assert (done.stdout, done.stderr) == ("found\n", "")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb here")
def test_dpkg_takes_the_package(tmp_path: Path) -> None:
    stage(tmp_path / "root", "3.11")
    made = tmp_path / "muster.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(tmp_path / "root"), str(made)]
    subprocess.run(command, check=True, capture_output=True)
    shown = subprocess.check_output(["dpkg-deb", "-I", str(made)], text=True)
    assert "Package: muster-scheduler" in shown
